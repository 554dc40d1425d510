"""Families of 2025 and 2026, tiny and random: every command gives a result or says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.result import Result
from attnviz.errors import AttnvizError
from tests import families

IDS = families.IDS
OTHER = (*IDS[:4], 8, *IDS[5:])
TEXT = Prompt(ids=IDS)
HYBRIDS = ("qwen3_next", "qwen3_5_text", "kimi_linear", "olmo_hybrid", "bamba", "falcon_h1")
FAMILIES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in ("qwen3_next", "deepseek_v32")))
    for name in (*HYBRIDS, "deepseek_v32", "gpt_oss")
]

COMMANDS: dict[str, Callable[[Any], Any]] = {
    "heads": lambda model: av.heads(TEXT, model=model),
    "heatmap": lambda model: av.heatmap(TEXT, model=model),
    "view": lambda model: av.view(TEXT, model=model),
    "logits": lambda model: av.logits(TEXT, model=model),
    "ablate": lambda model: av.ablate(TEXT, model=model, method="zero"),
    "patch": lambda model: av.patch([av.Pair(IDS, OTHER, 5, 9)], model=model),
    "lens": lambda model: av.lens(TEXT, model=model),
    "flow": lambda model: av.flow(TEXT, model=model),
    "sources": lambda model: av.sources(TEXT, select="1.0", model=model),
    "circuits": lambda model: av.circuits(model=model),
    "linear": lambda model: av.heatmap(TEXT, model=model, quantity="linear"),
}
REFUSED = {
    ("kimi_linear", "circuits"): "its values are not what one matrix makes",
    ("deepseek_v32", "circuits"): "its values are not what one matrix makes",
    ("deepseek_v32", "linear"): "no map of a layer with a state",
    ("gpt_oss", "linear"): "no map of a layer with a state",
}
"""What is said of what cannot be done."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_command_gives_a_result_or_says_why_not(family: str) -> None:
    kinds = dict(families.families())
    if family not in kinds:
        pytest.skip(f"this transformers has no {family}")
    source = av.load(families.built(kinds[family]))
    for name, run in COMMANDS.items():
        why = REFUSED.get((family, name))
        if why is None:
            result = run(source)
            assert result is not None, name
            if isinstance(result, Result) and name != "patch":
                assert result.layout == source.layout, name
            continue
        with pytest.raises(AttnvizError, match=why) as refusal:
            run(source)
        assert "\n" not in refusal.value.message
