"""What later sentences need of one: attention to it is suppressed, or it is written anew.

All that follows a sentence loses its keys, in all heads and layers, by -inf before softmax
(attention knockout). What stands before its end is as it was: where the model can go on behind keys
and values that were kept, it does not run again.

To write it anew, the model goes on from before the sentence, and from behind it, N times each; what
it writes takes the place of all that stood there up to the answer, and the trace's own answer is
put behind it. The sentence counts for as much as the answer is likelier, in the mean, where it was
kept. This is resampling importance (Bogdan et al. 2025, arXiv:2506.19143) with the probability of
the answer in place of counts of answers drawn: it needs no rule to read an answer off a text, and
fewer draws.

Notation in shapes: T tokens, V vocabulary, n sentences, N continuations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, takewhile

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, doubles, on_numpy
from attnviz.core.heads import Site
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.source import Cut, ForwardRequest, Output, Source
from attnviz.core.spans import Range
from attnviz.core.tokens import Tokens
from attnviz.features.thoughts.result import Continuation, Resampled, Sentence
from attnviz.features.thoughts.sentences import TAGS
from attnviz.interventions.metrics import values_of
from attnviz.interventions.sweep import TOKENS, Intervention, full_logits, item, sweep
from attnviz.models.cache import Cache, as_records
from attnviz.statistics.clusters import LEAST, LEVEL, half_widths

FLOOR = 1e-9  # KL below this is no more than rounding, and counts as this
_AT_ONCE = 1 << 22  # logits that are in float64 at a time


def suppressed(
    source: Source,
    inputs: Inputs,
    sentences: Sequence[Range],
    *,
    tokens: int | None = None,
    on_cuts: Callable[[int], None] = lambda done: None,
) -> Floats:
    """[n, n], mean log KL on the sentence of the row without attention to that of the column."""
    request = ForwardRequest(hidden=False, logits=True, keep=source.continues)
    full = source.forward([inputs], request=request)
    logits, done = full.logits, 0
    assert logits is not None

    def moved(changed: Output, number: int, skipped: int) -> list[float]:
        """Of every later sentence."""
        assert changed.logits is not None
        start = sentences[number + 1][0]
        far = log_kl(logits[0, start:], changed.logits[0, start - skipped :])
        return [far[begin - start : end - start].mean() for begin, end in sentences[number + 1 :]]

    def tell(count: int) -> None:
        nonlocal done
        done += count
        on_cuts(done)

    cuts = [
        Intervention(None, partial(_without, source, span, inputs.length), span[1])
        for span in sentences[:-1]
    ]
    columns = sweep(
        full_logits(source), [inputs], cuts,
        lambda changed, numbers, skipped: [
            moved(item(changed, n), number, skipped) for n, number in enumerate(numbers)
        ],
        full, tokens=tokens or TOKENS, width=logits.shape[-1], on_progress=tell,
    )  # fmt: skip
    effects = np.full((len(sentences), len(sentences)), np.nan)
    for number, column in enumerate(columns):
        effects[number + 1 :, number] = column
    return effects


def _without(source: Source, sentence: Range, length: int) -> ForwardRequest:
    """Suppress attention to a sentence for all that follows, in all heads."""
    rows, keys = (np.zeros((1, length), np.bool_) for _ in range(2))
    rows[:, sentence[1] :] = keys[:, slice(*sentence)] = True
    cuts: dict[Site, Cut] = {}
    for site in source.layout.sites:
        heads = np.ones((1, source.layout.heads[site.kind][site.layer]), np.bool_)
        cuts[site] = Cut(arrays.array(heads), arrays.array(rows), arrays.array(keys))
    return ForwardRequest(cuts=cuts)


def log_kl(full: Array, changed: Array) -> Floats:
    """[T], log KL(full ‖ changed) of predictions, of logits [T, V]; natural logarithms of nats."""
    rows = max(1, _AT_ONCE // full.shape[1])
    parts = [
        arrays.to_numpy(values_of("kl", changed[n : n + rows], full=full[n : n + rows]))
        for n in range(0, len(full), rows)
    ]
    return np.log(np.maximum(np.concatenate(parts), FLOOR))


_ENDS = (".", "!", "?", "…", "。", "！", "？", "\n")
_BEHIND = " \"'”’»)]*_"
_CLOSING = tuple(closing for _, closing in TAGS)


def resampled(
    source: Source,
    inputs: Inputs,
    sentences: Sequence[Sentence],
    draws: int,
    *,
    generation: Generation | None,
    seed: Sequence[int],
    on_sentence: Callable[[int, int], None] = lambda done, count: None,
) -> tuple[Resampled, ...]:
    """Every sentence before the answer, resampled.

    ``source``: a causal model that gives logits.
    """
    tokens = inputs.sides["decoder"].queries
    count = answer_at(sentences)
    cache, (pack, unpack) = Cache(source), as_records(tuple[Continuation, ...])
    temperature, top_p = 1.0, None
    if generation is not None and not generation.greedy:
        temperature, top_p = generation.temperature or 1.0, generation.top_p
    rows: list[tuple[Continuation, ...]] = []
    for number in range(count):
        on_sentence(number, count)
        about = (tokens, sentences, number, draws, Generation(1, temperature, top_p), seed)
        make = partial(_continuations, source)
        rows.append(cache.recall("a sentence of a trace written anew", about, make, pack, unpack))
    on_sentence(count, count)
    ids, stop = list(tokens.ids), sentences[count - 1].stop
    original = (Continuation(_log_p(source, ids[:stop], ids[stop:], _answer(sentences)), False),)
    return _judged([*rows, original])


def answer_at(sentences: Sequence[Sentence]) -> int:
    """Return the number of the first sentence of the answer: behind the thoughts, else the last."""
    parts = [sentence.part for sentence in sentences]
    first = parts.index("answer") if "answer" in parts else 0
    return first or len(sentences) - 1


def _answer(sentences: Sequence[Sentence]) -> tuple[int, int]:
    """Where the answer stands behind the last sentence before it, in tokens."""
    first = answer_at(sentences)
    begin = sentences[first - 1].stop
    return sentences[first].start - begin, sentences[-1].stop - begin


def _continuations(
    source: Source,
    tokens: Tokens,
    sentences: Sequence[Sentence],
    number: int,
    draws: int,
    sampling: Generation,
    seed: Sequence[int],
) -> tuple[Continuation, ...]:
    """Return the N that begin in place of a sentence; none where nothing stands before it."""
    start, stop = sentences[number].start, sentences[number].stop
    end = sentences[answer_at(sentences) - 1].stop
    ids = list(tokens.ids)
    if not start:
        return ()
    continuations = []
    for draw in range(draws):
        (state,) = np.random.SeedSequence([*seed, number, draw]).generate_state(1)
        generation = Generation(end - start, sampling.temperature, sampling.top_p, int(state))
        new_ids = _written(source, ids[:start], generation)
        log_p = _log_p(source, ids[:start] + new_ids, ids[end:], _answer(sentences))
        continuations.append(Continuation(log_p, new_ids[: stop - start] == ids[start:stop]))
    return tuple(continuations)


def _written(source: Source, ids: Sequence[int], generation: Generation) -> list[int]:
    """Get what the model writes behind a text: to the end of its thoughts, in whole sentences."""
    prompt = Prompt(ids=tuple(ids), special_tokens=False, generate=generation)
    tokens = source.prepare(prompt).sides["decoder"].queries
    plain = takewhile(lambda n: not tokens.special[n], range(len(ids), len(tokens)))
    texts = [tokens.texts[n] for n in plain]
    return list(tokens.ids[len(ids) : len(ids) + whole(texts)])


def whole(texts: Sequence[str]) -> int:
    """How many of some tokens are whole sentences before a closing think tag.

    All that stand before it, where no sentence ends there.
    """
    text = "".join(texts)
    stop = min((index for tag in _CLOSING if (index := text.find(tag)) >= 0), default=len(text))
    inside = [n for n, end in enumerate(accumulate(map(len, texts)), 1) if end <= stop]
    ended = [n for n in inside if texts[n - 1].rstrip(_BEHIND).endswith(_ENDS)]
    return max(ended or inside, default=0)


def _log_p(source: Source, context: list[int], later: list[int], answer: tuple[int, int]) -> float:
    """Return the log probability of an answer, natural logarithm."""
    ids = [*context, *later[: answer[1]]]
    inputs = source.prepare(Prompt(ids=tuple(ids), special_tokens=False, max_tokens=len(ids)))
    logits = source.forward([inputs], request=ForwardRequest(hidden=False, logits=True)).logits
    assert logits is not None
    start = len(context) + answer[0]
    predictions = on_numpy.log_softmax(doubles(logits[0, start - 1 : len(ids) - 1]))
    return float(predictions[np.arange(len(ids) - start), ids[start:]].sum())


def _judged(rows: Sequence[tuple[Continuation, ...]]) -> tuple[Resampled, ...]:
    """Each row against the next, with intervals that hold together (Welch 1947; Bonferroni)."""
    values = [np.array([continuation.log_p for continuation in row]) for row in rows]
    effects = []
    level = 1 - (1 - LEVEL) / (len(rows) - 1)
    for row, with_it, next_one in zip(rows[:-1], values[:-1], values[1:], strict=True):
        effect = float(next_one.mean() - with_it.mean()) if len(with_it) else None
        half = _half(with_it, next_one, level) if len(with_it) >= LEAST else float("nan")
        low, high = (None, None)
        if effect is not None and not np.isnan(half):
            low, high = effect - half, effect + half
        effects.append(Resampled(row, effect, low, high))
    return tuple(effects)


def _half(a: Floats, b: Floats, level: float) -> float:
    """Half the width of the interval of a difference of means."""
    parts = [(x.var(ddof=1) / len(x), len(x) - 1) for x in (a, b) if len(x) > 1]
    variance = sum(part for part, _ in parts)
    if not variance:
        return float("nan")
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return float(half_widths(freedom, level) * variance**0.5)
