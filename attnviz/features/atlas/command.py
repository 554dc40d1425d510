"""``attnviz atlas``: everything known about every head of a model, on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.cli import console
from attnviz.cli.console import Stages
from attnviz.cli.declared import command
from attnviz.cli.options import TextsOptions, texts_or_samples
from attnviz.cli.output import Output, PageOutput, SpaceOutput, check_space, write_space
from attnviz.core.settings import Settings, like, setting
from attnviz.features.atlas.settings import AtlasSettings


@dataclass(frozen=True)
class AtlasTexts(Settings):
    """What everything is measured on."""

    texts: tuple[str, ...] | None = like(
        TextsOptions, "texts", help="A file of texts, as for profile; repeatable.", panel=None
    )


@dataclass(frozen=True)
class AtlasOutput(Output):
    """Where the atlas goes."""

    out_dir: Path | None = setting(
        None,
        "Save it as a folder of pages: index.html, and each head row by row, linked.",
        metavar="FOLDER",
        common=True,
    )

    out: tuple[Path, ...] | None = like(
        Output,
        "out",
        help="Save it: the page (.html), .json, .csv or .parquet; without it a temporary page "
        "opens in the browser. Repeatable.",
    )

    space: Path | None = like(SpaceOutput, "space")


@command
def atlas(
    corpus: AtlasTexts,
    settings: AtlasSettings,
    attaching: Attaching,
    model: ModelSettings,
    output: AtlasOutput,
) -> None:
    """Put everything that is known about every head of a model on one page.

    Runs profile, ablate and circuits, with --gold syntax and coref, and gathers what they
    find: sortable, searchable, a card for each head. With -o an interrupted run can be
    resumed.

    [bold]Examples[/]

      attnviz atlas -o atlas.html

      attnviz atlas --texts sample_inputs/sentences.txt --out-dir book/

      attnviz atlas --gold sample_inputs/treebank.conllu -o grammar.html
    """
    from attnviz.features.atlas import function
    from attnviz.features.atlas.page import INDEX
    from attnviz.features.atlas.result import Atlas

    output.check_written(Atlas)
    check_space(output)
    names = texts_or_samples(corpus.texts, output.quiet)
    first = (output.out or (None,))[0]
    state = None
    if first is not None:  # beside the page, or in its folder
        state = first / ".parts" if first.is_dir() else first.with_name(f".{first.name}.parts")
    with Stages(output.quiet) as stages:
        result = function.atlas(
            names,
            state=state,
            out_dir=output.out_dir,
            progress=stages.show,
            settings=settings,
            attaching=attaching,
            model=model,
        )
    output.deliver(result)
    if output.out_dir is not None and not output.quiet and not output.machine:
        console.wrote(output.out_dir / INDEX)
    write_space(output, result)
    elsewhere = (output.out, output.out_dir, output.space)
    if elsewhere == (None, None, None) and not output.machine:
        PageOutput(quiet=output.quiet).deliver(result)
    if state is not None:
        function.forget(state)
