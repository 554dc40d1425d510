"""From a folder to a source of attention: what a model reads decides which one."""

from __future__ import annotations

from pathlib import Path

import torch

from attnviz.errors import ModelError
from attnviz.models.controls import Control
from attnviz.models.device import PLAIN, Placement
from attnviz.models.hooked.checkpoint import load_network
from attnviz.models.hooked.media_model import MediaModel
from attnviz.models.hooked.processors import load_processors
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.survey import survey
from attnviz.models.hooked.tokenizer import load_texts
from attnviz.models.hooked.vision_language import VisionLanguage


def load(
    folder: Path | str,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    reason: str = "",
    control: Control | None = None,
    reads: str = "text",
    placement: Placement = PLAIN,
    adapter: Path | None = None,
) -> Hooked:
    """Load a transformers model and find the best way to its attention.

    Args:
        folder: a local folder with config.json, safetensors weights and a tokenizer, or a
            processor of pictures or sound.
        name: what the user calls the model.
        device: where it runs.
        dtype: in which precision.
        reason: why the native backend was not taken, if it was tried.
        control: random weights in place of the stored ones.
        reads: ``text`` or ``image``, which of the two towers of a model such as CLIP.
        placement: quantized on the way in, or divided among devices.
        adapter: the folder of what is added to the weights.

    Raises:
        ModelError: the model cannot be loaded, or gives no attention weights.
        UsageError: a library that reads pictures is missing.
    """
    path = Path(folder)
    network = load_network(path, name, device, dtype, control, reads, placement, adapter)
    if network.reads and "text" not in network.reads:
        part = network.model.config
        if getattr(part, "window_size", None) and network.reads[0] == "image":
            raise ModelError(
                f"{name}: {network.family} models attend inside windows that differ from layer to "
                "layer, not from every patch to every other; take a ViT"
            )
        processors = load_processors(path, name, part, network.accepted, network.reads[0])
        sample = processors.sample()
        network.sample = network.example(sample.features)
        texts = load_texts(path, name)
        surveyed = survey(network, name)
        return MediaModel(
            network, surveyed, texts, name, reason, processors=processors, sample=sample
        )
    surveyed, texts = survey(network, name), load_texts(path, name)
    if "image" in network.reads and not network.seq2seq:
        return VisionLanguage(network, surveyed, texts, name, reason, folder=path)
    source = Hooked(network, surveyed, texts, name, reason)
    source.own, source.folder = True, path
    return source
