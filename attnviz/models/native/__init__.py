"""The native backend: BERT, DistilBERT, RoBERTa and GPT-2 on our own :func:`attend`.

Importing transformers and building a model takes longer than everything else that attnviz does for
a sentence. So the families that most people try first need ``safetensors`` and ``tokenizers`` only:
``families.json`` and ``config.py`` say how they differ, ``weights.py`` reads a checkpoint,
``network.py`` runs it, ``tokenizer.py`` reads text and ``source.py`` puts it together. What this
backend does not know for certain raises :class:`Unsupported`, and the hooks are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.models.device import torch_dtype
from attnviz.models.folder import Located
from attnviz.models.limits import memory_of, physical_memory
from attnviz.models.native import config, tokenizer, words
from attnviz.models.native.config import Unsupported
from attnviz.models.native.network import build
from attnviz.models.native.source import SMALL, Native
from attnviz.models.native.weights import NO_WORDS, DrawnWeights, ShuffledWeights, Weights

if TYPE_CHECKING:
    from attnviz.models.controls import Control

__all__ = ["Native", "Unsupported", "load"]


def load(located: Located, device: str, precision: str, control: Control | None = None) -> Native:
    """Load a model without transformers; on a CPU in float32 without torch, too."""
    settings = config.read(located.config)
    reader = tokenizer.load(located.folder, settings.family.tokenizer)
    shuffled = control is not None and control.scale == "trained"
    target = None
    if device != "cpu" or precision != "float32" or shuffled:
        import torch

        target = (torch.device(device), torch_dtype(precision))
    origin = (located.weights, settings.family, target)
    if control is not None:
        network = build(
            settings,
            ShuffledWeights(*origin, seed=control.seed)
            if shuffled
            else DrawnWeights(located.config, settings, control.seed, target),
        )
        return Native(located, network, reader, lambda: NO_WORDS)
    weights = Weights(*origin)
    weights.check_copies(settings)
    network = build(settings, weights, streamed=weights.size > _room(device))
    return Native(located, network, reader, lambda: words.read(weights, network))


def is_small(located: Located) -> bool:
    """Whether a text is over on a CPU before torch and a GPU are ready, so that no GPU is taken."""
    try:
        return config.read(located.config).matrices <= SMALL
    except Unsupported:
        return False


def _room(device: str) -> int:
    """Bytes that a model's weights may take on a device: what is free, or half of the memory."""
    return physical_memory() // 2 if device == "cpu" else memory_of(device) * 9 // 10
