"""What attnviz finds, as values that know their JSON both ways.

A :class:`Record` is a frozen dataclass under the name and version of a schema. What is compared is
what is written: fields with ``compare=False`` (arrays, results laid beside this one) stay out of
files, and everything else comes back equal. Reading, its errors and the JSON Schemas all follow
from the types, by msgspec. A head is written as its name, so whatever is known by head is a mapping
from heads or a record with a head in it, never a place in a list.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from attnviz.core.provenance import Made, called_by
from attnviz.errors import InputError, encodable

_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Where half a character may be: as JSON escapes it, or as it is."""
SCHEMAS = "https://json-schema.org/draft/2020-12/schema"

_MADE = {
    "description": "What made the file: in saved ones, and not in what is printed.",
    "type": "object",
    "properties": {field.name: {"type": "string"} for field in fields(Made)},
}


@dataclass(frozen=True)
class Record:
    """Something found, under the name and version of its schema."""

    schema: ClassVar[str]  # such as ``attnviz.ablate/1``; the number steps where the shape changes
    command: ClassVar[str]  # which makes it anew
    # spaces of its JSON text; None for one line, where most of it are arrays
    indent: ClassVar[int | None] = 2

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: dictionaries, lists, strings, finite numbers and None."""
        from attnviz.core import json_types

        return {"schema": self.schema, **json_types.written(self)}

    @property
    def made(self) -> Made:
        """What makes files of it now: model, version, command and day."""
        return Made.now(command=called_by(self))

    def to_json(self, made: Made | None = None) -> str:
        """Return the same as text; numbers to their last digit.

        Args:
            made: what made the file that it goes to; it stands in front, and reading leaves it out.
        """
        from msgspec.json import format as indented

        document = self.to_dict()
        if made is not None:
            document = {"schema": self.schema, "made": made.to_dict(), **document}
        try:
            text = json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half a character of a name that is no UTF-8: JSON's escape
            return encodable(json.dumps(document, ensure_ascii=False, indent=self.indent))
        return (text if self.indent is None else indented(text, indent=self.indent)).decode()

    @classmethod
    def from_dict(cls, document: Any, name: str = "the document") -> Self:
        """Return the record that :meth:`to_dict` wrote, equal to it.

        Args:
            document: of one file.
            name: of it, for messages.

        Raises:
            InputError: another schema or version, or a part that is missing, of another type or of
                another length (:mod:`attnviz.core.lengths`); the message says which.
        """
        from attnviz.core import json_types

        check_schema(cls, document, name)
        try:
            return json_types.read(cls, document)
        except (ValueError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{name} is damaged: {_said(error)}; make it again with attnviz {cls.command}"
            ) from None

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "the document") -> Self:
        """Return the record that :meth:`to_json` wrote; InputError as for :meth:`from_dict`."""
        return cls.from_dict(parsed(text, name), name)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Of its JSON, from the types."""
        from attnviz.core import json_types

        body, parts = json_types.described(cls)
        body["properties"] = {"schema": {"const": cls.schema}, "made": _MADE, **body["properties"]}
        body["required"] = ["schema", *body.get("required", ())]
        schema = {"$schema": SCHEMAS, "$id": cls.schema, **body, "$defs": parts}
        plain: dict[str, Any] = json.loads(json.dumps(schema))  # defaults that are tuples
        return plain


def parsed(text: str | bytes, name: str) -> Any:
    """Return a text as JSON; InputError where it is none."""
    try:
        document = json.loads(text, parse_constant=_not_json)
        decoded = text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")
        return _encodable(document) if _HALF.search(decoded) else document
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not readable JSON: {_said(error)}; check the file") from None


def _encodable(part: Any) -> Any:
    """Spell the halves of characters in every string of a document."""
    if isinstance(part, str):
        return encodable(part)
    if isinstance(part, list):
        return [_encodable(inner) for inner in part]
    if isinstance(part, dict):
        return {encodable(key): _encodable(inner) for key, inner in part.items()}
    return part


def _not_json(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _said(error: Exception) -> str:
    """Return what an error says, on one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return " ".join(str(error).split())[:200]


def check_schema(cls: type[Record], document: Any, name: str) -> None:
    """InputError for a document of another kind, or of another version of this one."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == cls.schema:
        return
    if not isinstance(schema, str) or not schema.startswith("attnviz."):
        raise InputError(
            f"{name} is not an attnviz result; give a JSON file that an attnviz command "
            "wrote")  # fmt: skip
    kind, _, _ = schema.partition("/")
    expected, _, current = cls.schema.partition("/")
    holds = f"{name} is {' '.join(schema.split())[:40]}"
    if kind == expected:
        raise InputError(
            f"{holds}, and this attnviz reads version {current}; make it again "
            f"with attnviz {cls.command}"
        )
    raise InputError(f"{holds}, not {cls.schema}")
