"""``attnviz.explain``: why did the model say that?"""

from __future__ import annotations

from dataclasses import replace

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, load, prompt_of
from attnviz.core.capture import Capture
from attnviz.errors import UsageError
from attnviz.features.explain.result import Explanation
from attnviz.features.explain.run import ExplainQuestion, run
from attnviz.models.identity import identity


def explain(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    answer: str | None = None,
    against: str | None = None,
    count: int = 3,
    device: str = "auto",
    dtype: str = "auto",
) -> Explanation:
    """Say why a model predicts a word: who votes for it, through what, and what without them.

    What it says is measured on this text by the functions of the other commands:
    :func:`attnviz.logits` splits the difference of the word's logit to the runner-up's,
    :func:`attnviz.sources` the score by which each of the strongest heads finds its key, and
    :func:`attnviz.ablate` replaces those heads, and the earlier ones that their keys come from.
    Where a model's logits are no sum (BERT), heads are chosen by ablating each.

    Args:
        what: a text or prompt; the word follows its last token, or stands at its only mask.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        answer: the word to explain; by default the most probable. ``#391`` is a token by its id.
        against: what it is compared with; by default the most probable word beside it.
        count: of the heads that are told about.
        device: where to run.
        dtype: in which precision.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError for a model without an LM head, or one
            whose attention cannot be ablated.
    """
    if isinstance(what, Capture):
        raise UsageError(
            "recorded attention predicts nothing, since that needs the model; give a text and "
            "{model}",
            model=...,
        )
    question = ExplainQuestion(answer, against, count)
    question.check()
    source = load(model, device=device, dtype=dtype)
    return replace(run(source, prompt_of(what), question), identity=identity(model))
