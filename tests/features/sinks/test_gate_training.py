"""Tiny models trained on the same text, with and without a gate: with it less rests on the sink.

A token follows from the one before, but behind a trigger the token before the trigger comes again:
the head has something to do in few rows, and in the others its weight has to go somewhere (Guo et
al. 2024, arXiv:2410.13835). Qiu et al. 2025 (arXiv:2505.06708) found less of it with a gate in
trained language models; here, where sinks are weak, only the direction is asserted, of the mean
over three seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import attnviz as av
from attnviz.core.prompt import Prompt

WORDS, LENGTH, TRIGGERS, STEPS = 24, 32, 3, 300
SIZES: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
SIZES |= {"num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 128}
SIZES |= {"vocab_size": WORDS, "layer_types": ["full_attention"], "max_position_embeddings": 64}
SIZES |= {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": None}
SIZES |= {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}}
SIZES["rope_parameters"]["rope_theta"] = 10_000.0


def texts(count: int, table: Tensor, random: torch.Generator) -> Tensor:
    """[count, LENGTH] of words, the first of them 0."""
    words = torch.zeros(count, LENGTH, dtype=torch.long)
    words[:, 1] = torch.randint(1, WORDS, (count,), generator=random)
    for place in range(2, LENGTH):
        before = words[:, place - 1]
        following = torch.multinomial(table[before], 1, generator=random)[:, 0]
        triggered = (before >= 1) & (before <= TRIGGERS) & (place > 2)
        words[:, place] = torch.where(triggered, words[:, place - 2], following)
    return words


def trained(seed: int, *, gated: bool) -> tuple[Any, Tensor]:
    """A model after so many steps, and texts that it has not seen."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model("qwen3_5_text", **SIZES)
    model = transformers.AutoModelForCausalLM.from_config(config)
    random = torch.Generator().manual_seed(seed + 1)
    table = torch.distributions.Dirichlet(torch.full((WORDS,), 0.2)).sample((WORDS,))
    table[:, 0] = 0
    table = table / table.sum(1, keepdim=True)
    if not gated:
        weight, open_ = model.model.layers[0].self_attn.q_proj.weight, torch.ones(64, 1)
        open_[32:] = 0
        weight.data *= open_
        weight.register_hook(lambda slope: slope * open_)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    pool = texts(2048, table, random)
    for _ in range(STEPS):
        batch = pool[torch.randint(0, len(pool), (32,), generator=random)]
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), texts(16, table, random)


@pytest.mark.slow  # it trains six models
def test_with_a_gate_less_weight_rests_on_the_first_token() -> None:
    sinks: dict[bool, list[float]] = {True: [], False: []}
    for seed in (0, 1, 2):
        for gated in (True, False):
            model, unseen = trained(seed, gated=gated)
            source = av.load(model)
            prompts = [Prompt(ids=tuple(words)) for words in unseen.tolist()]
            maps = [av.capture(prompt, model=source).maps for prompt in prompts]
            sinks[gated].append(
                float(np.mean([layer[:, 1:, 0] for text in maps for layer in text.values()]))
            )
            (head,) = av.sinks(prompts, model=source).heads
            assert head.gates is not None
            opened = [head.gates.first.value, head.gates.other.value, head.gates.repeated.value]
            if gated:
                assert max(abs((value or 0.0) - 0.5) for value in opened) > 0.02
            else:
                assert opened == [0.5] * 3
    assert np.mean(sinks[True]) < np.mean(sinks[False]), sinks
