"""One question about one text: where do the query and the key of a weight come from?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.captured import Captured, reason
from attnviz.core import arrays
from attnviz.core.arrays import Floats
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import HeadTerms, Reason
from attnviz.core.source import Source, held, tolerance
from attnviz.core.tokens import Tokens
from attnviz.core.weights import held_notes
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.sources import result as records
from attnviz.models.decomposition import (
    Decomposition,
    Parts,
    QKRecorder,
    check_layers,
    decompositions,
)
from attnviz.scoring.observe import Recorder, observe
from attnviz.scoring.select import select


@dataclass(frozen=True, eq=False)
class SplitHead:
    """A head's keys and some of its queries on one text, taken apart."""

    head: Head  # which
    terms: HeadTerms  # as the model has them, of a pass that nothing listened to
    anatomist: Decomposition  # of the pass that was listened to
    query: Parts  # of some positions
    keys: Parts  # of every position of the text
    exact: float  # the tolerance
    model: str  # its name

    def prove(self) -> None:
        """ModelError where the sources of the queries and of all keys do not add up to scores."""
        q, k = (arrays.to_numpy(parts.values.sum(0)) for parts in (self.query, self.keys))
        self.check(self.terms.scale * (q @ k.T), self.scores(self.query.places))

    def scores(self, places: int | Sequence[int]) -> Floats:
        """[S] or [P, S], s q·k of one query or several with every key, as the model has it."""
        q, k = self.terms.query[np.asarray(places)], self.terms.key
        return self.terms.scale * (q.astype(np.float64) @ k.astype(np.float64).T)

    def by_key(self, position: int) -> Floats:
        """[M, S], what every source of the keys adds to the scores of one query."""
        q = self.terms.query[position].astype(np.float64)
        added: Floats = self.terms.scale * (arrays.to_numpy(self.keys.values) @ q)
        self.check(added.sum(0), self.scores(position))
        return added

    def matrix(self, mix: Floats) -> Floats:
        """Take what pairs of sources add [N, M] to a mixture of the first query's scores [S]."""
        key = np.einsum("s,msd->md", mix, arrays.to_numpy(self.keys.values))
        return self.terms.scale * (arrays.to_numpy(self.query.values[:, 0]) @ key.T)

    def check(self, sums: Floats, scores: Floats) -> None:
        """ModelError where sums are not the scores."""
        off = np.abs(sums - scores) / np.maximum(1.0, np.abs(scores))
        worst = int(off.argmax())
        if not off.flat[worst] <= self.exact:
            raise ModelError(
                f"the sources of {self.model} add up to {sums.flat[worst]:.5g} and the score of "
                f"{self.head.qualified} is {scores.flat[worst]:.5g}: not every way from what "
                "layers write to its queries and keys is linear once normalizations are held, so "
                "that nothing is shown"
            )


def split(
    source: Source,
    inputs: Inputs,
    head: Head,
    terms: HeadTerms,
    places: Sequence[int],
    passes: dict[bool, Decomposition] | None = None,
) -> SplitHead:
    """Take a head's queries at some places and all its keys apart, in a way that adds up.

    ``passes`` as :func:`decompositions`.
    """
    fault: ModelError | None = None
    for anatomist in decompositions(source, inputs, head, passes):
        try:
            query = anatomist.query(head, places)
            keys = anatomist.key(head, range(len(terms.key)))
            parts = SplitHead(
                head, terms, anatomist, query, keys, tolerance(source), source.info.model
            )
            parts.prove()
        except ModelError as error:
            fault = fault or error
            continue
        return parts
    assert fault is not None
    raise fault


READERS = 3  # earlier heads of each side whose tokens are told
TOKENS = 3  # tokens of each of them

HELD = (
    "The scale of every normalization is held at its value here; what an earlier head makes later "
    "layers write counts as theirs."
)

Against = int | records.Others | None


def answer(source: Source, inputs: Inputs, settings: records.SourcesSettings) -> records.Sources:
    """Answer it."""
    head = one_head(source, settings.select)
    _check_places(inputs, head, settings)
    capture = plain(source, inputs, [head])
    reason, other_key = _asked(capture, head, settings)
    parts = split(source, inputs, head, capture.terms[head], [reason.query])
    mix = _mix(reason, other_key)
    by_key = parts.by_key(reason.query)
    matrix = parts.matrix(mix)
    scores = parts.scores(reason.query)
    bias_table = reason.terms.bias
    added = np.zeros(len(reason.keys))  # [S], by position
    if bias_table is not None:
        added = bias_table[reason.query].astype(np.float64)
    scaled, bias = float(mix @ scores), float(mix @ added)
    total = float(matrix.sum())
    parts.check(np.array([total]), np.array([scaled]))
    result = records.Sources(
        source=source.info,
        layout=source.layout,
        texts=1,
        notes=inputs.notes,
        head=head,
        query=reason.query,
        key=reason.key,
        other_key=other_key,
        queries=reason.queries,
        keys=reason.keys,
        weight=reason.shown,
        score=scaled + bias,
        added=bias,
        sum=total + bias,
        softcap=reason.terms.softcap,
        query_origins=parts.query.origins,
        key_origins=parts.keys.origins,
        matrix=tuple(map(tuple, matrix.tolist())),
        row=tuple(_row(reason, capture[head][reason.query], by_key, scores, added)),
    )
    q, k = (x.astype(np.float64) for x in (reason.q, mix @ reason.terms.key))
    reads = (
        *_reads(result, parts, parts.query, k, inputs, "query"),
        *_reads(result, parts, parts.keys, q, inputs, "key"),
    )
    return replace(result, reads=reads, notes=(*result.notes, *_notes(result, source)))


def plain(source: Source, inputs: Inputs, heads: Sequence[Head]) -> Capture:
    """Return a pass that nothing listens to: the heads' weights, and what they are made of."""
    recorder, opening = Recorder([inputs], heads), QKRecorder(source, inputs, heads)
    observe(source, [inputs], recorder, opening, terms=True)
    maps, empty, reach = recorder.maps(), recorder.empty_rows(), recorder.reach()
    return Captured(
        source.info, source.layout, inputs, maps, empty, reach, terms=opening.result(),
        kept=recorder.listed,
    )  # fmt: skip


def one_head(source: Source, name: str) -> Head:
    """Return the head of a selection that means one, of which sources can be told."""
    head = named_head(name, source.layout)
    check_layers(source, head)
    return head


def named_head(name: str, layout: Layout) -> Head:
    """Return the head of a selection that means one."""
    if not isinstance(name, str):
        raise UsageError("{select} is the name of a head, such as 2.0, not {!r}", name, select=...)
    chosen = select(name, layout)
    if len(chosen) != 1:
        raise UsageError("{select} means {} heads; name one", len(chosen), select=name)
    return chosen[0]


def _asked(
    capture: Capture, head: Head, settings: records.SourcesSettings
) -> tuple[Reason, Against]:
    """Return the weight that is asked about, and what it is compared with."""
    sides = capture.sides(head)
    query = _place("query", -1 if settings.query is None else settings.query, sides.queries)
    first = reason(capture, head, query, 0)
    allowed = np.flatnonzero(np.isfinite(first.row))
    if not len(allowed):
        raise InputError(f"query {query} may attend to no key")
    chosen = int(first.row.argmax()) if settings.key is None else settings.key
    key = _place("key", chosen, sides.keys)
    other_key = _other(settings.other_key, sides.keys)
    if other_key == key:
        raise UsageError("key {} cannot be compared with itself", key)
    if isinstance(other_key, str) and len(allowed) < 2:
        raise InputError(f"query {query} may attend to one key only, which has no rest")
    for position in (key, other_key):
        if isinstance(position, int) and position not in allowed:
            raise InputError(f"query {query} may not attend to key {position}: the model blocks it")
    return reason(capture, head, query, key), other_key


def _check_places(inputs: Inputs, head: Head, settings: records.SourcesSettings) -> None:
    """UsageError, before anything runs, for a position that the text does not have."""
    sides = inputs.sides[head.site.kind]
    if settings.query is not None:
        _place("query", settings.query, sides.queries)
    if settings.key is not None:
        _place("key", settings.key, sides.keys)
    _other(settings.other_key, sides.keys)


def _other(text: str | int | None, keys: Tokens) -> Against:
    """Return the position of the key that is compared with, or the word for a mean."""
    if text == "mean":
        return records.MEAN
    if text == "rest":
        return records.REST
    return None if text is None else _place("key", text, keys)


def _place(role: str, text: str | int, tokens: Tokens) -> int:
    """Return the position of the only token that is meant."""
    places = tokens.locate(text)
    if len(places) != 1:
        raise UsageError("a {} is one token, and {!r} are {}", role, text, len(places))
    return places[0]


def _mix(reason: Reason, other_key: Against) -> Floats:
    """[S], the factors on the row's scores that make what is split."""
    mix = np.zeros(len(reason.keys))
    if other_key in (records.MEAN, records.REST):
        finite = np.isfinite(reason.row)
        finite[reason.key] = False
        mix = -mean_of(reason.row[None], finite[None], weighted=other_key == records.REST)[0]
    elif isinstance(other_key, int):
        mix[other_key] = -1.0
    mix[reason.key] = 1.0
    return mix


def mean_of(scores: Floats, mask: NDArray[np.bool_], *, weighted: bool) -> Floats:
    """Give the factors on ``scores`` [R, S] that make the mean of the keys in ``mask``, by row."""
    if weighted:
        masked = np.where(mask, scores, -np.inf)
        powers = np.exp(masked - masked.max(1, keepdims=True))
    else:
        powers = mask.astype(np.float64)
    return powers / powers.sum(1, keepdims=True)


def _row(
    reason: Reason, weights: Floats, by_key: Floats, scores: Floats, added: Floats
) -> Iterator[records.RowKey]:
    for key in np.flatnonzero(np.isfinite(reason.row)).tolist():
        yield records.RowKey(
            key,
            reason.keys[key],
            float(weights[key]),
            float(scores[key] + added[key]),
            float(added[key]),
            tuple(by_key[:, key].tolist()),
        )


def _reads(
    result: records.Sources,
    split_head: SplitHead,
    parts: Parts,
    baseline: Floats,
    inputs: Inputs,
    side: records.ScoreSide,
) -> Iterator[records.ReadToken]:
    """List the tokens that the strongest earlier heads of one side read; ``baseline`` [d]."""
    heads = [part.origin.head for part in result.side(side) if part.origin.head is not None]
    token = result.query if side == "query" else result.key
    for head in heads[:READERS]:
        weights, through = split_head.anatomist.by_token(parts, head, token)
        values = split_head.terms.scale * (arrays.to_numpy(through) @ baseline)
        texts = inputs.sides[head.site.kind].keys.texts
        for position in np.argsort(-np.abs(values), kind="stable")[:TOKENS].tolist():
            weight, value = float(weights[position]), float(values[position])
            yield records.ReadToken(side, head, position, texts[position], weight, value)


def _notes(result: records.Sources, source: Source) -> Iterator[str]:
    """Yield what the reader must not miss."""
    yield HELD
    yield from held_notes({*held(source)} - {"over", "head"})  # said above, and behind a score
    if result.softcap is not None:
        yield (
            f"The model caps its scores, {result.softcap:g} tanh(score / {result.softcap:g}), "
            "which no sum can split: the sources are of the score before that."
        )
