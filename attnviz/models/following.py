"""Which pass of a text is taken apart: the first in which queries and keys add up.

A pass whose every matrix product is a variable comes first; where layers add what is no such
product (experts behind a router, a state), one with the parts of layers held whole
(:mod:`attnviz.models.decomposition`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.core import arrays
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import HeadOrigins, HeadTerms
from attnviz.core.source import Source
from attnviz.errors import ModelError
from attnviz.models.decomposition import Decomposition
from attnviz.models.traced import TracedPass

_KEPT = 1e-3  # how far sums of sources may be from queries and keys that a page explains

MOST = 1 << 21
"""Numbers of all sources of one head that are kept; of longer texts none are."""


def follow(source: Source, inputs: Inputs, *, whole: bool = False) -> TracedPass:
    """Run one text with its variables."""
    traced = None if whole else getattr(source, "traced", None)
    passed: TracedPass | None = None if traced is None else traced(inputs)
    if passed is not None:
        return passed
    from attnviz.models.tracing import listened

    return listened(source, inputs, stream_parts(source) if whole else ())


def stream_parts(source: Source) -> Sequence[Any]:
    """What can be held whole, see :class:`~attnviz.models.hooked.source.Hooked`."""
    parts: Sequence[Any] = getattr(source, "stream_parts", ())
    return parts


def decompositions(source: Source, inputs: Inputs, head: Head) -> Iterator[Decomposition]:
    """The ways to take a head's queries and keys apart, the first that adds up is to be taken.

    First by every matrix product; then, where layers add what is no such product (experts behind
    a router, a state), with the parts of layers held whole.
    """
    check_layers(source, head)
    if not _mixed_before(source, head):
        yield Decomposition(follow(source, inputs), source)
    if stream_parts(source):
        yield Decomposition(follow(source, inputs, whole=True), source)


def _mixed_before(source: Source, head: Head) -> bool:
    """Whether a layer before a head's mixes tokens otherwise than by attention."""
    mixers = [origin.layer for origin, _ in stream_parts(source) if origin.kind == "mixer"]
    return not _attend_before(source, head) or any(
        layer is not None and layer.layer < head.layer for layer in mixers
    )


def _attend_before(source: Source, head: Head) -> bool:
    """Whether all layers before a head's have attention."""
    return all(source.layout.heads[head.site.kind][: head.layer])


def check_layers(source: Source, head: Head) -> None:
    """Refuse, before anything runs, a head behind layers without attention.

    What these carry from token to token (a state, a convolution) is no sum over tokens; listening
    to them takes minutes. They can be held whole where the residual stream adds up.
    """
    if not _attend_before(source, head) and not stream_parts(source):
        raise ModelError(
            f"what the queries and keys of {source.layout.name(head)} of {source.info.model} are "
            f"made of cannot be told: {source.no_sum}"
        )


def with_origins(
    source: Source, inputs: Inputs, terms: Mapping[Head, HeadTerms]
) -> dict[Head, HeadTerms]:
    """Heads' queries and keys with what they were made of, where that adds up to them."""
    explained: dict[Head, HeadTerms] = {}
    for whole in (False, True):
        left = [h for h in terms if h not in explained and (whole or not _mixed_before(source, h))]
        if not left or (whole and not stream_parts(source)):
            continue
        with contextlib.suppress(ModelError):
            anatomist = Decomposition(follow(source, inputs, whole=whole), source)
            for head in left:
                vectors = _with_origins(anatomist, head, terms[head])
                if vectors is not None:
                    explained[head] = vectors
    return dict(terms) | explained


def _with_origins(anatomist: Decomposition, head: Head, terms: HeadTerms) -> HeadTerms | None:
    """The same with origins, without where there are too many numbers; None for no such sum."""
    count = 4 + len(anatomist.written_before(head))
    if count * (terms.query.size + terms.key.size) > MOST:
        return terms
    try:
        query = anatomist.query(head, range(len(terms.query)))
        key = anatomist.key(head, range(len(terms.key)))
    except ModelError:
        return None
    parts = [arrays.to_numpy(query.values), arrays.to_numpy(key.values)]
    for whole, part in zip((terms.query, terms.key), parts, strict=True):
        if np.abs(part.sum(0) - whole).max() > _KEPT * max(1.0, float(np.abs(whole).max())):
            return None
    return replace(terms, origins=HeadOrigins(query.origins, parts[0], key.origins, parts[1]))
