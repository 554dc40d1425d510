"""Inputs that tell induction and duplicate-token heads from chance.

Random tokens, and then the same again: nothing but the repetition predicts the second half, and no
grammar, position or meaning explains where a head looks (Olsson et al. 2022, arXiv:2209.11895).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from attnviz.errors import UsageError


def probe_prompts(
    vocab: int | Sequence[int],
    *,
    lengths: Sequence[int],
    seed: int = 0,
    max_tokens: int | None = None,
    bos: int | None = None,
    avoid: Collection[int] = (),
) -> tuple[tuple[int, ...], ...]:
    """Repeated random tokens, one prompt for each length.

    Args:
        vocab: the ids to draw from, or how many there are (then 0 to ``vocab - 1``).
        lengths: tokens in each random half; every half is drawn afresh, without repeats as far as
            the vocabulary allows.
        seed: the same seed gives the same prompts on every machine.
        max_tokens: what the model can take; longer halves are shortened to fit.
        bos: an id to put in front, where the model expects one.
        avoid: ids never to draw, such as special tokens.

    Returns:
        One tuple of ids for each length that is left, shortest first: ``[bos] half half``.

    Raises:
        UsageError: no ids to draw from, or no room for three tokens twice.
    """
    ids = range(vocab) if isinstance(vocab, int) else vocab
    pool = [i for i in ids if i not in avoid and i != bos] if avoid or bos is not None else ids
    if len(pool) < 2:
        raise UsageError(
            f"a probe needs at least two different tokens, the vocabulary has {len(pool)}"
        )
    room = None if max_tokens is None else (max_tokens - (bos is not None)) // 2
    halves = sorted({length if room is None else min(length, room) for length in lengths})
    halves = [length for length in halves if length >= 3]
    if not halves:
        raise UsageError(
            f"a probe repeats at least 3 tokens; lengths {tuple(lengths)} in a model of "
            f"{max_tokens} tokens leave no room"
        )
    start = () if bos is None else (bos,)
    prompts = []
    for number, length in enumerate(halves):
        draw = random.Random(f"{seed}/{number}/{length}")
        half = draw.sample(pool, length) if length <= len(pool) else draw.choices(pool, k=length)
        prompts.append((*start, *half, *half))
    return tuple(prompts)
