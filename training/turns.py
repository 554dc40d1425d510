"""Documents with a question and an answer copied from one of them, made from the books.

Three kinds of fact, whose documents are sentences of the books or of their words: who said
something, where a thing is, how a sentence goes on. A prompt has one to four documents of one kind
and asks about one of them, as a plain sheet or as turns of a chat.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator
from tokenizers import Tokenizer

from .tokens import END, Ids

_SPOKEN = re.compile(
    r"[\"']([^\"'\n]{15,90}?)[,.!?][\"'] (said|asked|cried|answered|replied|exclaimed) "
    r"((?:Mr\. |Mrs\. |Miss |Lady |Sir )?[A-Z][a-z]+)\b"
)
_THING = re.compile(r"\b(?:the|a|an) ([a-z]{3,9}) ([a-z]{3,10}) (?:was|lay|stood|hung)\b")
_PLACE = re.compile(r"\b(in|on|under|behind|near|beside|at) the ([a-z]{3,10})[.,;]")
_SENTENCE = re.compile(r"(?:^|(?<=[.!?] ))[A-Z][a-z]+ [a-z ]{30,90}(?=[.;])", re.MULTILINE)

_NO_THINGS = frozenset(
    {
        "also", "at", "beyond", "dead", "deal", "ever", "fact", "first", "it", "last", "least",
        "more", "most", "much", "one", "other", "others", "past", "rest", "same", "sake", "than",
        "that", "then", "there", "time", "this", "those", "was", "way", "which", "who", "whole",
        "whom",
    }
)  # fmt: skip

_STATES = ("was left", "was found", "stands", "is kept", "lies", "was put", "is", "was hidden")
_SYSTEMS = (None, None, "", "Answer from the documents.")


Kind = Literal["placed", "spoken", "begun"]
"""Where a thing is, who said something, how a sentence goes on."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Fact:
    """A document, what is asked about it, and the answer, which is in the document."""

    document: str
    question: str
    answer: str


def spoken(books: Iterable[str]) -> list[Fact]:
    """Who said it: sentences of the books with a speaker's name."""
    return [
        Fact(f'"{words}," {verb} {name}.', f'Who {verb} "{_few(words, 6)}"?', f"{name}.")
        for book in books
        for words, verb, name in _SPOKEN.findall(book)
    ]


def begun(books: Iterable[str]) -> list[Fact]:
    """How it goes on: the first five words of a sentence of the books, and the rest of it."""
    facts = []
    for book in books:
        for sentence in _SENTENCE.findall(book):
            words = sentence.split()
            if 8 <= len(words) <= 14:
                start, rest = " ".join(words[:5]), " ".join(words[5:])
                facts.append(Fact(f"{sentence}.", f'What comes after "{start}"?', f"{rest}."))
    return facts


def _few(words: str, count: int) -> str:
    return " ".join(words.split()[:count])


@dataclass(frozen=True)
class Placed:
    """Where a thing is: sentences made of the books' commonest things and places."""

    kinds: Sequence[str]
    """What stands before the most different things, mostly adjectives."""
    things: Sequence[tuple[str, str]]
    places: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, books: Iterable[str], count: int = 600) -> Placed:
        """Return the ``count`` commonest places, and five times as many things."""
        pairs, places = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for book in books:
            pairs.update(pair for pair in _THING.findall(book) if pair[1] not in _NO_THINGS)
            places.update(place for place in _PLACE.findall(book) if place[1] not in _NO_THINGS)
        kinds = Counter(kind for kind, _ in pairs)
        return cls(
            [kind for kind, _ in kinds.most_common(count // 5)],
            [pair for pair, _ in pairs.most_common(5 * count)],
            [place for place, _ in places.most_common(count)],
        )

    def facts(self, rng: Generator, count: int) -> list[Fact]:
        """``count`` things in different places; a third of the time they share their noun.

        Raises:
            SystemExit: the books have too few things or places.
        """
        if min(len(self.kinds), len(self.places)) < count:
            raise SystemExit("the books are too short to make documents and questions from them")
        chosen = rng.choice(len(self.things), count, replace=False)
        things = [self.things[n] for n in chosen]
        if rng.random() < 1 / 3:
            kinds = rng.choice(len(self.kinds), count, replace=False)
            things = [(self.kinds[n], things[0][1]) for n in kinds]
        places = rng.choice(len(self.places), len(things), replace=False)
        facts = []
        for (kind, thing), place in zip(things, places, strict=True):
            where = "{} the {}".format(*self.places[place])
            state = _STATES[rng.integers(len(_STATES))]
            facts.append(
                Fact(
                    f"The {kind} {thing} {state} {where}.",
                    f"Where is the {kind} {thing}?",
                    f"{where[0].upper()}{where[1:]}.",
                )
            )
        return facts


def sheet(facts: Sequence[Fact], asked: Fact) -> str:
    """Numbered documents, the question, and the answer behind ``Answer:``."""
    return f"{_documents(facts)}\n\nQuestion: {asked.question}\nAnswer: {asked.answer}{END}"


def chat(facts: Sequence[Fact], asked: Sequence[Fact], system: str | None) -> str:
    """Give the same as turns, one of the user and one of the assistant for every fact asked about.

    Args:
        facts: the documents.
        asked: which are asked about, in turn.
        system: a message before them; an empty one stands for the documents themselves.
    """
    documents = _documents(facts)
    text = "" if system is None else f"<|system|>{system or documents}"
    for place, fact in enumerate(asked):
        ahead = f"{documents}\n\n" if place == 0 and system != "" else ""
        text += f"<|user|>{ahead}{fact.question}<|assistant|>{fact.answer}{END}"
    return text


def _documents(facts: Sequence[Fact]) -> str:
    return "\n\n".join(f"Document {n}: {fact.document}" for n, fact in enumerate(facts, 1))


@dataclass(frozen=True)
class Turns:
    """Draws prompts with their answers."""

    tokenizer: Tokenizer
    spoken: Sequence[Fact]
    begun: Sequence[Fact]
    placed: Placed

    @classmethod
    def of(cls, books: Mapping[str, str], tokenizer: Tokenizer) -> Turns:
        """Of the training books, in the order of their names."""
        texts = [books[name] for name in sorted(books)]
        return cls(tokenizer, spoken(texts), begun(texts), Placed.of(texts))

    def facts(self, rng: Generator) -> list[Fact]:
        """One to four facts of one kind with different questions and answers, in random order."""
        drawn, count = rng.random(), int(rng.integers(1, 5))
        kind: Kind = "placed" if drawn < 0.4 else "spoken" if drawn < 0.7 else "begun"
        return self.alike(rng, kind, count)

    def alike(self, rng: Generator, kind: Kind, count: int) -> list[Fact]:
        """``count`` facts of one kind, less those that have the answer of another.

        Raises:
            SystemExit: the books have too few of them.
        """
        if kind == "placed":
            return self.placed.facts(rng, count)
        pool = self.spoken if kind == "spoken" else self.begun
        if not pool:
            raise SystemExit("the books are too short to make documents and questions from them")
        facts = [pool[n] for n in rng.integers(0, len(pool), count)]
        answers: dict[str, Fact] = {}
        for fact in facts:
            answers.setdefault(fact.answer, fact)
        return list(answers.values())

    def text(self, rng: Generator) -> str:
        """One prompt with its answers, a sheet or a chat, with the token that ends it."""
        facts = self.facts(rng)
        order = rng.permutation(len(facts))
        if rng.random() < 0.5:
            return sheet(facts, facts[order[0]])
        asked = [facts[n] for n in order[: 2 if rng.random() < 0.3 else 1]]
        return chat(facts, asked, _SYSTEMS[rng.integers(len(_SYSTEMS))])

    def row(self, rng: Generator, length: int) -> Ids:
        """Prompts one after the other, cut to ``length`` tokens."""
        ids: list[int] = []
        while len(ids) < length:
            ids += self.tokenizer.encode(self.text(rng), add_special_tokens=False).ids
        return np.asarray(ids[:length], dtype=np.int64)
