"""What needles say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure, Value
from attnviz.drawing.shares import estimate
from attnviz.features.retrieval.result import Retrieval
from attnviz.features.retrieval.words import chance_percent
from attnviz.statistics.share import CaseShare


def finding(result: Retrieval, name: str) -> Finding:
    """What each head copies, and its weight from the question.

    Args:
        result: the result.
        name: of its file.
    """
    copied, query, said = dict[str, Value](), dict[str, Value](), {}
    for score in result.heads:
        head, told = result.layout.name(score.head), []
        for share, values, what in (
            (score.copied, copied, "of the answers copied while generating"),
            (score.query, query, "of the weight from the question, calibrated"),
        ):
            if share.value is not None:
                values[head] = _value(share)
                told.append(f"{estimate(share)} {what}")
        if told:
            said[head] = (*told, *_ablated(result, score.head))
    measures = (
        Measure("copied", "tokens of the answer copied while generating", "", 0, copied),
        Measure("question", "weight from the question to the needle, calibrated", "", 0, query),
    )
    how = (
        f"{result.needles} prompts with a needle; figures are from {result.held_out}, the ranking "
        f"from {result.ranked_on}. Copied: the generated token is in the needle and has the head's "
        f"largest weight (chance {chance_percent(result.chance)} %); from the question: less what "
        "a question without content gets. 95 % intervals over needles."
    )
    some = tuple(measure for measure in measures if measure.values)
    return Finding("retrieval", name, "What it copies from a long text", how, said, some)


def _ablated(result: Retrieval, head: object) -> tuple[str, ...]:
    """The smallest ablation that it was part of."""
    for ablation in result.ablations:
        if head in ablation.heads:
            with_others = (
                f" with {len(ablation.heads) - 1} others" if len(ablation.heads) > 1 else ""
            )
            return (
                f"without it{with_others} {estimate(ablation.accuracy)} of the needles are "
                f"retrieved, in place of {estimate(result.accuracy)}; without others "
                f"{estimate(ablation.random)}",
            )
    return ()


def _value(share: CaseShare) -> Value:
    assert share.value is not None
    return share.value, share.low, share.high
