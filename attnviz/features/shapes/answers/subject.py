"""What a view is about: a fresh layer of some sizes, or a model known by its configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.attention.sizes import MAX_LAYERS, Kind, check_sizes
from attnviz.attention.spec import AttentionSpec, RunSizes, spec_of
from attnviz.core.settings import Settings, setting
from attnviz.errors import ModelError, UsageError

if TYPE_CHECKING:
    from attnviz.models.configs.model import ModelSpec
    from attnviz.models.configs.presets import Preset

DEFAULT_D_MODEL, DEFAULT_HEADS = 512, 8

_LATENT = re.compile(r"-?\d{1,12}|\d{0,12}\+\d{1,12}")
LAYER, MODEL = "The layer", "A published or local model"


@dataclass(frozen=True)
class Layer(Settings, panel=LAYER):
    """A fresh layer; a size of None takes its usual value."""

    d_model: int | None = setting(
        None, "D, the model width.", metavar="D", shown="512", common=True
    )
    heads: int | None = setting(None, "H query heads.", metavar="H", shown="8", common=True)
    kv_heads: int | None = setting(None, "G key/value heads.", metavar="G", shown="H", common=True)
    head_dim: int | None = setting(None, "d of one head.", metavar="d", shown="D / H")
    kind: Kind | None = setting(
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

    def spec(self) -> AttentionSpec:
        """The layer, every size filled in.

        Raises:
            SizeError: sizes that do not fit together. UsageError: an unknown kind.
        """
        sizes = check_sizes(
            DEFAULT_D_MODEL if self.d_model is None else self.d_model,
            DEFAULT_HEADS if self.heads is None else self.heads,
            kind=self._kind(),
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            latent=self._latent[0],
            rope_dim=self._latent[1],
        )
        bias, causal = self.bias is not False, bool(self.causal)
        return spec_of(sizes, bias=bias, causal=causal, window=self.sliding_window)

    def check(self) -> None:
        """Raise UsageError for a latent that is no number or two."""
        if self.latent is not None and _LATENT.fullmatch(str(self.latent)) is None:
            raise UsageError(
                "{latent} takes a number, or two such as 512+64, not {!r}",
                str(self.latent)[:40],
                latent=...,
            )

    @property
    def _latent(self) -> tuple[int | None, int | None]:
        """The width of MLA's latent, and of its rotary keys."""
        written = "" if self.latent is None else str(self.latent)
        width, _, rotary = written.partition("+")
        return int(width) if width else None, int(rotary) if rotary else None

    def _kind(self) -> Kind:
        if self.kind is not None:
            return self.kind
        heads = DEFAULT_HEADS if self.heads is None else self.heads
        if self.kv_heads in (None, heads):
            return "mha"
        return "mqa" if self.kv_heads == 1 else "gqa"

    def count(self) -> int:
        """How many such layers; UsageError where that is no number of layers."""
        layers = 1 if self.layers is None else self.layers
        if not 1 <= layers <= MAX_LAYERS:
            raise UsageError("{layers} must be 1 to {:,}, got {:,}", MAX_LAYERS, layers, layers=...)
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
        from attnviz.models.configs.presets import presets

        there = Path(self.name).expanduser().exists()
        return None if there else presets().get(self.name.strip().lower())

    def read(self) -> ModelSpec:
        """Its attention, layer by layer; no weights are read.

        Raises:
            UsageError: no name.
            ModelError: a configuration that is not there or cannot be read.
        """
        if self.model is None:
            raise UsageError("no model named; give {model}", model=...)
        if self.published is not None:
            return self.published.model
        from difflib import get_close_matches

        from attnviz.models.configs.model import read_config
        from attnviz.models.configs.presets import presets
        from attnviz.models.folder import locate_config

        there = Path(self.name).expanduser().exists()
        try:
            config, folder = locate_config(self.name)
        except ModelError as error:
            near = () if there else get_close_matches(self.name.lower(), presets(), 3, 0.4)
            if not near:
                raise
            raise ModelError("{}; did you mean {}?", error.message, " or ".join(near)) from None
        return read_config(config, folder.resolve().name if there else self.name)

    def towers(self) -> dict[str, ModelSpec]:
        """The attention of each of its towers, by what it reads; empty where it has one.

        Raises:
            ModelError: as for :meth:`read`.
        """
        if self.model is None or self.published is not None:
            return {}
        from attnviz.models.configs.model import read_towers
        from attnviz.models.folder import locate_config

        return read_towers(locate_config(self.name)[0], self.name)


Subject = Layer | Model


def spec_of_subject(subject: Subject) -> tuple[AttentionSpec, ModelSpec | None]:
    """The layer in question: a model's main one where there is a model, which comes with it."""
    if isinstance(subject, Layer):
        return subject.spec(), None
    model = subject.read()
    return model.main.spec, model


def in_dtype(run: RunSizes, model: ModelSpec | None) -> RunSizes:
    """The run in the dtype that the model's config names, where nobody chose one."""
    if model is None or model.dtype is None or run.chosen is not None:
        return run
    return replace(run, dtype=f"{model.dtype}{run.dtype or ''}")
