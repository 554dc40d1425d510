"""Axes of arrays from elsewhere, and the steps of generated text: read, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.core.heads import Site
from attnviz.errors import AttnvizError, InputError, UsageError
from tests.models.test_wrapped_model import fresh
from tests.models.tiny import FAMILIES, transformers

WORDS = ["a", "b", "c", "d"]


def weights(*shape: int, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(*shape).softmax(-1)


L, B, H, T = 2, 3, 5, 4
ALL = weights(L, B, H, T, T)


@pytest.mark.parametrize(
    ("array", "options"),
    [
        (ALL, {"layout": "lbhqk", "item": 1}),
        (ALL.transpose(0, 1), {"layout": "blhqk", "item": 1}),
        (ALL.transpose(0, 1).numpy(), {"layout": "blhqk", "item": 1}),
        (ALL.movedim(2, 4), {"layout": "lbqkh", "item": 1}),
        (ALL.mT, {"layout": "lbhkq", "item": 1}),
        (ALL[:, 1], {}),
        (ALL[:, 1].transpose(0, 1), {"layout": "hlqk"}),
        (list(ALL.transpose(1, 2)), {"layout": "hbqk", "item": 1}),
        (list(ALL[:, 1].movedim(1, 3)), {"layout": "qkh"}),
        (ALL[:, 1:2], {}),
        (ALL[:, 1:2].transpose(0, 1), {}),
        ({"attentions": ALL[:, 1:2].transpose(0, 1)}, {}),
        ({"attentions": ALL.transpose(0, 1)}, {"layout": "blhqk", "item": 1}),
        (list(ALL[:, 1]), {}),
    ],
)
def test_one_item_however_axes_stand(array: Any, options: dict[str, Any]) -> None:
    found = av.from_arrays(array, WORDS, **options)
    assert found.layout.heads == {"encoder": (H, H)}
    for layer in range(L):
        np.testing.assert_array_equal(found.maps[Site("encoder", layer)], ALL[layer, 1])


def test_rows_of_tokens_and_masks_tell_the_batch() -> None:
    rows = [["x"] * T, WORDS, ["y"] * T]
    ones = torch.ones(B, T)
    for array, more in (
        (ALL, {"tokens": rows}),
        (ALL.transpose(0, 1), {"tokens": rows}),
        (ALL.transpose(0, 1), {"tokens": WORDS, "attention_mask": ones}),
        (ALL, {"tokens": WORDS, "attention_mask": ones}),
    ):
        found = av.from_arrays(array, item=1, **more)
        np.testing.assert_array_equal(found["1.2"], ALL[1, 1, 2])
    assert av.from_arrays(ALL, WORDS, item=2)["1.2"].tolist() == ALL[1, 2, 2].tolist()


def test_means_over_heads_are_one_head() -> None:
    """nn.MultiheadAttention gives [B, T, S] unless told otherwise."""
    mean = [layer.mean(1) for layer in ALL]
    found = av.from_arrays(mean, WORDS, layout="bqk", item=2)
    assert found.layout.heads == {"encoder": (1, 1)}
    np.testing.assert_array_equal(found["1.0"], mean[1][2])
    assert "means over heads" in found.inputs.notes[0]
    plain = av.from_arrays(mean, WORDS)
    assert plain.layout.heads == {"encoder": (B, B)}
    assert "[heads, queries, keys]; layout='bqk'" in plain.inputs.notes[0]
    unlike = av.from_arrays([ALL[0, 1], ALL[1, 1, :2]], WORDS)
    assert unlike.inputs.notes == ()


@pytest.mark.parametrize(
    ("array", "options", "says"),
    [
        (ALL, {"item": 1}, r"\[2, 3, 5, 4, 4\] may be .*layout='lbhqk' or 'blhqk'"),
        (ALL, {}, "may be .* and which item"),
        ({"attentions": ALL}, {"item": 1}, "may be"),
        (weights(2, 2, H, T, T), {"item": 1, "tokens": [WORDS, WORDS]}, "may be"),
        (ALL[0, :, 0], {}, "one layer's heads, a batch or layers; say layout='hqk'"),
        (list(ALL[:, :, 0]), {"item": 1}, "which the item does not tell; say layout='hqk'"),
        (list(ALL[:, :, 0]), {"tokens": [WORDS] * 3}, "choose one with item|rows of tokens do not"),
        (list(ALL), {"layout": "lbhqk"}, "a list has an array for each layer"),
        (ALL, {"layout": "bhqk", "item": 0}, "which layout='bhqk' does not fit"),
        (ALL, {"layout": "lbhq"}, "one letter an axis, q and k among them: l layers"),
        (ALL, {"layout": "lbhqq"}, "one letter an axis"),
        (ALL, {"layout": "lbtqk"}, "one letter an axis"),
        (list(ALL), {"layout": "hqk"}, "layer 0 has shape"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(
    array: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(AttnvizError, match=says):
        av.from_arrays(array, **{"tokens": WORDS, **options})


def test_files_of_tensors_with_a_key_attentions(tmp_path: Path) -> None:
    torch.save({"logits": torch.zeros(3), "attentions": list(ALL)}, tmp_path / "output.pt")
    found = av.read(tmp_path / "output.pt", WORDS, item=2)
    np.testing.assert_array_equal(found["1.4"], ALL[1, 2, 4])
    torch.save({"attentions": ALL.transpose(0, 1), "tokens": WORDS}, tmp_path / "esm.pt")
    with pytest.raises(UsageError, match="layout='lbhqk' or 'blhqk'"):
        av.read(tmp_path / "esm.pt", item=1)
    found = av.read(tmp_path / "esm.pt", item=1, layout="blhqk")
    assert found.tokens == tuple(WORDS)
    np.testing.assert_array_equal(found["1.4"], ALL[1, 1, 4])
    np.save(tmp_path / "all.npy", ALL.numpy())
    found = av.read(tmp_path / "all.npy", item=1, layout="lbhqk")
    np.testing.assert_array_equal(found["0.4"], ALL[0, 1, 4])


def written(family: str, rows: list[list[int]], **more: Any) -> tuple[Any, Any]:
    """A tiny model, and what it generates."""
    model = fresh(family, "eager").eval()
    with torch.no_grad():
        output = model.generate(
            torch.tensor(rows), max_new_tokens=5, min_new_tokens=5, do_sample=False,
            output_attentions=True, return_dict_in_generate=True, **more,
        )  # fmt: skip
    return model, output


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma2"])
def test_generated_text_is_one_pass(family: str) -> None:
    if family not in FAMILIES:
        pytest.skip("no such family")
    model, output = written(family, [[5, 9, 7, 3], [8, 4, 6, 1]])
    with torch.no_grad():
        whole = model(output.sequences[:, :-1], output_attentions=True)
    for item in (0, 1):
        for found in (
            av.from_arrays(output, output.sequences, item=item),
            av.from_arrays(output.attentions, output.sequences, item=item),
            av.from_arrays(output.attentions, output.sequences[:, :-1], item=item),
        ):
            assert found.layout.kinds == ("decoder",)
            assert found.tokens == tuple(f"#{n}" for n in output.sequences[item, :-1].tolist())
            assert found.inputs.sides["decoder"].queries.written == 4
            for number, layer in enumerate(whole.attentions):
                np.testing.assert_allclose(
                    found.maps[Site("decoder", number)], layer[item].numpy(), atol=1e-6
                )
    assert any(
        "never read" in note
        for note in av.from_arrays(output, output.sequences, item=0).inputs.notes
    )


def test_a_cache_of_fixed_size_and_none() -> None:
    for more in ({"cache_implementation": "static"}, {"use_cache": False}):
        model, output = written("llama", [[5, 9, 7, 3]], **more)
        with torch.no_grad():
            whole = model(output.sequences[:, :-1], output_attentions=True)
        found = av.from_arrays(output, output.sequences)
        assert found.inputs.sides["decoder"].queries.written == 4
        np.testing.assert_allclose(found["1.2"], whole.attentions[1][0, 2].numpy(), atol=1e-6)


@pytest.mark.parametrize(("family", "cache"), [("bart", True), ("bart", False), ("t5", False)])
def test_generated_text_of_two_stacks(family: str, cache: bool) -> None:
    model, output = written(family, [[5, 9, 7, 3], [8, 4, 6, 1]], use_cache=cache)
    with torch.no_grad():
        whole = model(input_ids=torch.tensor([[8, 4, 6, 1]]), output_attentions=True,
                      decoder_input_ids=output.sequences[1:, :-1])  # fmt: skip
    found = av.from_arrays(output, output.sequences, source_tokens=WORDS, item=1)
    assert found.source_tokens == tuple(WORDS)
    for kind in ("encoder", "decoder", "cross"):
        for number, layer in enumerate(getattr(whole, f"{kind}_attentions")):
            np.testing.assert_allclose(found.maps[Site(kind, number)], layer[0].numpy(), atol=1e-6)


def test_a_padded_batch_of_which_one_text_ends_early() -> None:
    model = fresh("gpt2", "eager").eval()
    rows = torch.tensor([[0, 0, 5, 9], [8, 4, 6, 3]])
    mask = (rows != 0).long()
    options = {"do_sample": False, "output_attentions": True, "return_dict_in_generate": True}
    with torch.no_grad():
        output = model.generate(rows, attention_mask=mask, max_new_tokens=6, min_new_tokens=6,
                                pad_token_id=0, **options)  # fmt: skip
        end = int(output.sequences[0, 6])
        early = model.generate(rows, attention_mask=mask, max_new_tokens=6, eos_token_id=end,
                               pad_token_id=0, **options)  # fmt: skip
        length = early.sequences[0].tolist().index(end, 4) + 1
        alone = model(early.sequences[:1, 2:length], output_attentions=True)
    names = ["[PAD]" if n == 0 else f"w{n}" for n in early.sequences[0].tolist()]
    for found in (
        av.from_arrays(early, names, item=0, attention_mask=mask),
        av.from_arrays(early, names, item=0),
    ):
        assert found.tokens[0] == "w5"
        size = min(len(found.tokens), length - 2)
        np.testing.assert_allclose(
            found["1.1"][:size, :size], alone.attentions[1][0, 1, :size, :size].numpy(), atol=2e-6
        )
    ended = [w if w != "[PAD]" else "</s>" for w in names]
    ended[length - 1] = "</s>"
    found = av.from_arrays(early, ended, item=0, attention_mask=mask)
    assert len(found.tokens) == min(length - 2, len(names) - 3)


def test_beams_are_refused_with_the_reason() -> None:
    _, output = written("gpt2", [[5, 9, 7, 3]], num_beams=3)
    for given in (output, output.attentions):
        with pytest.raises(InputError, match=r"3 rows.*a beam search reorders.*num_beams=1"):
            av.from_arrays(given, output.sequences)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda steps: [steps[0], *steps[2:]], "tokens were read in these steps|keys where"),
        (lambda steps: [steps[0], steps[1][:1]], "unequal numbers of layers"),
        (lambda steps: [steps[0], [x[:, :2] for x in steps[1]]], "changes its shape"),
    ],
)
def test_steps_that_are_not_whole(change: Any, says: str) -> None:
    _, output = written("gpt2", [[5, 9, 7, 3]])
    with pytest.raises(InputError, match=says):
        av.from_arrays(change(output.attentions), output.sequences)


assert transformers is not None
