"""Models that read a text with a picture in it, as a source of attention.

The picture becomes tokens among those of the text. The model's own processor decides where and how
many; attention is that of the language model, from token to token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from attnviz.core.media import Picture, Place
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import ModelError, UsageError
from attnviz.models import limits
from attnviz.models.bounded import bounded
from attnviz.models.decoding import read_picture
from attnviz.models.external_errors import refusing
from attnviz.models.hooked.logging import silenced
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.survey import Survey
from attnviz.models.hooked.tokenizer import Texts

_IMAGE_IDS = ("image_token_id", "image_token_index")
"""Where configurations keep the id that stands for a piece of a picture."""


class VisionLanguage(Hooked):
    """A vision-language model; without a picture it reads text as any other."""

    def __init__(
        self,
        network: HookedModel,
        survey: Survey,
        texts: Texts,
        name: str,
        reason: str = "",
        *,
        folder: Path,
    ) -> None:
        super().__init__(network, survey, texts, name, reason)
        self._folder = folder

    @cached_property
    def _processor(self) -> Any:
        import transformers

        auto: Any = transformers.AutoProcessor
        with silenced(), refusing(f"the processor of {self._name} cannot be loaded"):
            return auto.from_pretrained(
                self._folder, local_files_only=True, trust_remote_code=False
            )

    @property
    def _image_id(self) -> int | None:
        """The id of a piece of a picture."""
        config = self._network.model.config
        named = (getattr(config, name, None) for name in _IMAGE_IDS)
        return next((number for number in named if isinstance(number, int)), None)

    def prepare(self, prompt: Prompt) -> Inputs:
        """Tokenize a text, with a picture in it where there is one; raises as any source."""
        if prompt.image is None:
            return super().prepare(prompt)
        limits.check_prompt(prompt, decoder=False, reads=("text", "image"))
        if prompt.text is None or prompt.pair is not None:
            raise UsageError("this model reads a picture with one text; give both")
        path = Path(prompt.image)
        pixels = read_picture(path)
        made = self._made(prompt.text, pixels)
        ids = tuple(int(token) for token in made["input_ids"][0])
        pieces = [place for place, token in enumerate(ids) if token == self._image_id]
        features = {
            name: value
            for name, value in made.items()
            if name in self._network.accepted and isinstance(value, Tensor)
            and name not in ("input_ids", "attention_mask")
        }  # fmt: skip
        tokens = self._texts.tokens(ids)
        notes = []
        limits.check_length(len(ids), self._longest(prompt), truncate=False)
        grid = _grid(features, len(pieces), self._processor)
        picture = None
        if grid is None:
            notes.append(
                f"The picture is {len(pieces)} tokens; where in it each of them lies is not known."
            )
        else:
            tokens = _placed(tokens, pieces, grid)
            picture = Picture(_shown(pixels, features, self._processor), *grid, path.name)
        kind = self._survey.kind or "decoder"
        sides = {kind: Sides(tokens, tokens)}
        return Inputs(sides, tuple(notes), picture=picture, features=features)

    def _item(self, inputs: Inputs) -> Item:
        return replace(super()._item(inputs), features=inputs.features)

    def _made(self, text: str, pixels: Any) -> Mapping[str, Any]:
        """What the processor makes of text and picture, with the picture's tokens in it."""
        fault: Exception | None = None
        for spelled in self._spelled(text):
            try:
                with silenced():
                    made: Mapping[str, Any] = self._processor(
                        text=spelled, images=pixels, return_tensors="pt"
                    )
            except Exception as error:  # whatever a processor raises for text without its mark
                fault = error
                continue
            if self._image_id is not None and bool((made["input_ids"] == self._image_id).any()):
                return made
        raise ModelError(
            f"the processor of {self._name} finds no place for the picture in this text"
            + (f": {fault}" if fault else "")
        )

    def _spelled(self, text: str) -> Iterator[str]:
        """Ways to write a text with a picture: as a chat, with the picture's mark, as it is."""
        mark = getattr(self._processor, "image_token", None)
        if isinstance(mark, str) and mark in text:
            yield text
            return
        if getattr(self._processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": text}]
            what = f"the chat template of {self._name} cannot be used"
            with silenced(), refusing(what), bounded():
                written = self._processor.apply_chat_template(
                    [{"role": "user", "content": content}], add_generation_prompt=True
                )
            yield written
        if isinstance(mark, str):
            yield f"{mark}\n{text}"
        yield text


def _grid(features: Mapping[str, Tensor], pieces: int, processor: Any) -> tuple[int, int] | None:
    """Rows and columns of a picture's tokens; None where that is not known."""
    known = features.get("image_grid_thw")
    if known is not None and len(known) == 1:  # Qwen: merged patches of a picture of any size
        merge = int(getattr(processor.image_processor, "merge_size", 1))
        frames, rows, columns = (int(size) for size in known[0])
        grid = (rows // merge, columns // merge)
        return grid if frames == 1 and math.prod(grid) == pieces else None
    values = features.get("pixel_values")
    side = math.isqrt(pieces)
    if values is None or values.ndim != 4 or len(values) != 1 or side * side != pieces:
        return None
    return (side, side) if values.shape[2] == values.shape[3] else None


def _shown(pixels: Any, features: Mapping[str, Tensor], processor: Any) -> Any:
    """What the model saw of the picture, uint8 [height, width, 3]."""
    from attnviz.models.hooked.processors import unscaled

    values = features["pixel_values"]
    if values.ndim == 4:
        return unscaled(values[0], processor.image_processor)
    return np.ascontiguousarray(pixels)  # the whole of it, stretched to whole patches


def _placed(tokens: Tokens, pieces: list[int], grid: tuple[int, int]) -> Tokens:
    """The same with the places of the picture's tokens, row by row."""
    places: list[Place] = [()] * len(tokens)
    texts, special, words = list(tokens.texts), list(tokens.special), list(tokens.words)
    for number, place in enumerate(pieces):
        row, column = divmod(number, grid[1])
        places[place], texts[place] = (row, column), f"{row},{column}"
        special[place] = False
        words[place] = -1
    return replace(
        tokens, texts=tuple(texts), special=tuple(special), words=tuple(words), places=tuple(places)
    )
