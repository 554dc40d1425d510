"""``attnviz card``: what a model's heads do, for its model card."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from attnviz.captures.settings import ModelSettings
from attnviz.cli import console
from attnviz.cli.console import DIFFERS, NOTHING_COMPARED
from attnviz.cli.declared import command
from attnviz.cli.options import Quiet, TextsOptions
from attnviz.core.provenance import called
from attnviz.core.settings import Settings, like, setting
from attnviz.errors import UsageError
from attnviz.features.card.block import CardSettings


@dataclass(frozen=True)
class CardModel(ModelSettings):
    """Whose card it is."""

    model: Any = like(
        ModelSettings,
        "model",
        default=None,
        help="demo-gpt2, a model folder, or a hub id.",
        argument=True,
        panel=None,
    )


@dataclass(frozen=True)
class CardOptions(Settings):
    """Which texts, and which file."""

    texts: tuple[str, ...] | None = like(
        TextsOptions,
        "texts",
        help="A file of texts, as for profile; repeatable.",
        panel=None,
        shown="sentences of attnviz",
    )
    out: Path | None = setting(
        None,
        "The card, such as README.md: its block is renewed, or appended.",
        short="o",
        common=True,
    )
    check_only: bool = setting(
        False,
        "Write nothing; exit with 4 if the card's block is stale, with 5 if it has none.",
        spelled=("check",),
        common=True,
    )


@command
def card(model: CardModel, options: CardOptions, settings: CardSettings, output: Quiet) -> None:
    """Write what a model's heads do into its model card, between markers, or check what is there.

    A block has roles with intervals, a picture, how they were measured, and the command. It is
    stale once the model's files, the texts or attnviz are others, or it was edited: no model runs
    for that.

    [bold]Examples[/]

      attnviz card demo-gpt2

      attnviz card demo-gpt2 --texts sample_inputs/sentences.txt -o CARD.md

      attnviz card demo-gpt2 --texts sample_inputs/sentences.txt -o CARD.md --check
    """
    from attnviz.features.card import function

    if model.model is None:
        raise UsageError("card needs a model: a name, a folder or a hub id, such as demo-gpt2")
    path = options.out
    if options.check_only:
        if path is None:
            raise UsageError(
                "{check_only} is of a card; name it by {out}", check_only=True, out="README.md"
            )
        stale = function.stale_card(path, model.model, files=options.texts, limit=settings.limit)
        _check(stale, path)
        return
    function.check_place(path, settings.drawn)
    with console.waiting("profiling the heads", output.quiet):
        words = _command(model.model, options, settings)
        result = function.card(files=options.texts, path=path, command=words,
                               settings=settings, loading=model)  # fmt: skip
    if path is None:
        console.put(str(result))
        return
    result.save(path)
    if not output.quiet:
        console.wrote(path)


def _command(model: str, options: CardOptions, settings: CardSettings) -> str:
    """Return the same command as anybody may run it, without folders of this machine."""
    words = ["attnviz", "card", called(model)]
    for name in options.texts or ():
        words += ["--texts", Path(name).name]
    for name in settings.changed():
        words += [f"--{name}", str(getattr(settings, name))]
    return shlex.join([*words, "-o", "README.md" if options.out is None else options.out.name])


def _check(stale: tuple[str, ...] | None, path: Path) -> None:
    """Exit with a code of its own where the block is stale, or there is none."""
    if stale is None:
        console.note([f"{path} has no block of attnviz card"], quiet=False)
        raise typer.Exit(NOTHING_COMPARED)
    if stale:
        causes = {
            "text": "its text was changed by hand",
            "attnviz": "another version of attnviz",
            "model": "another model",
        }
        why = ", ".join(causes.get(name, f"other {name}") for name in stale)
        console.note([f"{path} is stale: {why}; run the same command without --check"], quiet=False)
        raise typer.Exit(DIFFERS)
