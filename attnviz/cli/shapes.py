"""``attnviz shapes``: how a tensor walks through attention, what it costs, and why."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import voice

LAYER, RUN = "The layer", "What runs through it"
MODEL, VIEW, OUT = "A published or local model", "Views (the walk, unless told otherwise)", "Output"
PIPE_WIDTH = 110


def shapes(
    text: Annotated[
        str | None, typer.Argument(help="Words for --numbers and --animate: 'cat sat on mat'.")
    ] = None,
    d_model: Annotated[
        int | None, typer.Option(help="D, the model width (512).", rich_help_panel=LAYER)
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="H query heads (8).", rich_help_panel=LAYER)
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="G key/value heads (H).", rich_help_panel=LAYER)
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(help="d of one head (D / H).", rich_help_panel=LAYER)
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="mha, gqa, mqa, mla or cross.", rich_help_panel=LAYER)
    ] = None,
    latent: Annotated[
        int | None, typer.Option(help="r of MLA (4·d).", rich_help_panel=LAYER)
    ] = None,
    rope_dim: Annotated[
        int | None, typer.Option(help="Rotary width of MLA (d / 2).", rich_help_panel=LAYER)
    ] = None,
    bias: Annotated[
        bool | None,
        typer.Option("--bias/--no-bias", help="Biases (with).", rich_help_panel=LAYER),
    ] = None,
    causal: Annotated[
        bool | None,
        typer.Option("--causal/--no-causal", help="Hide the future.", rich_help_panel=LAYER),
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Positions that a query sees.", rich_help_panel=LAYER)
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="How many such layers (1).", rich_help_panel=LAYER)
    ] = None,
    batch: Annotated[int | None, typer.Option(help="B (1).", rich_help_panel=RUN)] = None,
    seq: Annotated[
        int | None, typer.Option(help="T queries; a letter if unset.", rich_help_panel=RUN)
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="S keys of cross-attention.", rich_help_panel=RUN)
    ] = None,
    cache: Annotated[
        int | None,
        typer.Option(help="Decode one token on a cache of N.", metavar="N", rich_help_panel=RUN),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="float64, float32, bfloat16 or float16.", rich_help_panel=RUN)
    ] = "float32",
    preset: Annotated[
        str | None, typer.Option(help="gpt2, llama3-70b, ...", rich_help_panel=MODEL)
    ] = None,
    presets: Annotated[
        bool, typer.Option("--presets", help="List them all.", rich_help_panel=MODEL)
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Read config.json alone.", metavar="FOLDER|ID", rich_help_panel=MODEL),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="The reason of every step.", rich_help_panel=VIEW)
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Run the real layer, compare.", rich_help_panel=VIEW),
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="MHA, GQA, MQA, MLA.", rich_help_panel=VIEW)
    ] = False,
    memory: Annotated[
        str | None, typer.Option(help="What fits: 80GB, 24GiB.", rich_help_panel=VIEW)
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="seq=128..131072, also d-model, heads, context; :x4 or :+512 sets the step.",
            metavar="NAME=LOW..HIGH",
            rich_help_panel=VIEW,
        ),
    ] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="What 1/√d is for.", rich_help_panel=VIEW)
    ] = False,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="A tiny layer in numbers.", rich_help_panel=VIEW)
    ] = False,
    input: Annotated[
        Path | None, typer.Option(help="JSON with x or q, k, v.", rich_help_panel=VIEW)
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="words or causal.", rich_help_panel=VIEW)
    ] = None,
    precision: Annotated[int, typer.Option(help="Digits.", rich_help_panel=VIEW)] = 3,
    seed: Annotated[int, typer.Option(help="Of --numbers, --scaling.", rich_help_panel=VIEW)] = 0,
    diagram: Annotated[
        bool, typer.Option("--diagram", help="Boxes and arrows.", rich_help_panel=VIEW)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="--diagram as svg, png, pdf.", rich_help_panel=OUT),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="--sweep or --scaling as png, svg, pdf.", rich_help_panel=OUT),
    ] = None,
    animate: Annotated[
        Path | None, typer.Option(help="F.html: it moves.", rich_help_panel=OUT)
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="JSON (attnviz.shapes/1).", rich_help_panel=OUT)
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV.", rich_help_panel=OUT)] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Markdown.", rich_help_panel=OUT)
    ] = False,
) -> None:
    """Which shape does each step of attention have, why, and what does it cost?

    [bold]Examples[/]

      attnviz shapes --d-model 512 --heads 8 --why

      attnviz shapes --d-model 256 --heads 8 --kind cross --seq 12 --context 20 --verify

      attnviz shapes --preset llama3-70b --compare --memory 80GB --dtype bf16

      attnviz shapes --sweep seq=128..131072 --plot growth.svg

      attnviz shapes --numbers "cat sat on mat" --causal

      attnviz shapes --kind gqa --kv-heads 2 --diagram -o layer.svg

      attnviz shapes --animate heads.html
    """
    asked = dict(locals())
    formats = [name for name in ("json", "csv", "markdown") if asked.pop(name)]
    from attnviz.answers import Request
    from attnviz.answers import shapes as answer
    from attnviz.errors import UsageError
    from attnviz.render.shapes.answer import as_csv, as_json, as_markdown, as_text
    from attnviz.render.shapes.table import Paint

    if len(formats) > 1:
        raise UsageError(f"--{formats[0]} and --{formats[1]} are two formats; choose one")
    report = answer(Request(**asked))
    report = report._replace(notes=tuple(map(voice.words, report.notes)))
    writers = {"json": as_json, "csv": as_csv, "markdown": as_markdown}
    if formats:
        sys.stdout.write(writers[formats[0]](report))
    else:
        paint = Paint(colour=_colour(), ascii_only=not _unicode())
        sys.stdout.write(as_text(report, _width(), paint))
    if report.data.get("equal") is False:
        raise typer.Exit(1)


def _colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _unicode() -> bool:
    return (sys.stdout.encoding or "ascii").lower().replace("-", "") in ("utf8", "cp65001")


def _width() -> int:
    fallback = (PIPE_WIDTH, 24)
    return max(40, shutil.get_terminal_size(fallback).columns)
