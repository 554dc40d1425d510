"""The command line: a command parses, calls one function of the api, and prints.

This is the only place that catches errors, and only our own (:mod:`attnviz.errors`). Exit codes:
0 done, 1 the work cannot be done, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from attnviz import __version__
from attnviz.cli.capture import capture
from attnviz.cli.heads import heads
from attnviz.cli.heatmap import heatmap
from attnviz.cli.view import view
from attnviz.errors import AttnvizError

# typer carries its own copy of click in some versions and imports it in others
_ClickError: type[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="attnviz",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="See what the attention heads of a transformer do, offline.",
    epilog='Start with: attnviz heads "The keys to the cabinet are on the table"',
)
app.command(no_args_is_help=True)(heads)
app.command(no_args_is_help=True)(heatmap)
app.command(no_args_is_help=True)(capture)
app.command(no_args_is_help=True)(view)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"attnviz {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        arguments: without the program's name; those of the process by default.
    """
    try:
        code = app(args=arguments, prog_name="attnviz", standalone_mode=False)
        sys.stdout.flush()
    except AttnvizError as error:
        return _fail(str(error), error.exit_code)
    except _ClickError as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        return _fail(error.format_message().rstrip(".") + hint, 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())
    printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    sys.stderr.write(f"attnviz: {printable}\n")
    return code


def run() -> None:
    """The ``attnviz`` program."""
    sys.exit(main())
