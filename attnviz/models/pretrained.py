"""A trained model from its name: which backend is taken, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from attnviz.core.provenance import RANDOM, called
from attnviz.core.source import Source
from attnviz.errors import ModelError, UsageError
from attnviz.models import native
from attnviz.models.configs.keys import LAYER_KEYS
from attnviz.models.controls import Control, Scale
from attnviz.models.device import PLAIN, Placement, resolve, torch_dtype
from attnviz.models.folder import Located, locate

if TYPE_CHECKING:
    from attnviz.models.hooked import Hooked
    from attnviz.models.native import Native

Choice = Literal["auto", "native", "hooked"]

Reads = Literal["text", "image"]

_MANY_LAYERS = 1000
"""No published model has as many."""


def load(
    model: str | Located,
    *,
    device: str = "auto",
    dtype: str = "auto",
    backend: Choice = "auto",
    untrained: int | None = None,
    scale: Scale = "default",
    reads: Reads = "text",
) -> Source:
    """Load a model: by the native backend if that knows it, else by the hooks."""
    if backend not in ("auto", "native", "hooked"):
        raise UsageError(f"unknown backend {backend!r}; choose auto, native or hooked")
    placement = Placement.of(device, dtype)
    placement.check()
    device, dtype = placement.rest(device, dtype)
    resolve("cpu" if str(device) == "auto" else device, dtype)  # before the hub is asked
    if not placement.plain:
        if untrained is not None or backend == "native":
            raise UsageError("{device} and {dtype} go with trained weights and the hooked backend",
                             device=placement.device_map or "auto",
                             dtype=placement.load_in or "auto")  # fmt: skip
        backend = "hooked"
    located = locate(model) if isinstance(model, str) else model
    numbers, small = located.precision, placement.plain and backend != "hooked"
    if small and native.is_small(located):  # over before a GPU is ready, and torch imported
        device = "cpu" if device == "auto" else device
        numbers = "float32" if numbers == "float16" else numbers
    device_name, precision = resolve(device, dtype, numbers)
    if untrained is None:
        return _load(located, device_name, precision, backend, None, reads, placement)
    control = Control(untrained, scale)
    name = f"{called(located.name)}, {control.title}"
    source = _load(replace(located, name=name), device_name, precision, backend, control, reads)
    exactness = f"{RANDOM}; {source.info.exactness}"
    source.info = replace(source.info, exactness=exactness)
    return source


def _load(
    located: Located,
    device_name: str,
    precision: str,
    backend: Choice,
    control: Control | None,
    reads: Reads,
    placement: Placement = PLAIN,
) -> Native | Hooked:
    reason = ""
    if located.adapter is not None:
        reason = f"{called(str(located.folder))} with an adapter added to its weights"
        if backend == "native":
            raise ModelError(
                f"{located.name}: the native backend adds no adapter; leave it to attnviz"
            )
        backend = "hooked"
    if backend != "hooked":
        try:
            return native.load(located, device_name, precision, control)
        except native.Unsupported as error:
            reason = f"not the native backend: {error}"
    if backend == "native":
        raise ModelError(f"{located.name}: {reason}; leave the backend to attnviz")
    _refuse(located)

    import torch

    from attnviz.models import hooked

    device, dtype = torch.device(device_name), torch_dtype(precision)
    return hooked.load(
        located.folder, located.name, device, dtype, reason, control, reads, placement,
        located.adapter,
    )  # fmt: skip


def foresee(located: Located) -> tuple[str | None, str]:
    """Which backend :func:`load` takes, and why, without a weight.

    Returns None where only loading tells.
    """
    try:
        native.config.read(located.config)
        return "native", "attnviz's own forward pass knows its family and its settings"
    except native.Unsupported as error:
        reason = f"not the native backend: {error}"
    if located.weights:
        _refuse(located)
    else:
        _refuse_foreign_code(located)
    from attnviz.models import hooked

    backend = hooked.foresee(located.folder, located.name, complete=bool(located.weights))
    reasons = {
        "eager": f"{located.config['model_type']} layers do not ask for an attention function",
        "hooked": "eager if its weights are not those of the hooks, when it is loaded",
        None: "hooked or eager is told by loading alone",
    }
    return backend, f"{reason}; {reasons[backend]}"


def _refuse(located: Located) -> None:
    """Refuse what transformers would load and not run as it was trained."""
    _refuse_foreign_code(located)
    _refuse_dropped_positions(located)
    _refuse_made_up_layers(located)


def _refuse_foreign_code(located: Located) -> None:
    """Refuse models whose classes come with them, since code from a hub is never run.

    A configuration with ``auto_map`` is fine once transformers has the architecture itself.
    """
    config: Mapping[str, Any] = located.config
    if not config.get("auto_map"):
        return
    import transformers

    named = config.get("architectures") or []
    available = all(isinstance(name, str) and hasattr(transformers, name) for name in named)
    if config["model_type"] not in transformers.CONFIG_MAPPING or not available:
        classes = ", ".join(map(str, named)) or config["model_type"]
        raise ModelError(
            f"{located.name} needs code that comes with it ({classes}), which attnviz never runs; "
            "use a model whose architecture is part of transformers"
        )


def _refuse_dropped_positions(located: Located) -> None:
    """Refuse relative positions where transformers ignores them.

    Version 5 dropped them from BERT and its relatives, and loads such a model as if it had absolute
    positions: other attention than the model's, without a word.
    """
    positions = located.config.get("position_embedding_type")
    if positions in (None, "absolute"):
        return
    import transformers

    family = located.config["model_type"]
    supported = family in transformers.CONFIG_MAPPING
    if supported and not hasattr(transformers.CONFIG_MAPPING[family](), "position_embedding_type"):
        raise ModelError(
            f"{located.name} has {positions} positions, which transformers "
            f"{transformers.__version__} ignores in {family} models; transformers 4 computes them"
        )


def _refuse_made_up_layers(located: Located) -> None:
    """Refuse more layers than there are weights for: building a million takes all memory.

    A thousand are built all the same, since layers may share their weights.
    """
    layers = max(_depths(located.config), default=0)
    if layers > max(_MANY_LAYERS, located.tensors):
        raise ModelError(
            f"{located.name}: its config.json says {layers:,} layers, its weights are "
            f"{located.tensors:,} tensors; the two files belong to different models"
        )


def _depths(config: Mapping[str, Any]) -> Iterator[int]:
    """Every number of layers in a configuration, those of its parts too."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _depths(value)
        elif name in LAYER_KEYS and isinstance(value, int):
            yield value
