"""GPT-2s built by hand, of which every head is known: induction circuits among idle heads.

The residual stream is cut into parts: the token (one-hot), its position (one-hot), the token before
and the answer, one that nobody reads, and one between a head and the next. Norms are identities and
MLPs are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

WIDTH = 16
"""Ids, positions, and the width of every part, unless asked for otherwise."""
HEADS, LAYERS = 12, 2

PREVIOUS, INDUCTION, DUPLICATE = (0, 3), (1, 7), (1, 2)
"""Layer and number: the two that do it, and one that looks at repeated tokens for nothing."""

SHARP = 60.0

TOKEN, PLACE, BEFORE, ANSWER, UNREAD, MIDDLE = range(6)
"""Parts of the residual stream."""

Place = tuple[int, int]


class Wired(NamedTuple):
    """What a head does.

    Attributes:
        query: the part of the state that queries read; ``key`` that of keys.
        key: see ``query``.
        back: by how many places or tokens a key is before what it is matched with.
        read: the part that values read; ``written`` the part that they go into, ``gain`` times.
        written: see ``read``.
        gain: see ``read``.
    """

    query: int
    key: int
    back: int
    read: int
    written: int
    gain: float = 1.0


LOOKS_BACK = Wired(PLACE, PLACE, 1, TOKEN, BEFORE)


def inducing(gain: float = 1.0, written: int = ANSWER) -> Wired:
    """A head that finds what followed, and writes it."""
    return Wired(TOKEN, BEFORE, 0, TOKEN, written, gain)


def at_home(read: int, gain: float) -> Wired:
    """A head that stays where it is, and makes an answer of what it reads there."""
    return Wired(PLACE, PLACE, 0, read, ANSWER, gain)


CASES: dict[str, dict[Place, Wired]] = {
    "opposite inductions": {
        (0, 3): LOOKS_BACK, (1, 7): inducing(1.5), (1, 4): inducing(-0.5),
    },
    "late suppressor": {
        (0, 3): LOOKS_BACK, (1, 7): inducing(1.0), (2, 5): at_home(ANSWER, -1 / 3),
    },
    "twins": {(0, 3): LOOKS_BACK, (1, 7): inducing(0.5), (1, 8): inducing(0.5)},
    "five unequal": {
        (0, 3): LOOKS_BACK, (1, 1): inducing(0.4), (1, 4): inducing(0.25), (1, 6): inducing(0.15),
        (1, 7): inducing(0.12), (1, 9): inducing(0.08),
    },
    "chain of three": {
        (0, 3): LOOKS_BACK, (1, 7): inducing(written=MIDDLE), (2, 5): at_home(MIDDLE, 1.0),
    },
}  # fmt: skip
"""Heads of which each has a part in the task, all others idle: whoever finds fewer misses some."""


def planted(seed: int = 0, width: int = WIDTH) -> Any:
    """A GPT-2 that goes on with what followed before: the heads above, and 21 idle ones."""
    duplicate = Wired(TOKEN, TOKEN, 0, PLACE, UNREAD)
    wired = {PREVIOUS: LOOKS_BACK, INDUCTION: inducing(), DUPLICATE: duplicate}
    return wired_as(wired, LAYERS, seed, width)


def wired_as(heads: Mapping[Place, Wired], layers: int, seed: int = 0, width: int = WIDTH) -> Any:
    """A GPT-2 of some heads, and idle ones that look somewhere and write for nobody."""
    parts = [slice(width * n, width * (n + 1)) for n in range(6)]
    same = torch.eye(width)
    config = transformers.GPT2Config(
        vocab_size=width, n_positions=width, n_embd=HEADS * width, n_layer=layers,
        n_head=HEADS, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.wte.weight[:, parts[TOKEN]] = same
        model.transformer.wpe.weight[:, parts[PLACE]] = same
        model.lm_head.weight[:, parts[ANSWER]] = 10 * same
        for layer, block in enumerate(model.transformer.h):
            block.ln_1 = block.ln_2 = nn.Identity()
            for head in range(HEADS):
                wired = heads.get((layer, head))
                if wired is None:
                    some = torch.randn(width, width, generator=draw)
                    _attend(block, head, parts[TOKEN], parts[TOKEN], some / SHARP)
                    _write(block, head, parts[TOKEN], parts[UNREAD], 1.0)
                else:
                    match = same.roll(wired.back, 1)
                    _attend(block, head, parts[wired.query], parts[wired.key], match)
                    _write(block, head, parts[wired.read], parts[wired.written], wired.gain)
    model.transformer.ln_f = nn.Identity()
    return model


def _attend(block: Any, head: int, query: slice, key: slice, match: torch.Tensor) -> None:
    """Queries of one part meet keys of another where they match."""
    width = len(match)
    inner = HEADS * width
    mine = slice(head * width, (head + 1) * width)
    block.attn.c_attn.weight[query, mine] = SHARP * torch.eye(width)
    block.attn.c_attn.weight[key, inner + mine.start : inner + mine.stop] = match


def _write(block: Any, head: int, read: slice, written: slice, gain: float) -> None:
    """What is read at the keys goes into another part."""
    width = read.stop - read.start
    inner = HEADS * width
    mine = slice(head * width, (head + 1) * width)
    block.attn.c_attn.weight[read, 2 * inner + mine.start : 2 * inner + mine.stop] = torch.eye(
        width
    )
    block.attn.c_proj.weight[mine, written] = gain * torch.eye(width)
