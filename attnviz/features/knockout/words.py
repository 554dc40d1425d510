"""Words and figures that every form of a knockout shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnviz.core.spans import EVERY, LAST
from attnviz.drawing.grid import signed
from attnviz.drawing.labels import counted, in_part, model_name, quoted, ran_on, visible
from attnviz.features.knockout.result import MOST, CutChange, CutEffect, Knockout
from attnviz.features.knockout.settings import REDIRECT
from attnviz.features.knockout.texts import BEFORE, PUNCTUATION, SINK
from attnviz.statistics.clusters import FEW, LEAST
from attnviz.statistics.coverage import holds
from attnviz.statistics.order import too_few

_ROWS = {LAST: "the last token", EVERY: "all tokens"}
_KEYS = {BEFORE: "all before it", SINK: "the sink", PUNCTUATION: "punctuation", EVERY: "all tokens"}
_CUTS = {
    "mask": "cut before softmax",
    "rescale": "cut after softmax, rows scaled to what they were",
    "zero": "cut after softmax, rows not scaled",
}
_JOINT = "medians over texts, whose intervals hold for all cuts at once"
MARK = "*"
"""Behind what surely differs from its control, or from 0 without one, judged with all others."""
FULL = 0.995  # of the weight: a control that takes more of it takes as much


def metric(result: Knockout) -> str:
    """Return what is measured."""
    answer, against = (said(text.strip()) for text in (result.answer, result.against))
    answer, against = (f"“{text}”" if text else "" for text in (answer, against))
    if result.metric == "logit-diff":
        return f"lead of {answer} over {against}" if answer else "lead of the answer"
    if result.metric in ("prob", "log-prob"):
        return f"{'log ' * (result.metric != 'prob')}probability of {answer or 'the answer'}"
    return {"kl": "KL divergence", "loss": "loss"}[result.metric]


def rows(name: str) -> str:
    """Return the queries, within a sentence."""
    return _ROWS.get(name, quoted(name))


def keys(name: str) -> str:
    """Return the keys, within a sentence."""
    return _KEYS.get(name, quoted(name))


def scale(result: Knockout) -> float:
    """By how much figures are multiplied: probabilities are in points."""
    return 100.0 if result.metric == "prob" else 1.0


def unit(result: Knockout) -> str:
    """Return the unit of changes so multiplied."""
    return "points" if result.metric == "prob" else result.unit


def value(result: Knockout, number: float | None) -> str:
    """Return a change, with its sign where it can have one."""
    if number is None:
        return "–"
    if result.metric == "prob":
        return f"{100 * number:+.2g} points" if abs(number) >= 5e-5 else "0"
    return signed(number, 3)


def level(result: Knockout, number: float) -> str:
    """Return the metric itself."""
    if result.metric == "prob":
        return f"{100 * number:.3g} %"
    return f"{number:.3g}"


def ends(result: Knockout, change: CutChange | None) -> str:
    """Return the interval that holds with all others; empty where there is none."""
    if change is None or change.joint_low is None or change.joint_high is None:
        return ""
    low, high = (signed(scale(result) * end, 2) for end in (change.joint_low, change.joint_high))
    return f"{low} to {high}"


def cut(result: Knockout) -> str:
    """How edges are cut."""
    if result.cut.startswith(REDIRECT):
        return f"weight moved to {visible(result.cut.removeprefix(REDIRECT))}"
    return _CUTS.get(result.cut, result.cut)


def does(result: Knockout, effect: CutEffect, beside: bool = True) -> str:
    """Say what a cut does, with what its control does beside it, as a sentence without its end."""
    heads = "" if effect.kind == "all" else f" in {effect.name}"
    lone = ", and so to nothing but itself" if effect.isolates else ""
    if effect.rows != LAST and effect.isolates:
        lone = ", and so each to nothing but itself"
    start = f"Where {rows(effect.rows)} cannot attend to {keys(effect.keys)}{heads}{lone}"
    if effect.rows == EVERY:
        start = f"Where no token can attend to {keys(effect.keys)}{heads}{lone}"
    change, unit = effect.change.value, f" {result.unit}" * bool(result.unit)
    if result.worse == 0:
        effect_text = f"the prediction moves by {abs(change):.3g}{unit} of KL"
        if value(result, change) == "0":
            effect_text = "the prediction does not move"
    else:
        effect_text = _changed(result, effect)
    return f"{start}, {effect_text}{_beside(result, effect) * beside}"


def _changed(result: Knockout, effect: CutEffect) -> str:
    """How the metric changes; of a lead below 0, who catches up with whom."""
    change = effect.change.value
    size = f"{abs(change):.3g}{f' {result.unit}' * bool(result.unit)}"
    if result.metric == "prob":
        size = f"{100 * abs(change):.2g} points"
    if result.metric == "logit-diff" and effect.base < 0:
        answer, against = (f"“{said(text.strip())}”" for text in (result.answer, result.against))
        behind = (
            f"{abs(effect.base):.3g} logits behind {against if result.against else 'the other'}"
        )
        subject = f"{answer if result.answer else 'the answer'}, {behind},"
        if value(result, change) == "0":
            return f"{subject} stays there"
        return f"{subject} {'falls back' if change < 0 else 'gains'} by {size}"
    if value(result, change) == "0":
        return f"the {metric(result)} does not change"
    return f"the {metric(result)} {'falls' if change < 0 else 'rises'} by {size}"


def _beside(result: Knockout, effect: CutEffect) -> str:
    """Return what the control does, or why there is none."""
    if effect.matched is None:
        return ""
    if effect.control is not None:
        amount = "as much" if effect.matched > FULL else f"{taken(effect)} as much"
        return f" ({value(result, effect.control)} where {amount} of other keys is cut at random)"
    return f"; {uncontrolled(effect)}"


def uncontrolled(effect: CutEffect) -> str:
    """Why no control can be made of a cut."""
    if effect.isolates:
        return "no control: there is no other key to take from"
    if not effect.matched:
        have = "this edge has more of its row" if len(effect.heads) == 1 else (
            "these edges have more of their rows")  # fmt: skip
        return f"{have} than all others together: no control takes as much"
    return (
        "most of this weight is in rows of which these edges have more than all others together: "
        "no control takes as much"
    )


def often(result: Knockout, effect: CutEffect) -> str:
    """``worse in 34 % or more``: of the texts, by 1 % of the metric or more; empty for no."""
    change = effect.judged
    ways = (("worse", change.often_worse), ("better", change.often_better))
    return in_part(ways) if result.texts > 1 else ""


def taken(effect: CutEffect) -> str:
    """How much of the weight the control takes; empty without controls."""
    if effect.matched is None:
        return ""
    share = effect.matched
    return f">{100 * FULL:.0f} %" if FULL < share < 1 else f"{100 * share:.0f} %"


def sentence(result: Knockout, beside: bool = True) -> str:
    """Say what the pair that matters most does, with all heads cut."""
    cuts = [effect for effect in result.ranked() if effect.kind == "all"]
    return f"{does(result, cuts[0], beside)}." if cuts else ""


def measure(result: Knockout) -> str:
    """Return what was measured on what, in one line."""
    draws = f"{counted(result.draws, 'random control')} of each cut" if result.draws else ""
    joint = any(effect.change.joint_low is not None for effect in result.effects)
    interval = _JOINT if joint and holds("knockout: all at once", result.clusters) else ""
    parts = (
        f"{metric(result)}, {cut(result)}",
        counted(result.texts, "text"),
        draws,
        interval,
        f"window of {counted(result.window, 'layer')}" if result.window else "",
        ran_on(result.source),
    )
    return " · ".join(filter(None, parts)) + " · interrupted" * result.partial


def title(result: Knockout) -> str:
    """Of pictures and pages."""
    subject = (
        "how far the prediction moves" if result.worse == 0 else f"change of the {metric(result)}"
    )
    return f"{model_name(result.source)}: {subject} without attention of rows to keys"


def said(text: str) -> str:
    """Return what a model writes; nothing where there is none."""
    return visible(text) if text else ""


def axes(result: Knockout) -> tuple[list[str], list[str]]:
    """Return the names of rows and keys of the matrix, spans in their order."""
    order = [span.name for span in result.spans]
    names = ({pair[0] for pair in result.pairs}, {pair[1] for pair in result.pairs})
    rows, columns = (
        sorted(axis, key=lambda name: order.index(name) if name in order else len(order))
        for axis in names
    )
    return rows, columns


LITTLE = 0.8  # a control that takes less of the weight deserves a word


def _some(result: Knockout, cuts: Sequence[CutEffect], singular: str, plural: str) -> str:
    """So many of all cuts have something."""
    if len(result.effects) == 1:
        return f"The cut has {singular}"
    if len(cuts) == len(result.effects):
        return f"All {len(cuts)} cuts have {plural}"
    return f"{len(cuts)} of {len(result.effects)} cuts {'has' if len(cuts) == 1 else 'have'} " + (
        singular if len(cuts) == 1 else plural
    )


def notes(result: Knockout) -> Iterator[str]:
    """Yield what to say of a result."""
    if result.texts > result.clusters:
        yield f"{result.texts:,} texts count as {result.clusters:,}: some are word for word alike."
    if result.clusters < LEAST:
        texts = "One text has" if result.clusters == 1 else f"{result.clusters} texts have"
        yield f"{texts} no interval: nothing is known about others; give {FEW} or more."
    elif warning := too_few(result.clusters, result.family, "changes"):
        yield warning
    weak = [e for e in result.effects if e.control is not None and (e.matched or 0.0) < LITTLE]
    if weak:
        least = min(weak, key=lambda effect: effect.matched or 0.0)
        yield (
            f"{_some(result, weak, 'a control that takes', 'controls that take')} less weight than "
            f"the cut, since rows have less elsewhere: {taken(least)} of it from "
            f"{least.rows} to {least.keys} ({least.name})."
        )
    without = [e for e in result.effects if e.matched is not None and e.control is None]
    if without:
        yield (
            f"{_some(result, without, 'no control', 'no controls')}, which would have to take as "
            "much of the rows from other keys; what they change is judged against 0."
        )
    if result.draws and result.metric == "kl":
        yield "KL is never below 0: what counts is how far it is above that of the control."
    if result.written and len([e for e in result.effects if e.kind != "window"]) > MOST:
        yield f"Texts were written with the first {MOST} cuts alone."
