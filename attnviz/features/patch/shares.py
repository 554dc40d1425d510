"""From the values of pairs to shares of the effect, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from attnviz.core.source import Source
from attnviz.errors import InputError
from attnviz.features.patch.measure import Floats, PatchSums
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
    measured: Sequence[PatchSums],
    names: Sequence[str],
    metric: PairMetric,
    side: int,
    *,
    held: bool,
) -> TaskScore:
    """How the model does unpatched."""
    values = np.array([(sums.clean, sums.corrupted)[side] for sums in measured])
    middle, low, high = mean(values, names)
    wins = float(np.mean([sums.wins[side] for sums in measured])) if held else None
    top = float(np.mean([sums.top[side] for sums in measured]))
    return TaskScore(middle, none_if_nan(low), none_if_nan(high), wins, top)


def gap(
    measured: Sequence[PatchSums], names: Sequence[str], metric: PairMetric, source: Source
) -> Floats:
    """Clean minus corrupted, by pair: what there is to do."""
    gaps = np.array([sums.clean - sums.corrupted for sums in measured])
    middle, low, high = mean(gaps, names)
    size = max(1.0, *(abs(sums.clean) for sums in measured))
    nothing = abs(middle) < ROUNDING * size
    if nothing or low <= 0 <= high:
        between = "" if math.isnan(low) else f", 95 % interval {low:+.3g} to {high:+.3g}"
        raise InputError(
            "the {} does not move: clean minus corrupted is {:+.3g}{}, so no share of it can be "
            "taken; change what is corrupted, take another {metric}, or give more pairs",
            metric.name,
            middle,
            between,
            metric=...,
        )
    return gaps


def effects(
    trials: Sequence[Patching],
    measured: Sequence[PatchSums],
    directions: Sequence[Direction],
    names: Sequence[str],
) -> tuple[PatchEffect, ...]:
    """Every trial with its shares."""
    changes, gaps = moved(measured, directions)
    judged = shares(changes, gaps, names)
    estimated = np.stack([sums.estimated for sums in measured])
    total = float(gaps.sum())
    results = []
    for number, trial in enumerate(trials):
        by_direction: Mapping[Direction, PatchShare] = {
            name: judged[n][number] for n, name in enumerate(directions)
        }
        guess = float(estimated[:, number].sum()) / total if estimated.size else None
        target = trial.target
        results.append(
            PatchEffect(
                target.name, target.heads, target.layer, trial.position,
                by_direction.get("denoise"), by_direction.get("noise"), guess,
            )
        )  # fmt: skip
    return tuple(results)


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
    judged = shares(*moved(measured, directions), names)
    by_direction = [
        dict(zip(directions, path_shares, strict=True)) for path_shares in zip(*judged, strict=True)
    ]
    return tuple(
        PathEffect(
            path.sender, path.receivers, path.side, by_direction[n].get("denoise"),
            by_direction[n].get("noise"), estimated.get(path),
        )
        for n, path in enumerate(paths)
    )  # fmt: skip


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
