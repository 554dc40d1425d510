"""What patching changes: a number for every pair, from the logits at the position that answers.

| metric | value | unit |
|---|---|---|
| ``logit-diff`` | logit of the answer minus that of what it is held against | logits |
| ``prob`` | probability of the answer | |
| ``log-prob`` | its logarithm | nats |
| ``loss`` | -log p(answer) | nats |
| ``kl`` | KL(clean ‖ this run) | nats |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.errors import InputError, UsageError
from attnviz.features.patch.pairs import Pair, PreparedPair
from attnviz.scoring import plugins
from attnviz.scoring.user_measures import METRICS as USERS
from attnviz.scoring.user_measures import given_metric

if TYPE_CHECKING:
    from torch import Tensor

MetricName = Literal["logit-diff", "prob", "log-prob", "kl", "loss"]
Function = Callable[["Tensor", Pair], Any]
"""Logits [V] of one run and its pair, to one number."""

UNITS = {"logit-diff": "logits", "prob": "", "log-prob": "nats", "loss": "nats", "kl": "nats"}


@dataclass(frozen=True, slots=True)
class PairMetric:
    """A metric.

    Attributes:
        name: as options and results call it; ``custom`` for a function without one.
        unit: for reports.
        function: of a custom metric.
    """

    name: str
    unit: str
    function: Function | None = None

    def of(self, logits: Array, clean: Array, pairs: Sequence[PreparedPair]) -> Array:
        """A value for each run, float64 [n · N]; of a function of a user's, a tensor.

        ``logits`` [n · N, V], n runs of the same N pairs; ``clean`` [N, V], of the clean runs;
        ``pairs`` [N].
        """
        runs = len(logits) // len(pairs)
        if self.function is not None:
            import torch

            each = zip(arrays.to_torch(logits), list(pairs) * runs, strict=True)
            return torch.stack([self._one(row, ready) for row, ready in each])
        on = arrays.of(logits)
        xp = on.xp
        scores = logits if logits.dtype == on.float64 else on.cast(logits, on.float32)
        tokens = [(pair.answer, pair.against or 0) for pair in pairs] * runs
        picked = on.asarray(tokens, on.int64, logits)  # [n · N, 2]
        if self.name == "logit-diff":
            both = arrays.exact(on.at_indices(scores, picked))
            return both[:, 0] - both[:, 1]
        if self.name == "kl":
            return arrays.exact(_distance(clean, scores, runs))
        after = on.log_softmax(scores)
        likely: Array = arrays.exact(on.at_indices(after, picked[:, :1]))[:, 0]
        values: dict[str, Array] = {"loss": -likely, "log-prob": likely, "prob": xp.exp(likely)}
        return values[self.name]

    def _one(self, logits: Tensor, ready: PreparedPair) -> Tensor:
        from torch import Tensor

        with plugins.running(f"metric {self.name!r}, given pair {ready.number + 1},"):
            assert self.function is not None
            value = self.function(logits, ready.pair)
            number = value if isinstance(value, Tensor) else _number(value)
            single = number is not None and number.numel() == 1
            finite = single and math.isfinite(float(number.detach()))  # type: ignore[union-attr]
        if number is None or not finite:
            raise InputError(
                f"the metric gave {str(value)[:40]!r} for pair {ready.number + 1}; it must give "
                "one finite number"
            )
        return arrays.exact(number.reshape(()))


def _distance(clean: Array, logits: Array, runs: int) -> Array:
    """KL(clean ‖ run) of every run, [n · N], from logits [N, V] and [n · N, V].

    In float32 a sum of differences over the vocabulary is off by some 1e-6, which is all there is
    of a small distance.
    """
    on = arrays.of(logits)
    exact = on.largest_float(logits)
    after = on.log_softmax(on.cast(logits, exact)).reshape(runs, *clean.shape)
    before = on.log_softmax(on.cast(arrays.converted(clean, logits), exact))
    distance: Array = (on.xp.exp(before) * (before - after)).sum(-1)
    return distance.reshape(-1)


def _number(value: object) -> Tensor | None:
    import torch

    try:
        return torch.tensor(float(value), dtype=torch.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def metric_of(given: str | Function | None, pairs: Sequence[PreparedPair]) -> PairMetric:
    """The metric that was asked for, or the logit difference where all pairs have both tokens."""
    users = {user.name: user for user in USERS.values() if user.of == "pairs"}
    if callable(given):
        user = given_metric(given, "pairs")
        return PairMetric(user.name, user.unit, user.function)
    if given in users:
        return PairMetric(given, users[given].unit, users[given].function)
    missing = [pair.number + 1 for pair in pairs if pair.against is None]
    name = given or ("log-prob" if missing else "logit-diff")
    if name not in UNITS:
        raise UsageError(f"unknown metric {name!r}; choose one of {', '.join((*UNITS, *users))}")
    if name == "logit-diff" and missing:
        raise UsageError(
            "logit-diff holds the answer against another token, and pair {} names none; add "
            "{against}, or take another {metric}",
            missing[0],
            against=...,
            metric=...,
        )
    return PairMetric(name, UNITS[name])
