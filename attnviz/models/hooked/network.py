"""A transformers model as attnviz uses it: run it, let it write, keep it quiet."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.core.arrays import on_torch
from attnviz.core.prompt import Generation
from attnviz.core.threads import one_thread
from attnviz.errors import ModelError
from attnviz.models.configs.keys import GUESS
from attnviz.models.external_errors import one_line, refusing, silenced
from attnviz.models.hooked.interface import masks_forgotten
from attnviz.models.hooked.trace import listening
from attnviz.models.hooked.windows import Windows, looking_at_all
from attnviz.models.limits import beyond
from attnviz.models.native.words import Choice


class Drawn:
    """Lets ``generate`` take the tokens that we draw: they alone stay possible."""

    def __init__(self, generation: Generation) -> None:
        self._choose = Choice(generation)

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [1, V] that leave one token."""
        only = torch.full_like(scores, -torch.inf)
        only[0, self._choose(scores[0])] = 0
        return only


class TokenStreamer:
    """Hands tokens on as ``generate`` streams them, the prompt left out."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell, self._begun = tell, False

    def put(self, ids: Tensor) -> None:
        """Call the prompt, or the decoder's start, what came first."""
        if self._begun:
            self._tell(int(ids.reshape(-1)[-1]))
        self._begun = True

    def end(self) -> None:
        """Nothing comes after it."""


def stepwise(
    following: Callable[[Sequence[int]], Tensor],
    ids: Sequence[int],
    generation: Generation,
    ends: Collection[int],
    tell: Callable[[int], None],
) -> tuple[int, ...]:
    """Give what is written with a whole pass for each token, for a model that is changed meanwhile.

    ``following``: the logits [V] that follow some ids.
    """
    choose, new = Choice(generation), list[int]()
    while len(new) < generation.tokens and not (new and new[-1] in ends):
        new.append(choose(following((*ids, *new))))
        tell(new[-1])
    return tuple(new)


WRITES_AT_MOST = 32
"""Tokens that an encoder-decoder model generates where no target text is given."""

TOKENS_AT_ONCE = 1 << 12
"""Read and written by the texts of a batch that are written side by side."""

SMALL = 1 << 22
"""Weights of a model below which threads would wait for each other longer than they work."""

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_LOCKING = threading.Lock()

_SENSES = {"pixel_values": "image", "input_values": "audio", "input_features": "audio"}
"""Arguments of models that see or hear."""


Limit = tuple[int, str, str]
"""Tokens up to which attention goes to tokens alone, what it goes to beyond, and the way out."""


@dataclass(frozen=True, slots=True)
class Item:
    """One input."""

    ids: tuple[int, ...] = ()  # of its tokens; empty where features stand in their place
    segments: tuple[int, ...] = ()  # of the ids
    target: tuple[int, ...] = ()  # the ids on the decoder's side, empty for a single stack
    # of a picture or sound, by the names of the model's arguments, [1, ...] each.
    features: Mapping[str, Tensor] = field(default_factory=dict)
    sensed: int = 0  # how many tokens the model makes of the features, where there are no ids

    @property
    def length(self) -> int:
        """Tokens of the encoder or of the only stack."""
        return self.sensed or len(self.ids)


class HookedModel:
    """A transformers model with its weights, in evaluation mode."""

    sample: Item | None = None  # something to try it on, where it reads no text
    full_up_to: Limit | None = None  # where it would attend to other keys in longer texts
    windows: Windows | None = None  # how it returns the weights of windows, where it has some
    queries = 0  # how many learned vectors its decoder reads in place of a text
    # whether texts of different length run one by one, since they change each other in a batch
    one_by_one = False
    masked = True  # whether it is told what is padding, which it may do without where none is
    # for weights that do not fit in memory, and are not stored as they are used
    converted: TemporaryDirectory[str] | None = None

    def __init__(
        self,
        model: Any,
        body: Any,
        device: torch.device,
        *,
        seq2seq: bool,
        no_logits: str,
        on_device: bool = False,
    ) -> None:
        # with its LM head if it has one; the body is without it
        self.model = (model if on_device else model.to(device)).eval().requires_grad_(False)
        self.body, self.device = body, device
        self.seq2seq = seq2seq  # whether it has an encoder and a decoder
        self.no_logits = no_logits  # why there is no LM head, as the end of a sentence
        self.queries = int(seq2seq and "decoder_input_ids" not in self.accepted)

    @property
    def lock(self) -> threading.RLock:
        """Held while the model runs: hooks and modes are a module's and every thread sees them."""
        with _LOCKING:
            return _LOCKS.setdefault(self.model, threading.RLock())

    @property
    def is_offloaded(self) -> bool:
        """Whether some weights are in memory only while their module runs, as accelerate does."""
        offloaded = any(parameter.is_meta for parameter in self.model.parameters())
        return offloaded and self.device.type != "meta"

    @property
    def is_read_anew(self) -> bool:
        """Whether each pass reads weights from disk: files that memory does not hold are mapped."""
        size = sum(x.nbytes for x in self.model.parameters() if x.device.type == "cpu")
        return self.is_offloaded or beyond(size) != ""

    @property
    def can_write(self) -> bool:
        """Whether it can generate text: the decoder's, or what comes after a prompt."""
        able = getattr(self.model, "can_generate", lambda: False)
        return not self.no_logits and hasattr(self.model, "generate") and bool(able())

    @property
    def config(self) -> Any:
        """The configuration of its text part."""
        config = self.model.config
        return config if self.seq2seq else config.get_text_config()

    @property
    def family(self) -> str:
        """Its ``model_type``, such as ``llama``."""
        return str(self.model.config.model_type)

    @property
    def accepted(self) -> frozenset[str]:
        """The names of the arguments that it takes."""
        return frozenset(inspect.signature(self.body.forward).parameters)

    @property
    def reads(self) -> tuple[str, ...]:
        """What it takes: ``text``, ``image``, ``audio``."""
        accepted = self.accepted
        media = [sense for name, sense in _SENSES.items() if name in accepted]
        return ("text",) * ("input_ids" in accepted) + tuple(dict.fromkeys(media))

    @property
    def dtype(self) -> torch.dtype:
        """The precision of its weights."""
        return self.model.dtype

    @property
    def rounding(self) -> torch.dtype:
        """The precision by whose rounding passes are judged: a low one where weights are packed."""
        packed = getattr(self.model.config, "quantization_config", None) is not None
        return torch.bfloat16 if packed else self.dtype

    @property
    def vocab_size(self) -> int:
        """How many token ids it knows."""
        try:
            size = self.model.get_input_embeddings().num_embeddings
        except (AttributeError, NotImplementedError):  # CANINE hashes characters
            size = getattr(self.config, "vocab_size", None) or sys.maxunicode + 1
        return int(size)

    @property
    def target_vocab_size(self) -> int:
        """How many token ids its decoder knows."""
        decoder = getattr(self.config, "decoder", None)
        size = getattr(self.config, "decoder_vocab_size", None) or getattr(
            decoder, "vocab_size", None
        )
        return int(size or self.vocab_size)

    @property
    def max_tokens(self) -> int | None:
        """The longest sequence it takes, or None where its configuration names none."""
        named = [getattr(self.config, name, None) for name in GUESS.positions]
        limits = [limit for limit in named if isinstance(limit, int) and limit > 0]
        for name, module in self.model.named_modules():
            # RoBERTa counts positions from its padding's number on
            if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                start = 0 if module.padding_idx is None else module.padding_idx + 1
                limits.append(module.num_embeddings - start)
        return min(limits, default=None)

    @property
    def learned_positions(self) -> int | None:
        """How many positions it has learned vectors for; None where it computes them."""
        named = self.max_tokens
        if named is None:
            return None
        tables = [m for m in self.model.modules() if isinstance(m, nn.Embedding)]
        # OPT and BART begin at 2, RoBERTa after its padding
        near = any(named <= m.num_embeddings <= named + 8 for m in tables)
        return named if near else None

    def switch(self, implementation: str) -> None:
        """Let every layer that asks use this attention function from now on."""
        with silenced():
            self.model.set_attn_implementation(implementation)
        if implementation == "eager":  # classes that cannot be told so ask their configuration
            self.model.config._attn_implementation = "eager"

    def run(
        self,
        items: Sequence[Item],
        *,
        weights: bool = False,
        segments: bool = False,
        logits: bool = False,
        past: Sequence[tuple[Tensor, Tensor]] | None = None,
    ) -> Mapping[str, Any]:
        """One forward pass over a batch, padded on the right; the caller says what is tracked.

        ``past``: keys and values of every layer, [B, G, S, d] each, of the first tokens, which do
        not run again, or of none; they are kept then, those that run too; returns: what the body
        returns, or with logits what the whole model returns and the body's ``last_hidden_state``;
        with a ``past`` also ``kept``, the same of all tokens.
        """
        self._check_length(max(item.length for item in items))
        if self.one_by_one and len({(item.length, len(item.target)) for item in items}) > 1:
            return _side_by_side([
                self.run([item], weights=weights, segments=segments, logits=logits)
                for item in items
            ])  # fmt: skip
        windows = self.windows if weights else None
        full = (logits and not self.no_logits) or (windows is not None and windows.needs_head)
        module = self.model if full else self.body
        accepted = inspect.signature(module.forward).parameters
        arguments: dict[str, Any] = self._features(items)
        if items[0].ids:
            inputs, mask = self._pad([item.ids for item in items])
            arguments |= {"input_ids": inputs, "attention_mask": mask}
        if self.seq2seq and not self.queries:
            targets, target_mask = self._pad([item.target for item in items])
            arguments |= {"decoder_input_ids": targets, "decoder_attention_mask": target_mask}
        if not self.masked:
            arguments = {name: x for name, x in arguments.items() if not name.endswith("_mask")}
        if segments and "token_type_ids" in accepted:
            arguments["token_type_ids"] = self._segments(items)
        if "use_cache" in accepted:
            arguments["use_cache"] = past is not None
        cache: Any = None
        if past is not None:
            from transformers import DynamicCache

            cache = DynamicCache()
            for layer, (key, value) in enumerate(past):
                cache.update(key, value, layer)
            # older versions of transformers call it past_key_values
            arguments["cache" if "cache" in accepted else "past_key_values"] = cache
            arguments["input_ids"] = inputs[:, cache.get_seq_length() :]
        arguments |= {"output_attentions": True} if weights else {}
        with self.lock, silenced(), masks_forgotten(), looking_at_all(self.body) as everywhere:
            if module is self.body:
                output: Mapping[str, Any] = module(**arguments, return_dict=True)
            else:
                with self._last_states() as states:
                    output = module(**arguments, return_dict=True)
                output = {**output, "last_hidden_state": states[-1]}
        if windows is not None:
            longest = max(item.length for item in items)
            output = windows.unrolled(output, longest, everywhere[-1] if everywhere else None)
        if cache is None:
            return output
        return {**output, "kept": tuple((layer.keys, layer.values) for layer in cache.layers)}

    def _segments(self, items: Sequence[Item]) -> Tensor:
        """Give segments of a batch [B, T]; the last one for those that the model does not know."""
        parts = [item.segments or (0,) * len(item.ids) for item in items]
        count = getattr(self.config, "type_vocab_size", None) or max(map(max, parts)) + 1
        return self._pad(parts, filler=0)[0].clamp(max=count - 1)

    def _check_length(self, longest: int) -> None:
        """Refuse a text in which the model would attend to blocks of keys."""
        if self.full_up_to is not None and longest > self.full_up_to[0]:
            limit, targets, remedy = self.full_up_to
            raise ModelError(
                f"this {self.family} model attends to {targets} in texts of more than {limit:,} "
                f"tokens, and this one has {longest:,}; {remedy}"
            )

    def _features(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """Return the features of a batch, one after the other."""
        shapes = {
            tuple((name, value.shape) for name, value in item.features.items()) for item in items
        }
        if len(shapes) > 1 or (items[0].features and len({item.length for item in items}) > 1):
            raise ModelError(
                "pictures or sounds that differ in size do not share a batch; run them one by one"
            )
        features = {}
        for name in items[0].features:
            value = torch.cat([item.features[name] for item in items]).to(self.device)
            features[name] = value.to(self.dtype) if value.is_floating_point() else value
        return features

    def measure(self, features: Mapping[str, Tensor]) -> int:
        """How many tokens the model, or its encoder, makes of a picture or a sound."""
        target = (self._generation("decoder_start_token_id") or 0,) if self.seq2seq else ()
        with refusing(f"this {self.family} model cannot run"), torch.no_grad():
            output = self.run([Item(target=target, features=features)])
        states = output.get("encoder_last_hidden_state" if self.seq2seq else "last_hidden_state")
        if self.queries:
            self.queries = output["last_hidden_state"].shape[1]
        if not isinstance(states, Tensor) or states.ndim != 3:
            raise ModelError(
                f"this {self.family} model makes no sequence of tokens; run yours inside of "
                "attnviz.watch(model)"
            )
        return states.shape[1]

    def example(self, features: Mapping[str, Tensor]) -> Item:
        """Return an item to try the model on, of the features of a picture or a sound."""
        length = self.measure(features)
        if self.queries:
            return Item((), (), tuple(range(self.queries)), features, length)
        ids = range(min(self.vocab_size, 100))
        target = tuple(ids[3 + n * 7 % max(1, len(ids) - 3)] for n in range(6))
        return Item((), (), target if self.seq2seq else (), features, length)

    @contextlib.contextmanager
    def _last_states(self) -> Iterator[list[Tensor]]:
        """Keep the last hidden states that a pass of the whole model inside the block has.

        The head may run the body, or its decoder alone (OPT, T5).
        """
        sought = (self.body, getattr(self.model, "get_decoder", lambda: None)())
        bodies = [part for part in self.body.modules() if any(part is body for body in sought)]
        states: list[Tensor] = []
        with listening(bodies, hook=lambda *call: states.append(call[-1][0])):
            yield states

    def padding(self, lengths: Sequence[int]) -> Tensor:
        """Bool [B, longest], True for real tokens."""
        positions = torch.arange(max(lengths), device=self.device)
        return positions < torch.tensor(lengths, device=self.device)[:, None]

    def write(
        self,
        item: Item,
        generation: Generation,
        tell: Callable[[int], None] | None = None,
        *,
        cache: bool = True,
    ) -> tuple[int, ...]:
        """Return what the model writes: after its tokens, or on the decoder's side of them.

        Its own ``generate`` runs, so that caches of every kind and what its generation settings
        say hold; greedy choices are its own, draws are made for it.
        """
        arguments: dict[str, Any] = self._features([item])
        if item.ids:
            inputs, mask = self._pad([item.ids])
            arguments |= {"inputs": inputs, "attention_mask": mask}
        cache = cache and not item.features
        try:
            with self._writing(), self._reading() as read:
                ids = self.model.generate(
                    **arguments,
                    max_new_tokens=generation.tokens,
                    num_beams=1,
                    do_sample=False,
                    use_cache=cache,
                    logits_processor=[] if generation.greedy else [Drawn(generation)],
                    streamer=None if tell is None else TokenStreamer(tell),
                )[0].tolist()
        except Exception as error:  # whatever a model's own code raises
            if cache:  # such as one for as many layers as the encoder has: the same, only slower
                return self.write(item, generation, tell, cache=False)
            if self.seq2seq and item.ids:
                self.teach(item.ids[:1])  # refuses where a target would fare no better
            raise ModelError(
                "this {} model cannot generate {}: {}",
                self.family,
                "the decoder's text" if self.seq2seq else "text",
                one_line(error),
                remedy="give it with {target}" if self.seq2seq else "",
                target=...,
            ) from error
        if not self.seq2seq:
            return tuple(ids[len(item.ids) :])
        if not cache and read and ids[: len(read)] != read:
            ids = read  # Whisper returns it without what stood before it
        return tuple(ids)

    def write_each(self, items: Sequence[Item], tokens: int) -> list[tuple[int, ...]]:
        """Write greedily with an encoder-decoder model on several texts, each as if it were alone.

        They are written side by side, with a cache where the model can. That it can shows the
        shortest, which has most padding beside others: it must be written as it is alone.
        """
        size = sum(weights.numel() for weights in self.model.parameters())
        with one_thread() if size < SMALL else contextlib.nullcontext():
            shortest = min(items, key=lambda item: len(item.ids))
            reference = self.write(shortest, Generation(tokens), cache=False)
            for cache in (True, False) if len(items) > 1 else ():
                with contextlib.suppress(Exception):  # a model's own code; of one text it says what
                    texts = self._side_by_side(items, tokens, cache)
                    if texts[items.index(shortest)] == reference:
                        return texts
            return [
                reference if item is shortest else self.write(item, Generation(tokens), cache=False)
                for item in items
            ]

    def _side_by_side(
        self, items: Sequence[Item], tokens: int, cache: bool
    ) -> list[tuple[int, ...]]:
        """:meth:`write_each` without a proof; as many at once as a batch may have."""
        order = sorted(range(len(items)), key=lambda number: -len(items[number].ids))
        results: dict[int, tuple[int, ...]] = {}
        while order:
            count = max(1, TOKENS_AT_ONCE // (len(items[order[0]].ids) + tokens))
            batch, order = order[:count], order[count:]
            inputs, mask = self._pad([items[number].ids for number in batch])
            with self._writing():
                rows = self.model.generate(
                    inputs=inputs, attention_mask=mask, max_new_tokens=tokens, num_beams=1,
                    do_sample=False, use_cache=cache,
                ).tolist()  # fmt: skip
            results |= {n: self._ended(row) for n, row in zip(batch, rows, strict=True)}
        return [results[number] for number in range(len(items))]

    def _ended(self, row: Sequence[int]) -> tuple[int, ...]:
        """Return what was written up to its end token, without what fills a row behind that."""
        ends = self.ends()
        stop = next((n for n, token in enumerate(row) if n and token in ends), len(row))
        return tuple(row[: stop + 1])

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the model, without a word of transformers' and of gradients, while it generates."""
        with self.lock, silenced(), torch.no_grad(), masks_forgotten():
            yield

    @contextlib.contextmanager
    def _reading(self) -> Iterator[list[int]]:
        """Keep the ids that the decoder reads last inside the ``with`` block."""
        read: list[int] = []

        def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            ids = kwargs.get("input_ids")
            if isinstance(ids, Tensor):
                read[:] = ids[0].tolist()

        if not self.seq2seq:
            yield read
            return
        with listening([self.model.get_decoder()], pre_hook=entering):
            yield read

    def teach(self, labels: Sequence[int]) -> tuple[int, ...]:
        """Return what the decoder reads when it is given the target ``labels``."""
        labels = without_end(labels, self.ends())
        first = self._generation("decoder_start_token_id")
        if labels and labels[0] == first:  # Whisper's tokenizer puts it in front
            labels = labels[1:]
        prepare = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        ends = self.ends()
        if prepare is not None and ends:
            # the shift to the right pushes the end token out (and mBART's turns it to the front)
            with contextlib.suppress(Exception):  # a model's own code, where no start is named
                shifted = prepare(labels=torch.tensor([[*labels, ends[0]]], device=self.device))
                return tuple(int(token) for token in shifted[0])
        start = self._generation("bos_token_id") if first is None else first
        if start is None:
            raise ModelError(
                f"the {self.family} model names no decoder_start_token_id in its configuration, "
                "without which its decoder cannot begin; add it to config.json"
            )
        return (int(start), *labels)

    @property
    def forced(self) -> dict[int, int]:
        """The ids that a decoder's text has at its first positions, behind the one it begins with.

        A language's, or what Whisper is told, as the configuration of generation names them.
        """
        first = self._generation("forced_bos_token_id")
        forced = {} if first is None else {1: int(first)}
        for position, token in self._generation("forced_decoder_ids") or ():
            if token is not None and position:
                forced[int(position)] = int(token)
        return forced

    def ends(self) -> tuple[int, ...]:
        """Return the ids that end a text."""
        end = self._generation("eos_token_id")
        if end is None:
            return ()
        return tuple(end) if isinstance(end, list | tuple) else (int(end),)

    def _generation(self, name: str) -> Any:
        value = getattr(self.config, name, None)
        if value is not None:
            return value
        return getattr(getattr(self.model, "generation_config", None), name, None)

    def _pad(
        self, rows: Sequence[Sequence[int]], filler: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Rows of ids as [B, longest], and which of them are real (1) or padding (0)."""
        if filler is None:
            filler = getattr(self.config, "pad_token_id", None)
            filler = filler if isinstance(filler, int) and 0 <= filler < self.vocab_size else 0
        longest = max(len(row) for row in rows)
        padded = [[*row, *[filler] * (longest - len(row))] for row in rows]
        real = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        like = torch.empty(0, device=self.device)
        ids, mask = on_torch.together([np.array(padded, np.int64), np.array(real, np.int64)], like)
        return ids, mask


def _side_by_side(outputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Join what several passes of one item each returned into a batch, with zeros behind."""
    batch: dict[str, Any] = {}
    for name, first in outputs[0].items():
        parts = [output[name] for output in outputs]
        if isinstance(first, Tensor) and first.ndim == 3:
            batch[name] = _padded(parts)
        elif isinstance(first, tuple) and all(isinstance(w, Tensor) and w.ndim == 4 for w in first):
            batch[name] = tuple(_padded(layer) for layer in zip(*parts, strict=True))
    return batch


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """States [1, T, D] or maps [1, H, T, S] as one tensor, with zeros behind the shorter ones."""
    shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    rows = []
    for part in parts:
        row = part.new_zeros(shape)
        row[tuple(slice(0, size) for size in part.shape)] = part
        rows.append(row)
    return torch.cat(rows)


def without_end(ids: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
    """Return the ids without a closing end token, if more than that is there."""
    return tuple(ids[:-1]) if len(ids) > 1 and ids[-1] in ends else tuple(ids)
