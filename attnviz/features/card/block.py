"""A block between two markers in a Markdown file, and whether it is still that of its model.

The first marker has the facts that the block depends on, as JSON in an HTML comment, and a hash of
the block's text: whether it is stale is seen without running the model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from attnviz.errors import InputError

BEGIN, END = "<!-- attnviz-card: ", "<!-- /attnviz-card -->"
_BLOCK = re.compile(
    re.escape(BEGIN) + r"(?P<facts>\{.*?\}) -->\n(?P<body>.*?)\n?" + re.escape(END), re.DOTALL
)

Facts = Mapping[str, str]
"""Of a block: what it is of, by names that people know, each with a value or a hash."""


@dataclass(frozen=True, slots=True)
class CardBlock:
    """A block as it stands in a file.

    Attributes:
        facts: what it says that it is of.
        body: its text, without the markers.
    """

    facts: Facts
    body: str

    def text(self) -> str:
        """With its markers."""
        facts = {**self.facts, "text": digest(self.body)}
        return f"{BEGIN}{json.dumps(facts)} -->\n{self.body}\n{END}"

    def stale(self, facts: Facts) -> list[str]:
        """What of it is not as it would be now; empty where it is.

        Args:
            facts: of a block that would be made now.
        """
        now = {**facts, "text": digest(self.body)}
        return [name for name, value in now.items() if self.facts.get(name) != value]


def find(text: str, name: str) -> CardBlock | None:
    """The block in a file; None where there is none.

    Args:
        text: of the file.
        name: of the file.

    Raises:
        InputError: a marker without the other, several blocks, or a first marker that is damaged.
    """
    found = list(_BLOCK.finditer(text))
    if not found and BEGIN.strip() not in text and END not in text:
        return None
    if len(found) != 1 or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise InputError(
            f"{name} has no single pair of markers {BEGIN.strip()} … and {END}; delete what is "
            "left of them, and the block is appended anew"
        )
    try:
        facts = json.loads(found[0]["facts"])
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not all(isinstance(one, str) for one in facts.values()):
        raise InputError(f"{name} has a damaged marker {BEGIN.strip()}; delete the block")
    return CardBlock(facts, found[0]["body"])


def put(text: str, block: CardBlock, name: str) -> str:
    """The file's text with the block in the place of the old one, or at its end.

    Args:
        text: of the file.
        block: the new one.
        name: of the file.

    Raises:
        InputError: see :func:`find`.
    """
    if find(text, name) is not None:
        return _BLOCK.sub(lambda _: block.text(), text)
    before = f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{before}{block.text()}\n"


def digest(text: str) -> str:
    """A hash of a text, whatever its ends of lines."""
    plain = "\n".join(text.splitlines())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]
