"""The comparison of two causal models, against transformers' eager attention and plain hooks."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM

from attnviz.models.demo import DEMOS
from training import compare
from training.compare import Circuit, answered, per_byte, pieces, ratio, whole

DEMO = DEMOS["demo-gpt2"]
WIDTH = 32
"""Of a head of demo-gpt2."""


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(
        DEMO, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer.json"))


@pytest.fixture(scope="module")
def circuit() -> Iterator[Circuit]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "PROBES", 6)
        patch.setattr(compare, "HALF", 24)
        yield Circuit(DEMO)


def test_pieces_are_stretches_of_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "PIECE", 30)
    monkeypatch.setattr(compare, "PIECES", 5)
    text = " ".join(f"word{n}" for n in range(60))
    found = pieces([text])
    assert len(found) == 5
    for piece in found:
        assert f" {piece} " in text
        assert 20 <= len(piece) <= 30


def test_loss_per_byte_is_the_log_probability_of_a_text(
    model: torch.nn.Module, tokenizer: Tokenizer
) -> None:
    text = "The keys to the café"
    ids = tokenizer.encode(text).ids
    chances = model(torch.tensor([ids])).logits.double().log_softmax(-1)[0]
    wanted = -sum(float(chances[n, token]) for n, token in enumerate(ids[1:]))
    ((loss, size),) = per_byte(model, tokenizer, [text])  # type: ignore[arg-type]
    assert loss == pytest.approx(wanted, rel=1e-6)
    assert size == len(text) + 1


def test_an_answer_counts_if_the_model_would_write_all_of_it(
    model: torch.nn.Module, tokenizer: Tokenizer
) -> None:
    ahead = "one two three four five. one two three four five."
    prompts = [f"{ahead} Answer:{word}" for word in (" the", " zebra")]
    before = tokenizer.encode(f"{ahead} Answer:").ids
    right = tokenizer.decode([int(model(torch.tensor([before])).logits[0, -1].argmax())])
    prompts.append(f"{ahead} Answer:{right}<|endoftext|>")
    found = answered(model, tokenizer, prompts)  # type: ignore[arg-type]
    assert found[1] == (0.0, 1)
    assert found[2] == (1.0, 1)


def test_whole_words_are_one_token_after_a_space(tokenizer: Tokenizer) -> None:
    assert whole(tokenizer, ["the", "table", "critics", "owl"]) == 0.5


def looks(weights: Tensor, ids: Tensor) -> float:
    """The mean weight on what followed the same token before, over the rows that have such."""
    rows = [
        float(weights[i, places].sum())
        for i in range(len(ids))
        if (places := [j for j in range(1, i - 1) if j >= 1 and ids[j - 1] == ids[i]])
    ]
    return float(np.mean(rows))


def test_the_circuit_is_that_of_eager_attention_and_of_a_plain_hook(
    circuit: Circuit, model: torch.nn.Module
) -> None:
    assert circuit.name(circuit.previous) == "0.5+1.4"
    assert {"2.0", "3.0", "3.3"} <= set(circuit.name(circuit.induction).split("+"))
    ids = torch.tensor([prompt.ids for prompt in circuit.prompts])
    assert not set(map(tuple, ids[:6].tolist())) & set(map(tuple, ids[6:].tolist()))

    def attention() -> list[float]:
        with torch.no_grad():
            maps = model(ids[6:], output_attentions=True).attentions
        return [
            sum(looks(maps[head.layer][n, head.index], row) for head in circuit.induction)
            for n, row in enumerate(ids[6:])
        ]

    assert [a for a, _ in circuit.attention()] == pytest.approx(attention(), abs=1e-4)

    means: dict[int, Tensor] = {}
    hooks = []
    layers = model.transformer.h  # type: ignore[union-attr]
    for number, layer in enumerate(layers):  # type: ignore[arg-type]

        def keep(_: torch.nn.Module, given: tuple[Tensor], number: int = number) -> None:
            means[number] = given[0].mean(0)

        hooks.append(layer.attn.c_proj.register_forward_pre_hook(keep))
    with torch.no_grad():
        model(ids[:6])
    for hook in hooks:
        hook.remove()
    hooks = []
    for head in circuit.previous:

        def replace(
            _: torch.nn.Module,
            given: tuple[Tensor],
            layer: int = head.layer,
            place: int = head.index,
        ) -> tuple[Tensor]:
            part = slice(place * WIDTH, (place + 1) * WIDTH)
            changed = given[0].clone()
            changed[..., part] = means[layer][..., part]
            return (changed,)

        hooks.append(layers[head.layer].attn.c_proj.register_forward_pre_hook(replace))  # type: ignore[index,union-attr]
    without = attention()
    for hook in hooks:
        hook.remove()
    assert [a for a, _ in circuit.attention(circuit.previous)] == pytest.approx(without, abs=1e-3)
    assert ratio(circuit.attention())[0] > 0.7
    assert max(without) < 0.2 * len(circuit.induction)


def test_what_is_lost_is_a_share_of_what_the_repetition_tells(circuit: Circuit) -> None:
    lost = circuit.lost()
    assert [(effect.heads, effect.method) for effect in lost] == [
        (heads, method) for heads in ("0.5+1.4", "0.5", "1.4") for method in ("mean", "resample")
    ]
    ids = torch.tensor([prompt.ids for prompt in circuit.prompts[6:]])
    assert circuit.once() == pytest.approx(np.log(8192), abs=0.5)
    assert ids.shape == (6, 49)
    for effect in lost:
        assert 0.5 < effect.share < 1.1
        assert effect.attention < effect.before
