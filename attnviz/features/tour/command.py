"""``attnviz demo``: a guided tour of five stops."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.cli import console
from attnviz.cli.declared import command
from attnviz.cli.output import PageOutput
from attnviz.core.settings import Settings, setting

if TYPE_CHECKING:
    from attnviz.features.tour.stops import Stop


@dataclass(frozen=True)
class TourOptions(Settings):
    """The tour, or what to go on with."""

    out_dir: Path | None = setting(
        None,
        "Copy the sample inputs of the documentation into this folder, and end.",
        metavar="DIR",
        common=True,
    )


@command
def demo(tour: TourOptions, output: PageOutput) -> None:
    """Take a tour: five questions about a model, each with the command that answers it.

    In a terminal Enter goes on and q quits, and at the end a page of all heads opens; elsewhere it
    runs to the end, and the page is a file.

    [bold]Examples[/]

      attnviz demo

      attnviz demo --out-dir sample_inputs
    """
    if tour.out_dir is not None:
        from attnviz.features.tour.stops import copy

        copied = copy(tour.out_dir)
        if not output.quiet:
            console.wrote(copied)
        return
    output.check_page()
    from rich.text import Text

    from attnviz.features.tour.stops import STOPS, Measured
    from attnviz.features.view.function import view

    screen, measured = console.stdout(), Measured()
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    for number, stop in enumerate(STOPS, start=1):
        screen.rule(f"{number}/{len(STOPS)}  {stop.asks}")
        repeated = number > 1 and typed(stop) == typed(STOPS[number - 2])
        heading = f"\n$ {typed(stop)}{'   # the same, further down' * repeated}\n"
        screen.print(Text(heading, "bold"), soft_wrap=True)
        with console.waiting("running the model", output.quiet):
            answer = list(stop.show(measured))
        screen.print(*answer, sep="\n")
        screen.print(f"\n{stop.why}\n")
        if asks and screen.input("Enter: next, q: quit ").strip().lower().startswith("q"):
            break
    else:
        screen.rule("All heads in one page, offline")
        output.deliver(view(measured.repeated), show=asks)
    screen.print('Your turn: attnviz heads "a sentence of your own"', style="bold")
    screen.print('Questions: attnviz help "which heads matter"', style="dim")


def typed(stop: Stop) -> str:
    """Return the command line that shows what a stop shows."""
    select = f" --select {stop.head}" if stop.head else ""
    return f'attnviz {stop.command} "{stop.text}"{select}'
