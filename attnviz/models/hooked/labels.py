"""Label heads of fine-tuned classifiers: found in a pass, proved by what they give.

A sequence or token classification head is a linear layer on the final state of one token, or a
linear layer, an activation and a linear layer (a pooler, as BERT, RoBERTa and DistilBERT have it).
Modules are not known by name: which linear layer gave the logits, what it read, and of which
token's final state that was made, is seen in passes of texts of two lengths. The head then works
position by position, as an LM head does, with labels in place of words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.core.labels import Labels, Place
from attnviz.core.weights import HeadLayers
from attnviz.errors import ModelError
from attnviz.models.device import torch_dtype
from attnviz.models.folder import Located, locate
from attnviz.models.hooked.checkpoint import body_of, load_classifier
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.survey import sample, survey
from attnviz.models.hooked.tokenizer import load_texts
from attnviz.models.hooked.trace import ModuleCall, calls_of, close
from attnviz.models.hooked.wrapped_model import WrappedModel

_ACTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": F.gelu,
    "tanh-gelu": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
"""Activations that poolers have, all 0 at 0."""


@dataclass(frozen=True)
class LabelHead:
    """From final states [..., D] to the logits of labels [..., K]."""

    table: Tensor  # [K, D'], of the last linear layer
    bias: Tensor | None  # [K], or None
    labels: Labels  # what they are of
    layers: HeadLayers | None = None  # the pooler before it; None where there is none
    act: str = ""  # the name of its activation

    def __call__(self, final: Tensor) -> Tensor:
        """Return the logits as if each position were the one that is read."""
        if self.layers is not None:
            final = self.layers.act(F.linear(final, self.layers.weight, self.layers.bias))
        return F.linear(final, self.table, self.bias)


class _Labelled(HookedModel):
    """A classifier whose logits are those of labels, at every position."""

    labels: LabelHead  # its head

    def run(
        self, items: Sequence[Item], *, logits: bool = False, **extra: Any
    ) -> Mapping[str, Any]:
        """See :meth:`HookedModel.run`."""
        output = super().run(items, logits=False, **extra)
        if not logits:
            return output
        return {**output, "logits": self.labels(output["last_hidden_state"])}

    def classify(self, item: Item) -> Mapping[str, Any]:
        """Return the whole model's own output, with the body's ``last_hidden_state``."""
        return super().run([item], logits=True)


class _WrappedClassifier(_Labelled, WrappedModel):
    """The same of a model in memory."""


class LabelSource(Hooked):
    """A fine-tuned classifier as a source whose logits are those of labels."""

    _network: _Labelled

    @property
    def labels(self) -> Labels:
        """The labels, and where they are read."""
        return self._network.labels.labels


_KNOWN: WeakKeyDictionary[Any, LabelSource] = WeakKeyDictionary()
"""Of sources, those of their labels."""


def labelled(source: Any) -> LabelSource:
    """Return the source of a classifier's labels, loaded or borrowed when it is first asked for."""
    if isinstance(source, LabelSource):
        return source
    if source not in _KNOWN:
        folder: Path | None = source.folder
        if folder is None:
            _KNOWN[source] = borrow_labels(source)
        else:
            device, dtype = torch.device(source.info.device), torch_dtype(source.info.dtype)
            _KNOWN[source] = load_labels(locate(str(folder)), source.info.model, device, dtype)
    return _KNOWN[source]


def load_labels(
    located: Located, name: str, device: torch.device, dtype: torch.dtype
) -> LabelSource:
    """Load a classifier for its labels."""
    model = load_classifier(located.folder, name, device, dtype, located.adapter)
    network = _Labelled(model, body_of(model), device, seq2seq=False, no_logits="")
    source = _found(network, name, load_texts(located.folder, name))
    source.owned = True
    return source


def borrow_labels(source: Hooked) -> LabelSource:
    """Return the labels of a classifier in memory; ModelError where its head is not known."""
    network = _WrappedClassifier(source._network.model)
    network.no_logits = ""
    with network.ours():  # where adapters are in the weights
        return _found(network, source._name, source._texts)


def _found(network: _Labelled, name: str, texts: Any) -> LabelSource:
    """Return the source of a network once its head is found."""
    network.labels = find_head(network, name)
    return LabelSource(network, survey(network, name), texts, name, "the labels of a classifier")


def find_head(network: _Labelled, name: str) -> LabelHead:
    """Find a classifier's head by what it gives on texts of two lengths."""
    modules = [m for m in network.model.modules() if isinstance(m, nn.Linear)]
    passes = []
    for item in sample(network):
        calls: list[ModuleCall] = []
        with torch.no_grad(), calls_of(modules, calls.append):
            output = network.classify(item)
        ran = {id(call.module) for call in calls}
        passes.append((ran, output["last_hidden_state"], output["logits"]))
    places: tuple[Place, ...] = ("each",) if passes[0][2].ndim == 3 else ("first", "last")
    for place in places:
        for table in modules:
            if table.out_features != passes[0][2].shape[-1]:
                continue
            for dense in (None, *modules):
                if (head := _head(network, passes, place, table, dense)) is not None:
                    return head
    raise ModelError(
        f"{name}: its label head is neither a linear layer nor a pooler of one (a linear layer and "
        "an activation) on the final state of the first, the last or each token, so that its "
        "labels are not read"
    )


def _head(
    network: _Labelled,
    passes: Sequence[tuple[set[int], Tensor, Tensor]],
    place: Place,
    table: nn.Linear,
    dense: nn.Linear | None,
) -> LabelHead | None:
    """Return the head that two linear layers make, if it gives every pass's logits."""
    linear = [module for module in (dense, table) if module is not None]
    if dense is not None and dense.out_features != table.in_features:
        return None
    for ran, final, _ in passes:
        if linear[0].in_features != final.shape[-1] or any(id(m) not in ran for m in linear):
            return None
    position: Any = {"each": slice(None), "first": 0, "last": -1}[place]
    for act in [""] if dense is None else _ACTS:
        layers = None
        if dense is not None:
            bias = None if dense.bias is None else dense.bias.detach()
            layers = HeadLayers(dense.weight.detach(), _ACTS[act], None, bias)
        bias = None if table.bias is None else table.bias.detach()
        head = LabelHead(table.weight.detach(), bias, _labels(network, place), layers, act)
        if all(close(head(final[:, position]), logits) for _, final, logits in passes):
            return head
    return None


def _labels(network: HookedModel, place: Place) -> Labels:
    """Return the names of the labels, as the configuration has them."""
    config = network.model.config
    named = dict(getattr(config, "id2label", None) or {})
    count = int(config.num_labels)
    names = tuple(str(named.get(n, named.get(str(n), f"LABEL_{n}"))) for n in range(count))
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or (count == 1 and problem is None):
        return Labels(names, place, "none", _pad(config))
    several = problem == "multi_label_classification"
    return Labels(names, place, "sigmoid" if several else "softmax", _pad(config))


def _pad(config: Any) -> int | None:
    """Return the id of padding."""
    pad = getattr(config, "pad_token_id", None)
    return int(pad) if isinstance(pad, int) else None
