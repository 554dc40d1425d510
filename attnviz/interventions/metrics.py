"""What an intervention changes: one list of metrics, a number for every position that counts.

| metric | value at a position | unit |
|---|---|---|
| ``loss`` | -log p(the token that belongs there) | nats |
| ``kl`` | KL(unchanged ‖ changed) of the predictions | nats |
| ``logit-diff`` | logit of one token minus that of another | logits |
| ``prob`` | probability of a token | |
| ``log-prob`` | its logarithm | nats |
| ``hidden`` | 1 - cosine of the last hidden states, unchanged and changed | |

Logits are looked at in float32, or in float64 where they come so; a divergence, whose terms cancel,
in the most precise type there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.interventions import repeated
from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.source import Output, Source, at_positions
from attnviz.errors import ModelError
from attnviz.scoring.user_measures import METRICS as USERS
from attnviz.scoring.user_measures import Predictions, UserMetric

UNITS = {
    "loss": "nats", "kl": "nats", "logit-diff": "logits", "prob": "", "log-prob": "nats",
    "hidden": "1 - cosine",
}  # fmt: skip
WORSE = {"loss": 1, "kl": 0, "logit-diff": -1, "prob": -1, "log-prob": -1, "hidden": 0}
"""The sign of a change for the worse; 0 for a distance, which is never below 0."""
OF_TEXTS = ("loss", "kl", "logit-diff", "hidden")
OF_PAIRS = ("logit-diff", "prob", "log-prob", "loss", "kl")

AT_ONCE = 1 << 21
"""Numbers that a metric looks at together: 16 rows of logits of a vocabulary of 128k tokens, which
it copies several times in float32. On a device 16 times as many, where there is memory."""
TINY = 1e-16
"""The least product of two norms that a cosine is divided by."""


def values_of(
    name: str,
    predictions: Array,
    ids: Sequence[int] | NDArray[np.int64] = (),
    against: Sequence[int] | NDArray[np.int64] | None = None,
    full: Array | None = None,
) -> Array:
    """Take a metric at n positions, float64 [n]; of arrays of the kind that comes.

    ``predictions``: logits [n, V], or states [n, D] for ``hidden``; ``ids`` [n], the tokens that
    belong there; ``against`` [n], those they are held against; ``full``: as ``predictions``, of
    the unchanged model, for distances.
    """
    lib = arrays.of(predictions)
    if WORSE[name] == 0:
        assert full is not None
        return _distance(name, predictions, arrays.converted(full, predictions))
    scores = predictions if predictions.dtype == lib.float64 else lib.cast(predictions, lib.float32)
    first, *competing = (
        lib.asarray(chosen, lib.int64, predictions)
        for chosen in (ids, against)
        if chosen is not None
    )
    if name == "logit-diff":
        columns = (chosen[:, None] for chosen in (first, *competing))
        logits = [arrays.exact(lib.at_indices(scores, column))[:, 0] for column in columns]
        return logits[0] - logits[1] if competing else logits[0]
    logs = arrays.exact(lib.log_probabilities(scores, first))
    return lib.xp.exp(logs) if name == "prob" else -logs if name == "loss" else logs


def _distance(name: str, predictions: Array, full: Array) -> Array:
    """How far logits or states are from those of the unchanged model, float64 [n]."""
    if name == "hidden":
        reference, current = arrays.exact(full), arrays.exact(predictions)
        sizes = (arrays.norm(reference) * arrays.norm(current)).clip(TINY)
        return 1 - (reference * current).sum(-1) / sizes
    lib = arrays.of(predictions)
    exact = lib.largest_float(predictions)
    reference, current = (lib.log_softmax(lib.cast(x, exact)) for x in (full, predictions))
    return arrays.exact((lib.xp.exp(reference) * (reference - current)).sum(-1))


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of texts."""

    name: str  # as options and reports call it
    # the id that it is of, for one that is of a token; None for the targets of a trial
    answer: int | None = None
    against: int | None = None  # what that is held against; None for nothing
    user: UserMetric | None = None  # where it is a user's, that
    exact: bool = False  # whether it looks at logits in float64

    @property
    def logits(self) -> bool:
        """Whether it looks at logits, and not at hidden states."""
        return self.name != "hidden"

    @property
    def unit(self) -> str:
        """For reports."""
        return UNITS[self.name] if self.user is None else self.user.unit

    @property
    def worse(self) -> int:
        """+1 if more of it is worse, -1 if less is."""
        return (WORSE[self.name] or 1) if self.user is None else self.user.worse

    @property
    def compares(self) -> bool:
        """Whether it compares with the full model, and is 0 there, with gradient 0."""
        return WORSE[self.name] == 0 if self.user is None else self.user.distance

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
        positions: Sequence[int] | None = None,
    ) -> list[Array]:
        """Return the values [r, n] of r runs at positions that count, float64, for each trial."""
        current = self._looked_at(changed)
        reference = arrays.converted(self._looked_at(full), current) if self.compares else None
        lib = arrays.of(current)
        index = None if positions is None else {position: n for n, position in enumerate(positions)}
        several = not self.user and not lib.on_cpu(current)
        rows = (lib.at_once(current, 16 * AT_ONCE) if several else AT_ONCE) // current.shape[-1]
        values = []
        for number, trial in enumerate(trials):
            step = max(1, rows // max(1, len(trial.positions))) if several else 1
            before = None if reference is None else reference[number : number + 1]
            blocks = []
            for first in range(number, len(current), step * len(trials)):
                runs = current[first : first + step * len(trials) : len(trials)]
                parts = [
                    self._block(runs, before, index, part) for part in self._parts(trial, rows)
                ]
                blocks.append(lib.xp.concatenate(parts, 1))
            values.append(lib.xp.concatenate(blocks))
        return values

    def _parts(self, trial: Trial, rows: int) -> Iterator[Trial]:
        """Yield a trial, a few positions at a time; a user's metric sees all of them."""
        rows = max(1, len(trial.positions) if self.user else rows)
        for first in range(0, max(1, len(trial.positions)), rows):
            span = slice(first, first + rows)
            yield replace(trial, positions=trial.positions[span], targets=trial.targets[span])

    def _block(
        self, runs: Array, full: Array | None, index: Mapping[int, int] | None, part: Trial
    ) -> Array:
        """[r, n], of r runs [r, T, ·] at some positions, kept at an index; ``full`` [1, T, ·]."""
        places, count = [index[p] if index else p for p in part.positions], len(runs)
        before = None if full is None else repeated(self._rows(full, places), count)
        part = replace(part, positions=part.positions * count, targets=part.targets * count)
        values = self._at(before, self._rows(runs, places), part)
        return arrays.exact(values).reshape(count, -1)

    def _rows(self, output: Array, positions: Sequence[int]) -> Array:
        """[r · n, ·], rows at some positions."""
        rows: Array = at_positions(output, positions).reshape(-1, output.shape[-1])
        return arrays.exact(rows) if self.exact else rows

    def _looked_at(self, output: Output) -> Array:
        predictions = output.logits if self.logits else output.hidden
        if predictions is None:
            raise ModelError(f"the model gives no {'logits' if self.logits else 'hidden states'}")
        return predictions

    def _at(self, full: Array | None, predictions: Array, trial: Trial) -> Array:
        """[n], at a trial's positions: of rows [n, ·] of the changed model, the full one's beside.

        Those are None for a metric that does not compare with them.
        """
        if self.user is not None:
            return _of_user(self.user, full, predictions, trial)
        if self.answer is None:
            return values_of(self.name, predictions, trial.targets, full=full)
        count = len(trial.positions)
        against = None if self.against is None else [self.against] * count
        return values_of(self.name, predictions, [self.answer] * count, against)


def _of_user(metric: UserMetric, full: Array | None, logits: Array, trial: Trial) -> Array:
    """Return the values of a user's metric, [n]."""
    lib = arrays.of(logits)
    predictions = Predictions(
        arrays.to_torch(lib.copied(lib.cast(logits, lib.float32))),
        arrays.to_torch(lib.asarray(trial.targets, lib.int64, logits)),
        trial.positions,
        trial.tokens,
        None if full is None else arrays.to_torch(lib.copied(lib.cast(full, lib.float32))),
    )
    return arrays.converted(metric.at(predictions), logits)


LOSS, KL, HIDDEN = Metric("loss"), Metric("kl"), Metric("hidden")


def logit_difference(answer: int, against: int | None) -> Metric:
    """Return the logit of one id minus that of another, if there is one."""
    return Metric("logit-diff", answer, against)


def named(name: str | UserMetric) -> Metric:
    """Return a metric that needs nothing but its name, or a user's."""
    if isinstance(name, str) and name in OF_TEXTS:
        return Metric(name)
    user = USERS[name] if isinstance(name, str) else name
    return Metric(user.name, user=user)


def names() -> tuple[str, ...]:
    """Every name of a metric of texts that can be asked for."""
    return (*OF_TEXTS, *(user.name for user in USERS.values() if user.of == "texts"))


def check(source: Source, metric: Metric) -> None:
    """Raise ModelError if a model cannot be ablated, or not by this metric."""
    if source.no_gates:
        raise ModelError("{} cannot be ablated: {}", source.info.model, source.no_gates)
    if metric.logits and source.no_logits:
        raise ModelError(
            "{} has no {}: {}",
            source.info.model,
            metric.name,
            source.no_logits,
            remedy="use {metric}",
            metric="hidden",
        )
