"""``attnviz.logits``: the next token, and which heads it comes from."""

from __future__ import annotations

from dataclasses import replace

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, load, prompt_of
from attnviz.core.capture import Capture
from attnviz.errors import UsageError
from attnviz.features.logits.result import Logits, Position
from attnviz.features.logits.run import Question, run
from attnviz.models.identity import identity


def logits(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    token: str | None = None,
    against: str | None = None,
    position: Position = None,
    top: int = 5,
    device: str = "auto",
    dtype: str = "auto",
) -> Logits:
    """Say what a model predicts, and split one logit into what every part of the model adds to it.

    Direct logit attribution, see :mod:`attnviz.features.logits.split`; only for models whose
    residual stream is normalized before a layer and at the end (GPT-2, Llama and their kind).
    Others, such as BERT, give predictions and the reason.

    Args:
        what: a text or prompt.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        token: the word whose logit is split; by default the most probable.
        against: a word whose logit is taken off.
        position: of the token that the word follows, from 0 or, negative, from the end, or
            ``"all"``; by default the last. In masked models the word stands at it, by default at
            every mask. The last of several positions is the one whose logit is split.
        top: how many predictions for each position.
        device: where to run.
        dtype: in which precision.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where the parts found do not add up.
    """
    if isinstance(what, Capture):
        raise UsageError(
            "recorded attention holds no logits, since those need the model; give a "
            "text and {model}",
            model=...,
        )
    question = Question(token, against, position, top)
    question.check()
    source = load(model, device=device, dtype=dtype)
    found = run(source, source.prepare(prompt_of(what)), question)
    return replace(found, identity=identity(model))
