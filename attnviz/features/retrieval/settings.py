"""What a run of needles is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attnviz.core.arguments import check_fields
from attnviz.corpus.gold.halves import HALVES, Selection
from attnviz.errors import Setting, UsageError
from attnviz.features.retrieval.result import RankedBy

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class RetrievalSettings:
    """Needles and how heads are judged by them.

    Attributes:
        lengths: tokens of the prompts; by default four, up to the model's or 1,024.
        depths: where needles stand, from 0 (first) to 1 (last).
        count: needles of random words for each length and depth.
        cue: words of a needle that the question repeats.
        answer: words of it that follow them, and are asked for.
        generate: tokens that the model writes at most; by default as many as the answer has, and
            50 for needles of a file.
        by: the score that heads are ranked by.
        ablate: how many of the first heads are ablated together, each as often as there are draws
            of other heads; empty for no ablation.
        draws: sets of random heads for each of these.
        control: whether the same model with random weights runs as well.
        select_on: ``halves`` ranks heads on even needles and measures on odd ones; ``all`` does
            both on everything.
        seed: of words, of random heads and of random weights.
    """

    lengths: tuple[int, ...] | None = None
    depths: tuple[float, ...] = DEPTHS
    count: int = 4
    cue: int = 3
    answer: int = 5
    generate: int | None = None
    by: RankedBy = "copied"
    ablate: tuple[int, ...] = (1, 2, 5)
    draws: int = 5
    control: bool = True
    select_on: Selection = HALVES
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise UsageError for a value that there is not."""
        for name in ("count", "cue", "answer", "draws", "generate"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("{} is too few; take at least 1", Setting(name, value))
        if not self.depths or not all(0 <= depth <= 1 for depth in self.depths):
            depths = _listed("depths", self.depths)
            raise UsageError("{} must be from 0 (first) to 1 (last)", depths)
        if self.lengths is not None and (not self.lengths or min(self.lengths) < 1):
            raise UsageError("{} must be numbers of tokens", _listed("lengths", self.lengths))
        if any(k < 1 for k in self.ablate):
            raise UsageError("{} must be numbers of heads", _listed("ablate", self.ablate))
        if not 0 <= self.seed < 1 << 63:
            raise UsageError("{} must be from 0 to 2^63 - 1", Setting("seed", self.seed))


def _listed(name: str, values: Iterable[float]) -> Setting:
    """A setting as it is typed: ``--depths 0,2``."""
    return Setting(name, ",".join(f"{value:g}" for value in values))
