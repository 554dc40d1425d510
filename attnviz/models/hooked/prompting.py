"""Prompts of a transformers model: tokenized, and where text is missing, written by the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from attnviz.core.heads import SiteKind
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.source import Source
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.models import limits
from attnviz.models.chat import as_text, compared
from attnviz.models.hooked.network import WRITES_AT_MOST, HookedModel, Item, stepwise, without_end
from attnviz.models.hooked.survey import Survey
from attnviz.models.hooked.tokenizer import Texts
from attnviz.models.running import Gated
from attnviz.models.text import needs_offsets, spanned


class Prompted(Gated):
    """What a transformers model as a source of attention does before it runs."""

    _network: HookedModel
    _survey: Survey
    _texts: Texts
    _name: str
    _following: Callable[[Sequence[int]], Tensor]
    """The logits [V] that follow some ids, with the gates that stand."""

    @property
    def max_tokens(self) -> int | None:
        """The longest sequence that the configuration names, else the tokenizer, or None.

        Tokenizers often say less than their model takes (256 beside 8,192).
        """
        return self._network.max_tokens or self._texts.max_tokens

    def _longest(self, prompt: Prompt) -> int | None:
        """Return the most tokens of a prompt that may run."""
        return limits.longest(prompt, self.max_tokens, self._network.learned_positions)

    @property
    def vocab_size(self) -> int | None:
        """The number of token ids."""
        return self._network.vocab_size

    def prepare(self, prompt: Prompt) -> Inputs:
        """Tokenize a prompt; an encoder-decoder model without a target writes one greedily.

        Ids are taken as they are: nothing is added to them.
        """
        return self._inputs(*self._begun(prompt))

    def prepare_all(self, prompts: Sequence[Prompt]) -> list[Inputs]:
        """:meth:`prepare` of each; texts that an encoder-decoder model writes, side by side."""
        rooms = {self._room(prompt) for prompt in prompts if _unwritten(prompt)}
        writes = self._network.seq2seq and self._network.can_write and len(rooms) == 1
        changed = self._standing or self._cuts({}, torch.empty(0))
        if not writes or changed or not all(map(_unwritten, prompts)):
            return [self.prepare(prompt) for prompt in prompts]
        begun = [self._begun(prompt) for prompt in prompts]
        generated = self._network.write_each([item for _, _, item, _ in begun], *rooms)
        return [self._inputs(*parts, ids) for parts, ids in zip(begun, generated, strict=True)]

    def _begun(self, prompt: Prompt) -> tuple[Prompt, Tokens, Item, list[str]]:
        """Return a prompt as the model reads it: its text, its tokens, and what was noted of it."""
        limits.check_prompt(prompt, decoder=self._network.seq2seq)
        prompt, chat_notes = as_text(prompt, self._texts.render, self._name)
        notes = list(chat_notes)
        tokens = self._read(prompt, notes)
        return prompt, tokens, Item(tokens.ids), notes

    def _room(self, prompt: Prompt) -> int:
        """How many tokens are written where nobody says how many."""
        limit = self._longest(prompt)
        return WRITES_AT_MOST if limit is None else min(WRITES_AT_MOST, max(limit - 1, 1))

    def _inputs(
        self,
        prompt: Prompt,
        tokens: Tokens,
        item: Item,
        notes: list[str],
        generated: tuple[int, ...] | None = None,
    ) -> Inputs:
        """Get the tokens on both axes; a decoder's are the target or what it writes of the item."""
        if not self._network.seq2seq:
            kind = self._survey.kind or "encoder"
            if prompt.generate is not None:
                tokens = self._go_on(tokens, item, prompt, notes)
            inputs = Inputs({kind: Sides(tokens, tokens)}, tuple(notes))
            reply = prompt.reply
            return inputs if reply is None else compared(cast(Source, self), inputs, reply)
        target = self._target(prompt, item, notes, generated)
        sides: dict[SiteKind, Sides] = {
            "encoder": Sides(tokens, tokens),
            "decoder": Sides(target, target),
            "cross": Sides(target, tokens),
        }
        return Inputs({kind: sides[kind] for kind in self._survey.layout.kinds}, tuple(notes))

    @property
    def no_logits(self) -> str:
        """Why the model gives no logits; empty where it does."""
        return self._network.no_logits

    def tokens(self, ids: Sequence[int]) -> Tokens:
        """Return what ids stand for; ``#id`` where there is no tokenizer to name them."""
        return self._texts.tokens(ids)

    def _read(self, prompt: Prompt, notes: list[str]) -> Tokens:
        """Return the tokens of the encoder or of the only stack."""
        limit, positions = self._longest(prompt), None
        encode = partial(
            self._texts.encode,
            prompt.text or "",
            prompt.pair,
            special=prompt.special_tokens,
            words=prompt.words,
            located=needs_offsets(prompt),
        )
        if prompt.ids is not None:
            tokens = self._texts.tokens(prompt.ids)
            notes += limits.segment_notes(tokens) if self._texts.segments else ()
        else:
            tokens, positions = encode()
        limits.check_ids(tokens.ids, self._network.vocab_size)
        note = limits.check_length(len(tokens), limit, truncate=prompt.truncate)
        if note and limit is not None:
            notes.append(note)
            if prompt.ids is not None:
                tokens = self._texts.tokens(limits.cut(tokens.ids, tokens.special, limit))
            else:
                tokens, positions = encode(limit=limit)
        return spanned(tokens, prompt, positions, notes)

    def _target(
        self, prompt: Prompt, source: Item, notes: list[str], generated: tuple[int, ...] | None
    ) -> Tokens:
        """Give the tokens of the decoder: the target, or what the model writes, or has written."""
        if prompt.target is None:
            return self._decoded(prompt, source, notes, generated)
        if prompt.generate is not None:
            raise UsageError(
                "{target} and {generate} both give the decoder's text; give one",
                target=prompt.target,
                generate=prompt.generate.tokens,
            )
        special = prompt.special_tokens
        forced = self._network.forced if special else {}
        labels = self._texts.target(prompt.target, special=special, first=forced.get(1))
        ids = self._network.teach(labels)
        for position, token in sorted(forced.items()):
            if ids[position : position + 1] != (token,):
                ids = (*ids[:position], token, *ids[position:])
        limits.check_ids(ids, self._network.target_vocab_size)
        limit = self._longest(prompt)
        label = "the target text"
        note = limits.check_length(len(ids), limit, truncate=prompt.truncate, label=label)
        if note:
            notes.append(note)
        return self._texts.tokens(ids[:limit])

    def _go_on(self, tokens: Tokens, item: Item, prompt: Prompt, notes: list[str]) -> Tokens:
        """Return the tokens and what a decoder writes after them."""
        generation = prompt.generate
        assert generation is not None
        if item.features:
            reason = (
                f"{self._name} was given a picture or a sound, after which attnviz "
                "generates no text"
            )
            raise limits.no_writer(generation, reason)
        limits.check_generation(generation, len(tokens), self._longest(prompt))
        if self._survey.kind != "decoder" or not self._network.can_write:
            reason = self.no_logits or f"{self._name} generates no text"
            raise limits.no_writer(generation, reason)
        with limits.telling(generation, tokens, self._texts.text) as tell:
            if self._standing or self._cuts({}, torch.empty(0)):  # a model's own knows neither
                new = stepwise(self._following, tokens.ids, generation, self._network.ends(), tell)
            else:
                new = self._network.write(item, generation, tell)
        continued = self._texts.tokens([*tokens.ids, *new])
        continued = replace(continued, written=len(new), spans=tokens.spans)
        notes.append(limits.written(continued, generation))
        return continued

    def _decoded(
        self, prompt: Prompt, source: Item, notes: list[str], generated: tuple[int, ...] | None
    ) -> Tokens:
        """Have the model write the decoder's text: as asked, or greedily where nobody asked."""
        if not self._network.can_write:
            raise UsageError(
                "{} has no weights to generate text with",
                self._name,
                remedy="give the decoder's text with {target}",
                target=...,
            )
        requested = prompt.generate
        if requested is not None:
            limits.check_generation(requested, 1, self._longest(prompt))
            with limits.telling(requested, None, self._texts.text) as tell:
                ids = self._network.write(source, requested, tell)
        else:
            greedy = Generation(self._room(prompt))
            # a cache of its own kind is one more thing that can fail
            ids = generated or self._network.write(source, greedy, cache=False)
            ids = without_end(ids, self._network.ends())
        tokens = replace(self._texts.tokens(ids), written=len(ids) - 1)
        if requested is None:
            notes.append(f"Decoder text generated greedily: {self._texts.plain(ids)}")
        else:
            notes.append(limits.written(tokens, requested))
        return tokens

    def _item(self, inputs: Inputs) -> Item:
        if not self._network.seq2seq:
            tokens = inputs.sides[self._survey.kind or "encoder"].queries
            return Item(tokens.ids, tokens.segments)
        source, target = inputs.sides["cross"].keys, inputs.sides["cross"].queries
        return Item(source.ids, source.segments, target.ids)


def _unwritten(prompt: Prompt) -> bool:
    """Whether an encoder-decoder model writes the decoder's text of a prompt unasked."""
    return prompt.target is None and prompt.generate is None and not prompt.files
