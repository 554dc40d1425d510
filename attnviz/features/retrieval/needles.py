"""Needles in long prompts: of random words, or from a .jsonl file.

A prompt is a long text, the needle somewhere in it, and a question at its end. Needles of words
that the tokenizer keeps whole stand among other such words: a cue and an answer, and the question
is the cue again, so that only what was read can answer it. A line of a file is an object:

| field | |
|---|---|
| ``needle`` | the text that is put into the long one |
| ``question`` | what stands after it, up to where the model goes on |
| ``answer`` | a part of the needle, word for word; by default all of it |
| ``haystack`` | the long text; by default sentences that come with attnviz |

The long text is cut to the length that is wanted, and the needle is put in after the last sentence
that ends before its depth.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from attnviz.captures.trials import predicted, word_ids
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.core.split import same_text
from attnviz.corpus import lines
from attnviz.corpus.lines import sentences
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.retrieval.result import RetrievalSettings, check_many
from attnviz.scoring.probe import starts_with

NULL = "N/A"  # a question without content, as in QRHead's retriever
LONGEST = 1024  # tokens of a prompt where no lengths are asked for
_WRITTEN = 50  # tokens that are generated for a needle of a file, as in the detection of Wu et al
_FEW = 8  # tokens of the long text at least
_WORD = re.compile(r"[A-Za-z]{3,}")
_STOPS = (".", "!", "?", "。", "．")

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Needle:
    """A prompt with a needle in it."""

    number: int  # of what it counts with where certainty is concerned, from 1
    length: int  # that was wanted, in tokens
    depth: float  # that was wanted, from 0 to 1
    ids: Ids  # of the prompt
    document: tuple[int, int]  # first place of the needle, and its end
    answer: tuple[int, ...]  # the places of the answer in it
    question: tuple[int, int]  # first place of the question, and its end
    null: Ids  # the prompt with a question without content; empty where there is no such text
    null_question: tuple[int, int]  # where that stands
    generate: int  # how many tokens the model writes at most

    @property
    def wanted(self) -> Ids:
        """The ids of the answer."""
        return tuple(self.ids[position] for position in self.answer)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around every prompt: the start and end of texts, a question without content."""

    start: Ids
    end: Ids
    null: Ids

    def needle(
        self,
        number: int,
        length: int,
        depth: float,
        parts: tuple[Ids, Ids, Ids, Ids],
        answer: Sequence[int],
        generate: int,
    ) -> Needle:
        """Lay out a prompt: text before the needle, the needle, text after it, the question.

        ``answer`` are places in the needle.
        """
        head, needle, tail, question = parts
        first = len(self.start) + len(head)
        body = (*self.start, *head, *needle, *tail)
        span = (len(body), len(body) + len(question))
        null = (len(body), len(body) + len(self.null))
        return Needle(
            number,
            length,
            depth,
            (*body, *question, *self.end),
            (first, first + len(needle)),
            tuple(first + position for position in answer),
            span,
            (*body, *self.null, *self.end) if self.null else (),
            null,
            generate,
        )

    @property
    def size(self) -> int:
        """Tokens that every prompt has of it."""
        return len(self.start) + len(self.end)


def word_needles(source: Source, settings: RetrievalSettings) -> list[Needle]:
    """Needles of random words among random words, every one drawn by itself."""
    frame = _frame(source)
    size = settings.cue + settings.answer
    pool = _words(source, size) if frame.null else ()
    if not pool:
        pool = word_ids(source, frozenset((*frame.start, *frame.end, *frame.null)), 10 * size)
    if len(pool) < 4 * size:
        raise ModelError(
            "{} has {} tokens to make needles of {} words from; give needles of your own",
            source.info.model, len(pool), size,
        )  # fmt: skip
    generate = settings.generate or settings.answer
    least = frame.size + size + settings.cue + _FEW
    lengths = _lengths(source, settings, least, generate)
    check_many(len(lengths) * len(settings.depths) * settings.count)
    needles: list[Needle] = []
    for length, depth in product(lengths, settings.depths):
        for draw in range(settings.count):
            chosen = random.Random(f"{settings.seed}/{length}/{depth:g}/{draw}")
            around = length - least + _FEW
            words = chosen.sample(pool, min(len(pool), size + around))
            needle, filling = tuple(words[:size]), words[size:]
            filling += chosen.choices(filling, k=around - len(filling))
            cut = round(depth * around)
            parts = (tuple(filling[:cut]), needle, tuple(filling[cut:]), needle[: settings.cue])
            number = len(needles) + 1
            answer = range(settings.cue, size)
            needles.append(frame.needle(number, length, depth, parts, answer, generate))
    return needles


@dataclass(frozen=True, slots=True)
class NeedleFile:
    """A file of needles."""

    name: str  # of the file
    objects: tuple[tuple[dict[str, str], str], ...]  # the fields of every line, and its place


def read_needles(name: str) -> NeedleFile:
    """Read a file of needles."""
    objects = tuple(_objects(name))
    if not objects:
        raise InputError(f"{lines.shown(name)} holds no needles; write one a line")
    return NeedleFile(name, objects)


def field_values(file: NeedleFile | None, field: str, split: str) -> list[str]:
    """Return what a field of every needle says."""
    for values, origin in () if file is None else file.objects:
        if field not in values:
            raise UsageError("{} has no field {!r} for {split}", origin, field, split=split)
    return [] if file is None else [str(values[field]) for values, _ in file.objects]


def file_needles(source: Source, file: NeedleFile, settings: RetrievalSettings) -> list[Needle]:
    """Return the needles of a file, each in every length and depth."""
    frame = _frame(source)
    generate = settings.generate or _WRITTEN
    if source.max_tokens is not None:
        least = frame.size + _FEW + 2 + generate
        if source.max_tokens < least:
            raise _no_room(source, least)
    read = [_read(source, values, origin) for values, origin in file.objects]
    least = frame.size + _FEW + max(len(record.needle) + len(record.question) for record in read)
    lengths = _lengths(source, settings, least, generate)
    check_many(len(lengths) * len(settings.depths) * len(read))
    needles = []
    for length in lengths:
        for depth, (number, record) in product(
            settings.depths, zip(needle_numbers(file), read, strict=True)
        ):
            around = length - frame.size - len(record.needle) - len(record.question)
            text = record.around(around)
            position = _sentence_end(source, text, round(depth * around)) if depth < 1 else around
            parts = (text[:position], record.needle, text[position:], record.question)
            needles.append(frame.needle(number, length, depth, parts, record.answer, generate))
    return needles


def needle_numbers(file: NeedleFile | None) -> list[int]:
    """Return what every line of a file counts with, from 1: copies of a needle are one."""
    first: dict[str, int] = {}
    names = [same_text(values["needle"]) for values, _ in file.objects] if file else []
    return [first.setdefault(name, len(first) + 1) for name in names]


def _words(source: Source, count: int) -> Sequence[int]:
    """Ids of common English words that the tokenizer keeps whole; none where these are few."""
    spelled = {word.lower() for text in sentences() for word in _WORD.findall(text)}
    words = []
    for word in sorted(spelled):
        tokens = predicted(source.prepare(Prompt(f" {word}", special_tokens=False)))
        if len(tokens) == 1 and tokens.texts[0].strip().lower() == word:
            words.append(tokens.ids[0])
    return words if len(words) > 8 * count else ()


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a file, in ids."""

    needle: Ids
    answer: tuple[int, ...]
    question: Ids
    haystack: Ids

    def around(self, size: int) -> Ids:
        """So many ids of the long text, again from its beginning where it is shorter."""
        times = -(-size // len(self.haystack))
        return (self.haystack * times)[:size]


def _objects(name: str) -> Iterator[tuple[dict[str, str], str]]:
    fault = "no JSON; write an object with needle and question a line"
    for origin, values in lines.objects(name, fault):
        if not isinstance(values, dict):
            raise InputError(f"{origin} is no object; give needle and question")
        for field in ("needle", "question"):
            if field not in values:
                raise InputError(f"{origin} has no {field}; a needle needs needle and question")
        for field in ("needle", "question", "answer", "haystack"):
            if field in values and not (isinstance(values[field], str) and values[field].strip()):
                raise InputError(f"{origin}: {field} is no text; give a string")
        if values.get("answer", values["needle"]) not in values["needle"]:
            raise InputError(
                f"{origin}: the answer {values['answer'][:40]!r} is not in the needle; copy it "
                "from there, word for word"
            )
        yield values, origin


def _read(source: Source, values: dict[str, str], origin: str) -> _Line:
    needle = values["needle"].strip()
    answer = values.get("answer", needle).strip()
    try:
        tokens = predicted(
            source.prepare(Prompt(f" {needle}", special_tokens=False, spans={"answer": answer}))
        )
    except InputError as error:
        raise InputError("{}: {}", origin, error.message) from None
    (span,) = tokens.spans
    haystack = values.get("haystack") or " ".join(sentences())
    return _Line(
        tokens.ids, tuple(span.positions), _ids(source, values["question"]), _ids(source, haystack)
    )


def _ids(source: Source, text: str) -> Ids:
    """Of a text of any length: pieces of it that the model can take, one after the other."""
    ids: Ids = ()
    first, step = 0, max(1, (source.max_tokens or LONGEST) // 2)
    while first < len(text):
        blank = text.rfind(" ", first + 1, first + step)
        end = blank if blank > 0 and first + step < len(text) else first + step
        piece = text[first:end]
        if piece.strip():
            ids += predicted(source.prepare(Prompt(piece, special_tokens=False))).ids
        first = end
    return ids


def _frame(source: Source) -> _Frame:
    try:
        tokens = predicted(source.prepare(Prompt("a")))
        null = predicted(source.prepare(Prompt(f" {NULL}", special_tokens=False))).ids
    except ModelError:  # no tokenizer: nothing is added
        return _Frame((), (), ())
    start, _ = starts_with(source)
    end = tokens.ids[-1:] if tokens.special[-1] and len(tokens) > 1 else ()
    return _Frame(() if start is None else (start,), end, null)


def _lengths(
    source: Source, settings: RetrievalSettings, least: int, generate: int
) -> tuple[int, ...]:
    """Tokens of the prompts, the shortest first."""
    room = (source.max_tokens or LONGEST) - generate
    top = min(room, LONGEST)
    lengths = settings.lengths or tuple(
        length for length in (top // 4, top // 2, 3 * top // 4, top) if length >= least
    )
    if not lengths or room < least:
        raise _no_room(source, least + generate)
    for length in lengths:
        if not least <= length <= (source.max_tokens or length + generate) - generate:
            ends = f"from {least:,}" if source.max_tokens is None else f"from {least:,} to {room:,}"
            raise UsageError(
                "prompts of {} tokens do not fit: {} takes {} before what is generated; change "
                "{lengths}", f"{length:,}", source.info.model, ends, lengths=...,
            )  # fmt: skip
    return tuple(sorted(set(lengths)))


def _no_room(source: Source, least: int) -> UsageError:
    """Choose what to raise for a model that does not take so many tokens, or not unless asked."""
    if source.max_tokens is None or source.max_tokens >= least:
        return UsageError(
            "these needles need {:,} tokens, more than the {:,} of a prompt by default; "
            "give {lengths}", least, LONGEST, lengths=...,
        )  # fmt: skip
    return UsageError(
        "{} takes {} tokens, and these needles need {:,}; give shorter ones",
        source.info.model, source.max_tokens, least,
    )  # fmt: skip


def _sentence_end(source: Source, ids: Ids, position: int) -> int:
    """Return the last place up to this one after which a sentence has ended; the first for none."""
    texts = source.tokens(ids[:position]).texts
    for number in range(position, 0, -1):
        if texts[number - 1].strip().endswith(_STOPS):
            return number
    return 0
