"""The sentences of a trace: think tags, a plain rule for where one ends, or spans of one's own.

A sentence ends behind ``.``, ``!`` or ``?`` and closing quotes or brackets, if white space follows
them (of other scripts also where none does), and at the end of a line. Not behind a single letter,
a number that begins a line, or one of a few abbreviations; and what has no letter or digit belongs
to the sentence before it.

Sentence by sentence: mean weights, vertical scores and their kurtosis (arXiv:2506.19143).

And what can be said of every head over traces: its kurtosis, its control, and how sure that is.

Notation in shapes: H heads of a layer, N heads of the model, n sentences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, to_numpy
from attnviz.core.heads import Layout, Site
from attnviz.core.source import Rows
from attnviz.core.spans import Range, Span
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.features.thoughts.result import Part, ReceiverHead, Sentence
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import medians

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
"""What models write around their thoughts."""
_END = re.compile(r"[.!?…]+[\"'”’»)\]*_]*(?=\s)|[。！？]+[」』”’）]*|\n+")
_SHORT = re.compile(
    r"(?:^|[\s(\"'“‘])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|Prof|vs|etc|cf|e\.g|i\.e|Fig|Eq|No)\.$"
)
_NUMBERED = re.compile(r"^\W*\d+[.)]$")
_SHOWN = 300  # characters of a sentence that are kept


def split(tokens: Tokens, names: Collection[str] = (), first: int = 0) -> tuple[Sentence, ...]:
    """Return the sentences of a trace."""
    text, offsets = _text(tokens)
    thought, answer, tagged = _parts(text, offsets[first][0] if first < len(tokens) else 0)

    def part(character: int) -> Part:
        if not tagged:
            return "text"
        return "thought" if thought[0] <= character < thought[1] else "answer"

    spans = [span for span in tokens.spans if span.name in names]
    if spans:
        ranges = _spanned(spans)
    else:
        pieces = [piece for stretch in (thought, answer) for piece in _pieces(text, stretch)]
        ranges = [("", *run) for run in _runs(tokens, offsets, pieces, first)]
    sentences = tuple(
        Sentence(
            name, tokens.running(range(start, stop)).strip()[:_SHOWN], start, stop,
            part(offsets[start][1] - 1),
        )
        for name, start, stop in ranges
    )  # fmt: skip
    if len(sentences) < 2:
        count = "1 sentence" if sentences else "no sentence"
        raise InputError(
            "the trace has {}, and nothing later could read it; give one of two or more, or name "
            "its parts with {span}",
            count,
            span=...,
        )
    return sentences


def _text(tokens: Tokens) -> tuple[str, list[Range]]:
    """Return the text that tokens spell, and where each stands in it."""
    text, offsets = "", []
    for token in tokens.texts:
        offsets.append((len(text), len(text) + len(token)))
        text += token
    return text, offsets


def _parts(text: str, first: int) -> tuple[Range, Range, bool]:
    """Where thoughts and an answer stand in a text, and whether tags say so."""
    for opening, closing in TAGS:
        start, stop = text.find(opening), text.find(closing)
        tagged = start >= 0 and (stop < 0 or start < stop)
        if not tagged and stop < first:
            continue
        inside = start + len(opening) if tagged else first
        if stop < 0:
            return (inside, len(text)), (len(text), len(text)), True
        return (inside, stop), (stop + len(closing), len(text)), True
    return (first, len(text)), (len(text), len(text)), False


def _pieces(text: str, stretch: Range) -> list[Range]:
    """Where the sentences of a part stand in a text."""
    start, stop = stretch
    pieces: list[Range] = []
    for match in _END.finditer(text, start, stop):
        if not match[0].isspace() and _goes_on(text[start : match.end()].lstrip()):
            continue
        pieces.append((start, match.end()))
        start = match.end()
    pieces.append((start, stop))
    merged: list[Range] = []
    for a, b in pieces:
        if any(map(str.isalnum, text[a:b])):
            merged.append((a, b))
        elif merged and text[a:b].strip():
            merged[-1] = (merged[-1][0], b)
    return merged


def _goes_on(sentence: str) -> bool:
    """Whether the stop at the end of these characters ends no sentence."""
    bare = sentence.rstrip("\"'”’»)]*_")
    return bool(_SHORT.search(bare) or _NUMBERED.match(sentence))


def _runs(
    tokens: Tokens, offsets: Sequence[Range], pieces: Sequence[Range], first: int
) -> list[Range]:
    """Give the tokens of each piece: those whose first character that is not white space is in it.

    Tokens of nothing but white space go with the sentence before them.
    """
    runs: list[list[int]] = [[] for _ in pieces]
    current = -1
    for place in range(first, len(tokens)):
        text = tokens.texts[place]
        start = offsets[place][0] + len(text) - len(text.lstrip())
        if not text.strip():
            if current >= 0:
                runs[current].append(place)
            continue
        inside = [n for n, (a, b) in enumerate(pieces) if a <= start < b]
        current = inside[0] if inside and not tokens.special[place] else -1
        if current >= 0:
            runs[current].append(place)
    return [(run[0], run[-1] + 1) for run in runs if run]


def _spanned(spans: Sequence[Span]) -> list[tuple[str, int, int]]:
    """Spans as sentences, in the order in which they stand."""
    for span in spans:
        if len(span.ranges) > 1:
            raise InputError(
                f"span {span.name!r} is in {len(span.ranges)} pieces; a sentence of a trace is one"
            )
    ordered = sorted(spans, key=lambda span: span.ranges[0])
    for before, after in pairwise(ordered):
        if before.ranges[0][1] > after.ranges[0][0]:
            raise InputError(
                f"spans {before.name!r} and {after.name!r} overlap; sentences of a trace stand "
                "one after the other"
            )
    return [(span.name, *span.ranges[0]) for span in ordered]


SAME = 1e-12  # vertical scores that differ by less than this share of the largest are the same
LEAST = 4  # from fewer vertical scores there is no kurtosis: of two it is -2 whatever they are


class SentenceObserver:
    """An observer of the weights from sentence to sentence, of one text."""

    def __init__(self, sentences: Sequence[Range], length: int) -> None:
        self._members = np.zeros((length, len(sentences)))
        for number, (start, stop) in enumerate(sentences):
            self._members[start:stop, number] = 1.0
        self._sums: dict[Site, Array] = {}

    def observe(self, rows: Rows) -> None:
        """Add up a block."""
        weights = arrays.exact(rows.weights[0])
        count, width = weights.shape[1:]
        spans = slice(rows.start, rows.start + count), slice(rows.key_start, rows.key_start + width)
        queries, keys = (
            arrays.converted(arrays.array(self._members[span]), weights) for span in spans
        )
        sums = queries.T @ (weights @ keys)  # [H, n, n]
        total = self._sums.get(rows.site)
        self._sums[rows.site] = sums if total is None else total + sums

    def means(self) -> Floats:
        """[N, n, n], mean weight from the tokens of one sentence (row) to those of another."""
        sizes = self._members.sum(0)
        sums = np.concatenate([to_numpy(self._sums[site]) for site in sorted(self._sums)])
        return sums / (sizes[:, None] * sizes)


def vertical_scores(matrices: Floats, apart: int) -> Floats:
    """[..., n], the mean over sentences a ≥ b + ``apart`` of A[a, b]; NaN where there is none."""
    count = matrices.shape[-1]
    scores = np.full(matrices.shape[:-1], np.nan)
    for sentence in range(max(count - apart, 0)):
        scores[..., sentence] = matrices[..., sentence + apart :, sentence].mean(-1)
    return scores


def kurtosis(scores: Floats) -> Floats:
    """Take the excess kurtosis m₄ / m₂² - 3 of scores [..., n]; NaN from fewer than LEAST."""
    present = ~np.isnan(scores)
    count = present.sum(-1)
    values = np.where(present, scores, 0.0)
    size = np.maximum(count, 1)[..., None]
    centred = np.where(present, values - values.sum(-1, keepdims=True) / size, 0.0)
    second, fourth = ((centred**power).sum(-1) / size[..., 0] for power in (2, 4))
    differ = np.sqrt(second) > SAME * np.abs(values).max(-1)
    fine = differ & (count >= LEAST)
    return np.where(fine, fourth / np.where(fine, second, 1.0) ** 2 - 3, np.nan)


HALVES = 200  # random halves of the traces that reliability is a mean over


def judged(
    layout: Layout, tails: Floats, controls: Floats, names: Sequence[str]
) -> tuple[ReceiverHead, ...]:
    """Judge all heads together, by kurtoses ``tails`` and ``controls`` [traces, N] with NaN."""
    excess = _distinct(tails - controls, names)
    means, random = _means(_distinct(tails, names)), _means(_distinct(controls, names))
    typical = medians(excess)
    low, high = typical.joint_low, typical.joint_high
    return tuple(
        ReceiverHead(
            head,
            none_if_nan(means[n]),
            none_if_nan(random[n]),
            none_if_nan(typical.center[n]),
            none_if_nan(low[n]),
            none_if_nan(high[n]),
            None if math.isnan(low[n]) else bool(low[n] > 0),
        )
        for n, head in enumerate(layout)
    )


def reliability(tails: Floats, names: Sequence[str], seed: int) -> float | None:
    """Take kurtoses' split-half reliability: their mean correlation over heads."""
    distinct = _distinct(tails, names)
    distinct = distinct[:, ~np.isnan(distinct).any(0)]
    count = len(distinct)
    if count < 2 or distinct.shape[1] < 2:
        return None
    draw = np.random.default_rng([seed, count])
    correlations = []
    for _ in range(HALVES):
        order = draw.permutation(count)
        first, second = distinct[order[: count // 2]].mean(0), distinct[order[count // 2 :]].mean(0)
        if first.std() > 0 and second.std() > 0:
            correlations.append(float(np.corrcoef(first, second)[0, 1]))
    return sum(correlations) / len(correlations) if correlations else None


def _distinct(values: Floats, names: Sequence[str]) -> Floats:
    """[traces, N] of the traces that differ."""
    sums, rows = merge_copies(names, values, np.ones(len(values), np.int64))
    return sums / rows[:, None]


def _means(values: Floats) -> Floats:
    """Means over the traces that have a number; NaN where none has."""
    present = ~np.isnan(values)
    sums = np.where(present, values, 0.0).sum(0)
    return sums / np.where(present.any(0), present.sum(0), np.nan)
