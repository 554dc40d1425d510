"""Patching against the loop that people write; all edges by EAP-IG against forward and backward.

A GPT-2 of 12 layers × 12 heads × 768 with random weights and a small vocabulary, one thread,
processor time; the two ways take turns in one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import attnviz as av
from attnviz.core.source import Source
from attnviz.features.patch import estimate, sweep
from attnviz.features.patch.pairs import Pair, prepare
from attnviz.features.patch.paths import KEPT, every_path
from attnviz.features.patch.runs import PatchBench, RunPair, both, metric_of
from attnviz.features.patch.sweep import Patching, key_heads, targets
from benchmarks.ablation import HEADS, LAYERS, VOCABULARY, WIDTH, ids
from benchmarks.table import Row, in_turn

STEPS = 5


def measure() -> list[Row]:
    """All rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with models() as (source, model):
            return [
                heads(source, model, 32, 1 / 2.8), heads(source, model, 128, 1 / 2.0),
                grid(source, model, 32), gradients(source, model, 64),
            ]  # fmt: skip
    finally:
        torch.set_num_threads(threads)


@contextmanager
def models() -> Iterator[tuple[Source, Any]]:
    """Make the same weights in attnviz and in transformers, LM head and all."""
    import tempfile

    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS,
                                     n_embd=WIDTH, bos_token_id=0, eos_token_id=0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval().requires_grad_(False)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        yield av.load(folder), model


def batch_of(source: Source, length: int) -> tuple[PatchBench, RunPair]:
    """One pair, both of its runs and what patches take from them."""
    clean = ids(length)
    changed = (*clean[: length // 2], 7, *clean[length // 2 + 1 :])
    ready = prepare(source, [Pair(clean, changed, 5, 6)])
    bench = PatchBench(source, metric_of(None, ready))
    return bench, both(bench, ready, KEPT)


def heads(source: Source, model: Any, length: int, target: float) -> Row:
    """All 144 heads, clean outputs into the corrupted run."""
    bench, runs = batch_of(source, length)
    every = [Patching(one) for one in targets(source, "z", None, shared(source, runs))]
    places = [(trial.target.heads[0].layer, trial.target.heads[0].index, None) for trial in every]
    return compared(f"every head, z, T = {length}", bench, runs, every, model, places, target)


def grid(source: Source, model: Any, length: int) -> Row:
    """One head of each layer at every position: a twelfth of the whole grid."""
    bench, runs = batch_of(source, length)
    some = targets(source, "z", "*.3", shared(source, runs))
    every = [Patching(one, place) for one in some for place in range(length)]
    places = [
        (trial.target.heads[0].layer, trial.target.heads[0].index, trial.position)
        for trial in every
    ]
    what = f"12 heads × {length} positions"
    return compared(what, bench, runs, every, model, places, 1 / 2.5)


def shared(source: Source, runs: RunPair) -> Any:
    """Key heads by layer."""
    return key_heads(source, runs.pairs[0])


def compared(
    what: str,
    bench: PatchBench,
    runs: RunPair,
    every: Sequence[Patching],
    model: Any,
    places: Sequence[tuple[int, int, int | None]],
    target: float,
) -> Row:
    """One sweep against one loop."""
    ours: list[NDArray[np.float64]] = []
    theirs: list[float] = []
    turns = in_turn(
        lambda: ours.append(sweep.sweep(bench, runs, every, "denoise")[:, 0]),
        lambda: theirs.__setitem__(slice(None), loop(model, runs, places)),
    )
    worst = float(np.abs(ours[-1] - np.array(theirs)).max())
    equal = f"; equal within {worst:.0e}"
    return turns.row(what, f"{len(every)} passes with a hook", target, equal)


def loop(model: Any, runs: RunPair, places: Sequence[tuple[int, int, int | None]]) -> list[float]:
    """Run a whole pass a patch, with a hook that swaps a head's part before the projection."""
    (ready,) = runs.pairs
    clean, corrupted = (torch.tensor([ids]) for ids in (ready.pair.clean, ready.pair.corrupted))
    width, kept, found = WIDTH // HEADS, list[Tensor](), []
    blocks = model.transformer.h
    with torch.no_grad():
        hooks = [
            block.attn.c_proj.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
            for block in blocks
        ]
        model(clean)
        for hook in hooks:
            hook.remove()
        for layer, head, place in places:

            def swap(
                _: Any, args: tuple[Tensor], layer: int = layer, head: int = head,
                place: int | None = place,
            ) -> tuple[Tensor]:  # fmt: skip
                changed = args[0].clone()
                where = slice(None) if place is None else slice(place, place + 1)
                columns = slice(head * width, (head + 1) * width)
                changed[:, where, columns] = kept[layer][:, where, columns]
                return (changed,)

            hook = blocks[layer].attn.c_proj.register_forward_pre_hook(swap)
            logits = model(corrupted).logits[0, -1]
            hook.remove()
            found.append(float(logits[ready.answer] - logits[ready.against or 0]))
    return found


def gradients(source: Source, model: Any, length: int) -> Row:
    """Scores of all edges, against one forward and backward of transformers' model."""
    bench, runs = batch_of(source, length)
    every = every_path(source.layout, shared(source, runs))
    ready = runs.pairs[0]

    def once() -> None:
        embedded = model.transformer.wte(torch.tensor([ready.pair.corrupted])).requires_grad_()
        logits = model(inputs_embeds=embedded).logits[0, -1]
        (logits[ready.answer] - logits[ready.against or 0]).backward()

    turns = in_turn(lambda: estimate.scores(bench, runs, every, STEPS), once)
    what = f"EAP-IG of {len(every):,} edges, {STEPS} steps, T = {length}"
    return turns.row(what, "forward + backward", 8.0)
