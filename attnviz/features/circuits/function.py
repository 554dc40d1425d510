"""Circuits, as a script asks for them: what the weights of a model say about its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from attnviz.captures.loading import light
from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.errors import UsageError
from attnviz.features.circuits.result import Circuits, CircuitsSettings
from attnviz.features.circuits.run import run
from attnviz.scoring.select import select

if TYPE_CHECKING:
    from attnviz.core.findings import Value
    from attnviz.core.heads import Head
    from attnviz.features.evidence import Attached


@interface
def circuits(
    *,
    settings: CircuitsSettings,
    attaching: Attaching,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Circuits:
    """Say from weights alone who can feed whom, what heads copy, and where positions send them.

    Composition between heads of different layers and copying scores as in Elhage et al. 2021, "A
    Mathematical Framework for Transformer Circuits", see :mod:`attnviz.features.circuits`. The
    share that a head was measured to have in another's queries and keys (:func:`attnviz.sources`
    of several texts, as evidence) stands beside the edge of the weights. Products are in float32
    or better.

    Args:
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where nothing of a model's matrices is
            known for certain.
    """
    from attnviz.features.evidence import read_evidence

    evidence = read_evidence(attaching.evidence)
    asked = settings.select
    source = light(model.load(heads=None if asked is None else partial(select, asked)))
    heads = None if asked is None else select(asked, source.layout)
    result = run(source, settings, heads, progress or (lambda stage, done, total: None))
    result = replace(result, identity=model.identity)
    return _beside(result, evidence) if evidence else result


def _beside(result: Circuits, evidence: Sequence[Attached]) -> Circuits:
    """The same with what other results measured between heads."""
    measured: dict[tuple[str, Head, Head], Value] = {}
    for item in evidence:
        item.result.check_model(item.name, result.source, result.layout, result.identity)
        edges = item.result.measured_edges()
        if not edges:
            raise UsageError(
                "{} measures nothing between heads; give what attnviz sources result in many texts",
                item.name,
            )
        measured |= edges
    return replace(result, measured=measured)
