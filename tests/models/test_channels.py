"""Layers with a coefficient for every channel, lightning attention, and models without attention.

Coefficients are beside derivatives of a recurrence that is run token by token, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attnviz as av
from attnviz.attention.linear import ChannelRecurrence, SelectiveScan, WeightedKeys
from attnviz.cli import main
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.errors import ModelError
from attnviz.models.hooked.recurrences import recording
from tests.families import IDS, built
from tests.features.test_new_families import COMMANDS, TEXT

CONFIG_MAPPING = pytest.importorskip("transformers").CONFIG_MAPPING

T, D, N = 9, 5, 3
Step = Callable[[Tensor], Tensor]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def selective() -> tuple[ChannelRecurrence, Step]:
    """A scan and the same token by token, from values [B, T, D]."""
    torch.manual_seed(0)
    query, key, step = drawn(2, T, N), drawn(2, T, N), drawn(2, T, D).exp()
    decay, skip, value = -drawn(D, N).exp(), drawn(D), drawn(2, 1, T, D)
    made = SelectiveScan(value, query, key, decay, step, skip)

    def stepwise(x: Tensor) -> Tensor:
        state, out = x.new_zeros(2, D, N), []
        for t in range(T):
            state = (step[:, t, :, None] * decay).exp() * state
            state = state + (step[:, t] * x[:, t])[..., None] * key[:, t, None]
            out.append((state * query[:, t, None]).sum(-1) + skip * x[:, t])
        return torch.stack(out, 1)

    return made, stepwise


def weighted() -> tuple[ChannelRecurrence, Step]:
    """RWKV-4's sum and the same token by token."""
    torch.manual_seed(0)
    key, decay, bonus, value = drawn(2, T, D), drawn(D).exp(), drawn(D), drawn(2, 1, T, D)
    made = WeightedKeys(value, key, decay, bonus)

    def stepwise(x: Tensor) -> Tensor:
        above, below, out = x.new_zeros(2, D), x.new_zeros(2, D), []
        for t in range(T):
            own = (bonus + key[:, t]).exp()
            out.append((above + own * x[:, t]) / (below + own))
            above = (-decay).exp() * above + key[:, t].exp() * x[:, t]
            below = (-decay).exp() * below + key[:, t].exp()
        return torch.stack(out, 1)

    return made, stepwise


@pytest.mark.parametrize("rows", [None, 1, 4])
@pytest.mark.parametrize("make", [selective, weighted])
def test_coefficients_are_the_derivatives_of_the_recurrence(make: Any, rows: int | None) -> None:
    made, stepwise = make()
    value = made.value[:, 0]
    torch.testing.assert_close(made.output()[:, 0], stepwise(value))
    slopes: Any = torch.autograd.functional.jacobian(stepwise, value)
    slopes = torch.stack([slopes[b, :, :, b] for b in range(2)])  # [B, T, D, S, D]
    own = slopes.diagonal(dim1=2, dim2=4)  # [B, T, S, D]
    crossed = slopes - torch.diag_embed(own).permute(0, 1, 3, 2, 4)
    assert not crossed.any()  # no channel reads another
    maps = torch.zeros(2, 1, T, T, dtype=torch.float64)
    for start, block in made.blocks(rows):
        maps[:, :, start : start + block.shape[2], : block.shape[3]] = block
    torch.testing.assert_close(maps[:, 0], own.square().mean(-1).sqrt())
    if make is weighted:
        torch.testing.assert_close(own.sum(2), torch.ones_like(own[:, :, 0]))


@pytest.mark.parametrize(("name", "rule"), [
    ("mamba", "Mamba"), ("falcon_mamba", "Mamba"), ("jamba", "Mamba"), ("rwkv", "RWKV-4"),
])  # fmt: skip
def test_maps_of_families_are_over_channels_that_give_what_the_layer_gave(
    name: str, rule: str
) -> None:
    source = av.load(built(CONFIG_MAPPING[name]))
    gave: dict[int, tuple[Any, Tensor]] = {}
    with recording(source.body, lambda n, known, out: gave.update({n: (known, out)})):
        source.forward([source.prepare(TEXT)])
    capture = av.capture(TEXT, model=source, quantity="linear")
    assert [site.layer for site in capture.maps] == sorted(gave)
    for layer, (known, output) in gave.items():
        assert known.name == rule
        apart = (known.output() - output).abs().max() / output.abs().max()
        assert float(apart) < 1e-5
        ((_, block),) = known.blocks(len(IDS))
        np.testing.assert_allclose(capture.maps[Site("decoder", layer)], block[0], rtol=1e-5)


def test_lightning_attention_is_what_its_formula_says() -> None:
    """From the layer's weights and the decay of MiniMax-01's equation, in float64."""
    model = built(CONFIG_MAPPING["minimax"])
    (layer,) = (own for own in model.model.layers if hasattr(own.self_attn, "slope_rate"))
    own = layer.self_attn
    kept: dict[str, Tensor] = {}
    own.register_forward_pre_hook(
        lambda m, a, k: kept.update(x=k["hidden_states"]), with_kwargs=True
    )
    own.norm.register_forward_pre_hook(lambda m, a: kept.update(gave=a[0]))
    model(torch.tensor([IDS]))
    heads, width, length = 4, 4, len(IDS)
    qkv = F.silu(kept["x"][0].double() @ own.qkv_proj.weight.double().T)
    q, k, v = qkv.view(length, heads, 3, width).unbind(2)
    number, layers = own.layer_idx, len(model.model.layers)
    scores = torch.einsum("thd,shd->hts", q, k)
    for head in range(heads):
        slope = 2 ** (-8 * (head + 1) / heads) * (1 - number / (layers - 1 + 1e-5) + 1e-5)
        away = torch.arange(length)[:, None] - torch.arange(length)
        scores[head] *= (-slope * away.double()).exp() * (away >= 0)
    capture = av.capture(TEXT, model=model, quantity="linear")
    (maps,) = capture.maps.values()
    np.testing.assert_allclose(maps, scores, atol=1e-5 * float(scores.abs().max()))
    made = torch.einsum("hts,shd->thd", torch.as_tensor(maps).double(), v).flatten(1)
    apart = (made - kept["gave"][0].double()).abs().max() / kept["gave"].abs().max()
    assert float(apart) < 1e-5


@pytest.fixture(scope="module")
def mamba2() -> Any:
    return built(CONFIG_MAPPING["mamba2"])


def test_a_model_without_attention_has_its_coefficients_and_says_so_elsewhere(mamba2: Any) -> None:
    source = av.load(mamba2)
    assert len(source.layout) == 0
    assert source.layout.mixers == ("Mamba-2",) * 3
    result = av.heads(TEXT, model=source, quantity="linear")
    assert len(result.heads) == 12
    assert av.heatmap(TEXT, model=source, quantity="linear").maps
    for name, run in COMMANDS.items():
        if name == "linear":
            continue
        with pytest.raises(av.AttnvizError) as refusal:
            run(source)
        assert "\n" not in refusal.value.message
        assert "attend" in refusal.value.message or "attention" in refusal.value.message, name
    with pytest.raises(ModelError, match=r"only layers with a state \(Mamba-2\)"):
        av.heads(TEXT, model=source)


def test_a_folder_of_such_a_model(
    mamba2: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mamba2.save_pretrained(tmp_path)
    ids = ",".join(map(str, IDS))
    capsys.readouterr()
    assert main(["heads", "--ids", ids, "--model", str(tmp_path), "--quantity", "linear"]) == 0
    assert "|coefficient of v|" in capsys.readouterr().out
    assert main(["heads", "--ids", ids, "--model", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "see their coefficients with --quantity linear" in told.err
    assert told.err.count("\n") == 1


def test_a_scan_in_several_parts_is_refused_with_the_reason() -> None:
    """Zamba, which scans half of the channels after the other."""
    source = av.load(built(CONFIG_MAPPING["zamba"]))
    with pytest.raises(ModelError, match="in several parts"):
        av.heatmap(Prompt(ids=IDS), model=source, quantity="linear")
