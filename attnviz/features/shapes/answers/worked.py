"""Attention with real numbers: a tiny layer as tables and as an animation, and what 1/√d is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.attention.sizes import check_sizes
from attnviz.core.execution import Seeded
from attnviz.core.settings import Settings, like, setting
from attnviz.errors import InputError, Setting, UsageError, system_errors
from attnviz.features.shapes.answers.pictures import FIGURES, Out, save
from attnviz.features.shapes.answers.subject import Layer
from attnviz.files import open_regular, wrote

if TYPE_CHECKING:
    from attnviz.features.shapes.worked.result import AnimateAnswer, NumbersAnswer, ScalingAnswer
    from attnviz.features.shapes.worked.tiny import TinyInput

_SIZES = ("d_model", "heads", "kv_heads", "kind", "causal", "sliding_window")


EXAMPLES = ("words", "causal")
NUMBERS = "Layers in numbers"


@dataclass(frozen=True)
class Example(Settings):
    """Numbers to walk through: a text, a file, or a bundled example (``cat sat on mat``).

    Attributes:
        layer: sizes of the tiny layer.
    """

    text: str | None = setting(
        None,
        "Up to 32 words for {show} numbers and {show} animation: 'cat sat on mat'.",
        argument=True,
    )
    layer: Layer = Layer()  # noqa: RUF009 - frozen
    input: str | Path | None = setting(
        None,
        "An example that comes with attnviz, words or causal; or a JSON file with x or q, k, v "
        "(docs/shapes.md).",
        panel=NUMBERS,
        metavar="words|causal|FILE",
        typed=str,
    )
    seed: int = like(Seeded, "seed", panel=NUMBERS)

    def check(self) -> None:
        """Raise UsageError for two inputs."""
        if self.text is not None and self.input is not None:
            raise UsageError("a text and {input} are two inputs; give one", input=...)

    def read(self) -> TinyInput:
        """The tiny input.

        Raises:
            UsageError: options that a file or an example fixes.
            InputError: a file that cannot be read, or too many words. SizeError: sizes.
        """
        from attnviz.features.shapes.worked import tiny_json
        from attnviz.features.shapes.worked.tiny import EMBEDDINGS, from_text

        given = [name for name in _SIZES if getattr(self.layer, name) is not None]
        given += ["seed"] if self.seed else []
        if self.input not in (None, *EXAMPLES):
            if given:
                raise UsageError(
                    "{} belongs in the file {}; leave it out here", Setting(given[0]), self.input
                )
            return tiny_json.read_json(
                _read(Path(str(self.input)), tiny_json.MAX_BYTES), str(self.input)
            )
        if self.input == "causal":
            if given:
                raise UsageError(
                    "{} is fixed by the example 'causal'; leave it out", Setting(given[0])
                )
            return tiny_json.causal_example()
        layer = self.layer
        if layer.sliding_window is not None and layer.sliding_window < 1:
            raise UsageError(
                "{sliding_window} must be at least 1 position, got {}",
                layer.sliding_window,
                sliding_window=...,
            )
        heads = 2 if layer.heads is None else layer.heads
        kv_heads = layer.kv_heads
        if layer.kind is not None:
            if layer.kind not in ("mha", "gqa", "mqa"):
                raise UsageError(
                    "{kind} has no numeric walk; it shows mha, gqa and mqa (and cross-attention "
                    "from an {input} file with a context)",
                    kind=layer.kind,
                    input=...,
                )
            width = 4 if layer.d_model is None else layer.d_model
            kv_heads = check_sizes(width, heads, kind=layer.kind, kv_heads=kv_heads).kv_heads
        return from_text(
            " ".join(EMBEDDINGS) if self.text is None else self.text,
            d_model=layer.d_model,
            heads=heads,
            kv_heads=kv_heads,
            causal=bool(layer.causal),
            window=layer.sliding_window,
            seed=self.seed,
        )


def _read(path: Path, most: int) -> bytes:
    """A file, or as much of it as shows that it is too large."""
    with system_errors(InputError, f"cannot read {path}"):
        if path.is_dir():
            raise InputError("{} is a folder; {input} takes a JSON file", path, input=...)
        with open_regular(path) as file:
            return file.read(most + 1)


def numbers(example: Example, *, precision: int = 3) -> NumbersAnswer:
    """Every matrix of a tiny layer, head by head.

    Args:
        example: what goes through it.
        precision: digits to show, 0 to 12.

    Raises:
        AttnvizError: as for :meth:`Example.read`; UsageError for another precision.
    """
    from attnviz.features.shapes.drawing.by_hand import numbers_printed
    from attnviz.features.shapes.worked.by_hand import compute
    from attnviz.features.shapes.worked.result import numbers_answer

    if not 0 <= precision <= 12:
        raise UsageError("{precision} must be 0 to 12 digits", precision=precision)
    walked = compute(example.read())
    return numbers_answer(walked, numbers_printed(walked, precision))


def animate(example: Example, out: Out) -> AnimateAnswer:
    """The same numbers as an animation in one HTML file, which loads nothing.

    Args:
        example: as for :func:`numbers`, small enough to be seen.
        out: an .html file, or several.

    Raises:
        AttnvizError: as for :meth:`Example.read` and for saving a picture;
            UsageError for an example that is too large.
    """
    from attnviz.features.shapes.animation.page import animation_page
    from attnviz.features.shapes.worked.by_hand import compute
    from attnviz.features.shapes.worked.result import AnimateAnswer

    walked = compute(example.read())
    written = tuple(map(str, save(out, ("html",), lambda _: animation_page(walked))))
    return AnimateAnswer(title=", ".join(map(wrote, written)), files=written)


def scaling(seed: int = 0, *, out: Out = None) -> ScalingAnswer:
    """Softmax with and without 1/√d as heads grow wider, perhaps as curves in a file.

    Args:
        seed: of the random queries and keys.
        out: an .svg, .png or .pdf file, or several.

    Raises:
        UsageError: a negative seed; and as for saving a picture.
    """
    from attnviz.features.shapes.drawing.costs import scaling_printed
    from attnviz.features.shapes.worked.result import scaling_answer
    from attnviz.features.shapes.worked.softmax_scale import scaling

    if seed < 0:
        raise UsageError("{seed} must not be negative, got {}", seed, seed=...)
    measured = scaling(seed)
    answer = scaling_answer(measured, scaling_printed(measured))
    if out is None:
        return answer

    def draw(format: str) -> bytes:
        from attnviz.features.shapes.drawing.figures import scaling_figure

        return scaling_figure(measured, format)

    wrote = tuple(f"Wrote {path}." for path in save(out, FIGURES, draw))
    return replace(answer, notes=(*answer.notes, *wrote))
