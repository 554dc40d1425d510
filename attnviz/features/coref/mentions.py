"""From mentions of entities to a report: which heads point from a mention to an antecedent.

Clark et al. 2019 (arXiv:1906.04341), section 4.3: from the head word of a mention that has an
antecedent, a head points to the word with the largest weight; right is the head word of any
antecedent, that is of an earlier mention of the same entity. Long documents are read in windows of
whole sentences, and only what is in the same window is an antecedent.

Notation in shapes: C examples of a window, W its words, N heads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import by_field, merge_near_copies
from attnviz.corpus.conllu import Sentence, spoken
from attnviz.corpus.gold.cases import BATCH_TOKENS, Loader, Pointing, check_single, present
from attnviz.corpus.gold.treebank import commented
from attnviz.corpus.running import answered, executor, of_model
from attnviz.corpus.texts import InvalidRecord, Text, batches, tokenize
from attnviz.errors import InputError
from attnviz.features.coref.choosing import AntecedentExamples, Bools, report
from attnviz.features.coref.entities import KINDS, Document, Mention
from attnviz.features.coref.result import Coref
from attnviz.features.coref.settings import CorefSettings
from attnviz.scoring.passes import observe

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
        own = words[self.word].casefold()
        same = [n for n in self.earlier if words[n].casefold() == own]
        nearest = self.earlier[-1]
        return {
            "nearest": nearest in self.antecedents,
            "first": self.earlier[0] in self.antecedents,
            "same_word": (same[-1] if same else nearest) in self.antecedents,
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
    observer = Pointing(task.batch, source.layout, task.candidates)
    observe(source, task.batch, observer)
    answers = []
    for number, (words, right) in enumerate(zip(task.words, task.right, strict=True)):
        pointed = observer.heads(number)[:, :, words]  # [N, 2, C]
        answers.append(np.moveaxis(right[np.arange(len(words)), pointed], 2, 0))
    return np.concatenate(answers)


def windows(
    document: Document, sizes: Sequence[int | None], longest: int, first: int
) -> Iterator[MentionWindow]:
    """A document in windows of whole sentences, each as long as fits; at least one sentence."""
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
    known: set[str] = set()
    for number, run in enumerate(runs, start=first):
        low, high = int(starts[run[0]]), int(starts[run[-1] + 1])
        here = [m for m in document.mentions if low <= m.word < high]
        new: set[str] = set()
        elsewhere = 0
        for mention in here:
            elsewhere += mention.entity in known and mention.entity not in new
            new.add(mention.entity)
        known |= new
        yield MentionWindow(
            number,
            document.number,
            document.sentences[run[0]].place,
            tuple(word for place in run for word in document.sentences[place].words),
            tuple(replace(mention, word=mention.word - low) for mention in here),
            elsewhere,
        )


def examples(window: MentionWindow, there: Bools) -> Iterator[MentionExample]:
    """List a window's mentions with an antecedent in it, of words that have a token (``there``)."""
    earlier: tuple[int, ...] = ()
    known: dict[str, frozenset[int]] = {}
    mentions = [mention for mention in window.mentions if there[mention.word]]
    for word, group in groupby(mentions, key=lambda mention: mention.word):
        here = list(group)
        for mention in here:
            if mention.entity in known:
                yield MentionExample(word, mention.kind, known[mention.entity], earlier)
        earlier += (word,)
        for mention in here:
            known[mention.entity] = known.get(mention.entity, frozenset()) | {word}


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
        by_number = {window.number: window for window in self.windows}
        wanted = [window for window in self.windows if len(window.mentions) > 1]
        texts = (Text(window.number, window.place, window.prompt) for window in wanted)
        tokenized = tokenize(texts, self.source)
        for batch in batches(tokenized, lambda inputs: inputs.length, BATCH_TOKENS):
            if isinstance(batch, InvalidRecord):
                if self.settings.strict:
                    raise InputError(f"{batch.place}: {batch.reason}")
                self.skipped[TOO_LONG] += 1
                continue
            task = self._task([(item.inputs, by_number[item.text.number]) for item in batch])
            self.done += len(batch)
            if task is not None:
                yield task

    def _task(self, pairs: Sequence[tuple[Inputs, MentionWindow]]) -> MentionTask | None:
        batch, words, right, candidates = [], [], [], []
        for inputs, window in pairs:
            size = len(window.words)
            there = present(inputs, size)
            self.skipped[UNTOKENIZED] += sum(not there[m.word] for m in window.mentions)
            asked = list(examples(window, there))
            if not asked:
                continue
            self.asked += [(window, example) for example in asked]
            batch.append(inputs)
            words.append(np.array([example.word for example in asked], np.int64))
            right.append(np.zeros((len(asked), size), np.bool_))
            for row, example in zip(right[-1], asked, strict=True):
                row[list(example.antecedents)] = True
            candidates.append(np.zeros((size, size), np.bool_))
            for example in asked:
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
    progress: Progress = lambda stage, done, all_: None,
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
    same = merge_near_copies(
        (document.number, " ".join(word for s in document.sentences for word in s.words))
        for document in study.documents
    )
    numbers = [window.number if single else same[window.document] for window, _ in study.asked]

    def said(field: str) -> Iterator[tuple[int, str]]:
        by_document = {
            document.number: next(commented(document.sentences, field, study.settings.split))
            for document in study.documents
        }
        own = (by_document[window.document] for window, _ in study.asked)
        return zip(numbers, own, strict=True)

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
