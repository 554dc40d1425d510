"""One question about one text: where do the query and the key of a weight come from?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.captured import Captured
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import Reason
from attnviz.core.source import ForwardRequest, Source
from attnviz.errors import InputError, UsageError
from attnviz.features.sources.result import (
    MEAN,
    REST,
    Others,
    ReadToken,
    RowKey,
    ScoreSide,
    Sources,
)
from attnviz.features.sources.split import Floats, SplitHead, split
from attnviz.models.opened import Opening, reason
from attnviz.models.parted import Parts
from attnviz.scoring.observe import Recorder
from attnviz.scoring.select import select

READERS = 3
"""Earlier heads of each side whose tokens are told."""
TOKENS = 3
"""Tokens of each of them."""

HELD = (
    "The scale of every normalization is held at its value here; what an earlier head makes later "
    "layers write counts as theirs."
)

Against = int | Others | None


@dataclass(frozen=True, slots=True)
class SplitAsked:
    """What is asked.

    Attributes:
        head: its name.
        at: position of the query, from 0 or, negative, from the end.
        key: position of the key; None for the one with the largest weight.
        against: see :class:`~attnviz.features.sources.result.Sources`.
    """

    head: str
    at: int = -1
    key: int | None = None
    against: Against = None

    def check(self) -> None:
        """UsageError for what makes no sense."""
        given = [
            self.at,
            *(one for one in (self.key, self.against) if one not in (None, MEAN, REST)),
        ]
        for place in given:
            if type(place) is not int:
                raise UsageError("a position is a whole number, not {!r}", place)
        if isinstance(self.key, str):
            raise UsageError("a key is a whole number, not {!r}", self.key)


def answer(source: Source, inputs: Inputs, asked: SplitAsked) -> Sources:
    """Answer it.

    Raises:
        InputError: no such position, or a key that the query may not attend to.
        UsageError: several heads, or a key against itself.
        ModelError: the sources cannot be told, or do not add up to the score.
    """
    asked.check()
    head = one_head(source, asked.head)
    capture = plain(source, inputs, head)
    why, against = _asked(capture, head, asked)
    found = split(source, inputs, head, capture.terms[head])
    mix = _mix(why, against)
    query = found.query(why.query)
    by_key = found.by_key(why.query)
    matrix = found.matrix(query, mix)
    scores = found.scores(why.query)
    added = _added(why)
    scaled, bias = float(mix @ scores), float(mix @ added)
    total = float(matrix.sum())
    found.check(np.array([total]), np.array([scaled]))
    result = Sources(
        source=source.info,
        layout=source.layout,
        texts=1,
        notes=inputs.notes,
        head=head,
        query=why.query,
        key=why.key,
        against=against,
        queries=why.queries,
        keys=why.keys,
        weight=why.shown,
        score=scaled + bias,
        added=bias,
        sum=total + bias,
        softcap=why.terms.softcap,
        query_origins=query.origins,
        key_origins=found.key_origins,
        matrix=tuple(map(tuple, matrix.tolist())),
        row=tuple(_row(why, capture[head][why.query], by_key, scores, added)),
    )
    q, k = (x.astype(np.float64) for x in (why.q, mix @ why.terms.key))
    reads = (
        *_reads(result, found, query, k, inputs, "query"),
        *_reads(result, found, found.keys, q, inputs, "key"),
    )
    return replace(result, reads=reads, notes=(*result.notes, *_notes(result)))


def plain(source: Source, inputs: Inputs, head: Head) -> Capture:
    """A pass that nothing listens to: the head's weights, and what they are made of."""
    recorder, opening = Recorder([inputs], {head}), Opening(source, inputs, [head])
    source.forward([inputs], [recorder, opening], ForwardRequest(hidden=False, terms=True))
    maps, empty, reach = recorder.maps(), recorder.empty_rows(), recorder.reach()
    return Captured(
        source.info, source.layout, inputs, maps, empty, reach, terms=opening.result(),
        kept=recorder.kept,
    )  # fmt: skip


def one_head(source: Source, name: str) -> Head:
    """The head of a selection that means one; UsageError for several."""
    if not isinstance(name, str):
        raise UsageError("{head} is the name of a head, such as 2.0, not {!r}", name, head=...)
    chosen = select(name, source.layout)
    if len(chosen) != 1:
        raise UsageError("{head} means {} heads; name one", len(chosen), head=name)
    return chosen[0]


def _asked(capture: Capture, head: Head, asked: SplitAsked) -> tuple[Reason, Against]:
    """The weight that is asked about, and what it is compared with."""
    sides = capture.sides(head)
    at = _place("query", asked.at, len(sides.queries))
    first = reason(capture, head, at, 0)
    allowed = np.flatnonzero(np.isfinite(first.row))
    if not len(allowed):
        raise InputError(f"query {at} may attend to no key")
    key = int(first.row.argmax()) if asked.key is None else asked.key
    key = _place("key", key, len(sides.keys))
    against = asked.against
    if isinstance(against, int):
        against = _place("key", against, len(sides.keys))
        if against == key:
            raise UsageError("key {} cannot be compared with itself", key)
    elif against is not None and len(allowed) < 2:
        raise InputError(f"query {at} may attend to one key only, which has no rest")
    for place in (key, against):
        if isinstance(place, int) and place not in allowed:
            raise InputError(f"query {at} may not attend to key {place}: the model blocks it")
    return reason(capture, head, at, key), against


def _place(what: str, place: int, length: int) -> int:
    if not -length <= place < length:
        raise InputError(f"there is no {what} {place}: the text has {length} tokens")
    return place % length


def _mix(why: Reason, against: Against) -> Floats:
    """[S], the factors on the row's scores that make what is split."""
    mix = np.zeros(len(why.keys))
    if against in (MEAN, REST):
        others = np.isfinite(why.row)
        others[why.key] = False
        mix = -mean_of(why.row[None], others[None], weighed=against == REST)[0]
    elif isinstance(against, int):
        mix[against] = -1.0
    mix[why.key] = 1.0
    return mix


def mean_of(scores: Floats, some: NDArray[np.bool_], *, weighed: bool) -> Floats:
    """The factors that make the mean of some keys, row by row.

    Args:
        scores: [R, S].
        some: [R, S], at least one of every row.
        weighed: by their weights among themselves, softmax of the scores; else all alike.
    """
    if weighed:
        masked = np.where(some, scores, -np.inf)
        powers = np.exp(masked - masked.max(1, keepdims=True))
    else:
        powers = some.astype(np.float64)
    found: Floats = powers / powers.sum(1, keepdims=True)
    return found


def _added(why: Reason) -> Floats:
    """[S], what is added to the query's scores by position."""
    bias = why.terms.bias
    none = np.zeros(len(why.keys))
    return none if bias is None else bias[why.query].astype(np.float64)


def _row(
    why: Reason, weights: Floats, by_key: Floats, scores: Floats, added: Floats
) -> Iterator[RowKey]:
    for key in np.flatnonzero(np.isfinite(why.row)).tolist():
        yield RowKey(
            key,
            why.keys[key],
            float(weights[key]),
            float(scores[key] + added[key]),
            float(added[key]),
            tuple(by_key[:, key].tolist()),
        )


def _reads(
    result: Sources,
    found: SplitHead,
    parts: Parts,
    other: Floats,
    inputs: Inputs,
    side: ScoreSide,
) -> Iterator[ReadToken]:
    """The tokens that the strongest earlier heads of one side read.

    Args:
        result: without them.
        found: what it is from.
        parts: of the side.
        other: [d], the other side whole.
        inputs: the text.
        side: which.
    """
    heads = [one.origin.head for one in result.side(side) if one.origin.head is not None]
    place = result.query if side == "query" else result.key
    for head in heads[:READERS]:
        weights, through = found.anatomist.by_token(parts, head, place)
        values = found.terms.scale * (through.cpu().numpy() @ other)
        texts = inputs.sides[head.site.kind].keys.texts
        for position in np.argsort(-np.abs(values), kind="stable")[:TOKENS].tolist():
            weight, value = float(weights[position]), float(values[position])
            yield ReadToken(side, head, position, texts[position], weight, value)


def _notes(result: Sources) -> Iterator[str]:
    """What the reader must not miss."""
    yield HELD
    if result.softcap is not None:
        yield (
            f"The model caps its scores, {result.softcap:g} tanh(score / {result.softcap:g}), "
            "which no sum can split: the sources are of the score before that."
        )
