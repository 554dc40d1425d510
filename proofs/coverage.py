"""``python -m proofs.coverage [FILE]``: how often intervals hold, by the number of texts.

The texts of a file (lines, or the sentences of a treebank in CoNLL-U) are taken for the whole
population: their means are the truth. Samples of texts are drawn from them, with replacement, and
every kind of interval is computed as attnviz does. Without a file the population is made up: texts
of very different lengths, with heavy tails.

FILE may also be an .npz archive of what a command measures of every text; ``--path`` says which
(:mod:`proofs.paths`): ``ablate``, ``knockout``, ``patch``, ``thoughts``, ``diff``, ``sources``, or
``all`` of them, each on a population that is made up, without FILE. Below stands how many of the
effects that there are the intervals find.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.clusters import ClusterSums, half_widths
from attnviz.statistics.order import Between, medians, per_text, trimmed_means
from attnviz.statistics.simultaneous import COMMON, Bootstrap
from proofs.paths import PATHS, Held

SIZES = (5, 10, 20, 50, 200, 1000)
JOINT_SIZES = (10, 15, 19, 20, 21, 30, 50, 200)
"""Of the paths: on either side of 20, where a method may change."""
RUNS = 200
REPLICATES = 500

Floats = NDArray[np.float64]


class Population(NamedTuple):
    """Sums of every text: ``a`` [texts, K] and numbers of rows ``b`` [texts, K]."""

    a: Floats
    b: NDArray[np.int64]


class Coverage(NamedTuple):
    """How often intervals held: all of them together, and of single means the median and worst.

    Beside it the share of the true effects that they found, where these are known.
    """

    joint: float
    middle: float
    worst: float
    found: float | None = None


def made_up(texts: int = 20_000, means: int = 24, seed: int = 0) -> Population:
    """Texts whose lengths and scores have heavy tails, and scores that few texts have."""
    draw = np.random.default_rng(seed)
    rows = np.ceil(draw.lognormal(2.5, 0.8, texts)).astype(np.int64)
    habit = draw.standard_t(4, (texts, 1))
    level = np.linspace(-3, 2, means)
    share = 1 / (1 + np.exp(-(level + 0.7 * habit + 0.5 * draw.standard_normal((texts, means)))))
    b = np.repeat(rows[:, None], means, 1)
    rare = slice(0, means // 4)
    b[:, rare] = draw.binomial(b[:, rare], 0.05) * (draw.random((texts, 1)) < 0.5)
    return Population(share * b, b)


def of_texts(path: Path, model: str) -> Population:
    """Return the sums of the scores of a model's heads on the texts of a file."""
    from attnviz.captures.loading import load
    from attnviz.corpus.texts import read
    from attnviz.features.profile.tasks import tasks
    from attnviz.features.profile.work import ProfileSettings, Worker

    if path.suffix == ".npz":
        found = np.load(path)
        a = found["a"].reshape(len(found["a"]), -1)
        b = found["b"].reshape(len(a), -1)
        return Population(a, np.broadcast_to(b, a.shape).astype(np.int64))
    if path.suffix == ".conllu":
        import tempfile

        mark = "# text = "
        lines = [line[len(mark) :] for line in _lines(path) if line.startswith(mark)]
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            return of_texts(Path(file.name), model)
    worker = Worker(load(model), ProfileSettings())
    clusters = [c for task in tasks(read([str(path)])) for c in worker(task).clusters]
    a, b = np.stack([c.a for c in clusters]), np.stack([c.b for c in clusters])
    there = b.sum(0) > 0
    return Population(a[:, there], b[:, there])


def _lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def coverage(
    population: Population,
    groups: int,
    *,
    runs: int = RUNS,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Coverage]:
    """How often every kind of interval holds in samples of so many texts.

    A kind that no sample has an interval of is left out; so are, of a kind, means that fewer than
    one sample in ten has an interval of.
    """
    draw = np.random.default_rng([seed, groups])
    held: dict[str, list[Floats]] = {}
    truth = _truth(population)
    for run in range(runs):
        some = draw.integers(0, len(population.a), groups)
        sample = Population(population.a[some], population.b[some])
        for kind, inside in _held(sample, truth, population, run, replicates):
            held.setdefault(kind, []).append(inside)
    return {kind: found for kind, runs in held.items() if (found := _summed(np.array(runs)))}


def path_coverage(
    name: str, arrays: Sequence[NDArray[Any]], groups: int, *, runs: int = RUNS, seed: int = 0
) -> dict[str, Coverage]:
    """Give the same of a code path of :data:`proofs.paths.PATHS`, on a population of its arrays."""
    path, draw = PATHS[name], np.random.default_rng([seed, groups])
    held: dict[str, list[Held]] = {}
    truth = path.truth(tuple(arrays))
    for run in range(runs):
        some = draw.integers(0, len(arrays[0]), groups)
        for kept in path.held(tuple(one[some] for one in arrays), truth, run):
            held.setdefault(kept.kind, []).append(kept)
    tables = {}
    for kind, samples in held.items():
        summed = _summed(np.array([kept.inside for kept in samples]))
        if summed:
            shown = np.array([kept.found for kept in samples])
            tables[kind] = summed._replace(found=float(np.nanmean(shown)))
    return tables


def _truth(population: Population) -> Mapping[str, Floats]:
    values = per_text(*population)
    return {
        "pooled": population.a.sum(0) / population.b.sum(0),
        "macro": np.nanmean(values, axis=0),
        "trimmed": _trimmed(values).value,
        "median": np.nanmedian(values, axis=0),
    }


def _held(
    sample: Population, truth: Mapping[str, Floats], population: Population, run: int, draws: int
) -> Iterator[tuple[str, Floats]]:
    """By kind, [K]: 1 where an interval holds, 0 where not, NaN where there is none."""
    values = per_text(*sample)
    there = (sample.b > 0).astype(np.int64)
    names = [str(n) for n in range(len(sample.a))]
    for title, a, b in (("pooled", sample.a, sample.b), ("macro", np.nan_to_num(values), there)):
        sums = ClusterSums.of(a, b)
        bootstrap = Bootstrap((a.shape[1],), run, draws)
        bootstrap.add(names, a, b)
        common, rare = bootstrap.families(sums)
        off = np.abs(sums.mean() - truth[title])
        often = sums.count >= COMMON * sums.count.max()
        each = _where(off <= sums.half(), sums.known())
        yield f"{title}, each: common scores", _where(each, often)
        yield f"{title}, each: rare scores", _where(each, ~often)
        bonferroni = half_widths(sums.freedom(), 1 - 0.05 / max(1, int(sums.known().sum())))
        inside = off <= bonferroni * sums.error()
        yield f"{title}, Bonferroni: common scores", _where(inside, often & sums.known())
        width = bootstrap.widths(sums)
        inside = off <= width * sums.error()
        known = ~np.isnan(width)
        yield f"{title}, simultaneous: common scores", _where(inside, common & known)
        yield f"{title}, simultaneous: rare scores", _where(inside, rare & known)
    yield "trimmed mean", _between(_trimmed(values), truth["trimmed"])
    middle = medians(values)
    yield "median", _between(Between(middle.center, middle.low, middle.high), truth["median"])


def _trimmed(values: Floats) -> Between:
    """Trimmed means [K] of the texts that have each, of [texts, K] with NaN for none."""
    bounds = np.full((3, values.shape[1]), np.nan)
    there = ~np.isnan(values)
    whole = there.all(0)
    for columns in (whole, *np.eye(values.shape[1], dtype=bool)[~whole & there.any(0)]):
        some = values[there[:, columns].all(1)][:, columns]
        if some.size:
            bounds[:, columns] = trimmed_means(some)
    return Between(*bounds)


def _between(found: Between, truth: Floats) -> Floats:
    inside = (found.low <= truth) & (truth <= found.high)
    return _where(inside, ~np.isnan(found.low))


def _where(inside: NDArray[Any], known: NDArray[np.bool_]) -> Floats:
    return np.where(known, inside, np.nan)


def _summed(held: Floats) -> Coverage | None:
    """Of [runs, K]."""
    known = ~np.isnan(held)
    often = known.mean(0) >= 0.1
    some = held[:, often]
    there = known[:, often].any(1) if often.any() else np.zeros(0, np.bool_)
    if not there.any():
        return None
    each = np.nanmean(some, axis=0)
    joint = (np.nan_to_num(some[there], nan=1.0) == 1).all(1)
    return Coverage(float(joint.mean()), float(np.median(each)), float(each.min()))


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m proofs.coverage", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="texts, a treebank, or sums (.npz)")
    parser.add_argument("--path", choices=[*PATHS, "all", "scores"], default="scores")
    parser.add_argument("--model", default="demo-gpt2")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args(arguments)
    tables: dict[int, dict[str, Coverage]] = {}
    if given.path == "scores":
        population = made_up() if given.file is None else of_texts(given.file, given.model)
        texts, means = population.a.shape
        print(f"{texts:,} texts, {means} means; {given.runs} samples of each size")
        for size in given.sizes or SIZES:
            tables[size] = coverage(population, size, runs=given.runs)
    else:
        print(f"{given.runs} samples of each size")
        for name in PATHS if given.path == "all" else [given.path]:
            arrays = read_arrays(name, given.file)
            for size in given.sizes or JOINT_SIZES:
                found = path_coverage(name, arrays, size, runs=given.runs)
                tables.setdefault(size, {}).update(found)
    print("all together / the median mean / the worst mean, in %\n")
    print("\n".join(table(tables, _cell)))
    if given.path != "scores":
        print("\neffects that are found, of those that there are, in %\n")
        print("\n".join(table(tables, _found)))
    return 0


def read_arrays(name: str, file: Path | None) -> Sequence[NDArray[Any]]:
    """Return the arrays of a population file; those made up without one."""
    path = PATHS[name]
    if file is None:
        return path.made_up()
    found = np.load(file)
    arrays = [found[one] for one in path.arrays]
    return [a if a.ndim < 3 else a.reshape(len(a), -1) for a in arrays]


def table(
    tables: Mapping[int, Mapping[str, Coverage]], cell: Callable[[Coverage], str]
) -> Iterator[str]:
    """Lines of Markdown, a column for each number of texts."""
    kinds = dict.fromkeys(kind for found in tables.values() for kind in found)
    order = {name: place for place, name in enumerate(PATHS)}
    listed = sorted(kinds, key=lambda kind: order.get(re.split("[,:]", kind)[0], 0))
    yield f"| {'interval':38} | " + " | ".join(f"{size:>12,}" for size in tables) + " |"
    yield f"|{'-' * 40}|" + f"{'-' * 13}:|" * len(tables)
    for kind in listed:
        cells = ("–" if kind not in found else cell(found[kind]) for found in tables.values())
        yield f"| {kind:38} | " + " | ".join(f"{cell:>12}" for cell in cells) + " |"


def _cell(found: Coverage) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in found[:3])


def _found(found: Coverage) -> str:
    return "–" if found.found is None else f"{100 * found.found:.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
