"""Circuits that are known: planted in weights, compiled from programs, and read off weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import attnviz as av
from attnviz.features.patch.result import Patch
from proofs.row import Proof
from tests.features.patch import planted, test_compiled

COMMAND = "python -m proofs planted"
PERMUTATIONS = 10_000


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones one planted model."""
    yield weights(range(1) if small else range(4))
    if not small:
        yield programs()
    yield composition(8 if small else 48)


def _judged(what: str, known: str, cases: list[tuple[set[str], set[str]]]) -> Proof:
    """A row from what was found and what is there, case by case."""
    right = sum(len(found & there) for found, there in cases)
    found, there = (sum(len(case[n]) for case in cases) for n in (0, 1))
    precision, recall = right / max(found, 1), right / there
    return Proof(
        what, known, f"precision {precision:.2f}, recall {recall:.2f}",
        f"{right} of {found} found, of {there} there", right == found == there, COMMAND,
    )  # fmt: skip


def _parts(found: Patch) -> set[str]:
    """Heads and edges of the circuit."""
    assert found.circuit is not None
    heads = {member.head.name for member in found.circuit.members}
    return heads | {link.edge.name(found.layout) for link in found.circuit.links}


def weights(seeds: range) -> Proof:
    names = [f"{layer}.{head}" for layer, head in (planted.PREVIOUS, planted.INDUCTION)]
    there = {*names, f"{names[0]} -> {names[1]}.k", f"{names[1]} -> logits"}
    cases = [
        (_parts(av.patch(task="induction-swap", model=av.load(planted.planted(seed)),
                         circuit="auto", count=14)), there)
        for seed in seeds
    ]  # fmt: skip
    return _judged(
        f"heads and edges of an induction circuit planted among 21 idle heads and one that attends "
        f"alike, {len(cases)} drawn models",
        "2 heads and 2 edges each, by construction", cases,
    )  # fmt: skip


def programs() -> Proof:
    cases = []
    for name, (make, carried, _, edges) in test_compiled.CASES.items():
        model, words, _ = test_compiled.read(name)
        found = av.patch(make(words), model=av.load(model), circuit="auto")
        cases.append((_parts(found), {*carried, *edges}))
    return _judged(
        "heads and edges of two programs compiled by tracr: reverse, and what followed before",
        "the program's own heads that carry the answer (Lindner et al. 2023, arXiv:2301.05062)",
        cases,
    )


def composition(pairs: int) -> Proof:
    """K-composition of 1.4, read off weights, against its paths, by intervention."""
    excess = {
        edge.reader.name: edge.excess
        for edge in av.circuits(select="1.4").edges
        if edge.side == "K" and edge.writer.name == "1.4"
    }
    found = av.patch(task="induction-swap", count=pairs, paths="1.4 -> *.k")
    effect = {
        edge.receivers[0].name: abs(share.share)
        for edge in found.edges
        if (share := edge.denoise) is not None and edge.receivers
    }
    heads = sorted(excess)
    ours, paths = (_ranks([by[name] for name in heads]) for by in (excess, effect))
    rho = float(np.corrcoef(ours, paths)[0, 1])
    draw = np.random.default_rng(0)
    chance = [np.corrcoef(ours, draw.permutation(paths))[0, 1] for _ in range(PERMUTATIONS)]
    p = float((np.sum(np.array(chance) >= rho) + 1) / (PERMUTATIONS + 1))
    first = [max(by, key=lambda name: by[name]) for by in (excess, effect)]
    return Proof(
        f"K-composition of head 1.4 of demo-gpt2 with {len(heads)} later heads (weights alone), "
        "against the path patched",
        f"path patching, {pairs} pairs: strongest into {first[1]} (Elhage et al. 2021)",
        f"strongest into {first[0]}; Spearman's ρ {rho:+.2f}",
        f"p = {p:.4f}, {PERMUTATIONS:,} permutations", first[0] == first[1] and p < 0.05, COMMAND,
    )  # fmt: skip


def _ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))
