"""What can be asked of an ablation, with its defaults; the parameters of ``attnviz.ablate``."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from attnviz.core.arguments import check_fields
from attnviz.errors import UsageError
from attnviz.features.ablation.fills import MeanOver, Method
from attnviz.features.ablation.metrics import names
from attnviz.scoring.user_measures import FILLS, UserMetric

Mask = Literal["some", "each"]
Order = Literal["effect", "gradient", "role", "random"]
Normalize = Literal["none", "layer"]
Average = Literal["mean", "trimmed", "median"]

METHODS = "mean, resample"
"""Two that leave what a head always says in its place; see docs/ablate.md for the choice."""

_CHOICES = {
    "mean_over": get_args(MeanOver),
    "mask": get_args(Mask),
    "order": get_args(Order),
    "normalize": get_args(Normalize),
    "average": get_args(Average),
}
_LEAST = {"draws": 1, "seed": 0, "batch_tokens": 1, "random_orders": 0, "jobs": 1}


@dataclass(frozen=True, slots=True)
class AblationSettings:
    """How heads are ablated, and what is measured.

    Attributes:
        heads: what to ablate, see :mod:`attnviz.scoring.groups`; every head alone by default.
        method: what takes a head's place, ``zero``, ``mean`` or ``resample``, or several by comma:
            effects are ranked by the first, and two must agree before a head is called needed.
        mean_over: whether a mean is taken at every position by itself or over all tokens.
        metric: what is measured; by default loss, or hidden for models without an LM head.
        answer: for logit-diff, the token that should win.
        against: the token it is compared with.
        at: ``span:NAME`` to measure on the tokens of a named span alone.
        mask: of a masked model's tokens, 15 % at once or each in turn.
        gradient: also take gradients.
        normalize: gradients as they are, or each layer's divided by their ℓ2 norm (Michel et al.).
        average: over texts: the mean over all positions, the trimmed mean of the texts' own means
            (a tenth goes at each end), or their median.
        smallest: the smallest effect of interest, as a share of the metric on the full model; none
            for distances from it.
        positions: keep the change at every position; needs a single text.
        curve: ablate heads one after the other.
        order: of a curve.
        remeasure: rank the heads that are left again after every tenth of them.
        random_orders: beside a curve, so many random orders.
        tolerance: how much a curve may cost, in the metric's unit.
        seed: of masks, donors and random orders.
        draws: donors for each text, for resample; by default so many that there are about eight
            in all, and one from eight texts on.
        batch_tokens: tokens that run at once at most; found by itself if None.
        jobs: processes, or actors on Ray.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
    """

    heads: str | None = None
    method: str = METHODS
    mean_over: MeanOver = "positions"
    metric: str | UserMetric | None = None
    answer: str | None = None
    against: str | None = None
    at: str | None = None
    mask: Mask = "some"
    gradient: bool = False
    normalize: Normalize = "none"
    average: Average = "mean"
    smallest: float = 0.01
    positions: bool = False
    curve: bool = False
    order: Order = "effect"
    remeasure: bool = False
    random_orders: int = 3
    tolerance: float = 0.05
    seed: int = 0
    draws: int | None = None
    batch_tokens: int | None = None
    jobs: int = 1
    ray: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def methods(self) -> tuple[Method, ...]:
        """What takes a head's place, one after the other.

        Raises:
            UsageError: an unknown method, or none.
        """
        known = ("zero", "mean", "resample", *FILLS)
        found = dict.fromkeys(name.strip() for name in str(self.method).split(","))
        for name in found:
            if name not in known:
                raise UsageError(
                    f"unknown method {name!r}; choose one of {', '.join(known)}, or several by "
                    "comma"
                )
        return tuple(name for name in found if name in known)

    def asked(self) -> dict[str, Any]:
        """All of it as parameters."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check(self) -> None:
        """Raise UsageError on what does not exist or does not go together."""
        _ = self.methods
        if isinstance(self.metric, str) and self.metric not in names():
            raise UsageError(
                "no {metric}; choose one of {}", ", ".join(names()), metric=self.metric
            )
        for field in fields(self):
            value = getattr(self, field.name)
            choices = _CHOICES.get(field.name)
            if choices and value is not None and value not in choices:
                raise UsageError(
                    f"unknown {field.name} {value!r}; choose one of {', '.join(choices)}"
                )
            least = _LEAST.get(field.name)
            if least is None or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{field.name} must be a whole number from {least}, got {value!r}")
        for name in ("tolerance", "smallest"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                raise UsageError(f"{name} must be a number from 0, got {value!r}")
        self._check_metric()

    def _check_metric(self) -> None:
        """Raise UsageError on what does not go together."""
        if self.at is not None and (not self.at.startswith("span:") or self.at == "span:"):
            raise UsageError("{at} takes span:NAME, the tokens of a span", at=self.at)
        if self.at is not None and self.answer is not None:
            raise UsageError("logit-diff is measured at one token; leave out {at}", at=self.at)
        if (self.answer is None) != (self.against is None):
            raise UsageError(
                "{answer} and {against} go together: the token that should win, and the other",
                answer=...,
                against=...,
            )
        if self.metric == "logit-diff" and self.answer is None:
            raise UsageError(
                "logit-diff compares two tokens; name them with {answer} and {against}",
                answer=...,
                against=...,
            )
        if self.answer is not None and self.metric not in (None, "logit-diff"):
            raise UsageError(
                "{answer} is for the metric logit-diff, not {}", self.metric, answer=...
            )
        if self.order == "gradient" and not self.gradient and self.curve:
            raise UsageError("an order by gradient needs {gradient}", gradient=...)
