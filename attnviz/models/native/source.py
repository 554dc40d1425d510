"""A checkpoint of the native backend as a source of attention."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors
import tokenizers
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.provenance import SourceInfo, called
from attnviz.core.source import (
    PLAIN,
    Donor,
    ForwardRequest,
    Gate,
    Observer,
    Output,
    Past,
    Positions,
    at_positions,
)
from attnviz.core.threads import cores, one_blas_thread
from attnviz.core.tokens import Sides, Tokens
from attnviz.core.weights import (
    Embedding,
    OutputProjection,
    Reading,
    Readout,
    Sublayer,
    input_slices,
    output_slices,
)
from attnviz.errors import InputError, Message, ModelError, UsageError
from attnviz.models import limits, text
from attnviz.models.external_errors import muted, refusing
from attnviz.models.folder import Located, SmallFiles, ends
from attnviz.models.native.network import Cache, Network, Streamed
from attnviz.models.native.words import NativePass, Words, fill, rows_of, write
from attnviz.models.running import (
    Gated,
    begin,
    converted,
    merged,
    past_of_batch,
    running,
    running_on_numpy,
)

if TYPE_CHECKING:
    from attnviz.models.hooked.tokenizer import Texts
    from attnviz.models.native.portable import Portable
    from attnviz.models.traced import TracedPass

PAIRS = "BERT, DistilBERT and RoBERTa"
"""The families that are trained on two sentences at once."""

POST_NORM = (
    "each of its layers normalizes the sum of what it gets and what it adds, so that nothing "
    "reaches the output as it was written"
)
"""Why a post-norm model's logits are no sum over heads."""

MOST_WEIGHTS, MOST_PRODUCTS = 1 << 25, 1 << 35
"""Attention weights and multiplications of a pass, of all layers, above which it runs on torch:
its threads then save more than importing it takes."""

MOST_TOKENS, SMALL = 400, 1 << 22
"""Tokens of a batch of several texts above which it runs on torch, which is faster there; and
multiplications a token up to which a model's batches do not: they are over before torch is
imported."""


def _version(library: str) -> str:
    """Of a library, which need not be imported for that; empty where it is not installed."""
    module = sys.modules.get(library)
    if module is not None:
        return str(module.__version__)
    from importlib import metadata

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _once(gate: Gate | None, donors: Sequence[Donor], items: int) -> bool:
    """Whether a layer may read its input once for runs that its gate or donors tell apart."""
    shares = [donor.share for donor in donors] + ([] if gate is None else [gate.share])
    batched = [share for share in shares if share.ndim > 1 and len(share) == items]
    return bool(batched) and (gate is None or gate.share.ndim == 2)


def _ends(request: ForwardRequest) -> Positions:
    """Give the positions that are needed behind the last layer's attention; None for all."""
    if request.states or request.mlps or (request.hidden and request.ends is None):
        return None
    return request.asked


def _changed(network: Network, change: Callable[[Array], Array]) -> Network:
    """Return a network with every tensor changed; layers that are streamed as they are read."""
    layers = network.layers
    changed = arrays.mapped(network, change)
    if isinstance(layers, Streamed):
        streamed = Streamed(lambda number: arrays.mapped(layers.read(number), change), layers.count)
        return replace(changed, layers=streamed)
    return changed


class Native(Gated):
    """BERT, GPT-2 and their relatives, run by attnviz itself."""

    def __init__(
        self,
        located: Located,
        network: Network,
        tokenizer: Tokenizer | None,
        words: Callable[[], Words | str],
    ) -> None:
        self._stored, self._tokenizer, self._name = network, tokenizer, located.name
        self._located, self._small_files = located, SmallFiles(located.folder)
        self._read_words, self._ends = words, ends(located.folder, located.config)
        self._texts: Texts | None = None
        self._reader = text.unnamed_reader() if tokenizer is None else text.reader(tokenizer)
        self._either, self._whole_model = False, self
        table = network.tokens
        light = isinstance(table, np.ndarray)
        device = "cpu" if light else str(table.device)
        dtype = str(table.dtype).removeprefix("torch.")
        exact = f"in {dtype}"
        if dtype == "float32":
            family, settings = located.config["model_type"], network.config.settings
            exact = f"checked against transformers to 1e-5 on small {family} models with {settings}"
        self._info = SourceInfo(
            model=called(located.name),
            backend="native",
            exactness=f"attnviz's own forward pass, {exact}",
            device=device,
            dtype=dtype,
            versions={"tokenizers": tokenizers.__version__, "safetensors": safetensors.__version__},
        )
        self._ran: set[str] = set()

    @property
    def info(self) -> SourceInfo:
        """Where its weights come from, and the versions of what runs it."""
        ran = self._ran or {"numpy" if self._either else "torch"}
        versions = {name: version for name in sorted(ran) if (version := _version(name))}
        return replace(self._info, versions=versions | dict(self._info.versions))

    @info.setter
    def info(self, info: SourceInfo) -> None:
        self._info = replace(info, versions=self._info.versions)

    def add_versions(self, versions: Mapping[str, str]) -> None:
        """Say of passes of this model in another process what they ran on."""
        self._ran |= versions.keys() & {"numpy", "torch"}

    @contextmanager
    def running_on(self) -> Iterator[set[str]]:
        """Name the libraries that passes inside the ``with`` block run on, known at its end."""
        earlier = self._ran
        self._ran = ran = set[str]()
        try:
            yield ran
        finally:
            self._ran = earlier | ran

    @property
    def light(self) -> Native:
        """The same model, which may give NumPy arrays in place of tensors: no torch is needed.

        Arrays of one pass are of one kind. Of models that run elsewhere than on a CPU in float32,
        the model itself.
        """
        if not isinstance(self._stored.tokens, np.ndarray) or self._either:
            return self
        view = copy(self)
        view._either, view._ran = True, set()
        return view

    def _hash(self) -> str | None:
        """Of the configuration, every number, the files, and the library that takes them.

        None of a model that memory does not hold: it would be read for that alone.
        """
        files = self._small_files.digest()
        network = self._stored
        large = isinstance(network.layers, Streamed) or limits.beyond(4 * network.config.matrices)
        if not isinstance(network.tokens, np.ndarray) or files is None or large:
            return None
        config = json.dumps(self._located.config, sort_keys=True)
        digest = hashlib.sha256(f"{config} {files} {self._either}".encode())

        def read(numbers: Array) -> Array:
            array = np.ascontiguousarray(arrays.to_numpy(numbers))
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.data.cast("B") if array.size else b"")
            return numbers

        _changed(self._stored, read)
        arrays.mapped(self._stored_words, read)
        return digest.hexdigest()

    @property
    def _gated_model(self) -> Native:
        return self._whole_model

    @property
    def _network(self) -> Network:
        """The network, of the kind of arrays that is given to whoever asks for them."""
        return self._stored if self._either else self._whole_model._on_torch

    @property
    def _words(self) -> Words | str:
        """The LM head, or why there is none."""
        model = self._whole_model
        return model._stored_words if self._either else model._words_on_torch

    @cached_property
    def _stored_words(self) -> Words | str:
        """The LM head, read when it is first needed."""
        return self._read_words()

    @cached_property
    def _on_torch(self) -> Network:
        """The same numbers in the same memory."""
        return _changed(self._stored, arrays.to_torch)

    @cached_property
    def _words_on_torch(self) -> Words | str:
        words = arrays.mapped(self._stored_words, arrays.to_torch)
        shared = isinstance(self._stored_words, Words) and (
            self._stored_words.table is self._stored.tokens
        )
        if isinstance(words, Words) and shared:
            return replace(words, table=self._on_torch.tokens)
        return words

    @property
    def architecture(self) -> str:
        """The class that its checkpoint names; empty for none, and for random weights."""
        named = self._located.config.get("architectures")
        first = named[0] if isinstance(named, list) and named else ""
        return "" if self._info.untrained else str(first)

    @property
    def _pre_norm(self) -> bool:
        return self._stored.config.family.pre_norm

    @property
    def folder(self) -> Path:
        """Where its checkpoint lies."""
        return self._located.folder

    @property
    def layout(self) -> Layout:
        """The same number of heads in every layer."""
        config = self._stored.config
        return Layout({config.family.kind: (config.heads,) * config.layers})

    @property
    def max_tokens(self) -> int:
        """The positions that the model was trained with."""
        return self._stored.config.max_tokens

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return self._stored.config.vocab

    def prepare(self, prompt: Prompt) -> Inputs:
        """Tokenize a prompt. Ids are taken as they are: nothing is added to them."""
        limits.check_prompt(prompt, decoder=False)
        kind = self._stored.config.family.kind
        if prompt.pair is not None and kind == "decoder":
            raise UsageError(
                "{} reads one text, not a pair; {} models take {pair}", self._name, PAIRS, pair=...
            )
        notes: list[str] = []
        if prompt.chat is not None:
            from attnviz.models.chat import as_text
            from attnviz.models.hooked.tokenizer import load_texts

            if self._texts is None:  # here, since the time of a template is bounded
                self._texts = load_texts(self._located.folder, self._name)
            prompt, chat_notes = as_text(prompt, self._texts.render, self._name)
            notes += chat_notes
        ids, offsets = prompt.ids, None
        if ids is None:
            tokens, offsets = self._encode(prompt)
        else:
            tokens = self._reader.tokens(ids)
            notes += limits.segment_notes(tokens) if self._stored.config.segments > 1 else ()
        if not len(tokens):
            raise InputError("the text has no tokens; give at least one word")
        limits.check_ids(tokens.ids, self.vocab_size)
        limit = limits.longest(prompt, self.max_tokens, self.max_tokens) or self.max_tokens
        note = limits.check_length(len(tokens), limit, truncate=prompt.truncate)
        if note:
            tokens, offsets = self._cut(prompt, tokens, limit)
            notes.append(note)
        tokens = text.spanned(tokens, prompt, offsets, notes)
        if prompt.generate is not None:
            tokens = self._go_on(tokens, prompt.generate, limit)
            notes.append(limits.written(tokens, prompt.generate))
        inputs = Inputs({kind: Sides(tokens, tokens)}, tuple(notes))
        if prompt.reply is None:
            return inputs
        from attnviz.models.chat import compared

        return compared(self, inputs, prompt.reply)

    def _go_on(self, tokens: Tokens, generation: Generation, limit: int) -> Tokens:
        """Return the tokens and what the model writes after them."""
        limits.check_generation(generation, len(tokens), limit)
        kind, ids = self._stored.config.family.kind, list(tokens.ids)
        item = Inputs({kind: Sides(tokens, tokens)})
        network, words = self._running([item], grad=False)
        reason = f"{self._name} reads texts in both directions and generates none"
        if kind == "decoder":
            reason = words if isinstance(words, str) else ""
        if reason or isinstance(words, str):
            raise limits.no_writer(generation, reason)
        like = network.tokens
        prompt = arrays.of(like).asarray([ids], arrays.of(like).int64, like)
        standing, cuts = converted(self._standing, like), self._cuts({}, like)
        with (
            limits.telling(generation, tokens, self._reader.text) as tell,
            self._tracking([item], like),
        ):
            for token in write(network, words, prompt, generation, self._ends, standing, cuts):
                ids.append(token)
                tell(token)
        continued = self._reader.tokens(ids)
        return replace(continued, written=len(ids) - len(tokens), spans=tokens.spans)

    @property
    def no_logits(self) -> str:
        """Why the model gives no logits; empty where it does."""
        words = self._whole_model._stored_words
        return words if isinstance(words, str) else ""

    @property
    def start_kind(self) -> SiteKind:
        """A pass can begin at any layer."""
        return self._stored.config.family.kind

    @property
    def continues(self) -> bool:
        """A decoder's tokens do not depend on those behind them."""
        return bool(self._stored.config.family.kind == "decoder")

    @property
    def concurrent(self) -> int:
        """Passes share nothing that they change; of streamed layers only one is to be in memory."""
        if self._info.device != "cpu":
            return 0
        return 1 if isinstance(self._stored.layers, Streamed) else cores()

    def forward(
        self,
        batch: Sequence[Inputs],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Output:
        """Run a batch; see :class:`~attnviz.core.source.Source`."""
        start = request.start
        network, head = self._running(batch, grad=request.grad, words=request.logits)
        like, words = network.tokens, head if isinstance(head, Words) else None
        padding = None if self.start_kind == "decoder" else self._arrange(batch, like)[2]
        full = request.hidden or request.states or request.mlps or words is not None
        standing = merged(self._standing, request.gates or {}, like)
        donors = {
            site: [donor.converted(like) for donor in several]
            for site, several in (request.donors or {}).items()
        }
        cuts = self._cuts(request.cuts or {}, like)
        keeps_states = request.states or request.mlps
        with self._tracking(batch, like, grad=request.grad, states=keeps_states):
            cache = None
            if request.keep or request.past is not None:
                cache = Cache(past_of_batch(request.past, len(batch), like))
            if start is None:
                ids, segments, _ = self._arrange(batch, like)
                past = 0 if cache is None else cache.length
                first, x = 0, network.embed(ids[:, past:], segments[:, past:], start=past)
            else:
                site = Site(self.start_kind, start.layer)
                once = _once(standing.get(site), donors.get(site, ()), len(batch))
                once = once and not observers and not request.states and site not in cuts
                start = replace(start, hidden=arrays.converted(start.hidden, like))
                first, x = start.layer, begin(self._name, start, batch, self.layout, once=once)
            states = [x] if request.states else []
            added: list[Array] = []
            end = None if start is None else start.end
            positions = _ends(request) if end is None else None
            if first == len(self._stored.layers):
                x = at_positions(x, positions)
            layers = network.run(
                x,
                first,
                padding,
                observers,
                standing,
                donors=donors,
                cuts=cuts,
                end=end,
                full=full,
                positions=positions,
                mlps=added if request.mlps else None,
                cache=cache,
            )
            for x in layers:
                if request.states:
                    states.append(x)
            if not full:
                return Output()
            last = network.close(x)
            narrow = last
            if positions is None:
                last, narrow = at_positions(last, request.ends), at_positions(last, request.asked)
            return Output(
                last if positions is None or request.hidden else None,
                None if words is None else words(narrow),
                tuple(states),
                tuple(added),
                Past(cache.layers) if cache is not None and request.keep else None,
            )

    def traced(self, inputs: Inputs) -> TracedPass | None:
        """Return a pass of one text with its variables; None where heads are gated."""
        if self._standing:
            return None
        passed = NativePass()
        request = ForwardRequest(hidden=False, states=True, mlps=True, terms=True)
        output = self.forward([inputs], [passed], request)
        like = output.states[0]
        network = self._network
        if arrays.of(network.tokens) is not arrays.of(like):
            network = self._whole_model._on_torch
        ids, segments, _ = self._arrange([inputs], like)
        with one_blas_thread():
            fill(passed, network, network.embedded(ids, segments), output.mlps)
        return passed

    no_sum = ""

    def output(self, site: Site) -> OutputProjection:
        """W_O and b_O of a layer."""
        out = self._network.layers[site.layer].out
        return OutputProjection(output_slices(out.weight, self._stored.config.heads), out.bias)

    def sublayer(self, site: Site) -> Sublayer:
        """Return the residual connection around a layer's attention, and its normalization."""
        norm = self._network.layers[site.layer].norm_1
        return Sublayer("pre" if self._pre_norm else "post", norm.normalization)

    def reading(self, site: Site) -> Reading:
        """W_Q, W_K and W_V of a layer, and the normalizations around them."""
        config, layer = self._stored.config, self._network.layers[site.layer]
        query, key, value = (
            input_slices(rows, config.heads)
            for affine in layer.project
            for rows in rows_of(affine.weight, config.width)
        )
        biases = [
            rows.reshape(config.heads, -1)
            for affine in layer.project
            for rows in rows_of(affine.bias, config.width)
        ]
        first, second = layer.norm_1.normalization, layer.norm_2.normalization
        return Reading(
            query,
            key,
            value,
            biases[0],
            biases[1],
            norm=first if self._pre_norm else None,
            after=() if self._pre_norm else (first, second),
            scale=config.scale(site.layer),
            causal=config.family.kind == "decoder",
        )

    def embedding(self) -> Embedding:
        """Return the tables of tokens and positions; segments are left out."""
        network, config = self._network, self._stored.config
        positions = network.positions[config.positions - config.max_tokens :]  # that tokens get
        norm = None if self._pre_norm else network.norm.normalization
        return Embedding(network.tokens, positions, norm)

    def readout(self) -> Readout:
        """How the residual stream becomes logits; BERT and its like have no such sum."""
        if not self._pre_norm:
            return Readout(None, reason=POST_NORM)
        words, norm = self._words, self._network.norm
        if isinstance(words, str):
            return Readout(None, reason=words)
        return Readout(words.table, norm.weight, norm.eps, norm.bias, words.bias)

    def tokens(self, ids: Sequence[int]) -> Tokens:
        """Return what ids stand for."""
        return self._reader.tokens(ids)

    def portable(self) -> Portable:
        """Return the whole model as plain values; ModelError where its tokenizer cannot be."""
        from attnviz.models.native.portable import portable

        network, words = self._stored, self._whole_model._stored_words
        return portable(self.info, self.layout, network, words, self._tokenizer, self._reader)

    def rounded(self, change: Callable[[Array], Array]) -> Native:
        """Return the same model with every tensor changed, to see what coarser numbers do."""
        words, network = arrays.mapped(self._words, change), _changed(self._network, change)
        model = Native(self._located, network, self._tokenizer, lambda: words)
        return model.light if self._either else model

    def _running(
        self, batch: Sequence[Inputs], *, grad: bool, words: bool = True
    ) -> tuple[Network, Words | str]:
        """Give what a batch runs on, and the LM head where it is wanted, of one kind of arrays."""
        if grad or self._long(batch):
            model = self._whole_model
            return model._on_torch, model._words_on_torch if words else ""
        return self._network, self._words if words else ""

    def _tracking(
        self, batch: Sequence[Inputs], like: Array, *, grad: bool = False, states: bool = False
    ) -> AbstractContextManager[None]:
        """Return a pass where ``like`` is; see :func:`~attnviz.models.running.running`."""
        if isinstance(like, np.ndarray):
            self._ran.add("numpy")
            return running_on_numpy(self._name, batch)
        self._ran.add("torch")
        return running(self._name, batch, like.device, grad=grad, states=states)

    def _long(self, batch: Sequence[Inputs]) -> bool:
        """Whether a pass is for torch; its sizes alone say so, whatever runs beside it."""
        config, longest = self._stored.config, max(item.length for item in batch)
        tokens = len(batch) * longest
        weights = config.layers * config.heads * tokens * longest
        matrices = config.matrices
        several = len(batch) > 1 and tokens > MOST_TOKENS and matrices > SMALL
        return several or weights > MOST_WEIGHTS or matrices * tokens > MOST_PRODUCTS

    def _arrange(self, batch: Sequence[Inputs], like: Array) -> tuple[Array, Array, Array | None]:
        """Ids and segments, int64 [B, T], and which tokens are real, bool [B, T] or None."""
        config, lib = self._stored.config, arrays.of(like)
        kind = config.family.kind
        items = [item.sides[kind].queries for item in batch]
        lengths = np.array([len(item) for item in items])
        ids = _stacked([item.ids for item in items])
        segments = _stacked([item.segments for item in items]).clip(max=max(config.segments - 1, 0))
        real = np.arange(ids.shape[1]) < lengths[:, None]
        ids, segments, padding = lib.together((ids, segments, real), like)
        # a decoder's tokens never see what comes after them
        return ids, segments, None if kind == "decoder" or real.all() else padding

    def _encode(self, prompt: Prompt) -> tuple[Tokens, text.Offsets]:
        """Return the tokens of a text, and the characters that they stand for."""
        if self._tokenizer is None:
            raise ModelError(
                "{} has no tokenizer (tokenizer.json or vocabulary files) in its folder",
                self._name,
                remedy="add it, or give token ids with {ids}",
                ids=...,
            )
        message = f"the tokenizer of {self._name} cannot read this text"
        with refusing(message, Message("give token ids with {ids}", ids=...)), muted():
            read = self._tokenizer.encode(
                prompt.text or "", prompt.pair, add_special_tokens=prompt.special_tokens
            )
        offsets = text.offsets_in_text(read.offsets, read.sequence_ids)
        owners = None
        if prompt.words is not None:
            owners = text.owners(prompt.text or "", prompt.words, offsets)
        sentences = (prompt.text, prompt.pair)
        tokens = self._reader.tokens(
            read.ids,
            segments=read.type_ids,
            added=read.special_tokens_mask,
            owners=owners,
            encoded=text.Encoded(sentences, read.offsets, read.sequence_ids, read.word_ids),
        )
        return tokens, offsets

    def _cut(
        self, prompt: Prompt, tokens: Tokens, limit: int
    ) -> tuple[Tokens, text.Offsets | None]:
        """Cut to a length; special tokens at the end stay, of a pair the longer goes."""
        if prompt.ids is None and self._tokenizer is not None:
            self._tokenizer.enable_truncation(limit, strategy="longest_first")
            try:
                tokens, offsets = self._encode(prompt)
            finally:
                self._tokenizer.no_truncation()
            if len(tokens) > limit:  # its special tokens alone are too many
                raise InputError(
                    "the model takes at most {:,} tokens, its special tokens among them",
                    limit,
                    remedy="leave them out with {special_tokens}",
                    special_tokens=False,
                )
            return tokens, offsets
        return self._reader.tokens(limits.cut(tokens.ids, tokens.special, limit)), None


def _stacked(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Pad with zeros on the right, [B, T]."""
    stacked = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for number, row in enumerate(rows):
        stacked[number, : len(row)] = row
    return stacked
