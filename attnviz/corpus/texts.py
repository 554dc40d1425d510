"""Texts from files: lines, whole files, JSONL, CSV, TSV, Parquet, treebanks, standard input.

A line that cannot be used becomes a :class:`InvalidRecord` with its place, never an exception:
what to do about it is the caller's business. Texts come one at a time, so their number does not
matter.

The plan of batches depends on the texts alone, not on how many processes work on it or what is
already done: texts are put in order of length in windows of :data:`WINDOW` and cut into batches
there. So a run that was interrupted, or split up, forms the same batches again and gets the same
weights, bit by bit, and memory holds one window.
"""

from __future__ import annotations

import glob
import hashlib
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.corpus import conllu
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.lines import (
    FIELDS,
    Columns,
    Problem,
    line_count,
    lines,
    no_text,
    open_bytes,
    parquet_rows,
    rows,
    shown,
    table_rows,
    whole,
)
from attnviz.errors import InputError, Setting, UsageError, require, system_errors
from attnviz.files import contents, has_fields, listed

OBJECTS = ("messages", "spans")
"""What a JSONL object can hold beside fields: the messages of a chat in place of a text, and named
parts of either."""
_TABLES = {".csv": ",", ".tsv": "\t"}
_JSON = (".jsonl", ".ndjson")
_PARQUET = (".parquet",)
_TREEBANKS = (".conllu",)
_GROUP = "group"
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
SOUNDS = (".wav", ".flac", ".ogg")

_PACKAGE = Path(__file__).parents[1]

Values = Mapping[str, object] | Problem
"""The fields of a text as they were read, or why there are none."""


@dataclass(frozen=True, eq=False)
class Text:
    """One text."""

    number: int  # from 1, over everything that was read, good or bad
    place: str  # file and line, for people
    prompt: Prompt  # what to run
    # its ``id``, or the name of a whole file without its suffix, if it has one
    name: str | None = None
    group: str | None = None  # what it belongs to, such as a document; None for a text on its own
    sentence: Sentence | None = None  # what a treebank says of it, where it comes from one

    @property
    def text(self) -> str:
        """The text itself, or what the messages of a chat say."""
        chat = self.prompt.chat or ()
        return self.prompt.text or "\n".join(str(message.get("content") or "") for message in chat)

    @cached_property
    def sensed(self) -> tuple[str, ...]:
        """A hash of its picture or sound; empty for text alone."""
        with system_errors(InputError, f"cannot read {self.place}"):
            return tuple(hashlib.sha256(contents(file)).hexdigest() for file in self.prompt.files)

    @cached_property
    def digest(self) -> str:
        """What tells this text from another: a hash of everything in it but its place."""
        p = self.prompt
        values: list[Any] = [
            self.name, self.group, p.text, p.pair, p.target, *self.sensed,
        ]  # fmt: skip
        values += [field for field in (p.chat, p.spans) if field is not None]
        if self.sentence is not None:
            values += [self.sentence.heads, self.sentence.relations]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """Something read that cannot be used, and why; see :class:`Text`."""

    number: int
    place: str
    reason: str


Good = TypeVar("Good")


def separated(
    texts: Iterable[Good | InvalidRecord], *, strict: bool
) -> tuple[list[Good], list[InvalidRecord]]:
    """Return what can be used of what was read, and what cannot."""
    good: list[Good] = []
    bad: list[InvalidRecord] = []
    for text in texts:
        if not isinstance(text, InvalidRecord):
            good.append(text)
        elif strict:
            raise InputError(f"{text.place}: {text.reason}")
        else:
            bad.append(text)
    return good, bad


def samples() -> Path:
    """Return the folder of sample inputs: in the wheel, or beside the package in a clone."""
    inside = _PACKAGE / "sample_inputs"
    return inside if inside.is_dir() else _PACKAGE.parent / "sample_inputs"


def sample_texts() -> str:
    """Return the file of plain sentences that commands on many texts read where none is named."""
    return str(samples() / "english.txt")


def resolve(names: Sequence[str], *, media: bool = False) -> list[str]:
    """Return the files meant by paths and patterns; ``-`` is standard input."""
    if not names:
        raise UsageError("no texts; name a text file, JSONL, CSV or - for standard input")
    if list(names).count("-") > 1:
        raise UsageError("- (standard input) can be given only once")
    paths = []
    for name in names:
        if not name:
            raise UsageError("an empty file name; name a text file, JSONL, CSV or - for stdin")
        with system_errors(InputError, f"cannot read {name}"):
            folder, present = Path(name).is_dir(), name == "-" or Path(name).exists()
        if folder and media and (inside := _sensed(name)):
            paths += inside
            continue
        if folder:
            raise InputError(f"{name} is a folder; name the files in it, such as '{name}/*.txt'")
        if present:
            paths.append(name)
            continue
        matches = sorted(m for m in glob.glob(name, recursive=True) if Path(m).is_file())
        if not matches:
            missing = "no file matches" if glob.has_magic(name) else "there is no file"
            raise InputError(f"{missing} {name}; check the path")
        paths += matches
    for path in paths:
        if _suffix(path) in _PARQUET:
            require("pyarrow", path)
        elif media and _suffix(path) in SOUNDS:
            require("soundfile", path)
    return paths


def count(names: Sequence[str]) -> int | None:
    """About how many texts some files hold, for showing progress; None where nobody knows."""
    total = 0
    for name in names:
        size = rows(name) if _suffix(name) in _PARQUET else line_count(name)
        if size is None or _suffix(name) in _TREEBANKS:
            return None
        total += size
    return total


def has_documents(names: Sequence[str]) -> bool:
    """Whether one of some files says by itself which texts belong together: a treebank."""
    return any(_suffix(name) in _TREEBANKS for name in names)


def _sensed(folder: str) -> list[str]:
    """Return the pictures in a folder, or the sounds; InputError where it holds both."""
    with system_errors(InputError, f"cannot read {folder}"):
        files = [str(path) for path in sorted(Path(folder).iterdir()) if path.is_file()]
    pictures, sounds = (
        [f for f in files if _suffix(f) in suffixes] for suffixes in (PICTURES, SOUNDS)
    )
    if pictures and sounds:
        raise InputError(
            f"{folder} holds pictures and sounds; name those of one kind, such as '{folder}/*.png'"
        )
    return pictures or sounds


def in_memory(texts: Sequence[str]) -> Iterator[Text | InvalidRecord]:
    """Texts that a caller has, one by one; an InvalidRecord for what is empty or no Unicode."""
    for number, text in enumerate(texts, 1):
        origin = f"text {number}"
        try:
            text.encode()
        except UnicodeEncodeError:
            yield InvalidRecord(number, origin, "the text is not valid Unicode")
            continue
        yield (
            Text(number, origin, Prompt(text))
            if text.strip()
            else InvalidRecord(number, origin, "the text is empty")
        )


def given(
    files: str | Path | Sequence[str | Path] | None,
    texts: Sequence[str] | None,
    *,
    column: str | None = None,
    group: str | None = None,
    whole_files: bool = False,
    media: bool = False,
) -> tuple[list[str], Iterator[Text | InvalidRecord]]:
    """Name what is read, and read it: files, or texts in memory; see :func:`read`."""
    if (files is None) == (texts is None):
        raise UsageError("give either files or {texts}", texts=...)
    if texts is None:
        names = resolve(listed(files), media=media)
        return names, read(names, column=column, group=group, whole_files=whole_files, media=media)
    for name, value in (("column", column), ("group", group), ("whole", whole_files or None)):
        if value is not None:
            raise UsageError("{} is for files; leave it out", Setting(name, value))
    return ["texts in memory"], in_memory(texts)


def read(
    names: Sequence[str],
    *,
    column: str | None = None,
    group: str | None = None,
    whole_files: bool = False,
    media: bool = False,
) -> Iterator[Text | InvalidRecord]:
    """Every text in some files, in order."""
    fields = not whole_files and True in [has_fields(name) for name in names]
    for chosen in (Setting("column", column), Setting("group", group)):
        if chosen.value is not None and not fields:
            raise UsageError("{} needs a .csv, .tsv, .jsonl or .parquet file; leave it out", chosen)
    return _texts(names, Columns(column, group), whole_files, media)


def _texts(
    names: Sequence[str], columns: Columns, whole_files: bool, media: bool
) -> Iterator[Text | InvalidRecord]:
    number = 0
    for name in names:
        origin = shown(name)
        rows: Iterator[tuple[int | None, Values]]
        if media and _suffix(name) in PICTURES + SOUNDS:
            number += 1
            visual = _suffix(name) in PICTURES
            prompt = Prompt(image=name) if visual else Prompt(audio=name)
            yield Text(number, origin, prompt, Path(name).stem)
            continue
        if _suffix(name) in _TREEBANKS and not whole_files:
            last = number
            for index, first, sentence in conllu.sentences(name):
                number = last + index
                yield _spoken(number, f"{origin}:{first}", sentence)
            continue
        if whole_files:
            rows = _whole(name)
        elif _suffix(name) in _TABLES:
            rows = _table(name, columns)
        elif _suffix(name) in _JSON:
            rows = _json_lines(name, columns)
        elif _suffix(name) in _PARQUET:
            rows = _filled(parquet_rows(name, columns))
        else:
            rows = _lines(name)
        for line, values in rows:
            number += 1
            origin_of = origin if line is None else f"{origin}:{line}"
            yield _text(number, origin_of, values, columns.group)


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _whole(name: str) -> Iterator[tuple[None, Values]]:
    text = whole(name)
    stem = None if name == "-" else Path(name).stem
    yield None, text if isinstance(text, Problem) else {"text": text, "id": stem}


def _lines(name: str) -> Iterator[tuple[int, Values]]:
    for number, line in lines(name):
        yield number, line if isinstance(line, Problem) else {"text": line}


def _json_lines(name: str, columns: Columns) -> Iterator[tuple[int, Values]]:
    fields = columns.fields()
    for number, line in lines(name):
        if isinstance(line, Problem):
            yield number, line
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            yield number, Problem(f"not JSON ({error.msg} at character {error.pos + 1})")
            continue
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond limits
            yield number, Problem(f"not JSON ({str(error)[:80]})")
            continue
        if isinstance(value, dict):
            objects = {name: value[name] for name in OBJECTS if value.get(name) is not None}
            yield number, {field: value.get(key) for field, key in fields.items()} | objects
        else:
            yield number, Problem('not an object such as {"text": "..."}')


def _table(name: str, columns: Columns) -> Iterator[tuple[int, Values]]:
    with open_bytes(name) as file:
        if problem := no_text(file):
            yield 1, problem
            return
        yield from _filled(table_rows(file, name, _TABLES[_suffix(name)], columns))


def _filled(
    rows: Iterator[tuple[int, dict[str, object] | Problem]],
) -> Iterator[tuple[int, Values]]:
    """Yield rows without empty cells, but for a text and a group, which must be there."""
    for number, row in rows:
        if isinstance(row, Problem):
            yield number, row
        else:
            yield number, {k: v for k, v in row.items() if v or k in ("text", _GROUP)}


def _wrong(chat: object, spans: object, values: Mapping[str, object]) -> str:
    """Return what is wrong with the messages or the spans of a line; empty for nothing."""
    if chat is not None:
        if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
            return "its messages are no list of objects with role and content"
        if extra := [name for name in ("text", "pair") if values.get(name) is not None]:
            return f"it has messages and a {extra[0]}; a line is one of them"
    texts = isinstance(spans, dict) and all(isinstance(span, str) for span in spans.values())
    if spans is not None and not texts:
        return 'its spans are no object such as {"document": "regex:Paris.*"}'
    return ""


def _spoken(number: int, origin: str, sentence: Sentence | Problem) -> Text | InvalidRecord:
    """Return a sentence of a treebank as a text; what belongs together is its document."""
    if isinstance(sentence, Problem):
        return InvalidRecord(number, origin, sentence)
    document = f"{origin.rpartition(':')[0]}, document {sentence.document}"
    return Text(number, origin, sentence.prompt, sentence.name, document, sentence)


def _written(value: object) -> str:
    """Return a value as JSON has it, cut where it is long; of what JSON has none of, its type."""
    try:
        return json.dumps(value)[:40]
    except (TypeError, ValueError):
        return type(value).__name__


def _text(number: int, origin: str, values: Values, group: str | None) -> Text | InvalidRecord:
    """Return a text from its fields, or what is wrong with them."""
    if isinstance(values, Problem):
        return InvalidRecord(number, origin, values)
    chat, spans = values.get("messages"), values.get("spans")
    if wrong := _wrong(chat, spans, values):
        return InvalidRecord(number, origin, wrong)
    texts: dict[str, str | None] = dict.fromkeys((*FIELDS, _GROUP))
    for field, cell in values.items():
        if field in OBJECTS or (field == "text" and chat is not None):
            continue
        value = cell
        label = "the text" if field == "text" else repr(group if field == _GROUP else field)
        if field in ("id", _GROUP) and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if value is None and field not in ("text", _GROUP):
            continue
        if not isinstance(value, str):
            kind = "missing" if value is None else f"no text ({_written(value)})"
            return InvalidRecord(number, origin, f"{label} is {kind}")
        try:
            value.encode()
        except UnicodeEncodeError:
            return InvalidRecord(number, origin, f"{label} is not valid Unicode")
        if not value.strip() and field != "id":
            return InvalidRecord(number, origin, f"{label} is empty")
        texts[field] = value
    prompt = Prompt(
        texts["text"],
        pair=texts["pair"],
        target=texts["target"],
        chat=chat if isinstance(chat, list) else None,
        spans=spans if isinstance(spans, dict) else None,
    )
    return Text(number, origin, prompt, texts["id"], texts[_GROUP])


def sample(
    texts: Iterable[Text | InvalidRecord], size: int, seed: int = 0
) -> Iterator[Text | InvalidRecord]:
    """Yield some of the texts, each with the same chance, in their order.

    Every text draws a number by hashing the seed and its own number, and the smallest are kept:
    memory grows with the sample only, and a smaller sample of the same seed is a part of a larger.
    """
    heap: list[tuple[int, int, Text]] = []  # the largest draw first
    for text in texts:
        if isinstance(text, InvalidRecord):
            yield text
            continue
        draw = hashlib.blake2b(f"{seed} {text.number}".encode(), digest_size=16).digest()
        entry = (-int.from_bytes(draw), text.number, text)
        if len(heap) < size:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    yield from sorted((text for _, _, text in heap), key=lambda text: text.number)


WINDOW = 64
"""Texts that are put in order of length together."""
LARGEST_BATCH = 16


@dataclass(frozen=True, eq=False, slots=True)
class Tokenized:
    """A text and what the model makes of it."""

    text: Text
    inputs: Inputs


def tokenize(
    texts: Iterable[Text | InvalidRecord],
    source: Source,
    *,
    special_tokens: bool = True,
    truncate: bool = False,
) -> Iterator[Tokenized | InvalidRecord]:
    """Every text as a model takes it, or why it cannot."""
    for text in texts:
        if isinstance(text, InvalidRecord):
            yield text
            continue
        prompt = replace(text.prompt, special_tokens=special_tokens, truncate=truncate)
        try:
            inputs = source.prepare(prompt)
        except (InputError, UsageError) as error:
            yield InvalidRecord(text.number, text.place, error.message)
        else:
            yield Tokenized(text, inputs)


def batches(
    texts: Iterable[Tokenized | InvalidRecord],
    cost: Callable[[Inputs], int],
    budget: int,
    *,
    window: int = WINDOW,
    largest: int = LARGEST_BATCH,
) -> Iterator[tuple[Tokenized, ...] | InvalidRecord]:
    """Texts in batches, the shortest of a window first."""
    waiting: list[Tokenized] = []
    for text in texts:
        if isinstance(text, InvalidRecord):
            yield text
            continue
        waiting.append(text)
        if len(waiting) == window:
            yield from _cut(waiting, cost, budget, largest)
            waiting = []
    yield from _cut(waiting, cost, budget, largest)


def _cut(
    window: list[Tokenized], cost: Callable[[Inputs], int], budget: int, largest: int
) -> Iterator[tuple[Tokenized, ...]]:
    """Yield the batches of one window."""
    window.sort(key=lambda candidate: (candidate.inputs.length, candidate.text.number))
    costs = [cost(candidate.inputs) for candidate in window]
    for batch in packed(costs, budget, largest):
        yield tuple(window[number] for number in batch)


def packed(costs: Sequence[int], budget: int, largest: int) -> Iterator[list[int]]:
    """Numbers of items in batches, in the order in which they stand, the cheapest first."""
    batch: list[int] = []
    for number, cost in enumerate(costs):
        if batch and (len(batch) == largest or (len(batch) + 1) * cost > budget):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
