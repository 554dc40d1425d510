"""Sentences with gold dependencies by the hundred, made of a few rules and seeded."""

from __future__ import annotations

import random

NOUNS = "cook key drawer sister garden gate house letter river teacher boat window child field"
ADJECTIVES = "old small green heavy quiet young broken"
VERBS = "found opened painted carried watched sold cleaned followed"
NAMES = "Anna Peter Maria Thomas Julia"
Word = tuple[str, str, int | None]
"""A word, its relation, and how far its head is; None for the verb of the sentence."""


def phrase(draw: random.Random, relation: str, name: bool = True) -> list[Word]:
    """A name, or a noun with a determiner and perhaps adjectives."""
    if name and draw.random() < 0.3:
        return [(draw.choice(NAMES.split()), relation, None)]
    adjectives = draw.choice((0, 0, 1, 2))
    words: list[Word] = [(draw.choice(("the", "a")), "det", adjectives + 1)]
    for left in range(adjectives, 0, -1):
        words.append((draw.choice(ADJECTIVES.split()), "amod", left))
    return [*words, (draw.choice(NOUNS.split()), relation, None)]


def place(draw: random.Random) -> list[Word]:
    noun = phrase(draw, "obl", name=False)
    return [(draw.choice(("in", "near", "behind")), "case", len(noun)), *noun]


def treebank(count: int, seed: int = 0) -> str:
    """So many sentences in CoNLL-U, each a cluster of its own."""
    draw = random.Random(seed)
    blocks = []
    for _ in range(count):
        words = [*place(draw), (",", "punct", None)] if draw.random() < 0.4 else []
        words += phrase(draw, "nsubj")
        verb = len(words)
        words.append((draw.choice(VERBS.split()), "root", None))
        words += phrase(draw, "obj")
        words += place(draw) if draw.random() < 0.5 else []
        words.append((".", "punct", None))
        lines = []
        for number, (word, relation, distance) in enumerate(words, start=1):
            head = verb + 1 if distance is None else number + distance
            head = 0 if relation == "root" else head
            lines.append(f"{number}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
