"""Reports of people who have weights and want to see them: arrays, files, padding, masks.

A case is a row: where such code stands in public (a project, or empty for a kind that has no single
address), what somebody gives, and what holds: maps equal to some array to the bit, or the words of
the refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.errors import AttnvizError

L, B, H, T = 3, 2, 4, 6
WORDS = [f"w{n}" for n in range(T)]
ALL = torch.randn(L, B, H, T, T, generator=torch.Generator().manual_seed(0)).softmax(-1)
LOWER = torch.ones(T, T).tril().bool()


def masked(low: float, allowed: Any = LOWER) -> list[torch.Tensor]:
    """One item's layers under an additive mask."""
    scores = torch.randn(L, H, T, T, generator=torch.Generator().manual_seed(1))
    return list((scores + torch.where(torch.as_tensor(allowed), 0.3, low + 0.3)).softmax(-1))


def reads(given: Any, expected: Any, **options: Any) -> Callable[[], None]:
    """A case whose maps of layer 1 are these, [H, T, S]."""

    def run() -> None:
        found = av.from_arrays(given, options.pop("tokens", WORDS), **options)
        (maps,) = (found.maps[site] for site in found.layout.sites if site.layer == 1)
        np.testing.assert_array_equal(maps, expected)

    return run


def allows(given: Any, allowed: Any, **options: Any) -> Callable[[], None]:
    """A case in which queries may attend to these keys, bool [T, S]."""

    def run() -> None:
        found = av.from_arrays(given, WORDS, **options)
        for site in found.layout.sites:
            reach = found.reach[site].allowed(T, T)
            np.testing.assert_array_equal(reach, np.broadcast_to(allowed, (1, T, T)))

    return run


def refuses(given: Any, says: str, **options: Any) -> Callable[[], None]:
    """A case that is refused with these words."""

    def run() -> None:
        with pytest.raises(AttnvizError, match=says):
            av.from_arrays(given, options.pop("tokens", WORDS), **options)

    return run


BLOCKS = np.equal.outer(np.arange(T) // 3, np.arange(T) // 3)
PREFIX = np.tril(np.ones((T, T), bool)) | (np.arange(T) < 2)
READ = [layer[:1, :, :3, :3].tril() for layer in ALL]
STEPS = [READ, *([x[:1, :, n : n + 1, : n + 1] for x in ALL] for n in range(3, T))]

CASES: list[tuple[str, str, Callable[[], None]]] = [
    ("https://github.com/facebookresearch/esm/issues/55",
     "attentions [B, L, H, T, T] with item", reads(
        {"attentions": ALL.transpose(0, 1)}, ALL[1, 1], item=1, layout="blhqk")),
    ("https://github.com/facebookresearch/esm/issues/55",
     "the same without a layout is refused", refuses(
        {"attentions": ALL.transpose(0, 1)[:, :2]}, "layout='lbhqk' or 'blhqk'", item=1)),
    ("https://github.com/facebookresearch/esm/issues/55",
     "one sequence [1, L, H, T, T] can only be that", reads(
        {"attentions": ALL.transpose(0, 1)[1:]}, ALL[1, 1])),
    ("https://github.com/pytorch/pytorch/issues/34537",
     "means over heads [B, T, S] of nn.MultiheadAttention", reads(
        [x.mean(1) for x in ALL], ALL[1].mean(1)[1:], layout="bqk", item=1)),
    ("https://github.com/pytorch/pytorch/issues/47583",
     "means over heads with an item are not taken for heads", refuses(
        [x.mean(1) for x in ALL], "say layout='hqk'", item=1)),
    ("", "heads first [H, B, T, T]", reads(
        [x.transpose(0, 1) for x in ALL], ALL[1, 1], layout="hbqk", item=1)),
    ("transformers", "attention of older BERT code, -10000 and a bias", allows(
        masked(-1e4), LOWER)),
    ("", "Swin's -100", allows(masked(-100.0, BLOCKS), BLOCKS)),
    ("", "finfo.min", allows(masked(torch.finfo(torch.float32).min), LOWER)),
    ("", "-1e9", allows(masked(-1e9), LOWER)),
    ("", "documents side by side are no window", allows(masked(-torch.inf, BLOCKS), BLOCKS)),
    ("", "a prefix that sees itself", allows(masked(-torch.inf, PREFIX), PREFIX)),
    ("", "a mask in the sense of nn.MultiheadAttention, True for blocked", refuses(
        masked(-torch.inf), "give ~mask", mask=~LOWER.numpy())),
    ("https://github.com/huggingface/transformers/issues/26174",
     "the steps of generate are one pass", reads(
        STEPS, ALL[1, 0].tril(), tokens=[*WORDS, "end"], sinks=True)),
    ("transformers", "beams are refused with the reason", refuses(
        [[torch.cat([x, x]) for x in step] for step in STEPS], "num_beams=1",
        tokens=[[*WORDS, "end"]])),
    ("", "layers of unequal size say which", refuses(
        [ALL[0, 0], ALL[0, 0, :, :3, :3]], r"differ in queries × keys: 0 6 × 6, 1 3 × 3")),
    ("", "keys of a cache are the first tokens", reads(
        [x[0, :, 4:] for x in ALL], np.pad(ALL[1, 0, :, 4:], ((0, 0), (4, 0), (0, 0))))),
]  # fmt: skip


@pytest.mark.parametrize(("address", "case", "run"), CASES, ids=[case for _, case, _ in CASES])
def test_reports(address: str, case: str, run: Callable[[], None]) -> None:
    assert case
    del address
    run()
