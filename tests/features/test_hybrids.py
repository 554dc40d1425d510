"""Models whose layers are not all attention (Qwen3-Next, tiny): what lens, patch and paths say."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from tests.families import IDS, built, families
from tests.features.patch.test_patch import Pair, PlainLoop, patch

pytest.importorskip("transformers")

PAIRS = [
    Pair((7, 21, 30, 4, 18, 11), (7, 21, 9, 4, 18, 11), 5, 12),
    Pair((5, 9, 2, 31, 17, 3), (5, 9, 8, 31, 16, 3), 7, 6),
]


@pytest.fixture(scope="module")
def hybrid() -> tuple[Source, Any]:
    model = built(dict(families())["qwen3_next"])
    exact = copy.deepcopy(model)
    exact.set_experts_implementation("eager")  # the others know no float64
    return av.load(model), exact


def test_states_are_sums_of_heads_mixers_and_mlps(hybrid: tuple[Source, Any]) -> None:
    found = av.lens(Prompt(ids=IDS), model=hybrid[0], position=-1)
    assert found.reason == ""
    assert [cell.layer for cell in found.cells] == [None, 0, 1, 2]
    for cell in found.cells:
        assert cell.added is not None
        parts = (*cell.added.heads, cell.added.before, cell.added.bias, cell.added.mlp,
                 cell.added.mixer, cell.added.constant)  # fmt: skip
        assert sum(parts) == pytest.approx(cell.top[0].logit, abs=1e-5)
        assert len(cell.added.heads) == (4 if cell.layer == 1 else 0)
        assert (cell.added.mixer != 0) == (cell.layer in (0, 2))


def test_heads_are_read_out(hybrid: tuple[Source, Any]) -> None:
    found = av.lens(Prompt(ids=IDS), model=hybrid[0], by="head")
    assert [one.head.name for one in found.heads] == ["1.0", "1.1", "1.2", "1.3"]
    assert all(one.norm > 0 for one in found.heads)


def test_heads_are_patched_as_by_a_plain_loop() -> None:
    """Of Bamba, whose heads go to W_O as they are."""
    model = built(dict(families())["bamba"])
    exact = copy.deepcopy(model)
    modules = [layer.self_attn.o_proj if hasattr(layer, "self_attn") else None
               for layer in exact.model.layers]  # fmt: skip
    loop = PlainLoop(exact, modules, 4)
    found = patch(PAIRS, model=av.load(model))
    assert [effect.name for effect in found.effects] == ["1.0", "1.1", "1.2", "1.3"]
    for number, effect in enumerate(found.effects):
        assert effect.denoise is not None
        expected = loop.shares(PAIRS, 1, number)[0]
        assert effect.denoise.share == pytest.approx(expected, abs=1e-4)


def test_what_leaves_the_last_layer_carries_everything(hybrid: tuple[Source, Any]) -> None:
    found = patch(PAIRS, model=hybrid[0], component="residual")
    assert found.effects[-1].name == "residual 3"
    assert found.effects[-1].denoise is not None
    assert found.effects[-1].denoise.share == pytest.approx(1, abs=1e-5)


def test_an_mlp_behind_a_mixer_is_what_a_plain_hook_puts_in_its_place(
    hybrid: tuple[Source, Any],
) -> None:
    source, model = hybrid
    loop = PlainLoop(copy.deepcopy(model), [], 4)
    found = {effect.name: effect for effect in patch(PAIRS, model=source, component="mlp").effects}
    for number, layer in enumerate(loop.model.model.layers):
        restored = gap = 0.0
        for pair in PAIRS:
            clean, corrupted = (loop.difference(pair, ids) for ids in (pair.clean, pair.corrupted))
            kept: list[Any] = []
            hook = layer.mlp.register_forward_hook(lambda m, a, out, kept=kept: kept.append(out))
            loop.difference(pair, pair.clean)
            hook.remove()
            hook = layer.mlp.register_forward_hook(lambda m, a, out, kept=kept: kept[0])
            restored += loop.difference(pair, pair.corrupted) - corrupted
            gap += clean - corrupted
            hook.remove()
        own = found[f"MLP {number}"].denoise
        assert own is not None
        assert own.share == pytest.approx(restored / gap, abs=1e-4)


def test_paths_skip_what_is_between(hybrid: tuple[Source, Any]) -> None:
    """A head's difference goes straight to the logits, past the mixer and the MLPs."""
    source, model = hybrid
    found = patch(PAIRS, model=source, paths="1.2 -> logits")
    exact = copy.deepcopy(model).double()
    projection, norm = exact.model.layers[1].self_attn.o_proj, exact.model.norm
    kept: dict[str, Any] = {}
    projection.register_forward_pre_hook(lambda m, args: kept.update(z=args[0]))
    norm.register_forward_pre_hook(lambda m, args: kept.update(x=args[0]))
    width = projection.weight.shape[1] // 4
    columns = slice(2 * width, 3 * width)

    def run(ids: Any) -> tuple[Any, Any]:
        with torch.no_grad():
            exact(torch.tensor([ids]))
        return kept["z"][..., columns] @ projection.weight[:, columns].T, kept["x"]

    def lead(pair: Any, x: Any) -> float:
        with torch.no_grad():
            logits = exact.lm_head(norm.forward(x))[0, -1]
        return float(logits[pair.answer] - logits[pair.against])

    restored = gap = 0.0
    for pair in PAIRS:
        (theirs, clean), (own, corrupted) = run(pair.clean), run(pair.corrupted)
        restored += lead(pair, corrupted + theirs - own) - lead(pair, corrupted)
        gap += lead(pair, clean) - lead(pair, corrupted)
    (path,) = found.edges
    assert path.denoise is not None
    assert path.denoise.share == pytest.approx(restored / gap, abs=1e-4)


def test_scores_have_what_layers_without_attention_add_as_one_source(
    hybrid: tuple[Source, Any],
) -> None:
    result = av.sources(Prompt(ids=IDS), model=hybrid[0], select="1.0")
    assert result.sum == pytest.approx(result.score, abs=1e-4)
    assert "mixer 0" in [origin.name(result.layout) for origin in result.key_origins]
