"""The figures of docs/same-word.md, from transformers alone in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.models.demo import DEMOS
from attnviz.statistics.order import spearman
from tests import ROOT

TEXT = "the cat river moon stone bread the cat river moon stone"
PAGE = " ".join((ROOT / "docs" / "same-word.md").read_text("utf-8").split()).replace("−", "-")


@pytest.fixture(scope="module")
def model() -> Any:
    return transformers.GPT2LMHeadModel.from_pretrained(
        DEMOS["demo-gpt2"], dtype=torch.float64, attn_implementation="eager"
    ).eval()


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.tensor([av.capture(TEXT).inputs.sides["decoder"].queries.ids])


def said(pattern: str) -> float:
    (found,) = re.findall(pattern, PAGE)
    return float(found)


@torch.no_grad()
def test_constants_that_are_counted_as_bias_elsewhere(model: Any, ids: Any) -> None:
    kept: dict[str, Any] = {}
    body = model.transformer
    hook = body.ln_f.register_forward_pre_hook(lambda _, x: kept.update(end=x[0][0, -1]))
    logits = model(ids).logits[0, -1]
    hook.remove()
    word, norm = int(logits.argmax()), body.ln_f
    found = av.logits(TEXT)
    assert found.predictions[0].id == word
    spread = (kept["end"].var(unbiased=False) + norm.eps).sqrt()
    ahead = norm.weight * model.lm_head.weight[word]
    toward, width = (ahead - ahead.mean()) / spread, model.config.n_embd
    constants = []
    for block in body.h:
        values = block.attn.c_attn.weight[:, 2 * width :]
        bias = block.attn.c_attn.bias[2 * width :] + block.ln_1.bias @ values
        for some in torch.arange(width).chunk(model.config.n_head):
            constants.append(abs(float(bias[some] @ block.attn.c_proj.weight[some] @ toward)))
    assert round(max(constants), 2) == said(r"up to ([\d.]+) logits for one head")
    last = float(norm.bias @ model.lm_head.weight[word])
    own = next(p.value for p in found.parts if p.kind == "bias" and p.layer is None)
    assert own == pytest.approx(last, abs=1e-4)
    assert round(float(logits[word]), 2) == said(r"of ([\d.]+) logits \| \| a logit")
    assert round(float(logits[word]) - last, 2) == said(r"([\d.]+) of [\d.]+ logits \| \| a logit")


@torch.no_grad()
def test_a_slice_behind_w_o_is_no_head(model: Any, ids: Any) -> None:
    word = int(model(ids).logits[0, -1].argmax())
    base = float(model(ids).logits[0, -1, word])

    def without(some: Any, x: Any) -> Any:
        x = x.clone()
        x[..., some] = 0
        return x

    true, wrong = [], []
    for block in model.transformer.h:
        out = block.attn.c_proj
        for some in torch.arange(model.config.n_embd).chunk(model.config.n_head):
            hook = out.register_forward_pre_hook(lambda _, x, some=some: (without(some, x[0]),))
            true.append(float(model(ids).logits[0, -1, word]) - base)
            hook.remove()
            hook = out.register_forward_hook(lambda _, x, y, some=some: without(some, y))
            wrong.append(float(model(ids).logits[0, -1, word]) - base)
            hook.remove()
    rho = spearman(np.array(true), np.array(wrong))
    assert rho is not None
    assert round(rho, 2) == said(r"over the 24 heads (-[\d.]+)")
    assert round(wrong[10], 1) == said(r"1\.4: (-[\d.]+) in place of")
    assert round(true[10], 1) == said(r"in place of (-[\d.]+) logits")
