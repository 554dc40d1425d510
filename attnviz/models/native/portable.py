"""A native model as plain values, no torch among them, for a page that runs it.

Notation in shapes: V vocabulary, P positions, D width, F width of the feed-forward part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout
from attnviz.core.provenance import SourceInfo
from attnviz.errors import ModelError
from attnviz.models.native.network import ACTIVATIONS, Affine, NativeLayer, Network, Norm
from attnviz.models.native.words import Words
from attnviz.models.text import TokenReader


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer as plain values."""

    kind: str  # ``bytepairs`` (GPT-2, RoBERTa) or ``wordpieces`` (BERT)
    tokens: tuple[str, ...]  # every piece as the vocabulary spells it, by id
    texts: tuple[str, ...]  # every piece as a reader sees it, by id
    special: tuple[int, ...]  # ids of control tokens; ``separators`` of those that end a segment
    separators: tuple[int, ...]
    mask: int | None  # the id of the mask, or None
    before: tuple[int, ...]  # ids that stand before a text; ``after`` behind it
    after: tuple[int, ...]  # ids that stand behind a text
    # tokens that are found in the text before it is split: ``text``, ``id``, and whether white
    # space to their ``left`` and ``right`` belongs to them
    whole: tuple[Mapping[str, Any], ...]
    # what else the kind needs, by the names that the page's scripts use
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Portable:
    """A BERT or a GPT-2 as plain values."""

    source: SourceInfo  # where it comes from
    layout: Layout  # its heads
    causal: bool  # whether tokens see only those before them
    pre_norm: bool  # normalization before each sublayer and at the end, instead of after each
    activation: str  # ``gelu``, ``gelu_tanh`` or ``relu``
    eps: float  # of the normalizations
    scales: tuple[float, ...]  # the factor on the attention scores of each layer
    offset: int  # the first row of the positions that is used
    max_tokens: int  # the longest text
    inner: int  # F
    # name -> float32 array. ``tokens`` [V, D], ``positions`` [P, D], ``segment`` [D] of the first
    # segment where there is one, ``norm.weight`` and ``norm.bias`` [D]; of layer l ``l.project``
    # [3D, D], ``l.out`` [D, D], ``l.up`` [F, D], ``l.down`` [D, F], each with ``.weight`` and
    # ``.bias``, and ``l.norm1``, ``l.norm2``; of an LM head ``words.table`` [V, D] unless ``tied``,
    # ``words.bias`` [V], ``words.dense``, ``words.norm``
    tensors: Mapping[str, NDArray[np.float32]]
    words: bool  # whether it has an LM head; ``tied``: that multiplies with ``tokens``
    tied: bool
    vocabulary: Vocabulary  # its tokenizer


_ACTIVATIONS = {"gelu": "gelu", "relu": "relu"}
_PROBE = "a"
"""A text to see what a tokenizer puts around one."""

_LAST, _TAGS = 0x32400, range(0xE0000, 0xE0200)
"""Where Unicode has characters."""

_PLAIN_BPE = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "byte_fallback",
    "ignore_merges",
)
"""Settings of byte-pair encoding that must be empty."""


def portable(
    info: SourceInfo,
    layout: Layout,
    network: Network,
    words: Words | str,
    tokenizer: Tokenizer | None,
    reader: TokenReader,
) -> Portable:
    """Take a model apart."""
    if tokenizer is None:
        raise ModelError(f"{info.model} has no tokenizer, so no text can be typed into a page")
    config = network.config
    named = _ACTIVATIONS.get(config.activation, "gelu_tanh")
    assert config.activation in ACTIVATIONS
    return Portable(
        source=info,
        layout=layout,
        causal=config.family.kind == "decoder",
        pre_norm=config.family.pre_norm,
        activation=named,
        eps=config.eps,
        scales=tuple(config.scale(number) for number in range(config.layers)),
        offset=config.pad + 1 if config.family.from_padding else 0,
        max_tokens=config.max_tokens,
        inner=config.inner,
        tensors={
            name: np.ascontiguousarray(arrays.to_numpy(tensor), np.float32)
            for name, tensor in _tensors(network, words)
        },
        words=isinstance(words, Words),
        tied=isinstance(words, Words) and words.table is network.tokens,
        vocabulary=_vocabulary(info.model, tokenizer, reader, config.vocab),
    )


def _tensors(network: Network, words: Words | str) -> Iterator[tuple[str, Array]]:
    yield "tokens", network.tokens
    yield "positions", network.positions
    if network.segments is not None:
        yield "segment", network.segments[0]
    yield from _pair("norm", network.norm)
    for number, layer in enumerate(network.layers):
        yield from _layer(number, layer)
    if isinstance(words, Words):
        if words.table is not network.tokens:
            yield "words.table", words.table
        if words.bias is not None:
            yield "words.bias", words.bias
        if words.transform is not None:
            dense, _, norm = words.transform
            yield from _pair("words.dense", dense)
            yield from _pair("words.norm", norm)


def _layer(number: int, layer: NativeLayer) -> Iterator[tuple[str, Array]]:
    yield f"{number}.project.weight", arrays.joined([part.weight for part in layer.project])
    yield f"{number}.project.bias", arrays.joined([part.bias for part in layer.project])
    parts: tuple[tuple[str, Affine | Norm], ...] = (
        ("out", layer.out),
        ("norm1", layer.norm_1),
        ("up", layer.up),
        ("down", layer.down),
        ("norm2", layer.norm_2),
    )
    for name, part in parts:
        yield from _pair(f"{number}.{name}", part)


def _pair(name: str, part: Affine | Norm) -> Iterator[tuple[str, Array]]:
    yield f"{name}.weight", part.weight
    yield f"{name}.bias", part.bias


@lru_cache(maxsize=2)
def _vocabulary(model: str, tokenizer: Tokenizer, reader: TokenReader, size: int) -> Vocabulary:
    """Give the tokenizer as values; it says in JSON how it works, and a page asks several times."""
    raw = json.loads(tokenizer.to_str())
    kind = raw["model"]["type"]
    makers = {"BPE": _byte_pairs, "WordPiece": _word_pieces}
    if kind not in makers:
        raise _unknown(model, f"its model is {kind}")
    ids = raw["model"]["vocab"]
    pieces = [""] * max(size, max(ids.values(), default=0) + 1)
    for piece, number in ids.items():
        pieces[number] = piece
    before, after = _around(model, tokenizer)
    return Vocabulary(
        kind="bytepairs" if kind == "BPE" else "wordpieces",
        tokens=tuple(pieces),
        texts=tuple(reader.text(number) for number in range(len(pieces))),
        special=tuple(sorted(reader.special)),
        separators=tuple(sorted(reader.separators)),
        mask=next((ids[name] for name in ("[MASK]", "<mask>") if name in ids), None),
        before=before,
        after=after,
        whole=tuple(_whole(model, raw)),
        settings=makers[kind](model, tokenizer, raw, ids),
    )


def _around(model: str, tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what a tokenizer puts before and behind a text."""
    bare = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    full = tokenizer.encode(_PROBE).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return tuple(full[:start]), tuple(full[start + len(bare) :])
    raise _unknown(model, "it changes a text by the tokens around it")


def _whole(model: str, raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for token in raw["added_tokens"]:
        if token["single_word"] or (token["normalized"] and raw["normalizer"]):
            raise _unknown(model, f"it finds {token['content']} by a rule of its own")
        yield {
            "text": token["content"],
            "id": token["id"],
            "left": token["lstrip"],
            "right": token["rstrip"],
        }


def _byte_pairs(
    model: str, tokenizer: Tokenizer, raw: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, Any]:
    splitter = raw["pre_tokenizer"] or {}
    odd = [name for name in _PLAIN_BPE if raw["model"].get(name)]
    if splitter.get("type") != "ByteLevel" or splitter.get("use_regex") is False:
        raise _unknown(model, f"it splits by {splitter.get('type') or 'nothing'}")
    if odd or raw["normalizer"]:
        raise _unknown(model, f"it has {odd[0] if odd else 'a normalizer'}")
    merges: list[int] = []
    for merge in raw["model"]["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        merges += (ids[left], ids[right], ids[left + right])
    return {"merges": merges, "prefixSpace": bool(splitter.get("add_prefix_space"))}


def _word_pieces(
    model: str, tokenizer: Tokenizer, raw: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, Any]:
    cleaner, splitter, pieces = raw["normalizer"] or {}, raw["pre_tokenizer"] or {}, raw["model"]
    if splitter.get("type") != "BertPreTokenizer":
        raise _unknown(model, f"it splits by {splitter.get('type') or 'nothing'}")
    if cleaner.get("type") != "BertNormalizer":
        raise _unknown(model, f"it cleans by {cleaner.get('type') or 'nothing'}")
    lower, accents = bool(cleaner["lowercase"]), cleaner["strip_accents"]
    normalizer, pieces_of = tokenizer.normalizer, tokenizer.pre_tokenizer
    return {
        "dropped": _ranges(lambda char: not normalizer.normalize_str(char)),
        "signs": _ranges(lambda char: len(pieces_of.pre_tokenize_str(f"a{char}")) == 2),
        "unknown": ids[pieces["unk_token"]],
        "prefix": pieces["continuing_subword_prefix"],
        "longest": pieces["max_input_chars_per_word"],
        "clean": bool(cleaner["clean_text"]),
        "chinese": bool(cleaner["handle_chinese_chars"]),
        "accents": lower if accents is None else bool(accents),
        "lower": lower,
    }


def _ranges(predicate: Callable[[str], bool]) -> list[int]:
    """Return the code points of which something is true, as first, last, first, last.

    The tokenizer is asked about every one, for libraries and browsers follow different versions of
    Unicode.
    """
    ranges: list[int] = []
    for code in (*range(1, 0xD800), *range(0xE000, _LAST), *_TAGS):
        char = chr(code)
        if not predicate(char):
            continue
        if ranges and ranges[-1] == code - 1:
            ranges[-1] = code
        else:
            ranges += (code, code)
    return ranges


def _unknown(model: str, reason: str) -> ModelError:
    return ModelError(f"the tokenizer of {model} cannot be put into a page: {reason}")
