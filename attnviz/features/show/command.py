"""``attnviz show``: print again what attnviz wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnviz.captures.settings import Attaching
from attnviz.cli import console
from attnviz.cli.declared import changed, command
from attnviz.cli.options import FilesOptions
from attnviz.cli.output import Output, SortOptions
from attnviz.core.settings import like
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError


@dataclass(frozen=True)
class WrittenFiles(FilesOptions):
    """What is shown."""

    files: tuple[str, ...] = like(
        FilesOptions,
        "files",
        help="The JSON of a command, the state of a profile, a film or its folder, or recorded "
        "attention; - for stdin.",
    )


@command
def show(
    written: WrittenFiles, attaching: Attaching, table: SortOptions, output: Output, paper: Paper
) -> None:
    """Print any result, profile, film or capture that attnviz wrote, or write it in another form.

    [bold]Examples[/]

      attnviz show sample_inputs/phases/repeats-2.json

      attnviz show sample_inputs/phases/markov-2.json --json

      attnviz show sample_inputs/phases/markov-2.json --out film.html

      attnviz show sample_inputs/recorded.npz
    """
    from attnviz.drawing.renderable import Renderable
    from attnviz.features.show import function

    several = len(written.files) > 1
    if several and (output.machine or output.out):
        option_name = next(option for option in changed(output, but=("quiet",)))
        raise UsageError(f"{option_name} is for one result; give one FILE")
    for name in written.files:
        result = function.show(name, attaching=attaching)
        if isinstance(result, Renderable):
            output.check_written(type(result))
        elif output.csv or output.out:
            (option_name,) = changed(output, but=("quiet",))[:1]
            raise UsageError(f"{name} has no form for {option_name}; take --json")
        if several:
            console.stdout().print(name, style="bold")
        output.save(result, **paper.options())
        _print(result, table, output)


def _print(result: Any, table: SortOptions, output: Output) -> None:
    """Print a result as the command that made it does."""
    from attnviz.cli.listing import show_heads, show_profile
    from attnviz.drawing.renderable import Renderable
    from attnviz.features.heads.result import Heads
    from attnviz.features.profile.result import Profile
    from attnviz.features.show import function

    if isinstance(result, Heads):
        show_heads(result, table, output)
        return
    if isinstance(result, Profile):
        show_profile(result, table, output)
        return
    if not isinstance(result, Renderable):
        _check_listed(result, table, frozenset())
        if output.json:
            console.put(result.to_json())
            return
        for part in function.parts(result):
            console.stdout().print(part)
        console.note(getattr(result, "notes", ()), output.quiet)
        return
    takes = result.terminal_options()
    _check_listed(result, table, {"top"} if takes & {"top", "everything"} else frozenset())
    arguments = {"top": table.first} if "top" in takes and table.top is not None else {}
    everything = table.everything if "everything" in takes else None
    output.show(result, everything=everything, **arguments)


def _check_listed(result: Any, table: SortOptions, accepted: Any) -> None:
    """Refuse what would not change how a result is listed."""
    if extra := changed(table, but=accepted):
        raise UsageError(
            f"{', '.join(extra)}: not for what attnviz {result.command} wrote; leave it out"
        )
