"""A fresh attention layer (or a few) on a sentence: nothing learned, everything reproducible.

A token's embedding is a function of its text and the seed alone, so equal words are equal vectors
and a result repeats on every machine. Sinusoidal positions are added (Vaswani et al. 2017, section
3.5); several layers are stacked with residual connections and layer normalization after each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import normalizers, pre_tokenizers
from torch import Tensor

from attnviz.attention.layers import MultiHeadAttention, build_layer
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.provenance import SourceInfo
from attnviz.core.source import PLAIN, ForwardRequest, Observer, Output, at_positions
from attnviz.core.tokens import Sides, Tokens
from attnviz.core.weights import (
    Embedding,
    Normalization,
    OutputProjection,
    Reading,
    Readout,
    Sublayer,
    input_slices,
    output_slices,
)
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.models.controls import FreshConfig
from attnviz.models.device import torch_dtype
from attnviz.models.limits import SENSES, check_length, longest, no_writer
from attnviz.models.running import Gated, begin, merged, running
from attnviz.models.text import Offsets, spanned

_LONGEST = 1 << 14
"""Tokens of a text at most: the time that attention takes grows with their square."""

_EPS = 1e-5  # ε of the layers' normalizations


class Fresh(Gated):
    """A stack of fresh layers as a source of attention."""

    max_tokens: int | None = _LONGEST
    vocab_size: int | None = None
    no_logits = "an untrained layer has no vocabulary"

    def __init__(self, config: FreshConfig, device: str = "cpu", dtype: str = "float32") -> None:
        sizes = config.check()
        self.config = config
        self._device, self._dtype = torch.device(device), torch_dtype(dtype)
        generator = torch.Generator().manual_seed(config.seed)
        self._layers = [
            build_layer(
                config.kind,
                config.d_model,
                config.heads,
                kv_heads=config.kv_heads,
                bias=config.bias,
                causal=config.causal,
                seed=generator,
            )
            .eval()
            .requires_grad_(False)
            .to(self._device, self._dtype)
            for _ in range(config.layers)
        ]
        shared = f", {sizes.kv_heads} kv-heads" if sizes.kv_heads != config.heads else ""
        causal = ", causal" if config.causal else ""
        plural = "s" if config.layers > 1 else ""
        self.info = SourceInfo(
            model=f"fresh {config.kind}, {config.layers} layer{plural} of {config.heads} heads"
            f"{shared}, d-model {config.d_model}{causal}, seed {config.seed}",
            backend="untrained",
            exactness="random weights, nothing learned",
            device=device,
            dtype=dtype,
            versions={"torch": torch.__version__},
        )

    @property
    def _here(self) -> Tensor:
        return torch.empty(0, device=self._device)

    @property
    def kind(self) -> SiteKind:
        """Cross-attention for kind cross, else a decoder's or an encoder's self-attention."""
        if self.config.kind == "cross":
            return "cross"
        return "decoder" if self.config.causal else "encoder"

    @property
    def start_kind(self) -> SiteKind:
        """A pass can begin at any layer."""
        return self.kind

    @property
    def layout(self) -> Layout:
        """The same number of heads in every layer."""
        return Layout({self.kind: (self.config.heads,) * self.config.layers})

    def prepare(self, prompt: Prompt) -> Inputs:
        """Split the text into words."""
        for name in SENSES:
            if getattr(prompt, name) is not None:
                raise UsageError(
                    "a fresh layer reads words; {model} takes the name of a model that reads {}",
                    SENSES[name],
                    model=...,
                )
        if prompt.chat is not None:
            raise UsageError(
                "a fresh layer has no chat template; name a trained {model}", model=...
            )
        if prompt.text is None:
            raise UsageError("a fresh layer has no vocabulary; give text instead of ids")
        if prompt.words is not None:
            raise UsageError(
                "a fresh layer splits text into words by itself; name a trained {model}", model=...
            )
        if prompt.generate is not None:
            raise no_writer(prompt.generate, "a fresh layer has no vocabulary")
        if prompt.target is not None:
            raise UsageError(
                "{target} needs a trained model that takes one; see {model}", target=..., model=...
            )
        if self.kind == "cross" and prompt.pair is None:
            raise UsageError("cross-attention needs the other sentence: add {pair}", pair=...)
        if self.kind != "cross" and prompt.pair is not None:
            raise UsageError(
                "{pair} makes cross-attention; leave out {kind}", pair=..., kind=self.config.kind
            )
        notes: list[str] = []
        queries, offsets = _read(prompt.text, "the text", notes, prompt)
        queries = keys = spanned(queries, prompt, offsets, notes)
        if prompt.pair is not None:
            keys, _ = _read(prompt.pair, "the pair", notes, prompt)
        return Inputs({self.kind: Sides(queries, keys)}, tuple(notes))

    def embed(self, tokens: Tokens) -> Tensor:
        """Embeddings plus positions, [T, D] in float32 on the CPU."""
        vectors = [embedding(t, self.config.d_model, self.config.seed) for t in tokens.texts]
        return torch.from_numpy(np.stack(vectors) + sinusoids(len(tokens), self.config.d_model))

    def forward(
        self,
        batch: Sequence[Inputs],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Output:
        """Run the layers, which have no feed-forward part."""
        start = request.start
        sides = [item.sides[self.kind] for item in batch]
        standing = merged(self._standing, request.gates or {}, self._here)
        donors = request.donors or {}
        cuts = self._cuts(request.cuts or {}, self._here)
        with running(
            self.info.model, batch, self._device, grad=request.grad, states=request.states
        ):
            x, padding = self._stack([side.queries for side in sides])
            context = None
            if self.kind == "cross":
                context, padding = self._stack([side.keys for side in sides])
            first, end = 0, None
            if start is not None:
                end = start.end
                first, x = start.layer, begin(self.info.model, start, batch, self.layout)
            states = [x] if request.states else []
            for number, layer in enumerate(self._layers[first:end], start=first):
                site = Site(self.kind, number)
                attended = layer(
                    x,
                    context,
                    padding=padding,
                    gate=standing.get(site),
                    donors=donors.get(site, ()),
                    cuts=cuts.get(site),
                    residual=x,
                    site=site,
                    observers=observers,
                )
                x = F.layer_norm(x + attended, (self.config.d_model,), eps=_EPS)
                if request.states:
                    states.append(x)
            return Output(at_positions(x, request.ends), None, tuple(states))

    def output(self, site: Site) -> OutputProjection:
        """W_O and b_O of a layer."""
        out = self._layers[site.layer].w_o
        return OutputProjection(output_slices(out.weight, self.config.heads), out.bias)

    def sublayer(self, site: Site) -> Sublayer:
        """Return a normalization after the sum, with γ = 1 and β = 0."""
        scale = torch.ones(self.config.d_model, device=self._device, dtype=self._dtype)
        return Sublayer("post", Normalization(scale, _EPS))

    @property
    def no_sum(self) -> str:
        """Empty: every layer adds to what it got, and normalizes the sum."""
        return ""

    def reading(self, site: Site) -> Reading:
        """W_Q, W_K and W_V of a layer; none for latent and for cross-attention."""
        layer, norm = self._layers[site.layer], self.sublayer(site).norm
        if not isinstance(layer, MultiHeadAttention) or self.kind == "cross":
            reason = "latent attention makes keys in two steps"
            return Reading(reason="it reads two sequences" if self.kind == "cross" else reason)
        shared, bias = layer.kv_heads, self.config.bias
        return Reading(
            input_slices(layer.w_q.weight, layer.heads),
            input_slices(layer.w_k.weight, shared),
            input_slices(layer.w_v.weight, shared),
            layer.w_q.bias.view(layer.heads, -1) if bias else None,
            layer.w_k.bias.view(shared, -1) if bias else None,
            after=() if norm is None else (norm,),
            scale=float(layer.head_dim**-0.5),
            causal=self.config.causal,
        )

    def embedding(self) -> Embedding:
        """None: words get random vectors."""
        return Embedding(reason=self.no_logits)

    def readout(self) -> Readout:
        """None: nothing is predicted."""
        return Readout(None, reason=self.no_logits)

    def tokens(self, ids: Sequence[int]) -> Tokens:
        """None: there are no ids."""
        raise ModelError("a fresh layer has no vocabulary; give text instead of ids")

    def _stack(self, sequences: list[Tokens]) -> tuple[Tensor, Tensor | None]:
        """Pad on the right: [B, T, D] and its padding mask [B, T], None where nothing is padded."""
        lengths = torch.tensor([len(tokens) for tokens in sequences])
        x = torch.nn.utils.rnn.pad_sequence(
            [self.embed(tokens) for tokens in sequences], batch_first=True
        )
        x = x.to(self._device, self._dtype)
        if (lengths == lengths[0]).all():
            return x, None
        padding = torch.arange(x.shape[1]) < lengths[:, None]
        return x, padding.to(self._device)


def _read(text: str, label: str, notes: list[str], prompt: Prompt) -> tuple[Tokens, Offsets]:
    """Return the words of a text, cut where there are too many and that is wanted; a note says so.

    With the characters that they stand for.
    """
    tokens, end = split_words(text), 0
    limit = longest(prompt, _LONGEST, _LONGEST)
    note = check_length(len(tokens), limit, truncate=prompt.truncate, label=label)
    if note:
        notes.append(note)
        tokens = Tokens(tokens.texts[:limit])
    offsets = []
    for word in tokens.texts:
        start = text.find(word, end)  # nowhere where a control character was inside of it
        end = end if start < 0 else start + len(word)
        offsets.append((0, 0) if start < 0 else (start, end))
    return tokens, offsets


def split_words(text: str) -> Tokens:
    """Words and punctuation marks, Han characters one by one, as Unicode defines them."""
    normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))
    if not pieces:
        raise InputError(f"no word in the text {text[:40]!r}; give at least one")
    return Tokens(tuple(piece for piece, _ in pieces))


def embedding(text: str, width: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Embed a token, [D]: SHAKE-256 of the seed and the text as uniform numbers, variance 1.

    A hash rather than a random generator, because its stream is fixed by a standard (FIPS 202).
    """
    stream = hashlib.shake_256(f"{seed}\x00{text}".encode("utf-8", "surrogatepass"))
    integers = np.frombuffer(stream.digest(4 * width), dtype="<u4")
    uniform = (integers.astype(np.float64) + 0.5) / 2**32  # in (0, 1)
    return ((2 * uniform - 1) * 3**0.5).astype(np.float32)


def sinusoids(length: int, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Sinusoidal positions, [T, D]: sin and cos of position / 10000^(2i / D), interleaved."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return waves.reshape(length, -1)[:, :width].astype(np.float32)
