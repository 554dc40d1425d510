"""What the help knows: terms, and questions with the command that answers each."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from attnviz.errors import UsageError

_SMALL = frozenset(
    "a an and are as at be between by can do does did for from get has have how i if in is it its "  # noqa: SIM905
    "make me my no not of on one or that the their them there they this to was what when where "
    "which who why will with would you your".split()
)
"""Words that most questions have."""
_ENDINGS = re.compile(r"(?:ations?|ing|ed|es|s|e)$")


_HEAD = re.compile(
    r"(?<![\w.-])(?P<kind>(?:enc|dec|cross):)?"
    r"(?:(?P<l>\d{1,4})\.(?P<h>\d{1,4})|l(?P<l2>\d{1,4})h(?P<h2>\d{1,4}))(?!\.?[\w-])"
)
_SELECTED = re.compile(r"(?<=-select )\S+")


@dataclass(frozen=True, slots=True)
class Question:
    """A question."""

    asks: str  # the question itself
    words: frozenset[str]  # others that ask for the same command
    command: str  # a command line that answers it on a bundled model
    tells: str  # what the answer says
    page: str  # of docs/ that says more, without its suffix
    python: str = ""  # the same in Python, where that is what is asked about; else empty


def about_head(text: str) -> list[Question]:
    """Return the questions whose commands take one head, with the head that is asked about.

    Those near what else is asked if one of them is nearest, or all; none where no head is named.
    """
    match = _HEAD.search(text.lower())
    if match is None:
        return []
    head = f"{match['kind'] or ''}{int(match['l'] or match['l2'])}.{int(match['h'] or match['h2'])}"
    taking = [question for question in questions() if _SELECTED.search(question.command)]
    near = nearest(_HEAD.sub("", text.lower()))
    chosen = [question for question in near if question in taking]
    return [
        replace(question, command=_SELECTED.sub(head, question.command))
        for question in (chosen if chosen[:1] == near[:1] != [] else taking)
    ]


@cache
def questions() -> tuple[Question, ...]:
    """All of them, from what is asked first to what few ask."""
    text = files(__package__).joinpath("questions.toml").read_text(encoding="utf-8")
    return tuple(
        Question(
            entry["asks"],
            frozenset(_stems(f"{entry['asks']} {entry['words']}")),
            entry["command"],
            entry["tells"],
            entry["page"],
            entry.get("python", ""),
        )
        for entry in tomllib.loads(text)["question"]
    )


def nearest(text: str, count: int = 3) -> list[Question]:
    """Give the questions that share the rarest words with what is asked, best first; perhaps none.

    A word counts for the logarithm of how few questions have it, and twice where it is in the
    question itself; what has less than half of the best one's sum is left out.
    """
    frequency = Counter(word for question in questions() for word in question.words)
    stems = set(_stems(text)) & frequency.keys()
    rare = {word: math.log(1 + len(questions()) / frequency[word]) for word in stems}
    sums = [
        (
            sum(rare[word] for word in stems & question.words)
            + sum(rare[word] for word in stems.intersection(_stems(question.asks))),
            question,
        )
        for question in questions()
    ]
    best = sorted(sums, key=lambda pair: -pair[0])[:count]
    return [question for value, question in best if value > 0 and value >= 0.5 * best[0][0]]


def _stems(text: str) -> list[str]:
    """Return the words of a text that tell something, in lower case and without their endings."""
    words = [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _SMALL]
    return [_ENDINGS.sub("", word) if len(word) > 4 else word for word in words]


@dataclass(frozen=True, slots=True)
class Term:
    """A term."""

    name: str  # as the literature has it; ``also`` other names
    also: tuple[str, ...]
    text: str  # what it means here
    source: str  # where it is defined; empty for terms of our own
    command: str  # shows it, to try


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
    """Return the term of a name, whatever its case, hyphens and plural."""
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
    plain = _plain(name)
    return _names().get(plain) or _names().get(plain.removesuffix("s")) or _pasted(name)


def _pasted(text: str) -> Term | None:
    """Find the longest name within a text, such as an error message; names of a word or two not."""
    padded = f" {_words(text)} "
    longest = max(
        (
            name
            for name in _names()
            if ("_" in name or len(name.split()) > 3) and f" {_words(name)} " in padded
        ),
        key=len,
        default=None,
    )
    return None if longest is None else _names()[longest]


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@cache
def _names() -> dict[str, Term]:
    """Every term by each of its names, plainly written."""
    return {_plain(name): term for term in terms() for name in (term.name, *term.also)}


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("-", " ").split())
