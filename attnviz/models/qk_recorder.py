"""Heads whose queries and keys are kept, so that each of their weights can be explained.

Whatever attends on :func:`~attnviz.attention.attend.attend` hands out what its weights were
computed from (:class:`~attnviz.core.source.Terms`); :class:`QKRecorder` keeps that of some heads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import transformed
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.capture import blocked_by
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import HeadTerms
from attnviz.core.source import Rows, Source, Terms
from attnviz.errors import ModelError


class QKRecorder:
    """Watches one text go by, and keeps what the weights of some heads are made of."""

    def __init__(self, source: Source, inputs: Inputs, heads: Collection[Head]) -> None:
        self._source, self._inputs, self._heads = source, inputs, heads
        self._terms: dict[Head, HeadTerms] = {}

    def observe(self, rows: Rows) -> None:
        """Take what the first block of a layer has, which is that of the whole layer."""
        if rows.start or rows.terms is None:
            return
        for head in self._heads:
            if head.site == rows.site:
                self._terms[head] = self._opened(head, rows, rows.terms)

    def result(self) -> Mapping[Head, HeadTerms]:
        """What was kept of every head."""
        missing = [head for head in self._heads if head not in self._terms]
        if missing:
            raise ModelError(
                "the queries and keys of {} of {} cannot be had: its scores are more than one "
                "product of these, a scale and a bias by position",
                missing[0].qualified, self._source.info.model, remedy="leave out {why}", why=...,
            )  # fmt: skip
        readings = {head: self._source.reading(head.site) for head in self._heads}
        return {
            head: replace(self._terms[head], turned=r.turned if r.query is not None else None)
            for head, r in readings.items()
        }

    def _opened(self, head: Head, rows: Rows, terms: Terms) -> HeadTerms:
        sides = self._inputs.sides[head.site.kind]
        length, keys = len(sides.queries), len(sides.keys)
        group = head.index * terms.key.shape[1] // terms.query.shape[1]
        bias = _bias(terms, head.index, length, keys)
        on = arrays.of(rows.weights)
        value = on.cast(terms.value[:1, :, :keys], rows.weights.dtype)
        projection = self._source.output(head.site).converted(value)
        known = projection.weight is not None and not projection.held  # else another by query
        if not known or projection.weight is None:
            written = value[:, group]  # [1, S, d_v]
        else:
            written = transformed(value, projection.weight, head.index)
        norms = on.xp.linalg.norm(written[0], None, -1)  # [S]
        if rows.gate is not None:
            share = rows.gate.share
            norms = norms * abs((share if share.ndim == 1 else share[0])[head.index])
        return HeadTerms(
            _array(terms.query[0, head.index, :length]),
            _array(terms.key[0, group, :keys]),
            terms.scale,
            _array(norms),
            known,
            terms.softcap,
            bias,
            None if terms.sinks is None else float(terms.sinks[head.index]),
        )


def _bias(terms: Terms, head: int, queries: int, keys: int) -> NDArray[np.floating] | None:
    """What is added to a head's scores, [T, S], 0 where that blocks; None where it is nothing."""
    total = np.zeros((queries, keys))
    for bias in terms.biases:
        xp = arrays.of(bias).xp
        whole = xp.broadcast_to(bias, (*terms.query.shape[:3], terms.key.shape[2]))
        blocked = arrays.to_numpy(blocked_by(whole[0, head, :queries, :keys]))
        total += np.where(blocked, 0.0, _array(whole[0, head, :queries, :keys]))
    return total if total.any() else None


def _array(x: Array) -> NDArray[np.floating]:
    """A copy in float32, or float64 where it is that."""
    on = arrays.of(x)
    exact = on.cast(x, on.float32) if on.is_half(x) else x
    return arrays.to_numpy(on.copied(on.detached(exact)))
