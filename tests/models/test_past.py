"""A pass behind keys and values that were kept is the end of a whole pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import Cut, ForwardRequest
from attnviz.models import pretrained
from tests.models.test_cuts import IDS, load

HALF = 4


def last(source: Any, items: int = 1, **request: Any) -> Any:
    output = source.forward(
        [source.prepare(Prompt(ids=IDS))] * items,
        request=ForwardRequest(hidden=False, logits=True, **request),
    )
    return torch.as_tensor(output.logits)


@pytest.mark.parametrize(
    ("family", "backend"),
    [
        ("gpt2", "native"), ("gpt2", "hooked"), ("llama", "hooked"), ("mistral", "hooked"),
        ("gemma2", "hooked"), ("gpt_neox", "hooked"), ("phi", "hooked"), ("gpt_oss", "hooked"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("light", [True, False])
def test_the_end_of_a_pass_is_that_of_a_whole_one(
    family: str, backend: str, light: bool, folders: Any
) -> None:
    """With cuts of its own in every item, and without any."""
    source, _ = load(family, folders, backend)
    if light and not hasattr(source, "light"):
        pytest.skip("one kind of arrays")
    source = getattr(source, "light") if light else source  # noqa: B009
    assert source.continues
    whole = source.forward(
        [source.prepare(Prompt(ids=IDS))],
        request=ForwardRequest(hidden=False, logits=True, keep=True),
    )
    assert whole.past is not None
    assert whole.past.length == len(IDS)
    past = whole.past.first(HALF)
    torch.testing.assert_close(last(source, past=past), last(source)[:, HALF:], rtol=0, atol=1e-5)
    rows, keys = (torch.zeros(2, len(IDS), dtype=torch.bool) for _ in range(2))
    rows[:, HALF:] = keys[0, 1:3] = keys[1, 2:5] = True
    cuts = {
        Site("decoder", layer): Cut(torch.ones(1, count, dtype=torch.bool), rows, keys)
        for layer, count in enumerate(source.layout.heads["decoder"])
    }
    want = last(source, 2, cuts=cuts)
    assert (want[0] - want[1]).abs().max() > 1e-3
    got = last(source, 2, cuts=cuts, past=past)
    torch.testing.assert_close(got, want[:, HALF:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "lfm2", "bart"])
def test_who_cannot_says_so(family: str, folders: Any) -> None:
    """A text read in both directions, layers with a state of their own, two stacks."""
    source = pretrained.load(str(folders(family, 8.0, words=True)), backend="hooked")
    assert not source.continues


def test_fresh_layers_do_not() -> None:
    assert not av.load(av.FreshConfig(causal=True)).continues
