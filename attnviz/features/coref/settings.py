"""How heads are compared with antecedents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.arguments import check_fields
from attnviz.corpus.gold.halves import HALVES, Selection
from attnviz.errors import Setting, UsageError

LEAST_WINDOW = 16


@dataclass(frozen=True)
class CorefSettings:
    """How heads are compared with antecedents.

    Attributes:
        select_on: ``halves`` chooses heads and the baseline on even documents and measures them on
            odd ones; ``all`` does both on everything.
        candidates: where heads may point from a mention: to any other of the ``words`` that are
            read with it, as in Clark et al. 2019, or only to the head words of earlier
            ``mentions``, from which the baselines choose too.
        window: tokens that are read at a time, of documents with mentions (Clark et al.: 128).
        strict: what cannot be used ends the run.
        jobs: processes.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
    """

    select_on: Selection = HALVES
    candidates: Literal["words", "mentions"] = "words"
    window: int = 128
    strict: bool = False
    jobs: int = 1
    ray: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise UsageError for a value that there is not."""
        if self.window < LEAST_WINDOW:
            raise UsageError(
                "{} is too few; take at least {}", Setting("window", self.window), LEAST_WINDOW
            )
        if self.jobs < 1:
            raise UsageError("{} is too few; take at least 1", Setting("jobs", self.jobs))
