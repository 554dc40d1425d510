"""``attnviz profile``: what every head does over many texts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import console, ending
from attnviz.cli.exits import IN_PART, Interrupted
from attnviz.cli.flattening import changed, flatten
from attnviz.cli.options import (
    EVIDENCE,
    SPECIAL_TOKENS,
    WEIGH_HELP,
    WEIGHTS,
    ModelOptions,
    OutputOptions,
)
from attnviz.cli.paper_options import PaperOptions
from attnviz.errors import UsageError

INPUT, RESULT, RUN = "Input", "Result", "Running"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclasses.dataclass(frozen=True)
class ProfileModel(ModelOptions):
    """Model options; a fresh layer's seed gives way to that of samples."""

    seed: Annotated[
        int | None,
        _option(
            "Seed of weights and embeddings.",
            "Fresh layer (--model fresh)",
            "--fresh-seed",
            show_default="0",
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """Which texts, and how they run."""

    column: Annotated[
        str | None, _option("The column or field that holds the text.", INPUT, metavar="NAME")
    ] = None
    group: Annotated[
        str | None,
        _option(
            "The column that names what a text belongs to, such as its document; intervals then "
            "take these as independent.",
            INPUT,
            metavar="NAME",
        ),
    ] = None
    whole: Annotated[
        bool,
        _option("Read each file as one text, in windows of the model's length.", INPUT, "--whole"),
    ] = False
    stride: Annotated[
        int | None,
        _option(
            "Tokens between the starts of successive windows of a long text.",
            INPUT,
            min=1,
            metavar="N",
            show_default="no overlap",
        ),
    ] = None
    window: Annotated[
        int | None,
        _option(
            "Tokens of a window of a long text, as many as the model takes.",
            INPUT,
            min=1,
            metavar="N",
            show_default="1024, or what the model takes",
        ),
    ] = None
    special_tokens: Annotated[bool, SPECIAL_TOKENS] = True
    weigh: Annotated[str, _option(WEIGH_HELP, RESULT, metavar="QUANTITY")] = WEIGHTS
    limit: Annotated[
        int | None, _option("Take at most the first N texts.", INPUT, min=1, metavar="N")
    ] = None
    sample: Annotated[
        int | None, _option("Take N of the texts at random.", INPUT, min=1, metavar="N")
    ] = None
    drawing: Annotated[int, _option("Seed of --sample and of the bootstrap.", INPUT, "--seed")] = 0
    interval: Annotated[
        str,
        _option(
            "95 % for each score by itself (each), or for all at once (simultaneous).",
            RESULT,
        ),
    ] = "each"
    jobs: Annotated[
        int | None,
        _option(
            "Number of processes, one thread each; the result is bit-identical.",
            RUN,
            min=1,
            metavar="N",
            show_default="one per core for many texts",
        ),
    ] = None
    ray: Annotated[
        str | None,
        _option(
            "Run on Ray: on this machine alone (local), or on the cluster at ADDRESS (ray://host:10001).",
            RUN,
            metavar="ADDRESS",
        ),
    ] = None
    strict: Annotated[
        bool, _option("Stop at the first text that cannot be used.", RUN, "--strict")
    ] = False


@flatten
def profile(
    model: ProfileModel,
    corpus: CorpusOptions,
    output: OutputOptions,
    paper: PaperOptions,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Text (one text per line), .jsonl, .csv, .tsv or .parquet files, patterns, - for "
            "stdin; pictures or sounds, or a folder of them; with --merge profiles.",
            metavar="FILE...",
        ),
    ],
    out: Annotated[
        Path | None,
        _option(
            "Also save the result: the same command resumes from it; --merge and heads "
            "--profile read it. A .parquet or .csv file is its table.",
            RESULT,
            "--out",
            "-o",
            metavar="FILE",
        ),
    ] = None,
    merge: Annotated[
        bool,
        _option("Merge the files, which are profiles of parts of a corpus.", RESULT, "--merge"),
    ] = False,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    role: Annotated[str | None, _option("Only heads with this role.", RESULT)] = None,
    sort: Annotated[
        str, _option("Sort the table by layer, role or the name of a score.", RESULT)
    ] = "layer",
    top: Annotated[
        int | None, _option("Only the first N rows of the table.", RESULT, min=1, metavar="N")
    ] = None,
    everything: Annotated[
        bool, _option("List all heads, not only those with a role.", RESULT, "--all")
    ] = False,
    stability: Annotated[
        bool,
        _option(
            "Also say how often roles and nearest heads recur when the texts are resampled.",
            RESULT,
            "--stability",
        ),
    ] = False,
    json: Annotated[bool, _option("Print JSON (attnviz.profile/3).", RESULT, "--json")] = False,
    csv: Annotated[
        bool, _option("Print CSV, a line for each head and score.", RESULT, "--csv")
    ] = False,
    plot: Annotated[
        Path | None,
        _option(
            "Also write a page of pictures (.png, .svg, .pdf), a table (.csv, .parquet) or .json.",
            RESULT,
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Show what every head does over many texts, with 95 % intervals and what it looks at.

    [bold]Examples[/]

      attnviz profile corpus.txt

      attnviz profile 'data/*.jsonl' --group doc_id -m bert-base-uncased --plot p.png -o b.profile

      attnviz profile books/*.txt --whole --model gpt2 --jobs 8

      attnviz profile photos --model google/vit-base-patch16-224

      attnviz profile --merge part1.profile part2.profile -o all.profile
    """
    drawn = paper.options()
    from attnviz.drawing.labels import counted
    from attnviz.features.profile import function as profiled
    from attnviz.features.profile.bar import CorpusBar
    from attnviz.features.profile.result import Profile
    from attnviz.features.profile.run import ProfileInterrupted

    table = out if out is not None and out.suffix.lower() in (".parquet", ".csv") else None
    ending.check(Profile, json, csv, plot, table)
    out = None if table else out
    given = dataclasses.asdict(corpus)
    given["seed"] = given.pop("drawing")
    if merge:
        if extra := changed(model) + changed(corpus):
            raise UsageError(f"--merge reads profiles; leave out {', '.join(extra)}")
        found = profiled.merge_profiles(inputs, out, evidence, stability=stability)
    else:
        bar = CorpusBar(inputs, corpus.whole, corpus.limit, corpus.sample, quiet=output.quiet)
        try:
            with bar:
                found = profiled.profile(
                    inputs,
                    **model.settings(),
                    **given,
                    evidence=evidence,
                    stability=stability,
                    out=out,
                    progress=bar.show,
                )
        except ProfileInterrupted as stopped:
            kept = f"{out} has them; the same command resumes from it" if out else "none is kept"
            hint = "" if out else "; use --out to keep what has been done"
            raise Interrupted(
                f"interrupted after {counted(stopped.texts, 'text')}; {kept}{hint}"
            ) from None
    for path in (plot, table):
        if path is not None:
            found.save(path, **drawn)
    if json or csv:
        console.put(found.to_json() if json else found.to_csv())
    else:
        from attnviz.cli.listing import listed
        from attnviz.features.profile import terminal

        scores = [head.scores for head in found.heads]
        rows, more = listed(scores, role=role, sort=sort, top=top, everything=everything)
        screen = console.stdout()
        for part in terminal.parts(found, rows, more=more):
            screen.print(part)
    console.note(found.notes, output.quiet)
    if found.bad_count:
        raise typer.Exit(IN_PART)
