"""How heads are compared with a treebank, and with antecedents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.settings import Parallel, like, setting
from attnviz.core.split import Splitting
from attnviz.errors import UsageError

CONTROLS = 3
"""Models of each kind, where no number is said."""
COUNTED, CONTROL = "What counts", "Comparisons"

ALSO = ("trees", "rooted-trees", "combined")
"""What can be measured beside single heads."""


@dataclass(frozen=True)
class GoldSettings(Splitting, panel=COUNTED):
    """What commands about annotated text share."""

    split: str = like(Splitting, "split", panel=COUNTED)
    strict: bool = setting(False, "Stop at the first part that cannot be used.")


@dataclass(frozen=True)
class SyntaxSettings(GoldSettings):
    """What counts, which controls there are, and what else is measured."""

    relation: str | None = setting(
        None, "Show only these relations, such as obj or nsubj,obj.", metavar="NAMES", common=True
    )
    subtypes: bool = setting(
        False, "Keep subtypes separate: nmod:poss and nmod.", panel=COUNTED, common=True
    )
    punct: bool = setting(
        True, "Leave out the dependencies of punctuation.", panel=COUNTED, shown=""
    )
    control: int | None = setting(
        None,
        "Also run N models with untrained and N with shuffled weights.",
        panel=CONTROL,
        least=0,
        most=100,
        bare="3",
        common=True,
    )
    seed: int = setting(
        0, "Seed of the first of those weights.", panel=CONTROL, least=0, most=(1 << 63) - 1
    )
    also: str = setting(
        "",
        "Also score trees, rooted-trees, combined. The undirected spanning tree of every head "
        "(trees), the directed one from the gold root (rooted-trees; Htut et al. 2019), a "
        "classifier over all heads (combined); comma-separated.",
        panel=CONTROL,
        metavar="WHAT",
        common=True,
    )
    sentences: int = setting(
        0,
        "Show N sentences with their arcs. The treebank's above, the best heads' below.",
        least=0,
        most=1000,
        common=True,
    )
    jobs: int = like(Parallel, "jobs")
    ray: str | None = like(Parallel, "ray")

    def check(self) -> None:
        """Raise UsageError for no such split, or something else to measure that there is not."""
        super().check()
        for name in self._also:
            if name not in ALSO:
                raise UsageError("{also} takes {}, not {!r}", ", ".join(ALSO), name, also=...)

    @property
    def seeds(self) -> range:
        """Those of the models of each kind, which a classifier needs too."""
        return range(self.seed, self.seed + (self.control or CONTROLS))

    @property
    def _also(self) -> list[str]:
        return [name.strip() for name in self.also.split(",") if name.strip()]

    @property
    def trees(self) -> bool:
        """Whether every head's undirected spanning tree is grown."""
        return "trees" in self._also

    @property
    def rooted(self) -> bool:
        """Whether every head's directed spanning tree is grown."""
        return "rooted-trees" in self._also

    @property
    def combine(self) -> bool:
        """Whether a classifier over all heads is trained."""
        return "combined" in self._also


@dataclass(frozen=True)
class CorefSettings(GoldSettings, panel=COUNTED):
    """Where heads may point, and how much is read at a time."""

    candidates: Literal["words", "mentions"] = setting(
        "words",
        "Of CoNLL-U, where heads may point. To any of the words that are read together (Clark et "
        "al. 2019), or only to the head words of earlier mentions, from which the baselines choose "
        "too.",
        common=True,
    )
    window: int = setting(
        128, "Of CoNLL-U, tokens of a document that are read at a time.", least=16, common=True
    )
    jobs: int = like(Parallel, "jobs")
    ray: str | None = like(Parallel, "ray")
