"""Circuits, as a script asks for them: what the weights of a model say about its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.captures.look import DEFAULT_MODEL, Model, load
from attnviz.core.progress import Progress
from attnviz.errors import UsageError
from attnviz.features.circuits.result import Circuits
from attnviz.features.circuits.run import CircuitsSettings, run
from attnviz.models.identity import identity
from attnviz.scoring.select import select

if TYPE_CHECKING:
    from attnviz.core.findings import Value
    from attnviz.core.heads import Head
    from attnviz.features.evidence import Evidence


def circuits(
    *,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    evidence: Evidence | Sequence[Evidence] | None = None,
    settings: CircuitsSettings | None = None,
    **options: Any,
) -> Circuits:
    """Say from weights alone who can feed whom, what heads copy, and where positions send them.

    Composition between heads of different layers and copying scores as in Elhage et al. 2021, "A
    Mathematical Framework for Transformer Circuits", see :mod:`attnviz.features.circuits`.

    Args:
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision the weights are read; products are in float32 or better.
        progress: called again and again with a stage, how much is done and how much there is.
        evidence: what :func:`attnviz.source_shares` found of heads of this model, or files with
            its JSON: the share that a head was measured to have in another's queries and keys
            stands beside the edge of the weights.
        settings: see :class:`~attnviz.features.circuits.run.CircuitsSettings`.
        options: its fields, in place of ``settings``: ``select="1.4"``, ``keep=50``, ...

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where nothing of a model's matrices is
            known for certain.
    """
    if settings is not None and options:
        raise UsageError("give {settings} or their fields, not both", settings=...)
    unknown = [name for name in options if name not in CircuitsSettings.__dataclass_fields__]
    if unknown:
        known = ", ".join(CircuitsSettings.__dataclass_fields__)
        raise UsageError(f"unknown option {unknown[0]!r}; choose from {known}")
    settings = settings or CircuitsSettings(**options)
    settings.check()
    source = load(model, device=device, dtype=dtype)
    chosen = None if settings.select is None else select(settings.select, source.layout)
    found = run(source, settings, chosen, progress or (lambda stage, done, total: None))
    found = replace(found, identity=identity(model))
    return found if evidence is None else _beside(found, evidence)


def _beside(found: Circuits, evidence: Evidence | Sequence[Evidence]) -> Circuits:
    """The same with what other results measured between heads."""
    from attnviz.features.evidence import read_evidence

    measured: dict[tuple[str, Head, Head], Value] = {}
    for one in read_evidence(evidence):
        one.result.check_model(one.name, found.source, found.layout, found.identity)
        edges = one.result.measured_edges()
        if not edges:
            raise UsageError(
                "{} measures nothing between heads; give what attnviz sources found in many texts",
                one.name,
            )
        measured |= edges
    return replace(found, measured=measured)
