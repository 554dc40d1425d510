"""What rows of heads write, and what their matrices meet and write, read out in tokens.

A row adds z_i W_O to the residual stream, and with the last normalization's σ as it was there that
adds γ ⊙ (p - mean p) / σ · W_U to the logits (docs/logits.md). A head's matrices are read through
the normalization before them, all but its σ: W_QK = N W_Q W_Kᵀ Nᵀ says which tokens meet, W_OV = N
W_V W_O what is written for what is read; of each the singular directions with the largest values
are named by the token embeddings that lie farthest along them (Millidge & Black 2022, "The singular
value decompositions of transformer weight matrices are highly interpretable"). Heads of later
layers read more than embeddings, so that theirs are a first approximation.

Notation: n rows, d width of a head, D of the residual stream, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.unembedding import moved
from attnviz.core import arrays
from attnviz.core.arrays import Array, array, converted, to_numpy, top
from attnviz.core.heads import Head
from attnviz.core.provenance import own_name
from attnviz.core.source import Source
from attnviz.core.weights import Normalization, Readout
from attnviz.features.profile.parts import Distribution, SampledRow, Singular
from attnviz.features.profile.sampled.sample import WHOLE
from attnviz.features.profile.sampled.sums import HeadSums

WORDS = 5
"""Tokens that a row raised most, and lowered."""
DIRECTIONS = 4
"""Singular directions that are named, of each matrix."""
ENDS = 6
"""Tokens at each end of one."""
_AT_ONCE = 1 << 24  # logits that are in memory together

Floats = NDArray[np.float64]

_HEAD = "its LM head has several layers, and what these leave of a row is not kept for every row"
_OVER = (
    "its layers normalize the sums, and the scales of these, which what a row wrote goes through, "
    "are not kept for every row"
)


def with_words(distribution: Distribution, sums: HeadSums, source: Source) -> Distribution:
    """The same with what the model alone can say."""
    readout = source.readout()
    if readout.over or readout.head is not None:
        readout = Readout(None, reason=_OVER if readout.over else _HEAD)
    heads = []
    vocabulary = _Vocabulary(source, readout)
    for number, head in enumerate(distribution.heads):
        rows = head.rows
        if readout.table is not None and source.output(head.head.site).weight is not None:
            rows = _read(distribution, sums, number, source, readout)
        qk, ov = vocabulary.directions(head.head)
        heads.append(replace(head, rows=rows, qk=qk, ov=ov))
    reason = readout.reason if readout.table is None else ""
    return replace(distribution, heads=tuple(heads), no_words=reason)


def _read(
    distribution: Distribution, sums: HeadSums, number: int, source: Source, readout: Readout
) -> tuple[SampledRow, ...]:
    """The rows of a head with the tokens that they raised and lowered."""
    head = distribution.heads[number]
    at = {
        (int(text), int(row)): int(bits)
        for text, row, bits in zip(
            sums.sample["text"][:WHOLE],
            sums.sample["row"][:WHOLE],
            sums.sample["hash"][:WHOLE],
            strict=True,
        )
    }
    keys = _keys(distribution, sums)
    whole = [sums.sample.whole[at[keys[row.text], row.row]] for row in head.rows]
    if not whole or not np.isfinite([row.sigma for row in whole]).all():
        return head.rows
    weight = _double(source.output(head.head.site).weight)[head.head.index]
    assert readout.table is not None
    assert readout.scale is not None
    z = np.array([row.vectors["z"][number] for row in whole], np.float64)
    parts = z @ weight  # [n, D]
    if readout.centred:
        parts = parts - parts.mean(-1, keepdims=True)
    made = parts * _double(readout.scale) / np.array([row.sigma for row in whole])[:, None]
    rows: list[SampledRow] = []
    step = max(1, _AT_ONCE // len(readout.table))
    for first in range(0, len(made), step):
        some = slice(first, first + step)
        rises = to_numpy(moved(readout, converted(array(made[some]), readout.table)))
        ends = [[top(rise, WORDS), top(-rise, WORDS)] for rise in rises]
        after = [row.next for row in whole[some]]
        ids = sorted(
            {n for pair in ends for some_ in pair for n in some_} | {n for n in after if n >= 0}
        )
        texts = dict(zip(ids, source.tokens(ids).texts, strict=True))
        for row, rise, (up, down), follows in zip(head.rows[some], rises, ends, after, strict=True):
            known = 0 <= follows < len(rise)
            rows.append(
                replace(
                    row,
                    raises=tuple(texts[n] for n in up),
                    lowers=tuple(texts[n] for n in down),
                    next=texts[follows] if follows >= 0 else None,
                    added=float(rise[follows]) if known else None,
                )
            )
    return tuple(rows)


def _keys(distribution: Distribution, sums: HeadSums) -> list[int]:
    """The key of each text that is shown."""
    keys = {
        (text.number, own_name(text.place), text.window): key
        for key, text in sums.sample.texts.items()
    }
    return [keys[text.number, text.place, text.window] for text in distribution.texts]


class _Vocabulary:
    """The tokens of a model as its heads read and write them."""

    def __init__(self, source: Source, readout: Readout) -> None:
        self._source = source
        self._embedded: Floats | None = None
        self._raising: Floats | None = None
        embedding = source.embedding()
        if embedding.tokens is not None:
            self._embedded = _double(embedding.tokens)
            if embedding.norm is not None:
                self._embedded = _divided(embedding.norm, self._embedded)
                self._embedded = self._embedded * _double(embedding.norm.scale)
        if readout.table is not None and readout.scale is not None:
            self._raising = _double(readout.table) * _double(readout.scale)
            if readout.centred:
                self._raising -= self._raising.mean(-1, keepdims=True)

    def directions(self, head: Head) -> tuple[tuple[Singular, ...], tuple[Singular, ...]]:
        """Of W_QK and W_OV of a head; none where a matrix is not known."""
        reading, output = self._source.reading(head.site), self._source.output(head.site)
        if self._embedded is None:
            return (), ()
        qk: tuple[Singular, ...] = ()
        ov: tuple[Singular, ...] = ()
        heads = self._source.layout.heads[head.site.kind][head.layer]
        read = _divided(reading.norm, self._embedded)
        if reading.query is not None and reading.key is not None:
            query = _folded(reading.norm, reading.query[head.index])
            key = _folded(reading.norm, reading.key[head.index // (heads // len(reading.key))])
            qk = self._named(query, key, read, read)
        if reading.value is not None and output.weight is not None and self._raising is not None:
            group = head.index // (heads // len(reading.value))
            value = _folded(reading.norm, reading.value[group])
            ov = self._named(value, _double(output.weight[head.index]).T, read, self._raising)
        return qk, ov

    def _named(
        self, first: Floats, second: Floats, read: Floats, written: Floats
    ) -> tuple[Singular, ...]:
        """The largest singular directions of ``first`` @ ``second``.T, [D, d] each."""
        left, sizes, right = singular(first, second)
        total = max(float((sizes**2).sum()), 1e-300)
        largest = max(float(sizes[0]), 1e-300)
        named = []
        for n in range(min(DIRECTIONS, len(sizes))):
            along, across = read @ left[:, n], written @ right[:, n]
            texts = [self._texts(side) for side in (along, across, -along, -across)]
            named.append(Singular(float(sizes[n] / largest), float(sizes[n] ** 2 / total), *texts))
        return tuple(named)

    def _texts(self, sizes: Floats) -> tuple[str, ...]:
        return self._source.tokens(top(sizes, ENDS)).texts


def singular(first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """The singular value decomposition of ``first`` @ ``second``.T without making that product.

    ``first`` [D, d]; returns [D, d], the values [d] in descending order, and [D', d]; the largest
    component of each of the first directions is above 0.
    """
    q1, r1 = np.linalg.qr(first)
    q2, r2 = np.linalg.qr(second)
    left, sizes, right = np.linalg.svd(r1 @ r2.T)
    left, right = q1 @ left, q2 @ right.T
    signs = np.sign(np.take_along_axis(left, abs(left).argmax(0)[None], 0))
    signs[signs == 0] = 1
    return left * signs, sizes, right * signs


def _double(x: Array | None) -> Floats:
    assert x is not None
    return to_numpy(arrays.exact(x))


def _folded(norm: Normalization | None, weight: Array) -> Floats:
    """What reads normalized states as what reads them but for σ, [D, d]."""
    exact = _double(weight)
    return exact if norm is None else _double(norm.scale)[:, None] * exact


def _divided(norm: Normalization | None, x: Floats) -> Floats:
    """(x - mean x) / σ, [V, D], without γ and β."""
    if norm is None:
        return x
    x = x - x.mean(-1, keepdims=True) if norm.centred else x
    divided: Floats = x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps)
    return divided
