"""What a worker does: one task of texts through the model, and what they add up to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Observer, Source
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.texts import InvalidRecord, Tokenized, batches
from attnviz.errors import InputError, Message, Setting, UsageError
from attnviz.features.profile.likeness import Comparing, sample_size
from attnviz.features.profile.parts import SampledText
from attnviz.features.profile.sampled.sample import ROWS, WHOLE, Threshold
from attnviz.features.profile.sampled.sums import TaskRows
from attnviz.features.profile.sampled.watch import no_effects
from attnviz.features.profile.tally import (
    LONGEST_TEXT,
    Examples,
    FirstTokenSinks,
    Passing,
    ShownText,
    Tally,
    Watching,
)
from attnviz.features.profile.tasks import SEGMENT, Piece, ProfileTask, mixed
from attnviz.models.limits import batch_factor
from attnviz.scoring.observe import ProgressObserver, ScoreObserver, Watch, observe
from attnviz.scoring.totals import Sums

LONGEST = 1024
"""Tokens of a window, also where a model could take more, unless another length is asked for."""
_WORDS = re.compile(r"\s*\S{1,40}")
"""A word with the space before it; what has no spaces is cut after 40 characters."""
_FULL = 0.95  # a window is long enough when it fills so much of its room
_TRIES = 8


def limit(source: Source, window: int | None = None) -> int:
    """Tokens of a window."""
    maximum = source.max_tokens
    if window is None:
        return min(maximum or LONGEST, LONGEST)
    if window < 1 or (maximum is not None and window > maximum):
        room = "1 token or more" if maximum is None else f"1 to {maximum:,} tokens"
        raise UsageError(
            "{} is no window of this model, which takes {}", Setting("window", window), room
        )
    return window


def windows(
    prompt: Prompt, source: Source, stride: int | None = None, window: int | None = None
) -> Iterator[Inputs]:
    """Cut a text as a model can take it; pairs, chats, pictures and sounds are never cut."""
    longest = limit(source, window)
    if prompt.image is not None or prompt.audio is not None or prompt.chat is not None:
        yield replace(source.prepare(prompt), texts=prompt.texts)
        return
    try:
        inputs = source.prepare(prompt)
    except InputError:
        if len(prompt.texts) > 1 or not _long(prompt, longest):
            raise
    else:
        if inputs.length <= longest or len(prompt.texts) > 1:
            yield replace(inputs, texts=prompt.texts)
            return
    yield from _cut(prompt, source, longest, stride)


def _long(prompt: Prompt, longest: int) -> bool:
    """Whether it may be its length that a model does not like: a token has a character at least."""
    return len(prompt.text or "") > longest // 4


def _cut(prompt: Prompt, source: Source, longest: int, stride: int | None) -> Iterator[Inputs]:
    """As few windows as words allow; each with its words as ``texts``."""
    text = prompt.text or ""
    spans = [match.span() for match in _WORDS.finditer(text)]

    def attempt(first: int, count: int) -> Inputs | None:
        words = text[spans[first][0] : spans[first + count - 1][1]].strip()
        try:
            inputs = source.prepare(prompt.cut_to(words))
        except InputError:
            if len(words) < 2:
                raise
            return None
        return replace(inputs, texts=(words,)) if inputs.length <= longest else None

    first, guess = 0, max(1, longest * 2 // 3)
    while first < len(spans):
        filled = _fill(partial(attempt, first), guess, len(spans) - first, longest)
        if filled is None:
            spans[first : first + 1] = _halves(spans[first], text, longest)
            continue
        count, inputs = filled
        yield inputs
        if first + count >= len(spans):
            return
        guess = count
        first += count if stride is None else max(1, min(count, round(count * stride / longest)))


def _halves(span: tuple[int, int], text: str, longest: int) -> list[tuple[int, int]]:
    """Return a word that no window holds, in two pieces: 40 characters can be 120 tokens."""
    start, end = span
    if end - start < 2:
        raise UsageError(
            "{} is too few for the tokens of {!r}; take a longer window",
            Setting("window", longest),
            text[start:end],
        )
    middle = (start + end) // 2
    return [(start, middle), (middle, end)]


def _fill(
    attempt: Callable[[int], Inputs | None], guess: int, available: int, longest: int
) -> tuple[int, Inputs] | None:
    """Count the words that fill a window; none where one word is too long; and the window."""
    low, best, high = 0, None, available + 1
    count = min(guess, available)
    for _ in range(_TRIES):
        inputs = attempt(count)
        if inputs is None:
            high = count
            count = max(low + 1, min(high - 1, int(count * 0.9)))
        else:
            low, best = count, inputs
            if inputs.length >= _FULL * longest or low + 1 >= high:
                break
            count = max(low + 1, min(high - 1, int(count * longest / inputs.length)))
        if low + 1 >= high:
            break
    while best is None and high > 1:  # words of very many tokens
        low = high // 2
        best, high = attempt(low), low
    return None if best is None else (low, best)


LARGEST_BATCH = 32
_BATCH_TOKENS = 4096  # tokens of a padded batch; a single text may have more
LONG_WINDOW = 2048
"""Tokens from which a single window takes so long that one wants to know how far it has come."""

Inside = Callable[[float], None]  # gets the share of a task that is done
_NAN = Message("the model gives NaN; use {dtype}", dtype="float32")


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """What a result depends on, beside the model and the texts."""

    special_tokens: bool = True  # whether the tokenizer adds its own
    stride: int | None = None  # see :func:`~attnviz.features.profile.work.windows`.
    # what is scored, a name of :data:`attnviz.core.quantities.QUANTITIES`.
    quantity: str = "weights"
    # tokens of a window, see :func:`~attnviz.features.profile.work.limit`.
    window: int | None = None
    # names of the heads that are looked at row by row, in the order of the layout
    select: tuple[str, ...] = ()

    @property
    def segment(self) -> int:
        """Characters of a text that a task holds: enough for some windows."""
        return max(SEGMENT, 8 * (self.window or 0))


@dataclass(frozen=True, eq=False, slots=True)
class Cluster:
    """Texts that are not independent."""

    name: str
    content: int  # a hash of their words; identical texts have the same
    a: NDArray[np.float64]  # float64 [H, n], their sums of scores; ``b`` int64, how many rows
    b: NDArray[np.int64]

    def __add__(self, other: Cluster) -> Cluster:
        """Add more of its texts."""
        content = (self.content + other.content) % (1 << 64)
        return Cluster(self.name, content, self.a + other.a, self.b + other.b)


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """What the texts of one task add up to."""

    tally: Tally  # everything but the sums of clusters
    clusters: tuple[Cluster, ...]  # in the order of the texts
    bad: tuple[InvalidRecord, ...]  # texts that could not be used


@dataclass(frozen=True, eq=False, slots=True)
class Window(Tokenized):
    """A part of a text as a model takes it; ``number`` counts the windows of a piece."""

    piece: Piece
    number: int

    @property
    def key(self) -> int:
        """A hash that tells this window from all others."""
        which = np.array([self.piece.part << 32 | self.number], np.uint64)
        return int(mixed(self.piece.key, which)[0])

    @property
    def sentence(self) -> Sentence | None:
        """What a treebank says of it; None where a sentence is cut."""
        sentence = self.text.sentence
        uncut = sentence is not None and self.inputs.texts == sentence.prompt.texts
        return sentence if uncut else None

    @property
    def alike(self) -> str:
        """What windows with the same words share."""
        return f"{self.piece.content:016x}/{self.number}"

    @property
    def begins(self) -> bool:
        """Whether it is the first of its text."""
        return self.piece.part == self.number == 0


class Worker:
    """Runs tasks through a model, one after the other."""

    def __init__(
        self,
        source: Source,
        settings: ProfileSettings,
        inside: Inside | None = None,
        *,
        seed: int = 0,
        effects: bool = True,
    ) -> None:
        self._source, self._settings, self._inside = source, settings, inside
        self._effects = effects and not no_effects(source)
        self._heads = tuple(source.layout.head(name) for name in settings.select)
        self._seed, self._rows, self._whole = seed, Threshold(ROWS), Threshold(WHOLE)
        self._smallest = Threshold(sample_size(source.layout))
        self._done, self._token = 0, 0.0  # tokens of a task; the share of one, where it is long

    def __call__(self, task: ProfileTask) -> Part:
        """Return what the texts of a task add up to."""
        bad: list[InvalidRecord] = list(task.bad)
        sums_at: dict[int, Sums] = {}
        tally = Tally(self._source.layout)
        row_by_row = (
            TaskRows(self._source, self._heads, self._seed, self._rows, self._whole, self._effects)
            if self._heads
            else None
        )
        examples: list[Examples] = []
        prepared = list(self._prepared(task, bad))
        order = {id(window): index for index, window in enumerate(prepared)}
        lengths = [window.inputs.length for window in prepared]
        self._done, is_long = 0, max(lengths, default=0) >= LONG_WINDOW
        self._token = 1 / sum(lengths) if is_long else 0.0
        factor = batch_factor(self._source.info.device)
        for batch in batches(
            prepared, attrgetter("length"), _BATCH_TOKENS * factor, window=len(prepared) + 1,
            largest=LARGEST_BATCH * factor,
        ):  # fmt: skip
            assert not isinstance(batch, InvalidRecord)
            group = [window for window in batch if isinstance(window, Window)]
            for window, sums in self._run(group, tally, examples, bad, row_by_row):
                sums_at[order[id(window)]] = sums
        tally.examples.merge(*examples)
        tally.examples.prune()
        tally.rows = None if row_by_row is None else row_by_row.finished()
        measured = [(prepared[index].piece, sums_at[index]) for index in sorted(sums_at)]
        tally.texts = len({piece.text.number for piece, _ in measured if piece.part == 0})
        return part_of(tally, measured, bad)

    def _prepared(self, task: ProfileTask, bad: list[InvalidRecord]) -> Iterator[Window]:
        """Yield the windows of every text, or why there are none."""
        stride = self._settings.stride
        for piece in task.pieces:
            special = self._settings.special_tokens
            # a profile is of whole texts: a part of one may lie outside of a window
            prompt = replace(piece.text.prompt, special_tokens=special, spans=None)
            try:
                cut = list(windows(prompt, self._source, stride, self._settings.window))
            except (InputError, UsageError) as error:
                bad.append(InvalidRecord(piece.text.number, piece.text.place, error.message))
                continue
            for number, inputs in enumerate(cut):
                yield Window(piece.text, inputs, piece, number)

    def _run(
        self,
        batch: list[Window],
        tally: Tally,
        examples: list[Examples],
        bad: list[InvalidRecord],
        rows: TaskRows | None,
    ) -> Iterator[tuple[Window, Sums]]:
        """One batch through the model."""
        source, inputs = self._source, [window.inputs for window in batch]
        watching = Watching(inputs, [window.key for window in batch], source.layout)
        if rows is not None:
            clusters = [(window.piece.cluster, window.alike) for window in batch]
            sentences = [window.sentence for window in batch]
            rows.begin(inputs, [window.key for window in batch], clusters, sentences)
        watch = watching.watch if rows is None else _both(watching.watch, rows.watch.watch)
        scores = ScoreObserver(inputs, source.layout, watch=watch)
        passing = Passing(inputs, source.layout)
        keys = {n: w.piece.key for n, w in enumerate(batch) if w.begins}
        may = self._smallest.may_have(np.array([*keys.values()], np.uint64))
        keys = {n: key for (n, key), keep in zip(keys.items(), may, strict=True) if keep}
        comparing = Comparing(inputs, keys, source.layout)
        sinks = FirstTokenSinks(inputs, source.layout)
        watching_all: list[Observer] = [scores, passing, comparing, sinks]
        if rows is not None:
            watching_all.insert(0, rows.watch)  # before its rows are scored
        report = self._inside
        if report is not None and self._token:
            start, size = self._done, sum(item.length for item in inputs)
            self._done += size
            watching_all.append(
                ProgressObserver(
                    inputs, source.layout, lambda part: report(self._token * (start + part * size))
                )
            )
        observe(source, inputs, *watching_all, terms=rows is not None)
        if rows is not None:
            rows.ran()
        for item, window in enumerate(batch):
            sums, passed, text = scores.sums(item), passing.passed(item), window.text
            if not all(np.isfinite(flow.keys).all() for flow in passed.values()):
                bad.append(InvalidRecord(text.number, text.place, _NAN))
                continue
            tally.add(window.inputs, sums, passed)
            tally.add_sinks(sinks.positions(item) if window.begins else None)
            words = window.inputs.texts[0][:LONGEST_TEXT]
            example = ShownText(text.number, text.place, words, window.number)
            if item in keys:
                tally.alike.append(comparing.divergences(item))
                self._smallest.add([np.array([keys[item]], np.uint64)])
            examples.append(watching.examples(item, window.inputs, example))
            if rows is not None:
                tokens = window.inputs.sides[self._heads[0].site.kind].queries.texts
                rows.add(item, SampledText(text.number, text.place, window.number, 0, tokens))
            yield window, sums


def _both(first: Watch, second: Watch) -> Watch:
    def watch(*scores: Any) -> None:
        first(*scores)
        second(*scores)

    return watch


def part_of(tally: Tally, measured: list[tuple[Piece, Sums]], bad: list[InvalidRecord]) -> Part:
    """Put the sums of each cluster together, in the order of the texts."""
    clusters = []
    for name, group in groupby(measured, key=lambda pair: pair[0].cluster):
        pieces, sums = zip(*group, strict=True)
        content = sum(piece.content for piece in dict.fromkeys(pieces)) % (1 << 64)
        a, b = sum(of_text.values for of_text in sums), sum(of_text.rows for of_text in sums)
        clusters.append(Cluster(name, content, a, b))
    return Part(tally, tuple(clusters), tuple(sorted(bad, key=attrgetter("number"))))
