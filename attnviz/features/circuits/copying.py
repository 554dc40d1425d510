"""Copying: does a head raise the token that it reads?

A head that looks at token t adds n_t W_V W_O to the stream, n_t what it reads of t, and raises the
logits by n_t W_V W_O W_U: [V, V] for all tokens, of rank d. Where its eigenvalues are positive,
tokens raise themselves; Σλ / Σ|λ| is the score (Elhage et al. 2021). They are those of the [d, d]
matrix W_O (W_U N) W_V, N the rows n_t.

Logits that rise by the same for all words change no probability, but they do change this score.
With W_U less its mean over the vocabulary it is the ``centred`` one, for which raising all words
alike counts for nothing; ``own`` is always so.

What a layer reads of a token are its embedding or, beyond the first layer, that embedding as it
leaves the first one (as Wang et al. 2022, arXiv:2211.00593, took it from the first MLP): the token
alone, at no position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.core.prompt import Prompt
from attnviz.core.source import (
    ForwardRequest,
    Normalization,
    OutputProjection,
    Reading,
    Readout,
    Source,
    Start,
)
from attnviz.features.circuits.fold import centred, divided, exact, folded
from attnviz.features.circuits.result import Chance, Copying

DRAWS = 100
"""Random heads that the chance of the score rests on."""

MATCHED = 24
"""And of each layer those that the score with matched singular values rests on."""

_BATCH = 512
"""Tokens that go through the first layer together, each alone."""


def words(readout: Readout, chosen: Tensor) -> Tensor:
    """What raises the logit of each chosen token, [V, D]."""
    assert readout.table is not None
    assert readout.scale is not None
    table = exact(readout.table[chosen]) * exact(readout.scale)
    return centred(table) if readout.centred else table


def after_first(source: Source, embedded: Tensor) -> Tensor:
    """Embeddings [V, D] as they leave the first layer, each token alone and at no position."""
    inputs = source.prepare(Prompt(ids=(0,)))
    made = []
    for block in torch.split(embedded, _BATCH):
        start = Start(0, block[:, None], end=1)
        output = source.forward(
            [inputs] * len(block), request=ForwardRequest(hidden=False, states=True, start=start)
        )
        made.append(output.states[1][:, 0])
    return torch.cat(made)


@dataclass
class ReadTokens:
    """Embeddings and the words that they may raise.

    Attributes:
        embedded: [V, D], what is read.
        raising: [V, D], see :func:`words`.
    """

    embedded: Tensor
    raising: Tensor

    def __post_init__(self) -> None:
        self._centred = self.raising - self.raising.mean(0)
        self._deviation = (self._centred.mT @ self._centred) / len(self.raising)  # [D, D]
        self._met: dict[tuple[float, bool] | None, Tensor] = {}

    def copying(self, reading: Reading, output: OutputProjection) -> tuple[Copying, ...]:
        """Of every head of a layer; the layer needs values and W_O."""
        assert reading.value is not None
        assert output.weight is not None
        out = exact(output.weight)  # [H, d_v, D]
        value = folded(reading.norm, reading.value)  # [G, D, d_v]
        value = value.repeat_interleave(len(out) // len(value), 0)
        read = divided(reading.norm, self.embedded)
        scores = _scores(out, self._meeting(reading.norm), value)
        others = _scores(out, self._centred.mT @ read, value)
        heads = []
        for score, other, w_v, w_o in zip(scores, others, value, out, strict=True):
            written = read @ w_v  # [V, d_v]
            raised = (written * (self._centred @ w_o.mT)).sum(1)  # of the token itself
            spread = ((written @ (w_o @ self._deviation @ w_o.mT)) * written).sum(1).sqrt()
            tiny = torch.finfo(spread.dtype).tiny
            own = float((raised / spread.clamp_min(tiny)).double().mean())
            heads.append(Copying(score, other, own))
        return tuple(heads)

    def chance(self, reading: Reading, output: OutputProjection, seed: int) -> Chance:
        """The score of heads with normally distributed matrices of the same shapes."""
        assert output.weight is not None
        met = self._meeting(reading.norm)
        rank, width = output.weight.shape[1:]
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(2, DRAWS, width, rank, generator=generator).to(met)
        ones = None if reading.norm is None else Normalization(
            torch.ones(width, device=met.device), reading.norm.eps, None, reading.norm.centred
        )  # fmt: skip
        scores = torch.tensor(_scores(drawn[0].mT, met, folded(ones, drawn[1])))
        return Chance(float(scores.mean()), float(scores.std()), DRAWS)

    def matched(self, reading: Reading, output: OutputProjection, seed: int) -> list[float]:
        """The scores of random heads whose W_V W_O have the singular values of the layer's heads.

        Args:
            reading: of the layer; ``output`` too.
            output: see ``reading``.
            seed: of the singular vectors.
        """
        assert reading.value is not None
        assert output.weight is not None
        out = exact(output.weight)
        value = folded(reading.norm, reading.value).repeat_interleave(
            len(out) // len(reading.value), 0
        )
        rank, width = out.shape[1:]
        right = torch.linalg.qr(out.mT, mode="r").R.mT
        sizes = torch.linalg.svdvals(torch.linalg.qr(value, mode="r").R @ right)  # [H, d]
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(2, MATCHED, width, rank, generator=generator).to(out)
        if reading.norm is not None and reading.norm.centred:
            drawn = drawn - drawn.mean(2, keepdim=True)
        left, away = torch.linalg.qr(drawn).Q
        of = torch.arange(MATCHED, device=out.device) % len(out)
        return _scores(sizes[of][:, :, None] * away.mT, self._meeting(reading.norm), left)

    def _meeting(self, norm: Normalization | None) -> Tensor:
        """W_U N, [D, D], made once for all layers that divide alike."""
        key = None if norm is None else (norm.eps, norm.centred)
        if key not in self._met:
            self._met[key] = self.raising.mT @ divided(norm, self.embedded)
        return self._met[key]


def _scores(out: Tensor, met: Tensor, value: Tensor) -> list[float]:
    """Σλ / Σ|λ| of W_O (W_U N) W_V, [H, d, D], [D, D] and [H, D, d]."""
    small = (out @ met @ value).double().cpu()
    values = torch.linalg.eigvals(small)
    sizes = values.abs().sum(-1).clamp_min(torch.finfo(torch.float64).tiny)
    return [float(score) for score in values.real.sum(-1) / sizes]


def unknown(readings: Sequence[Reading], outputs: Sequence[OutputProjection]) -> Mapping[int, str]:
    """The layers whose values or W_O are not known, and why."""
    return {
        number: reading.reason or output.reason
        for number, (reading, output) in enumerate(zip(readings, outputs, strict=True))
        if reading.value is None or output.weight is None
    }
