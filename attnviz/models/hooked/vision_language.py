"""Models that read a text with pictures in it, as a source of attention.

The pictures become tokens among those of the text. The model's own processor decides where and how
many; attention is that of the language model, from token to token. A processor that reads films
too, by a library (torchvision) that pictures do not need, is loaded without that part.

Some models hand a fixed number of learned queries to the language model in place of patches. Such
tokens have no place, however well their number fits a grid. So a few patches of the pictures are
inverted, one after the other, and their own tokens have to be among those that move most. A tower
mixes patches, but each keeps most of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.core.media import Picture
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import ModelError, UsageError
from attnviz.models import limits
from attnviz.models.containers import read_picture
from attnviz.models.external_errors import bounded, refusing, silenced
from attnviz.models.hooked.network import Item
from attnviz.models.hooked.picture_layout import (
    GivenPicture,
    Pixels,
    SeenCrop,
    seen_crops,
    sheet,
    with_places,
)
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.trace import listening
from attnviz.models.text import Offsets, needs_offsets, spanned

_IMAGE_IDS = ("image_token_id", "image_token_index")
"""Where configurations keep the id that stands for a piece of a picture."""


class VisionLanguage(Hooked):
    """A vision-language model; without a picture it reads text as any other."""

    files: Path  # the folder of its processor
    _proof: bool | None = None

    @cached_property
    def _processor(self) -> Any:
        return load_processor(self.files, self._name, self._network.family)

    @property
    def _image_id(self) -> int | None:
        """The id of a piece of a picture."""
        config = self._network.model.config
        named = (getattr(config, name, None) for name in _IMAGE_IDS)
        return next((number for number in named if isinstance(number, int)), None)

    def prepare(self, prompt: Prompt) -> Inputs:
        """Tokenize a text, with pictures in it where there are any; raises as any source."""
        if prompt.image is None:
            return super().prepare(prompt)
        limits.check_prompt(prompt, decoder=False, reads=("text", "image"))
        if prompt.text is None or prompt.pair is not None:
            raise UsageError("this model reads a picture with one text; give both")
        pictures = [GivenPicture(read_picture(path), path.name) for path in prompt.images]
        spelled, processed = self._made(prompt.text, [picture.pixels for picture in pictures])
        ids = tuple(int(token) for token in processed["input_ids"][0])
        pieces = [index for index, token in enumerate(ids) if token == self._image_id]
        features = self._features_of(processed)
        tokens, notes = self._texts.tokens(ids), list[str]()
        limits.check_length(len(ids), self._longest(prompt), truncate=False)
        if prompt.generate is not None:  # says why not
            tokens = self._go_on(tokens, Item(ids, features=features), prompt, notes)
        tokens, picture = self._placed(tokens, pieces, pictures, features, spelled, notes)
        offsets = self._offsets(prompt.text, spelled, ids) if needs_offsets(prompt) else None
        tokens = spanned(tokens, prompt, offsets, notes, picture)
        kind = self._survey.kind or "decoder"
        sides = {kind: Sides(tokens, tokens)}
        return Inputs(sides, tuple(notes), picture=picture, features=features)

    def _placed(
        self,
        tokens: Tokens,
        pieces: list[int],
        pictures: Sequence[GivenPicture],
        features: Mapping[str, Tensor],
        spelled: str,
        notes: list[str],
    ) -> tuple[Tokens, Picture | None]:
        """Give tokens with their places, and the picture; as they are where none are known."""
        message = "the model's processor cannot prepare this picture"
        with silenced(), refusing(message):
            crops = seen_crops(
                pictures, features, pieces, self._processor, self._network.body,
                lambda pixels: self._process(spelled, pixels),
            )  # fmt: skip
            if crops is not None and not self._holds(pictures, crops, tokens, pieces, spelled):
                crops = None
        if crops is None:
            which = "The picture is" if len(pictures) == 1 else f"The {len(pictures)} pictures are"
            inside = "in it" if len(pictures) == 1 else "in them"
            notes.append(
                f"{which} {len(pieces)} tokens; where {inside} each of them lies is not known."
            )
            return tokens, None
        picture, crops = sheet(crops)
        return with_places(tokens, pieces, crops), picture

    def _holds(
        self,
        pictures: Sequence[GivenPicture],
        crops: Sequence[SeenCrop],
        tokens: Tokens,
        pieces: list[int],
        spelled: str,
    ) -> bool:
        """Whether tokens lie where they are said to; tried once, on the first pictures."""
        if self._proof is not None:
            return self._proof

        def embed(pixels: list[Any]) -> Tensor | None:
            features = self._features_of(self._process(spelled, pixels))
            item = Item(tokens.ids, features=features)
            return embedded(self._network.body, len(tokens), lambda: self._network.run([item]))

        self._proof = proved(pictures, crops, pieces, embed)
        return self._proof

    def _features_of(self, processed: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return what of a processor's output goes into the model beside ids."""
        return {
            name: value
            for name, value in processed.items()
            if name in self._network.accepted and isinstance(value, Tensor)
            and name not in ("input_ids", "attention_mask")
        }  # fmt: skip

    def _offsets(self, text: str, spelled: str, ids: Sequence[int]) -> Offsets:
        """Which characters of a text every token stands for; none for what is not of the text."""
        start = spelled.rfind(text)
        if start < 0:
            raise ModelError(
                f"the chat template of {self._name} rewrites this text, so that its parts are not "
                "found in it; name them with tokens:"
            )
        plain, places = self._texts.encode(spelled, special=False, located=True)
        offsets = [(0, 0)] * len(ids)
        for a, b, count in SequenceMatcher(None, plain.ids, ids, False).get_matching_blocks():
            for n in range(count):
                first, end = (position - start for position in (places or ())[a + n])
                if end > 0 and first < len(text):
                    offsets[b + n] = (max(first, 0), min(end, len(text)))
        return offsets

    def _item(self, inputs: Inputs) -> Item:
        return replace(super()._item(inputs), features=inputs.features)

    def _process(self, spelled: str, pixels: list[Any]) -> Mapping[str, Any]:
        """Give what the processor makes of a text with the pictures' marks, and of the pictures."""
        from PIL import Image

        images = [Image.fromarray(picture) for picture in pixels]  # arrays some refuse
        return self._processor(text=spelled, images=images, return_tensors="pt")

    def _made(self, text: str, pixels: list[Any]) -> tuple[str, Mapping[str, Any]]:
        """Give a text with the pictures' marks, and what the processor makes of both."""
        fault: Exception | None = None
        for spelled in self._spelled(text, len(pixels)):
            try:
                with silenced():
                    inputs = self._process(spelled, pixels)
            except Exception as error:  # whatever a processor raises for text without its mark
                fault = fault or error
                continue
            if self._image_id is not None and bool((inputs["input_ids"] == self._image_id).any()):
                return spelled, inputs
        raise ModelError(
            f"the processor of {self._name} finds no place for the "
            f"picture{'s' * (len(pixels) > 1)} in this text" + (f": {fault}" if fault else "")
        )

    def _spelled(self, text: str, count: int) -> Iterator[str]:
        """Ways to write a text with pictures: as a chat, with the pictures' marks, as it is."""
        mark = getattr(self._processor, "image_token", None)
        if isinstance(mark, str) and mark in text:
            yield text
            return
        if getattr(self._processor, "chat_template", None):
            content = [*[{"type": "image"}] * count, {"type": "text", "text": text}]
            message = f"the chat template of {self._name} cannot be used"
            with silenced(), refusing(message), bounded():
                chat = self._processor.apply_chat_template(
                    [{"role": "user", "content": content}], add_generation_prompt=True
                )
            yield chat
        if isinstance(mark, str):
            yield f"{mark}\n" * count + text
        yield text


_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
"""Where a folder names the class of its processor."""


def load_processor(folder: Path, name: str, family: str) -> Any:
    """Return the processor in a folder."""
    import transformers

    auto: Any = transformers.AutoProcessor
    with silenced(), refusing(f"the processor of {name} cannot be loaded"):
        try:
            return auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception:  # transformers says it in several ways
            installed = importlib.util.find_spec("torchvision") is not None
            filmless = None if installed else _without_films(folder, family)
            if filmless is None:
                raise
            return filmless.from_pretrained(folder, local_files_only=True)


def _without_films(folder: Path, family: str) -> Any | None:
    """Find a folder's processor class, reading no films; None where it needs torchvision too."""
    registry: Any = importlib.import_module("transformers.models.auto.processing_auto")
    name = _class_name(folder) or registry.PROCESSOR_MAPPING_NAMES.get(family)
    full: Any = registry.processor_class_from_name(name) if isinstance(name, str) else None
    if not hasattr(full, "get_attributes"):
        return None
    listed = full.get_attributes()
    attributes = [part for part in listed if "video" not in part]
    missing = {part: None for part in listed if part not in attributes}

    class Filmless(full):  # type: ignore[misc]
        @classmethod
        def from_args_and_dict(cls, args: Any, settings: Any, **kwargs: Any) -> Any:
            return super().from_args_and_dict(args, {**settings, **missing}, **kwargs)

        @classmethod
        def get_attributes(cls) -> list[str]:
            return attributes

    Filmless.__name__ = full.__name__  # by which it finds its settings
    return Filmless


def _class_name(folder: Path) -> str | None:
    for file in _FILES:
        if (folder / file).is_file():
            settings = json.loads((folder / file).read_text("utf-8"))
            if isinstance(settings, dict) and isinstance(settings.get("processor_class"), str):
                return str(settings["processor_class"])
    return None


_TRIED = 6  # patches, spread over the pictures
_AMONG = 16
"""A patch's token has to be in this part of its crop's tokens that move most: one in so many."""

Embed = Callable[[list[Pixels]], Tensor | None]
"""What the language model gets in place of text and pictures, [T, D]; None where it is hidden."""


def proved(
    pictures: Sequence[GivenPicture], crops: Sequence[SeenCrop], pieces: Sequence[int], embed: Embed
) -> bool:
    """Whether most of some patches move their own tokens."""
    pixels = [picture.pixels for picture in pictures]
    plain, held = embed(pixels), list[bool]()
    if plain is None:
        return False
    for crop, row, column in _spread(crops):
        number = crop.crop.number - 1
        changed = list(pixels)
        changed[number] = _inverted(pixels[number], crop.crop.patch(row, column))
        inverted = embed(changed)
        if inverted is None or inverted.shape != plain.shape:
            return False
        moved = (inverted - plain).abs().sum(-1)
        moves = moved[[pieces[int(n)] for n in crop.order.flat]]
        move = moves[row * crop.crop.columns + column]
        held.append(bool(move > 0) and int((moves >= move).sum()) <= max(1, len(moves) // _AMONG))
    return 2 * sum(held) >= len(held)


def _spread(crops: Sequence[SeenCrop]) -> Iterator[tuple[SeenCrop, int, int]]:
    """Yield some patches of the larger crops, in turn."""
    fine = [view for view in crops if not view.crop.whole]
    for number in range(_TRIED):
        view = fine[number % len(fine)]
        index = int((number + 0.5) / _TRIED * view.order.size)
        yield view, *divmod(index, view.crop.columns)


def _inverted(pixels: Pixels, box: tuple[float, float, float, float]) -> Pixels:
    """Return the same with the colours of a box inverted."""
    left, top, right, bottom = (max(0, round(edge)) for edge in box)
    changed = np.array(pixels)
    part = np.s_[top : max(bottom, top + 1), left : max(right, left + 1)]
    changed[part] = 255 - changed[part]
    # what is grey hardly changes when it is inverted
    changed[part] = np.where(abs(changed[part].astype(int) - 128) < 48, 255, changed[part])
    return changed


class _Stop(Exception):
    """Ends a pass once the language model was reached."""


def embedded(body: nn.Module, length: int, run: Callable[[], Any]) -> Tensor | None:
    """Return what the language model inside ``body`` gets in a pass over so many tokens, [T, D].

    It is the first ``inputs_embeds`` of a part of it, at which the pass ends; None where there is
    none.
    """
    reached: list[Tensor] = []

    def entering(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        embeds = kwargs.get("inputs_embeds")
        if isinstance(embeds, Tensor) and embeds.shape[:2] == (1, length):  # no tower's own
            reached.append(embeds.detach().float().cpu())
            raise _Stop

    parts = [part for part in body.modules() if part is not body]
    with listening(parts, pre_hook=entering), torch.no_grad(), contextlib.suppress(_Stop):
        run()
    return reached[0][0] if reached else None
