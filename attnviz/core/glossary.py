"""The terms that attnviz uses, each defined once."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from attnviz.errors import UsageError


@dataclass(frozen=True, slots=True)
class Term:
    """A term.

    Attributes:
        name: as the literature has it; ``also`` other names.
        also: see ``name``.
        text: what it means here.
        source: where it is defined; empty for terms of our own.
        command: shows it, to try.
    """

    name: str
    also: tuple[str, ...]
    text: str
    source: str
    command: str


@cache
def terms() -> tuple[Term, ...]:
    """All of them, by name."""
    text = files(__package__).joinpath("terms.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)["term"]
    return tuple(
        Term(row["name"], tuple(row["also"]), row["text"], row["source"], row["try"])
        for row in entries
    )


def term(name: str) -> Term:
    """The term of a name, whatever its case, hyphens and plural."""
    entry = _named(name)
    if entry is None:
        close = get_close_matches(_plain(name), _names(), 3)
        near = f"; did you mean {' or '.join(close)}?" if close else ";"
        raise UsageError(f"the glossary has no term {name[:40]!r}{near} attnviz help lists all")
    return entry


def known(name: str) -> bool:
    """Whether the glossary has a term of that name."""
    return _named(name) is not None


def _named(name: str) -> Term | None:
    asked = _plain(name)
    return _names().get(asked) or _names().get(asked.removesuffix("s")) or _pasted(name)


def _pasted(text: str) -> Term | None:
    """Find the longest name within a text, such as an error message; names of a word or two not."""
    asked = f" {_words(text)} "
    longest = max(
        (name for name in _names() if _is_telling(name) and f" {_words(name)} " in asked),
        key=len,
        default=None,
    )
    return None if longest is None else _names()[longest]


def _is_telling(name: str) -> bool:
    return "_" in name or len(name.split()) > 3


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@cache
def _names() -> dict[str, Term]:
    """Every term by each of its names, plainly written."""
    return {_plain(other): term for term in terms() for other in (term.name, *term.also)}


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("-", " ").split())
