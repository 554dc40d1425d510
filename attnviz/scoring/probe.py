"""Inputs that tell induction and duplicate-token heads from chance.

Random tokens, and then the same again: nothing but the repetition predicts the second half, and no
grammar, position or meaning explains where a head looks (Olsson et al. 2022, arXiv:2209.11895).
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.prompt import Prompt
from attnviz.core.scores import HeadScores, PrefixMatching
from attnviz.core.source import Source
from attnviz.errors import ModelError, UsageError
from attnviz.scoring.observe import Recorder, observe, score_batch
from attnviz.statistics.clusters import half_width

LENGTHS = (16, 32, 48)
"""Tokens in each random half that :func:`run_probe` repeats."""

PROBES = 5
"""Draws of random tokens on which prefixes are matched."""

PREFIX_LENGTH, PREFIX_COPIES = 25, 4
"""Olsson et al.: 25 random tokens, four times over."""

MEASURED = ("duplicate", "duplicate_no_sink", "induction", "induction_no_sink")
"""The scores that repeated random tokens can tell from chance."""


def run_probe(source: Source) -> tuple[HeadScores, ...]:
    """Run a model on repeated random tokens and score its heads for what they do with repetition.

    Every prompt starts as a text of the model would; ids that its tokenizer adds are never drawn.
    """
    if source.vocab_size is None:
        raise UsageError("a probe needs a model with a vocabulary; see {model}", model=...)
    start, added = starts_with(source)
    prompts = probe_prompts(
        source.vocab_size, lengths=LENGTHS, max_tokens=source.max_tokens, bos=start, avoid=added
    )
    batch = [source.prepare(Prompt(ids=ids, special_tokens=False)) for ids in prompts]
    observer = score_batch(source, batch, MEASURED)
    return observer.result()


def match_prefixes(source: Source, *, seed: int = 0) -> PrefixMatching | None:
    """Run a model on random tokens that come four times, and match prefixes as Olsson et al. do."""
    if source.layout.kinds != ("decoder",) or source.vocab_size is None:
        return None
    bos, added = starts_with(source)
    prefix = () if bos is None else (bos,)
    size = len(prefix) + PREFIX_LENGTH * PREFIX_COPIES
    if size > (source.max_tokens or size) or source.vocab_size < PREFIX_LENGTH + 1 + len(added):
        return None
    rows = []
    for probe in range(PROBES):
        (twice,) = probe_prompts(
            source.vocab_size, lengths=[PREFIX_LENGTH], seed=seed + probe, bos=bos, avoid=added
        )
        ids = (*prefix, *twice[-PREFIX_LENGTH:] * PREFIX_COPIES)
        batch = [source.prepare(Prompt(ids=ids, special_tokens=False))]
        recorder = Recorder(batch)
        observe(source, batch, recorder)
        maps = recorder.maps().values()
        rows.append(np.concatenate([prefix_matching(w, start=len(prefix)) for w in maps]))
    scores = np.stack(rows)  # [probes, H]
    error = scores.std(0, ddof=1) / math.sqrt(PROBES)
    uniform = np.tril(np.ones((1, size, size)))
    uniform /= uniform.sum(-1, keepdims=True)
    return PrefixMatching(
        tuple(scores.mean(0).tolist()),
        tuple((half_width(PROBES - 1) * error).tolist()),
        float(prefix_matching(uniform, start=len(prefix))[0]),
        PROBES,
        PREFIX_LENGTH,
        PREFIX_COPIES,
    )


def prefix_matching(
    weights: NDArray[np.floating[Any]],
    *,
    length: int = PREFIX_LENGTH,
    copies: int = PREFIX_COPIES,
    start: int = 0,
) -> NDArray[np.float64]:
    """Prefix matching score (Olsson et al. 2022, arXiv:2209.11895, "Head Activation Evaluators").

    The mean of all entries of the map that go from a token to one that followed the same token in
    an earlier copy. With four copies a perfect head gets 0.5: a row has only 1 to share among up
    to three such entries.

    ``weights`` [H, T, T] on random tokens, none twice, repeated: T = start + length · copies;
    returns float64 [H].
    """
    pairs = [
        (i, i - copy * length + 1)
        for i in range(start + length, start + length * copies)
        for copy in range(1, (i - start) // length + 1)
    ]
    rows, keys = np.array(pairs).T
    return weights[:, rows, keys].mean(1, dtype=np.float64)


def probe_prompts(
    vocab: int | Sequence[int],
    *,
    lengths: Sequence[int],
    seed: int = 0,
    max_tokens: int | None = None,
    bos: int | None = None,
    avoid: Collection[int] = (),
) -> tuple[tuple[int, ...], ...]:
    """Repeat random tokens, ``[bos] half half`` for each length that fits, the shortest first."""
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


def starts_with(source: Source) -> tuple[int | None, frozenset[int]]:
    """Get the id that the tokenizer puts before a text, if any, and all ids that it adds to one."""
    try:
        sides = source.prepare(Prompt("a")).sides
    except ModelError:  # no tokenizer: nothing is added
        return None, frozenset()
    tokens = next(iter(sides.values())).keys
    added = frozenset(i for i, special in zip(tokens.ids, tokens.special, strict=True) if special)
    return (tokens.ids[0] if tokens.special[0] else None), added
