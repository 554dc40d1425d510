"""``attnviz.logits``: the next token, and which heads it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attnviz.attention.contributions import Carrying, direction, words
from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import answering
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import (
    answer_texts,
    distinct,
    is_masked,
    labels_of,
    near_copy,
    one_token,
    predicted,
    read_positions,
)
from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, exact, on_numpy, to_numpy, top
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.result import Interval, fingerprint
from attnviz.core.source import ForwardRequest, Output, Source, held
from attnviz.core.tokens import Tokens
from attnviz.core.weights import Readout, held_notes
from attnviz.drawing.labels import counted
from attnviz.errors import ModelError, UsageError
from attnviz.features.logits.result import (
    JUDGED,
    HeadAttribution,
    Logits,
    LogitsSettings,
    Prediction,
    Push,
    Seen,
    Writers,
)
from attnviz.features.logits.split import (
    StreamWatch,
    arriving,
    check_closed,
    split,
    uncapped,
    written,
)
from attnviz.features.logits.suppression import Case, explained
from attnviz.statistics.clusters import LEVEL, few_groups, holm
from attnviz.statistics.distributions import binomial_below
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import ROUNDING, too_few
from attnviz.statistics.ratios import ratios

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
    tokens, model_readout = predicted(inputs), source.readout()
    readout = model_readout.summed
    places = read_positions(source, tokens, question.position, whole_text=False)
    ids = [None if w is None else one_token(source, w) for w in (question.answer, question.against)]
    token, against = ids
    watch = StreamWatch(places[-1])
    able = readout.table is not None
    output = source.forward(
        [inputs],
        [watch] if able else (),
        ForwardRequest(hidden=bool(model_readout.cap), logits=True, states=able, mlps=able),
    )
    if output.logits is None:
        raise ModelError(f"{source.info.model} gave no logits")
    logits = {position: to_numpy(exact(output.logits[0, position])) for position in places}
    last = logits[places[-1]]
    chosen = int(last.argmax()) if token is None else token
    if chosen == against:
        raise UsageError(f"{_text(source, chosen)!r} cannot be compared with itself")
    named = [chosen] if token is not None else []
    named += [] if against is None else [against]
    report = Logits(
        source=source.info,
        layout=source.layout,
        tokens=tokens.texts,
        position=places[-1],
        predictions=tuple(_predictions(source, tokens, logits, question.predictions, named)),
        token=_text(source, chosen),
        against="" if against is None else _text(source, against),
        logit=float(last[chosen] - (0 if against is None else last[against])),
        notes=inputs.notes,
        texts=1,
    )
    if not able:
        return _without(report, readout, source)
    if model_readout.cap:
        assert output.hidden is not None
        report = _before_cap(
            report, readout, model_readout.cap, output.hidden[0, places[-1]], chosen, against
        )
    return _split(report, source, output, watch, readout, chosen, against)


def _before_cap(
    report: Logits, readout: Readout, cap: float, final: Array, token: int, against: int | None
) -> Logits:
    """Return the report with the logit before the cap, from the model's own final state, [D]."""
    note = (
        f"{report.source.model} caps its logits: each is {cap:g} tanh(x / {cap:g}). The parts add "
        "up to x, the logit before the cap, which ranks words alike."
    )
    logit = uncapped(readout, final, token, against)
    return replace(report, uncapped=logit, cap=cap, notes=(*report.notes, note))


def _predictions(
    source: Source, tokens: Tokens, logits: Mapping[int, Floats], count: int, named: Sequence[int]
) -> Iterator[Prediction]:
    """Get the top words at each position, then those that were asked for, then what does follow."""
    labels = labels_of(source)
    follows = not is_masked(source) and labels is None
    for position, scores in logits.items():
        ids = top(scores, count)
        marks = dict.fromkeys(named, "asked")
        if follows and position + 1 < len(tokens):
            marks.setdefault(tokens.ids[position + 1], "next")
        listed = ids + [id_ for id_ in marks if id_ not in ids]
        shares = on_numpy.softmax(scores, None) if labels is None else labels.share(scores)
        for id_, text in zip(listed, answer_texts(source, listed), strict=True):
            rank = int((scores > scores[id_]).sum()) + 1
            logit, share = float(scores[id_]), float(shares[id_])
            yield Prediction(position, text, id_, logit, share, rank, marks.get(id_, ""))


def _split(
    report: Logits,
    source: Source,
    output: Output,
    watch: StreamWatch,
    readout: Readout,
    token: int,
    against: int | None,
) -> Logits:
    """Return the report with the parts of the logit."""
    stream = output.states[-1][0, watch.position]
    readout = readout.converted(stream)
    toward = direction(readout, stream, token, against)
    carrying = Carrying.at(readout, output, watch.row)
    parts, sources = split(source, output, watch, toward, carrying)
    total = sum(part.value for part in parts)
    check_closed(source, total, report.whole)
    values = {head: float(row.sum()) for head, row in sources.items()}
    strongest = sorted(values, key=lambda head: -abs(values[head]))[:VOTES]
    outputs = []
    for head in strongest:
        out = source.output(head.site).moved_to(stream)
        outputs.append(arriving(written(watch, head, out), watch, head.site, out, carrying))
    rises = to_numpy(words(readout, stream, arrays.of(stream).xp.stack(outputs)))
    votes = []
    for head, moved in zip(strongest, rises, strict=True):
        ends = [[id_ for id_ in top(m, WORDS) if m[id_] > 0] for m in (moved, -moved)]
        raises, lowers = (answer_texts(source, ids) for ids in ends)
        row, weights, texts = sources[head], watch.weights[head.site][head.index], report.tokens
        places = top(abs(row), SEEN)
        sources_read = tuple(Seen(n, texts[n], float(weights[n]), float(row[n])) for n in places)
        votes.append(HeadAttribution(head, values[head], sources_read, raises, lowers))
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
    notes = (*report.notes, note, *held_notes(held(source)))
    return replace(
        report, sum=total, parts=parts, votes=tuple(votes), by_token=by_token, notes=notes
    )


def _without(report: Logits, readout: Readout, source: Source) -> Logits:
    """Return the report with the reason why nothing is split."""
    note = f"No sum over heads for {report.source.model}: {readout.reason}."
    if not source.no_gates:
        note += (
            " What every head changes of a difference of logits, attnviz ablate measures by the "
            "metric logit-diff."
        )
    return replace(report, reason=readout.reason, notes=(*report.notes, note))


def _text(source: Source, token: int) -> str:
    return answer_texts(source, [token])[0]


@interface
def logits(text: Input, *, settings: LogitsSettings, model: ModelSettings) -> Logits:
    """Say what a model predicts, and split one logit into what every part of the model adds to it.

    Direct logit attribution, see :mod:`attnviz.features.logits.function`; only for models whose
    residual stream is normalized before a layer and at the end (GPT-2, Llama and their kind,
    hybrids such as Qwen3-Next). Others, such as BERT, give predictions and the reason.

    Args:
        text: a text or prompt.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where the parts do not add up.
    """
    lacks = "holds no logits, since those need the model"
    (prompt,), model = prompts_of(text, lacks, model)
    source = answering(model.load())
    result = run(source, source.prepare(prompt), settings)
    return replace(result, identity=model.identity)


@interface
def writers(
    texts: Iterable[Input],
    *,
    answer: str | Sequence[str] | None = None,
    against: str | Sequence[str] | None = None,
    model: ModelSettings,
) -> Writers:
    """Say which heads and MLPs push the logits of answers up over many texts, and which down.

    What :func:`logits` finds at the last token of each text, part by part: its mean with an
    interval, and a sign test. Of copies of a text the first counts. The largest cancellers among
    heads are tried for copy suppression, and the largest writers replaced by their means, to see
    what others make up for.

    Args:
        texts: the texts or prompts.
        answer: the word whose logit is split, one for all texts or one for each; by default the
            most probable one in each.
        against: the competing word, whose logit is subtracted; likewise.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where a model's logits are no sum.
    """
    lacks = "holds no logits, since those need the model"
    prompts, model = prompts_of(texts, lacks, model)
    count = len(prompts)
    words = [[w] * count if w is None or isinstance(w, str) else w for w in (answer, against)]
    if any(len(column) != count for column in words):
        raise UsageError("give texts, and one word for all {} of them or one for each", count)
    source = answering(model.load())
    ready = [source.prepare(replace(prompt, spans=None)) for prompt in prompts]
    cases, notes = distinct(list(zip(ready, *words, strict=True)), list(map(near_copy, ready)))
    results = [
        run(source, inputs, LogitsSettings(answer=word, against=competitor, predictions=1))
        for inputs, word, competitor in cases
    ]
    if results[0].reason:
        raise ModelError(f"no sum over heads for {source.info.model}: {results[0].reason}")
    studied = [
        Case(inputs, result.position, result.predictions[0].id if word is None else
             one_token(source, word), None if competitor is None else one_token(source, competitor))
        for result, (inputs, word, competitor) in zip(results, cases, strict=True)
    ]  # fmt: skip
    pushes = explained(source, studied, tuple(_judged(results, source)), results[0].parts)
    notes += (few_groups(len(results)) or too_few(len(results), len(pushes), "parts") or "",)
    if answer is None:
        notes += ("Each answer is the model's own choice, for which more of its parts push up.",)
    answers = len({(result.token, result.against) for result in results})
    if 4 * answers < len(results):
        notes += (f"The texts have {counted(answers, 'answer')}: others may be written otherwise.",)
    remainders = [sum(p.value for p in result.parts if p.kind not in JUDGED) for result in results]
    target = "the next token" if answer is None else "the answer"
    notes += tuple(dict.fromkeys(note for result in results for note in result.notes))
    return Writers(
        source=source.info, layout=source.layout, identity=model.identity, texts=len(results),
        corpus=fingerprint((inputs.texts, *words) for inputs, *words in cases),
        notes=tuple(filter(None, notes)),
        of=f"logit of {target}{'' if against is None else ' minus that of the other word'}",
        logit=float(np.mean([result.sum for result in results])), rest=float(np.mean(remainders)),
        pushes=pushes,
    )  # fmt: skip


def _judged(results: Sequence[Logits], source: Source) -> Iterator[Push]:
    """Judge every head, mixer and MLP over texts, of which none is a copy."""
    heads = iter(source.layout)
    values = np.array([[p.value for p in result.parts if p.kind in JUDGED] for result in results])
    sizes = np.array([[sum(abs(p.value) for p in result.parts)] for result in results])  # [n, 1]
    names = list(map(str, range(len(results))))
    means = ratios(values, np.ones((len(results), 1)), names, size=sizes, joint=False)
    above, below = (values > ROUNDING * sizes).sum(0), (values < -ROUNDING * sizes).sum(0)
    p = np.minimum(2 * binomial_below(np.minimum(above, below), above + below), 1.0)
    adjusted = holm(np.where(above + below > 0, p, np.nan))
    for n, part in enumerate(p for p in results[0].parts if p.kind in JUDGED):
        mean, low, high = (float(bound[n]) for bound in (means.value, means.low, means.high))
        alike, opposite = (above[n], below[n]) if mean > 0 else (below[n], above[n])
        sure = adjusted[n] < 1 - LEVEL and alike > opposite and not low <= 0 <= high
        head = next(heads) if part.kind == "head" else None
        yield Push(
            source.layout.name(head) if head else f"{part.name or 'MLP'} {part.layer}",
            part.kind, part.layer, part.head,
            Interval(mean, none_if_nan(low), none_if_nan(high)),
            float(alike / (alike + opposite)) if alike + opposite else None,
            none_if_nan(float(adjusted[n])),
            ("writer" if mean > 0 else "canceller") if sure else "",
        )  # fmt: skip
