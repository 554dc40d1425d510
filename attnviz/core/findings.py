"""What commands found out about every head of a model, to stand beside it or another run's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, a share of cases, or a difference of two, and how sure it is.

    Attributes:
        value: None where there is no case.
        low: of its 95 % interval over texts, documents or needles; None from fewer than five, or
            where none differ. ``high`` likewise.
        high: the other end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


UNKNOWN = Interval(None)
"""Where there is no case."""


Value = tuple[float, float | None, float | None]
"""A number and its 95 % interval; None where there is none."""


def known(estimates: Mapping[str, Interval]) -> dict[str, Value]:
    """The values of heads, by their names, of those that are known."""
    return {
        head: (estimate.value, estimate.low, estimate.high)
        for head, estimate in estimates.items()
        if estimate.value is not None
    }


def bare(numbers: Mapping[str, float]) -> dict[str, Value]:
    """Numbers of heads that have no interval."""
    return {head: (number, None, None) for head, number in numbers.items()}


WITHOUT_IT = ("better without it", "worse without it")
RAISES = ("lowers it", "raises it")
COPYING = ("lowers the token that it reads", "copies it")
"""What adverse numbers and the others say: of what a model loses without a head, of what a head
writes to a logit, and of what it does to the logit of the token that it reads."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of heads, to compare them by.

    Attributes:
        name: in a word or two, of its finding alone: ``effect``.
        title: in full: ``effect of taking it away``.
        unit: ``nats``; empty for shares.
        adverse: the sign of numbers that speak against a head, such as a loss that falls without
            it; 0 for numbers without a sign.
        values: by a head's name; heads that were not measured are not there.
        ends: what an adverse number and the other say: ``better without it``, ``worse
            without it``.
    """

    name: str
    title: str
    unit: str
    adverse: int
    values: Mapping[str, Value]
    ends: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Finding:
    """One result, head by head.

    Attributes:
        part: the command that found it: ``ablate``.
        name: of its file.
        title: the question that it answers.
        how: full sentences on how that was measured.
        said: what it says of each head, line by line, by the head's name.
        measures: see :class:`Measure`.
    """

    part: str
    name: str
    title: str
    how: str
    said: Mapping[str, tuple[str, ...]]
    measures: tuple[Measure, ...]

    @classmethod
    def of(
        cls,
        part: str,
        name: str,
        title: str,
        how: str,
        said: Mapping[str, Iterable[str]],
        measures: Iterable[Measure],
    ) -> Finding:
        """The same, without heads of which it says nothing and measures that no head has."""
        lines = {head: tuple(some) for head, some in said.items()}
        lines = {head: some for head, some in lines.items() if some}
        return cls(part, name, title, how, lines, tuple(m for m in measures if m.values))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a result.

    Attributes:
        values: by the name of a head, or of a group of heads, and the name of the figure; None
            where it is not known.
        roles: that a head or group has; those without any may be missing.
        settings: what must be the same in both runs, such as the metric of an ablation.
    """

    values: Mapping[str, Mapping[str, float | None]]
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileProblem:
    """One thing that is wrong with a recording.

    Attributes:
        path: of it inside the file, such as ``attentions[2, 0, 5]``; empty for the whole file.
        expected: what the format asks for.
        found: what is there, and how often where it is there more than once.
    """

    path: str
    expected: str
    found: str
