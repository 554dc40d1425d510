"""Fresh layers on text: reproducible embeddings, cross-attention, batches."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.errors import InputError, SizeError, UsageError
from attnviz.models.controls import FreshConfig
from attnviz.models.untrained import Fresh, embedding, sinusoids, split_words
from attnviz.scoring.observe import Recorder


def run(config: FreshConfig, *prompts: Prompt, dtype: str = "float32") -> Recorder:
    source = Fresh(config, dtype=dtype)
    batch = [source.prepare(prompt) for prompt in prompts]
    recorder = Recorder(batch)
    source.forward(batch, [recorder])
    return recorder


def test_embedding_is_a_function_of_text_and_seed() -> None:
    """Worked out from the hash's first bytes, so that it cannot drift between machines."""
    first = int.from_bytes(hashlib.shake_256(b"7\x00cat").digest(4), "little")
    expected = (2 * (first + 0.5) / 2**32 - 1) * 3**0.5
    vector = embedding("cat", 4096, 7)
    assert vector[0] == pytest.approx(expected, rel=1e-6)
    assert vector.std() == pytest.approx(1, abs=0.02)
    assert abs(vector.mean()) < 0.05
    assert not np.allclose(vector, embedding("cat", 4096, 8))
    assert not np.allclose(vector, embedding("Cat", 4096, 7))


def test_sinusoids_by_hand() -> None:
    table = sinusoids(3, 5)
    assert table.shape == (3, 5)
    assert table[0].tolist() == [0, 1, 0, 1, 0]
    expected = [np.sin(2), np.cos(2), np.sin(2 / 10_000**0.4), np.cos(2 / 10_000**0.4)]
    assert table[2, :4] == pytest.approx(expected, abs=1e-6)


def test_equal_words_are_equal_vectors_apart_from_position() -> None:
    source = Fresh(FreshConfig(d_model=16, heads=4))
    x = source.embed(split_words("the cat the dog")).numpy() - sinusoids(4, 16)
    assert np.allclose(x[0], x[2], atol=1e-6)
    assert not np.allclose(x[0], x[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic!", ["Don", "'", "t", "panic", "!"]),
        ("你好 world", ["你", "好", "world"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("f(x)=2\n\treturn", ["f", "(", "x", ")", "=", "2", "return"]),
        ("مرحبا 🙂", ["مرحبا", "🙂"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert list(split_words(text).texts) == words


@pytest.mark.parametrize("kind", ["mha", "gqa", "mqa", "mla"])
def test_same_seed_same_maps(kind: str) -> None:
    config = FreshConfig(d_model=32, heads=8, layers=2, kind=kind, causal=True, seed=3)
    a, b = (run(config, Prompt("the cat sat on the mat")).maps() for _ in range(2))
    assert list(a) == [Site("decoder", 0), Site("decoder", 1)]
    for site in a:
        assert a[site].shape == (8, 6, 6)
        assert np.array_equal(a[site], b[site])
        assert np.triu(a[site], 1).max() == 0
        assert a[site].sum(-1) == pytest.approx(1, abs=1e-5)
    other = run(FreshConfig(d_model=32, heads=8, layers=2, kind=kind, causal=True, seed=4),
                Prompt("the cat sat on the mat")).maps()  # fmt: skip
    assert not np.allclose(a[Site("decoder", 0)], other[Site("decoder", 0)])


@pytest.mark.parametrize("kind", ["mha", "cross"])
def test_padding_changes_nothing(kind: str) -> None:
    config = FreshConfig(d_model=16, heads=2, layers=2, kind=kind)
    texts = [("one two three four", "x"), ("one", "p q r s"), ("five six", "y z")]
    prompts = [Prompt(t, pair=c if kind == "cross" else None) for t, c in texts]
    together = run(config, *prompts, dtype="float64")
    for number, prompt in enumerate(prompts):
        alone = run(config, prompt, dtype="float64").maps()
        for site, weights in together.maps(number).items():
            np.testing.assert_allclose(weights, alone[site], atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "prompt", "error", "says"),
    [
        ("mha", Prompt(ids=(1, 2)), UsageError, "no vocabulary"),
        ("mha", Prompt("a", pair="b"), UsageError, "leave out kind=.mha."),
        ("cross", Prompt("a"), UsageError, "add pair"),
        ("mha", Prompt("\u200b"), InputError, "no word"),
    ],
)
def test_bad_prompts(kind: str, prompt: Prompt, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Fresh(FreshConfig(kind=kind)).prepare(prompt)


def test_a_text_of_too_many_tokens_is_refused_or_cut() -> None:
    source = Fresh(FreshConfig(d_model=8, heads=2))
    text = "word " * 20_000
    with pytest.raises(InputError, match=r"the text has 20,000 tokens.*at most 16,384.*truncate"):
        source.prepare(Prompt(text))
    inputs = source.prepare(Prompt(text, truncate=True))
    assert len(inputs.sides["encoder"].queries) == 16_384
    assert inputs.notes == (
        "The text was truncated to the model's 16,384 tokens; 3,616 were left out.",
    )
    cross = Fresh(FreshConfig(d_model=8, heads=2, kind="cross"))
    with pytest.raises(InputError, match="the pair has 20,000 tokens"):
        cross.prepare(Prompt("word", pair=text))


def test_layers_cost_memory_beside_their_weights(monkeypatch) -> None:
    monkeypatch.setattr("attnviz.models.limits.physical_memory", lambda: 24 << 30)
    with pytest.raises(SizeError, match=r"1000000 layer\(s\) .*for weights and modules"):
        FreshConfig(d_model=2, heads=1, layers=1_000_000).check()
    FreshConfig(d_model=2, heads=1, layers=10_000).check()
    with pytest.raises(UsageError, match="seed must be"):
        Fresh(FreshConfig(seed=-1))
