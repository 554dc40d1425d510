"""Gates inside of gates, against doing one after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnviz.core.heads import Site
from attnviz.core.source import Gate
from attnviz.models.running import merged

BATCH, TOKENS, HEADS, WIDTH = 2, 3, 4, 5
SITE, OTHER = Site("decoder", 0), Site("decoder", 1)


def passed(z: Tensor, gate: Gate) -> Tensor:
    """ξ z + (1 - ξ) fill, of outputs [B, T, H, d]."""
    share = (gate.share if gate.share.ndim == 1 else gate.share[:, None])[..., None]
    return share * z + (0 if gate.fill is None else (1 - share) * gate.fill)


@pytest.mark.parametrize("shares", [(HEADS,), (BATCH, HEADS)])
@pytest.mark.parametrize("fills", [None, (HEADS, WIDTH), (BATCH, TOKENS, HEADS, WIDTH)])
def test_merged_gates_do_what_one_does_after_the_other(
    shares: tuple[int, ...], fills: tuple[int, ...] | None
) -> None:
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(BATCH, TOKENS, HEADS, WIDTH, dtype=torch.float64, generator=draw)
    inner = Gate(torch.tensor([1.0, 0.5, 0.0, 1.0], dtype=torch.float64))
    share = torch.rand(shares, dtype=torch.float64, generator=draw)
    share[..., 0] = 1  # with the first head's 1 of the inner gate nothing is left to fill
    share[..., 3] = 0  # a head that is taken away
    fill = None if fills is None else torch.randn(fills, dtype=torch.float64, generator=draw)
    outer = Gate(share, fill)
    found = merged({SITE: inner, OTHER: inner}, {SITE: outer}, z)
    torch.testing.assert_close(passed(z, found[SITE]), passed(passed(z, inner), outer))
    assert found[OTHER].share is inner.share
