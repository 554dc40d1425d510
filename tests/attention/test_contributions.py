"""What heads write, against every vector of every head written out in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnviz.attention import contributions
from attnviz.attention.contributions import Writes
from attnviz.attention.layers import attend
from attnviz.core.heads import Site, SiteKind
from attnviz.core.source import Gate, Rows
from attnviz.core.weights import Normalization, OutputProjection

B, H, G, T, D_V, D = 2, 4, 2, 9, 3, 10


class Blocks:
    def __init__(self) -> None:
        self.rows: list[Rows] = []

    def observe(self, rows: Rows) -> None:
        changed = {"weights": rows.weights.clone()}
        fields = {name: getattr(rows, name) for name in Rows.__slots__} | changed
        self.rows.append(Rows(**fields))


class Case:
    """A layer with everything written out: c[b, i, j, d] of all heads, and per head."""

    def __init__(
        self, *, causal: bool, keys: int = T, kind: SiteKind = "encoder", gate: Gate | None = None,
        rms: bool = False, window: int | None = None,
    ) -> None:  # fmt: skip
        random = torch.Generator().manual_seed(7)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random, dtype=torch.float64)

        q, k, v = draw(B, H, T, 5), draw(B, G, keys, 5), draw(B, G, keys, D_V)
        self.matrix, self.bias, self.x = draw(H, D_V, D), draw(D), draw(B, T, D)
        self.norm = Normalization(draw(D), 1e-3, None if rms else draw(D), centred=not rms)
        blocks = Blocks()
        out = attend(q, k, v, causal=causal, window=window, gate=gate, residual=self.x,
                     site=Site(kind, 0), observers=[blocks], block_rows=4)  # fmt: skip
        self.rows, self.across = blocks.rows, kind == "cross"
        self.attended = torch.einsum("bhtv,hvd->btd", out.output, self.matrix) + self.bias
        weights = torch.zeros(B, H, T, keys, dtype=torch.float64)
        for rows in self.rows:
            r, s = rows.weights.shape[2:]
            weights[:, :, rows.start : rows.start + r, rows.key_start : rows.key_start + s] = (
                rows.weights
            )
        share = torch.ones(H).double() if gate is None else gate.share.double()
        self.f = torch.einsum("bhsv,hvd->bhsd", v.repeat_interleave(H // G, 1), self.matrix)
        self.heads = torch.einsum("bhts,bhsd->bhtsd", weights * share[:, None, None], self.f)
        self.layer = self.heads.sum(1)

    def writes(self, rows: Rows, *, residual: bool = False, norm: bool = False) -> Writes:
        projection = OutputProjection(self.matrix, self.bias)
        chosen = self.norm if norm else None
        return Writes.of(rows, projection, residual=residual, norm=chosen)

    def parts(self, *, residual: bool, norm: bool) -> tuple[Tensor, Tensor]:
        """T_i(x_j) [B, T, S, D] and y_i [B, T, D], from the definition."""
        parts, whole = self.layer.clone(), self.attended
        if residual:
            whole = whole + self.x
            if not self.across:
                for i in range(T):
                    parts[:, i, i] += self.x[:, i]
        if not norm:
            return parts, whole
        scale, eps, shift = self.norm.scale, self.norm.eps, self.norm.shift
        if self.norm.centred:
            sigma = (whole.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
            parts = parts - parts.mean(-1, keepdim=True)
            whole = F.layer_norm(whole, (D,), scale, shift, eps)
        else:
            sigma = (whole.square().mean(-1, keepdim=True) + eps).sqrt()
            whole = F.rms_norm(whole, (D,), scale, eps)
        return parts * scale / sigma[:, :, None], whole


CASES = {
    "whole": {"causal": False},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 3},
    "cross": {"causal": False, "keys": 6, "kind": "cross"},
    "rms": {"causal": False, "rms": True},
    "gated": {
        "causal": True,
        "gate": Gate(
            torch.tensor([1.0, 0.0, 0.5, 1.0], dtype=torch.float64),
            torch.arange(12.0, dtype=torch.float64).view(H, D_V),
        ),
    },
    "resampled": {
        "causal": True,
        "gate": Gate(
            torch.tensor([0.0, 1.0, 0.5, 1.0], dtype=torch.float64),
            torch.arange(B * T * H * D_V).double().sin().view(B, T, H, D_V),
        ),
    },
}
SORTS = [(False, False), (True, False), (True, True)]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(**CASES[request.param])  # type: ignore[arg-type]


def whole(case: Case, name: str, blocks: list[Tensor]) -> Tensor:
    """Blocks [..., r, s] put together, zero elsewhere."""
    keys = case.f.shape[2]
    out = blocks[0].new_zeros(*blocks[0].shape[:-2], T, keys)
    for rows, block in zip(case.rows, blocks, strict=True):
        r, s = block.shape[-2:]
        out[..., rows.start : rows.start + r, rows.key_start : rows.key_start + s] = block
    return out


def test_norms_of_heads(case: Case) -> None:
    found = []
    for rows in case.rows:
        writes = case.writes(rows)
        norms = contributions.value_norms(writes.values, writes.matrix)
        found.append(writes.weights * norms[:, :, None])
    torch.testing.assert_close(whole(case, "heads", found), case.heads.norm(dim=-1))


@pytest.mark.parametrize(("residual", "norm"), SORTS)
def test_norms_of_layers_by_gram_matrices(case: Case, residual: bool, norm: bool) -> None:
    found = []
    for rows in case.rows:
        writes = case.writes(rows, residual=residual, norm=norm)
        grams = contributions.grams(writes.values, writes.matrix, writes.norm)
        found.append(contributions.layer_norms(writes, grams))
    expected, _ = case.parts(residual=residual, norm=norm)
    torch.testing.assert_close(
        whole(case, "layer", found), expected.norm(dim=-1), rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("size", [1, 200, 1 << 20])
@pytest.mark.parametrize(("residual", "norm"), SORTS)
def test_parts_add_up_and_alti_distances(
    case: Case, residual: bool, norm: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contributions, "PART_ELEMENTS", size)
    expected, output = case.parts(residual=residual, norm=norm)
    far = (output[:, :, None] - expected).abs().sum(-1)
    for rows in case.rows:
        writes = case.writes(rows, residual=residual, norm=norm)
        r, s = rows.weights.shape[2:]
        here = slice(rows.start, rows.start + r)
        keys = slice(rows.key_start, rows.key_start + s)
        torch.testing.assert_close(writes.output, output[:, here])
        summed = contributions.remainder(writes).clone()
        for some, columns, made in contributions.parts(writes):
            torch.testing.assert_close(made, expected[:, here, keys][:, some, columns])
            summed[:, some] += made.sum(2)
        torch.testing.assert_close(summed, output[:, here])
        torch.testing.assert_close(contributions.distances(writes), far[:, here, keys])


@pytest.mark.parametrize(("residual", "norm"), SORTS)
def test_mixing_ratios(case: Case, residual: bool, norm: bool) -> None:
    if case.across:
        return
    expected, _ = case.parts(residual=residual, norm=norm)
    diagonal = torch.eye(T, dtype=torch.float64)[:, :, None]

    def ratio(parts: Tensor) -> Tensor:
        mixing, kept = (parts * (1 - diagonal)).sum(-2), (parts * diagonal).sum(-2)
        return mixing.norm(dim=-1) / (mixing.norm(dim=-1) + kept.norm(dim=-1))

    for rows in case.rows:
        here = slice(rows.start, rows.start + rows.weights.shape[2])
        heads, layer = contributions.mixing_ratios(case.writes(rows, residual=residual, norm=norm))
        torch.testing.assert_close(heads, ratio(case.heads)[:, :, here], equal_nan=True)
        torch.testing.assert_close(layer, ratio(expected)[:, here])
