"""The settings that functions share: on which model, how many processes, which texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnviz.core.heads import Mean
from attnviz.core.provenance import DEFAULT_MODEL
from attnviz.core.settings import Settings, like, setting

if TYPE_CHECKING:
    from attnviz.core.heads import Layout
    from attnviz.core.source import Source

MODEL, INPUT = "Model", "Input"

HeadsCheck = Callable[["Layout"], object]
"""Raises SelectionError for heads that a model with this layout does not have."""


@dataclass(frozen=True)
class ModelSettings(Settings, panel=MODEL):
    """Which model to run, and where."""

    model: Any = setting(
        DEFAULT_MODEL,
        "demo-gpt2, demo-bert, fresh, a model folder, or a hub id such as gpt2.",
        short="m",
        metavar="MODEL",
        common=True,
    )
    device: Any = setting(
        "auto",
        "auto, cpu, cuda, cuda:1 or mps. Or balanced or sequential, which divide the layers among "
        "all devices (needs accelerate).",
        metavar="DEVICE",
    )
    dtype: Any = setting(
        "auto",
        "auto, float32, bfloat16 (bf16) or float16 (fp16). Or 8bit or 4bit, which quantize the "
        "weights (needs bitsandbytes).",
        metavar="DTYPE",
    )

    def load(self, *, heads: HeadsCheck | None = None, **options: Any) -> Source:
        """Return the loaded model."""
        from attnviz.captures.loading import load

        if heads is not None:
            self.expect(heads)
        return load(**self.asked(), **options)

    def expect(self, heads: HeadsCheck) -> None:
        """Look whether heads are there by the model's configuration, if that tells all of them."""
        from attnviz.captures.loading import expected

        layout = expected(self.model)
        if layout is not None:
            heads(layout)

    def loading(self, **options: Any) -> Callable[[], Source]:
        """Return what loads it, also in another process."""
        from attnviz.captures.loading import load_light

        return partial(load_light, **self.asked(), **options)

    def again(self, source: Source) -> Callable[[], Source] | None:
        """Return what loads the model again in another process; None where it is in this one.

        Where this gives NumPy arrays, so does that, see :func:`attnviz.captures.loading.light`.
        """
        from attnviz.captures.loading import light, load, load_light

        if hasattr(self.model, "prepare") or getattr(source, "labels", None) is not None:
            return None
        return partial(load_light if light(source) is source else load, **self.asked())

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells this model from others."""
        from attnviz.models.cache import identity

        return identity(self.model)


@dataclass(frozen=True)
class MapSettings(Settings):
    """Which maps: of which heads, of what, with which heads ablated."""

    select: str | None = setting(
        None,
        "Heads: 4.11, L4H11, 5.*, *.3, 0-3.*, all, or a comma-separated list; enc:, dec: or cross: "
        "goes in front. All by default.",
        short="s",
        metavar="HEADS",
        common=True,
    )
    without: str | None = setting(
        None, "Ablate these heads first: 2.4, role:first; see attnviz ablate.", metavar="HEADS"
    )
    quantity: str = setting(
        "weights",
        "weights; norm, of what heads write (‖αf(x)‖); norm-residual or norm-residual-ln, of "
        "layers; linear, the coefficients of values in linear attention and Mamba-2; indexer, the "
        "scores by which sparse attention chooses keys.",
        metavar="QUANTITY",
    )


@dataclass(frozen=True)
class KeptSettings(MapSettings):
    """Which maps are kept, and what is made of them."""

    words: bool = setting(False, "Merge subwords into words: sum over keys, mean over queries.")
    mean: Mean | None = setting(
        None,
        "Average the maps of these heads: over the heads of each layer, over layers, or all. A "
        "mean hides what single heads do, and is not scored.",
    )
    why: str | None = setting(
        None,
        'Heads whose queries and keys to keep (``"4.11"``), so that ``cap.why("4.11", 7, 2)`` '
        "takes any of their weights apart.",
        command=False,
    )
    origins: bool = False  # whether also what the queries and keys of ``why`` were made of is kept


@dataclass(frozen=True)
class PartSettings(Settings):
    """Which part of the maps of one text."""

    rows: str | None = setting(
        None,
        "Only these queries: tokens such as 100-200, from 0 and with both ends, or the name of a "
        "span. Weights stay what they are, so that rows need not sum to 1.",
        metavar="TOKENS",
        common=True,
    )
    keys: str | None = setting(
        None, "Only these keys, as for {rows}.", metavar="TOKENS", common=True
    )


@dataclass(frozen=True)
class Attaching(Settings):
    """Results of other commands, to stand beside."""

    evidence: Any = setting(
        None,
        "Add results of another command on these heads (its JSON); repeatable.",
        typed=tuple[Path, ...],
    )


@dataclass(frozen=True)
class HeatmapSettings(PartSettings):
    """Which maps are pictures, and what their cells show."""

    select: str | None = like(KeptSettings, "select")
    quantity: str = like(KeptSettings, "quantity", common=True)
    mean: Mean | None = like(KeptSettings, "mean")
    tiles: Literal["max", "sum"] = setting(
        "max",
        "What a cell shows of a text of more than 2,048 tokens, which is a tile of tokens: the "
        "largest weight in it (max), or the sum over its keys as a mean over its rows.",
        command=False,
    )
