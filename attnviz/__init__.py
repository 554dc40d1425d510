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
from typing import Any

from attnviz.errors import (
    AttnvizError,
    AttnvizWarning,
    DeviceError,
    InputError,
    ModelError,
    OutputError,
    PackageError,
    SelectionError,
    SizeError,
    UsageError,
    named_packages,
)
from attnviz.features.listed import FEATURES

__version__ = "0.1.0"

_PUBLIC = {
    "attend": "attnviz.attention.layers",
    "Capture": "attnviz.core.capture",
    "capture": "attnviz.captures.inputs",
    "fill": "attnviz.scoring.user_measures",
    "FreshConfig": "attnviz.models.controls",
    "from_arrays": "attnviz.captures.in_memory",
    "from_response": "attnviz.captures.files",
    "Generation": "attnviz.core.prompt",
    "Head": "attnviz.core.heads",
    "HeadScores": "attnviz.core.scores",
    "load": "attnviz.captures.loading",
    "load_plugins": "attnviz.scoring.plugins",
    "metric": "attnviz.scoring.user_measures",
    "Outputs": "attnviz.scoring.user_measures",
    "Predictions": "attnviz.scoring.user_measures",
    "Prompt": "attnviz.core.prompt",
    "read": "attnviz.features.results",
    "read_texts": "attnviz.captures.files",
    "role": "attnviz.scoring.user_scores",
    "rule": "attnviz.scoring.rules",
    "RuleText": "attnviz.scoring.rules",
    "Role": "attnviz.core.scores",
    "score": "attnviz.scoring.user_scores",
    "Score": "attnviz.core.scores",
    "ScoreBlock": "attnviz.scoring.user_scores",
    "select": "attnviz.captures.inputs",
    "Site": "attnviz.core.heads",
    "Tokens": "attnviz.core.tokens",
    "watch": "attnviz.captures.in_memory",
    "write_capture": "attnviz.captures.files",
    **{name: module for feature in FEATURES for name, module in feature.public.items()},
}
"""Where each public name is; ``__init__.pyi`` tells type checkers what it is."""

__all__ = [  # noqa: PLE0604
    "AttnvizError",
    "AttnvizWarning",
    "DeviceError",
    "InputError",
    "ModelError",
    "OutputError",
    "PackageError",
    "SelectionError",
    "SizeError",
    "UsageError",
    "__version__",
    *_PUBLIC,
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        with named_packages():
            return _checked(getattr(import_module(_PUBLIC[name]), name))
    raise AttributeError(f"module 'attnviz' has no attribute {name!r}")


@cache
def _checked(value: Any) -> Any:
    """Get a function that refuses wrong arguments; some do so only for who calls them from here."""
    from attnviz.core.interface import interface

    plain = callable(value) and not isinstance(value, type) and not hasattr(value, "__signature__")
    return interface(value) if plain else value


def __dir__() -> list[str]:
    return __all__
