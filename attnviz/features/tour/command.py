"""``attnviz demo``: a guided tour of a minute."""

from __future__ import annotations

import sys

from attnviz.cli import console
from attnviz.cli.declared import command
from attnviz.cli.options import Quiet


@command
def demo(output: Quiet) -> None:
    """Take a one-minute tour: five sentences, for each a head to look at and why it matters.

    In a terminal Enter goes on and q quits; elsewhere it runs to the end.
    """
    from attnviz.drawing import terminal
    from attnviz.drawing.labels import role_phrase
    from attnviz.features.ablation.terminal import effects_table
    from attnviz.features.patch.terminal import links_table, members_table
    from attnviz.features.patch.words import quote
    from attnviz.features.tour.stops import (
        STOPS,
        WHY_CIRCUIT,
        WHY_NEEDED,
        circuit,
        needed,
        visit,
    )

    screen = console.stdout()
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    for number, stop in enumerate(STOPS, start=1):
        with console.waiting("running the model", output.quiet):
            head, role, picture = visit(stop)
        screen.rule(f"{number}/{len(STOPS)}  {stop.title}: head {head.head.name} of {stop.model}")
        screen.print(f'\n"{stop.text}"\n', style="bold")
        for shown, weights, sides in picture.maps:
            screen.print(terminal.heatmap(weights, sides, title=picture.title(shown)))
        screen.print(f"\n{stop.why}\n")
        screen.print(f"evidence: {role_phrase(role)} over {role.evidence.rows} rows\n", style="dim")
        if asks and screen.input("Enter: next, q: quit ").strip().lower().startswith("q"):
            break
    else:
        screen.rule("which heads are needed: heads of demo-gpt2 ablated")
        with console.waiting("ablating heads", output.quiet):
            ablation = needed()
        screen.print(effects_table(ablation, ablation.ranked()))
        screen.print(f"\n{WHY_NEEDED}\n")
        screen.rule("which heads are enough: the circuit of demo-gpt2")
        with console.waiting("patching heads", output.quiet):
            patch = circuit()
        if patch.circuit is not None:
            screen.print(members_table(patch, patch.circuit))
            screen.print()
            screen.print(links_table(patch, patch.circuit, 8))
        screen.print(f"\n{quote(patch)}\n\n{WHY_CIRCUIT}\n")
    screen.print('Your turn: attnviz heads "a sentence of your own"', style="bold")
