"""docs/watching.md from its first line to its last, as one script, and what its recipes draw."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest
import torch

from tests import ROOT

PAGE = (ROOT / "docs" / "watching.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the page's script leaves; every block prints what stands below it."""
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) >= 8
    for code, told in blocks:
        with redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        assert out.getvalue() == told
    return names


def test_heads_are_taken_away_and_gates_get_a_gradient(names: dict[str, Any]) -> None:
    assert not torch.equal(names["without"], names["plain"])
    assert names["gates"].grad.abs().min() > 0


@torch.no_grad()
def test_word_maps_are_what_places_give_to_words(names: dict[str, Any]) -> None:
    """Of one more step, beside the block's own projections in float64."""
    block, text, noise = (names[name] for name in ("block", "text", "noise"))
    with names["av"].watch(block) as watched:
        block(text, noise)
    (found,) = names["word_maps"](watched, names["tokens"], (4, 4))
    q, k, _ = (
        torch.cat([block.text(text), block.picture(noise)], 1).double()
        .unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
    )  # fmt: skip
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)[0].mean(0)[3:, :3]
    np.testing.assert_allclose(found[0], weights.T.reshape(3, 4, 4).numpy(), atol=1e-6)
    assert names["last"].inputs.picture.rows == 4


@torch.no_grad()
@pytest.mark.parametrize("first", [16, 0])
def test_joint_attention_of_diffusers(
    first: int, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words behind the places (SD3) or before them (Flux): as what the function is called with."""
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    sizes = {"in_channels": 4, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16,
             "joint_attention_dim": 16, "pooled_projection_dim": 16}  # fmt: skip
    text, pooled = torch.randn(1, 3, 16), torch.randn(1, 16)
    sd3 = {"sample_size": 8, "caption_projection_dim": 32, "pos_embed_max_size": 8}
    flux = {"num_single_layers": 1, "axes_dims_rope": (4, 4, 8)}

    def denoised() -> Any:
        torch.manual_seed(1)
        if first:
            model = diffusers.SD3Transformer2DModel(out_channels=4, **sizes, **sd3).eval()
            return names["denoised"](model, torch.randn(1, 4, 8, 8), text, pooled)
        model = diffusers.FluxTransformer2DModel(**sizes, **flux).eval()
        given = {"encoder_hidden_states": text, "pooled_projections": pooled,
                 "img_ids": torch.rand(16, 3), "txt_ids": torch.zeros(3, 3)}  # fmt: skip
        with names["av"].watch(model, passes=2) as watched:
            for time in (1.0, 0.5):
                model(torch.randn(1, 16, 4), timestep=torch.tensor([time]), **given)
        return watched

    asked: list[torch.Tensor] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def kept(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **more: Any) -> Any:
        scores = query.double() @ key.double().mT / query.shape[-1] ** 0.5
        asked.append(scores.softmax(-1)[0].mean(0))
        return real(query, key, value, **more)

    tokens = [*[None] * first, "a", "red", "cup", *[None] * (16 - first)]
    found = names["word_maps"](denoised(), tokens, (4, 4))
    with monkeypatch.context() as patched:
        patched.setattr(torch.nn.functional, "scaled_dot_product_attention", kept)
        denoised()
    known = torch.stack(asked).reshape(2, -1, 19, 19)
    rows, columns = (slice(16), slice(16, 19)) if first else (slice(3, 19), slice(3))
    expected = known[:, :, rows, columns].mT.unflatten(-1, (4, 4)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
