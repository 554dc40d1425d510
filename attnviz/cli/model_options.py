"""The options that say on which model: one by its name, or the sizes of a fresh layer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import changed
from attnviz.cli.defaults import SAID, default_model
from attnviz.core.settings import like, setting
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.models.fresh_config import FreshConfig

FRESH = "Fresh layer (--model fresh)"


@dataclasses.dataclass(frozen=True)
class FreshOptions(ModelSettings, panel=FRESH):
    """Which model; the sizes of a fresh layer may be said beside it."""

    model: str | None = like(
        ModelSettings,
        "model",
        default=None,
        help=f"demo-gpt2, demo-bert, fresh, a model folder, or a hub id such as gpt2. {SAID}",
    )
    kind: str | None = setting(None, "mha, gqa, mqa, mla or cross.", metavar="KIND", shown="mha")
    d_model: int | None = setting(None, "Model width D.", metavar="D", shown="128")
    heads: int | None = setting(None, "Query heads H.", metavar="H", shown="8")
    kv_heads: int | None = setting(None, "Key/value heads G, for gqa.", metavar="G")
    layers: int | None = setting(None, "Stacked layers.", shown="1")
    causal: bool | None = setting(
        None, "Let a query see only keys up to its own position.", shown="no-causal"
    )
    bias: bool | None = setting(None, "Biases in the projections.", shown="bias")

    def choose(self, *, pair: str | None = None, seed: int | None = None) -> str | FreshConfig:
        """The model to load: a name, or the options of a fresh layer."""
        names = [field.name for field in dataclasses.fields(FreshOptions)]
        own = [field.name for field in dataclasses.fields(ModelSettings)]
        flags = changed(self, but=(*own, "seed"))
        if self.model is None and not flags:
            return default_model()
        if self.model != "fresh" and flags:
            shape = f"{', '.join(flags)} shape{'s' if len(flags) == 1 else ''} a fresh layer"
            if self.model is not None:
                raise UsageError(f"{shape}; leave out --model {self.model}")
            choice = "; heads of a model are chosen by --select" if self.heads is not None else ""
            raise UsageError(f"{shape}; add --model fresh{choice}")
        if self.model not in (None, "fresh"):
            return str(self.model)
        from attnviz.models.fresh_config import FreshConfig

        sizes = {name: getattr(self, name) for name in names if name not in own} | {"seed": seed}
        fresh = {name: value for name, value in sizes.items() if value is not None}
        if pair is not None:
            fresh.setdefault("kind", "cross")
        return FreshConfig(**fresh)

    def asked(self, *, pair: str | None = None, seed: int | None = None) -> dict[str, Any]:
        """The settings of the model, as functions take them; see :meth:`choose`."""
        return {
            "model": self.choose(pair=pair, seed=seed),
            "device": self.device,
            "dtype": self.dtype,
        }


@dataclasses.dataclass(frozen=True)
class ModelOptions(FreshOptions):
    """The same with a seed, for commands where nothing else has one."""

    seed: int | None = setting(None, "Seed of all that is drawn at random.", shown="0")

    def choose(self, *, pair: str | None = None, seed: int | None = None) -> str | FreshConfig:
        """See :meth:`FreshOptions.choose`; the seed is its own."""
        return super().choose(pair=pair, seed=self.seed if seed is None else seed)
