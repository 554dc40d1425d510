"""What needles say of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Figures, Finding, Measure, known
from attnviz.drawing.shares import estimate
from attnviz.features.retrieval.result import Retrieval, RetrievalScore
from attnviz.features.retrieval.words import chance_percent


def finding(result: Retrieval, name: str) -> Finding:
    """What each head copies, and its weight from the question."""
    heads = {result.layout.name(score.head): score for score in result.heads}
    copied = known({head: score.copied for head, score in heads.items()})
    query = known({head: score.query for head, score in heads.items()})
    measures = (
        Measure("copied", "tokens of the answer copied while generating", "", 0, copied),
        Measure("question", "weight from the question to the needle, calibrated", "", 0, query),
    )
    said = {head: list(_lines(result, score)) for head, score in heads.items()}
    how = (
        f"{result.needles} prompts with a needle; figures are from {result.held_out}, the ranking "
        f"from {result.ranked_on}. Copied: the generated token is in the needle and has the head's "
        f"largest weight (chance {chance_percent(result.chance)} %); from the question: less what "
        "a question without content gets. 95 % intervals over needles."
    )
    return Finding.of("retrieval", name, "What it copies from a long text", how, said, measures)


def _lines(result: Retrieval, score: RetrievalScore) -> Iterator[str]:
    """What is known of a head, and what the smallest ablation that it was part of costs."""
    if score.copied.value is None and score.query.value is None:
        return
    if score.copied.value is not None:
        yield f"{estimate(score.copied)} of the answers copied while generating"
    if score.query.value is not None:
        yield f"{estimate(score.query)} of the weight from the question, calibrated"
    for ablation in [some for some in result.ablations if score.head in some.heads][:1]:
        others = len(ablation.heads) - 1
        yield (
            f"without it{f' with {others} others' * bool(others)} {estimate(ablation.accuracy)} of "
            f"the needles are retrieved, in place of {estimate(result.accuracy)}; without others "
            f"{estimate(ablation.random)}"
        )


def figures(result: Retrieval) -> Figures:
    """Both scores of every head."""
    values: dict[str, dict[str, float | None]] = {
        result.layout.name(head.head): {"copied": head.copied.value, "question": head.query.value}
        for head in result.heads
    }
    settings = {
        "task": result.task,
        "lengths": ", ".join(map(str, result.lengths)),
        "depths": ", ".join(f"{depth:g}" for depth in result.depths),
        "seed": str(result.seed),
    }
    return Figures(values, settings=settings)
