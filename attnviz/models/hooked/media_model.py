"""Models that read pictures or sound in place of text, as a source of attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.models import limits
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.processors import ProcessedMedia, Processors
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.survey import Survey
from attnviz.models.hooked.tokenizer import Texts
from attnviz.models.spans import spanned


class MediaModel(Hooked):
    """A model of pictures or of sound; one with a decoder writes text about what it hears."""

    def __init__(
        self,
        network: HookedModel,
        survey: Survey,
        texts: Texts,
        name: str,
        reason: str = "",
        *,
        processors: Processors,
        sample: ProcessedMedia,
    ) -> None:
        super().__init__(network, survey, texts, name, reason)
        self._processors, self._sample = processors, sample

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
        sense = self._processors.sense
        decoder = self._network.seq2seq and not self._network.queries
        limits.check_prompt(prompt, decoder=decoder, reads=(sense,))
        files = prompt.images if sense == "image" else (Path(prompt.audio or ""),)
        if len(files) > 1:
            raise UsageError("this model looks at one picture; give {image} once", image=...)
        sensed = self._processors.read(files[0])
        length = self._length(sensed)
        notes: list[str] = []
        tokens = self._processors.tokens(sensed, length)
        tokens = spanned(tokens, prompt, None, notes, sensed.picture)
        item = Item(features=sensed.features, sensed=length)
        inputs = self._inputs(prompt, tokens, item, notes)
        return replace(inputs, picture=sensed.picture, sound=sensed.sound, features=sensed.features)

    def _target(
        self, prompt: Prompt, source: Item, notes: list[str], written: tuple[int, ...] | None
    ) -> Tokens:
        """The tokens of the decoder, which may be the object queries that it has learned."""
        count = self._network.queries
        if not count:
            return super()._target(prompt, source, notes, written)
        names = tuple(f"query {n}" for n in range(count))
        return Tokens(names, ids=tuple(range(count)), words=tuple(range(count)))

    def _length(self, sensed: ProcessedMedia) -> int:
        """How many tokens the model makes of it."""
        known = self._network.sample
        assert known is not None
        shapes = [
            {name: value.shape for name, value in s.features.items()} for s in (sensed, known)
        ]
        return known.sensed if shapes[0] == shapes[1] else self._network.measure(sensed.features)

    def _item(self, inputs: Inputs) -> Item:
        kind = "cross" if self._network.seq2seq else self._survey.kind or "encoder"
        sides = inputs.sides[kind]
        target = sides.queries.ids if self._network.seq2seq else ()
        return Item(target=target, features=inputs.features, sensed=len(sides.keys))
