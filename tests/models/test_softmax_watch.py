"""Heads that a loop takes one by one; layers with a state, their coefficients, maps of hybrids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.attention.linear import Recurrence
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.drawing.labels import cell_number
from attnviz.drawing.shades import binned, shades
from attnviz.errors import ModelError, UsageError
from attnviz.models.hooked.recurrences import recording
from attnviz.models.recorded.reading import load
from tests.models.tiny import GROUPED, LONG, NARROW, SHORT, transformers, uneven

B, T, D, H = 3, 6, 16, 4


class Looped(nn.Module):
    """A loop over the heads of one matrix, whose scores or results are put together."""

    def __init__(self, style: str, shared: bool) -> None:
        super().__init__()
        self.style, self.groups = style, 1 if shared else H
        self.query, self.out = nn.Linear(D, D), nn.Linear(D, D)
        self.both = nn.Linear(D, 2 * self.groups * (D // H))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.query(x).unflatten(-1, (H, -1))
        k, v = self.both(x).unflatten(-1, (self.groups, 2, -1)).unbind(3)
        q = torch.stack([-q[..., 1::2], q[..., ::2]], -1).flatten(-2) + q  # as rotary positions do
        k, v = (y.repeat_interleave(H // self.groups, 2) for y in (k, v))
        heads = [(q[:, :, n], k[:, :, n], v[:, :, n]) for n in range(H)]
        if self.style.startswith("slices"):
            cuts = [[*y.flatten(2).split(D // H, -1)] for y in (q, k, v)]
            heads = [*zip(*cuts, strict=True)]
        scores = [a @ b.mT for a, b, _ in heads]
        if self.style.endswith("scores"):
            weights = torch.stack(scores, 1).softmax(-1)
            z = (weights @ v.transpose(1, 2)).transpose(1, 2)
        else:
            one_by_one = [a.softmax(-1) for a in scores]
            weights = torch.stack(one_by_one, 1)
            z = torch.zeros_like(q)
            results = [w @ y for w, (_, _, y) in zip(one_by_one, heads, strict=True)]
            for n, result in enumerate(results):
                z[:, :, n] = result
            z = z if self.style == "written" else torch.stack(results, 2)
        self.seen, self.z = weights.detach(), z.flatten(2).detach()
        return self.out(z.flatten(2))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("style", ["scores", "results", "written", "slices", "slices, scores"])
def test_heads_of_one_matrix_that_a_loop_takes_one_by_one_are_one_layer(
    style: str, shared: bool
) -> None:
    torch.manual_seed(0)
    module, x = Looped(style, shared), torch.randn(B, T, D)
    with torch.no_grad(), av.watch(module) as watched:
        module(x)
        seen, z = module.seen, module.z.clone()
        with watched.ablate("0.1"):
            gated = module(x)
    z.unflatten(-1, (H, -1))[:, :, 1] = 0
    torch.testing.assert_close(gated, module.out(z), atol=1e-6, rtol=1e-5)
    with av.watch(module) as watched:
        module(x)
    for item in range(B):
        capture = watched.capture(item=item)
        assert capture.layout.heads == {"encoder": (H,)}
        np.testing.assert_allclose(capture.maps[Site("encoder", 0)], seen[item], atol=1e-6)


LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 4,
          "linear_value_head_dim": 6, "linear_conv_kernel_dim": 3,
          "layer_types": ["linear_attention", "full_attention", "linear_attention"]}  # fmt: skip
SCAN = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 6, "mamba_expand": 2,
        "mamba_chunk_size": 4}  # fmt: skip
THREE = {**NARROW, "num_hidden_layers": 3}
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
          "shared_expert_intermediate_size": 8, "mlp_only_layers": [0, 1, 2]}  # fmt: skip
HYBRIDS: dict[str, tuple[str, dict[str, Any], dict[int, int]]] = {
    "qwen3_next": ("Qwen3Next", {**THREE, **LINEAR, **SPARSE}, {0: 4, 2: 4}),
    "qwen3_5": ("Qwen3_5Text", {**THREE, **LINEAR}, {0: 4, 2: 4}),
    "olmo_hybrid": ("OlmoHybrid", {**THREE, **LINEAR, "linear_num_key_heads": 4}, {0: 4, 2: 4}),
    "bamba": ("Bamba", {**THREE, **SCAN, "mamba_n_groups": 2, "attn_layer_indices": [1],
                        "attn_rotary_emb": 2}, {0: 4, 2: 4}),
    "falcon_h1": ("FalconH1", {**THREE, **SCAN, "mamba_n_groups": 1, "mamba_d_ssm": 32},
                  {0: 4, 1: 4, 2: 4}),
    "kimi_linear": ("KimiLinear", {**GROUPED, "num_key_value_heads": 4, "num_hidden_layers": 3,
                                   "layer_types": LINEAR["layer_types"], "kv_lora_rank": 8,
                                   "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4,
                                   "linear_head_dim": 4, "linear_num_heads": 4,
                                   "linear_conv_kernel_dim": 3,
                                   "mlp_layer_types": ["dense"] * 3}, {0: 4, 2: 4}),
    "nemotron_h": ("NemotronH", {**GROUPED, "layers_block_type": ["mamba", "attention", "mlp"],
                                 "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8,
                                 "n_groups": 2, "chunk_size": 4}, {0: 4}),
}  # fmt: skip


def made(name: str) -> Any:
    """A tiny random hybrid."""
    kind, sizes, _ = HYBRIDS[name]
    if not hasattr(transformers, f"{kind}Config"):
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    return uneven(model).requires_grad_(False)


def drawn(length: int, *, diagonal: bool = False) -> dict[str, Tensor]:
    """Random queries, keys, values, decays and gates of two heads, in float64."""
    torch.manual_seed(1)
    key = torch.nn.functional.normalize(torch.randn(2, 2, length, 4).double(), dim=-1)
    width = (4,) if diagonal else ()
    return {
        "query": torch.randn(2, 2, length, 4).double(),
        "key": key,
        "value": torch.randn(2, 2, length, 3).double(),
        "decay": -torch.rand(2, 2, length, *width).double(),
        "write": torch.rand(2, 2, length).double(),
    }


def stepwise(parts: dict[str, Tensor], *, erases: bool) -> Tensor:
    """The outputs of the recurrence as it is written, token by token."""
    q, k, v, decay, write = parts.values()
    state = q.new_zeros(*q.shape[:2], v.shape[-1], q.shape[-1])
    outputs = []
    for t in range(q.shape[2]):
        alpha = decay[:, :, t].exp()
        state = state * (alpha[..., None, None] if alpha.ndim == 2 else alpha[:, :, None])
        held = (state @ k[:, :, t, :, None])[..., 0] if erases else 0
        new = write[:, :, t, None] * (v[:, :, t] - held)
        state = state + new[..., None] * k[:, :, t, None]
        outputs.append((state @ q[:, :, t, :, None])[..., 0])
    return torch.stack(outputs, 2)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("rows", [None, 1, 4])
def test_coefficients_times_values_are_what_the_delta_rule_gives(
    diagonal: bool, rows: int | None
) -> None:
    parts = drawn(9, diagonal=diagonal)
    recurrence = Recurrence(**parts, erases=True)
    torch.testing.assert_close(recurrence.output(), stepwise(parts, erases=True))
    whole = torch.zeros(2, 2, 9, 9).double()
    for start, block in recurrence.blocks(rows):
        whole[:, :, start : start + block.shape[2], : block.shape[3]] = block
    torch.testing.assert_close(whole @ parts["value"], stepwise(parts, erases=True))
    assert not whole.triu(1).any()
    assert (whole < 0).any()


def test_coefficients_times_values_are_what_a_scan_gives() -> None:
    parts = drawn(9)
    recurrence = Recurrence(**parts, erases=False)
    torch.testing.assert_close(recurrence.output(), stepwise(parts, erases=False))
    skip = torch.tensor([0.5, -2.0]).double()
    more = Recurrence(**parts, erases=False, skip=skip).output()
    torch.testing.assert_close(
        more, stepwise(parts, erases=False) + skip[:, None, None] * parts["value"]
    )


def test_what_was_written_last_under_a_key_is_recalled() -> None:
    """Keys a, b, a, c, then queries a, b: the second a has replaced the first."""
    key = torch.eye(4)[[0, 1, 0, 2, 3, 3]].double()[None, None]
    query = torch.eye(4)[[3, 3, 3, 3, 0, 1]].double()[None, None]
    ones = torch.ones(1, 1, 6).double()
    recurrence = Recurrence(query, key, ones[..., None], 0 * ones, ones, erases=True)
    _, block = next(recurrence.blocks())
    assert block[0, 0, 4].tolist() == [0, 0, 1, 0, 0, 0]
    assert block[0, 0, 5].tolist() == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("name", HYBRIDS)
def test_maps_of_a_hybrid_times_its_values_are_what_its_layers_give(name: str) -> None:
    source = av.load(made(name))
    layers = HYBRIDS[name][2]
    truth: dict[int, tuple[Recurrence, Tensor]] = {}
    with recording(source.body, lambda n, recurrence, out: truth.update({n: (recurrence, out)})):
        source.forward([source.prepare(Prompt(ids=LONG))])
    capture = av.capture(Prompt(ids=LONG), model=source, quantity="linear")
    assert {head.layer for head in capture.layout} == set(layers)
    for layer, heads in layers.items():
        recurrence, output = truth[layer]
        maps = torch.stack(
            [torch.as_tensor(capture[Head(Site("decoder", layer), n)]) for n in range(heads)]
        )
        gave = maps @ recurrence.value[0]
        apart = (gave - output[0]).abs().max() / output.abs().max()
        assert float(apart) < 1e-5
        assert bool((maps < 0).any())


def test_a_hybrid_runs_as_before_when_nobody_listens() -> None:
    model = made("qwen3_next")
    ids = torch.tensor([LONG])
    before = model(ids).logits
    av.capture(Prompt(ids=LONG), model=av.load(model), quantity="linear")
    assert torch.equal(model(ids).logits, before)


def test_heads_score_sizes_and_heatmap_has_signs(tmp_path: Any) -> None:
    source = av.load(made("qwen3_next"))
    result = av.heads(Prompt(ids=LONG), model=source, quantity="linear")
    assert [result.layout.name(head.head) for head in result.heads] == [
        f"{layer}.{n}" for layer in (0, 2) for n in range(4)
    ]
    assert "|coefficient of v|" in str(result)
    capture = av.capture(Prompt(ids=LONG), model=source, quantity="linear")
    sizes = abs(capture["0.1"])
    own = (sizes / sizes.sum(-1, keepdims=True)).diagonal()[1:].mean()
    score = next(head for head in result.heads if head.head.name == "0.1").scores["self"]
    assert score.mean == pytest.approx(float(own), rel=1e-4)
    av.write_capture(capture, tmp_path / "maps.npz")
    kept = load(tmp_path / "maps.npz")
    assert np.array_equal(kept[capture.layout.head("0.1")], capture["0.1"])
    again = av.heads(kept)
    assert again.heads[1].scores["self"].mean == pytest.approx(score.mean, rel=1e-4)
    picture = av.heatmap(Prompt(ids=LONG), "0.1", model=source, quantity="linear")
    assert picture.style.palette == "signed"
    drawn_map = picture.maps[0][1]
    placed = shades(drawn_map, picture.style)
    least = np.unravel_index(drawn_map.argmin(), drawn_map.shape)
    assert placed[least] < 0.5 < placed.max()
    assert float(np.abs(placed[np.isclose(drawn_map, 0)] - 0.5).max()) < 1e-3
    assert max(placed.max(), 1 - placed.min()) == pytest.approx(1.0)
    assert [text for _, text in picture.style.ticks(1.0)][::5] == ["−1.0", "0", "1.0"]
    picture.save(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 2000


def test_cells_of_many_tokens_show_what_is_furthest_from_nothing() -> None:
    grid = np.array([[0.5, 0.6], [0.1, 0.5]])
    assert binned(grid, 2, 2, signed=True) == [[0.1]]
    assert binned(grid, 2, 2) == [[0.6]]
    assert (cell_number(-0.25), cell_number(-0.001)) == ("−.25", ".")


def test_what_has_no_such_layers_or_no_signs_is_refused() -> None:
    prompt = Prompt(ids=SHORT)
    with pytest.raises(ModelError, match="none of its layers runs"):
        av.heads(prompt, model=av.load(gpt2()), quantity="linear")
    with pytest.raises(ModelError, match="has none"):
        av.heads("a b c", quantity="linear")
    with pytest.raises(UsageError, match="has signs"):
        av.view("a b c", quantity="linear")


def gpt2() -> Any:
    """A model without a state."""
    return transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(**GROUPED)
    ).requires_grad_(False)
