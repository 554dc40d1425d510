"""GPT-2s built by hand, of which every head is known: an induction circuit among idle heads.

The residual stream is cut into parts: the token (one-hot), its position (one-hot), the token before
and the answer, and one that nobody reads. Norms are identities and MLPs are zero.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

VOCABULARY, POSITIONS, WIDTH = 16, 16, 16
HEADS, LAYERS = 12, 2
TOKEN, PLACE, BEFORE, ANSWER, UNREAD = (slice(16 * n, 16 * (n + 1)) for n in range(5))

PREVIOUS, INDUCTION, DUPLICATE = (0, 3), (1, 7), (1, 2)
"""Layer and number: the two that do it, and one that looks at repeated tokens for nothing."""

SHARP = 60.0


def planted(seed: int = 0) -> Any:
    """A GPT-2 that goes on with what followed before: the heads above, and 21 idle ones."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=HEADS * WIDTH, n_layer=LAYERS,
        n_head=HEADS, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.wte.weight[:, TOKEN] = torch.eye(VOCABULARY)
        model.transformer.wpe.weight[:, PLACE] = torch.eye(POSITIONS)
        model.lm_head.weight[:, ANSWER] = 10 * torch.eye(VOCABULARY)
        for layer, block in enumerate(model.transformer.h):
            block.ln_1 = block.ln_2 = nn.Identity()
            for head in range(HEADS):
                if (layer, head) == PREVIOUS:
                    _attend(block, head, PLACE, PLACE, torch.eye(16).roll(1, 1))
                    _write(block, head, TOKEN, BEFORE)
                elif (layer, head) == INDUCTION:
                    _attend(block, head, TOKEN, BEFORE, torch.eye(16))
                    _write(block, head, TOKEN, ANSWER)
                elif (layer, head) == DUPLICATE:
                    _attend(block, head, TOKEN, TOKEN, torch.eye(16))
                    _write(block, head, PLACE, UNREAD)
                else:
                    some = torch.randn(16, 16, generator=draw)
                    _attend(block, head, TOKEN, TOKEN, some / SHARP)
                    _write(block, head, TOKEN, UNREAD)
    model.transformer.ln_f = nn.Identity()
    return model


def _attend(block: Any, head: int, query: slice, key: slice, match: torch.Tensor) -> None:
    """Queries of one part meet keys of another where they match."""
    inner = HEADS * WIDTH
    mine = slice(head * WIDTH, (head + 1) * WIDTH)
    block.attn.c_attn.weight[query, mine] = SHARP * torch.eye(16)
    block.attn.c_attn.weight[key, inner + mine.start : inner + mine.stop] = match


def _write(block: Any, head: int, read: slice, written: slice) -> None:
    """What is read at the keys goes into another part."""
    inner = HEADS * WIDTH
    mine = slice(head * WIDTH, (head + 1) * WIDTH)
    block.attn.c_attn.weight[read, 2 * inner + mine.start : 2 * inner + mine.stop] = torch.eye(16)
    block.attn.c_proj.weight[mine, written] = torch.eye(16)
