"""What an ablation changes: a number for every position that counts.

| metric | value at a position | unit |
|---|---|---|
| ``loss`` | -log p(the token that belongs there) | nats |
| ``kl`` | KL(full ‖ ablated) of the predictions | nats |
| ``logit-diff`` | logit of one token minus that of another | logits |
| ``hidden`` | 1 - cosine of the last hidden states, full and ablated | |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.source import Output
from attnviz.errors import ModelError
from attnviz.features.ablation.result import DISTANCES
from attnviz.scoring.user_measures import METRICS as USERS
from attnviz.scoring.user_measures import Predictions, UserMetric

MetricName = Literal["loss", "kl", "logit-diff", "hidden"]

AT_ONCE = 1 << 21
"""Numbers that a metric looks at together: 16 rows of logits of a vocabulary of 128k tokens, which
it copies several times in float32."""

TINY = 1e-16
"""The least product of two norms that a cosine is divided by."""

At = Callable[[Array, Array, Trial], Array]
"""Full and ablated states or logits [n, ·] at a trial's positions -> a value for each, [n]."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: as options and reports call it.
        at: its values.
        logits: whether it looks at logits or at hidden states.
        unit: for reports.
        worse: +1 if more of it is worse, -1 if less is.
        user: where it is a user's, that.
    """

    name: str
    at: At
    logits: bool = True
    unit: str = "nats"
    worse: int = 1
    user: UserMetric | None = None

    @property
    def compares(self) -> bool:
        """Whether it compares with the full model, and is 0 there, with gradient 0."""
        return self.name in DISTANCES or (self.user is not None and self.user.distance)

    def logits_at(self, trials: Sequence[Trial]) -> tuple[int, ...] | None:
        """At which positions of a batch it looks at logits; None where it looks at none."""
        if not self.logits:
            return None
        return tuple(sorted({position for trial in trials for position in trial.positions}))

    def of(
        self,
        full: Output,
        changed: Output,
        trials: Sequence[Trial],
        at: Sequence[int] | None = None,
    ) -> list[Array]:
        """The value at every position that counts, [n] in float64 for each trial."""
        other = self._looked_at(changed)
        whole = arrays.converted(self._looked_at(full), other) if self.compares else other
        on = arrays.of(other)
        place = None if at is None else {position: n for n, position in enumerate(at)}
        values = []
        for number, trial in enumerate(trials):
            parts = []
            for part in self._parts(trial, other.shape[-1]):
                of_part = part.positions if place is None else [place[p] for p in part.positions]
                places = on.asarray(of_part, on.int64, other)
                rows = self.at(whole[number, places], other[number, places], part)
                parts.append(arrays.exact(rows))
            values.append(on.xp.concatenate(parts))
        return values

    def _parts(self, trial: Trial, width: int) -> Iterator[Trial]:
        """A trial, a few positions at a time; a user's metric sees all of them."""
        rows = max(1, len(trial.positions) if self.user else AT_ONCE // width)
        for first in range(0, max(1, len(trial.positions)), rows):
            some = slice(first, first + rows)
            yield replace(trial, positions=trial.positions[some], targets=trial.targets[some])

    def _looked_at(self, output: Output) -> Array:
        seen = output.logits if self.logits else output.hidden
        if seen is None:
            raise ModelError(f"the model gives no {'logits' if self.logits else 'hidden states'}")
        return seen


def _log_probabilities(logits: Array) -> Array:
    on = arrays.of(logits)
    logarithms: Array = on.log_softmax(on.cast(logits, on.float32))
    return logarithms


def _loss(_: Array, logits: Array, trial: Trial) -> Array:
    on = arrays.of(logits)
    targets = on.asarray(trial.targets, on.int64, logits)
    losses: Array = -on.at_indices(_log_probabilities(logits), targets[:, None])[:, 0]
    return losses


def _kl(full: Array, logits: Array, _: Trial) -> Array:
    before, after = _log_probabilities(full), _log_probabilities(logits)
    distance: Array = (arrays.of(logits).xp.exp(before) * (before - after)).sum(-1)
    return distance


def _hidden(full: Array, states: Array, _: Trial) -> Array:
    before, after = arrays.exact(full), arrays.exact(states)
    sizes = (arrays.norm(before) * arrays.norm(after)).clip(TINY)
    return 1 - (before * after).sum(-1) / sizes


LOSS = Metric("loss", _loss)
KL = Metric("kl", _kl)
HIDDEN = Metric("hidden", _hidden, logits=False, unit="1 - cosine")


def logit_difference(answer: int, against: int | None) -> Metric:
    """The logit of one id minus that of another, if there is one."""

    def at(_: Array, logits: Array, __: Trial) -> Array:
        logit: Array = arrays.exact(logits[:, answer])
        return logit if against is None else logit - arrays.exact(logits[:, against])

    return Metric("logit-diff", at, unit="logits", worse=-1)


@dataclass(frozen=True, slots=True)
class OfUser:
    """The values of a user's metric."""

    metric: UserMetric

    def __call__(self, full: Array, logits: Array, trial: Trial) -> Array:
        """[n]."""
        on = arrays.of(logits)
        targets = on.asarray(trial.targets, on.int64, logits)
        whole = arrays.to_torch(on.cast(full, on.float32)) if self.metric.distance else None
        seen = Predictions(
            arrays.to_torch(on.cast(logits, on.float32)),
            arrays.to_torch(targets),
            trial.positions,
            trial.tokens,
            whole,
        )
        return arrays.converted(self.metric.at(seen), logits)


def named(name: str | UserMetric) -> Metric:
    """A metric that needs nothing but its name, or a user's."""
    if isinstance(name, str) and name in METRICS:
        return METRICS[name]
    user = USERS[name] if isinstance(name, str) else name
    return Metric(user.name, OfUser(user), unit=user.unit, worse=user.worse, user=user)


def names() -> tuple[str, ...]:
    """Every name that can be asked for."""
    users = (user.name for user in USERS.values() if user.of == "texts")
    return (*get_args(MetricName), *users)


METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (LOSS, KL, HIDDEN)}
"""Those that need nothing but their name."""
