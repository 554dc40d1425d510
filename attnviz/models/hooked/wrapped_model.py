"""A transformers model that somebody else has loaded: run as it is, and left as it was.

What a pass needs, evaluation mode, frozen weights and our attention function, holds while it runs.
Before and after it the model is its owner's: it can be trained, or run with ``generate``, between
two captures, and a pass that fails leaves no trace. What others put around such a model (a compiled
module, copies for several devices, adapters, a pipeline, an encoder of sentences) is taken off, and
adapters are added to the weights while it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from attnviz.core.prompt import Generation
from attnviz.errors import ModelError, UsageError
from attnviz.models.hooked.checkpoint import (
    body_of,
    first_device,
    full_up_to,
    has_decoder,
    has_words,
    tower,
)
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.survey import survey
from attnviz.models.hooked.tokenizer import Texts

_CHOICE = "_attn_implementation"
"""What a configuration's choice of an attention function is called, and what begins with it."""


class WrappedModel(HookedModel):
    """A model in memory, on the device and in the precision that it has."""

    def __init__(self, model: Any) -> None:
        self.model, self.device = model, first_device(model)
        self.seq2seq = has_decoder(model)
        headless = model.get_output_embeddings() is None
        reason = "has no LM head" if headless else "has an LM head that is not known to be one"
        self.no_logits = "" if has_words(model) else f"{type(model).__name__} {reason}"
        self._implementation = "eager"
        with self.lock, as_it_was(model):
            self.body = model.base_model if self.no_logits else body_of(model)

    def switch(self, implementation: str) -> None:
        """Use this attention function in every pass from now on."""
        self._implementation = implementation

    def run(self, items: Sequence[Item], **options: Any) -> Mapping[str, Any]:
        """See :meth:`HookedModel.run`."""
        with self.ours():
            return super().run(items, **options)

    def write(
        self,
        item: Item,
        generation: Generation,
        tell: Callable[[int], None] | None = None,
        *,
        cache: bool = True,
    ) -> tuple[int, ...]:
        """See :meth:`HookedModel.write`."""
        with self.ours():
            return super().write(item, generation, tell, cache=cache)

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """Have the model as a pass needs it inside the ``with`` block."""
        with self.lock, as_it_was(self.model, self.body), _merged(self.model):
            self.model.eval().requires_grad_(False)
            super().switch(self._implementation)
            yield


@contextlib.contextmanager
def as_it_was(*parts: nn.Module) -> Iterator[None]:
    """Put everything about a model but its weights back when the ``with`` block ends.

    Its modes, what is trained, the choice of an attention function, and hooks: transformers adds
    some of its own the first time that it is asked for weights, and notes that in the model.
    """
    modules = list({id(module): module for part in parts for module in part.modules()}.values())
    noted = [(vars(module), set(vars(module)), module.training) for module in modules]
    hooks = [(table, dict(table)) for module in modules for table in _hooks(module)]
    parameters = [p for module in modules for p in module._parameters.values() if p is not None]
    trained = [(parameter, parameter.requires_grad) for parameter in parameters]
    configs = {id(config): config for module in modules for config in _configs(module)}
    chosen = [
        (config, {name: value for name, value in vars(config).items() if name.startswith(_CHOICE)})
        for config in configs.values()
    ]
    try:
        yield
    finally:
        for attributes, names, training in noted:
            for added in attributes.keys() - names:
                del attributes[added]
            attributes["training"] = training
        for table, saved in hooks:
            for added in table.keys() - saved.keys():
                del table[added]
        for parameter, required in trained:
            if parameter.requires_grad != required:
                parameter.requires_grad_(required)
        for config, choices in chosen:
            vars(config).update(choices)


def is_wrapper(model: object) -> bool:
    """Whether this is no module and has a transformers model inside, as a pipeline does."""
    inside = isinstance(getattr(model, "model", None), nn.Module)
    return _root(model) == "transformers" and inside and not isinstance(model, nn.Module)


def unwrapped(model: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Find the transformers model inside what others put around it, its tokenizer, what is told.

    Returns the model, or whatever is no such wrapper; the tokenizer that the wrapper has, or None.
    """
    tokenizer, notes = None, list[str]()
    while True:
        name, inner = type(model).__name__, None
        if hasattr(model, "_orig_mod"):
            inner, note = model._orig_mod, "not compiled"
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner, note = model.module, "on one device"
        elif hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
            inner, note = model.get_base_model(), _adapters(model)
        elif _root(model) == "sentence_transformers" and isinstance(model, nn.Module):
            candidates = (m for m in model.modules() if hasattr(m, "set_attn_implementation"))
            inner = next(candidates, None)
            note = "without its pooling"
            tokenizer = getattr(model, "tokenizer", None) or tokenizer
        elif is_wrapper(model):
            inner, note = model.model, "without what it does before and after"
            tokenizer = getattr(model, "tokenizer", None) or tokenizer
        if inner is None:
            return model, tokenizer, tuple(notes)
        notes.append(f"taken out of a {name}, {note}")
        model = inner


def _root(model: object) -> str:
    return type(model).__module__.partition(".")[0]


def _adapters(model: Any) -> str:
    """Return what a PEFT model adds to its base, which must be in the weights of that."""
    active = getattr(model, "active_adapters", None) or [getattr(model, "active_adapter", "")]
    for name in active if isinstance(active, list | tuple) else [active]:
        config = model.peft_config.get(name)
        if getattr(config, "is_prompt_learning", False):
            kind = getattr(config.peft_type, "value", config.peft_type)
            raise ModelError(
                f"adapter {name!r} ({kind}) puts vectors of its own before the text, for which no "
                "token stands; give the model without it"
            )
    for part in model.modules():
        if hasattr(part, "base_layer") and not (_merges(part) or hasattr(part, "modules_to_save")):
            raise ModelError(
                f"a {type(part).__name__} of this PEFT model cannot be added to its weights; merge "
                "it (merge_and_unload) and give that"
            )
    return f"with {', '.join(map(repr, active))} added to its weights"


def _merges(part: Any) -> bool:
    """Whether a layer of an adapter can be added to the weights of the layer inside."""
    return callable(getattr(part, "merge", None)) and hasattr(part, "merged_adapters")


@contextlib.contextmanager
def _merged(model: nn.Module) -> Iterator[None]:
    """Add the adapters that are active to the weights inside the ``with`` block.

    The weights' own tensors are kept aside and put back, so that not a bit of them changes.
    """
    layers: list[Any] = [part for part in model.modules() if _merges(part)]
    layers = [layer for layer in layers if not layer.merged_adapters]
    if any(weight.is_meta for layer in layers for weight in layer.base_layer.parameters()):
        raise ModelError(
            "weights with an adapter are on disk, where it cannot be added to them; call "
            "merge_and_unload() while the model is in memory, and save that"
        )
    saved = [
        [(parameter, parameter.data) for parameter in layer.base_layer.parameters()]
        for layer in layers
    ]
    merged = [list(layer.merged_adapters) for layer in layers]
    try:
        for layer in layers:
            if not getattr(layer, "disable_adapters", False):
                layer.merge(safe_merge=True)
        yield
    finally:
        for layer, parameters, adapters in zip(layers, saved, merged, strict=True):
            for parameter, data in parameters:
                parameter.data = data
            layer.merged_adapters[:] = adapters


def borrow(model: Any, tokenizer: Any = None) -> Hooked:
    """Take a loaded transformers model as a source of attention."""
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    model, reader, notes = unwrapped(model)
    tokenizer = reader if tokenizer is None else tokenizer
    if not isinstance(model, PreTrainedModel):
        raise UsageError(
            "{model} takes a transformers PreTrainedModel, not {}; give the one that is inside, or "
            "watch the module while it runs with attnviz.watch",
            type(model).__name__,
            model=...,
        )
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise UsageError(
            "{tokenizer} takes a transformers tokenizer, not {}",
            type(tokenizer).__name__,
            tokenizer=...,
        )
    name = str(model.config.name_or_path or type(model).__name__)
    if any(x.is_meta for x in model.parameters()) and not getattr(model, "hf_device_map", {}):
        raise ModelError(f"{name} has no weights in memory (device meta); load them first")
    part, _ = tower(model.config, "text")
    parts = [m for m in model.modules() if isinstance(m, PreTrainedModel) and m is not model]
    part_model = next((m for m in parts if type(m.config) is type(part)), model)
    if part is not model.config and part_model is not model:
        notes = (*notes, f"the tower of a {type(model).__name__} that reads text")
        model = part_model
    blocks = any("BlockSparse" in type(part).__name__ for part in model.modules())
    limit = full_up_to(model.config, encoder_only=not has_decoder(model))
    if blocks and limit is not None:
        raise ModelError(
            f"{name} attends to blocks of keys in long texts (attention_type 'block_sparse'), and "
            "to all keys in short ones; first choose model.config.attention_type = "
            '"original_full" and model.base_model.set_attention_type("original_full")'
        )
    network = WrappedModel(model)
    if getattr(model.config, "attention_type", None) != "block_sparse":
        network.full_up_to = limit
    if network.reads and "text" not in network.reads:
        raise ModelError(
            f"{name} reads {network.reads[0]}, and only models of text are taken from memory; load "
            "it by its name or folder, where its processor is"
        )
    texts = Texts(tokenizer, name, "it was given without its tokenizer")
    reason = "; ".join(("a model in memory", *notes))
    return Hooked(network, survey(network, name), texts, name, reason)


def _hooks(module: nn.Module) -> list[dict[Any, Any]]:
    """Return the tables of hooks of a module."""
    return [
        value
        for name, value in vars(module).items()
        if "_hooks" in name and isinstance(value, dict)
    ]


def _configs(module: Any) -> Iterator[Any]:
    """Yield the configurations of a model and of its parts."""
    from transformers import PretrainedConfig

    config = getattr(module, "config", None)
    if isinstance(config, PretrainedConfig):
        yield config
        for name in config.sub_configs:
            yield from (part for part in [getattr(config, name, None)] if part is not None)
