"""``attnviz shapes``: how a tensor walks through attention, what it costs, and why."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from attnviz.attention.spec import RunSizes
from attnviz.cli import console, declared
from attnviz.cli.declared import command
from attnviz.cli.exits import DIFFERS
from attnviz.core.settings import Settings, declarations
from attnviz.errors import Message, Setting, UsageError
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.settings import (
    Example,
    Layer,
    Model,
    ShapesOutput,
    Subject,
    ViewSettings,
)
from attnviz.features.shapes.table import Paint, as_csv, as_markdown, as_text

if TYPE_CHECKING:
    from attnviz.features.shapes.result import Answer

PIPE_WIDTH = 110


class Asked(NamedTuple):
    """All settings of a call."""

    layer: Layer
    run: RunSizes
    model: Model
    view: ViewSettings
    example: Example
    output: ShapesOutput

    @property
    def named(self) -> str | None:
        """What the user called the model; None where a fresh layer is meant."""
        return self.model.name if self.model != Model() else None

    @property
    def subject(self) -> Subject:
        """What the view is about."""
        return self.layer if self.named is None else self.model

    @property
    def tiny(self) -> Example:
        """The numbers to walk through."""
        return self.example.but(layer=self.layer)

    def given(self) -> list[str]:
        """The names of the settings that are not what they are by default."""
        return [name for record in self for name in record.changed()]


class View(NamedTuple):
    """A view: what answers, the options it heeds, and those of them that its CSV does not show."""

    answer: Callable[[Asked], Answer]
    heeds: frozenset[str] = frozenset()
    not_in_csv: frozenset[str] = frozenset()
    has_csv: bool = True


def _animate(asked: Asked) -> Answer:
    if asked.output.out is None:
        raise UsageError("{show} makes a file; add {out}", show="animation", out="animation.html")
    return answers.animate(asked.tiny, asked.output.out)


def _names(record: type[Settings]) -> frozenset[str]:
    return frozenset(declarations(record))


_SIZES, _RUN, _MODEL = map(_names, (Layer, RunSizes, Model))
_TINY = frozenset({"text", "input", "seed", "d_model", "heads", "kv_heads", "kind"})
_TINY |= {"causal", "sliding_window"}
_ONE = _SIZES - {"layers"}

VIEWS: Mapping[str, View] = {
    "walk": View(
        lambda a: answers.walk(a.subject, a.run, explain=a.view.explain),
        _SIZES | _RUN | _MODEL | {"explain"},
        frozenset({"layers"}),
    ),
    "diagram": View(
        lambda a: answers.diagram(a.subject, a.run, explain=a.view.explain, out=a.output.out),
        _SIZES | _RUN | _MODEL | {"explain", "out"},
        has_csv=False,
    ),
    "verify": View(lambda a: answers.verify(a.subject, a.run), _ONE | _RUN | _MODEL),
    "compare": View(
        lambda a: answers.compare(a.subject, a.run, memory=a.view.detail), _SIZES | _RUN | _MODEL
    ),
    "sweep": View(
        lambda a: answers.sweep(a.subject, str(a.view.detail), a.run, out=a.output.out),
        _ONE | _RUN | _MODEL | {"out"},
    ),
    "scaling": View(
        lambda a: answers.scaling(a.example.seed, out=a.output.out), frozenset({"seed", "out"})
    ),
    "numbers": View(
        lambda a: answers.numbers(a.tiny, precision=a.view.precision, variant=a.view.variant),
        _TINY,
    ),
    "animation": View(_animate, _TINY | {"out"}, has_csv=False),
    "presets": View(lambda _: answers.presets()),
}
"""Every view by its name; the walk is what nobody has to ask for."""

_OF_A_MODEL = _RUN | {"explain"}
"""What the walk of a model heeds below the table of its layers, which is all that CSV holds."""


@command
def shapes(
    layer: Layer,
    run: RunSizes,
    model: Model,
    view: ViewSettings,
    example: Example,
    output: ShapesOutput,
) -> None:
    """Show the shape of every step of attention, why it is so, and what it costs.

    [bold]Examples[/]

      attnviz shapes --d-model 512 --heads 8 --explain

      attnviz shapes --model llama3-70b --show compare:80GB --dtype bf16

      attnviz shapes --show numbers "cat sat on mat" --causal
    """
    asked = Asked(layer, run, model, view, example, output)
    answer = _view_of(asked).answer(asked)
    notes = tuple(console.one_line(declared.words(note)) for note in answer.notes)
    title = console.one_line(answer.title)
    _print(dataclasses.replace(answer, title=title, notes=notes), output)
    if getattr(answer, "equal", True) is False:
        raise typer.Exit(DIFFERS)


def _spoken(view: str) -> Setting:
    """A view by the option that asks for it."""
    return Setting("show", "seq=128..131072" if view == "sweep" else view)


def _view_of(asked: Asked) -> View:
    """The view asked for; UsageError for options that it would not heed."""
    given = [name for name in asked.given() if name != "show"]
    formats = [name for name in ("json", "csv", "markdown") if name in given]
    if len(formats) > 1:
        raise UsageError("{} and {} are two formats; choose one", *map(Setting, formats[:2]))
    name = asked.view.view or ("walk" if asked.output.out is None else "diagram")
    view, heeds = VIEWS[name], VIEWS[name].heeds
    if asked.named is not None:
        heeds -= _SIZES | (_RUN if name == "verify" else frozenset())
    for option in given:
        if option not in heeds | {*formats}:
            raise _unheeded(option, asked, asked.view.view or "")
    if "csv" in formats:
        _check_csv(name, view, asked)
    return view


def _check_csv(name: str, view: View, asked: Asked) -> None:
    """Refuse CSV where there is no table, and options that change nothing in it."""
    if not view.has_csv:
        raise UsageError("{} has no table for {csv}; leave it out", _spoken(name), csv=...)
    silent = view.not_in_csv
    if name == "walk" and asked.named is not None:
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
    said: Any = f"the text {asked.example.text!r}" if name == "text" else Setting(name)
    model = asked.named
    if name in _SIZES and model is not None:
        return UsageError(
            "{} is fixed by {!r}; leave it out, or leave the model out", Setting(name), model
        )
    if view:
        return UsageError("{} does not apply to {}; leave it out", said, _spoken(view))
    takers: list[Setting | Message] = [
        _spoken(taker) for taker, other in VIEWS.items() if name in other.heeds
    ]
    listed = functools.reduce(lambda some, other: Message("{} or {}", some, other), takers)
    return UsageError("{} needs {}; add it", said, listed)


def _print(answer: Answer, output: ShapesOutput) -> None:
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
