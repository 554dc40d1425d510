"""One text: what its states say, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.captures.trials import (
    MASKS,
    Activations,
    answer_texts,
    is_masked,
    labels_of,
    one_token,
    predicted,
)
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Output, Source
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.lens.layer_parts import added
from attnviz.features.lens.read import Readings, at, readings
from attnviz.features.lens.result import Added, Lens, LensCell, LensSettings, LensToken, Position


def check_words(source: Source) -> None:
    """ModelError for a model without an LM head."""
    if source.no_logits:
        raise ModelError(f"{source.info.model} predicts no words: {source.no_logits}")


def run(source: Source, inputs: Inputs, question: LensSettings) -> Lens:
    """Read every state of a text."""
    check_words(source)
    tokens = predicted(inputs)
    places = chosen(source, tokens, question.position)
    asked = None if question.answer is None else one_token(source, question.answer)
    reason = source.readout().reason
    activations = Activations(["written"], () if reason else source.layout.sites)
    output = source.forward(
        [inputs],
        () if reason else [activations],
        ForwardRequest(hidden=False, logits=True, states=True, mlps=not reason, terms=not reason),
    )
    if output.logits is None:
        raise ModelError(f"{source.info.model} gave no logits")
    own = output.logits[0, places]
    on = arrays.of(own)
    targets = own.argmax(-1) if asked is None else on.full((len(own),), asked, on.int64, own)
    states = at(output.states, places)
    reading = readings(
        source, inputs, states, own, targets, length=len(tokens),
        top=min(question.predictions, own.shape[-1]),
    )  # fmt: skip
    parts: Sequence[Added | None] = [None] * len(reading.rank)
    if not reason:
        split = reading.ids[:, 0] if asked is None else on.xp.tile(targets, (len(states),))
        values = reading.logits[:, 0] if asked is None else reading.logit
        heads = {
            site: z[0].swapaxes(0, 1)[places] for site, z in activations.values["written"].items()
        }
        parts = _parts(source, output, states, places, heads, split, values)
    masked = is_masked(source)
    texts = tokens.texts
    return Lens(
        source=source.info,
        layout=source.layout,
        tokens=texts,
        masked=masked,
        positions=tuple(places),
        token="" if asked is None else answer_texts(source, [asked])[0],
        followed=answer_texts(source, targets.tolist()),
        next=_next(texts, places) if not masked and labels_of(source) is None else (),
        cells=_cells(source, reading, places, parts),
        difference=reading.difference,
        reason=reason,
        notes=inputs.notes,
        texts=1,
    )


def _next(texts: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    """Give the token that follows each place; an empty text behind the last."""
    return tuple(texts[n + 1] if n + 1 < len(texts) else "" for n in places)


def chosen(source: Source, tokens: Tokens, position: Position) -> list[int]:
    """The positions that are read, at least one."""
    length, labels = len(tokens), labels_of(source)
    if labels is not None and (labels.place != "each" or isinstance(position, int)):
        return [labels.position(tokens, None if position == "all" else position)]
    if isinstance(position, int):
        if not -length <= position < length:
            raise UsageError(f"there is no position {position}: the text has {length} tokens")
        return [position % length]
    if position == "all" or not is_masked(source):
        return list(range(length))
    places = [n for n, text in enumerate(tokens.texts) if text in MASKS]
    if not places:
        raise InputError(
            "the text has no mask ({}) where a word belongs",
            " or ".join(MASKS),
            remedy="write one, or read every token with {position}",
            position="all",
        )
    return places


def _parts(
    source: Source,
    output: Output,
    states: Array,
    places: Sequence[int],
    heads: dict[Site, Array],
    tokens: Array,
    values: Array,
) -> Sequence[Added]:
    """What made one logit of every state, in the order of the readings."""
    mlps = list(at(output.mlps, places))
    names = answer_texts(source, tokens.tolist())
    tokens, values = (table.reshape(states.shape[:2]) for table in (tokens, arrays.exact(values)))
    mixers = {layer: part[0][list(places)] for layer, part in output.mixers.items()}
    deviations = {layer: part[0][list(places)] for layer, part in output.deviations.items()}
    return list(added(source, states, mlps, mixers, heads, tokens, values, names, deviations))


def _cells(
    source: Source, reading: Readings, places: Sequence[int], parts: Sequence[Added | None]
) -> tuple[LensCell, ...]:
    """The readings as records."""
    names = dict(_named(source, reading.ids))
    columns = (reading.ids, reading.logits, reading.probabilities, reading.entropy, reading.kl,
               reading.rank, reading.probability)  # fmt: skip
    cells = []
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for place, (ids, logits, shares, entropy, kl, rank, share) in enumerate(rows):
        state, number = divmod(place, len(places))
        top = tuple(
            LensToken(names[id_], id_, logit, probability)
            for id_, logit, probability in zip(ids, logits, shares, strict=True)
        )
        layer = state - 1 if state else None
        cells.append(LensCell(layer, places[number], top, entropy, kl, rank, share, parts[place]))
    return tuple(cells)


def _named(source: Source, ids: Array) -> zip[tuple[int, str]]:
    """Every id with its text, each once."""
    distinct = sorted(set(ids.reshape(-1).tolist()))
    return zip(distinct, answer_texts(source, distinct), strict=True)
