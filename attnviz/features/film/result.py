"""What the heads of a model did at every checkpoint of its training, and when that formed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from attnviz import files
from attnviz.captures.settings import ModelSettings
from attnviz.core.heads import Head
from attnviz.core.result import ByHead, Result
from attnviz.core.settings import Parallel, Seeded, Settings, like, setting
from attnviz.drawing.renderable import Renderable
from attnviz.errors import UsageError
from attnviz.features.profile.result import CorpusSettings

IN_CONTEXT = "in-context score"  # what stands among the events beside roles


@dataclass(frozen=True, slots=True)
class StepCurve:
    """A number at every step, to four decimals.

    Attributes:
        mean: over all rows of all texts; None where there is none.
        half: half the width of its 95 % interval over texts; None where too few of them say.
        chance: of a score, the mean of uniform attention, which is that of every step.
    """

    mean: tuple[float | None, ...]
    half: tuple[float | None, ...]
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class HeadFilm:
    """One head over time.

    Attributes:
        head: which.
        scores: its scores, by name.
        roles: at every step the titles of the roles that are sure, what it does first.
        effect: what ablating it changed; None where that was not measured.
    """

    head: Head
    scores: Mapping[str, StepCurve]
    roles: tuple[tuple[str, ...], ...]
    effect: StepCurve | None = None


@dataclass(frozen=True, slots=True)
class Shift:
    """What changed between two steps.

    Attributes:
        before, after: the value at the earlier step; ``after`` at the later one.
        low, high: of the 95 % interval of the change over texts; None from too few texts.
        share: of the change over the whole film; None where either is not sure.
    """

    before: float
    after: float
    low: float | None
    high: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class Formation:
    """When a head formed for a role: its score passed the middle between its lowest and highest.

    Attributes:
        head, role, score: which; ``role`` what for, ``score`` what it rests on.
        step: the first checkpoint past the middle.
        low, high: it formed after this step; ``high`` and by this one, with 95 %, and never closer
            than checkpoints are. None from too few texts.
        least, most: the lowest value before; ``most`` the highest.
        loss: what the loss did between the checkpoints before ``low`` and at ``high``.
        in_context: and the in-context score.
    """

    head: Head
    role: str
    score: str
    step: int
    low: int | None
    high: int | None
    least: float
    most: float
    loss: Shift | None = None
    in_context: Shift | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened once: the first head of a role formed, or the in-context score fell.

    Attributes:
        name: the role, or :data:`IN_CONTEXT`.
        step, low, high: see :class:`Formation`.
    """

    name: str
    step: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Order:
    """Which of two events came first, and by how much.

    Attributes:
        first, then: the event that came first; ``then`` the other.
        steps: between them.
        low, high: of the 95 % interval, which allows for the distance of checkpoints.
        share: of the resamples of the texts in which they came in this order, not at once.
    """

    first: str
    then: str
    steps: int
    low: int | None
    high: int | None
    share: float | None

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.low > 0


@dataclass(frozen=True, slots=True)
class Maps:
    """The maps of one text at every step.

    Attributes:
        tokens: the first of the text.
        data: base64 of zlib of bytes [steps, heads, T, T], weights in 255ths; heads in the order of
            the film's.
    """

    tokens: tuple[str, ...]
    data: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Film(ByHead[HeadFilm], Renderable, Result):
    """What the heads of a model did at every checkpoint of its training.

    Attributes:
        steps, names: of the checkpoints, in order; ``names`` what they are called.
        heads: one for each.
        clusters: texts that were measured, identical ones counted once.
        tokens: in all.
        loss: in nats per predicted token; None for models without an LM head.
        in_context: loss late in a text minus early in it, in nats (Olsson et al. 2022); None where
            no text is long enough, or the model does not predict the next token.
        units: of the scores: ``share``, ``bits`` or ``tokens``.
        baselines: losses to compare with, by name.
        formations: of heads, in the order of their steps.
        events: in the order of their steps.
        order: of events that follow each other.
        questions: of how many pairs of heads and scores it was asked at how many steps, all at
            once, whether they show a role.
        maps: of one text; None where none was kept.
        probed: sequences of repeated random tokens, on which scores of repetition are measured; 0
            where they are measured on the texts.
        metric: that ``effect`` is a change of, and its unit; empty where there is none.
        files: what was read.
    """

    schema: ClassVar[str] = "attnviz.film/1"
    command: ClassVar[str] = "film"
    indent: ClassVar[int | None] = None

    steps: tuple[int, ...]
    names: tuple[str, ...]
    heads: tuple[HeadFilm, ...]
    clusters: int
    tokens: int
    loss: StepCurve | None = None
    in_context: StepCurve | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    baselines: Mapping[str, float] = field(default_factory=dict)
    formations: tuple[Formation, ...] = ()
    events: tuple[Event, ...] = ()
    order: tuple[Order, ...] = ()
    questions: int = 0
    maps: Maps | None = None
    probed: int = 0
    metric: str = ""
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.steps)
        if not count or sorted(set(self.steps)) != list(self.steps):
            raise ValueError("its steps are not in order")
        curves = [track for track in (self.loss, self.in_context) if track is not None]
        if any(set(track.mean) == {None} for track in curves):
            raise ValueError("a loss without a number")
        for head in self.heads:
            if not head.scores:
                raise ValueError("a head without scores")
            curves += [*head.scores.values(), *filter(None, [head.effect])]
        lengths = {len(track) for curve in curves for track in (curve.mean, curve.half)}
        lengths |= {len(self.names), *(len(head.roles) for head in self.heads)}
        if lengths != {count}:
            raise ValueError(f"{count} steps with curves or names of {max(lengths - {count})}")

    def __repr__(self) -> str:
        return (
            f"<Film {self.source.model}, {len(self.steps)} checkpoints from step "
            f"{self.steps[0]:,} to {self.steps[-1]:,}, {self.clusters:,} texts, "
            f"{len(self.heads)} heads>"
        )


MEASURED = "What is measured"
MAP_TOKENS = 24


def _loss(text: str) -> tuple[str, float]:
    """Return a loss with its name."""
    name, sign, value = text.rpartition("=")
    try:
        return name.strip(), float(value if sign and name.strip() else "?")
    except ValueError:
        raise UsageError(
            "{baseline} takes NAME=NATS, such as bigram=1.46, not {!r}", text[:40], baseline=...
        ) from None


@dataclass(frozen=True)
class BaselineSettings(Settings):
    """What a film's losses are compared with."""

    baseline: Mapping[str, float] | tuple[tuple[str, float], ...] | None = setting(
        None,
        "Compare with a loss: bigram=1.46; repeatable.",
        metavar="NAME=NATS",
        parser=_loss,
        typed=tuple[str, ...],
        common=True,
    )

    @property
    def losses(self) -> dict[str, float]:
        """By name."""
        return dict(self.baseline or {})

    def check(self) -> None:
        """Raise UsageError for a loss that is no number."""
        for name, value in self.losses.items():
            if not math.isfinite(value):
                raise UsageError("the baseline {} is {}; give a loss in nats", name, value)


@dataclass(frozen=True)
class Checkpoints(ModelSettings):
    """Which checkpoints to run, and where."""

    model: Any = like(
        ModelSettings,
        "model",
        default=None,
        help="Checkpoints: folders ('runs/step-*'), or revisions on the hub "
        "(name@step1000,step2000); repeatable. The last number in a name is its step. One is in "
        "memory at a time, in each process.",
        metavar="PATTERN",
        typed=tuple[str, ...],
    )


@dataclass(frozen=True)
class FilmSettings(Settings):
    """Which texts, what is measured of them, and where steps are kept."""

    column: str | None = like(CorpusSettings, "column", common=False)
    whole: bool = like(CorpusSettings, "whole", common=False)
    special_tokens: bool = like(CorpusSettings, "special_tokens")
    limit: int | None = like(CorpusSettings, "limit")
    scores: str | Sequence[str] | None = setting(
        None,
        "Scores, such as previous,induction.",
        panel=MEASURED,
        metavar="NAMES",
        shown="all",
        typed=str,
        common=True,
    )
    probe: bool = setting(
        False,
        "Measure repetition on random tokens. Induction and duplicate tokens are then measured on "
        "repeated random tokens, and not on the texts.",
        panel=MEASURED,
        common=True,
    )
    ablate: bool = setting(
        False, "Also ablate every head, on the first 64 texts.", panel=MEASURED, common=True
    )
    gold: str | Path | Sequence[str | Path] | None = setting(
        None,
        "Gold annotation. A treebank (CoNLL-U) for syntactic roles, pronouns (.tsv) or "
        "coref=FILE for roles of coreference; repeatable.",
        panel=MEASURED,
        metavar="FILE",
        typed=tuple[str, ...],
    )
    map_tokens: int = setting(
        MAP_TOKENS,
        "Keep the maps of the first N tokens of the first text; 0 for none.",
        panel=MEASURED,
        least=0,
    )
    seed: int = like(Seeded, "seed")
    state: str | Path | None = setting(
        None,
        "Keep steps here, to resume from them. A folder: the same call goes on from what it "
        "holds, and attnviz film FOLDER reads it.",
        metavar="FOLDER",
        typed=Path,
        common=True,
    )
    jobs: int = like(
        Parallel,
        "jobs",
        help="Number of processes, a checkpoint each at a time; the result is the same to the bit.",
    )

    @property
    def measured(self) -> tuple[str, ...]:
        """The scores in the order of the table."""
        from attnviz.scoring.scores import SCORES

        names = self._names()
        return tuple(name for name in SCORES if names is None or name in names)

    def check(self) -> None:
        """Raise UsageError for a score that there is not, or none at all."""
        names = self._names()
        if names is None:
            return
        from attnviz.scoring.scores import SCORES

        if not names:
            raise UsageError("no {scores}; name some, or leave it out", scores=...)
        for name in names:
            if name not in SCORES:
                raise UsageError("no score is called {!r}; choose {}", name, ", ".join(SCORES))

    def document(self) -> dict[str, Any]:
        """Return what all steps of a film share, as their files have it."""
        return {
            "scores": list(self.measured),
            "special_tokens": self.special_tokens,
            "probe": self.probe,
            "ablate": self.ablate,
            "gold": files.listed(self.gold),
            "map_tokens": self.map_tokens,
            "seed": self.seed,
        }

    def _names(self) -> tuple[str, ...] | None:
        if isinstance(self.scores, str):
            return tuple(filter(None, map(str.strip, self.scores.split(","))))
        return None if self.scores is None else tuple(self.scores)
