"""``attnviz mcp``: attnviz for programs that call tools."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions
from attnviz.errors import UsageError


@flatten
def mcp(
    output: OutputOptions,
    allow: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder whose files may be read; repeatable. Links out of it are refused.",
            metavar="FOLDER",
            show_default="the working directory",
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Where results are kept, inside of such a folder.",
            metavar="FOLDER",
            show_default="attnviz-results in the first of them",
        ),
    ] = None,
) -> None:
    """Serve attnviz's functions as tools to a coding agent (Model Context Protocol, stdio).

    A client starts this command and speaks with it over standard input and output; nothing goes
    over a network, and of the hub only models in its cache are read. docs/mcp.md has the tools.

    [bold]Examples[/]

      attnviz mcp

      attnviz mcp --allow data --allow models --results data/results
    """
    if find_spec("mcp") is None:
        raise UsageError("attnviz mcp needs the MCP SDK; install attnviz[mcp]")
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    from attnviz.features.mcp.folders import Folders
    from attnviz.features.mcp.server import server
    from attnviz.features.mcp.tools import Tools

    tools = Tools(Folders(allow or [Path.cwd()], results))
    if sys.stdin.isatty():
        console.note(
            ["An MCP client is to start this command and talk to it; Ctrl-D ends it."], output.quiet
        )
    server(tools).run("stdio")
