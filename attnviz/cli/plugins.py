"""The option ``--plugin`` of commands that score or measure heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperOption

COMMANDS = (
    "heads", "explain", "heatmap", "view", "profile", "ablate", "patch", "film", "atlas", "export",
    "diff", "card",
)  # fmt: skip
"""Which have it."""

NONE = "none"
_HELP = (
    "Python file with scores and roles of your own (av.score, av.role); it is run. Repeatable. "
    "Installed packages with such are found by themselves, but for --plugin none."
)


def option() -> TyperOption:
    """The option; what it names is loaded before the command begins."""
    return TyperOption(
        param_decls=["--plugin"],
        type=str,
        multiple=True,
        help=_HELP,
        metavar="FILE",
        callback=_load,
        expose_value=False,
        is_eager=True,
        show_default=False,
    )


def _load(context: Any, parameter: Any, files: Sequence[str]) -> None:
    """Load installed plugins, then named ones."""
    from importlib.metadata import entry_points

    named = [file for file in files if file != NONE]
    installed = len(named) == len(files) and bool(entry_points(group="attnviz.scores"))
    if not (named or installed):
        return
    from attnviz.scoring.plugins import load_plugins

    if installed:
        load_plugins()
    if named:
        load_plugins(*named)
