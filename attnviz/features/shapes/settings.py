"""What ``attnviz shapes`` is about, what it shows of it, and where that goes.

A layer or a model, numbers to walk through, the view and the output; what runs through a layer is
declared in :mod:`attnviz.attention.spec`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention import spec as specs
from attnviz.core.settings import Seeded, Settings, like, setting
from attnviz.errors import InputError, ModelError, Setting, SizeError, UsageError, system_errors
from attnviz.files import open_regular

if TYPE_CHECKING:
    from attnviz.features.shapes.tiny import TinyInput
    from attnviz.models.configs.model import ModelSpec, Preset

VIEWS = ("diagram", "numbers", "animation", "scaling", "compare", "verify", "presets")
DIGITS = 3
_DIGITS = re.compile("[0-9]|1[0-2]")
VARIANTS = ("-1e9", "after", "dropout", "overflow")
"""Ways of the numeric walk that go wrong, or that training takes: see ``worked.compute``."""
VIEW, OUTPUT = "Views (the walk by default)", "Output"


@dataclass(frozen=True)
class ViewSettings(Settings, panel=VIEW):
    """Which view, at most one, and what some of them take."""

    show: str | None = setting(
        None,
        "diagram, numbers, animation, scaling, compare, verify or presets. Boxes and arrows; a "
        "tiny layer in numbers (numbers:5 to so many digits; numbers:-1e9, :after, :dropout and "
        ":overflow show what else is done there); the same as an animation; what 1/√d "
        "is for; MHA, GQA, MQA and MLA side by side (compare:80GB says what fits beside the "
        "weights); the real layer against every step; a list of published models. Or costs along "
        "one size, such as seq=128..131072, also kv-heads=1..H, tp=1..8 (GPUs), d-model, heads, "
        "context-length; "
        ":x4 or :+512 sets the step.",
        metavar="VIEW",
        common=True,
    )
    explain: bool = setting(False, "Explain every step of the walk.", common=True)

    @property
    def view(self) -> str | None:
        """The view without what is said of it; a sweep for a size that is varied."""
        text = self.show or ""
        return "sweep" if "=" in text else text.partition(":")[0] or None

    @property
    def detail(self) -> str | None:
        """What is said of the view: the size and its range, memory, or digits."""
        text = self.show or ""
        return text if "=" in text else text.partition(":")[2] or None

    @property
    def precision(self) -> int:
        """Digits of numbers."""
        return DIGITS if self.detail is None or self.variant else int(self.detail)

    @property
    def variant(self) -> str:
        """What is done otherwise in the numeric walk; empty for nothing."""
        return self.detail if self.view == "numbers" and self.detail in VARIANTS else ""

    def check(self) -> None:
        """Raise UsageError for a view that there is not, or not in such a way."""
        if self.view is not None and self.view not in (*VIEWS, "sweep"):
            raise UsageError(
                "{show} takes {}, or a size such as seq=1..8, not {!r}",
                ", ".join(VIEWS),
                self.view[:40],
                show=...,
            )
        if self.detail is None:
            return
        if self.view == "numbers" and not self.variant and not _DIGITS.fullmatch(self.detail):
            raise UsageError(
                "{show} must be numbers:0 to numbers:12, or numbers: with {}",
                " or ".join(VARIANTS),
                show=self.show,
            )
        if self.view not in ("numbers", "compare", "sweep"):
            raise UsageError("{show} takes nothing more; write {}", self.view, show=self.show)


@dataclass(frozen=True)
class ShapesOutput(Settings, panel=OUTPUT):
    """Where an answer goes, and how it is written."""

    out: tuple[Path, ...] | None = setting(
        None,
        "Draw what {show} asks for into a file. A diagram, scaling or a sweep into .svg, .png or "
        ".pdf, an animation into .html; repeatable.",
        short="o",
        common=True,
    )
    json: bool = setting(False, "Print JSON.", common=True)
    csv: bool = setting(False, "Print CSV.", common=True)
    markdown: bool = setting(False, "Print Markdown.")


DEFAULT_D_MODEL, DEFAULT_HEADS = 512, 8

_PAIR = re.compile(r"-?\d{1,12}|\d{0,12}\+\d{1,12}")
LAYER, MODEL, NUMBERS = "The layer", "A published or local model", "Layers in numbers"
EXAMPLES = ("words", "causal", "masked")
_OF_TINY = ("d_model", "heads", "kv_heads", "kind", "causal", "sliding_window")


def _pair(widths: int | str | None) -> tuple[int | None, int | None]:
    """Read a width, and a second one behind a plus: MLA's rotary keys, or values."""
    first, _, second = ("" if widths is None else str(widths)).partition("+")
    return int(first) if first else None, int(second) if second else None


@dataclass(frozen=True)
class Layer(Settings, panel=LAYER):
    """A fresh layer; a size of None takes its usual value."""

    d_model: int | None = setting(
        None, "D, the model width.", metavar="D", shown="512", common=True
    )
    heads: int | None = setting(None, "H query heads.", metavar="H", shown="8", common=True)
    kv_heads: int | None = setting(None, "G key/value heads.", metavar="G", shown="H", common=True)
    head_dim: int | str | None = setting(
        None,
        "d of one head, or with the width of its values: 64+32.",
        metavar="d[+dᵥ]",
        typed=str,
        shown="D / H",
    )
    kind: specs.Kind | None = setting(
        None, "mha, gqa, mqa, mla or cross.", metavar="KIND", shown="by H and G", common=True
    )
    latent: int | str | None = setting(
        None,
        "r of MLA, or with its rotary width: 512+64.",
        metavar="R[+N]",
        typed=str,
        shown="4·d+d/2",
    )
    bias: bool | None = setting(None, "Biases in the projections.", shown="bias")
    causal: bool | None = setting(None, "Causal mask: no key after the query.", shown="no-causal")
    sliding_window: int | None = setting(
        None, "Positions that a query sees, its own included.", shown="all"
    )
    layers: int | None = setting(None, "How many such layers.", shown="1")

    def spec(self) -> specs.AttentionSpec:
        """Return the layer, every size filled in."""
        sizes = specs.check_sizes(
            DEFAULT_D_MODEL if self.d_model is None else self.d_model,
            DEFAULT_HEADS if self.heads is None else self.heads,
            kind=self._kind(),
            kv_heads=self.kv_heads,
            head_dim=_pair(self.head_dim)[0],
            latent=_pair(self.latent)[0],
            rope_dim=_pair(self.latent)[1],
        )
        bias, causal = self.bias is not False, bool(self.causal)
        spec = specs.spec_of(sizes, bias=bias, causal=causal, window=self.sliding_window)
        value_dim = _pair(self.head_dim)[1]
        if value_dim is not None and not 1 <= value_dim <= specs.MAX_SIZE:
            raise SizeError(
                "the width of values must be 1 to {:,}, got {}", specs.MAX_SIZE, value_dim
            )
        return spec if value_dim is None else replace(spec, value_dim=value_dim)

    def check(self) -> None:
        """Raise UsageError for widths that are no number or two."""
        for name, widths in (("latent", self.latent), ("head_dim", self.head_dim)):
            if widths is not None and _PAIR.fullmatch(str(widths)) is None:
                raise UsageError(
                    "{} takes a number, or two such as 512+64, not {!r}",
                    Setting(name),
                    str(widths)[:40],
                )

    def _kind(self) -> specs.Kind:
        if self.kind is not None:
            return self.kind
        heads = DEFAULT_HEADS if self.heads is None else self.heads
        if self.kv_heads in (None, heads):
            return "mha"
        return "mqa" if self.kv_heads == 1 else "gqa"

    def count(self) -> int:
        """How many such layers; UsageError where that is no number of layers."""
        layers = 1 if self.layers is None else self.layers
        if not 1 <= layers <= specs.MAX_LAYERS:
            raise UsageError(
                "{layers} must be 1 to {:,}, got {:,}", specs.MAX_LAYERS, layers, layers=...
            )
        return layers


@dataclass(frozen=True)
class Model(Settings):
    """A model: a published one by name, or any by its configuration."""

    model: str | None = setting(
        None,
        "A published model such as llama3-70b, a folder, config.json or hub id. Its configuration "
        "alone is read; {show} presets lists the published ones.",
        short="m",
        panel=MODEL,
        metavar="MODEL",
        common=True,
    )

    @property
    def name(self) -> str:
        """What the user called it."""
        return str(self.model)

    @property
    def published(self) -> Preset | None:
        """The published model of that name; a folder of the same name comes first."""
        from attnviz.models.configs.model import presets

        is_path = Path(self.name).expanduser().exists()
        return None if is_path else presets().get(self.name.strip().lower())

    def read(self) -> ModelSpec:
        """Its attention, layer by layer; no weights are read."""
        if self.model is None:
            raise UsageError("no model named; give {model}", model=...)
        if self.published is not None:
            return self.published.model
        from difflib import get_close_matches

        from attnviz.models.configs.model import presets, read_config

        is_path = Path(self.name).expanduser().exists()
        try:
            config, folder = self.located()
        except ModelError as error:
            near = () if is_path else get_close_matches(self.name.lower(), presets(), 3, 0.4)
            if not near:
                raise
            raise ModelError("{}; did you mean {}?", error.message, " or ".join(near)) from None
        return read_config(config, folder.resolve().name if is_path else self.name)

    def located(self) -> tuple[Mapping[str, Any], Path]:
        """Find the configuration of one that is not published, and its folder."""
        from attnviz.models.folder import locate_config

        return locate_config(self.name)

    def towers(self) -> dict[str, ModelSpec]:
        """Return the attention of each of its towers, by what it reads; empty where it has one."""
        from attnviz.models.configs.model import read_towers

        return {} if self.published is not None else read_towers(self.located()[0], self.name)


Subject = Layer | Model


def spec_of_subject(subject: Subject) -> tuple[specs.AttentionSpec, ModelSpec | None]:
    """Get the layer in question: a model's main one where there is a model, which comes with it."""
    if isinstance(subject, Layer):
        return subject.spec(), None
    model = subject.read()
    return model.main.spec, model


def in_dtype(run: specs.RunSizes, model: ModelSpec | None) -> specs.RunSizes:
    """Return the run in the dtype that the model's config names, where nobody chose one."""
    if model is None or model.dtype is None or run.chosen is not None:
        return run
    return replace(run, dtype=f"{model.dtype}{run.dtype or ''}")


@dataclass(frozen=True)
class Example(Settings):
    """Numbers to walk through: a text, a file, or a bundled example (``cat sat on mat``)."""

    text: str | None = setting(
        None,
        "Up to 32 words for {show} numbers and {show} animation: 'cat sat on mat'.",
        argument=True,
    )
    layer: Layer = Layer()  # sizes of the tiny layer
    file: str | Path | None = setting(
        None,
        "An example that comes with attnviz: words, causal or masked; or a JSON file with x or "
        "q, k, v "
        "(docs/shapes.md).",
        panel=NUMBERS,
        metavar="words|causal|masked|FILE",
        typed=str,
    )
    seed: int = like(Seeded, "seed", panel=NUMBERS)

    def check(self) -> None:
        """Raise UsageError for two inputs."""
        if self.text is not None and self.file is not None:
            raise UsageError("a text and {file} are two inputs; give one", file=...)

    def read(self) -> TinyInput:
        """Return the tiny input."""
        from attnviz.features.shapes import tiny

        options = [name for name in _OF_TINY if getattr(self.layer, name) is not None]
        options += ["seed"] if self.seed else []
        if self.file not in (None, *EXAMPLES):
            if options:
                raise UsageError(
                    "{} belongs in the file {}; leave it out here", Setting(options[0]), self.file
                )
            path = Path(str(self.file))
            with system_errors(InputError, f"cannot read {path}"):
                if path.is_dir():
                    raise InputError("{} is a folder; {file} takes a JSON file", path, file=...)
                with open_regular(path) as file:
                    data = file.read(tiny.MAX_BYTES + 1)
            return tiny.read_json(data, str(self.file))
        if self.file in ("causal", "masked"):
            if options and (options[0] != "seed" or self.file == "causal"):
                raise UsageError(
                    "{} is fixed by the example {!r}; leave it out", Setting(options[0]), self.file
                )
            return tiny.bundled(str(self.file))
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
                    "from an {file} file with a context)",
                    kind=layer.kind,
                    file=...,
                )
            width = 4 if layer.d_model is None else layer.d_model
            kv_heads = specs.check_sizes(width, heads, kind=layer.kind, kv_heads=kv_heads).kv_heads
        return tiny.from_text(
            " ".join(tiny.EMBEDDINGS) if self.text is None else self.text,
            d_model=layer.d_model,
            heads=heads,
            kv_heads=kv_heads,
            causal=bool(layer.causal),
            window=layer.sliding_window,
            seed=self.seed,
        )
