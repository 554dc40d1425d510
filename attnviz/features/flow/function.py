"""Flow: what reaches every position from every token, through all layers."""

from __future__ import annotations

from dataclasses import replace

from attnviz.captures.inputs import Input, prompts_of, source_for
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.errors import Setting, UsageError
from attnviz.features.flow.named import named
from attnviz.features.flow.result import Direction, Flow
from attnviz.features.flow.run import follow, run, run_recorded
from attnviz.features.flow.settings import FlowSettings
from attnviz.features.flow.stack import nodes


@interface
def flow(
    text: Input, *, settings: FlowSettings, model: ModelSettings, progress: Progress | None = None
) -> Flow:
    """Follow tokens from layer to layer: what reaches every position from every token.

    ALTI (Ferrando et al. 2022, arXiv:2203.04212) measures in every layer how near each token's part
    comes to the whole, residual path included; rollout and max-flow (Abnar & Zuidema 2020,
    arXiv:2005.00928) take the mean of the weights for what attention moves, and half of every layer
    for the residual path.

    Args:
        text: a text or prompt to run, or a capture, whose text runs again where its weights are not
            enough; recorded attention takes a ``method``, for ALTI needs more than weights.
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    asked: tuple[tuple[Direction, str | int | None], ...] = (
        ("to", settings.position),
        ("from", settings.source),
    )
    tell = progress or (lambda stage, done, all_: None)
    origin = getattr(text, "asked", None)
    weights = isinstance(text, Capture) and (origin is None or origin.without is not None)
    if weights and settings.method is None:
        raise UsageError(
            "ALTI, which flow measures by default, needs the vectors that attention moves, and "
            "here are weights alone; take {method} or {}",
            Setting("method", "max-flow"),
            method="rollout",
        )
    if isinstance(text, Capture) and (weights or settings.method in ("rollout", "max-flow")):
        result = run_recorded(text.finite(), settings.method, tell)
    else:
        (prompt,), model = prompts_of(text, "has weights alone", model)
        source = light(source_for(prompt, model))
        inputs = source.prepare(prompt)
        for direction, token in asked:
            if token is not None:
                named(direction, str(token), nodes(inputs))  # now, not when all has run
        result = run(source, inputs, settings.method, tell)
        result = replace(result, identity=model.identity)
    for direction, token in asked:
        if token is not None:
            result = follow(result, direction, str(token))
    return result
