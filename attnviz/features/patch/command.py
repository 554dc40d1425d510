"""``attnviz patch``: which heads carry the answer?"""

from __future__ import annotations

import os
from dataclasses import dataclass

from attnviz.captures.settings import ModelSettings
from attnviz.cli.console import Stages
from attnviz.cli.declared import command
from attnviz.cli.options import InputOptions, named_spans
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Settings, like, setting
from attnviz.drawing.paper import Paper
from attnviz.errors import Setting, UsageError
from attnviz.features.patch.result import Patch
from attnviz.features.patch.settings import PAIRS, PatchSettings


@dataclass(frozen=True)
class PairOptions(Settings, panel=PAIRS):
    """One pair, or a file of pairs."""

    pairs: str | None = setting(
        None,
        "The clean text, or a .jsonl file of pairs. Its fields are clean, corrupted, answer and "
        "against.",
        argument=True,
        metavar="CLEAN|FILE",
    )
    corrupted: str | None = setting(None, "The corrupted text.", argument=True)
    answer: str | None = setting(None, "The expected next token.", metavar="TOKEN", common=True)
    against: str | None = setting(None, "The competing token.", metavar="TOKEN", common=True)
    target: str | None = like(
        InputOptions, "target", help="How the decoder's text begins, for encoder-decoder models."
    )
    span: tuple[str, ...] | None = like(
        InputOptions,
        "span",
        help="Name a part of the clean text for {position}: NAME=TEXT, or @FILE; repeatable. In a "
        "file of pairs: the field spans.",
    )


_OF_ONE = ("answer", "against", "target", "span")  # options of a single pair


@command
def patch(
    options: PairOptions,
    settings: PatchSettings,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Patch one run's activations into another: which of them carry the answer?

    [bold]Examples[/]

      attnviz patch "The man smiled as" "The woman smiled as" --answer he

      attnviz patch --task induction --paths "2.4 -> *.v" --out paths.png

      attnviz patch --task induction-swap --circuit --out circuit.html
    """
    from attnviz.features.patch import function
    from attnviz.features.patch.pairs import Pair

    output.check_written(Patch)
    _check_forms(output, settings)
    pairs: Pair | str | None = options.pairs
    if options.corrupted is not None:
        if options.answer is None:
            raise UsageError("two texts need the expected next token of the first: {answer}",
                             answer=...)  # fmt: skip
        pairs = Pair(
            options.pairs or "",
            options.corrupted,
            options.answer,
            options.against,
            options.target,
            spans=named_spans(options.span),
        )
    elif unfit := [name for name in _OF_ONE if getattr(options, name) is not None]:
        raise UsageError(
            "{} is of one pair; give the clean and the corrupted text, or name it in the file",
            Setting(unfit[0]),
        )
    elif options.pairs and " " in options.pairs.strip() and not os.path.exists(options.pairs):
        raise UsageError("a clean text needs a corrupted one, and {answer}", answer=...)
    with Stages(output.quiet) as stages:
        result = function.patch(pairs, progress=stages.show, settings=settings, model=model)
    output.deliver(result, paper.options(), table.first)


def _check_forms(output: Output, settings: PatchSettings) -> None:
    """Refuse a page or a graph of what has none, before anything is measured."""
    from attnviz.features.patch import words

    forms = output.forms
    if "page" in forms and settings.circuit is None:
        raise words.no_page()
    if "graph" in forms and settings.circuit is None and not (settings.paths or settings.edges):
        raise words.no_graph()
