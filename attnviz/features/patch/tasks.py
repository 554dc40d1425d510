"""Pairs of built-in tasks, made from templates over words that a model's tokenizer keeps whole.

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
from dataclasses import dataclass
from functools import cached_property

from attnviz.captures import trials
from attnviz.core.source import Source
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.patch.pairs import Pair
from attnviz.scoring.probe import starts_with

LEAST = 8
"""From fewer pairs a task says nothing."""

HALF, AGAIN = 10, 5
"""Words of a sequence, and how many of them come again."""

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
        """A pair; masked models get a mask and an end where the answer belongs."""
        if self.masked:
            mask = self.source.tokens([trials.mask_id(self.source)]).texts[0]
            clean, corrupted = (f"{text} {mask}{end}" for text in (clean, corrupted))
        return Pair(clean, corrupted, answer, against)


def induction(words: TaskWords) -> Pair:
    """Random words, and some of them again; another word followed then."""

    def replaced(first: list[int], again: slice, other: int) -> tuple[list[int], int]:
        return [*first[: again.stop], other, *first[again.stop + 1 :]], other

    return _repeated(words, replaced)


def induction_swap(words: TaskWords) -> Pair:
    """The same words, and two of them swapped, so that another one of them followed then."""

    def swapped(first: list[int], again: slice, _: int) -> tuple[list[int], int]:
        changed, first_again, last = list(first), again.start, again.stop - 1
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
    *first, other = draw.sample(pool, half + 1)
    behind = (half - count - 1) // 2 if words.masked else 0
    begin = draw.randrange(half - count - behind)
    again = slice(begin, begin + count)
    changed, against = change(first, again, other)
    before = () if start is None else (start,)
    after: tuple[int, ...] = ()
    if words.masked:
        mask = trials.mask_id(source)
        closing = sorted(added - {start, mask})
        after = (mask, *first[again.stop + 1 :][:behind], *closing[:1])
    clean, corrupted = ((*before, *some, *first[again], *after) for some in (first, changed))
    return Pair(clean, corrupted, first[again.stop], against)


def ioi(words: TaskWords) -> Pair | None:
    """Indirect object identification: who of two is not named again."""
    names, places, things = map(words.single, (NAMES, PLACES, THINGS))
    if len(names) < 4 or not places or not things:
        return None
    a, b = words.draw.sample(names, 2)
    choose = words.draw.choice
    template, place, thing = choose(_IOI), choose(places), choose(things)
    subject, indirect = words.draw.sample([a, b], 2)  # ABBA and BABA
    clean, corrupted = (
        template.format(a=a, b=b, s=s, place=place, thing=thing) for s in (subject, indirect)
    )
    return words.pair(clean, corrupted, indirect, subject)


def agreement(words: TaskWords) -> Pair | None:
    """The verb agrees with the subject, not with the noun between, which has the other number."""
    nouns, verbs = words.both(NOUNS), words.both(VERBS)
    if len(nouns) < 4 or not verbs:
        return None
    noun, other = words.draw.sample(nouns, 2)
    template, verb, plural = (
        words.draw.choice(_AGREEMENT),
        words.draw.choice(verbs),
        words.draw.randrange(2),
    )
    clean, corrupted = (
        template.format(noun=noun[number], other=other[1 - plural])
        for number in (plural, 1 - plural)
    )
    return words.pair(clean, corrupted, verb[plural], verb[1 - plural], " old.")


def gender(words: TaskWords) -> Pair | None:
    """The pronoun of a man or a woman."""
    people = words.both(PEOPLE)
    if len(people) < 3 or not words.both([("he", "she")]):
        return None
    who, template = words.draw.choice(people), words.draw.choice(_GENDER)
    side = words.draw.randrange(2)
    clean, corrupted = (template.format(who=who[n]) for n in (side, 1 - side))
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
