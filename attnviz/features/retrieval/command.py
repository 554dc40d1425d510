"""``attnviz retrieval``: which heads copy a needle out of a long text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages

NEEDLES, HEADS, RESULT = "Needles", "Heads", "Result"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class NeedleOptions:
    """The needles."""

    needles: Annotated[
        Path | None,
        _option(
            "A .jsonl file: needle, question, and where wanted answer and haystack.",
            NEEDLES,
            metavar="FILE",
            show_default="random words",
        ),
    ] = None
    lengths: Annotated[
        str | None,
        _option(
            "Tokens of the prompts: 512,1024,2048.",
            NEEDLES,
            metavar="N,N",
            show_default="four, up to the model's or 1,024",
        ),
    ] = None
    depths: Annotated[
        str, _option("Where needles stand, from 0 (first) to 1 (last).", NEEDLES, metavar="X,X")
    ] = "0,0.25,0.5,0.75,1"
    count: Annotated[
        int, _option("Needles of random words for each length and depth.", NEEDLES, metavar="N")
    ] = 4
    cue: Annotated[
        int, _option("Words of a random needle that the question repeats.", NEEDLES, metavar="N")
    ] = 3
    answer: Annotated[
        int, _option("Words of it that follow them and are asked for.", NEEDLES, metavar="N")
    ] = 5
    generate: Annotated[
        int | None,
        _option(
            "Tokens that are generated at most.",
            NEEDLES,
            metavar="N",
            show_default="as the answer has; of a file 50",
        ),
    ] = None
    seed: Annotated[
        int, _option("Of words, of heads drawn at random and of random weights.", NEEDLES)
    ] = 0


@dataclass(frozen=True)
class JudgingOptions:
    """How heads are ranked, and what is done to them."""

    by: Annotated[
        str,
        _option(
            "Rank heads by what they copy while generating (copied), or by the weight from the "
            "question (query).",
            HEADS,
        ),
    ] = "copied"
    ablate: Annotated[
        str,
        _option(
            "Ablate so many of the first heads together, and as many others; 0 for none.",
            HEADS,
            metavar="K,K",
        ),
    ] = "1,2,5"
    draws: Annotated[int, _option("Sets of other heads for each of these.", HEADS, metavar="N")] = 5
    select_on: Annotated[
        str,
        _option("Rank on even needles and measure on odd ones (halves), or both on all.", HEADS),
    ] = "halves"
    control: Annotated[
        bool, _option("Also run the model with random weights.", HEADS, "--control/--no-control")
    ] = True


@flatten
def retrieval(
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    given: NeedleOptions,
    judging: JudgingOptions,
    top: Annotated[int, _option("Heads of the table.", RESULT, metavar="N", min=1)] = 10,
    json: Annotated[bool, _option("Print JSON (attnviz.retrieval/1).", RESULT, "--json")] = False,
    csv: Annotated[bool, _option("Print CSV, one line per head.", RESULT, "--csv")] = False,
    out: Annotated[
        Path | None,
        _option(
            "Also save it: .json, .csv or a picture (.png, .svg, .pdf).",
            RESULT,
            "--out",
            "-o",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Find the heads that copy a needle out of a long text, and see what is lost without them.

    [bold]Examples[/]

      attnviz retrieval

      attnviz retrieval --lengths 60,120 --depths 0,0.5,1 --ablate 2 -o needles.png

      attnviz retrieval --needles sample_inputs/needles.jsonl --by query

      attnviz retrieval --model my-model --lengths 1024,4096 --count 2 --json
    """
    drawn = paper.options()
    from attnviz.features.retrieval import function
    from attnviz.features.retrieval.result import Retrieval

    ending.check(Retrieval, json, csv, out)
    settings: dict[str, Any] = {
        "lengths": None if given.lengths is None else _numbers("--lengths", given.lengths, int),
        "depths": _numbers("--depths", given.depths, float),
        "count": given.count,
        "cue": given.cue,
        "answer": given.answer,
        "generate": given.generate,
        "seed": given.seed,
        "by": judging.by,
        "ablate": () if judging.ablate == "0" else _numbers("--ablate", judging.ablate, int),
        "draws": judging.draws,
        "select_on": judging.select_on,
        "control": judging.control,
    }
    with Stages(output.quiet) as stages:
        found = function.retrieval(
            given.needles, progress=stages.show, **settings, **model.settings()
        )
    if out is not None:
        found.save(out, **drawn)
    ending.show(found, output.quiet, top=top, json=json, csv=csv, wrote=out)


def _numbers(name: str, text: str, kind: type[int] | type[float]) -> tuple[Any, ...]:
    try:
        return tuple(kind(one) for one in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{name} takes numbers such as 1,2,5, not {text!r}") from None
