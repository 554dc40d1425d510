"""``attnviz live``: the model itself in a page."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.settings import ModelSettings
from attnviz.cli import console
from attnviz.cli.declared import command
from attnviz.cli.output import SpaceOutput
from attnviz.core.settings import Settings, like, setting
from attnviz.features.live.result import LiveSettings
from attnviz.web import PageSettings


@dataclass(frozen=True)
class LiveInput(Settings):
    """What the page opens with."""

    text: str | None = setting(None, "The text that the page opens with.", argument=True)
    model: str = like(
        ModelSettings,
        "model",
        help="A bundled model, a folder or a hub id: BERT, GPT-2 and similar models.",
        typed=str,
    )


@command
def live(
    prompt: LiveInput, settings: LiveSettings, page_settings: PageSettings, output: SpaceOutput
) -> None:
    """Put the model itself into one offline page: type, switch heads off, let it write.

    Every map and the next words change as you type. Nothing is sent anywhere: the page holds the
    network and its tokenizer, and runs them. Chats and spans are parts of one text: see attnviz
    view.

    [bold]Examples[/]

      attnviz live -o page.html

      attnviz live "The cat sat on the [MASK]." --model demo-bert -o page.html
    """
    from attnviz.features.live import function

    output.check_page()
    with console.waiting("making the page", output.quiet):
        page = function.live(prompt.text, model=prompt.model, settings=settings, page=page_settings)
    output.deliver(page)
