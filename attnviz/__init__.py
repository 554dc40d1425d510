"""See what the attention heads of a transformer do.

    import attnviz as av

    cap = av.capture("The keys to the cabinet are on the table", model="gpt2")
    av.heads(cap)
    av.heatmap(cap, "4.11").save("head.png")
    av.view(cap).save("page.html")

Importing attnviz imports neither torch nor matplotlib; using it does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.errors import (
    AttnvizError,
    DeviceError,
    InputError,
    ModelError,
    OutputError,
    SelectionError,
    SizeError,
    UsageError,
)

if TYPE_CHECKING:
    from attnviz.antecedents import coref
    from attnviz.api import (
        capture,
        heads,
        heatmap,
        load,
        read_capture,
        select,
        write_capture,
    )
    from attnviz.atlases import atlas
    from attnviz.attention.attend import attend
    from attnviz.compared import diff
    from attnviz.evidence import ablate, logits, syntax
    from attnviz.exported import export_maps
    from attnviz.flowed import flow
    from attnviz.generation import Generation
    from attnviz.in_memory import from_arrays, watch
    from attnviz.inpage import live
    from attnviz.models.untrained import FreshConfig
    from attnviz.profiled import merge_profiles, profile, read_profile
    from attnviz.records import (
        Capture,
        Head,
        HeadScores,
        HeadsReport,
        Prompt,
        Role,
        Score,
        Site,
        Tokens,
    )
    from attnviz.viewed import view
    from attnviz.wired import circuits

__version__ = "0.1.0"

_RECORDS = (
    "Capture",
    "Head",
    "HeadScores",
    "HeadsReport",
    "Prompt",
    "Role",
    "Score",
    "Site",
    "Tokens",
)
_LAZY = {
    **dict.fromkeys(_RECORDS, "attnviz.records"),
    "FreshConfig": "attnviz.models.untrained",
    "atlas": "attnviz.atlases",
    "Generation": "attnviz.generation",
    "attend": "attnviz.attention.attend",
    "ablate": "attnviz.evidence",
    "circuits": "attnviz.wired",
    "diff": "attnviz.compared",
    "coref": "attnviz.antecedents",
    "syntax": "attnviz.evidence",
    "capture": "attnviz.api",
    "export_maps": "attnviz.exported",
    "flow": "attnviz.flowed",
    "from_arrays": "attnviz.in_memory",
    "heads": "attnviz.api",
    "heatmap": "attnviz.api",
    "live": "attnviz.inpage",
    "load": "attnviz.api",
    "logits": "attnviz.evidence",
    "merge_profiles": "attnviz.profiled",
    "profile": "attnviz.profiled",
    "read_capture": "attnviz.api",
    "read_profile": "attnviz.profiled",
    "select": "attnviz.api",
    "view": "attnviz.viewed",
    "watch": "attnviz.in_memory",
    "write_capture": "attnviz.api",
}

__all__ = [
    "AttnvizError",
    "Capture",
    "DeviceError",
    "FreshConfig",
    "Generation",
    "Head",
    "HeadScores",
    "HeadsReport",
    "InputError",
    "ModelError",
    "OutputError",
    "Prompt",
    "Role",
    "Score",
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
    "circuits",
    "coref",
    "diff",
    "export_maps",
    "flow",
    "from_arrays",
    "heads",
    "heatmap",
    "live",
    "load",
    "logits",
    "merge_profiles",
    "profile",
    "read_capture",
    "read_profile",
    "select",
    "syntax",
    "view",
    "watch",
    "write_capture",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'attnviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
