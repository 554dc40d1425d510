"""Which model a report is about: what it says of it, and what no other model shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from attnviz.core.heads import Layout
from attnviz.core.provenance import SourceInfo


def model_json(source: SourceInfo, layout: Layout, identity: Mapping[str, Any]) -> dict[str, Any]:
    """What every report says of the model.

    Args:
        source: where its attention came from.
        layout: its heads.
        identity: a hash of its files or the like, see :mod:`attnviz.models.identity`; empty where
            a model was handed over loaded.
    """
    facts = asdict(source)
    names = ("model", "backend", "exactness", "reason", "device", "dtype")
    return {
        **{name: facts[name] for name in names},
        "versions": dict(source.versions),
        "layout": {kind: list(heads) for kind, heads in layout.heads.items()},
        "identity": dict(identity),
    }
