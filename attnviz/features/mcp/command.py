"""``attnviz mcp``: attnviz for programs that call tools."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from attnviz.cli import console
from attnviz.cli.declared import command
from attnviz.cli.options import Quiet
from attnviz.core.settings import Settings, setting
from attnviz.errors import OutputError, UsageError, install, system_errors


@dataclass(frozen=True)
class ServedFolders(Settings):
    """Which files there are for a client."""

    allow: tuple[Path, ...] | None = setting(
        None,
        "A folder whose files may be read; repeatable. Links out of it are refused.",
        metavar="FOLDER",
        shown="the working directory",
        common=True,
    )
    out_dir: Path | None = setting(
        None,
        "Where results are kept, inside of such a folder.",
        metavar="FOLDER",
        shown="attnviz-results in the first of them",
        common=True,
    )
    skill: Path | None = setting(
        None,
        "Write SKILL.md there, which tells an agent when to use which tool and what not to claim, "
        "and end.",
        metavar="FOLDER",
        common=True,
    )


@command
def mcp(served: ServedFolders, output: Quiet) -> None:
    """Serve attnviz's functions as tools to a coding agent (Model Context Protocol, stdio).

    A client starts this command and speaks with it over standard input and output; nothing goes
    over a network, and of the hub only models in its cache are read. docs/mcp.md has the tools.

    [bold]Examples[/]

      attnviz mcp

      attnviz mcp --allow sample_inputs --out-dir results

      attnviz mcp --skill .claude/skills/attnviz
    """
    if served.skill is not None:
        _write_skill(served.skill, output.quiet)
        return
    if find_spec("mcp") is None:
        raise UsageError(f"attnviz mcp needs the MCP SDK; {install('attnviz[mcp]')}")
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    from attnviz.features.mcp.folders import Folders
    from attnviz.features.mcp.server import server
    from attnviz.features.mcp.tools import Tools

    tools = Tools(Folders(served.allow or [Path.cwd()], served.out_dir))
    if sys.stdin.isatty():
        console.note(
            ["An MCP client is to start this command and talk to it; Ctrl-D ends it."], output.quiet
        )
    server(tools).run("stdio")


def _write_skill(folder: Path, quiet: bool) -> None:
    """Write SKILL.md into a folder, over an older one of attnviz and over no other."""
    from attnviz import files
    from attnviz.features.mcp.tools import SKILL, skill

    text, path = skill(), folder / SKILL
    files.check_folder(folder)
    with system_errors(OutputError, f"cannot write {path}"):
        if path.exists() and text.partition("description:")[0].encode() not in files.contents(path):
            raise OutputError(f"{path} is another skill; choose another folder, or remove it first")
        folder.mkdir(parents=True, exist_ok=True)
    files.write(path, text.encode())
    if not quiet:
        console.wrote(path)
