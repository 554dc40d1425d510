"""The words and figures that every form of needles shares."""

from __future__ import annotations

from attnviz.drawing.labels import counted, model_name
from attnviz.features.retrieval.result import (
    LEAST_COPIED,
    Retrieval,
    RetrievalAblation,
    RetrievalScore,
)
from attnviz.statistics.share import CaseShare

BY = {"copied": "tokens of the answer copied", "query": "weight from the question to the needle"}


def main_score(found: Retrieval, one: RetrievalScore) -> CaseShare:
    """The score that heads are ranked by, on the needles that they were not chosen on."""
    if found.by == "copied":
        return one.copied
    return one.weight if one.query.value is None else one.query


def title(found: Retrieval) -> str:
    """What a picture shows."""
    what = "copy a needle from" if found.by == "copied" else "find a needle in"
    return f"{model_name(found.source)}: which heads {what} a long text"


def depth_label(depth: float) -> str:
    """Where a needle stands."""
    return f"{100 * depth:.0f} %"


def head_list(found: Retrieval, one: RetrievalAblation) -> str:
    """The heads that were ablated."""
    return ", ".join(found.layout.name(head) for head in one.heads)


def summary(found: Retrieval) -> str:
    """How many retrieval heads there are, in one line."""
    if not found.generates:
        return "no score while generating: the model generates nothing"
    count = len(found.found)
    named = ", ".join(found.layout.name(one.head) for one in found.found[:8])
    more = ", …" if count > 8 else ""
    heads = f"{count} of {len(found.heads)} heads"
    return (
        f"{heads} copy more than {100 * LEAST_COPIED:.0f} % of the answers"
        f"{f': {named}{more}' if count else ''}; chance {chance_percent(found.chance)} %"
    )


def chance_percent(value: float | None) -> str:
    """A small share in percent."""
    return "–" if value is None else f"{100 * value:.2g}"


def control_line(found: Retrieval) -> str:
    """What random weights do, in one line; empty where they did not run."""
    one = found.control
    if one is None:
        return ""
    copied = ""
    if one.copied is not None:
        copied = (
            f"copied {chance_percent(one.copied)} % (the head with most "
            f"{chance_percent(one.copied_most)} %, chance {chance_percent(one.chance)} %), "
        )
    return (
        f"random weights (seed {one.seed}, given the answer): {copied}from the question "
        f"{100 * one.query:.2g} % (most {100 * one.query_most:.2g} %)"
    )


def measured(found: Retrieval) -> str:
    """What was measured on what, in one line."""
    info = found.source
    lengths = f"{found.lengths[0]:,}"
    if len(found.lengths) > 1:
        lengths += f" to {found.lengths[-1]:,}"
    what = "needles of random words" if found.task == "words" else f"needles of {found.task}"
    parts = [
        f"{counted(found.needles, 'prompt')} with {what}, {lengths} tokens",
        f"heads ranked by {BY[found.by]} on {found.ranked_on}, measured on {found.held_out}",
        "ablation: outputs set to 0" if found.ablations else "",
        f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}",
    ]
    return " · ".join(filter(None, parts))
