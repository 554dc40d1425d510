"""Flow: what reaches every position from every token, through all layers."""

from __future__ import annotations

from dataclasses import replace

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, prompt_of, source_for
from attnviz.core.capture import Capture
from attnviz.core.progress import Progress
from attnviz.errors import UsageError
from attnviz.features.flow.result import Direction, Flow
from attnviz.features.flow.run import follow, run, run_recorded
from attnviz.models.identity import identity


def flow(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    method: str | None = None,
    to: str | int | None = None,
    from_: str | int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Flow:
    """Follow tokens from layer to layer: what reaches every position from every token.

    ALTI (Ferrando et al. 2022, arXiv:2203.04212) measures in every layer how near each token's part
    comes to the whole, residual path included; rollout and max-flow (Abnar & Zuidema 2020,
    arXiv:2005.00928) take the mean of the weights for what attention moves, and half of every layer
    for the residual path.

    Args:
        what: a capture of all layers, or a text or prompt to run.
        model: for a text or prompt, see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        method: ``alti``, ``rollout`` or ``max-flow`` (up to 128 tokens); by default
            ALTI where the vectors that attention moves are at hand, else rollout.
        to: follow a token back, by its position or text: where did it come from?
        from_: follow a token on: where does it go?
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    if to is not None and from_ is not None:
        raise UsageError("a token is followed to it or from it, not both; give one of them")
    tell = progress or (lambda stage, done, all_: None)
    if isinstance(what, Capture):
        found = run_recorded(what, method, tell)
    else:
        prompt = prompt_of(what)
        source = source_for(prompt, model, device, dtype)
        found = run(source, source.prepare(prompt), method, tell)
        found = replace(found, identity=identity(model))
    asked: tuple[tuple[Direction, str | int | None], ...] = (("to", to), ("from", from_))
    for direction, token in asked:
        if token is not None:
            found = follow(found, direction, str(token))
    return found
