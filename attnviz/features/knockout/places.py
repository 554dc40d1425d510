"""Which queries and keys are meant: spans, the last token, all before it, sinks, punctuation."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.trials import predicted
from attnviz.core.heads import SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.spans import EVERY, LAST, Span
from attnviz.core.tokens import Tokens

BEFORE, SINK, PUNCTUATION = "before", "sink", "punctuation"
ROWS = (LAST, EVERY)
KEYS = (BEFORE, SINK, PUNCTUATION, EVERY)


@dataclass(frozen=True, slots=True)
class Edges:
    """From some queries to some keys of one text.

    Attributes:
        kind: of the layers that they are in.
        rows: positions of the queries, in order.
        keys: positions of the keys, in order.
        instead: positions of the keys that get the weight; empty where none do.
    """

    kind: SiteKind
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    instead: tuple[int, ...] = ()


def names_of(inputs: Inputs) -> tuple[str, ...]:
    """The spans of a text."""
    return tuple(span.name for span in _named(inputs))


def edges_of(inputs: Inputs, rows: str, keys: str, instead: str | None = None) -> Edges | None:
    """The edges that two names mean in a text; None where it has no such part or no such layer.

    In a model with an encoder and a decoder, spans are of the encoder's text, ``last`` and ``all``
    queries and the keys ``before`` these of the decoder's.
    """
    spans = {span.name: span.positions for span in _named(inputs)}
    if rows not in spans and rows not in ROWS:
        return None
    two = "cross" in inputs.sides
    own = predicted(inputs)
    from_spans = rows in spans
    at = spans[rows] if from_spans else (len(own) - 1,) if rows == LAST else tuple(range(len(own)))
    source = inputs.sides["cross"].keys if two else own
    behind = two and not from_spans  # queries of a decoder
    of_decoder = behind and keys == BEFORE
    lost = spans[keys] if keys in spans else _class(own if of_decoder else source, keys, at)
    target = spans.get(instead or "", ())
    if lost is None or (instead is not None and not target):
        return None
    lost = tuple(place for place in lost if place not in set(target))
    kind: SiteKind = next(iter(inputs.sides))
    if two:
        kind = "decoder" if of_decoder else "cross" if behind else "encoder"
    if kind not in inputs.sides or not at or not lost:
        return None
    return Edges(kind, at, lost, target)


def tokens_of(inputs: Inputs, name: str) -> tuple[Tokens, tuple[int, ...]] | None:
    """The sequence that a span or the last token stands in, and where; None for other names."""
    for span in _named(inputs):
        if span.name == name:
            return _spanned(inputs), span.positions
    own = predicted(inputs)
    return (own, (len(own) - 1,)) if name == LAST else None


def _spanned(inputs: Inputs) -> Tokens:
    """The sequence whose parts are named: of an encoder and a decoder the encoder's."""
    return inputs.sides["cross"].keys if "cross" in inputs.sides else predicted(inputs)


def _named(inputs: Inputs) -> tuple[Span, ...]:
    return _spanned(inputs).spans


def _class(tokens: Tokens, name: str, rows: tuple[int, ...]) -> tuple[int, ...] | None:
    """The positions of a class of tokens; None for no such class."""
    places = range(len(tokens))
    if name == BEFORE:
        return tuple(range(min(rows)))
    if name == SINK:
        return tuple(n for n in places if n == 0 or tokens.special[n])
    if name == PUNCTUATION:
        return tuple(
            n
            for n in places
            if not tokens.special[n]
            and tokens.texts[n].strip()
            and not any(map(str.isalnum, tokens.texts[n]))
        )
    return tuple(places) if name == EVERY else None
