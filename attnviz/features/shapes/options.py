"""The options of ``attnviz shapes``, in groups: the layer, what runs through it, the view."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from attnviz.attention.spec import RunSizes
    from attnviz.features.shapes.answers.subject import Layer, Model
    from attnviz.features.shapes.answers.worked import Example

LAYER, RUN = "The layer", "What runs through it"
MODEL, VIEW, OUT = "A published or local model", "Views (the walk, unless told otherwise)", "Output"


def option(help: str, *names: str, panel: str, **more: Any) -> Any:
    """An option with a line of help in one panel of it."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclasses.dataclass(frozen=True)
class LayerOptions:
    """The sizes of a fresh layer; the fields of :class:`attnviz.features.shapes.function.Layer`."""

    d_model: Annotated[int | None, option("D, the model width (512).", panel=LAYER)] = None
    heads: Annotated[int | None, option("H query heads (8).", panel=LAYER)] = None
    kv_heads: Annotated[int | None, option("G key/value heads (H).", panel=LAYER)] = None
    head_dim: Annotated[int | None, option("d of one head (D / H).", panel=LAYER)] = None
    kind: Annotated[str | None, option("mha, gqa, mqa, mla or cross.", panel=LAYER)] = None
    latent: Annotated[int | None, option("r of MLA (4·d).", panel=LAYER)] = None
    rope_dim: Annotated[int | None, option("Rotary width of MLA (d / 2).", panel=LAYER)] = None
    bias: Annotated[bool | None, option("Biases (with).", "--bias/--no-bias", panel=LAYER)] = None
    causal: Annotated[
        bool | None,
        option("Causal mask: no key after the query.", "--causal/--no-causal", panel=LAYER),
    ] = None
    window: Annotated[int | None, option("Positions that a query sees.", panel=LAYER)] = None
    layers: Annotated[int | None, option("How many such layers (1).", panel=LAYER)] = None


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What runs through the layer; the fields of ``RunSizes``."""

    batch: Annotated[int, option("B.", panel=RUN)] = 1
    seq: Annotated[int | None, option("T queries; symbolic if unset.", panel=RUN)] = None
    context_length: Annotated[
        int | None, option("S keys of cross-attention.", panel=RUN, metavar="S")
    ] = None
    cache: Annotated[
        int | None, option("Decode one token on a cache of N.", panel=RUN, metavar="N")
    ] = None
    dtype: Annotated[
        str | None,
        option("float64, float32, bf16 or fp16 (the config's, else float32).", panel=RUN),
    ] = None
    cache_dtype: Annotated[
        str | None, option("Dtype of cached K and V: fp8, int8 or as above (the dtype).", panel=RUN)
    ] = None


@dataclasses.dataclass(frozen=True)
class PresetOptions:
    """A model instead of a fresh layer; the fields of ``Model``."""

    preset: Annotated[str | None, option("gpt2, llama3-70b, ...", panel=MODEL)] = None
    model: Annotated[
        str | None, option("Read config.json alone.", "--model", "-m", panel=MODEL, metavar="MODEL")
    ] = None

    @property
    def name(self) -> str | None:
        """What the user called the model; None where a fresh layer is meant."""
        return self.preset if self.preset is not None else self.model


@dataclasses.dataclass(frozen=True)
class ViewOptions:
    """Which view, at most one, and what some of them take."""

    presets: Annotated[bool, option("List published models.", "--presets", panel=VIEW)] = False
    verify: Annotated[bool, option("Run the real layer, compare.", "--verify", panel=VIEW)] = False
    compare: Annotated[bool, option("MHA, GQA, MQA, MLA.", "--compare", panel=VIEW)] = False
    sweep: Annotated[
        str | None,
        option(
            "seq=128..131072, kv-heads=1..H, also d-model, heads, context-length; :x4 or :+512 "
            "sets the step.",
            panel=VIEW,
            metavar="NAME=LOW..HIGH",
        ),
    ] = None
    scaling: Annotated[bool, option("What 1/√d is for.", "--scaling", panel=VIEW)] = False
    diagram: Annotated[bool, option("Boxes and arrows.", "--diagram", panel=VIEW)] = False
    numbers: Annotated[bool, option("A tiny layer in numbers.", "--numbers", panel=VIEW)] = False
    animate: Annotated[
        bool, option("Animate the numbers, into --out.", "--animate", panel=VIEW)
    ] = False
    why: Annotated[bool, option("Explain every step.", "--why", panel=VIEW)] = False
    memory: Annotated[
        str | None, option("For --compare, what fits beside the weights: 80GB.", panel=VIEW)
    ] = None
    input: Annotated[
        Path | None, option("For --numbers: JSON with x or q, k, v.", panel=VIEW, metavar="FILE")
    ] = None
    example: Annotated[str | None, option("For --numbers: words or causal.", panel=VIEW)] = None
    precision: Annotated[int, option("Digits of --numbers.", panel=VIEW)] = 3
    seed: Annotated[int, option("Seed of --numbers, --scaling.", panel=VIEW)] = 0


@dataclasses.dataclass(frozen=True)
class FormatOptions:
    """Where the answer goes, and how it is written."""

    out: Annotated[
        Path | None,
        option(
            "Draw --diagram, --sweep or --scaling into a .svg, .png or .pdf file, --animate into "
            "an .html file.",
            "--out",
            "-o",
            panel=OUT,
            metavar="FILE",
        ),
    ] = None
    json: Annotated[bool, option("Print JSON (attnviz.shapes/3).", "--json", panel=OUT)] = False
    csv: Annotated[bool, option("Print CSV.", "--csv", panel=OUT)] = False
    markdown: Annotated[bool, option("Print Markdown.", "--markdown", panel=OUT)] = False


class Asked(NamedTuple):
    """All options of a call."""

    text: str | None
    layer: LayerOptions
    run: RunOptions
    model: PresetOptions
    view: ViewOptions
    output: FormatOptions

    def subject(self) -> Layer | Model:
        """What the view is about."""
        from attnviz.features.shapes.answers.subject import Layer, Model

        if self.model.name is not None:
            return Model(**vars(self.model))
        return Layer(**vars(self.layer))

    def sizes(self) -> RunSizes:
        """What runs through it."""
        from attnviz.attention.spec import RunSizes

        return RunSizes(**vars(self.run))

    def tiny(self) -> Example:
        """The numbers to walk through."""
        from attnviz.features.shapes.answers.subject import Layer
        from attnviz.features.shapes.answers.worked import Example

        view = self.view
        return Example(self.text, Layer(**vars(self.layer)), view.input, view.example, view.seed)

    def given(self) -> list[str]:
        """The names of the options that were set to something else than their default."""
        names = [] if self.text is None else ["text"]
        for group in (self.layer, self.run, self.model, self.view, self.output):
            fields = dataclasses.fields(group)
            names += [f.name for f in fields if getattr(group, f.name) != f.default]
        return names
