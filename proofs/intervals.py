"""How often intervals of every kind hold, by simulation: texts drawn from a known population."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from attnviz.statistics.coverage import CLOSE, word, word_of
from attnviz.statistics.ratios import ratios
from proofs.coverage import JOINT_SIZES, Population, coverage, made_up, path_coverage
from proofs.paths import PATHS
from proofs.row import Proof

COMMAND = "python -m proofs intervals; python -m proofs.coverage"
LEVEL = 0.95
FALL = 0.017
"""By so much power may fall from one number of texts to the next."""
KINDS = {
    "pooled, each: common scores": ("middle", "the median score, texts as clusters (Student's t)"),
    "pooled, simultaneous: common scores": ("joint", "all scores at once (max-T, studentized)"),
    "trimmed mean": ("middle", "the median trimmed mean of texts"),
    "median": ("middle", "the median of texts, of the middle score"),
}
"""Which share of a kind is promised: of the median score by itself, or of all together."""


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones few draws and one number of texts."""
    runs = 30 if small else 400
    population = made_up()
    for size in (50,) if small else (50, 200):
        found = coverage(population, size, runs=runs)
        for kind, (part, said) in KINDS.items():
            worst = found[kind].worst if part == "middle" else None
            yield _row(f"{said}, {size} texts", getattr(found[kind], part), runs, worst)
        yield rare(found["pooled, each: rare scores"].middle, size, runs)
    yield unclustered(population, runs)
    yield from effects(runs)
    yield from paths(20 if small else 100, (19, 20) if small else JOINT_SIZES)


PROMISED = {
    **{f"{name}: all at once": "joint" for name in PATHS if name != "sources"},
    "sources: each": "middle",
    "sources: all at once": "joint",
}
"""The intervals that commands print, and which share of them they promise."""


def paths(runs: int, sizes: Sequence[int]) -> Iterator[Proof]:
    """Yield the functions that commands call, on texts made up with the tails of a treebank's."""
    for name, path in PATHS.items():
        arrays = path.made_up()
        power: dict[str, list[tuple[int, float]]] = {}
        for size in sizes:
            found = path_coverage(name, arrays, size, runs=runs)
            for kind in sorted(found.keys() & PROMISED.keys()):
                yield promised(kind, getattr(found[kind], PROMISED[kind]), size, runs)
                if PROMISED[kind] == "joint":
                    power.setdefault(kind, []).append((size, found[kind].found or 0.0))
        for kind, shares in power.items():
            yield no_cliff(kind, shares, runs)


def promised(kind: str, share: float, size: int, runs: int) -> Proof:
    """Return a row: no less than 95 %, or than what is said beside the interval."""
    said = word_of(kind, size)
    least = min(int(p) for p in re.findall(r"in (\d+) %", said)) / 100 if said else LEVEL
    least -= CLOSE + _sampling(runs)
    return Proof(
        f"intervals of {kind}, {size} texts", said or f"{100 * LEVEL:.0f} %, nominal",
        f"{100 * share:.1f} %", f"at least {100 * least:.1f} % in {runs} draws", share >= least,
        COMMAND,
    )  # fmt: skip


def no_cliff(kind: str, shares: Sequence[tuple[int, float]], runs: int) -> Proof:
    """Return a row: of the effects that there are, more texts find no fewer."""
    falls = [before - after for (_, before), (_, after) in pairwise(shares)]
    most = max(falls, default=0.0)
    return Proof(
        f"effects that intervals of {kind} find",
        "no fewer with more texts",
        ", ".join(f"{size}: {100 * share:.0f} %" for size, share in shares),
        f"falls by {100 * FALL:.1f} points at most, in {runs} draws",
        most <= FALL + 2.5 * (0.25 / runs) ** 0.5 / 2,
        COMMAND,
    )


def _sampling(runs: int) -> float:
    """Two and a half standard errors of a share of 95 % in so many draws."""
    return 2.5 * (LEVEL * (1 - LEVEL) / runs) ** 0.5


def _row(what: str, share: float, runs: int, worst: float | None = None) -> Proof:
    """Make a row of a share that is judged; of many means the median's, and the worst is told."""
    least = LEVEL - CLOSE - _sampling(runs)
    return Proof(
        f"interval of {what}: how often it holds", f"{100 * LEVEL:.0f} %, nominal",
        f"{100 * share:.1f} %" + (f", worst of them {100 * worst:.1f} %" if worst else ""),
        f"at least {100 * least:.1f} % in {runs} draws", share >= least,
        COMMAND,
    )  # fmt: skip


def rare(share: float, size: int, runs: int) -> Proof:
    """Scores that few texts have: the words beside their intervals promise no more than holds."""
    promised = min(int(p) for p in re.findall(r"(\d+) %", word("each", size) or "95 %"))
    return Proof(
        f"interval of a score that few texts have, {size} texts",
        f"said beside it: down to {promised} %", f"{100 * share:.1f} %",
        f"no less than is said, in {runs} draws", share >= promised / 100 - _sampling(runs),
        COMMAND,
    )  # fmt: skip


def unclustered(population: Population, runs: int, size: int = 50) -> Proof:
    """Return what would hold if rows of a text were taken as independent, as they are not."""
    draw = np.random.default_rng(1)
    often = (population.b > 0).mean(0) > 0.9
    a, b = population.a[:, often], population.b[:, often]
    truth = a.sum(0) / b.sum(0)
    held = []
    for _ in range(runs):
        some = draw.integers(0, len(a), size)
        rows = b[some].sum(0)
        p = a[some].sum(0) / rows
        held.append(np.abs(p - truth) <= 1.96 * np.sqrt(p * (1 - p) / rows))
    share = float(np.median(np.mean(held, 0)))
    return Proof(
        f"the simulation can fail: the same with rows for independent units, {size} texts",
        "less than 95 %", f"{100 * share:.1f} %", f"{runs} draws", share < LEVEL - CLOSE, COMMAND,
    )  # fmt: skip


def effects(runs: int, size: int = 60, count: int = 6) -> Iterator[Proof]:
    """Shares Σ patched / Σ clean over pairs, whose effects and noise have heavy tails."""
    draw = np.random.default_rng(2)
    truth = np.array([0.185, 0.111, 0.110, 0.058, 0.038, 0.0])[:count]
    names = [str(n) for n in range(size)]
    each, joint = [], []
    for _ in range(runs):
        b = draw.lognormal(2.5, 0.5, size)
        noise = 0.1 * draw.standard_t(4, (size, count)) + 0.05 * draw.standard_t(4, (size, 1))
        found = ratios(b[:, None] * (truth + noise), b, names)
        each.append((found.low <= truth) & (truth <= found.high))
        joint.append(((found.joint_low <= truth) & (truth <= found.joint_high)).all())
    yield _row(f"a normalised effect over {size} pairs", float(np.mean(each)), runs)
    yield _row(f"{count} normalised effects at once, {size} pairs", float(np.mean(joint)), runs)
