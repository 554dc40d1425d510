"""What can be asked of an ablation, with its defaults; the parameters of ``attnviz.ablate``."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from attnviz.ablation.fills import MeanOver, Method
from attnviz.ablation.metrics import MetricName
from attnviz.errors import UsageError

Mask = Literal["some", "each"]
Order = Literal["effect", "gradient", "role", "random"]
Normalize = Literal["none", "layer"]

_CHOICES = {
    "method": get_args(Method),
    "mean_over": get_args(MeanOver),
    "metric": get_args(MetricName),
    "mask": get_args(Mask),
    "order": get_args(Order),
    "normalize": get_args(Normalize),
}
_LEAST = {"draws": 1, "seed": 0, "batch_tokens": 1, "random_orders": 0, "jobs": 1}


@dataclass(frozen=True, slots=True)
class AblationSettings:
    """How heads are taken away, and what is measured.

    Attributes:
        heads: what to take away, see :mod:`attnviz.ablation.groups`; every head alone by default.
        method: what takes a head's place.
        mean_over: whether a mean is taken at every position by itself or over all tokens.
        metric: what is measured; by default loss, or hidden for models without a head for words.
        answer: for logit-diff, the token that should win.
        against: the token it is compared with.
        mask: of a masked model's tokens, 15 % at once or each in turn.
        gradient: also take gradients.
        normalize: gradients as they are, or each layer's divided by their ℓ2 norm (Michel et al.).
        positions: keep the change at every position; needs a single text.
        curve: take heads away one by one.
        order: of a curve.
        remeasure: rank the heads that are left again after every tenth of them.
        random_orders: beside a curve, so many random orders.
        tolerance: how much a curve may cost, in the metric's unit.
        seed: of masks, donors and random orders.
        draws: donors for each text, for resample.
        batch_tokens: tokens that run at once at most; found by itself if None.
        jobs: processes, or actors on Ray.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
    """

    heads: str | None = None
    method: Method = "zero"
    mean_over: MeanOver = "positions"
    metric: MetricName | None = None
    answer: str | None = None
    against: str | None = None
    mask: Mask = "some"
    gradient: bool = False
    normalize: Normalize = "none"
    positions: bool = False
    curve: bool = False
    order: Order = "effect"
    remeasure: bool = False
    random_orders: int = 3
    tolerance: float = 0.05
    seed: int = 0
    draws: int = 1
    batch_tokens: int | None = None
    jobs: int = 1
    ray: str | None = None

    def check(self) -> None:
        """Raise UsageError on what does not exist or does not go together."""
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
        if not math.isfinite(self.tolerance) or self.tolerance < 0:
            raise UsageError(f"tolerance must be a number from 0, got {self.tolerance}")
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
