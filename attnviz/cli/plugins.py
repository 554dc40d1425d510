"""The option ``--plugin`` of commands that score or measure heads."""

from __future__ import annotations

from typing import Annotated, Any

import typer

COMMANDS = (
    "heads", "explain", "heatmap", "view", "profile", "ablate", "patch", "film", "atlas", "export",
    "diff", "card", "show",
)  # fmt: skip
"""Which have it."""

NONE = "none"
_HELP = (
    "Python file with scores and roles of your own (av.score, av.role); it is run. Repeatable. "
    "Installed packages with such are found by themselves, but for --plugin none."
)


def option() -> Any:
    """The option; what it names is loaded before the command begins."""
    holder = typer.Typer(add_completion=False)
    holder.command()(_with_option)
    (plugin,) = typer.main.get_command(holder).params
    plugin.common = False  # type: ignore[attr-defined]
    return plugin


def _load(files: list[str]) -> None:
    """Load installed plugins, then named ones."""
    from attnviz.scoring.plugins import load_plugins

    named = [file for file in files if file != NONE]
    if len(named) == len(files):
        load_plugins()
    if named:
        load_plugins(*named)


def _with_option(
    plugin: Annotated[
        list[str],
        typer.Option(
            help=_HELP,
            metavar="FILE",
            callback=_load,
            expose_value=False,
            is_eager=True,
            show_default=False,
        ),
    ] = [],  # noqa: B006
) -> None:
    """Has the option and nothing else."""
