"""From the values of pairs to shares of the effect, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from attnviz.core.arrays import Floats
from attnviz.errors import InputError
from attnviz.features.patch.measure import PatchSums
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.paths import Path
from attnviz.features.patch.result import Direction, PatchEffect, PatchShare, PathEffect, TaskScore
from attnviz.features.patch.runs import PairMetric
from attnviz.features.patch.sweep import Patching
from attnviz.interventions.judge import SMALLEST, judge
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import ROUNDING, spearman
from attnviz.statistics.ratios import mean


def baseline(
    measured: Sequence[PatchSums], names: Sequence[str], side: int, *, held: bool
) -> TaskScore:
    """How the model does unpatched: on the clean prompts (side 0), or on the corrupted ones."""
    values = np.array([(sums.clean, sums.corrupted)[side] for sums in measured])
    middle, low, high = mean(values, names)
    wins = float(np.mean([sums.wins[side] for sums in measured])) if held else None
    top = float(np.mean([sums.top[side] for sums in measured]))
    return TaskScore(middle, none_if_nan(low), none_if_nan(high), wins, top)


def check_gap(measured: Sequence[PatchSums], names: Sequence[str], metric: PairMetric) -> None:
    """Raise InputError where clean minus corrupted, all that there is to do, may be nothing."""
    gaps = np.array([sums.clean - sums.corrupted for sums in measured])
    middle, low, high = mean(gaps, names)
    size = max(1.0, *(abs(sums.clean) for sums in measured))
    if abs(middle) < ROUNDING * size or low <= 0 <= high:
        between = "" if math.isnan(low) else f", 95 % interval {low:+.3g} to {high:+.3g}"
        raise InputError(
            "the {} does not move: clean minus corrupted is {:+.3g}{}, so no share of it can be "
            "taken; change what is corrupted, take another {metric}, or give more pairs",
            metric.name,
            middle,
            between,
            metric=...,
        )


def effects(
    trials: Sequence[Patching],
    measured: Sequence[PatchSums],
    directions: Sequence[Direction],
    names: Sequence[str],
) -> tuple[PatchEffect, ...]:
    """Every trial with its shares."""
    by_trial, gaps = _judged(measured, directions, names)
    estimated, total = np.stack([sums.estimated for sums in measured]), float(gaps.sum())
    return tuple(
        PatchEffect(
            trial.target.name, trial.target.heads, trial.target.layer, trial.position,
            **by_trial[number],
            estimate=float(estimated[:, number].sum()) / total if estimated.size else None,
        )
        for number, trial in enumerate(trials)
    )  # fmt: skip


def moved(measured: Sequence[PatchSums], directions: Sequence[Direction]) -> tuple[Floats, Floats]:
    """By pair, what each run changed [pairs, directions, runs], and what there is to change."""
    patched = np.stack([sums.patched for sums in measured])
    clean, corrupted = (
        np.array([getattr(sums, side) for sums in measured]) for side in ("clean", "corrupted")
    )
    changes = [
        patched[:, n] - corrupted[:, None] if name == "denoise" else clean[:, None] - patched[:, n]
        for n, name in enumerate(directions)
    ]
    return np.stack(changes, 1), clean - corrupted


def edges(
    paths: Sequence[Path],
    measured: Sequence[PatchSums],
    directions: Sequence[Direction],
    names: Sequence[str],
    estimated: Mapping[Path, float],
) -> tuple[PathEffect, ...]:
    """Every path with its shares; arguments as for :func:`effects`."""
    by_path, _ = _judged(measured, directions, names)
    return tuple(
        PathEffect(path.sender, path.receivers, path.side, **judged, estimate=estimated.get(path))
        for path, judged in zip(paths, by_path, strict=True)
    )


def _judged(
    measured: Sequence[PatchSums], directions: Sequence[Direction], names: Sequence[str]
) -> tuple[list[dict[Direction, PatchShare]], Floats]:
    """Judge all runs together: the shares of each by direction, and every pair's gap."""
    changes, gaps = moved(measured, directions)
    by_run = zip(*shares(changes, gaps, names), strict=True)
    return [dict(zip(directions, of_run, strict=True)) for of_run in by_run], gaps


def shares(changes: Floats, gaps: Floats, names: Sequence[str]) -> list[list[PatchShare]]:
    """Judge a gap's shares together: [pairs, A, B] -> A lists of B; the typical pair's jointly."""
    pairs, rows, columns = changes.shape
    flat = changes.reshape(pairs, -1)
    judged, raw = judge(flat, gaps, names, rounding=ROUNDING), flat.mean(0)
    often = judged.often(SMALLEST) if len(judged.values) > 1 else [None] * flat.shape[1]
    results = [
        PatchShare(
            float(raw[n]), float(judged.pooled.value[n]), estimate.mean_low, estimate.mean_high,
            none_if_nan(estimate.value), estimate.joint_low, estimate.joint_high,
            estimate.detectable, *(often[n] or ()),
        )
        for n in range(flat.shape[1])
        for estimate in [judged[n]]
    ]  # fmt: skip
    return [results[row * columns : (row + 1) * columns] for row in range(rows)]


def family(effects: Sequence[PatchEffect | PathEffect]) -> int:
    """How many intervals hold together."""
    entries = [share for effect in effects for share in (effect.denoise, effect.noise)]
    return sum(share is not None for share in entries)


def correlation(effects: Sequence[PatchEffect | PathEffect]) -> float | None:
    """Spearman's between estimates and exact effects of denoising."""
    pairs = [
        (effect.estimate, effect.denoise.share)
        for effect in effects
        if effect.estimate is not None and effect.denoise
    ]
    if not pairs:
        return None
    guessed, exact = (np.array(column) for column in zip(*pairs, strict=True))
    return spearman(guessed, exact)


def clusters(pairs: Sequence[PreparedPair]) -> list[str]:
    """Return what each pair counts with."""
    return [pair.cluster for pair in pairs]
