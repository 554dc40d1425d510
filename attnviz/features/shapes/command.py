"""``attnviz shapes``: how a tensor walks through attention, what it costs, and why."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attnviz.cli import console, voice
from attnviz.cli.exits import DIFFERS
from attnviz.cli.flattening import flatten
from attnviz.errors import Message, Setting, UsageError
from attnviz.features.shapes.options import (
    Asked,
    FormatOptions,
    LayerOptions,
    PresetOptions,
    RunOptions,
    ViewOptions,
)

if TYPE_CHECKING:
    from attnviz.features.shapes.function import Answer

PIPE_WIDTH = 110


class View(NamedTuple):
    """A view: what answers, the options it heeds, and those of them that its CSV does not show."""

    answer: Callable[[Asked], Answer]
    heeds: frozenset[str] = frozenset()
    not_in_csv: frozenset[str] = frozenset()
    has_csv: bool = True


def _walk(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.walks import walk

    return walk(asked.subject(), asked.sizes(), why=asked.view.why)


def _diagram(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.walks import diagram

    return diagram(asked.subject(), asked.sizes(), why=asked.view.why, out=asked.output.out)


def _verify(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.walks import verify

    return verify(asked.subject(), asked.sizes())


def _compare(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.costs import compare

    return compare(asked.subject(), asked.sizes(), memory=asked.view.memory)


def _sweep(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.costs import sweep

    along = str(asked.view.sweep)
    return sweep(asked.subject(), along, asked.sizes(), out=asked.output.out)


def _scaling(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.worked import scaling

    return scaling(asked.view.seed, out=asked.output.out)


def _numbers(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.worked import numbers

    return numbers(asked.tiny(), precision=asked.view.precision)


def _animate(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.worked import animate

    if asked.output.out is None:
        raise UsageError("{animate} makes a file; add {out}", animate=..., out="animation.html")
    return animate(asked.tiny(), asked.output.out)


def _presets(asked: Asked) -> Answer:
    from attnviz.features.shapes.answers.costs import presets

    return presets()


_SIZES = frozenset(f.name for f in dataclasses.fields(LayerOptions))
_RUN = frozenset(f.name for f in dataclasses.fields(RunOptions))
_MODEL = frozenset(f.name for f in dataclasses.fields(PresetOptions))
_TINY = frozenset({"text", "input", "example", "seed", "d_model", "heads", "kv_heads", "kind"})
_TINY |= {"causal", "window"}
_ONE = _SIZES - {"layers"}

VIEWS: Mapping[str, View] = {
    "walk": View(_walk, _SIZES | _RUN | _MODEL | {"why"}, frozenset({"layers"})),
    "diagram": View(_diagram, _SIZES | _RUN | _MODEL | {"why", "out"}, has_csv=False),
    "verify": View(_verify, _ONE | _RUN | _MODEL),
    "compare": View(_compare, _SIZES | _RUN | _MODEL | {"memory"}),
    "sweep": View(_sweep, _ONE | _RUN | _MODEL | {"out"}),
    "scaling": View(_scaling, frozenset({"seed", "out"})),
    "numbers": View(_numbers, _TINY | {"precision"}, frozenset({"precision"})),
    "animate": View(_animate, _TINY | {"out"}, has_csv=False),
    "presets": View(_presets),
}
"""Every view by the option that asks for it; the walk is what nobody has to ask for."""

_OF_A_MODEL = _RUN | {"why"}
"""What the walk of a model heeds below the table of its layers, which is all that CSV holds."""


@flatten
def shapes(
    layer: LayerOptions,
    run: RunOptions,
    model: PresetOptions,
    view: ViewOptions,
    output: FormatOptions,
    text: Annotated[
        str | None, typer.Argument(help="Words for --numbers and --animate: 'cat sat on mat'.")
    ] = None,
) -> None:
    """Show the shape of every step of attention, why it is so, and what it costs.

    [bold]Examples[/]

      attnviz shapes --d-model 512 --heads 8 --why

      attnviz shapes --d-model 256 --heads 8 --kind cross --seq 12 --context-length 20 --verify

      attnviz shapes --preset llama3-70b --compare --memory 80GB --dtype bf16

      attnviz shapes --sweep seq=128..131072 -o growth.svg

      attnviz shapes --numbers "cat sat on mat" --causal

      attnviz shapes --kind gqa --kv-heads 2 --diagram -o layer.svg

      attnviz shapes --animate -o heads.html
    """
    asked = Asked(text, layer, run, model, view, output)
    answer = _view_of(asked).answer(asked)
    notes = tuple(console.one_line(voice.words(note)) for note in answer.notes)
    title = console.one_line(answer.title)
    _print(dataclasses.replace(answer, title=title, notes=notes), output)
    if getattr(answer, "equal", True) is False:
        raise typer.Exit(DIFFERS)


def _view_of(asked: Asked) -> View:
    """The one view asked for; UsageError for two, and for options that it would not heed."""
    given = asked.given()
    views = [name for name in given if name in VIEWS]
    formats = [name for name in ("json", "csv", "markdown") if name in given]
    for several, what in ((views, "views"), (formats, "formats")):
        if len(several) > 1:
            one, other = map(Setting, several[:2])
            raise UsageError("{} and {} are two {}; choose one", one, other, what)
    name = views[0] if views else "walk"
    view, heeds = VIEWS[name], VIEWS[name].heeds
    if asked.model.name is not None:
        heeds -= _SIZES | (_RUN if name == "verify" else frozenset())
    for option in given:
        if option not in heeds | {name, *formats}:
            raise _unheeded(option, asked, name if views else "")
    if "csv" in formats:
        _check_csv(name, view, asked)
    return view


def _check_csv(name: str, view: View, asked: Asked) -> None:
    """Refuse CSV where there is no table, and options that change nothing in it."""
    if not view.has_csv:
        raise UsageError("{} has no table for {csv}; leave it out", Setting(name), csv=...)
    silent = view.not_in_csv
    if name == "walk" and asked.model.name is not None:
        silent = _OF_A_MODEL
    for option in asked.given():
        if option in silent:
            raise UsageError(
                "{} changes nothing in {csv}; leave it out, or take {json}",
                Setting(option),
                csv=...,
                json=...,
            )


def _unheeded(name: str, asked: Asked, view: str) -> UsageError:
    """What to say of an option that a view does not heed; the walk is the view without a name."""
    said: Any = f"the text {asked.text!r}" if name == "text" else Setting(name)
    model = asked.model.name
    if name in _SIZES and model is not None:
        return UsageError(
            "{} is fixed by {!r}; leave it out, or leave the model out", Setting(name), model
        )
    if view:
        return UsageError("{} does not apply to {}; leave it out", said, Setting(view))
    takers: list[Setting | Message] = [Setting(v) for v, one in VIEWS.items() if name in one.heeds]
    listed = functools.reduce(lambda some, one: Message("{} or {}", some, one), takers)
    return UsageError("{} needs {}; add it", said, listed)


def _print(answer: Answer, output: FormatOptions) -> None:
    from attnviz.features.shapes.forms import as_csv, as_markdown, as_text
    from attnviz.features.shapes.table import Paint

    if output.json:
        console.put(answer.to_json())
    elif output.csv:
        console.put(as_csv(answer))
    elif output.markdown:
        console.put(as_markdown(answer))
    else:
        paint = Paint(colour=_colour(), ascii_only=not _unicode())
        sys.stdout.write(as_text(answer, _width(), paint))


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
