"""From mentions of entities to a report: which heads point from a mention to an antecedent.

Clark et al. 2019 (arXiv:1906.04341), section 4.3: from the head word of a mention that has an
antecedent, a head points to the word with the largest weight; right is the head word of any
antecedent, that is of an earlier mention of the same entity. Long documents are read in windows of
whole sentences, and only what is in the same window is an antecedent.

Notation in shapes: C examples of a window, W its words, N heads.

Mentions of entities from CoNLL-U files with the Entity annotation of CorefUD 1.x.

In MISC, ``Entity=(e1-person-2`` opens a mention of e1 before a word, ``e1)`` closes it behind one,
``(e1-person-1)`` is a mention of one word; a word may have several of them, nested or crossing.
``e1[1/2]`` and ``e1[2/2]`` are parts of one mention. ``# global.Entity = eid-etype-head-other``
names the attributes of what follows in the file (https://ufal.mff.cuni.cz/corefud). Of a mention
only its head word counts: that of the attribute ``head``, else the first word whose head in the
tree is not of the mention.

Documents begin with ``# newdoc``; a file without is one document.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Bools
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import by_field, merge_near_copies
from attnviz.corpus.conllu import ConlluRow, Sentence, spoken
from attnviz.corpus.gold.cases import (
    LOOKS,
    Loader,
    Pointing,
    check_single,
    commented,
    in_batches,
    present,
    read,
)
from attnviz.corpus.gold.settings import CorefSettings
from attnviz.corpus.lines import open_bytes, whole_number
from attnviz.corpus.running import answered, executor, of_model
from attnviz.corpus.texts import InvalidRecord, resolve
from attnviz.errors import InputError
from attnviz.features.coref.choosing import AntecedentExamples, report
from attnviz.features.coref.result import Coref
from attnviz.scoring.observe import observe

KINDS = ("pronoun", "proper", "nominal", "other")
"""Of mentions, by the part of speech of their head words."""
FIELDS = "eid-etype-head-other"  # the attributes of files that do not name them

_GLOBAL = "global.Entity"
_IDS = ("eid", "GRP")
"""What the attribute with the entity's name is called; GRP by files from before CorefUD 1.0."""
_BRACKETS = re.compile(r"\([^()]++\)?|[^()]++\)")
_ENTITY = re.compile(rf"(?:{_BRACKETS.pattern})++")
_MOST = 100  # mentions that begin or end at a word, or are open at once; more is no annotation
_PART = re.compile(r"(.+)\[([0-9]{1,4})/([0-9]{1,4})\]")
_FORMS = "(e1-person-1 opens a mention, e1) closes it, (e1-person-1) is one of a single word"
_SUFFIXES = (".conllu", ".conllup", ".conll")
_BEGINNINGS = (b"#", b"1\t", b"1-")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention, by its head word."""

    word: int  # number of its head word in the document, from 0
    entity: str  # what it mentions
    kind: str  # one of :data:`KINDS`


@dataclass(frozen=True, slots=True)
class Document:
    """A document with its mentions."""

    number: int  # from 1, over everything that was read
    place: str  # file and line where it begins
    sentences: tuple[Sentence, ...]  # of it
    # in the order of their head words, each pair of word and entity once
    mentions: tuple[Mention, ...]
    empty: int  # mentions whose head is an empty node, which no model reads


def is_treebank(names: Sequence[str]) -> bool:
    """Whether files are CoNLL-U, by their names or else by how they begin."""
    kinds: dict[bool, str] = {}
    for name in resolve(names):
        recognized = Path(name).suffix.lower() in _SUFFIXES
        if not recognized:
            with open_bytes(name) as file:
                recognized = file.peek(8).removeprefix(codecs.BOM_UTF8).startswith(_BEGINNINGS)
        kinds[recognized] = name
    if len(kinds) == 2:
        raise InputError(
            f"{kinds[True]} is CoNLL-U and {kinds[False]} is not; give them in separate runs"
        )
    return True in kinds


def documents(names: Sequence[str], *, strict: bool) -> tuple[list[Document], list[InvalidRecord]]:
    """All documents of some files, and the sentences and documents that cannot be used."""
    good: list[Document] = []
    bad: list[InvalidRecord] = []
    fields: dict[str, list[str]] = defaultdict(FIELDS.split("-").copy)
    for number, group in enumerate(_grouped(read(names)), start=1):
        broken = [record for record in group if isinstance(record, InvalidRecord)]
        sentences = tuple(record for record in group if isinstance(record, Sentence))
        if sentences:
            name = _file(sentences[0])
            try:
                fields[name] = _fields(sentences) or fields[name]
                good.append(_document(number, sentences, fields[name]))
            except _Broken as error:
                broken.append(InvalidRecord(number, f"{name}:{error.line}", error.reason))
        if broken and strict:
            raise InputError(f"{broken[0].place}: {broken[0].reason}")
        bad += broken
    if not good:
        reason = f"{bad[0].place}: {bad[0].reason}" if bad else f"no sentence in it; {LOOKS}"
        raise InputError(f"{', '.join(names)} has nothing usable: {reason}")
    if not any(document.mentions for document in good):
        raise InputError(
            f"{', '.join(names)} has no mention: no word has Entity= in its last column, as in "
            f"CorefUD; {_FORMS}"
        )
    return good, bad


class _Broken(Exception):
    """An annotation that cannot be read, and in which line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line, self.reason = line, reason


def _file(record: Sentence | InvalidRecord) -> str:
    return record.place.rpartition(":")[0]


def _grouped(
    records: Iterable[Sentence | InvalidRecord],
) -> Iterator[list[Sentence | InvalidRecord]]:
    """Yield what belongs to each document."""
    group: list[Sentence | InvalidRecord] = []
    for record in records:
        begins = isinstance(record, Sentence) and any(
            c.startswith("newdoc") for c in record.comments
        )
        if group and (begins or _file(record) != _file(group[0])):
            yield group
            group = []
        group.append(record)
    if group:
        yield group


def _document(number: int, sentences: tuple[Sentence, ...], fields: Sequence[str]) -> Document:
    rows = [(index, row) for index, sentence in enumerate(sentences) for row in sentence.rows]
    starts = [0]
    for sentence in sentences:
        starts.append(starts[-1] + len(sentence.words))
    by_word: dict[tuple[int, str], Mention] = {}
    empty = 0
    for entity, span, head in _Reader(rows, fields).mentions():
        index, row = rows[_head(entity, span, head, rows, sentences)]
        if row.word < 0:
            empty += 1
            continue
        word = starts[index] + row.word
        by_word[word, entity] = Mention(word, entity, _kind(row))
    mentions = tuple(by_word[key] for key in sorted(by_word))
    return Document(number, sentences[0].place, sentences, mentions, empty)


def _kind(row: ConlluRow) -> str:
    """Return a mention's kind by its head: possessives such as French *ses* are pronouns too."""
    if row.upos == "PRON" or (row.upos == "DET" and "PronType=Prs" in row.feats.split("|")):
        return "pronoun"
    return {"PROPN": "proper", "NOUN": "nominal"}.get(row.upos, "other")


_Rows = Sequence[tuple[int, ConlluRow]]


def _head(
    entity: str, span: Sequence[int], annotated: str, rows: _Rows, sentences: Sequence[Sentence]
) -> int:
    """Which of a mention's rows is its head."""
    if annotated:
        first = whole_number(annotated.partition(",")[0])
        if first is None or not 1 <= first <= len(span):
            raise _Broken(
                rows[span[0]][1].line,
                f"the head of a mention of {entity} is given as word "
                f"{annotated[:_SHOWN]!r} of it, but it has {len(span)}",
            )
        return span[first - 1]
    inside = {(rows[index][0], rows[index][1].word) for index in span}
    for index in span:
        sentence, row = rows[index]
        if row.word >= 0 and (sentence, sentences[sentence].heads[row.word]) not in inside:
            return index
    return span[0]  # nothing but empty nodes


class _Reader:
    """Reads the brackets of one document."""

    def __init__(self, rows: _Rows, fields: Sequence[str]) -> None:
        self._rows = rows
        self._id = next(n for n, name in enumerate(fields) if name in _IDS)
        self._head = fields.index("head") if "head" in fields else len(fields)
        # by entity, the first row and the head of mentions, or parts of one, that are not closed
        self._open: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._waiting = 0
        self._parts: dict[tuple[str, int], tuple[list[int], str, int]] = {}

    def mentions(self) -> Iterator[tuple[str, list[int], str]]:
        """Entity, rows and the head as it is given, of every mention."""
        for number, (_, row) in enumerate(self._rows):
            for piece in _pieces(row):
                inner = piece.strip("()").split("-")
                if piece.startswith("("):
                    name = inner[self._id] if self._id < len(inner) else ""
                    if not name:
                        raise _Broken(row.line, f"{piece[:_SHOWN]} names no entity; {_FORMS}")
                    head = inner[self._head] if self._head < len(inner) else ""
                    self._open[name].append((number, head))
                    self._waiting += 1
                    if self._waiting > _MOST:
                        raise _Broken(row.line, f"more than {_MOST} mentions are open at once")
                    if not piece.endswith(")"):
                        continue
                else:
                    name = inner[self._id] if self._id < len(inner) else inner[0]
                yield from self._close(name, number, row.line)
        waiting = [mention for stack in self._open.values() for mention in stack]
        if waiting:
            first = min(waiting, key=itemgetter(0))
            names = [name for name, stack in self._open.items() if first in stack]
            line = self._rows[first[0]][1].line
            raise _Broken(line, f"the mention of {names[0][:_SHOWN]} that opens here never closes")
        if self._parts:
            (name, total), (span, _, parts) = next(iter(self._parts.items()))
            line = self._rows[span[0]][1].line
            raise _Broken(line, f"{name[:_SHOWN]}[{parts + 1}/{total}] is missing")

    def _close(self, name: str, row: int, line: int) -> Iterator[tuple[str, list[int], str]]:
        if not self._open[name]:
            raise _Broken(line, f"{name[:_SHOWN]}) closes a mention that is not open; {_FORMS}")
        start, annotated = self._open[name].pop()
        self._waiting -= 1
        span = list(range(start, row + 1))
        match = _PART.fullmatch(name)
        if match is None:
            yield name, span, annotated
            return
        entity, part, total = match[1], int(match[2]), int(match[3])
        words, head, parts = self._parts.pop((entity, total), ([], annotated, 0))
        if part != parts + 1 or part > total:
            raise _Broken(line, f"{name[:_SHOWN]} comes where [{parts + 1}/{total}] is expected")
        if part == total:
            yield entity, words + span, head
        else:
            self._parts[entity, total] = (words + span, head, part)


def _fields(sentences: Sequence[Sentence]) -> list[str]:
    """Return the attributes of a mention, in the order of a comment; empty where there is none."""
    for sentence in sentences:
        for comment in sentence.comments:
            name, _, value = comment.partition("=")
            if name.strip() == _GLOBAL:
                fields = value.strip().split("-")
                if not any(field in _IDS for field in fields):
                    raise _Broken(
                        int(sentence.place.rpartition(":")[2]),
                        f"{_GLOBAL} is {value.strip()[:_SHOWN]!r}, without eid; such as {FIELDS}",
                    )
                return fields
    return []


def _pieces(row: ConlluRow) -> list[str]:
    """Return the brackets of a row, one by one."""
    for entry in row.misc.split("|"):
        name, _, value = entry.partition("=")
        if name.strip() != "Entity":
            continue
        if not _ENTITY.fullmatch(value):
            raise _Broken(row.line, f"Entity={value[:_SHOWN]} cannot be read; {_FORMS}")
        pieces = _BRACKETS.findall(value)
        if len(pieces) > _MOST:
            raise _Broken(row.line, f"{len(pieces)} mentions begin or end here, more than {_MOST}")
        return pieces
    return []


ELSEWHERE = "mentions whose antecedents are all in another window"
EMPTY = "mentions that stand for nothing written (empty nodes)"
UNTOKENIZED = "mentions that no token belongs to"
TOO_LONG = "sentences too long for the model"


@dataclass(frozen=True, slots=True)
class MentionWindow:
    """Sentences that are read together."""

    number: int  # from 1, over all documents; ``document`` the number of its own
    document: int
    place: str  # where it begins
    words: tuple[str, ...]  # of its sentences
    mentions: tuple[Mention, ...]  # by number of their head word in the window
    elsewhere: int  # mentions here whose antecedents are all in earlier windows

    @property
    def prompt(self) -> Prompt:
        """Its words with spaces between them, and where they stand."""
        return spoken(self.words)


@dataclass(frozen=True, eq=False, slots=True)
class MentionExample:
    """A mention with an antecedent in its window."""

    word: int  # its head word; ``kind`` one of :data:`KINDS`
    kind: str
    antecedents: frozenset[int]  # head words of the earlier mentions of its entity
    earlier: tuple[int, ...]  # head words of all earlier mentions, in order

    def baselines(self, words: Sequence[str]) -> dict[str, bool]:
        """Whether each baseline finds an antecedent."""
        word = words[self.word].casefold()
        copies = [n for n in self.earlier if words[n].casefold() == word]
        nearest = self.earlier[-1]
        return {
            "nearest": nearest in self.antecedents,
            "first": self.earlier[0] in self.antecedents,
            "same_word": (copies[-1] if copies else nearest) in self.antecedents,
        }


@dataclass(frozen=True, eq=False, slots=True)
class MentionTask:
    """A batch of tokenized windows with their examples."""

    batch: tuple[Inputs, ...]  # the windows
    words: tuple[NDArray[np.int64], ...]  # of each, the head words of its examples [C]
    right: tuple[Bools, ...]  # of each, which words are right for each example [C, W]
    # of each, where a head may point from each word [W, W]; None for any word
    candidates: tuple[Bools, ...] | None


def point(source: Source, task: MentionTask) -> Bools:
    """Whether each head finds the antecedents, by row and by column, [C, N, 2], in order."""
    observer = Pointing(task.batch, task.candidates)
    observe(source, task.batch, observer)
    answers = []
    for number, (words, right) in enumerate(zip(task.words, task.right, strict=True)):
        pointed = observer.heads(number)[:, :, words]  # [N, 2, C]
        answers.append(np.moveaxis(right[np.arange(len(words)), pointed], 2, 0))
    return np.concatenate(answers)


def windows(
    document: Document, sizes: Sequence[int | None], longest: int, first: int
) -> Iterator[MentionWindow]:
    """Get a document in windows of whole sentences, each as long as fits; at least one sentence."""
    runs: list[list[int]] = []
    room = 0
    for place, size in enumerate(sizes):
        if size is None:
            room = 0
            continue
        if size > room or not runs:
            runs.append([])
            room = longest
        runs[-1].append(place)
        room -= size
    starts = np.cumsum([0, *(len(sentence.words) for sentence in document.sentences)])
    entities: set[str] = set()
    for number, run in enumerate(runs, start=first):
        low, high = int(starts[run[0]]), int(starts[run[-1] + 1])
        mentions = [m for m in document.mentions if low <= m.word < high]
        new: set[str] = set()
        elsewhere = 0
        for mention in mentions:
            elsewhere += mention.entity in entities and mention.entity not in new
            new.add(mention.entity)
        entities |= new
        yield MentionWindow(
            number,
            document.number,
            document.sentences[run[0]].place,
            tuple(word for place in run for word in document.sentences[place].words),
            tuple(replace(mention, word=mention.word - low) for mention in mentions),
            elsewhere,
        )


def examples(window: MentionWindow, kept_words: Bools) -> Iterator[MentionExample]:
    """List a window's mentions with an antecedent in it, of ``kept_words``, which have a token."""
    earlier: tuple[int, ...] = ()
    entities: dict[str, frozenset[int]] = {}
    mentions = [mention for mention in window.mentions if kept_words[mention.word]]
    for word, group in groupby(mentions, key=lambda mention: mention.word):
        cluster = list(group)
        for mention in cluster:
            if mention.entity in entities:
                yield MentionExample(word, mention.kind, entities[mention.entity], earlier)
        earlier += (word,)
        for mention in cluster:
            entities[mention.entity] = entities.get(mention.entity, frozenset()) | {word}


@dataclass
class _Study:
    """What is run, and what has been run of it."""

    source: Source
    documents: Sequence[Document]
    settings: CorefSettings
    skipped: Counter[str] = field(default_factory=Counter)
    asked: list[tuple[MentionWindow, MentionExample]] = field(default_factory=list)
    done: int = 0

    def __post_init__(self) -> None:
        limit = self.source.max_tokens or self.settings.window
        self.longest = min(limit, self.settings.window)
        self.windows = list(self._windows())
        for window in self.windows:
            self.skipped[ELSEWHERE] += window.elsewhere
        for document in self.documents:
            self.skipped[EMPTY] += document.empty

    def _windows(self) -> Iterator[MentionWindow]:
        bare = spoken(("a",))
        added = self.source.prepare(bare).length
        added -= self.source.prepare(replace(bare, special_tokens=False)).length
        number = 1
        for document in self.documents:
            sizes = [self._size(sentence, added) for sentence in document.sentences]
            for window in windows(document, sizes, self.longest - added, number):
                number += 1
                yield window

    def _size(self, sentence: Sentence, added: int) -> int | None:
        """Tokens of a sentence by itself, without those that a tokenizer adds."""
        try:
            return self.source.prepare(sentence.prompt).length - added
        except InputError as error:
            if self.settings.strict:
                raise InputError(f"{sentence.place}: {error.message}") from None
            self.skipped[TOO_LONG] += 1
            return None

    def tasks(self) -> Iterator[MentionTask]:
        """Batches of windows that hold an example."""
        windows = [window for window in self.windows if len(window.mentions) > 1]
        for batch in in_batches(self.source, windows):
            if isinstance(batch, InvalidRecord):
                if self.settings.strict:
                    raise InputError(f"{batch.place}: {batch.reason}")
                self.skipped[TOO_LONG] += 1
                continue
            task = self._task(batch)
            self.done += len(batch)
            if task is not None:
                yield task

    def _task(self, pairs: Sequence[tuple[MentionWindow, Inputs]]) -> MentionTask | None:
        batch, words, right, candidates = [], [], [], []
        for window, inputs in pairs:
            size = len(window.words)
            kept_words = present(inputs, size)
            self.skipped[UNTOKENIZED] += sum(not kept_words[m.word] for m in window.mentions)
            questions = list(examples(window, kept_words))
            if not questions:
                continue
            self.asked += [(window, example) for example in questions]
            batch.append(inputs)
            words.append(np.array([example.word for example in questions], np.int64))
            right.append(np.zeros((len(questions), size), np.bool_))
            for row, example in zip(right[-1], questions, strict=True):
                row[list(example.antecedents)] = True
            candidates.append(np.zeros((size, size), np.bool_))
            for example in questions:
                candidates[-1][example.word, list(example.earlier)] = True
        if not batch:
            return None
        chosen = None if self.settings.candidates == "words" else tuple(candidates)
        return MentionTask(tuple(batch), tuple(words), tuple(right), chosen)


def run_mentions(
    source: Source,
    documents: Sequence[Document],
    settings: CorefSettings,
    *,
    skipped: Mapping[str, int],
    load: Loader | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> Coref:
    """Measure every head in both directions."""
    check_single(source)
    study = _Study(source, documents, settings)
    answers = []
    with executor(of_model(point), source, load, settings.jobs, settings.ray) as running:
        for _, answer in answered(running, study.tasks(), "a batch of windows"):
            answers.append(answer)
            progress("windows", study.done, len(study.windows))
    if not answers:
        raise InputError(
            f"no mention has an antecedent within {study.longest} tokens, so nothing can be "
            "measured; is every entity mentioned once only?"
        )
    return report(source, _found(study, np.concatenate(answers), skipped))


def _found(study: _Study, right: Bools, skipped: Mapping[str, int]) -> AntecedentExamples:
    """All answers, with the documents that they are from."""
    single = len({window.document for window, _ in study.asked}) == 1
    groups = merge_near_copies(
        (document.number, " ".join(word for s in document.sentences for word in s.words))
        for document in study.documents
    )
    numbers = [window.number if single else groups[window.document] for window, _ in study.asked]

    def said(field: str) -> Iterator[tuple[int, str]]:
        by_document = {
            document.number: next(commented(document.sentences, field, study.settings.split))
            for document in study.documents
        }
        documents = (by_document[window.document] for window, _ in study.asked)
        return zip(numbers, documents, strict=True)

    split, values = by_field(study.settings.split, said)
    baselines = [example.baselines(window.words) for window, example in study.asked]
    order = np.lexsort(([example.word for _, example in study.asked],
                        [window.number for window, _ in study.asked]))  # fmt: skip
    return AntecedentExamples(
        data="mentions",
        candidates=study.settings.candidates,
        window=study.longest,
        document=np.array(numbers, np.int64)[order],
        unit="windows" if single else "documents",
        kinds=[study.asked[n][1].kind for n in order],
        order=KINDS,
        right=right[order],
        baselines={
            name: np.array([answers[name] for answers in baselines])[order] for name in baselines[0]
        },
        skipped={**skipped, **study.skipped},
        corpus=fingerprint(
            (*(s.words for s in document.sentences), *map(astuple, document.mentions))
            for document in study.documents
        ),
        split=split,
        values=values,
    )  # fmt: skip
