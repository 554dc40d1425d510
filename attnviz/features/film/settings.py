"""What can be asked of a film."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.captures.settings import ModelSettings
from attnviz.core.settings import Parallel, Seeded, Settings, like, setting
from attnviz.errors import UsageError
from attnviz.features.profile.result import CorpusSettings

MEASURED = "What is measured"
MAP_TOKENS = 24


def _loss(text: str) -> tuple[str, float]:
    """A loss with its name."""
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
        """What all steps of a film share, as their files have it."""
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
