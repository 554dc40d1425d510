"""GPT-2s built by hand, of which every head is known: an induction circuit among idle heads.

The residual stream is cut into parts: the token (one-hot), its position (one-hot), the token before
and the answer, and one that nobody reads. Norms are identities and MLPs are zero.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

WIDTH = 16
"""Ids, positions, and the width of every part, unless asked for otherwise."""
HEADS, LAYERS = 12, 2

PREVIOUS, INDUCTION, DUPLICATE = (0, 3), (1, 7), (1, 2)
"""Layer and number: the two that do it, and one that looks at repeated tokens for nothing."""

SHARP = 60.0


def planted(seed: int = 0, width: int = WIDTH) -> Any:
    """A GPT-2 that goes on with what followed before: the heads above, and 21 idle ones."""
    token, place, before, answer, unread = (slice(width * n, width * (n + 1)) for n in range(5))
    same = torch.eye(width)
    config = transformers.GPT2Config(
        vocab_size=width, n_positions=width, n_embd=HEADS * width, n_layer=LAYERS,
        n_head=HEADS, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.wte.weight[:, token] = same
        model.transformer.wpe.weight[:, place] = same
        model.lm_head.weight[:, answer] = 10 * same
        for layer, block in enumerate(model.transformer.h):
            block.ln_1 = block.ln_2 = nn.Identity()
            for head in range(HEADS):
                if (layer, head) == PREVIOUS:
                    _attend(block, head, place, place, same.roll(1, 1))
                    _write(block, head, token, before)
                elif (layer, head) == INDUCTION:
                    _attend(block, head, token, before, same)
                    _write(block, head, token, answer)
                elif (layer, head) == DUPLICATE:
                    _attend(block, head, token, token, same)
                    _write(block, head, place, unread)
                else:
                    some = torch.randn(width, width, generator=draw)
                    _attend(block, head, token, token, some / SHARP)
                    _write(block, head, token, unread)
    model.transformer.ln_f = nn.Identity()
    return model


def _attend(block: Any, head: int, query: slice, key: slice, match: torch.Tensor) -> None:
    """Queries of one part meet keys of another where they match."""
    width = len(match)
    inner = HEADS * width
    mine = slice(head * width, (head + 1) * width)
    block.attn.c_attn.weight[query, mine] = SHARP * torch.eye(width)
    block.attn.c_attn.weight[key, inner + mine.start : inner + mine.stop] = match


def _write(block: Any, head: int, read: slice, written: slice) -> None:
    """What is read at the keys goes into another part."""
    width = read.stop - read.start
    inner = HEADS * width
    mine = slice(head * width, (head + 1) * width)
    block.attn.c_attn.weight[read, 2 * inner + mine.start : 2 * inner + mine.stop] = torch.eye(
        width
    )
    block.attn.c_proj.weight[mine, written] = torch.eye(width)
