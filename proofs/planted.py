"""Circuits that are known: planted in weights, compiled from programs, and read off weights.

Which heads and edges there are follows from the wiring, and what they keep is measured by hooks in
transformers' own model: nothing of attnviz but the pairs' tokens and the halves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import attnviz as av
from attnviz.features.patch import shares
from attnviz.features.patch.circuit import halves
from attnviz.features.patch.pairs import PreparedPair, prepare, task_pairs
from attnviz.features.patch.result import Patch
from proofs.row import Proof
from tests.features.patch import planted, test_compiled

COMMAND = "python -m proofs planted"
PERMUTATIONS = 10_000
COUNT = 14
"""Pairs of a planted circuit."""
HEADS = planted.HEADS


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones one planted model."""
    yield weights(range(1) if small else range(4))
    for name in ["late suppressor"] if small else planted.CASES:
        yield wired(name)
    if not small:
        yield programs()
    yield composition(8 if small else 48)


def _judged(what: str, known: str, cases: list[tuple[set[str], set[str]]]) -> Proof:
    """Return a row from what was found and what is there, case by case."""
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
    known = {*names, f"{names[0]} -> {names[1]}.k", f"{names[1]} -> logits"}
    cases = [
        (_parts(av.patch(task="induction-swap", model=av.load(planted.planted(seed)),
                         circuit="auto", count=COUNT)), known)
        for seed in seeds
    ]  # fmt: skip
    return _judged(
        f"heads and edges of an induction circuit planted among 21 idle heads and one that attends "
        f"alike, {len(cases)} drawn models",
        "2 heads and 2 edges each, by construction", cases,
    )  # fmt: skip


def wired(name: str) -> Proof:
    """One of the cases in which some way of choosing heads misses some."""
    heads = planted.CASES[name]
    model = planted.wired_as(heads, 1 + max(layer for layer, _ in heads))
    source = av.load(model)
    found = av.patch(task="induction-swap", model=source, circuit="95%", count=COUNT)
    assert found.circuit is not None
    pairs = prepare(source, task_pairs(source, "induction-swap", COUNT, 0)[0])
    judged = [pairs[n] for n in halves(shares.clusters(pairs), 0).judged]
    members = {(member.head.layer, member.head.index) for member in found.circuit.members}
    kept = faithful(model, judged, members)
    right = _judged("", "", [(_parts(found), there(heads))])
    names = ", ".join(f"{layer}.{head}" for layer, head in sorted(heads))
    return Proof(
        f"{name}: heads and edges of a planted circuit, and what it keeps",
        f"{names} by construction; keeps {kept:.4f} of the gap (hooks in transformers' model)",
        f"{right.ours}; keeps {found.circuit.faithful.share:.4f}",
        f"{right.within}, 1e-4",
        bool(right.holds) and abs(found.circuit.faithful.share - kept) < 1e-4, COMMAND,
    )  # fmt: skip


def there(heads: Mapping[planted.Place, planted.Wired]) -> set[str]:
    """Heads, and edges: who reads what an earlier one writes, and who writes the answer."""
    parts = {f"{layer}.{head}" for layer, head in heads}
    for (layer, head), sender in heads.items():
        for (later, number), receiver in heads.items():
            sides = {"q": receiver.query, "k": receiver.key, "v": receiver.read}
            parts |= {
                f"{layer}.{head} -> {later}.{number}.{side}"
                for side, part in sides.items()
                if later > layer and part == sender.written
            }
        if sender.written == planted.ANSWER:
            parts.add(f"{layer}.{head} -> logits")
    return parts


def faithful(model: Any, pairs: Sequence[PreparedPair], members: set[planted.Place]) -> float:
    """(m(C) - m(∅)) / (m(full) - m(∅)) by hooks on what goes into W_O."""
    every = {(layer, head) for layer in range(model.config.n_layer) for head in range(HEADS)}
    full, empty, kept = (
        sum(_metric(model, pair, outside) for pair in pairs)
        for outside in (set[planted.Place](), every, every - members)
    )
    return (kept - empty) / (full - empty)


def _metric(model: Any, pair: PreparedPair, outside: set[planted.Place]) -> float:
    """Return the logit difference of the clean prompt with some heads as in the corrupted one."""
    stored: list[torch.Tensor] = []
    width = model.config.n_embd // HEADS

    def replaced(layer: int, z: torch.Tensor) -> torch.Tensor:
        mixed = z.clone()
        for at, head in outside:
            if at == layer:
                columns = slice(head * width, (head + 1) * width)
                mixed[..., columns] = stored[layer][..., columns]
        return mixed

    def run(ids: Sequence[int], change: Callable[[int, torch.Tensor], Any]) -> torch.Tensor:
        hooks = [
            block.attn.c_proj.register_forward_pre_hook(
                lambda _, args, layer=layer: change(layer, args[0])
            )
            for layer, block in enumerate(model.transformer.h)
        ]
        with torch.no_grad():
            logits: torch.Tensor = model(torch.tensor([ids])).logits[0, -1]
        for hook in hooks:
            hook.remove()
        return logits

    clean, corrupted = pair.pair.clean, pair.pair.corrupted
    assert not isinstance(clean, str)
    assert not isinstance(corrupted, str)
    run(corrupted, lambda _, z: stored.append(z.clone()))
    logits = run(clean, replaced)
    return float(logits[pair.answer] - logits[pair.against or 0])


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
        edge.receivers[0].name: max(abs(share.share) for share in both)
        for edge in found.edges
        if edge.receivers and None not in (both := (edge.denoise, edge.noise))
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
        f"path patching both ways, {pairs} pairs: strongest into {first[1]} (Elhage et al. 2021)",
        f"strongest into {first[0]}; Spearman's ρ {rho:+.2f}",
        f"p = {p:.4f}, {PERMUTATIONS:,} permutations", first[0] == first[1] and p < 0.05, COMMAND,
    )  # fmt: skip


def _ranks(values: list[float]) -> np.ndarray:
    return np.argsort(np.argsort(values))
