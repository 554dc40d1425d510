"""A block between two markers in a Markdown file, and whether it is still that of its model.

The first marker has the facts that the block depends on, as JSON in an HTML comment, and a hash of
the block's text: whether it is stale is seen without running the model. A marker stands at the
start of a line; one that is quoted, in a sentence or in a block of code, is text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.core.settings import Settings, like, setting
from attnviz.errors import InputError
from attnviz.features.profile.result import CorpusSettings

_BEGIN, _CLOSE, END = "<!-- attnviz-card:", " -->", "<!-- /attnviz-card -->"
_FENCE = re.compile(r" {0,3}(?:(?P<ticks>`{3,})[^`]*|(?P<tildes>~{3,}).*)")
"""The line that opens a block of code, as CommonMark has it."""

Facts = Mapping[str, str]
"""Of a block: what it is of, by names that people know, each with a value or a hash."""


@dataclass(frozen=True, slots=True)
class CardBlock:
    r"""A block as it stands in a file."""

    facts: Facts  # what it says that it is of
    body: str  # its text, without the markers; its lines end in ``\n``

    def text(self) -> str:
        """With its markers."""
        facts = {**self.facts, "text": digest(self.body)}
        return f"{_BEGIN} {json.dumps(facts)}{_CLOSE}\n{self.body}\n{END}"

    def stale(self, facts: Facts) -> list[str]:
        """Return what of it is not as it would be now; empty where it is."""
        current = {**facts, "text": digest(self.body)}
        return [name for name, value in current.items() if self.facts.get(name) != value]


def find(text: str, name: str) -> CardBlock | None:
    """Return the block in a file; None where there is none."""
    span = _place(text, name)
    return None if span is None else span[2]


def put(text: str, block: CardBlock, name: str) -> str:
    """Put the block in the place of the old one or at the end; all else stays byte by byte."""
    newline = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    body = block.text().replace("\n", newline)
    span = _place(text, name)
    if span is not None:
        start, end, _ = span
        return f"{text[:start]}{body}{text[end:]}"
    ends = text[len(text.rstrip("\r\n")) :].count("\n")
    gap = newline * max(2 - ends, 0) if text else ""
    longer = f"{text}{gap}{body}{newline}"
    if find(longer, name) is None:
        raise InputError(f"{name} ends inside a block of code; close it, or the card is code too")
    return longer


def digest(text: str) -> str:
    """Return a hash of a text, whatever its ends of lines."""
    plain = "\n".join(text.splitlines())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _place(text: str, name: str) -> tuple[int, int, CardBlock] | None:
    """Where the block begins, where its last marker ends, and the block; None without one."""
    markers = list(_markers(text))
    if not markers:
        return None
    if [mark for mark, _ in markers] != [_BEGIN, END]:
        raise InputError(
            f"{name} has no single pair of markers {_BEGIN} … and {END}; delete what is left of "
            "them, and the block is appended anew"
        )
    (_, start), (_, last) = markers
    lines = text[start:last].replace("\r\n", "\n").split("\n")
    block = CardBlock(_facts(lines[0], name), "\n".join(lines[1:-1]))
    return start, last + len(END), block


def _markers(text: str) -> Iterator[tuple[str, int]]:
    """Yield the markers that are not quoted, and where they begin; in one pass over the lines."""
    fence, inside, start = "", False, 0
    for line in text.split("\n"):
        opening = _FENCE.fullmatch(line.rstrip("\r"))
        if fence:  # closed by as many of its characters, or more, and nothing else
            last = line.strip()
            if len(last) >= len(fence) and not last.strip(fence[0]):
                fence = ""
        elif line.startswith((_BEGIN, END)):
            inside = line.startswith(_BEGIN)
            yield _BEGIN if inside else END, start
        elif opening is not None and not inside:
            fence = opening["ticks"] or opening["tildes"]
        start += len(line) + 1


def _facts(line: str, name: str) -> dict[str, str]:
    """Return what a first marker says; InputError where it is damaged."""
    facts: Any = None
    try:
        if line.endswith(_CLOSE):
            facts = json.loads(line.removeprefix(_BEGIN).removesuffix(_CLOSE))
    except (ValueError, RecursionError):
        pass
    if not isinstance(facts, dict) or not all(isinstance(fact, str) for fact in facts.values()):
        raise InputError(f"{name} has a damaged marker {_BEGIN}; delete the block")
    return facts


PICTURE = "attention-heads.png"  # beside the card
NONE = "none"


@dataclass(frozen=True)
class CardSettings(Settings):
    """How many texts, and the picture."""

    limit: int | None = like(CorpusSettings, "limit", panel=None)
    picture: str = setting(
        PICTURE,
        "Name of the picture beside the card; none for no picture.",
        metavar="NAME",
        common=True,
    )

    @property
    def drawn(self) -> str:
        """The name of the picture; empty for none."""
        return "" if self.picture == NONE else self.picture
