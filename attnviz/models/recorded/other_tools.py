"""Other tools' formats: tensors by the names of modules, and Inseq's JSON.

TransformerLens names hooks: ``blocks.0.attn.hook_pattern`` [batch, head, query, key], of weights,
and ``hook_attn_scores`` before it. nnsight saves what a module returned under whatever name its
user gives it, mostly the module's path: ``transformer.h.0.attn``, a tuple with the weights in it.

Inseq saves of its method ``attention`` a JSON document with safetensors inside:
``source_attributions`` and ``target_attributions`` are [keys, queries, layers, heads]. A column is
of a word that was generated, and holds the weights of the query before it, which wrote that word;
what it did not see is NaN.

A vLLM server built from pull request 35014, which is not merged, answers a chat with
``attn_capture_data``: for each layer the weights [queries, heads, keys], packed.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnviz.attention.spec import MAX_LAYERS
from attnviz.core.arrays import is_array
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.media import PATCH
from attnviz.core.record import parsed
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.files import contents, inflated, open_regular
from attnviz.models.containers import (
    check_file,
    check_packed,
    list_arrays,
    read_array,
    read_arrays,
    read_tensors,
)
from attnviz.models.external_errors import one_line
from attnviz.models.recorded import arrays, format, layouts
from attnviz.models.recorded.arrays import ArrayOptions
from attnviz.models.recorded.format import BY_KIND, JSON, PLAIN, SUFFIXES, Array
from attnviz.models.recorded.layouts import sizes_of
from attnviz.models.recorded.reading import Stored
from attnviz.models.text import marked

Layers = Mapping[int, Any]
"""An array for each layer that was recorded, by its number."""

UNNAMED = "The tokens are not recorded, so positions are shown as numbers."


@dataclass(frozen=True)
class Imported:
    """Attention in another tool's format."""

    format: str  # what it is, in words: ``a TransformerLens cache``
    # [heads, queries, keys] or a batch of that, by kind of layer and number; None for a single
    # stack that does not say of which kind it is
    layers: Mapping[SiteKind | None, Layers] = field(default_factory=dict)
    tokens: Tokens | None = None  # of the queries; None where they are not recorded
    source_tokens: Tokens | None = None  # of the keys of cross-attention
    notes: tuple[str, ...] = ()  # sentences that the reader must not miss
    # a model's output, or whatever else has the axes of one, in place of ``layers``
    output: Any = None
    layout: str | None = None  # the axes of an array, where the format tells
    name: str = ""  # of the file
    chosen: bool = False  # whether it is one of several items already

    @property
    def items(self) -> int:
        """How many items the batch has; 1 where it is none."""
        return sizes_of(next(iter(self._given().values())), None)[2]

    def sequence(self, item: int | None) -> Imported:
        """Return what holds an item: this itself, of which :meth:`capture` takes it."""
        return self

    def _given(self) -> dict[SiteKind | None, Any]:
        """Return the layers of every kind, in order."""
        if isinstance(self.output, Mapping):
            return arrays.by_kind(self.output, True, None)
        if self.output is not None:
            return {None: self.output}
        return {k: [maps[n] for n in sorted(maps)] for k, maps in self.layers.items()}

    def capture(
        self,
        *,
        tokens: Tokens | None = None,
        source_tokens: Tokens | None = None,
        options: ArrayOptions = ArrayOptions(),  # noqa: B008
    ) -> Capture:
        """Check and believe it."""
        queries, keys = tokens or self.tokens, source_tokens or self.source_tokens
        notes = self.notes
        by_kind = self._given()
        layout = options.layout or self.layout
        sizes = {kind: sizes_of(layers, layout) for kind, layers in by_kind.items()}
        if queries is None:
            first = next((k for k in ("decoder", "cross", None, "encoder") if k in sizes), None)
            queries, notes = _numbers(sizes[first][0]), (*notes, UNNAMED)
        if keys is None and "cross" in sizes:
            keys, notes = _numbers(sizes["cross"][1]), tuple(dict.fromkeys((*notes, UNNAMED)))
        attentions: Any
        if len(by_kind) == 1:
            ((kind, attentions),) = by_kind.items()
            options = replace(options, kind=kind or options.kind)
        else:
            attentions = {_name(kind): layers for kind, layers in by_kind.items()}
        capture = arrays.from_arrays(
            attentions, queries, keys,
            options=replace(options, layout=layout, item=None if self.chosen else options.item),
            model=f"{self.format} ({self.name})" if self.name else self.format,
        )  # fmt: skip
        inputs = replace(capture.inputs, notes=(*capture.inputs.notes, *notes))
        capture = replace(capture, inputs=inputs)
        return capture if self.output is not None else self._numbered(capture)

    def _numbered(self, capture: Capture) -> Capture:
        """Give layers the numbers of the model; one that was not recorded has no heads."""
        heads: dict[SiteKind, tuple[int, ...]] = {}
        renamed: dict[Site, Site] = {}
        for kind, counts in capture.layout.heads.items():
            numbers = sorted(self.layers.get(kind) or self.layers[None])
            listed = [0] * (numbers[-1] + 1)
            for index, number in enumerate(numbers):
                listed[number] = counts[index]
                renamed[Site(kind, index)] = Site(kind, number)
            heads[kind] = tuple(listed)
        return replace(
            capture,
            layout=Layout(heads),
            maps={renamed[site]: maps for site, maps in capture.maps.items()},
            reach={renamed[site]: reach for site, reach in capture.reach.items()},
        )


def _numbers(count: int) -> Tokens:
    return Tokens(tuple(str(number) for number in range(count)))


def _name(kind: SiteKind | None) -> str:
    """Return what a model's output calls the layers of a kind."""
    if kind is None:
        raise InputError(
            "some layers say whether they are an encoder's or a decoder's and others do not; give "
            "those of one kind"
        )
    return next(name for name, value in arrays.NAMES.items() if value == kind)


PATTERN, SCORES = "hook_pattern", "hook_attn_scores"

_NUMBER = re.compile(r"\d+")
_ATTENTION = re.compile(r"att(?:n|ention)|^\D*\d+$", re.IGNORECASE)
"""Names of attention, and those that are a layer's number with a word before it: ``layer_3``."""
_CROSS = re.compile(r"cross|encdec|encoder_attn", re.IGNORECASE)
_ENCODER, _DECODER = (re.compile(rf"(?:^|[._/]){word}", re.IGNORECASE) for word in ("enc", "dec"))


def attention_names(names: Iterable[str]) -> list[str]:
    """Those of the names of a file's tensors that may be attention weights."""
    named = [name for name in names if isinstance(name, str)]
    for suffix in (PATTERN, SCORES):
        hooks = [name for name in named if name.endswith(suffix)]
        if hooks:
            return hooks
    return [name for name in named if _ATTENTION.search(name) and _NUMBER.search(name)]


def from_names(tensors: Mapping[str, Any], of: str = "") -> Imported:
    """Return the attention in tensors by name."""
    names = attention_names(tensors)
    hooks = bool(names) and names[0].endswith((PATTERN, SCORES))
    maps = {name: _weights(tensors[name]) for name in names}
    batched = any(value is not None and value.ndim == 4 for value in maps.values())
    layers: dict[SiteKind | None, dict[int, Any]] = {}
    sources: dict[tuple[SiteKind | None, int], str] = {}
    for name, value in maps.items():
        if value is None or (batched and value.ndim != 4 and not hooks):
            continue
        kind, number = _place(name)
        if (kind, number) in sources:
            raise InputError(
                f"{sources[kind, number]!r} and {name!r} are both of {kind or ''} layer {number}; "
                "leave one of them out".replace("  ", " ")
            )
        sources[kind, number] = name
        layers.setdefault(kind, {})[number] = _softmax(value) if name.endswith(SCORES) else value
    if not layers:
        listed = ", ".join(sorted(map(str, tensors))[:6]) or "nothing"
        raise InputError(
            f"no attention weights among these tensors ({listed}); names must be such as "
            f"blocks.0.attn.{PATTERN} or transformer.h.0.attn, with [batch, heads, queries, keys]"
        )
    notes: tuple[str, ...] = ()
    if names[0].endswith(SCORES):
        notes = (f"The softmax of {SCORES}: {PATTERN} is not recorded.",)
    label = "a TransformerLens cache" if hooks else of or "tensors by module"
    three = all(maps.ndim == 3 for kind in layers.values() for maps in kind.values())
    return Imported(label, _kinds(layers), notes=notes, layout="hqk" if hooks and three else None)


def _kinds(layers: Mapping[SiteKind | None, Layers]) -> Mapping[SiteKind | None, Layers]:
    """Layers that do not say a kind are a decoder's where others are cross-attention."""
    if None in layers and "cross" in layers and "decoder" not in layers:
        return {("decoder" if kind is None else kind): maps for kind, maps in layers.items()}
    return layers


def _place(name: str) -> tuple[SiteKind | None, int]:
    """Of which kind a module's layer is, as far as its name tells, and its number."""
    number = _NUMBER.search(name)
    assert number is not None
    kind: SiteKind | None = None
    if _CROSS.search(name):
        kind = "cross"
    elif _ENCODER.search(name):
        kind = "encoder"
    elif _DECODER.search(name):
        kind = "decoder"
    return kind, int(number.group())


def _weights(value: Any) -> Any:
    """[heads, queries, keys] or [batch, heads, queries, keys] in what was saved; None for none."""
    value = getattr(value, "value", value)  # what older versions of nnsight save
    if isinstance(value, tuple | list):
        inside = [_weights(part) for part in value]
        return next((w for w in inside if w is not None and w.ndim == 4), None)
    if not hasattr(value, "ndim") or not hasattr(value, "shape"):
        return None
    kind = str(value.dtype)
    return value if value.ndim in (3, 4) and "float" in kind else None


def _softmax(scores: Any) -> Any:
    """Over keys; zero where a row has no key to attend to."""
    values = scores.detach().cpu().double().numpy() if hasattr(scores, "detach") else scores
    scores = np.asarray(values, np.float64)
    top = scores.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        powers = np.where(np.isneginf(top), 0.0, np.exp(scores - top))
    sums = powers.sum(-1, keepdims=True)
    return (powers / np.where(sums, sums, 1.0)).astype(np.float32)


PART = (
    "Inseq keeps the weights of the queries that wrote a word: rows of the prompt before its last "
    "token are empty."
)


def is_inseq(document: Any) -> bool:
    """Whether a JSON document is what Inseq saves."""
    return isinstance(_plain(document), dict) and "sequence_attributions" in _plain(document)


@dataclass(frozen=True)
class Sequences:
    """What Inseq has saved: one sequence or several, each read when it is asked for."""

    document: Any
    path: Path
    format: ClassVar[str] = "Inseq attributions"

    @property
    def items(self) -> int:
        """How many sequences there are, 1 at least."""
        attributions = _plain(self.document)["sequence_attributions"]
        return len(attributions) or 1 if isinstance(attributions, list) else 1

    def sequence(self, item: int | None) -> Imported:
        """Return the attention of one of them."""
        chosen = from_inseq(self.document, layouts.choose_item(self.items, item), str(self.path))
        return replace(chosen, name=self.path.name)


def from_inseq(document: Any, item: int, name: str) -> Imported:
    """Return the attention of one sequence."""
    try:
        attributes = _plain(document)
        method = _plain(attributes.get("info", {})).get("attribution_method", "attention")
        if method != "attention":
            raise InputError(
                f"{name} holds Inseq attributions by {str(method)[:40]!r}, which are no attention "
                "weights; attribute with method 'attention'"
            )
        return _inseq_sequence(_plain(attributes["sequence_attributions"][item]), name)
    except InputError:
        raise
    except Exception as error:  # whatever somebody damaged or made up
        raise InputError(
            f"{name} is damaged: {one_line(error)}; save it again with Inseq"
        ) from None


def _inseq_sequence(sequence: dict[str, Any], name: str) -> Imported:
    source, target = _inseq_tokens(sequence["source"]), _inseq_tokens(sequence["target"])
    start, end = int(sequence["attr_pos_start"]), int(sequence["attr_pos_end"])
    if not 0 <= start < end <= len(target.texts):
        raise ValueError(f"words {start} to {end} of {len(target.texts)} are attributed")
    crossed = _inseq_array(sequence.get("source_attributions"))
    decoder = _inseq_array(sequence.get("target_attributions"))
    scores = _plain(sequence.get("sequence_scores") or {})
    if decoder is None:
        decoder = _inseq_array(scores.get("decoder_self_attentions"))
    encoder = _inseq_array(scores.get("encoder_self_attentions"))
    for array in (crossed, decoder, encoder):
        if array is not None and array.ndim != 4:
            raise InputError(
                f"{name} holds attributions of shape {list(array.shape)}, without layers and "
                "heads; save them before they are aggregated"
            )
    first = max(start - 1, 0)  # the query that writes the first word
    queries = max(end - 1, 1)
    layers: dict[SiteKind | None, Layers] = {}
    if decoder is not None:
        layers["decoder"] = _inseq_layers(decoder, first, queries, queries)
    if crossed is not None:
        layers["cross"] = _inseq_layers(crossed, first, queries, len(source.texts))
    if encoder is not None:
        layers["encoder"] = _inseq_layers(encoder, 0, len(source.texts), len(source.texts))
    if not layers:
        raise ValueError("there are no attributions")
    cut = marked(target.texts[:queries])
    notes = (PART,) if first else ()
    keys = source if crossed is not None else None
    return Imported(Sequences.format, layers, cut, keys, notes, layout="hqk", chosen=True)


def _inseq_layers(array: Array, first: int, rows: int, keys: int) -> Layers:
    """[keys, queries, L, H] as [H, rows, keys] by layer; rows that are not there are empty."""
    maps = np.nan_to_num(array.transpose(2, 3, 1, 0), nan=0.0)[..., :keys]
    result = np.zeros((*maps.shape[:2], rows, keys), maps.dtype)
    count = min(maps.shape[2], rows - first)
    result[:, :, first : first + count, : maps.shape[3]] = maps[:, :, :count]
    return dict(enumerate(result))


def _inseq_tokens(listed: Any) -> Tokens:
    texts = [str(_plain(token)["token"]) for token in listed]
    if not texts:
        raise ValueError("there are no tokens")
    return marked(texts)


def _inseq_array(value: Any) -> Array | None:
    """Return an array as Inseq writes it: safetensors or bytes in base64, or lists."""
    if value is None:
        return None
    if isinstance(value, str):
        from safetensors.torch import load

        return np.asarray(load(base64.b64decode(value))["attribution"].float().numpy())
    listed = value["__ndarray__"] if isinstance(value, dict) else value
    with np.errstate(over="ignore"):  # what is infinite then is refused
        return np.array(listed, np.float32)


def _plain(value: Any) -> Any:
    """Return an object's attributes, whether its class was saved beside them or not."""
    return value["attributes"] if isinstance(value, dict) and "attributes" in value else value


SERVED = "attn_capture_data"
_ENTRY = ("layer_idx", "data", "shape", "dtype", "token_meta")
_SERVED_NOTE = (
    "The server computed these weights anew from queries and keys, with a causal mask and 1/√d "
    "alone: windows, soft caps, learned sinks and other scales of the model are not in them."
)


def is_served(document: Any) -> bool:
    """Whether a JSON document is a server's response, alone or beside its request."""
    return isinstance(_response(document).get("choices"), list)


def _response(document: Any) -> dict[str, Any]:
    answer = document.get("response", document) if isinstance(document, dict) else None
    return answer if isinstance(answer, dict) else {}


def from_server(document: Mapping[str, Any], name: str) -> Imported:
    """Read the layers of a vLLM server's response, and of its tokens those that it wrote."""
    listed = document.get(SERVED)
    if not isinstance(listed, list) or not listed:
        raise InputError(
            f"{name} is a server's response without layers in {SERVED}; ask it with attn_capture "
            "(docs/recording.md), or run its tokens here, as ids"
        )
    layers: dict[int, Array] = {}
    for number, entry in enumerate(listed):
        label = f"{name}: {SERVED}[{number}]"
        lacking = [key for key in _ENTRY if not isinstance(entry, dict) or key not in entry]
        if lacking:
            raise InputError(f"{label} lacks {', '.join(lacking)}; save the response as it came")
        try:
            layer, weights = int(entry["layer_idx"]), _served_weights(entry)
            total, prompt = (int(entry["token_meta"][key]) for key in ("total_len", "prompt_len"))
            rows = entry["token_meta"].get("token_idx", list(range(len(weights))))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"{label} is damaged: {one_line(error)}; save it again") from None
        if weights.shape[::2] != (total, total) or rows != list(range(total)):
            raise InputError(
                f"{label} has {len(weights):,} of {total:,} tokens: its rows are shares "
                "among these alone; run the server without chunked prefill and prefix caching, and "
                "leave layers with windows out"
            )
        if layer in layers or not 0 <= layer < MAX_LAYERS:
            raise InputError(f"{label} is of layer {layer}, which is there twice or is none")
        layers[layer] = weights.transpose(1, 0, 2)
    if not 0 <= prompt <= total:
        raise InputError(f"{name}: prompt_len {prompt:,} is not within {total:,} tokens")
    texts = [*map(str, range(prompt)), *_written(document, total - prompt, prompt)]
    tokens = Tokens(tuple(texts), written=total - prompt)
    return Imported(
        f"attention of a vLLM server's {str(document.get('model') or 'model')[:80]}",
        {"decoder": layers}, tokens, notes=(UNNAMED, _SERVED_NOTE), layout="hqk", chosen=True,
    )  # fmt: skip


def _served_weights(entry: Mapping[str, Any]) -> Array:
    """Unpack one layer [queries, heads, keys]: gzip in base64, of exactly its shape's bytes."""
    kind = str(entry["dtype"]).removeprefix("torch.")
    if kind not in ("float16", "float32"):
        raise ValueError(f"dtype is {kind!r:.40}, not float16 or float32")
    shape = [int(size) for size in entry["shape"]]
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape is {shape}, not [queries, heads, keys]")
    packed = base64.b64decode(entry["data"], validate=True)
    data = inflated(packed, math.prod(shape) * np.dtype(kind).itemsize)
    return np.frombuffer(data, np.dtype(kind).newbyteorder("<")).reshape(shape)


def _written(document: Mapping[str, Any], count: int, start: int) -> list[str]:
    """Return texts of the tokens that a server wrote and read; numbers where it says none."""
    try:
        listed = document["choices"][0]["logprobs"]["content"]
        texts = [str(token["token"]) for token in listed]
    except (KeyError, IndexError, TypeError):
        texts = []
    # the last one was written and never read
    return texts[:count] if len(texts) >= count else [str(start + n) for n in range(count)]


TORCH = (".pt", ".pth")
KNOWN = (*SUFFIXES, *TORCH, ".npy", JSON)
"""Suffixes of files that attention is read from."""

_TEXTS = ("tokens.json", "tokens.txt")
_LONGEST = 64 << 20  # bytes of a file of tokens
_SHAPE = re.compile(r" \[[\d, ]*\]$")


def open_recording(path: Path) -> Stored | Imported | Sequences:
    """Open a file or folder of recorded attention: attnviz's own, or another tool's."""
    with system_errors(InputError, f"cannot read {path}"):  # for a name that no file can have
        folder = path.is_dir()
    if folder:
        return _folder(path)
    suffix = path.suffix.lower()
    if suffix not in KNOWN:
        raise InputError(
            f"cannot read {path}: attention is recorded in {', '.join(KNOWN)} or a folder of .npy"
        )
    if suffix == JSON:
        return _json(path)
    if suffix in TORCH:
        return imported(_torch(path), path.name)
    if suffix == ".npy":
        return imported(read_array(path), path.name)
    check_file(path)
    present = [_SHAPE.sub("", entry) for entry in list_arrays(path)]
    names = set(attention_names(present))
    if not names or {*PLAIN, *BY_KIND} & set(present):
        return Stored(path)
    read = read_arrays(path, names) if suffix == ".npz" else read_tensors(path, names)
    return replace(from_names(read), name=path.name)


def imported(value: Any, name: str = "") -> Imported:
    """Return the attention in what somebody has in memory."""
    tensors = getattr(value, "cache_dict", value)  # TransformerLens
    if isinstance(tensors, Mapping):
        if not any(tensors.get(name) is not None for name in arrays.NAMES):
            return replace(from_names(tensors), name=name)
        texts = tensors.get("tokens")
        listed = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        tokens = arrays.named(list(texts)) if listed and texts else None
        return Imported("a model's output", output=tensors, tokens=tokens, name=name)
    if isinstance(value, list | tuple) or is_array(value):
        if not len(value):
            raise InputError(f"{name or 'this list'} holds no layers; give at least one")
        return Imported("layers in a list", output=value, name=name)
    raise UsageError(
        "no attention can be read from {}; give a path, a cache or dictionary of tensors, or a "
        "list of layers",
        type(value).__name__,
    )


def read_tokens(path: Path) -> Tokens:
    """Read tokens' texts in a file: a JSON list of strings (null for a patch), or one a line."""
    with system_errors(InputError, f"cannot read {path}"):
        data = contents(path, _LONGEST)
    if path.suffix.lower() == JSON:
        listed = parsed(data, path.name)
    else:
        try:
            listed = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8: {one_line(error)}") from None
    if isinstance(listed, list):
        listed = [PATCH if text is None else text for text in listed]
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise InputError(f"{path} is not a list of strings; give the text of each token")
    return arrays.named(listed)


def _json(path: Path) -> Stored | Imported | Sequences:
    document = format.read_document(path)
    if format.is_recording(document):
        return Stored(path, document)
    if is_served(document):
        return replace(from_server(_response(document), path.name), name=path.name)
    if is_inseq(document):
        return Sequences(document, path)
    raise InputError(
        f"{path} is no recorded attention: neither a recording (schema {format.Recording.schema}) "
        "nor saved by Inseq"
    )


def _torch(path: Path) -> Any:
    import pickle

    import torch

    with system_errors(InputError, f"cannot read {path}"):
        file = open_regular(path)
    check_packed(path)
    try:
        with file:
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds a pickle of more than tensors, which can run code and is not loaded; "
            "save a dictionary of tensors, such as torch.save(cache.cache_dict, ...)"
        ) from None
    except Exception as error:
        raise InputError(f"cannot read {path}: {one_line(error)}; save it again") from None


def _folder(path: Path) -> Imported:
    """Arrays by the names of their files, with ``tokens.json`` or ``tokens.txt`` beside them."""
    with system_errors(InputError, f"cannot read {path}"):
        files = sorted(path.glob("*.npy"))
    if not files:
        raise InputError(f"{path} is a folder without .npy files; give a file, or one a layer")
    tokens, source = (
        next((read_tokens(path / f"{p}{n}") for n in _TEXTS if (path / f"{p}{n}").is_file()), None)
        for p in ("", "source_")
    )
    if len(files) == 1:
        result = imported(read_array(files[0]), path.name)
    else:
        result = from_names(
            {file.stem: read_array(file) for file in files}, "NumPy arrays in a folder"
        )
    return replace(result, tokens=tokens, source_tokens=source, name=path.name)
