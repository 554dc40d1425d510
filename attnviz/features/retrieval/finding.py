"""What needles say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure, Value
from attnviz.drawing.shares import estimate
from attnviz.features.retrieval.result import Retrieval
from attnviz.features.retrieval.words import chance_percent
from attnviz.statistics.share import CaseShare


def finding(found: Retrieval, name: str) -> Finding:
    """What each head copies, and its weight from the question.

    Args:
        found: the result.
        name: of its file.
    """
    copied, query, said = dict[str, Value](), dict[str, Value](), {}
    for one in found.heads:
        head, told = found.layout.name(one.head), []
        for share, values, what in (
            (one.copied, copied, "of the answers copied while generating"),
            (one.query, query, "of the weight from the question, calibrated"),
        ):
            if share.value is not None:
                values[head] = _value(share)
                told.append(f"{estimate(share)} {what}")
        if told:
            said[head] = (*told, *_ablated(found, one.head))
    measures = (
        Measure("copied", "tokens of the answer copied while generating", "", 0, copied),
        Measure("question", "weight from the question to the needle, calibrated", "", 0, query),
    )
    how = (
        f"{found.needles} prompts with a needle; figures are from {found.held_out}, the ranking "
        f"from {found.ranked_on}. Copied: the generated token is in the needle and has the head's "
        f"largest weight (chance {chance_percent(found.chance)} %); from the question: less what "
        "a question without content gets. 95 % intervals over needles."
    )
    some = tuple(measure for measure in measures if measure.values)
    return Finding("retrieval", name, "What it copies from a long text", how, said, some)


def _ablated(found: Retrieval, head: object) -> tuple[str, ...]:
    """The smallest ablation that it was part of."""
    for one in found.ablations:
        if head in one.heads:
            with_others = f" with {len(one.heads) - 1} others" if len(one.heads) > 1 else ""
            return (
                f"without it{with_others} {estimate(one.accuracy)} of the needles are retrieved, "
                f"in place of {estimate(found.accuracy)}; without others {estimate(one.random)}",
            )
    return ()


def _value(share: CaseShare) -> Value:
    assert share.value is not None
    return share.value, share.low, share.high
