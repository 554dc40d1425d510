"""``attnviz.sinks``: where every head's attention rests, and what that does."""

from __future__ import annotations

from collections.abc import Iterable

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, load, looks_of, prompt_of
from attnviz.captures.notes import notes
from attnviz.core.capture import Capture
from attnviz.core.progress import Progress
from attnviz.core.source import Source
from attnviz.errors import InputError, Setting, UsageError
from attnviz.features.sinks.costs import predicts
from attnviz.features.sinks.measure import (
    activations,
    measured,
    norm_of,
    sinks_of,
    spent_on,
)
from attnviz.features.sinks.result import DORMANT, SINK, Sinks
from attnviz.models.identity import identity
from attnviz.scoring.published import SINK_LENGTH
from attnviz.statistics.clusters import few_groups

_TOLD = 4


def sinks(
    what: Look | Iterable[Look],
    *,
    model: Model = DEFAULT_MODEL,
    threshold: float = SINK,
    dormant: float = DORMANT,
    cost: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = lambda stage, done, all_: None,
) -> Sinks:
    """Find the token at which each head's attention rests, at any position, and what that does.

    A head's sink is the key with the most weight in all; a mean weight of more than ``threshold``
    over the rows that may attend to it makes it one (Gu et al. 2024, arXiv:2410.10781). Whether it
    is a no-op is told by the norm of its value and by its share of Σ α ‖f‖ (Kobayashi et al. 2020,
    arXiv:2004.10102); a head is dormant by the norm of its output against its layer's mean
    (Sandoval-Segura et al. 2025, arXiv:2504.03889); massive activations are those of Sun et al.
    2024 (arXiv:2402.17762).

    Args:
        what: a text or prompt, or several.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        threshold: mean weight of a sink, from 0 to 1.
        dormant: a head is dormant below this share of the mean over its layer.
        cost: also measure what it costs to set every head with a sink to zero, and to take the
            sink from its attention.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.

    Returns:
        Every head with its sink, means over texts with 95 % intervals, and the largest activation
        after every layer.

    Raises:
        UsageError: recorded attention, which has no values, or a model with a decoder of its own;
        AttnvizError: see :mod:`attnviz.errors`.
    """
    for name, value in (("threshold", threshold), ("dormant", dormant)):
        if not value >= 0:
            raise UsageError("{} must be at least 0", Setting(name, value))
    looks = list(looks_of(what))
    if not looks:
        raise InputError("no text to measure; give at least one")
    if any(isinstance(one, Capture) for one in looks):
        raise UsageError(
            "recorded attention has no values, which sinks are told by; give a text and {model}",
            model=...,
        )
    source = load(model, device=device, dtype=dtype)
    _check(source)
    ready = [source.prepare(prompt_of(one)) for one in looks if not isinstance(one, Capture)]
    texts = []
    for number, inputs in enumerate(ready):
        progress("texts", number, len(ready))
        texts.append(measured(source, inputs))
    progress("texts", len(ready), len(ready))
    spent = spent_on(source, ready, texts, threshold, progress) if cost else []
    told = list(dict.fromkeys(note for one in ready for note in notes(one, source.info, 0)))
    few = few_groups(len(texts)) if len(texts) > 1 else None
    if min(len(one.tokens) for one in texts) < SINK_LENGTH:
        told.append(
            f"Texts of fewer than {SINK_LENGTH} tokens give every head much weight on its first "
            "keys; compare with chance."
        )
    loss = predicts(source)
    tokens = sum(one.tokens for one in spent)
    return Sinks(
        source=source.info,
        layout=source.layout,
        identity=identity(model),
        texts=len(texts),
        notes=(*told[-_TOLD:], *([few] if few else [])),
        tokens=sum(len(one.tokens) for one in texts),
        norm_of=norm_of(source),
        threshold=threshold,
        dormant_below=dormant,
        unit=("nats" if loss else "1 - cosine") if cost else None,
        base=sum(o.base * o.tokens for o in spent) / tokens if spent and loss else None,
        heads=sinks_of(source, texts, threshold, spent),
        layers=activations(texts),
    )


def _check(source: Source) -> None:
    if len(source.layout.kinds) > 1 or "cross" in source.layout.kinds:
        raise UsageError(
            "{} attends between two texts; sinks need a {model} with a single stack",
            source.info.model,
            model=...,
        )
