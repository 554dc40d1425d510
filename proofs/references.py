"""What ablations of demo-gpt2 cost on repeated random tokens, measured once more by other code.

:mod:`proofs.plain` runs the checkpoint in NumPy on tokens of its own drawing. A head's output is
replaced by its mean at the position, or by its output, on other sequences of the same length; rows
are the second halves but their first tokens, and effects trimmed means of the sequences' own. That
sequences of other lengths give something else is measured as well: there the same position repeats
in some and not in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import attnviz as av
from attnviz.features.ablation.result import Ablation, Change
from attnviz.models.demo import DEMOS
from proofs.plain import Array, Heads, Plain
from proofs.row import Proof

COMMAND = "python -m proofs references"
LENGTHS = (16, 32, 48)
GROUPS = {
    "0.5": ((0, 5),),
    "1.4": ((1, 4),),
    "2.0": ((2, 0),),
    "2.4": ((2, 4),),
    "3.0": ((3, 0),),
    "3.2": ((3, 2),),
    "3.3": ((3, 3),),
    "3.0+3.1+3.3+3.5": ((3, 0), (3, 1), (3, 3), (3, 5)),
}
SMALL = ("2.0", "3.2")
BACK = ((0, 5), (1, 4))
SIX = (*BACK, (2, 0), (3, 0), (3, 3), (3, 5))
"""Heads that look at the token before, and four that induce, of demo-gpt2."""
CUT = 0.1
Method = Literal["mean", "resample"]


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones two heads and fewer sequences."""
    names = SMALL if small else tuple(GROUPS)
    again = Repeats(count=6 if small else 20, means=20 if small else 80)
    found = av.ablate(probe=True, select=", ".join(names))
    yield _row("loss on repeated random tokens", again.loss(), found.base, found.low, found.high)
    yield _stake(again, found)
    for name in names:
        for change in found.effects[[one.name for one in found.effects].index(name)].by:
            method: Method = "mean" if change.method == "mean" else "resample"
            yield _effect(name, method, again.effect(GROUPS[name], method), change)
    yield _mixed(again, found)
    yield from _ruled(again, small)


@dataclass
class Repeats:
    """Random tokens repeated, and other such sequences that fill them.

    Attributes:
        count: sequences of each length that are measured, and as many to resample from.
        means: sequences of each length that means are over.
    """

    count: int
    means: int
    model: Plain = field(init=False)

    def __post_init__(self) -> None:
        self.model = Plain(DEMOS["demo-gpt2"])
        draw = np.random.default_rng(20)
        self.ids = {n: self._drawn(draw, n, self.count) for n in LENGTHS}
        self._base = {n: self._losses(n) for n in LENGTHS}
        self._donors = {n: self.model.run(self._drawn(draw, n, self.count))[1] for n in LENGTHS}
        self._means = {n: self.model.run(self._drawn(draw, n, self.means))[1] for n in LENGTHS}
        self._other = {n: self._drawn(draw, n, self.count)[:, : n + 1] for n in LENGTHS}

    def _drawn(self, draw: np.random.Generator, length: int, count: int) -> NDArray[np.int64]:
        """[count, 1 + 2 length] ids, the first the one that texts begin with."""
        words = np.arange(1, self.model.vocabulary)
        half = np.stack([draw.choice(words, length, replace=False) for _ in range(count)])
        return np.concatenate([np.zeros((count, 1), np.int64), half, half], 1)

    def _losses(self, length: int, replaced: Heads | None = None) -> Array:
        return self.model.losses(self.ids[length], replaced)[:, length + 1 :]

    def loss(self) -> tuple[float, float]:
        """Return the mean over all rows, and its standard error over sequences."""
        return _pooled([self._base[n] for n in LENGTHS])

    def unrepeated(self) -> float:
        """Return the same rows behind another first half."""
        found = []
        for n in LENGTHS:
            ids = np.concatenate([self._other[n], self.ids[n][:, n + 1 :]], 1)
            found.append(self.model.losses(ids)[:, n + 1 :])
        return _pooled(found)[0]

    def effect(self, heads: Sequence[tuple[int, int]], method: Method) -> tuple[float, float]:
        """Return the trimmed mean of the sequences' effects, and its standard error."""
        changes = []
        for n in LENGTHS:
            z = self._means[n] if method == "mean" else self._donors[n]
            fills = {
                (layer, head): z[layer][:, head].mean(0) if method == "mean" else z[layer][:, head]
                for layer, head in heads
            }
            changes += list((self._losses(n, fills) - self._base[n]).mean(1))
        return trimmed(np.array(changes, np.float64))

    def kept(self, heads: Sequence[tuple[int, int]]) -> float:
        """1 - Σ change with rules / Σ change by means, of heads that look back or induce."""
        with_rules = lost = 0.0
        for n in LENGTHS:
            fills = {place: self._means[n][place[0]][:, place[1]].mean(0) for place in heads}
            looks = {place: _back(self.ids[n]) if place in BACK else _induced(self.ids[n])
                     for place in heads}  # fmt: skip
            lost += float((self._losses(n, fills) - self._base[n]).sum())
            changed = self.model.losses(self.ids[n], looks=looks)[:, n + 1 :]
            with_rules += float((changed - self._base[n]).sum())
        return 1 - with_rules / lost

    def mixed(self, layer: int, head: int) -> float:
        """Return the effect where a mean at a position is over sequences of all lengths."""
        longest = 1 + 2 * max(LENGTHS)
        sums, counts = np.zeros((longest, self.model.width // self.model.heads)), np.zeros(longest)
        for n in LENGTHS:
            z = self._means[n][layer][:, head]
            sums[: z.shape[1]] += z.sum(0)
            counts[: z.shape[1]] += len(z)
        mean = (sums / counts[:, None]).astype(np.float32)
        changes = [
            (self._losses(n, {(layer, head): mean[: 1 + 2 * n]}) - self._base[n]).mean(1)
            for n in LENGTHS
        ]
        return trimmed(np.concatenate(changes).astype(np.float64))[0]


def _back(ids: NDArray[np.int64]) -> Array:
    """Row i on the token before it, the first on itself, [B, T, T]."""
    weights = np.repeat(np.eye(ids.shape[1], k=-1, dtype=np.float32)[None], len(ids), 0)
    weights[:, 0, 0] = 1
    return weights


def _induced(ids: NDArray[np.int64]) -> Array:
    """Row i behind the last earlier copy of its token, else on the first token, [B, T, T]."""
    weights = np.zeros((*ids.shape, ids.shape[1]), np.float32)
    for b, row in enumerate(ids.tolist()):
        last: dict[int, int] = {}
        for i, token in enumerate(row):
            weights[b, i, last[token] + 1 if token in last else 0] = 1
            last[token] = i
    return weights


def trimmed(values: NDArray[np.float64]) -> tuple[float, float]:
    """By SciPy: the mean without a tenth at each end, and its error from winsorized values."""
    from scipy import stats

    away = int(CUT * len(values) + 1e-9)
    ends = stats.mstats.winsorize(values, (away / len(values), away / len(values)))
    error = np.std(np.asarray(ends), ddof=1) / ((1 - 2 * away / len(values)) * len(values) ** 0.5)
    return float(stats.trim_mean(values, CUT)), float(error)


def _pooled(parts: Sequence[Array]) -> tuple[float, float]:
    """Return the mean over rows of several lengths, and its error over sequences."""
    a = np.concatenate([part.sum(1) for part in parts]).astype(np.float64)
    b = np.concatenate([np.full(len(part), part.shape[1]) for part in parts])
    mean, many = a.sum() / b.sum(), len(a)
    error = np.sqrt(many / (many - 1) * ((a - mean * b) ** 2).sum()) / b.sum()
    return float(mean), float(error)


def _row(
    what: str, other: tuple[float, float], ours: float, low: float | None, high: float | None
) -> Proof:
    """Two estimates from other sequences agree within three standard errors of their difference."""
    assert low is not None
    assert high is not None
    value, error = other
    width = 3 * float(np.hypot(error, (high - low) / 4)) + 1e-3
    return Proof(
        what, f"{value:+.3f} ± {2 * error:.3f} nats (NumPy, own tokens)",
        f"{ours:+.3f} [{low:+.3f}, {high:+.3f}]", f"within {width:.3f}",
        abs(ours - value) <= width, COMMAND,
    )  # fmt: skip


def _effect(name: str, method: Method, other: tuple[float, float], change: Change) -> Proof:
    what = f"demo-gpt2 without {name} on repeated random tokens, {method} of the same length"
    return _row(what, other, change.change, change.low, change.high)


def _stake(again: Repeats, found: Ablation) -> Proof:
    value = again.unrepeated() - again.loss()[0]
    assert found.stake is not None
    return Proof(
        "what the repetition is worth: the same rows behind another first half",
        f"{value:.3f} nats (NumPy, own tokens)", f"{found.stake:.3f}", "within 3 %",
        abs(found.stake - value) <= 0.03 * value, COMMAND,
    )  # fmt: skip


def _mixed(again: Repeats, found: Ablation) -> Proof:
    value = again.mixed(2, 0)
    (ours,) = [one.change for one in found.effects if one.name == "2.0"]
    return Proof(
        "the reference decides: 2.0 by means over sequences of all three lengths",
        f"{value:+.3f} nats (NumPy, own tokens)", f"{ours:+.3f} with the same length",
        "at least four times as much", value >= 4 * abs(ours), COMMAND,
    )  # fmt: skip


def _ruled(again: Repeats, small: bool) -> Iterator[Proof]:
    """Yield what rules keep of heads, beside the same by the other code on other tokens."""
    groups = {"1.4": BACK[1:]} if small else {"1.4": BACK[1:], "0.5": BACK[:1], "the six": SIX}
    names = {what: "+".join(f"{a}.{b}" for a, b in heads) for what, heads in groups.items()}
    found = av.ablate(probe=True, select=", ".join(names.values()), method="rule")
    for (what, heads), effect in zip(groups.items(), found.effects, strict=True):
        (kept,) = effect.kept
        assert kept.share is not None
        value = again.kept(heads)
        yield Proof(
            f"{what} of demo-gpt2 as {kept.rule}: what that keeps of the effect on repeated tokens",
            f"{100 * value:.1f} % (NumPy, own tokens)", f"{100 * kept.share:.1f} %",
            "within 2 points", abs(kept.share - value) <= 0.02, COMMAND,
        )  # fmt: skip
