"""Axes of arrays from elsewhere, and the steps of generated text: read, or refused by name."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Site
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.models.demo import DEMOS
from attnviz.models.recorded.other_tools import read_tokens
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.probe import probe_prompts
from tests import ROOT
from tests.models.test_wrapped_model import fresh
from tests.models.tiny import FAMILIES, same_maps, transformers

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
        (ALL.mT, {"layout": "lbhkq", "item": 1}), (ALL[:, 1], {}),
        (ALL[:, 1].transpose(0, 1), {"layout": "hlqk"}),
        (list(ALL.transpose(1, 2)), {"layout": "hbqk", "item": 1}),
        (list(ALL[:, 1].movedim(1, 3)), {"layout": "qkh"}), (ALL[:, 1:2], {}),
        (ALL[:, 1:2].transpose(0, 1), {}), ({"attentions": ALL[:, 1:2].transpose(0, 1)}, {}),
        ({"attentions": ALL.transpose(0, 1)}, {"layout": "blhqk", "item": 1}),
        (list(ALL[:, 1]), {}),
    ],
)  # fmt: skip
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
        (ALL[:, 0], {"item": 0}, "or one layer's .*; say layout='lhqk' or 'bhqk'"),
        (ALL[0], {"tokens": [WORDS] * 3, "item": 1}, "may be .*layout='lhqk' or 'bhqk'"),
        (ALL[0, :, 0], {}, "one layer's heads, a batch or layers; .* say layout='hqk'"),
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
    np.savez(tmp_path / "own.npz", attentions=ALL[:, 0].numpy(), tokens=np.array(WORDS))
    for name, value in (
        ("layout", "lhqk"),
        ("mask", np.ones((4, 4), bool)),
        ("attention_mask", [1]),
    ):
        with pytest.raises(UsageError, match=f"whose fields say this .*; leave out {name}"):
            av.read(tmp_path / "own.npz", **{name: value})
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
        same_maps(found, getattr(whole, f"{kind}_attentions"), kind, 1e-6)


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


def test_keys_of_a_cache_stand_before_the_queries(tmp_path: Path) -> None:
    """The last queries of one pass: their rows stand where they stood in it."""
    model = fresh("gpt2", "eager").eval()
    ids = torch.tensor([[5, 9, 7, 3, 8, 4]])
    with torch.no_grad():
        whole = model(ids, output_attentions=True)
        past = model(ids[:, :4], use_cache=True).past_key_values
        later = model(ids[:, 4:], past_key_values=past, output_attentions=True)
    words = [f"w{n}" for n in ids[0].tolist()]
    found = av.from_arrays(later, words)
    assert found.layout.kinds == ("decoder",)
    assert found.tokens == found.source_tokens == tuple(words)
    assert "first 4 keys are of a cache" in found.inputs.notes[0]
    for number, layer in enumerate(whole.attentions):
        maps = found.maps[Site("decoder", number)]
        np.testing.assert_allclose(maps[:, 4:], layer[0, :, 4:].numpy(), atol=1e-6)
        assert not maps[:, :4].any()
    both = av.heads(av.from_arrays(whole, words)), av.heads(found)
    assert both[1].heads[0].scores["self"].rows == 2 < both[0].heads[0].scores["self"].rows
    again = av.read(av.write_capture(found, tmp_path / "a.npz"))
    assert again.tokens == found.tokens


def test_prefix_keys_are_named_so() -> None:
    scores = torch.randn(2, 3, 4, 6).masked_fill(torch.ones(4, 6).triu(3).bool(), -torch.inf)
    found = av.from_arrays(list(scores.softmax(-1)), WORDS)
    assert found.layout.kinds == ("decoder",)
    assert found.tokens == ("prefix 0", "prefix 1", *WORDS)
    assert found.inputs.sides["decoder"].queries.special[:3] == (True, True, False)
    np.testing.assert_array_equal(found["1.2"][2:], scores.softmax(-1)[1, 2])
    everywhere = list(weights(2, 3, 4, 6))
    with pytest.raises(UsageError, match="4 queries attend to 6 keys; give source_tokens"):
        av.from_arrays(everywhere, WORDS)
    assert av.from_arrays(everywhere, WORDS, kind="encoder").tokens[0] == "prefix 0"
    assert av.from_arrays(everywhere, WORDS, source_tokens=list("uvwxyz")).layout.kinds == (
        "cross",
    )


def test_layers_of_unequal_size_are_listed() -> None:
    given = [weights(2, n, n) for n in (4, 4, 2, 4, 4)]
    with pytest.raises(
        InputError, match=r"differ .*: 0 and 1 and 3 \.\.\. 4 × 4, 2 2 × 2; give those"
    ):
        av.from_arrays(given, WORDS)


def test_a_recorded_vision_model_has_its_picture(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        image_size=12, patch_size=4, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.ViTModel(config).eval()
    pixels = np.random.default_rng(0).integers(0, 255, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    with torch.no_grad():
        output = model(torch.tensor(pixels.transpose(2, 0, 1)[None] / 255).float(),
                       output_attentions=True)  # fmt: skip
    patches = [None] * 9
    for picture in (tmp_path / "a.png", str(tmp_path / "a.png"), pixels, Image.fromarray(pixels)):
        found = av.from_arrays(output, ["[CLS]", *patches], picture=picture)
        tokens = found.inputs.sides["encoder"].queries
        assert tokens.places == ((), *((r, c) for r in range(3) for c in range(3)))
        assert tokens.texts[:3] == ("[CLS]", "0,0", "0,1")
        assert np.array_equal(found.inputs.picture.pixels, pixels)
        assert (found.inputs.picture.rows, found.inputs.picture.columns) == (3, 3)
    assert tokens.space == "patches"
    assert av.heatmap(found, "0.1").to_bytes("png")
    again = av.read(av.write_capture(found, tmp_path / "a.npz"))
    assert again.inputs.sides["encoder"].queries.places == tokens.places
    mixed = av.from_arrays(output, ["a", *[None] * 6, "b", "c", "d"], picture=pixels, grid=(2, 3))
    assert mixed.inputs.sides["encoder"].queries.space == "text"
    named = av.from_arrays(output, tokens.texts, picture=pixels)
    assert named.inputs.sides["encoder"].queries.places == tokens.places
    for options, says in (
        ({"tokens": ["[CLS]", *patches]}, "tokens that are None are patches; add their picture"),
        ({"tokens": list("abcdefghij"), "picture": pixels}, "no token is a patch of the picture"),
        ({"tokens": ["a", "b", *[None] * 8], "picture": pixels}, "8 tokens are patches, which are"),
        (
            {"tokens": ["[CLS]", *patches], "picture": pixels[..., 0]},
            r"shape \[12, 12\]; give a file",
        ),
        ({"tokens": ["[CLS]", *patches], "picture": "none.png"}, "none.png"),
    ):
        with pytest.raises(AttnvizError, match=says):
            av.from_arrays(output, **options)


def test_a_picture_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", weights(2, 3, 5, 5).numpy())
    (tmp_path / "t.json").write_text(json.dumps(["[CLS]", *[None] * 4]))
    call = ["heads", "--recorded", str(tmp_path / "a.npy"), "--tokens", str(tmp_path / "t.json")]
    assert main([*call, "--image", str(tmp_path / "a.png"), "--json"]) == 0
    assert "shown whole" in capsys.readouterr().out
    assert main(call) == 2
    assert "--image" in capsys.readouterr().err


def test_tokens_as_other_systems_write_lines(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("\ufeffThe\r\n café\r\n\r\n sat\r\n".encode())
    assert read_tokens(tmp_path / "t.txt").texts == ("The", " café", "", " sat")


STORY = (ROOT / "sample_inputs" / "story.txt").read_text("utf-8")
PARAGRAPHS = STORY.split("\n\n")


def best(name: str, score: str, prompts: list[av.Prompt]) -> tuple[float, int]:
    """The highest mean of any head over all prompts, and its rows."""
    source = av.load(name)
    batch = [source.prepare(prompt) for prompt in prompts]
    observer = ScoreObserver(batch, source.layout)
    source.forward(batch, [observer])
    found = max(observer.result(), key=lambda head: head.scores[score].mean or 0.0).scores[score]
    return found.mean, found.rows


def random_tokens(name: str) -> list[av.Prompt]:
    """Repeated random tokens, each sequence after the token that starts a text."""
    vocabulary = av.load(name).vocab_size
    ids = probe_prompts(vocabulary, lengths=(32, 64, 100), seed=1, bos=0, avoid=(0,))
    return [av.Prompt(ids=found, special_tokens=False) for found in ids]


def test_both_are_there_and_small() -> None:
    assert set(DEMOS) == {"demo-gpt2", "demo-bert"}
    sizes = [path.stat().st_size for folder in DEMOS.values() for path in folder.iterdir()]
    assert sum(sizes) <= 13_000_000
    for folder in DEMOS.values():
        names = {path.name for path in folder.iterdir()}
        assert names == {
            "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
            "MODEL_CARD.md",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("score", "bar"), [("previous", 0.75), ("first", 0.80), ("induction", 0.80)]
)
def test_gpt2_has_its_heads(score: str, bar: float) -> None:
    prompts = random_tokens("demo-gpt2")
    if score != "induction":
        prompts = [av.Prompt(paragraph) for paragraph in PARAGRAPHS]
    mean, rows = best("demo-gpt2", score, prompts)
    assert rows >= 150
    assert mean >= bar


@pytest.mark.parametrize(("score", "bar"), [("previous", 0.5), ("next", 0.5), ("first", 0.6)])
def test_bert_has_its_heads(score: str, bar: float) -> None:
    pairs = [av.Prompt(a, pair=b) for a, b in pairwise(PARAGRAPHS)]
    mean, rows = best("demo-bert", score, pairs)
    assert rows >= 300
    assert mean >= bar


def test_gpt2_copies_what_repeats() -> None:
    """The loss on the second half of repeated random tokens is at most a twentieth."""
    model = AutoModelForCausalLM.from_pretrained(DEMOS["demo-gpt2"]).float().eval()
    assert model.config.model_type == "gpt2"
    losses = []
    for prompt in random_tokens("demo-gpt2"):
        ids = torch.tensor([prompt.ids])
        with torch.no_grad():
            logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
        half = (len(prompt.ids) - 1) // 2
        losses.append((float(loss[:half].mean()), float(loss[half + 1 :].mean())))
    first, second = np.mean(losses, axis=0)
    assert second <= 0.05 * first


def test_bert_guesses_masked_words() -> None:
    """Every seventh token of the story, against always guessing the commonest one."""
    model = AutoModelForMaskedLM.from_pretrained(DEMOS["demo-bert"]).float().eval()
    tokenizer = AutoTokenizer.from_pretrained(DEMOS["demo-bert"])
    assert model.config.model_type == "bert"
    right, everything = 0, []
    for paragraph in PARAGRAPHS:
        ids = tokenizer(paragraph, return_tensors="pt", truncation=True, max_length=128).input_ids
        places = torch.arange(1, ids.shape[1] - 1)
        everything += ids[0, places].tolist()
        masked = ids.repeat(7, 1)
        asked = places % 7, places  # the row in which a place is masked
        masked[asked] = tokenizer.mask_token_id
        with torch.no_grad():
            guesses = model(masked).logits.argmax(-1)
        right += int((guesses == ids)[asked].sum())
    commonest = max(everything.count(token) for token in set(everything))
    assert right >= 3 * commonest


def test_that_it_is_for_teaching_is_said_once_and_where_others_can_be_fetched(
    capsys, monkeypatch
) -> None:
    def said(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().err

    assert "teaching" not in said("heads", "a b c")  # the tests are offline
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "bert-base-uncased" in said("heads", "a b c")
    for quiet in (["heatmap", "a b c"], ["heads", "a b c", "-m", "demo-gpt2"],
                  ["heads", "a b c", "-q"], ["heads", "a b c", "--json"]):  # fmt: skip
        assert "teaching" not in said(*quiet)


@pytest.mark.slow
def test_the_tour_runs_through_without_a_terminal(capsys) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "5/5" in out
    assert "\x1b" not in out
