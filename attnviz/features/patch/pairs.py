"""Pairs of prompts: as they are given, and as a model runs them.

A clean prompt whose answer is known, and a corrupted one that differs from it where the answer
depends on it. Positions of the two are aligned one to one where they have as many tokens, else by
spans or words.

Pairs of built-in tasks, made from templates over words that a model's tokenizer keeps whole.

Each prompt is corrupted by a word or two, so that both have as many tokens and the corrupted one
has an answer of its own, which the clean answer is held against: symmetric token replacement, as
Zhang & Nanda 2023 (arXiv:2309.16042) advise.

| task | clean | corrupted |
|---|---|---|
| ``induction`` | random words, then some of them again | another word followed then |
| ``induction-swap`` | the same | two words swapped: another of them followed then |
| ``ioi`` | After Mary and John ..., John handed the book to | ..., Mary handed ... |
| ``agreement`` | The key near the cabinets | The keys near the cabinets |
| ``gender`` | The king smiled because | The queen smiled because |

The words that come again begin anywhere among the first, so that no fixed place holds the answer.
``ioi`` is the task of Wang et al. 2022 (arXiv:2211.00593), ``agreement`` that of Linzen et al. 2016
(arXiv:1611.01368).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

from attnviz.captures import trials
from attnviz.captures.trials import near_copy, predicted
from attnviz.core.arguments import check_fields
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.core.tokens import Tokens
from attnviz.corpus import lines
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.scoring.probe import starts_with

Align = Literal["position", "word"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A clean and a corrupted prompt.

    Attributes:
        clean: a text, or token ids.
        corrupted: likewise.
        answer: the token that should follow the clean prompt (at ``[MASK]``, of masked models), as
            a text or an id.
        against: the token that it is held against, such as the corrupted prompt's answer.
        target: how the decoder's text begins, of encoder-decoder models.
        clean_span: first token and end of what differs, where prompts differ in length.
        corrupted_span: the same in the corrupted prompt; a span's last tokens are aligned.
        group: what it belongs to; pairs of one group count once where certainty is concerned.
        spans: named parts of the clean prompt and how each is found, written as
            :mod:`attnviz.core.spans` says; their partners are those of the corrupted prompt.
        part: which part of the data it is of, for a circuit that is found on one of two.
    """

    clean: str | tuple[int, ...]
    corrupted: str | tuple[int, ...]
    answer: str | int
    against: str | int | None = None
    target: str | None = None
    clean_span: tuple[int, int] | None = None
    corrupted_span: tuple[int, int] | None = None
    group: str | None = None
    spans: Mapping[str, str] | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class PreparedPair:
    """A pair as a model runs it."""

    number: int  # from 0
    pair: Pair  # as it was given
    clean: Inputs  # inputs of the clean prompt
    corrupted: Inputs  # inputs of the corrupted one
    answer: int  # the id that should win
    against: int | None  # the id that it is held against, or None
    at: tuple[int, int]  # the positions that predict it, in the clean and in the corrupted prompt
    # for every position of the clean prompt its place in the corrupted one, -1 for none
    partner: tuple[int, ...]
    span: tuple[int, ...]  # positions of the clean prompt that differ from their partners
    cluster: str  # what it counts with

    @property
    def lengths(self) -> tuple[int, int]:
        """Of both prompts: pairs of the same lengths can share a batch."""
        return self.clean.length, self.corrupted.length

    @property
    def aligned(self) -> bool:
        """Whether position i of one is position i of the other, everywhere."""
        return self.partner == tuple(range(len(predicted(self.corrupted))))


def read_pairs(name: str, group: str | None = None, part: str | None = None) -> list[Pair]:
    """Pairs from a JSONL file, an object a line."""
    fault = "no JSON; write an object with clean, corrupted and answer a line"
    read = lines.objects(name, fault)
    pairs = [pair_of(values, label, group, part) for label, values in read]
    if not pairs:
        raise InputError(f"{lines.shown(name)} holds no pairs; write one a line")
    return pairs


_FIELDS = {field.name for field in fields(Pair)} - {"part"}
_IDS: dict[object, Any] = {
    "clean_ids": "clean", "corrupted_ids": "corrupted", "answer_id": "answer",
    "against_id": "against",
}  # fmt: skip


def pair_of(values: object, label: str, group: str | None = None, part: str | None = None) -> Pair:
    """Return a pair from a dictionary."""
    if isinstance(values, Pair):
        return values
    if not isinstance(values, Mapping):
        raise InputError(f"{label} is no pair; give an object with clean, corrupted and answer")
    named: dict[str, Any] = {
        name: value for key, value in values.items() if (name := _IDS.get(key, key)) in _FIELDS
    }
    if group is not None:
        if group not in values:
            raise UsageError("{} has no field {!r} for {group}", label, group, group=...)
        named["group"] = str(values[group])
    if part is not None:
        if part not in values:
            raise UsageError("{} has no field {!r} for {split}", label, part, split=f"field:{part}")
        named["part"] = str(values[part])
    for field in ("clean", "corrupted", "answer"):
        if field not in named:
            raise InputError(f"{label} has no {field}; a pair needs clean, corrupted and answer")
    for key, value in named.items():
        if isinstance(value, list):
            named[key] = tuple(value)
    try:
        return Pair(**named)
    except UsageError as error:
        raise InputError("{}: {}", label, error.message) from None


def prepare(source: Source, pairs: Iterable[Pair], align: Align = "position") -> list[PreparedPair]:
    """Pairs as a model runs them."""
    mask = trials.mask_id(source) if trials.is_masked(source) else None
    prepared = []
    for number, pair in enumerate(pairs):
        try:
            prepared.append(_ready(source, number, pair, align, mask))
        except InputError as error:
            raise InputError("pair {}: {}", number + 1, error.message) from None
    if not prepared:
        raise InputError("there are no pairs; give at least one")
    return prepared


def _ready(source: Source, number: int, pair: Pair, align: Align, mask: int | None) -> PreparedPair:
    clean = _inputs(source, pair.clean, pair.target, pair.spans)
    corrupted = _inputs(source, pair.corrupted, pair.target)
    if _ids(clean) == _ids(corrupted):
        raise InputError("clean and corrupted are the same tokens; change what the answer needs")
    answer = _token(source, pair.answer)
    against = None if pair.against is None else _token(source, pair.against)
    if answer == against:
        raise InputError(
            f"answer and against are the same token {pair.answer!r}; name two that differ"
        )
    at = _predicts(source, number, clean, mask), _predicts(source, number, corrupted, mask)
    partner = _partners(clean, corrupted, pair, align)
    mine, theirs = predicted(clean).ids, predicted(corrupted).ids
    span = tuple(i for i, j in enumerate(partner) if j < 0 or mine[i] != theirs[j])
    cluster = f"group {pair.group}" if pair.group is not None else f"text {near_copy(clean)}"
    return PreparedPair(number, pair, clean, corrupted, answer, against, at, partner, span, cluster)


def _inputs(
    source: Source,
    text: str | tuple[int, ...],
    target: str | None,
    spans: Mapping[str, str] | None = None,
) -> Inputs:
    if "cross" in source.layout.kinds and target is None:
        raise InputError(
            f"{source.info.model} has a decoder; give target, the beginning of its text"
        )
    if isinstance(text, str):
        return source.prepare(Prompt(text, target=target, spans=spans))
    return source.prepare(Prompt(ids=text, target=target, special_tokens=False, spans=spans))


def _ids(inputs: Inputs) -> tuple[tuple[int, ...], ...]:
    """All ids of all sides, which tell prompts apart."""
    return tuple(side.keys.ids + side.queries.ids for side in inputs.sides.values())


def _token(source: Source, word: str | int) -> int:
    if word == "":
        raise InputError("the answer, or what it is held against, is empty; name a token")
    if isinstance(word, str):
        return trials.one_token(source, word)
    labels = trials.labels_of(source)
    if labels is not None:
        return labels.number(f"#{word}")
    if not 0 <= word < (source.vocab_size or 0):
        raise InputError(f"id {word} is not in the vocabulary of {source.vocab_size:,} tokens")
    return word


def _predicts(source: Source, number: int, inputs: Inputs, mask: int | None) -> int:
    """Return the position whose logits are looked at."""
    if mask is None:
        return trials.answer_place(source, predicted(inputs))
    (trial,) = trials.at_mask(number, inputs, mask)
    return trial.positions[0]


def _partners(clean: Inputs, corrupted: Inputs, pair: Pair, align: Align) -> tuple[int, ...]:
    """For every position of the clean prompt its place in the corrupted one, -1 for none."""
    mine, theirs = predicted(clean), predicted(corrupted)
    spans = (pair.clean_span, pair.corrupted_span)
    if spans != (None, None):
        if None in spans:
            raise InputError("clean_span and corrupted_span go together; give both")
        return _by_spans(len(mine), len(theirs), *spans)  # type: ignore[arg-type]
    if all(
        len(side.keys) == len(corrupted.sides[kind].keys) for kind, side in clean.sides.items()
    ) and len(mine) == len(theirs):
        return tuple(range(len(mine)))
    if align == "word" and len(clean.sides) == 1:
        return _by_words(mine, theirs)
    sides = next(iter(clean.sides.values())).keys, next(iter(corrupted.sides.values())).keys
    lengths = " and ".join(f"{len(side)} tokens ({'|'.join(side.texts)[:70]})" for side in sides)
    raise InputError(
        "prompts of {} cannot be aligned by position; give {align}, or clean_span and "
        "corrupted_span in a file of pairs",
        lengths,
        align="word",
    )


def _by_spans(
    mine: int, theirs: int, span: tuple[int, int], other_span: tuple[int, int]
) -> tuple[int, ...]:
    """Outside by position, from both ends; inside by position from the end."""
    for (first, end), length in ((span, mine), (other_span, theirs)):
        if not 0 <= first < end <= length:
            raise InputError(f"a span [{first}, {end}] is not inside of {length} tokens")
    if span[0] != other_span[0] or mine - span[1] != theirs - other_span[1]:
        raise InputError(
            f"what surrounds the spans differs in length: {span[0]} and {other_span[0]} tokens "
            f"before, {mine - span[1]} and {theirs - other_span[1]} after; mark all that differs"
        )
    shift = theirs - mine
    inside = [i + shift if i + shift >= other_span[0] else -1 for i in range(span[0], span[1])]
    return (*range(span[0]), *inside, *range(other_span[1], theirs))


def _by_words(mine: Tokens, theirs: Tokens) -> tuple[int, ...]:
    """Word by word, the last tokens of each; special tokens in their order."""
    clean, corrupted = _words(mine), _words(theirs)
    if len(clean) != len(corrupted):
        raise InputError(
            f"{len(clean)} and {len(corrupted)} words cannot be aligned "
            f"({'|'.join(mine.texts)[:60]} and {'|'.join(theirs.texts)[:60]}); "
            "give clean_span and corrupted_span"
        )
    partner = [-1] * len(mine)
    for a, b in zip(clean, corrupted, strict=True):
        for i, j in zip(reversed(a), reversed(b), strict=False):
            partner[i] = j
    return tuple(partner)


def _words(tokens: Tokens) -> list[list[int]]:
    """Positions by word; a token that belongs to none is one of its own."""
    positions: dict[tuple[str, int], list[int]] = {}
    for position, word in enumerate(tokens.words):
        key = ("word", word) if word >= 0 else ("special", position)
        positions.setdefault(key, []).append(position)
    return list(positions.values())


LEAST = 8  # from fewer pairs a task says nothing

HALF, AGAIN = 10, 5  # words of a sequence, and how many of them come again

NAMES = (
    "Mary", "John", "Tom", "James", "Anna", "Peter", "Paul", "Emma", "Alice", "Jack", "Jane",
    "David", "Sarah", "Henry", "Lucy", "George", "Kate", "Robert", "Martha", "William",
)  # fmt: skip
PLACES = ("house", "garden", "station", "river", "market", "school", "church", "village", "door")
THINGS = ("book", "letter", "ring", "bag", "key", "cup", "box", "picture", "paper", "lamp")
NOUNS = (
    ("key", "keys"), ("boy", "boys"), ("girl", "girls"), ("horse", "horses"), ("dog", "dogs"),
    ("tree", "trees"), ("house", "houses"), ("book", "books"), ("friend", "friends"),
    ("ship", "ships"), ("letter", "letters"), ("bird", "birds"), ("door", "doors"),
    ("soldier", "soldiers"), ("stone", "stones"), ("picture", "pictures"),
)  # fmt: skip
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))
PEOPLE = (
    ("king", "queen"), ("man", "woman"), ("boy", "girl"), ("father", "mother"), ("son", "daughter"),
    ("brother", "sister"), ("husband", "wife"), ("uncle", "aunt"), ("prince", "princess"),
    ("gentleman", "lady"), ("grandfather", "grandmother"), ("actor", "actress"),
)  # fmt: skip

_IOI = (
    "After {a} and {b} went to the {place}, {s} handed the {thing} to",
    "When {a} and {b} met at the {place}, {s} gave the {thing} to",
    "Then {a} and {b} came back from the {place}, and {s} showed the {thing} to",
)
_AGREEMENT = ("The {noun} near the {other}", "The {noun} behind the {other}",
              "In the end the {noun} beside the {other}")  # fmt: skip
_GENDER = ("The {who} smiled because", "The {who} was tired, so", "The {who} said that",
           "The {who} opened the door when")  # fmt: skip


class TaskWords:
    """Which words a model keeps whole."""

    def __init__(self, source: Source, draw: random.Random) -> None:
        self.source, self.draw = source, draw
        self.masked = trials.is_masked(source)
        self._known: dict[str, bool] = {}

    @cached_property
    def around(self) -> tuple[int | None, frozenset[int]]:
        """The id that a text starts with, and all that the tokenizer adds to one."""
        start, added = starts_with(self.source)
        return start, frozenset(added)

    @cached_property
    def pool(self) -> Sequence[int]:
        """Ids of words to draw from."""
        return trials.word_ids(self.source, self.around[1], 10 * HALF)

    def whole(self, word: str) -> bool:
        """Whether a word is one token after a blank."""
        if word not in self._known:
            try:
                trials.one_token(self.source, word)
                self._known[word] = True
            except InputError:
                self._known[word] = False
        return self._known[word]

    def single(self, words: Iterable[str]) -> list[str]:
        """Those that are."""
        return [word for word in words if self.whole(word)]

    def both(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of which both are."""
        return [(a, b) for a, b in pairs if self.whole(a) and self.whole(b)]

    def pair(self, clean: str, corrupted: str, answer: str, against: str, end: str = ".") -> Pair:
        """Return a pair; masked models get a mask and an end where the answer belongs."""
        if self.masked:
            mask = self.source.tokens([trials.mask_id(self.source)]).texts[0]
            clean, corrupted = (f"{text} {mask}{end}" for text in (clean, corrupted))
        return Pair(clean, corrupted, answer, against)


def induction(words: TaskWords) -> Pair:
    """Random words, and some of them again; another word followed then."""

    def replaced(first: list[int], repeat: slice, substitute: int) -> tuple[list[int], int]:
        return [*first[: repeat.stop], substitute, *first[repeat.stop + 1 :]], substitute

    return _repeated(words, replaced)


def induction_swap(words: TaskWords) -> Pair:
    """Return the same words, and two of them swapped, so that another one of them followed then."""

    def swapped(first: list[int], repeat: slice, _: int) -> tuple[list[int], int]:
        changed, first_again, last = list(first), repeat.start, repeat.stop - 1
        changed[first_again], changed[last] = first[last], first[first_again]
        return changed, first[first_again + 1]

    return _repeated(words, swapped)


def _repeated(
    words: TaskWords, change: Callable[[list[int], slice, int], tuple[list[int], int]]
) -> Pair:
    """Random words and some of them again; ``change`` gives other words and their answer."""
    source, draw = words.source, words.draw
    (start, added), pool = words.around, words.pool
    room = source.max_tokens
    half = HALF if room is None else min(HALF, (room - 2) * 2 // 3)
    count = half * AGAIN // HALF
    if count < 3 or len(pool) <= half:
        raise ModelError(f"{source.info.model} has no room or no tokens for a repeated sequence")
    *first, substitute = draw.sample(pool, half + 1)
    behind = (half - count - 1) // 2 if words.masked else 0
    begin = draw.randrange(half - count - behind)
    repeat = slice(begin, begin + count)
    changed, against = change(first, repeat, substitute)
    prefix = () if start is None else (start,)
    suffix: tuple[int, ...] = ()
    if words.masked:
        mask = trials.mask_id(source)
        closing = sorted(added - {start, mask})
        suffix = (mask, *first[repeat.stop + 1 :][:behind], *closing[:1])
    clean, corrupted = ((*prefix, *run, *first[repeat], *suffix) for run in (first, changed))
    return Pair(clean, corrupted, first[repeat.stop], against)


def ioi(words: TaskWords) -> Pair | None:
    """Indirect object identification: who of two is not named again."""
    names, places, items = map(words.single, (NAMES, PLACES, THINGS))
    if len(names) < 4 or not places or not items:
        return None
    a, b = words.draw.sample(names, 2)
    choose = words.draw.choice
    template, location, item = choose(_IOI), choose(places), choose(items)
    subject, indirect = words.draw.sample([a, b], 2)  # ABBA and BABA
    clean, corrupted = (
        template.format(a=a, b=b, s=s, place=location, thing=item) for s in (subject, indirect)
    )
    return words.pair(clean, corrupted, indirect, subject)


def agreement(words: TaskWords) -> Pair | None:
    """Make a verb agree with the subject, not with the noun between, of the other number."""
    nouns, verbs = words.both(NOUNS), words.both(VERBS)
    if len(nouns) < 4 or not verbs:
        return None
    noun, between = words.draw.sample(nouns, 2)
    template, verb, plural = (
        words.draw.choice(_AGREEMENT),
        words.draw.choice(verbs),
        words.draw.randrange(2),
    )
    clean, corrupted = (
        template.format(noun=noun[number], other=between[1 - plural])
        for number in (plural, 1 - plural)
    )
    return words.pair(clean, corrupted, verb[plural], verb[1 - plural], " old.")


def gender(words: TaskWords) -> Pair | None:
    """Return the pronoun of a man or a woman."""
    people = words.both(PEOPLE)
    if len(people) < 3 or not words.both([("he", "she")]):
        return None
    person, template = words.draw.choice(people), words.draw.choice(_GENDER)
    side = words.draw.randrange(2)
    clean, corrupted = (template.format(who=person[n]) for n in (side, 1 - side))
    return words.pair(clean, corrupted, ("he", "she")[side], ("she", "he")[side], " was there.")


@dataclass(frozen=True)
class PairTask:
    """A task."""

    # a random pair; None where the tokenizer keeps too few of its words whole
    make: Callable[[TaskWords], Pair | None]
    title: str  # what is to be done, in words


TASKS: Mapping[str, PairTask] = {
    "induction": PairTask(induction, "the word that followed when the words came before"),
    "induction-swap": PairTask(
        induction_swap, "the word that followed; corrupted by swapping words"
    ),
    "ioi": PairTask(ioi, "the one of two people who is not named again"),
    "agreement": PairTask(agreement, "the verb in the number of its subject"),
    "gender": PairTask(gender, "the pronoun of a man or a woman"),
}


def check_task(name: str) -> None:
    """Raise UsageError for a task that there is not."""
    if name not in TASKS:
        raise UsageError(f"unknown task {name!r}; choose one of {', '.join(TASKS)}")


def task_pairs(source: Source, name: str, count: int, seed: int) -> tuple[list[Pair], int]:
    """Pairs of a task."""
    words = TaskWords(source, random.Random(f"{seed}/{name}"))
    pairs: dict[tuple[object, object], Pair] = {}
    for _ in range(20 * count):
        pair = TASKS[name].make(words)
        if pair is None:
            break
        pairs.setdefault((pair.clean, pair.answer), pair)
        if len(pairs) == count:
            break
    if len(pairs) < min(LEAST, count):
        raise ModelError(
            "the task {} has {} pairs of words that {} keeps whole, and {} are needed; give pairs "
            "of your own",
            name,
            len(pairs),
            source.info.model,
            LEAST,
        )
    return list(pairs.values()), count
