"""The command line: a command parses, calls one function of the api, and prints.

Errors end here: our own (:mod:`attnviz.errors`), and as a last resort any other, which is a bug to
be reported. Exit codes are :data:`attnviz.cli.console.CODES`.
"""

from __future__ import annotations

import errno
import os
import sys
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from attnviz import __version__
from attnviz.cli import console, declared
from attnviz.cli.console import BUG, CODES, INTERRUPTED
from attnviz.cli.declared import ALL, WITH_PLUGINS, adapted, plugin_option, shorten
from attnviz.core.provenance import command_line, running
from attnviz.errors import AttnvizError, absent
from attnviz.features.listed import FEATURES
from attnviz.models.external_errors import unheard

COMMANDS = {feature.command: feature for feature in FEATURES}
"""In the order of ``--help``."""

_TRACEBACK = "--traceback"
_NO_MEMORY = "attnviz: out of memory; take a shorter text, fewer layers or a smaller model\n"
"""Written as it is, for even wording it would take memory."""
_STARVED = ("bad_alloc", "allocate memory", "failed to map segment", "DefaultCPUAllocator")
"""What libraries say in other errors where there is no memory."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

# typer carries its own copy of click in some versions and imports it in others
_ClickError: type[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class Command(TyperCommand):
    """A command whose help has room for its options' names."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List switches that turn something off where the others stand, and not in a column."""
        listing = copy(self)
        listing.params = [copy(parameter) for parameter in self.params]
        for parameter in listing.params:
            parameter.opts = [*(o for o in parameter.opts if o.strip()), *parameter.secondary_opts]
            parameter.secondary_opts = []
        super(Command, listing).format_help(ctx, formatter)


class Commands(TyperGroup):
    """Imports a command when it is asked for, so that none pays for the others."""

    brief = False
    """Whether commands are told by name and sentence alone, and not imported."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Say what each command does."""
        listing = copy(self)
        listing.brief = True
        super(Commands, listing).format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of ``--help``."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        if self.brief:
            panel = COMMANDS[cmd_name].group
            return TyperCommand(cmd_name, help=_sentence(cmd_name), rich_help_panel=panel)
        single = typer.Typer(rich_markup_mode="rich", add_completion=False)
        package = import_module(f"{COMMANDS[cmd_name].package}.command")
        function = getattr(package, cmd_name)
        single.command(cmd_name, cls=Command, context_settings=_SETTINGS)(function)
        command: Any = typer.main.get_command(single)
        command.rich_help_panel = COMMANDS[cmd_name].group
        adapted(command, function)
        if cmd_name in WITH_PLUGINS:
            command.params.append(plugin_option())
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that these arguments start with; messages now speak of its options."""
        name, command, remaining = super().resolve_command(ctx, args)
        if command is not None and ALL not in remaining:
            shorten(command)
        declared.speak_for(command.params if command is not None else ())
        return name, command, remaining


def _sentence(name: str) -> str:
    """Return what a command's docstring begins with, read and not imported."""
    code = Path(import_module(COMMANDS[name].package).__path__[0], "command.py").read_text("utf-8")
    docstring = code[code.index(f"\ndef {name}(") :].split('"""')[1]
    return " ".join(docstring.partition("\n\n")[0].split())


_SETTINGS = {"help_option_names": ["-h", "--help", ALL]}

app = typer.Typer(
    name="attnviz",
    cls=Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=_SETTINGS,
    help="See what the attention heads of a transformer do, offline.",
    epilog="\n\n".join(
        [
            'Start with: attnviz heads "The keys to the cabinet are on the table"',
            "Exit codes, of every command:",
            *(f"{code}: {means}" for code, means in CODES.items()),
        ]
    ),
)


def _version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"attnviz {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    traceback: Annotated[
        bool, typer.Option(_TRACEBACK, help="Show where an unexpected error came from.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    typed = sys.argv[1:] if arguments is None else arguments
    options = typed[: typed.index("--")] if "--" in typed else typed
    try:
        return _run([*(o for o in options if o != _TRACEBACK), *typed[len(options) :]])
    except BaseException as error:  # even a panic of a library written in Rust
        if _TRACEBACK in options or isinstance(error, SystemExit | GeneratorExit):
            raise
        if _starved(error):
            sys.stderr.write(_NO_MEMORY)
            return 1
        if isinstance(error, FileNotFoundError) and _nowhere():
            return _fail("the working directory is gone; change into one that is there", 1)
        if missing := absent(error):
            return _fail(missing.message, missing.exit_code)
        kind, text = type(error).__name__, console.one_line(str(error))[:300]
        return _fail(
            f"unexpected {kind}: {text}; this is a bug: please report it, with what "
            f"the same command with {_TRACEBACK} says",
            BUG,
        )


_FIRST = """See what the attention heads of a transformer do. Three things to try:

  attnviz demo                                          a tour of five stops
  attnviz heads "Mary had a lamb and Mary had a dog"    what each head does with a sentence
  attnviz help "which heads matter"                     the command that answers a question

attnviz --help lists all commands.
"""
"""What a terminal shows of ``attnviz`` alone."""


def _run(arguments: list[str]) -> int:
    """Run one command line; what is raised is a bug."""
    if not arguments and sys.stdout.isatty():
        sys.stdout.write(_FIRST)
        return 0
    needed = _needed(arguments)
    args = [*arguments, "--help"] if needed else arguments
    try:
        with running(command_line(arguments)), unheard():
            code = app(args=args, prog_name="attnviz", standalone_mode=False)
        sys.stdout.flush()
    except AttnvizError as error:
        return _fail(declared.words(error.message), error.exit_code)
    except _ClickError as error:
        return _fail(_explained(error, arguments), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _mute()  # the reader has seen enough
        return 0
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _mute()
        return _fail(f"cannot write to standard output: {error.strerror}", 1)
    if needed:
        return _fail(needed, 2)
    if code == INTERRUPTED:  # typer catches the interrupt itself
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _nowhere() -> bool:
    """Whether the working directory was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _starved(error: BaseException) -> bool:
    """Whether there was no memory, also for a library that is not written in Python."""
    text = str(error) if isinstance(error, OSError | ImportError | RuntimeError) else ""
    return isinstance(error, MemoryError) or any(words in text for words in _STARVED)


def _needed(arguments: list[str]) -> str:
    """Return what is missing where nothing was given, so that the help is shown first."""
    if not arguments:
        return 'name a command: attnviz heads "The cat sat"'
    feature = COMMANDS.get(arguments[0]) if len(arguments) == 1 else None
    needed = feature.needs if feature else ""
    return f"{arguments[0]} needs {needed}" if needed else ""


def _mute() -> None:
    """Nothing more goes to standard output, not even what Python still holds of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Any, arguments: list[str]) -> str:
    """Give what is wrong with the options, with the value that was given and where to read more."""
    message: str = error.format_message().rstrip(".")
    for option in getattr(getattr(error, "param", None), "opts", ()):
        value = "".join(arguments[arguments.index(option) + 1 :][:1]) if option in arguments else ""
        if value not in message:
            message += f", got {value[:40]!r}"
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    near = _near(arguments) if message.startswith("No such command") else ""
    if message.startswith("Got unexpected extra argument"):
        near = "a text of several words stands in quotes; "
    return f"{message} ({near}see {context.command_path} --help)"


def _near(arguments: list[str]) -> str:
    """Which command may have been meant, if one is written much like it."""
    from difflib import get_close_matches

    typed = next(argument for argument in arguments if not argument.startswith("-"))
    return "".join(f"did you mean {name}? " for name in get_close_matches(typed, COMMANDS, 1))


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"attnviz: {console.one_line(message)}\n")
    return code
