"""The words and figures that every form of needles shares."""

from __future__ import annotations

from attnviz.core.interval import Interval
from attnviz.drawing.labels import counted, model_name, ran_on
from attnviz.features.retrieval.result import (
    LEAST_COPIED,
    Retrieval,
    RetrievalAblation,
    RetrievalScore,
)

BY = {"copied": "tokens of the answer copied", "query": "weight from the question to the needle"}


def main_score(result: Retrieval, score: RetrievalScore) -> Interval:
    """The score that heads are ranked by, on the needles that they were not chosen on."""
    if result.by == "copied":
        return score.copied
    return score.weight if score.query.value is None else score.query


def title(result: Retrieval) -> str:
    """What a picture shows."""
    what = "copy a needle from" if result.by == "copied" else "find a needle in"
    return f"{model_name(result.source)}: which heads {what} a long text"


def depth_label(depth: float) -> str:
    """Where a needle stands."""
    return f"{100 * depth:.0f} %"


def head_list(result: Retrieval, ablation: RetrievalAblation) -> str:
    """The heads that were ablated."""
    return ", ".join(result.layout.name(head) for head in ablation.heads)


def summary(result: Retrieval) -> str:
    """How many retrieval heads there are, in one line."""
    if not result.generates:
        return "no score while generating: the model generates nothing"
    count = len(result.retrieval_heads)
    named = ", ".join(result.layout.name(head.head) for head in result.retrieval_heads[:8])
    more = ", …" if count > 8 else ""
    heads = f"{count} of {len(result.heads)} heads"
    return (
        f"{heads} copy more than {100 * LEAST_COPIED:.0f} % of the answers"
        f"{f': {named}{more}' if count else ''}; chance {chance_percent(result.chance)} %"
    )


def chance_percent(value: float | None) -> str:
    """A small share in percent."""
    return "–" if value is None else f"{100 * value:.2g}"


def control_line(result: Retrieval) -> str:
    """What random weights do, in one line; empty where they did not run."""
    control = result.control
    if control is None:
        return ""
    copied = ""
    if control.copied is not None:
        copied = (
            f"copied {chance_percent(control.copied)} % (the head with most "
            f"{chance_percent(control.copied_most)} %, chance {chance_percent(control.chance)} %), "
        )
    return (
        f"random weights (seed {control.seed}, given the answer): {copied}from the question "
        f"{100 * control.query:.2g} % (most {100 * control.query_most:.2g} %)"
    )


def measured(result: Retrieval) -> str:
    """What was measured on what, in one line."""
    lengths = f"{result.lengths[0]:,}"
    if len(result.lengths) > 1:
        lengths += f" to {result.lengths[-1]:,}"
    what = "needles of random words" if result.task == "words" else f"needles of {result.task}"
    parts = [
        f"{counted(result.needles, 'prompt')} with {what}, {lengths} tokens",
        f"heads ranked by {BY[result.by]} on {result.ranked_on}, measured on {result.held_out}",
        "ablation: outputs set to 0" if result.ablations else "",
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))
