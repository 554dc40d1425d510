"""See what the attention heads of a transformer do.

    import attnviz as av

    cap = av.capture("The keys to the cabinet are on the table", model="gpt2")
    av.heads(cap)
    av.heatmap(cap, "4.11").save("head.png")
    av.view(cap).save("page.html")

Importing attnviz imports neither torch nor matplotlib; using it does.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.errors import (
    AttnvizError,
    AttnvizWarning,
    DeviceError,
    InputError,
    ModelError,
    OutputError,
    SelectionError,
    SizeError,
    UsageError,
)

if TYPE_CHECKING:
    from attnviz.attention.attend import attend
    from attnviz.captures.files import read_any, read_capture, read_texts, write_capture
    from attnviz.captures.in_memory import from_arrays, watch
    from attnviz.captures.look import capture, load
    from attnviz.captures.selection import select
    from attnviz.core.capture import Capture
    from attnviz.core.generation import Generation
    from attnviz.core.heads import Head, Site
    from attnviz.core.prompt import Prompt
    from attnviz.core.scores import HeadScores, Role, Score
    from attnviz.core.tokens import Tokens
    from attnviz.features.ablation.function import ablate
    from attnviz.features.ablation.prune import prune_heads
    from attnviz.features.atlas.function import atlas
    from attnviz.features.card.function import card, stale_card
    from attnviz.features.check.function import check
    from attnviz.features.circuits.function import circuits
    from attnviz.features.coref.function import coref
    from attnviz.features.diff.function import diff
    from attnviz.features.explain.function import explain
    from attnviz.features.export.function import export_maps
    from attnviz.features.film.function import film, read_film
    from attnviz.features.film.track import track
    from attnviz.features.flow.function import flow
    from attnviz.features.heads.function import heads
    from attnviz.features.heads.result import Heads
    from attnviz.features.heatmap.function import heatmap
    from attnviz.features.lens.function import lens
    from attnviz.features.live.function import live
    from attnviz.features.logits.function import logits
    from attnviz.features.patch.function import patch
    from attnviz.features.patch.pairs import Pair
    from attnviz.features.profile.function import merge_profiles, profile, read_profile
    from attnviz.features.registry import read
    from attnviz.features.retrieval.function import retrieval
    from attnviz.features.sinks.function import sinks
    from attnviz.features.sources.function import source_shares, sources
    from attnviz.features.spans.function import spans
    from attnviz.features.syntax.function import syntax
    from attnviz.features.view.function import view
    from attnviz.models.untrained import FreshConfig
    from attnviz.scoring.plugins import load_plugins
    from attnviz.scoring.user_block import ScoreBlock
    from attnviz.scoring.user_measures import Outputs, Predictions, fill, metric
    from attnviz.scoring.user_scores import role, score

__version__ = "0.1.0"

_LAZY = {
    "Capture": "attnviz.core.capture",
    "Head": "attnviz.core.heads",
    "HeadScores": "attnviz.core.scores",
    "Heads": "attnviz.features.heads.result",
    "read": "attnviz.features.registry",
    "load_plugins": "attnviz.scoring.plugins",
    "ScoreBlock": "attnviz.scoring.user_block",
    "Outputs": "attnviz.scoring.user_measures",
    "Predictions": "attnviz.scoring.user_measures",
    "fill": "attnviz.scoring.user_measures",
    "metric": "attnviz.scoring.user_measures",
    "role": "attnviz.scoring.user_scores",
    "score": "attnviz.scoring.user_scores",
    "Prompt": "attnviz.core.prompt",
    "Role": "attnviz.core.scores",
    "Score": "attnviz.core.scores",
    "Site": "attnviz.core.heads",
    "Tokens": "attnviz.core.tokens",
    "FreshConfig": "attnviz.models.untrained",
    "atlas": "attnviz.features.atlas.function",
    "Generation": "attnviz.core.generation",
    "attend": "attnviz.attention.attend",
    "ablate": "attnviz.features.ablation.function",
    "check": "attnviz.features.check.function",
    "circuits": "attnviz.features.circuits.function",
    "diff": "attnviz.features.diff.function",
    "coref": "attnviz.features.coref.function",
    "retrieval": "attnviz.features.retrieval.function",
    "sinks": "attnviz.features.sinks.function",
    "source_shares": "attnviz.features.sources.function",
    "sources": "attnviz.features.sources.function",
    "spans": "attnviz.features.spans.function",
    "syntax": "attnviz.features.syntax.function",
    "capture": "attnviz.captures.look",
    "card": "attnviz.features.card.function",
    "stale_card": "attnviz.features.card.function",
    "explain": "attnviz.features.explain.function",
    "export_maps": "attnviz.features.export.function",
    "HeadsCallback": "attnviz.features.film.callback",
    "film": "attnviz.features.film.function",
    "read_film": "attnviz.features.film.function",
    "track": "attnviz.features.film.track",
    "flow": "attnviz.features.flow.function",
    "from_arrays": "attnviz.captures.in_memory",
    "heads": "attnviz.features.heads.function",
    "heatmap": "attnviz.features.heatmap.function",
    "lens": "attnviz.features.lens.function",
    "live": "attnviz.features.live.function",
    "load": "attnviz.captures.look",
    "logits": "attnviz.features.logits.function",
    "Pair": "attnviz.features.patch.pairs",
    "patch": "attnviz.features.patch.function",
    "prune_heads": "attnviz.features.ablation.prune",
    "merge_profiles": "attnviz.features.profile.function",
    "profile": "attnviz.features.profile.function",
    "read_any": "attnviz.captures.files",
    "read_capture": "attnviz.captures.files",
    "read_profile": "attnviz.features.profile.function",
    "read_texts": "attnviz.captures.files",
    "select": "attnviz.captures.selection",
    "view": "attnviz.features.view.function",
    "watch": "attnviz.captures.in_memory",
    "write_capture": "attnviz.captures.files",
}

__all__ = [
    "AttnvizError",
    "AttnvizWarning",
    "Capture",
    "DeviceError",
    "FreshConfig",
    "Generation",
    "Head",
    "HeadScores",
    "Heads",
    "HeadsCallback",
    "InputError",
    "ModelError",
    "OutputError",
    "Outputs",
    "Pair",
    "Predictions",
    "Prompt",
    "Role",
    "Score",
    "ScoreBlock",
    "SelectionError",
    "Site",
    "SizeError",
    "Tokens",
    "UsageError",
    "__version__",
    "ablate",
    "atlas",
    "attend",
    "capture",
    "card",
    "check",
    "circuits",
    "coref",
    "diff",
    "explain",
    "export_maps",
    "fill",
    "film",
    "flow",
    "from_arrays",
    "heads",
    "heatmap",
    "lens",
    "live",
    "load",
    "load_plugins",
    "logits",
    "merge_profiles",
    "metric",
    "patch",
    "profile",
    "prune_heads",
    "read",
    "read_any",
    "read_capture",
    "read_film",
    "read_profile",
    "read_texts",
    "retrieval",
    "role",
    "score",
    "select",
    "sinks",
    "source_shares",
    "sources",
    "spans",
    "stale_card",
    "syntax",
    "track",
    "view",
    "watch",
    "write_capture",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        found = getattr(import_module(_LAZY[name]), name)
        return found if isinstance(found, type) else _checked(found)
    raise AttributeError(f"module 'attnviz' has no attribute {name!r}")


@cache
def _checked(function: Any) -> Any:
    from attnviz.core.arguments import checked

    return checked(function)


def __dir__() -> list[str]:
    return __all__
