"""The plan of batches: complete, of like length, within its budget, the same however it is run."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

import attnviz as av
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.tokens import Sides, Tokens
from attnviz.corpus.texts import InvalidRecord, Text, Tokenized, batches, tokenize
from attnviz.models.untrained import FreshConfig


def of_length(number: int, length: int) -> Tokenized:
    tokens = Tokens(("a",) * length)
    inputs = Inputs({"encoder": Sides(tokens, tokens)})
    return Tokenized(Text(number, f"x:{number}", Prompt("a " * length)), inputs)


def squared(inputs: Inputs) -> int:
    return inputs.length**2


@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 20), st.integers(1, 80))
def test_every_text_once_and_within_the_budget(
    lengths: list[int], largest: int, window: int
) -> None:
    texts = [of_length(n, length) for n, length in enumerate(lengths, 1)]
    found = list(batches(texts, squared, 5_000, window=window, largest=largest))
    assert sorted(t.text.number for b in found for t in b) == list(range(1, len(texts) + 1))
    for batch in found:
        sizes = [t.inputs.length for t in batch]
        assert sizes == sorted(sizes)
        assert len(batch) <= largest
        assert len(batch) == 1 or len(batch) * sizes[-1] ** 2 <= 5_000
        firsts = {(t.text.number - 1) // window for t in batch}
        assert len(firsts) == 1


def test_what_cannot_be_used_goes_through_and_changes_no_batch() -> None:
    chooser = random.Random(0)
    texts = [of_length(n, chooser.randint(1, 40)) for n in range(1, 150)]
    plain = list(batches(texts, squared, 5_000))
    bad = InvalidRecord(150, "x:150", "broken")
    mixed = [*texts[:70], bad, *texts[70:]]
    again = list(batches(mixed, squared, 5_000))
    assert again.count(bad) == 1
    assert [b for b in again if b is not bad] == plain


def test_batches_come_as_soon_as_a_window_is_full() -> None:
    taken = 0

    def stream():
        nonlocal taken
        for number in range(1, 10_000):
            taken += 1
            yield of_length(number, 5)

    next(batches(stream(), squared, 5_000, window=64))
    assert taken == 64


def test_tokens_are_those_of_the_model() -> None:
    source = av.load(FreshConfig(d_model=18, heads=3))
    texts = [
        Text(1, "x:1", Prompt("the keys to")),
        InvalidRecord(2, "x:2", "broken"),
        Text(3, "x:3", Prompt("the keys", pair="a pair")),
    ]
    good, broken, refused = tokenize(texts, source)
    assert isinstance(good, Tokenized)
    assert good.inputs == source.prepare(Prompt("the keys to"))
    assert broken is texts[1]
    assert isinstance(refused, InvalidRecord)
    assert (refused.number, refused.place) == (3, "x:3")
    assert "pair makes cross-attention" in refused.reason
