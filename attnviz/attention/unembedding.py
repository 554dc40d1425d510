"""The way from the residual stream to logits: the last normalization's σ, directions, and words.

The last normalization divides by σ(x) and is linear beside that, so what is added to the stream
adds p · d to the logit of token t, with d = (u - mean u) / σ and u = γ ⊙ W_U[t] (RMS normalization:
d = u / σ); β W_U[t] and the head's own bias come on top (Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"). Everything is for a
:class:`~attnviz.core.source.Readout` with a table. Shapes: D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.core.source import Readout


@dataclass(frozen=True)
class Direction:
    """The way in the residual stream that raises a logit, or the difference of two.

    Attributes:
        vector: d, [D] in float64: a part p adds p · d.
        constant: what is there without any part.
    """

    vector: Tensor
    constant: float


def sigma(readout: Readout, stream: Tensor) -> Tensor:
    """What the last normalization divides by, [...] in float64 for a stream [..., D]."""
    x = stream.double()
    x = x - x.mean(-1, keepdim=True) if readout.centred else x
    return (x.square().mean(-1) + readout.eps).sqrt()


def direction(readout: Readout, stream: Tensor, token: int, against: int | None) -> Direction:
    """The direction of a token, or of the difference to another.

    Args:
        readout: with a table.
        stream: the whole residual stream at the position, [D], which gives σ.
        token: id.
        against: id of the token whose logit is taken off.
    """
    vectors, constants = directions(readout, stream[None], torch.tensor([token]))
    if against is None:
        return Direction(vectors[0], float(constants[0]))
    others, more = directions(readout, stream[None], torch.tensor([against]))
    return Direction(vectors[0] - others[0], float(constants[0] - more[0]))


def directions(readout: Readout, streams: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The direction of one token at each of n positions.

    Args:
        readout: with a table.
        streams: the residual stream there, [n, D], which gives σ.
        tokens: ids, [n].

    Returns:
        d, [n, D] in float64, and what is there without any part, [n].
    """
    assert readout.table is not None
    assert readout.scale is not None
    tokens = tokens.to(readout.table.device)
    rows = readout.table[tokens].double()
    constants = rows.new_zeros(len(rows))
    if readout.bias is not None:
        constants = constants + readout.bias[tokens].double()
    if readout.shift is not None:
        constants = constants + rows @ readout.shift.double()
    u = readout.scale.double() * rows
    u = u - u.mean(-1, keepdim=True) if readout.centred else u
    return u / sigma(readout, streams)[:, None], constants


def scaled(readout: Readout, streams: Tensor, parts: Tensor) -> Tensor:
    """γ ⊙ (p - mean p) / σ: parts [..., D] as the matrix of the LM head gets them, in float64."""
    assert readout.scale is not None
    parts = parts.double()
    parts = parts - parts.mean(-1, keepdim=True) if readout.centred else parts
    return readout.scale.double() * parts / sigma(readout, streams)[..., None]


def moved(readout: Readout, made: Tensor) -> Tensor:
    """What :func:`scaled` parts [n, D] add to every logit, less their mean, [n, V] in float32."""
    assert readout.table is not None
    logits = (made.to(readout.table.dtype) @ readout.table.t()).float()
    return logits - logits.mean(-1, keepdim=True)


def words(readout: Readout, stream: Tensor, parts: Tensor) -> Tensor:
    """What parts [n, D] add to the logit of every token, against their mean, [n, V] in float32.

    Args:
        readout: with a table.
        stream: the whole residual stream, [D] for all parts or [n, D].
        parts: see above.
    """
    return moved(readout, scaled(readout, stream, parts))
