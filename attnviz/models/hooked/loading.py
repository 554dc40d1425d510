"""From a folder to a source of attention: what a model reads decides which one."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.provenance import Backend
from attnviz.core.tokens import Tokens
from attnviz.errors import ModelError, UsageError
from attnviz.models import limits
from attnviz.models.controls import Control
from attnviz.models.device import PLAIN, Placement
from attnviz.models.hooked.checkpoint import load_network, load_shapes
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.processors import ProcessedMedia, Processors, load_processors
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.survey import foresee as foresee_backend
from attnviz.models.hooked.survey import is_untold, survey
from attnviz.models.hooked.tokenizer import load_texts
from attnviz.models.hooked.vision_language import VisionLanguage
from attnviz.models.text import spanned


class MediaModel(Hooked):
    """A model of pictures or of sound; one with a decoder writes text about what it hears."""

    processors: Processors

    @property
    def max_tokens(self) -> int | None:
        """The longest text that its decoder takes, or None."""
        longest = getattr(self._network.config, "max_target_positions", None)
        return longest if isinstance(longest, int) and self._network.seq2seq else None

    @property
    def vocab_size(self) -> None:
        """It reads no ids."""
        return

    def prepare(self, prompt: Prompt) -> Inputs:
        """Let the model's own processor prepare a picture or a sound."""
        sense = self.processors.sense
        decoder = self._network.seq2seq and not self._network.queries
        limits.check_prompt(prompt, decoder=decoder, reads=(sense,))
        files = prompt.images if sense == "image" else (Path(prompt.audio or ""),)
        if len(files) > 1:
            raise UsageError("this model looks at one picture; give {image} once", image=...)
        sensed = self.processors.read(files[0])
        length = self._length(sensed)
        notes: list[str] = []
        tokens = self.processors.tokens(sensed, length)
        tokens = spanned(tokens, prompt, None, notes, sensed.picture)
        item = Item(features=sensed.features, sensed=length)
        inputs = self._inputs(prompt, tokens, item, notes)
        return replace(inputs, picture=sensed.picture, sound=sensed.sound, features=sensed.features)

    def _target(
        self, prompt: Prompt, source: Item, notes: list[str], generated: tuple[int, ...] | None
    ) -> Tokens:
        """Return the tokens of the decoder, which may be the object queries that it has learned."""
        count = self._network.queries
        if not count:
            return super()._target(prompt, source, notes, generated)
        names = tuple(f"query {n}" for n in range(count))
        return Tokens(names, ids=tuple(range(count)), words=tuple(range(count)))

    def _length(self, sensed: ProcessedMedia) -> int:
        """How many tokens the model makes of it."""
        sample = self._network.sample
        assert sample is not None
        shapes = [
            {name: value.shape for name, value in s.features.items()} for s in (sensed, sample)
        ]
        return sample.sensed if shapes[0] == shapes[1] else self._network.measure(sensed.features)

    def _item(self, inputs: Inputs) -> Item:
        kind = "cross" if self._network.seq2seq else self._survey.kind or "encoder"
        sides = inputs.sides[kind]
        target = sides.queries.ids if self._network.seq2seq else ()
        return Item(target=target, features=inputs.features, sensed=len(sides.keys))


_FEW = 1 << 26  # parameters of a model that is drawn at random to see what its code does


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
    """Load a transformers model and find the best way to its attention."""
    path = Path(folder)
    network = load_network(path, name, device, dtype, control, reads, placement, adapter)
    processors = _media(network, path, name)
    parts: tuple[Any, ...] = (network, survey(network, name), load_texts(path, name), name, reason)
    if processors is not None:
        media = MediaModel(*parts)
        media.processors = processors
        return media
    if "image" in network.reads and not network.seq2seq:
        seeing = VisionLanguage(*parts)
        seeing.files = path
        return seeing
    source = Hooked(*parts)
    source.owned, source.folder = True, path if adapter is None else adapter
    return source


def foresee(folder: Path, name: str, *, complete: bool) -> Backend | None:
    """Which backend :func:`load` takes, without a weight.

    Returns None where only loading tells.
    """
    network = load_shapes(folder, name)
    if network.reads and "text" not in network.reads and not complete:
        return None
    backend: Backend | None = None
    try:
        _media(network, folder, name)
        backend = foresee_backend(network, name)
    except ModelError as error:
        if not is_untold(str(error)):
            raise
    if backend is None and sum(p.numel() for p in network.model.parameters()) < _FEW:
        network = load_shapes(folder, name, random=True)
        _media(network, folder, name)
        backend = survey(network, name).backend
    return backend


def _media(network: HookedModel, folder: Path, name: str) -> Processors | None:
    """Give what prepares the files that a model reads, tried on noise; None of a model of text."""
    reads = network.reads
    first = next(iter(inspect.signature(network.body.forward).parameters), "nothing")
    if "text" in reads or first in ("args", "kwargs"):  # a decoder inside a wrapper takes any name
        return None
    part = network.model.config
    if not reads:
        raise ModelError(
            f"{name}: {network.family} models read {first}, for which there is no file; run yours "
            "inside of attnviz.watch(model)"
        )
    if getattr(part, "window_size", None) and reads[0] == "image":
        raise ModelError(
            f"{name}: {network.family} models attend inside windows that differ from layer to "
            "layer, not from every patch to every other; take a ViT, or run yours inside of "
            "attnviz.watch(model)"
        )
    processors = load_processors(folder, name, part, network.accepted, reads[0])
    processors.fit(network.measure)
    sample = processors.sample()
    network.sample = network.example(sample.features)
    processors.tokens(sample, network.sample.length)  # which of them are which must be known
    return processors
