"""What one can ask of ``attnviz shapes``, and which requests contradict themselves."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from attnviz.errors import Message, Setting, UsageError

FIGURES = ("svg", "png", "pdf")
ANIMATIONS = ("html",)


class Request(NamedTuple):
    """Everything one can ask for; the fields are the options of ``attnviz shapes``.

    Sizes left None stay symbolic where that helps, or take a usual value. At most one view may be
    asked for: ``verify``, ``compare``, ``sweep``, ``presets``, ``numbers``, ``scaling``,
    ``diagram`` or ``animate``; without any it is the walk.
    """

    text: str | None = None
    d_model: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kind: str | None = None
    latent: int | None = None
    rope_dim: int | None = None
    bias: bool | None = None
    causal: bool | None = None
    window: int | None = None
    batch: int | None = None
    seq: int | None = None
    context: int | None = None
    cache: int | None = None
    layers: int | None = None
    dtype: str = "float32"
    preset: str | None = None
    model: str | None = None
    why: bool = False
    verify: bool = False
    compare: bool = False
    memory: str | None = None
    sweep: str | None = None
    presets: bool = False
    numbers: bool = False
    input: Path | None = None
    example: str | None = None
    precision: int = 3
    scaling: bool = False
    seed: int = 0
    diagram: bool = False
    output: Path | None = None
    plot: Path | None = None
    animate: Path | None = None


_VIEWS = ("verify", "compare", "sweep", "presets", "numbers", "scaling", "diagram", "animate")
LAYER = ("d_model", "heads", "kv_heads", "head_dim", "kind", "latent", "rope_dim", "bias")
_BELONGS = {
    "memory": ("compare",),
    "plot": ("sweep", "scaling"),
    "output": ("diagram",),
    "input": ("numbers", "animate"),
    "example": ("numbers", "animate"),
    "text": ("numbers", "animate"),
}


def view_of(request: Request) -> str:
    """The one view asked for.

    Raises:
        UsageError: two views, or an option of a view that was not asked for.
    """
    asked = [name for name in _VIEWS if getattr(request, name)]
    if len(asked) > 1:
        raise UsageError(
            "{} and {} are two views; ask for one at a time", Setting(asked[0]), Setting(asked[1])
        )
    view = asked[0] if asked else "walk"
    for name, views in _BELONGS.items():
        if getattr(request, name) is not None and view not in views:
            option = f"the text {request.text!r}" if name == "text" else Setting(name)
            one, *other = map(Setting, views)
            raise UsageError(
                "{} belongs to {}; add it",
                option,
                Message("{} or {}", one, other[0]) if other else one,
            )
    if request.preset is not None and request.model is not None:
        raise UsageError("{preset} and {model} both name a model; keep one", preset=..., model=...)
    fixed = request.preset or request.model
    allowed = {"presets", "scaling", "numbers", "animate"}
    if fixed and view in allowed:
        raise UsageError("{} does not take a model; leave {!r} out", Setting(view), fixed)
    if not 0 <= request.precision <= 12:
        raise UsageError(
            "{precision} must be 0 to 12 digits, got {}", request.precision, precision=...
        )
    return view


def given(request: Request, names: tuple[str, ...]) -> list[str]:
    """Those of some options that were set to something else than their default."""
    unset = Request._field_defaults
    return [name for name in names if getattr(request, name) != unset[name]]


def suffix_of(path: Path, known: tuple[str, ...]) -> str:
    """A file's format by its name.

    Raises:
        UsageError: an unknown one, with those that can be written.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in known:
        kinds = ", ".join("." + name for name in known)
        raise UsageError(f"cannot tell the format of {path.name!r}; end it in {kinds}")
    return suffix
