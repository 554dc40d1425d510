"""Every head ablated, against the loop that people write; all gradients, against forwards.

A GPT-2 of 12 layers × 12 heads × 768 with random weights and a small vocabulary, one thread,
processor time; the two ways take turns in one process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

import attnviz as av
from attnviz.captures import trials
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.features.ablation.measure import gradients as slopes_of
from attnviz.interventions import metrics
from attnviz.interventions.sweep import ablations, sweep_trials
from attnviz.scoring.select import every_head
from benchmarks.table import Row, in_turn

LAYERS, HEADS, WIDTH, VOCABULARY = 12, 12, 768, 1000


def measure() -> list[Row]:
    """All rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with models() as (source, model):
            return [heads(source, model, 32, 1 / 2.8), heads(source, model, 128, 1 / 2.0),
                    gradients(source, 128), command(source, model, 32, 1),
                    command(source, model, 32, None)]  # fmt: skip
    finally:
        torch.set_num_threads(threads)


@contextmanager
def models() -> Iterator[tuple[Source, Any]]:
    """Make the same weights in attnviz and in transformers."""
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS,
                                     n_embd=WIDTH, bos_token_id=0, eos_token_id=0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        yield av.load(folder), model.transformer


def heads(source: Source, model: Any, length: int, target: float) -> Row:
    """All 144 heads alone, by the last hidden states."""
    (trial,) = trials.everywhere(0, source.prepare(Prompt(ids=ids(length))))
    groups = every_head(source.layout)
    ours: list[Tensor] = []
    theirs: list[Tensor] = []

    def swept() -> None:
        values = sweep_trials(source, [trial], ablations(source, groups, 1), metrics.HIDDEN)
        ours[:] = [torch.from_numpy(of_group) for (of_group,) in values]

    def looped() -> None:
        theirs[:] = loop(model, ids(length))

    turns = in_turn(swept, looped)
    worst = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    what, equal = f"every head alone, T = {length}", f"; equal within {worst:.0e}"
    return turns.row(what, "144 passes with a hook", target, equal)


def loop(model: Any, tokens: tuple[int, ...]) -> list[Tensor]:
    """Return a whole pass for each head, with a hook that zeroes its part before the projection."""
    inputs = torch.tensor([tokens])
    width = WIDTH // HEADS
    found = []
    with torch.no_grad():
        full = model(inputs).last_hidden_state[0].double()
        for layer in model.h:
            for head in range(HEADS):

                def close(_: Any, arguments: tuple[Tensor], n: int = head) -> tuple[Tensor]:
                    changed = arguments[0].clone()
                    changed[..., n * width : (n + 1) * width] = 0
                    return (changed,)

                hook = layer.attn.c_proj.register_forward_pre_hook(close)
                states = model(inputs).last_hidden_state[0].double()
                hook.remove()
                found.append(1 - torch.cosine_similarity(full, states, dim=-1))
    return found


def gradients(source: Source, length: int) -> Row:
    """Return the gradient of every gate, against plain forwards with logits."""
    (trial,) = trials.next_tokens(0, source.prepare(Prompt(ids=ids(length))))
    turns = in_turn(
        lambda: slopes_of(source, [trial], metrics.LOSS),
        lambda: source.forward([trial.inputs], request=ForwardRequest(logits=True)),
    )
    return turns.row(f"all gradients, T = {length}", "one forward", 4.0)


def command(source: Source, model: Any, length: int, draws: int | None) -> Row:
    """Means of 48 other texts, then all heads by the mean and by so many donors, as `ablate` is.

    Args:
        source: the model.
        model: the same in transformers.
        length: of every text.
        draws: None for as many as it takes by itself, eight.
    """
    others = [Prompt(ids=ids(length, number)) for number in range(1, 49)]
    turns = in_turn(
        lambda: av.ablate(Prompt(ids=ids(length)), model=source, reference=others, draws=draws),
        lambda: loop(model, ids(length)),
        1,
    )
    name = "" if draws is None else f" --draws {draws}"
    return turns.row(f"ablate TEXT{name}, T = {length}", "144 passes with a hook", 1.0)


def ids(length: int, text: int = 0) -> tuple[int, ...]:
    """Tokens without a pattern; other ones for every text."""
    return tuple((37 * n * n + 11 * n * (text + 1) + 3 * text) % VOCABULARY for n in range(length))
