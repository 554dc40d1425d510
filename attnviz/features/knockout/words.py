"""Words and figures that every form of a knockout shares."""

from __future__ import annotations

from attnviz.core.spans import EVERY, LAST
from attnviz.drawing.labels import counted, model_name, ran_on, visible
from attnviz.drawing.signed import signed
from attnviz.features.knockout.places import BEFORE, PUNCTUATION, SINK
from attnviz.features.knockout.result import CutChange, CutEffect, Knockout
from attnviz.features.knockout.settings import REDIRECT
from attnviz.statistics.coverage import holds

_ROWS = {LAST: "the last token", EVERY: "all tokens"}
_KEYS = {
    BEFORE: "all before it",
    SINK: "the sink",
    PUNCTUATION: "punctuation",
    EVERY: "all tokens",
}
_METHODS = {
    "before": "cut before softmax",
    "after": "cut after softmax, rows scaled to what they were",
    "zero": "cut after softmax, rows not scaled",
}
_JOINT = "medians over texts, whose intervals hold for all cuts at once"
MARK = "*"
"""Behind what surely differs from its control, judged with all others."""


def metric(result: Knockout) -> str:
    """What is measured."""
    answer, against = (said(text).strip() for text in (result.answer, result.against))
    if result.metric == "logit-diff":
        return f"lead of {answer} over {against}" if answer else "lead of the answer"
    if result.metric in ("prob", "log-prob"):
        return f"{'log ' * (result.metric != 'prob')}probability of {answer or 'the answer'}"
    return {"kl": "KL divergence", "loss": "loss"}[result.metric]


def rows(name: str) -> str:
    """The queries, within a sentence."""
    return _ROWS.get(name, visible(name))


def keys(name: str) -> str:
    """The keys, within a sentence."""
    return _KEYS.get(name, visible(name))


def pair(effect: CutEffect) -> str:
    """``last to subject``."""
    return f"{visible(effect.rows)} to {visible(effect.keys)}"


def value(result: Knockout, number: float | None) -> str:
    """A change, with its sign where it can have one."""
    if number is None:
        return "–"
    if result.metric == "prob":
        return f"{100 * number:+.2g} points" if abs(number) >= 5e-5 else "0"
    return signed(number, 3)


def level(result: Knockout, number: float) -> str:
    """The metric itself."""
    if result.metric == "prob":
        return f"{100 * number:.3g} %"
    return f"{number:.3g}"


def ends(result: Knockout, change: CutChange | None) -> str:
    """The interval that holds with all others; empty where there is none."""
    if change is None or change.joint_low is None or change.joint_high is None:
        return ""
    scale = 100 if result.metric == "prob" else 1
    low, high = (signed(scale * end, 2) for end in (change.joint_low, change.joint_high))
    return f"{low} to {high}"


def method(result: Knockout) -> str:
    """How edges are cut."""
    if result.method.startswith(REDIRECT):
        return f"weight moved to {visible(result.method.removeprefix(REDIRECT))}"
    return _METHODS.get(result.method, result.method)


def does(result: Knockout, effect: CutEffect) -> str:
    """What a cut does, as a sentence without its end."""
    heads = "" if effect.kind == "all" else f" in {effect.name}"
    where = f"Where {rows(effect.rows)} cannot attend to {keys(effect.keys)}{heads}"
    change, unit = effect.change.value, f" {result.unit}" * bool(result.unit)
    if result.worse == 0:
        said = f"the prediction moves by {abs(change):.3g}{unit} of KL"
    else:
        verb = "falls" if change < 0 else "rises"
        size = f"{100 * abs(change):.2g} points" if result.metric == "prob" else (
            f"{abs(change):.3g}{unit}"
        )  # fmt: skip
        said = f"the {metric(result)} {verb} by {size}"
    control = ""
    if effect.control is not None:
        control = f" ({value(result, effect.control)} where as much is cut at random)"
    return f"{where}, {said}{control}"


def sentence(result: Knockout) -> str:
    """The pair that matters most, with all heads cut."""
    whole = [effect for effect in result.ranked() if effect.kind == "all"]
    return f"{does(result, whole[0])}." if whole else ""


def measure(result: Knockout) -> str:
    """What was measured on what, in one line."""
    draws = f"{counted(result.draws, 'random control')} of each cut" if result.draws else ""
    interval = _JOINT if _known(result) else ""
    parts = (
        f"{metric(result)}, {method(result)}",
        counted(result.texts, "text"),
        draws,
        interval,
        f"window of {counted(result.window, 'layer')}" if result.window else "",
        ran_on(result.source),
    )
    return " · ".join(filter(None, parts)) + " · interrupted" * result.partial


def _known(result: Knockout) -> bool:
    known = any(effect.change.joint_low is not None for effect in result.effects)
    return known and holds("knockout: all at once", result.clusters)


def title(result: Knockout) -> str:
    """Of pictures and pages."""
    what = (
        "how far the prediction moves" if result.worse == 0 else f"change of the {metric(result)}"
    )
    return f"{model_name(result.source)}: {what} without attention from rows to columns"


def said(text: str) -> str:
    """What a model writes; nothing where there is none."""
    return visible(text) if text else ""


def most(result: Knockout) -> float:
    """The end of the colours."""
    return max((abs(effect.change.value) for effect in result.effects), default=0.0)


def axes(result: Knockout) -> tuple[list[str], list[str]]:
    """The names of rows and keys of the matrix, spans in their order."""
    order = [span.name for span in result.spans]
    names = ({pair[0] for pair in result.pairs}, {pair[1] for pair in result.pairs})
    rows, columns = (
        sorted(some, key=lambda name: order.index(name) if name in order else len(order))
        for some in names
    )
    return rows, columns
