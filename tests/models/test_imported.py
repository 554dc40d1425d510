"""Attention of other tools: their names and shapes as they document them, and what is refused."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file

import attnviz as av
from attnviz.cli import main
from attnviz.errors import InputError, UsageError
from tests import ROOT

TEXT = "the cat river moon stone bread the cat river moon stone"


@pytest.fixture(scope="module")
def own() -> Any:
    return av.capture(TEXT)


def maps(capture: Any) -> list[torch.Tensor]:
    """[1, heads, T, T] of each layer."""
    return [torch.from_numpy(capture.maps[site])[None] for site in capture.layout.sites]


def cache(capture: Any, hook: str = "hook_pattern") -> dict[str, torch.Tensor]:
    """A TransformerLens cache: other hooks stand in it too."""
    found = {}
    for layer, pattern in enumerate(maps(capture)):
        size = pattern.shape[-1]
        found[f"blocks.{layer}.hook_resid_pre"] = torch.zeros(1, size, 8)
        found[f"blocks.{layer}.attn.hook_v"] = torch.zeros(1, size, pattern.shape[1], 4)
        scores = torch.where(pattern > 0, pattern.log(), torch.tensor(-torch.inf))
        both = {"hook_pattern": pattern, "hook_attn_scores": scores + 3}
        found[f"blocks.{layer}.attn.{hook}"] = both[hook]
    return found


def same(found: Any, own: Any, within: float = 0) -> None:
    assert found.layout == own.layout
    assert list(found.maps) == list(own.maps)
    for site, weights in own.maps.items():
        np.testing.assert_allclose(found.maps[site], weights, rtol=0, atol=within)


@pytest.mark.parametrize("suffix", ["pt", "safetensors", "npz"])
def test_a_transformer_lens_cache_as_a_file(own: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cache.{suffix}"
    if suffix == "pt":
        torch.save(cache(own), path)
    elif suffix == "safetensors":
        save_file(cache(own), path)
    else:
        np.savez(path, **{name: tensor.numpy() for name, tensor in cache(own).items()})
    found = av.read(path, own.tokens)
    same(found, own)
    assert found.tokens == own.tokens
    assert found.inputs.notes == ()
    assert "TransformerLens" in found.source.model
    roles = {h.head.name: h.roles for h in av.heads(found).heads}
    assert any(role.name == "induction" for role in roles["2.0"])


def test_an_activation_cache_in_memory(own: Any) -> None:
    class ActivationCache:
        cache_dict = cache(own)

    same(av.read(ActivationCache(), own.tokens), own)


def test_scores_before_softmax(own: Any) -> None:
    found = av.read(cache(own, "hook_attn_scores"), own.tokens)
    same(found, own, within=1e-6)
    assert "softmax" in found.inputs.notes[0]


def test_layers_that_were_not_recorded_have_no_heads(own: Any) -> None:
    some = {name: value for name, value in cache(own).items() if "s.1." in name or "s.3." in name}
    found = av.read(some, own.tokens)
    (counts,) = found.layout.heads.values()
    assert counts == (0, 6, 0, 6)
    np.testing.assert_array_equal(found["3.2"], own["3.2"])
    assert "3.3" in str(av.heads(found))
    with pytest.raises(av.SelectionError):
        found["0.1"]


def test_positions_are_numbers_without_tokens(own: Any, tmp_path: Path) -> None:
    torch.save(cache(own), tmp_path / "c.pt")
    found = av.read(tmp_path / "c.pt")
    assert found.tokens == tuple(map(str, range(12)))
    assert "numbers" in found.inputs.notes[0]


def test_an_nnsight_trace_by_module_path(own: Any) -> None:
    class Proxy:
        def __init__(self, value: Any) -> None:
            self.value = value

    hidden = torch.zeros(1, 12, 8)
    saved = {f"transformer.h.{n}.attn": Proxy((hidden, layer)) for n, layer in enumerate(maps(own))}
    same(av.read({**saved, "transformer.h.0.mlp": hidden}, own.tokens), own)
    named = {f"model.layers.{n}.self_attn.output.1": layer for n, layer in enumerate(maps(own))}
    same(av.read(named, own.tokens), own)


def test_encoder_decoder_names() -> None:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        drawn = rng.random(shape)
        return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)

    saved = {
        "encoder.block.0.layer.0.SelfAttention": weights(1, 2, 3, 3),
        "decoder.block.0.layer.0.SelfAttention": weights(1, 2, 4, 4),
        "decoder.block.0.layer.1.EncDecAttention": weights(1, 2, 4, 3),
    }
    found = av.read(saved, list("abcd"), source_tokens=list("xyz"))
    assert found.layout.heads == {"encoder": (2,), "decoder": (2,), "cross": (2,)}
    assert (found.tokens, found.source_tokens) == (tuple("abcd"), tuple("xyz"))
    expected = saved["decoder.block.0.layer.1.EncDecAttention"][0, 1]
    np.testing.assert_array_equal(found["cross:0.1"], expected)


def test_lists_of_layers(own: Any, tmp_path: Path) -> None:
    same(av.read(maps(own), own.tokens), own)
    torch.save(maps(own), tmp_path / "attention.pt")
    same(av.read(tmp_path / "attention.pt", own.tokens), own)
    stack = np.stack([layer[0].numpy() for layer in maps(own)])
    same(av.read(stack, own.tokens), own)
    np.save(tmp_path / "all.npy", stack)
    same(av.read(tmp_path / "all.npy", own.tokens), own)


def test_a_numpy_folder_on_the_command_line(
    own: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n, layer in enumerate(maps(own)):
        np.save(tmp_path / f"layer_{n}.npy", layer[0].numpy())
    (tmp_path / "tokens.json").write_text(json.dumps(own.tokens))
    same(av.read(tmp_path), own)
    assert main(["heads", "--recorded", str(tmp_path), "--json"]) == 0
    assert " moon" in json.loads(capsys.readouterr().out)["tokens"]["decoder"]["queries"]["texts"]


@pytest.mark.parametrize(
    "name",
    [
        "layer_0.npz",
        *(pytest.param(f"layer_0.{kind}", marks=pytest.mark.slow) for kind in ("npy", "pt")),
    ],
)
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    command = [sys.executable, "-m", "attnviz", "heads", "--recorded"]
    for path in (tmp_path / name, *[tmp_path] * name.endswith(".npy")):
        done = subprocess.run(
            [*command, path], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 1
        assert f"{name}: it is not a regular file" in done.stderr or (
            f"{name} is not a regular file" in done.stderr
        )


def inseq(own: Any, start: int, plain: bool) -> dict[str, Any]:
    """What Inseq saves: [keys, generated words, layers, heads], NaN where a query saw nothing."""
    size = len(own.tokens)
    whole = np.stack([layer[0].numpy() for layer in maps(own)])  # [L, H, T, T]
    array = whole[:, :, start - 1 : size - 1].transpose(3, 2, 0, 1).copy()
    for column in range(array.shape[1]):
        array[start + column :, column] = np.nan
    written: Any = array.tolist()
    if not plain:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        written = base64.b64encode(save({"attribution": tensor})).decode()

    def wrapped(kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
        return attributes if plain else {
            "__instance_type__": ["inseq", kind], "attributes": attributes
        }  # fmt: skip

    tokens = [wrapped("TokenWithId", {"id": 5, "token": t.replace(" ", "Ġ")}) for t in own.tokens]
    sequence = wrapped("FeatureAttributionSequenceOutput", {
        "source": tokens[:start], "target": tokens, "source_attributions": None,
        "target_attributions": written, "sequence_scores": None,
        "attr_pos_start": start, "attr_pos_end": size,
    })  # fmt: skip
    return wrapped("FeatureAttributionOutput", {
        "info": {"attribution_method": "attention"}, "sequence_attributions": [sequence],
        "step_attributions": None,
    })  # fmt: skip


@pytest.mark.parametrize("plain", [True, False])
def test_inseq_attributions(own: Any, tmp_path: Path, plain: bool) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(inseq(own, 5, plain)))
    found = av.read(path)
    assert found.tokens == own.tokens[:-1]
    for site, weights in own.maps.items():
        assert not found.maps[site][:, :4].any()
        np.testing.assert_array_equal(found.maps[site][:, 4:], weights[:, 4:-1, :-1])
    assert "empty" in found.inputs.notes[0]


def test_inseq_by_another_method_is_refused(own: Any, tmp_path: Path) -> None:
    document = inseq(own, 5, True)
    document["info"]["attribution_method"] = "saliency"
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="'saliency', which are no attention"):
        av.read(path)


def served(own: Any) -> dict[str, Any]:
    """What a server with attention capture answers: [queries, heads, keys] in float16, packed."""
    size, entries = len(own.tokens), []
    for layer in (1, 3):
        weights = maps(own)[layer][0].permute(1, 0, 2).half().contiguous().numpy()
        data = base64.b64encode(gzip.compress(weights.tobytes())).decode()
        meta = {"prompt_len": size - 2, "total_len": size, "token_idx": [*range(size)]}
        entries.append({"layer_idx": layer, "shape": [*weights.shape], "dtype": "torch.float16",
                        "data": data, "token_meta": meta})  # fmt: skip
    content = [{"token": text, "logprob": -1.0} for text in (*own.tokens[-2:], " end")]
    choices = [{"message": {"content": "x"}, "logprobs": {"content": content}}]
    return {"model": "small", "choices": choices, "attn_capture_data": entries}


def test_a_server_s_attention_capture(own: Any, tmp_path: Path) -> None:
    path, texts = tmp_path / "answer.json", tmp_path / "tokens.json"
    path.write_text(json.dumps({"request": {}, "response": served(own)}))
    found = av.read(path)
    assert found.layout.heads["decoder"] == (0, 6, 0, 6)
    for site, weights in found.maps.items():
        np.testing.assert_allclose(weights, own.maps[site], rtol=0, atol=5e-4)
    assert (found.tokens[0], *found.tokens[-2:]) == ("0", *own.tokens[-2:])
    assert "causal mask" in " ".join(found.inputs.notes)
    texts.write_text(json.dumps(list(own.tokens)))
    assert main(["heads", "--recorded", str(path), "--tokens", str(texts), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": None}, "lacks data"), ({"token_meta": None}, "lacks token_meta"),
        ({"token_meta": {"total_len": 11}}, "is damaged"), ({"dtype": "bfloat16"}, "'bfloat16'"),
        ({"shape": [11, 66]}, "not .queries, heads, keys"), ({"shape": [11, 6, 12]}, "unpack"),
        ({"shape": [1 << 20, 1 << 20, 1]}, "more than"), ({"data": "AAAA"}, "is damaged"),
        ({"token_meta": {"total_len": 20, "prompt_len": 9}}, "has 12 of 20 tokens"),
        ({"layer_idx": 3}, "twice"), ({"layer_idx": 10**9}, "or is none"),
    ],
)  # fmt: skip
def test_a_capture_that_lacks_something_is_refused(
    own: Any, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    document, path = served(own), tmp_path / "a.json"
    entry = document["attn_capture_data"][0] | change
    document["attn_capture_data"][0] = {k: v for k, v in entry.items() if v is not None}
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=said):
        av.read(path)
    path.write_text(json.dumps({**document, "attn_capture_data": []}))
    with pytest.raises(InputError, match="without layers in attn_capture_data"):
        av.read(path)


class Dangerous:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


def test_no_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"blocks.0.attn.hook_pattern": Dangerous()}, "bad.pt")
    with pytest.raises(InputError, match="can run code and is not loaded"):
        av.read("bad.pt")
    np.save("bad.npy", np.array([Dangerous()], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"cannot read bad\.npy"):
        av.read("bad.npy")
    assert not Path("ran").exists()


def test_what_is_no_attention_is_refused(own: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no attention weights among these tensors"):
        av.read({"h.0.mlp": torch.zeros(1, 3, 8)})
    twice = {**cache(own), "x.blocks.0.attn.hook_pattern": maps(own)[0]}
    with pytest.raises(InputError, match="leave one of them out"):
        av.read(twice, own.tokens)
    with pytest.raises(InputError, match="expected 2 queries, one for each token"):
        av.read(cache(own), ["a", "b"])
    with pytest.raises(UsageError, match="no attention can be read from int"):
        av.read(3)
    av.write_capture(own, tmp_path / "own.npz")
    with pytest.raises(UsageError, match="has its own tokens"):
        av.read(tmp_path / "own.npz", own.tokens)
    assert main(["heads", "a b", "--tokens", "x"]) == 2


def test_an_item_of_a_batch(own: Any) -> None:
    two = {n: torch.cat([t, t.flip(1)]) for n, t in cache(own).items() if "pattern" in n}
    with pytest.raises(UsageError, match="choose one with item"):
        av.read(two, own.tokens)
    np.testing.assert_array_equal(av.read(two, own.tokens, item=1)["2.1"], own["2.4"])


def writer() -> Any:
    """The reference writer as it stands in the docs."""
    page = (ROOT / "docs" / "recording.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n# writer\.py\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 51
    names: dict[str, Any] = {}
    exec(code, names)
    return names["write_recording"]


def test_the_reference_writer_writes_what_is_read(own: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    stack = [layer[0] for layer in maps(own)]
    writer()(path, stack, own.tokens, model="my server", versions={"vllm": "0"})
    found = av.read(path)
    same(found, own)
    assert found.tokens == own.tokens
    assert found.source.model == "my server (mine.safetensors)"
    assert av.check(path).holds
    with pytest.raises(ValueError, match="unequal"):
        writer()(path, [[[[1.0], [0.5, 0.5]]]], ["a", "b"])


def test_the_reference_writer_writes_cross_attention(tmp_path: Path) -> None:
    path = tmp_path / "cross.safetensors"
    given = {"cross_attentions": [[[[0.25, 0.75]]]], "decoder_attentions": [[[[1.0]]]]}
    writer()(path, given, ["x"], ["p", "q"])
    found = av.read(path)
    assert found["cross:0.0"].tolist() == [[0.25, 0.75]]


@pytest.mark.skipif(not __import__("importlib.util").util.find_spec("transformer_lens"),
                    reason="transformer_lens is not installed")  # fmt: skip
def test_transformer_lens_itself(own: Any) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    folder = ROOT / "attnviz" / "models" / "demo" / "demo-gpt2"
    model = TransformerBridge.boot_transformers(str(folder), device="cpu")
    _, found = model.run_with_cache(TEXT)
    same(av.read(found, model.to_str_tokens(TEXT)), own, within=1e-5)
