"""Flow: what reaches every position from every token, through all layers."""

from __future__ import annotations

from dataclasses import replace
from warnings import warn

from attnviz.captures.inputs import Input, prompts_of, source_for
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.heads import SITE_PREFIX, Layout, Site
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.settings import Progress
from attnviz.core.source import ForwardRequest, Source
from attnviz.errors import AttnvizWarning, InputError, ModelError, Setting, UsageError
from attnviz.features.flow import stack
from attnviz.features.flow.result import Direction, Flow, FlowSettings, Followed, Method, Order
from attnviz.files import human_bytes
from attnviz.models.limits import beyond
from attnviz.scoring.observe import blocks, observe

_SOURCE, _TARGET = SITE_PREFIX["encoder"] + ":", SITE_PREFIX["decoder"] + ":"


def named(direction: Direction, token: str, all_nodes: stack.Nodes) -> Followed:
    """Find a token."""
    source, target = range(all_nodes.targets), range(all_nodes.targets, len(all_nodes))
    sides = [target, source] if direction == "to" else [source, target]
    if all_nodes.targets:
        for prefix, side in ((_SOURCE, source), (_TARGET, target)):
            if token.startswith(prefix):
                sides, token = [side], token.removeprefix(prefix)
    tokens = all_nodes.tokens
    sides = [side for side in sides if side]
    spans = {f"span:{span.name}": set(span.positions) for span in tokens.spans}.get(token, set())
    holding = [side for side in sides if tokens.match(token, side) or spans.intersection(side)]
    places = tokens.locate(token, (holding or sides)[0])
    return Followed(direction, places, token.strip() if holding else tokens.running(places))


LARGE = 512 << 20  # bytes of all tables from which a flow is preceded by a warning

_MEANING = (
    "Shares say which positions were mixed, not what a word changes: MLPs act within a "
    "position and may undo it; attnviz ablate measures effects."
)


def run(
    source: Source,
    inputs: Inputs,
    method: Method | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> Flow:
    """Run a text and report its flow."""
    unknown = stack.missing(source) if method in (None, "alti") else ""
    if unknown and method == "alti":
        raise ModelError(f"ALTI needs the vectors that attention moves, and {unknown}; use rollout")
    chosen: Method = method or ("rollout" if unknown else "alti")
    tokens = _nodes(inputs, source.layout, chosen)
    means = stack.MeanWeights(inputs, tokens, layers=chosen != "alti")
    norms: Order | None = None
    if chosen == "alti":
        moved = stack.Contributions(
            source, inputs, lambda count, total: progress("layers", count, total)
        )
        source.forward([inputs], [means, moved], ForwardRequest(hidden=False, residuals=True))
        shares, norms = moved.blocks, stack.order(source)
    else:
        observe(source, [inputs], means)
        shares = means.rolled()
    report = _report(source.info, source.layout, means, chosen, shares, norms, progress)
    if unknown:
        note = f"Rollout instead of ALTI: {unknown}."
        report = replace(report, notes=(note, *report.notes))
    return report


def run_recorded(
    capture: Capture,
    method: Method | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> Flow:
    """Report the flow of attention that is there already; arguments as for :func:`run`."""
    if method == "alti":
        raise UsageError(
            "ALTI needs the vectors that attention moves, but recorded attention has "
            "only weights; use rollout, or give the text and {model}",
            model=...,
        )
    if capture.quantity != "weights":
        raise UsageError(
            f"flow begins with attention weights, and the capture holds {capture.quantity}; "
            "capture the text again"
        )
    absent = next((head for head in capture.layout if not capture.holds(head)), None)
    if absent is not None:
        raise InputError(
            f"the capture does not hold {capture.layout.name(absent)}; flow goes "
            "through every head, so "
            "capture all of them"
        )
    chosen: Method = method or "rollout"
    tokens = _nodes(capture.inputs, capture.layout, chosen)
    means = stack.MeanWeights(capture.inputs, tokens, layers=True)
    for rows in blocks(capture):
        means.observe(rows)
    return _report(capture.source, capture.layout, means, chosen, means.rolled(), None, progress)


def follow(report: Flow, direction: Direction, token: str) -> Flow:
    """Return the report with a token to follow."""
    followed = named(direction, token, stack.Nodes(report.tokens, report.targets))
    return replace(report, followed=followed)


def _nodes(inputs: Inputs, layout: Layout, method: Method) -> stack.Nodes:
    """Return the tokens, after checking that all their tables can be held."""
    tokens = stack.nodes(inputs)
    needed = stack.peak(len(tokens), len(stack.layers_of(layout.sites)))
    if over := beyond(needed):
        raise InputError(
            f"the flow of {len(tokens)} tokens through {len(layout.sites)} layers takes "
            f"{human_bytes(needed)}, {over}; shorten the text"
        )
    if needed >= LARGE:
        warn(
            f"the flow of {len(tokens):,} tokens through {len(layout.sites)} layers takes "
            f"{human_bytes(needed)}; shorten the text to need less",
            AttnvizWarning,
            stacklevel=4,
        )
    if method == "max-flow":
        stack.check(len(tokens))
    return tokens


def _report(
    info: SourceInfo,
    layout: Layout,
    means: stack.MeanWeights,
    method: Method,
    shares: dict[Site, stack.AttentionShares],
    norms: Order | None,
    progress: Progress,
) -> Flow:
    """All layers together; what was kept of each is used up on the way."""
    tokens = means.tokens
    reach = stack.reached(means.allowed, tokens)
    layers = stack.steps(shares, means.inputs, tokens)
    if method == "max-flow":
        total = stack.max_flow(layers, lambda count, total: progress("max-flow", count, total))
    else:
        total = stack.product(layers)
    return Flow(
        source=info,
        layout=layout,
        method=method,
        order=norms,
        tokens=tokens.tokens,
        targets=tokens.targets,
        layers=layers,
        total=total,
        weights=means.mean(),
        reach=reach,
        notes=(*means.inputs.notes, _MEANING),
        texts=1,
    )


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
    """
    requested: tuple[tuple[Direction, str | int | None], ...] = (
        ("to", settings.position),
        ("from", settings.key),
    )
    tell = progress or (lambda stage, count, total: None)
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
        for direction, token in requested:
            if token is not None:
                named(direction, str(token), stack.nodes(inputs))  # now, not when all has run
        result = run(source, inputs, settings.method, tell)
        result = replace(result, identity=model.identity)
    for direction, token in requested:
        if token is not None:
            result = follow(result, direction, str(token))
    return result
