"""``attnviz.heads``: what every head does with a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnviz.captures.look import (
    DEFAULT_MODEL,
    Look,
    Model,
    check_quantity,
    check_whole,
    prompt_of,
    source_for,
)
from attnviz.captures.notes import notes
from attnviz.captures.without import closed
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.quantities import quantity
from attnviz.core.scores import HeadScores, Mixing
from attnviz.core.source import ForwardRequest, Observer
from attnviz.errors import UsageError
from attnviz.features.heads.result import Heads
from attnviz.models.identity import identity
from attnviz.models.mixing import MixingObserver
from attnviz.models.weighed import weighed
from attnviz.scoring import select as selection
from attnviz.scoring.observe import Going, ScoreObserver, score_capture
from attnviz.scoring.plugins import user_defined

if TYPE_CHECKING:
    from attnviz.core.findings import Finding
    from attnviz.core.measures import PrefixMatching
    from attnviz.core.progress import Progress
    from attnviz.core.source import Source
    from attnviz.features.evidence import Evidence


def heads(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    probe: bool = False,
    select: str | None = None,
    without: str | None = None,
    weigh: str = "weights",
    evidence: Evidence | Sequence[Evidence] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Heads:
    """Score what every head does, and name its roles.

    Args:
        what: a capture, or a text or prompt to run; a text's maps are scored on the way and never
            kept, so that long texts need little memory.
        model: for a text or prompt, see :func:`load`, as for ``device`` and ``dtype``.
        probe: also run the model on repeated random tokens (Olsson et al. 2022,
            arXiv:2209.11895), which tells induction and duplicate-token heads from chance, and
            match prefixes as they do.
        select: heads to report; all by default.
        without: heads to ablate first (``"2.4, role:first"``), to see how the others change.
        weigh: what is scored, see :func:`capture`: all but weights with rows divided by their sums,
            since scores compare with chance.
        evidence: what :func:`attnviz.syntax` and :func:`attnviz.coref` found out about the same
            model, or files with its JSON; their roles stand before those of the text.
        device: where to run.
        dtype: in which precision.
        progress: called while the text runs, with ``"tokens"``, how many went through all layers,
            and how many there are.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    probed: tuple[HeadScores, ...] = ()
    mixed: tuple[Mixing, ...] = ()
    matching: PrefixMatching | None = None
    known: dict[str, Any] = {}
    if isinstance(what, Capture):
        check_whole(without)
        check_quantity(what, weigh)
        weigh = what.quantity
        if probe:
            raise UsageError("a probe needs the model itself; a recorded capture has only its maps")
        source, layout, inputs = what.source, what.layout, what.inputs
        observer, empty = score_capture(what), what.empty_rows
    else:
        prompt = prompt_of(what)
        more_roles: Callable[[Sequence[HeadScores]], Sequence[HeadScores]] = tuple
        if evidence is not None:
            from attnviz.features.evidence import given_roles, read_evidence, with_roles

            evidence = read_evidence(evidence)
            more_roles = partial(with_roles, roles=given_roles(evidence))
        loaded = source_for(prompt, model, device, dtype)
        inputs = loaded.prepare(prompt)
        mixing = MixingObserver(loaded, quantity(weigh), [inputs])
        shown = weighed(loaded, weigh, shares=True, beside=[mixing])
        observer = ScoreObserver([inputs], shown.layout)
        with closed(loaded, without, inputs, more_roles) as inputs:
            watching: list[Observer] = [observer]
            if progress is not None:
                watching.append(Going.through(inputs, shown.layout, progress))
            shown.forward([inputs], watching, ForwardRequest(hidden=False))
            if probe:
                probed, matching = _probed(loaded, weigh)
        source, layout, mixed = loaded.info, shown.layout, mixing.result()
        empty, known = observer.empty_rows, dict(identity(model))
    chosen = None if select is None else frozenset(selection.select(select, layout))
    scored = observer.result()
    more: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    if evidence is not None:
        from attnviz.features.evidence import attach

        scored, more, findings = attach(evidence, scored, source, layout, known)
    found = Heads(
        source=source,
        layout=layout,
        identity=known,
        texts=1,
        tokens=inputs.sides,
        heads=_only(scored, chosen),
        probe=_only(probed, chosen),
        empty_rows=empty,
        quantity=weigh,
        mixing=mixed,
        matching=matching,
        user_defined=user_defined(),
        findings=findings,
    )
    return replace(found, notes=(*notes(inputs, source, empty), *more))


def _probed(source: Source, weigh: str) -> tuple[tuple[HeadScores, ...], PrefixMatching | None]:
    """What heads do on repeated random tokens."""
    from attnviz.scoring.probe import match_prefixes, run_probe

    scored = run_probe(weighed(source, weigh, shares=True))
    return scored, match_prefixes(source) if weigh == "weights" else None


def _only(scores: Sequence[HeadScores], chosen: frozenset[Head] | None) -> tuple[HeadScores, ...]:
    return tuple(s for s in scores if chosen is None or s.head in chosen)
