"""What attnviz finds about the heads of a model: a record that begins with what all share.

What commands found out about every head of a model, to stand beside it or another run's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import Made, SourceInfo, called_by, hash_of
from attnviz.core.record import Record
from attnviz.core.scores import Estimate, Role
from attnviz.errors import UsageError


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
    """Return the values of heads, by their names, of those that are known."""
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
        """Return the same, without heads of which it says nothing and measures that no head has."""
        lines = {head: tuple(sentences) for head, sentences in said.items()}
        lines = {head: sentences for head, sentences in lines.items() if sentences}
        return cls(part, name, title, how, lines, tuple(m for m in measures if m.values))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a result."""

    # by the name of a head or group of heads, and of the figure; None where it is not known
    values: Mapping[str, Mapping[str, float | None]]
    # that a head or group has; those without any may be missing
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # what must be the same in both runs, such as the metric of an ablation
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


Leaf = tuple[tuple[tuple[str, bool], ...], tuple[str, ...]]
"""A leaf of a tree of rules: what its queries are, by the names of conditions, each with whether it
holds; and relations, which say which key such a query looks at, in the order in which they do."""

DIGITS = 16
"""Of a hash in a result; captions show the first half of them."""


def fingerprint(texts: Iterable[object]) -> str:
    """Return a hash of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(repr(text).encode("utf-8", "backslashreplace") + b"\n")
    return digest.hexdigest()[:DIGITS]


Entry = TypeVar("Entry", bound=Any)


class ByHead(Generic[Entry]):
    """A record with an entry for each of some heads: ``profile[head]`` is the one of a head.

    Attributes:
        heads: the entries.
    """

    __slots__ = ()
    heads: tuple[Entry, ...]

    def __getitem__(self, head: Head) -> Entry:
        """Return what there is of one head; KeyError for a head that is not there."""
        for entry in self.heads:
            if entry.head == head:
                return entry
        raise KeyError(head)


@dataclass(frozen=True, kw_only=True)
class Result(Record):
    """What was found about the heads of a model."""

    source: SourceInfo  # the model: its name, backend, exactness, device, dtype and versions
    layout: Layout  # its heads
    # what no other model shares, a hash of its files; empty for one handed over loaded
    identity: Mapping[str, Any] = field(default_factory=dict)
    texts: int = 0  # how many texts it is from; 0 where it needs none
    # a hash of these texts in their order (of a profile in any order, as parts of a corpus merge in
    # any); empty where it is of one, or of none
    corpus: str = ""
    seed: int | None = None  # of whatever was drawn; None where nothing was
    partial: bool = False  # whether it was interrupted: only what was done until then is in it
    notes: tuple[str, ...] = ()  # full sentences that the reader must not miss

    @property
    def made(self) -> Made:
        """What makes files of it now: model, version, command and day."""
        return Made.now(self.source.model, identity=self.identity, command=called_by(self))

    @property
    def divided(self) -> str:
        """Which part of the texts heads were chosen on; empty where none were chosen."""
        return str(getattr(self, "split", ""))

    def origin(self) -> str:
        """Get what of texts, model and chance makes it again, for captions; empty without a corpus.

        ``corpus 3f2a91c0 · model 91c2aa01 · split hash:0.5 · seed 0``.
        """
        if not self.corpus:
            return ""
        models = (self.identity, getattr(self, "other_identity", {}))
        hashes = (hash_of(identity)[: DIGITS // 2] for identity in models)
        parts = {
            "corpus": self.corpus[: DIGITS // 2],
            "model": " and ".join(filter(None, hashes)),
            "split": self.divided,
            "seed": "" if self.seed is None else str(self.seed),
        }
        return " · ".join(f"{name} {value}" for name, value in parts.items() if value)

    def annotated_roles(self) -> Mapping[Head, tuple[tuple[Role, Estimate], ...]]:
        """Give roles that it gives heads and that no text by itself could, with their evidence."""
        return {}

    def measured_edges(self) -> Mapping[tuple[str, Head, Head], Value]:
        """Give what was measured of a head through another: by side (Q, K, V), writer, reader."""
        return {}

    def rule_trees(self) -> Mapping[Head, tuple[Leaf, ...]]:
        """Return the trees of rules that it found for heads, leaf by leaf."""
        return {}

    @property
    def measured_on(self) -> str:
        """What such roles were measured on, in words."""
        return ""

    def check_model(
        self, name: str, source: SourceInfo, layout: Layout, identity: Mapping[str, Any]
    ) -> None:
        """Refuse to stand, by its ``name``, beside what is of a model with other files or heads."""
        alike = self.layout.heads == layout.heads
        comparable = bool(self.identity and identity)
        if alike and (not comparable or dict(self.identity) == dict(identity)):
            return
        if self.source.model == source.model:
            fault = f"other {'weights' if alike else 'heads'} under the name {source.model}"
        else:
            fault = f"{self.source.model}, and this is {source.model}"
        raise UsageError(f"{name} is of {fault}; what was measured holds for that model alone")
