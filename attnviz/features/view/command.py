"""``attnviz view``: every head in one offline page."""

from __future__ import annotations

from functools import partial

from attnviz.captures.settings import Attaching
from attnviz.cli import console
from attnviz.cli.console import Stages
from attnviz.cli.declared import command
from attnviz.cli.options import ModelOptions, TextsOptions
from attnviz.cli.output import SpaceOutput
from attnviz.features.view.settings import ViewSettings
from attnviz.web import PageSettings

LARGE_PAGE = 16e6
"""Pages above so many bytes open slowly, which is said."""


@command
def view(
    prompt: TextsOptions,
    settings: ViewSettings,
    attaching: Attaching,
    model: ModelOptions,
    page_settings: PageSettings,
    output: SpaceOutput,
) -> None:
    """Put every head into one offline page to explore: maps, lines, the text itself, head cards.

    With --texts each text is one of its own, to pick in the page.

    [bold]Examples[/]

      attnviz view "The keys to the cabinet are on the table" -o page.html

      attnviz view "The cat sat on the [MASK]." --model demo-bert -o mask.html

      attnviz view "The keys are on the table" --ablate -o cost.html
    """
    from attnviz.drawing import terminal
    from attnviz.features.view import function

    output.check_page()
    texts = prompt.read_all(model, quiet=output.quiet)
    make = partial(
        function.view, texts, settings=settings, attaching=attaching, page=page_settings,
        model=model.chosen(pair=prompt.pair),
    )  # fmt: skip
    if settings.ablate:
        with Stages(output.quiet) as stages:
            page = make(progress=stages.show)
    else:
        with console.waiting("making the page", output.quiet) as tell:
            page = make(progress=tell)
    output.deliver(page)
    if not output.quiet:
        captures = page.captures[:: 1 if settings.other_model is None else 2]
        console.stdout().print(terminal.closing_line(*captures))
    notes = dict.fromkeys(note for capture in page.captures for note in capture.inputs.notes)
    notes |= dict.fromkeys(page.notes)
    if len(page.page) > LARGE_PAGE:
        notes[f"a page of {page.size} opens slowly; --select makes it smaller"] = None
    console.note(notes, output.quiet)
