"""What a model's folder holds, and what attnviz will do with it; no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnviz.core.provenance import CacheEntry, ModelEntry
from attnviz.core.settings import Settings, setting
from attnviz.drawing.renderable import Renderable


@dataclass(frozen=True, slots=True)
class AlikeLayers:
    """Layers of one kind.

    Attributes:
        label: ``decoder self-attention``, ``window 4,096``.
        layers: their numbers, from 0.
        heads, kv_heads: query heads of each; ``kv_heads`` key/value heads.
        head_dim: width of a head.
        causal: whether a query sees only keys up to its own position; None where the configuration
            does not tell.
        sliding_window: how many positions a query sees; None for all.
        sink: whether softmax may put weight on a learned sink that is no key.
    """

    label: str
    layers: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool | None
    sliding_window: int | None = None
    sink: bool = False


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that a model may be asked for.

    Attributes:
        name: ``logits``, ``chat``, ...
        works: None where only loading tells.
        why: what it depends on, or why not; empty where there is nothing to add.
    """

    name: str
    works: bool | None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Models(Renderable):
    """The models on this machine, usable or with the reason why not; sizes in bytes.

    Attributes:
        models: by name.
        cached: what was measured of models and is used again, see :mod:`attnviz.models.cache`; what
            was used last first.
        cache_folder: of that; empty where nothing is cached.
        notes: what to know.
    """

    schema: ClassVar[str] = "attnviz.models/1"
    command: ClassVar[str] = "models"

    models: tuple[ModelEntry, ...]
    cached: tuple[CacheEntry, ...] = ()
    cache_folder: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A family of transformers, as a tiny random model of it was read.

    Attributes:
        family: ``model_type`` of its configurations.
        maps: the backend, and the largest difference of a weight from eager attention; or why it
            gives no maps.
        heads: of the tiny model; None without maps.
        logits: how far the sum of all parts was from the logit, or why there is no sum.
        ablation: the largest difference of a logit from the one without a head's columns of W_O.
        linear: how far a linear layer's coefficients times its values were from its output; empty
            without such layers.
    """

    family: str
    maps: str
    heads: int | None = None
    logits: str = ""
    ablation: str = ""
    linear: str = ""


@dataclass(frozen=True, kw_only=True)
class Families(Renderable):
    """How far the decoder-only families of transformers work.

    Attributes:
        transformers: the version that they were measured with.
        families: by name.
        notes: what to know.
    """

    schema: ClassVar[str] = "attnviz.families/1"
    command: ClassVar[str] = "models"

    transformers: str
    families: tuple[Family, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelCard(Renderable):
    """A model, from its configuration and the headers of its files.

    Attributes:
        name: what the user calls it.
        family: ``model_type`` of its configuration.
        architectures: the classes that it names.
        groups: its attention layers, like ones together; of the tower that reads text.
        idle: layers without attention.
        width: of the residual stream.
        max_tokens: positions that the configuration names; None where it names none.
        parameters, tensors: numbers in its files; ``tensors`` how many tensors they are in.
        stored: bytes by the precision in which they are stored.
        memory: bytes of the weights by the precision in which they may be run.
        files: of weights.
        backend: which will run it; empty where none can.
        reason: why that one.
        tokenizer: whether there is one.
        chat_template: whether there is one.
        abilities: see :class:`Ability`.
        notes: full sentences on what is not known.
    """

    schema: ClassVar[str] = "attnviz.model/1"
    command: ClassVar[str] = "models"

    name: str
    family: str
    architectures: tuple[str, ...]
    groups: tuple[AlikeLayers, ...]
    idle: int
    width: int | None
    max_tokens: int | None
    parameters: int
    tensors: int
    stored: dict[str, int]
    memory: dict[str, int]
    files: tuple[str, ...]
    backend: str
    reason: str
    tokenizer: bool
    chat_template: bool
    abilities: tuple[Ability, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelsSettings(Settings):
    """How much may be kept of what was measured."""

    max_mb: float | None = setting(
        None,
        "Of what is kept of earlier measurements remove what was used longest ago, until the rest "
        "takes at most so many megabytes; 0 removes all.",
        metavar="MB",
        least=0,
    )
