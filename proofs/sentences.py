"""What `explain` says of sentences that repeat themselves, on sentences that nobody chose.

They are drawn by a seed from a text that ATTNVIZ_TEXT names: clauses of six to ten words, each
followed by itself without its last word. Whether demo-gpt2 says that word is measured again by
:mod:`proofs.plain`; how many of the sentences bear out the rest of docs/explain.md is reported as
it is, for there is nothing that it should be.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import attnviz as av
from attnviz.core.source import Source
from attnviz.features.explain.result import Explain
from attnviz.models.demo import DEMOS
from proofs.plain import Plain
from proofs.row import Proof, missing

COMMAND = "python -m proofs sentences; attnviz explain TEXT"
TEXT = "ATTNVIZ_TEXT"
COUNT, SEED = 40, 0
_WORDS = range(6, 11)
_CLAUSE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+)*")


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Both rows; of small ones fewer sentences."""
    what = f"demo-gpt2 repeats a word: {COUNT} sentences drawn from a novel, each clause twice"
    path = os.environ.get(TEXT)
    if path is None:
        yield missing(what, "said of ten chosen sentences: eight",
                      f"a text: set {TEXT} to a file of prose", COMMAND)  # fmt: skip
        return
    clauses = drawn(Path(path).read_text("utf-8", "replace"), 10 if small else COUNT)
    source = av.load("demo-gpt2")
    prompts = [(prompt(clause), clause.split()[-1]) for clause in clauses]
    found = [(text, word) for text, word in prompts if says(source, text, word)]
    again = repeated(source, prompts)
    yield Proof(
        what.replace(str(COUNT), str(len(prompts))),
        f"{again} (NumPy); said of ten chosen sentences: eight",
        f"{len(found)} of {len(prompts)}", "the same by both", again == len(found), COMMAND,
    )  # fmt: skip
    yield borne_out([(av.explain(text, model=source), word) for text, word in found])


def drawn(text: str, count: int, seed: int = SEED) -> list[str]:
    """Clauses of different words in lower case, in a random order; none twice."""
    plain = re.sub(r"\s+", " ", text)
    clauses = {
        match.group()
        for match in _CLAUSE.finditer(plain)
        if match.group()[1:].islower()
        and len(words := match.group().lower().split()) in _WORDS
        and len({*words}) == len(words)
    }
    return random.Random(seed).sample(sorted(clauses), count)


def prompt(clause: str) -> str:
    """Return a clause, and again without its last word."""
    lowered = clause[:1].lower() + clause[1:]
    return f"{clause[:1].upper()}{clause[1:]} and {lowered.rsplit(' ', 1)[0]}"


def says(source: Source, text: str, word: str) -> bool:
    """Whether the most probable token begins the word that followed."""
    return begins(av.logits(text, model=source, predictions=1).predictions[0].token, word)


def begins(token: str, word: str) -> bool:
    """Whether a token is a word, or the beginning of one."""
    plain = token.strip()
    return token.startswith(" ") and bool(plain) and word.startswith(plain)


def repeated(source: Source, prompts: list[tuple[str, str]]) -> int:
    """How many words are repeated, by other code; only tokens are attnviz's."""
    model, count = Plain(DEMOS["demo-gpt2"]), 0
    for text, word in prompts:
        ids = source.prepare(av.Prompt(text)).sides["decoder"].queries.ids
        best = int(model.run(np.array([ids]))[0][0, -1].argmax())
        count += begins(source.tokens([best]).texts[0], word)
    return count


def borne_out(found: list[tuple[Explain, str]]) -> Proof:
    """How many of them bear out the other three statements, one by one and all."""
    kept = [statements(result, word) for result, word in found]
    counts = [sum(one[n] for one in kept) for n in range(3)]
    return Proof(
        "what explain says of these: most of the three largest votes look at the word; 1.4 wrote "
        "more of the keys than any other earlier head; without 1.4 more than half of the lead is "
        "gone",
        "said of three chosen sentences, which a test holds",
        f"of {len(kept)}: {', '.join(map(str, counts))}; all three {sum(map(all, kept))}",
        "reported as it is", True, COMMAND,
    )  # fmt: skip


def statements(result: Explain, word: str) -> tuple[bool, bool, bool]:
    """Which of the three statements hold for one sentence."""
    votes = [head for head in (*result.heads, *result.beside) if head.head in result.voters]
    looks = sum(begins(result.tokens[head.position], word) for head in votes)
    feeder = None if result.feeder is None else result.layout.name(result.feeder.heads[0])
    lost = feeder == "1.4" and result.feeder is not None and (
        -result.feeder.change > result.lead / 2
    )  # fmt: skip
    return 2 * looks > len(votes), feeder == "1.4", lost
