"""One question about one text: what comes next, and which parts of the model say so?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.unembedding import direction, words
from attnviz.captures.trials import (
    MASKS,
    answer_texts,
    is_masked,
    labels_of,
    one_token,
    predicted,
)
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, on_numpy, to_numpy, top
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Output, Source, held
from attnviz.core.tokens import Tokens
from attnviz.core.weights import Readout, held_notes
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.logits.result import (
    HeadAttribution,
    LogitPart,
    Logits,
    LogitsSettings,
    Position,
    Prediction,
    Seen,
)
from attnviz.features.logits.split import StreamWatch, behind, carried, split, written

Floats = NDArray[np.float64]

TOLERANCE = {"float16": 0.05, "bfloat16": 0.05}
"""Largest difference of sum and logit, relative to the logit where that is larger than 1."""
EXACT = 1e-4
"""The same for every other precision."""

VOTES = 10
"""Heads that are told about one by one."""
SEEN = 3
"""Tokens that are named for each of them."""
WORDS = 5
"""Words that a head raises, and lowers."""


def run(source: Source, inputs: Inputs, question: LogitsSettings) -> Logits:
    """Answer it."""
    if source.no_logits:
        raise ModelError(f"{source.info.model} predicts no words: {source.no_logits}")
    tokens, own = predicted(inputs), source.readout()
    readout = own.summed
    places = _places(source, tokens, question.position)
    asked = [
        None if w is None else one_token(source, w) for w in (question.answer, question.against)
    ]
    token, against = asked
    watch = StreamWatch(places[-1])
    able = readout.table is not None
    output = source.forward(
        [inputs],
        [watch] if able else (),
        ForwardRequest(hidden=bool(own.cap), logits=True, states=able, mlps=able),
    )
    if output.logits is None:
        raise ModelError(f"{source.info.model} gave no logits")
    logits = {place: to_numpy(exact(output.logits[0, place])) for place in places}
    last = logits[places[-1]]
    chosen = int(last.argmax()) if token is None else token
    if chosen == against:
        raise UsageError(f"{_text(source, chosen)!r} cannot be compared with itself")
    wanted = [chosen] if token is not None else []
    wanted += [] if against is None else [against]
    report = Logits(
        source=source.info,
        layout=source.layout,
        tokens=tokens.texts,
        position=places[-1],
        predictions=tuple(_predictions(source, tokens, logits, question.predictions, wanted)),
        token=_text(source, chosen),
        against="" if against is None else _text(source, against),
        logit=float(last[chosen] - (0 if against is None else last[against])),
        notes=inputs.notes,
        texts=1,
    )
    if not able:
        return _without(report, readout, source)
    if own.cap:
        assert output.hidden is not None
        report = _before_cap(
            report, readout, own.cap, output.hidden[0, places[-1]], chosen, against
        )
    return _split(report, source, output, watch, readout, chosen, against)


def _before_cap(
    report: Logits, readout: Readout, cap: float, final: Array, token: int, against: int | None
) -> Logits:
    """The report with the logit before the cap, from the model's own final state, [D]."""
    readout = readout.converted(final)
    assert readout.table is not None
    ids = [token] if against is None else [token, against]
    each = [
        float(exact(readout.table[id_]) @ exact(final))
        + (0.0 if readout.bias is None else float(readout.bias[id_]))
        for id_ in ids
    ]
    note = (
        f"{report.source.model} caps its logits: each is {cap:g} tanh(x / {cap:g}). The parts add "
        "up to x, the logit before the cap, which ranks words alike."
    )
    whole = each[0] if against is None else each[0] - each[1]
    return replace(report, uncapped=whole, cap=cap, notes=(*report.notes, note))


def _places(source: Source, tokens: Tokens, position: Position) -> list[int]:
    """The positions that are looked at, at least one."""
    length, labels = len(tokens), labels_of(source)
    if labels is not None and (position != "all" or labels.place != "each"):
        return [labels.position(tokens, None if position == "all" else position)]
    if position == "all":
        return list(range(length))
    if isinstance(position, int):
        if not -length <= position < length:
            raise UsageError(f"there is no position {position}: the text has {length} tokens")
        return [position % length]
    if not is_masked(source):
        return [length - 1]
    places = [n for n, text in enumerate(tokens.texts) if text in MASKS]
    if not places:
        raise InputError(
            "the text has no mask ({}) where a word belongs",
            " or ".join(MASKS),
            remedy="write one, or choose a token with {position}",
            position=...,
        )
    return places


def _predictions(
    source: Source,
    tokens: Tokens,
    logits: Mapping[int, Floats],
    count: int,
    wanted: Sequence[int],
) -> Iterator[Prediction]:
    """The top words at each position, then those that were asked for, then what does follow."""
    labels = labels_of(source)
    follows = not is_masked(source) and labels is None
    for place, scores in logits.items():
        ids = top(scores, count)
        marks = dict.fromkeys(wanted, "asked")
        if follows and place + 1 < len(tokens):
            marks.setdefault(tokens.ids[place + 1], "next")
        listed = ids + [id_ for id_ in marks if id_ not in ids]
        shares = on_numpy.softmax(scores, None) if labels is None else labels.share(scores)
        for id_, text in zip(listed, answer_texts(source, listed), strict=True):
            rank = int((scores > scores[id_]).sum()) + 1
            logit, share = float(scores[id_]), float(shares[id_])
            yield Prediction(place, text, id_, logit, share, rank, marks.get(id_, ""))


def _split(
    report: Logits,
    source: Source,
    output: Output,
    watch: StreamWatch,
    readout: Readout,
    token: int,
    against: int | None,
) -> Logits:
    """The report with the parts of the logit."""
    stream = output.states[-1][0, watch.position]
    readout = readout.converted(stream)
    toward = direction(readout, stream, token, against)
    parts, sources = split(source, output, watch, toward, readout)
    total = sum(part.value for part in parts)
    allowed = TOLERANCE.get(source.info.dtype, EXACT) * max(1.0, abs(report.whole))
    if not abs(total - report.whole) <= allowed:
        raise ModelError(
            f"the parts of {source.info.model} add up to {total:.5g} and the logit is "
            f"{report.whole:.5g}: they are not shown; an ablated head cannot be split"
        )
    values = {head: float(row.sum()) for head, row in sources.items()}
    strongest = sorted(values, key=lambda head: -abs(values[head]))[:VOTES]
    outs = [source.output(head.site).moved_to(stream) for head in strongest]
    carrying = carried(output, watch, readout)
    outputs = [
        written(watch, head, out) * behind(watch, head.site, out, carrying)
        for head, out in zip(strongest, outs, strict=True)
    ]
    if readout.over:
        outputs = [
            carrying.onward(wrote, head.layer, carrying.passed(head.layer)[0])
            for head, wrote in zip(strongest, outputs, strict=True)
        ]
    rises = to_numpy(words(readout, stream, arrays.of(stream).xp.stack(outputs)))
    votes = []
    for head, moved in zip(strongest, rises, strict=True):
        ends = [[id_ for id_ in top(m, WORDS) if m[id_] > 0] for m in (moved, -moved)]
        raises, lowers = (answer_texts(source, ids) for ids in ends)
        seen = tuple(_seen(report.tokens, watch, head, sources[head]))
        votes.append(HeadAttribution(head, values[head], seen, raises, lowers))
    return _with(report, source, total, parts, votes, sources)


def _seen(tokens: Sequence[str], watch: StreamWatch, head: Head, row: Floats) -> Iterator[Seen]:
    weights = watch.weights[head.site][head.index]
    for place in top(abs(row), SEEN):
        yield Seen(place, tokens[place], float(weights[place]), float(row[place]))


def _with(
    report: Logits,
    source: Source,
    total: float,
    parts: tuple[LogitPart, ...],
    votes: Sequence[HeadAttribution],
    sources: dict[Head, Floats],
) -> Logits:
    length = len(report.tokens)
    by_token = {
        head: tuple(np.pad(row, (0, length - len(row))).tolist()) for head, row in sources.items()
    }
    caused = "what a head causes later layers to write counts as theirs."
    note = (
        f"The parts keep the scale of the last normalization fixed at its value here; {caused}"
        if source.readout().summed.normed
        else caused.capitalize()
    )
    return replace(
        report,
        sum=total,
        parts=parts,
        votes=tuple(votes),
        by_token=by_token,
        notes=(*report.notes, note, *held_notes(held(source))),
    )


def _without(report: Logits, readout: Readout, source: Source) -> Logits:
    """The report with the reason why nothing is split."""
    note = f"No sum over heads for {report.source.model}: {readout.reason}."
    if not source.no_gates:
        note += (
            " What every head changes of a difference of logits, attnviz ablate measures by the "
            "metric logit-diff."
        )
    return replace(report, reason=readout.reason, notes=(*report.notes, note))


def _text(source: Source, token: int) -> str:
    return answer_texts(source, [token])[0]
