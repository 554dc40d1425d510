"""Questions that one may ask of a model, each with the command that answers it."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

_SMALL = frozenset(
    "a an and are as at be by can do does did for from get has have how i if in is it its me my no "  # noqa: SIM905
    "not of on one or that the their them there they this to was what when where which who why "
    "will with would you your".split()
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
    """A question.

    Attributes:
        asks: the question itself.
        words: others that ask for the same command.
        command: a command line that answers it on a bundled model.
        tells: what the answer says.
        page: of docs/ that says more, without its suffix.
    """

    asks: str
    words: frozenset[str]
    command: str
    tells: str
    page: str


def about_head(asked: str) -> list[Question]:
    """The questions whose commands take one head, with the head that is asked about.

    Those near what else is asked if one of them is nearest, or all; none where no head is named.
    """
    match = _HEAD.search(asked.lower())
    if match is None:
        return []
    head = f"{match['kind'] or ''}{int(match['l'] or match['l2'])}.{int(match['h'] or match['h2'])}"
    taking = [question for question in questions() if _SELECTED.search(question.command)]
    near = nearest(_HEAD.sub("", asked.lower()))
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
        )
        for entry in tomllib.loads(text)["question"]
    )


def nearest(asked: str, count: int = 3) -> list[Question]:
    """The questions that share the rarest words with what is asked, best first; perhaps none.

    A word counts for the logarithm of how few questions have it, and twice where it is in the
    question itself; what has less than half of the best one's sum is left out.
    """
    known = Counter(word for question in questions() for word in question.words)
    stems = set(_stems(asked)) & known.keys()
    rare = {word: math.log(1 + len(questions()) / known[word]) for word in stems}
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
    """The words of a text that tell something, in lower case and without their endings."""
    words = [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _SMALL]
    return [_ENDINGS.sub("", word) if len(word) > 4 else word for word in words]
