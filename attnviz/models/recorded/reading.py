"""From the fields of a file of recorded attention to a capture: tokens, maps, allowed keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz.attention.spec import MAX_LAYERS
from attnviz.core.capture import Capture, KeyMask, empty_rows, seen_keys
from attnviz.core.heads import Layout, Mean, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo, called
from attnviz.core.quantities import QUANTITIES
from attnviz.core.result import FileProblem
from attnviz.core.spans import Span, check_apart
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError, cut
from attnviz.models.external_errors import one_line
from attnviz.models.recorded import validator
from attnviz.models.recorded.format import (
    BITS,
    BY_KIND,
    FLAGS,
    PLAIN,
    REAL,
    Array,
    meta_of,
    picture_in,
    places_in,
    read_fields,
    sound_in,
    unpack_masks,
)
from attnviz.models.recorded.validator import (
    Part,
    find_problems,
    length_problems,
    refusal,
    refuse,
    sum_problems,
    tolerance_of,
    weight_problems,
)
from attnviz.models.text import marked

_LONGEST = 200  # characters of a model's name, or of anything else that a file says of itself
_MOST_VERSIONS = 20

Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Stored:
    """A file in attnviz's own format, which holds one item or several."""

    path: Path
    document: Any = None  # what was read of JSON
    format: ClassVar[str] = "recording"

    @cached_property
    def fields(self) -> Mapping[str, Array]:
        """Every field as an array; InputError where they cannot be read."""
        return read_fields(self.path, self.document)

    @property
    def items(self) -> int:
        """How many items the batch has; 1 where it is none."""
        batches = [self.fields[name] for name in (*PLAIN, *BY_KIND) if name in self.fields]
        return int(batches[0].shape[1]) if batches and batches[0].ndim == 5 else 1

    @cached_property
    def problems(self) -> tuple[FileProblem, ...]:
        """What is wrong with the fields, whichever item is read."""
        return tuple(find_problems(self.fields))

    def capture(self, item: int | None = None, *, sinks: bool = False) -> Capture:
        """Return one item; InputError for the first of its problems."""
        refuse(self.problems, str(self.path))
        read = read_item(self.path, self.fields, item, sinks=sinks)
        if isinstance(read, Capture):
            return read
        raise refusal(read[0], str(self.path))


def load(path: Path, item: int | None = None) -> Capture:
    """Read recorded attention of attnviz's own format."""
    return Stored(path).capture(item)


def read_item(
    path: Path, fields: Mapping[str, Array], item: int | None, *, sinks: bool = False
) -> Capture | list[FileProblem]:
    """Read one item of a file whose fields are sound, or find all that is wrong with its maps."""
    meta = meta_of(dict(fields))
    stacks = _stacks(path, fields, item, meta)
    sequences = _sequences(path, fields, item, stacks, meta)
    stacks = [sequences.named(stack) for stack in stacks]
    maps: dict[Site, Array] = {}
    parts: dict[Site, Part] = {}
    heads: dict[SiteKind, tuple[int, ...]] = {}
    for stack in stacks:
        real = sequences.real(stack)
        layers = _layers(path, meta, stack.kind, len(stack.maps))
        count = int(stack.maps.shape[1])
        heads[stack.kind] = tuple(count if n in layers else 0 for n in range(layers[-1] + 1))
        for index, layer in enumerate(layers):
            site = Site(stack.kind, layer)
            indices = (index,) if fields[stack.name].ndim == 4 else (index, item or 0)
            parts[site] = Part(stack.name, indices, *map(np.flatnonzero, real))
            exact = np.float64 if stack.maps.dtype.itemsize == 8 else np.float32
            maps[site] = validator.cut_padding(stack.maps[index].astype(exact), *real)
    sides = {stack.kind: sequences.sides(stack) for stack in stacks}
    quantity = str(meta.get("quantity", "weights"))
    wrong: list[FileProblem] = []
    for stack in stacks:
        part = Part(stack.name, (":",) if fields[stack.name].ndim == 4 else (":", item or 0))
        lengths = maps[Site(stack.kind, len(heads[stack.kind]) - 1)].shape
        wrong += length_problems(part, lengths, sides[stack.kind])
    for site, weights in maps.items():
        wrong += weight_problems(weights, parts[site], QUANTITIES[quantity])
    if wrong:
        return wrong
    reach = _reach(path, fields, maps, meta, sinks)
    for site, weights in maps.items() if quantity == "weights" else ():
        dtype = str(fields[parts[site].name].dtype)
        dtype = dtype if dtype == "float16" else str(meta.get("dtype", ""))
        tolerance = tolerance_of(dtype, meta.get("error"), weights.shape[-1])
        sink = sinks or reach[site].sink
        wrong += sum_problems(weights, parts[site], tolerance, sink=sink)
    if wrong:
        return wrong
    mean: Any = meta.get("mean") if meta.get("mean") in get_args(Mean) else ""
    layout = Layout(heads, whole=meta.get("whole") is True, mean=mean)
    inputs = _placed(path, Inputs(sides, sequences.notes()), fields, meta, sequences)
    return Capture(_info(path, meta), layout, inputs, maps, empty_rows(maps), reach, quantity)


@dataclass(frozen=True)
class _Stack:
    """The maps [L, H, T, S] of one item under one name.

    ``first`` where they are an encoder's beside a decoder; ``stated`` where a file says their kind.
    """

    name: str
    kind: SiteKind
    maps: Array
    first: bool = False
    stated: bool = True


@dataclass(frozen=True)
class _Sequences:
    """The tokens of both sides, without padding, and which positions were none, bool."""

    queries: Tokens
    keys: Tokens
    rows: Bool
    columns: Bool

    def real(self, stack: _Stack) -> tuple[Bool, Bool]:
        """Which queries and keys of a stack are no padding; all where its shape does not fit."""
        crossed = stack.kind == "cross"
        real = (
            self.columns if stack.first else self.rows,
            self.columns if stack.first or crossed else self.rows,
        )
        fits = stack.maps.shape[2:] == tuple(map(len, real))
        return real if fits else tuple(np.ones(n, np.bool_) for n in stack.maps.shape[2:])  # type: ignore[return-value]

    def sides(self, stack: _Stack) -> Sides:
        """Return the tokens on the axes of a stack."""
        queries = self.keys if stack.first else self.queries
        return Sides(queries, self.keys if stack.kind == "cross" else queries)

    def named(self, stack: _Stack) -> _Stack:
        """Tell the kind of a stack that does not say it."""
        if stack.stated:
            return stack
        return replace(stack, kind=kind_of(stack.maps, self.real(stack)[0]))

    def notes(self) -> tuple[str, ...]:
        """Return what to say of padding."""
        sides = (self.rows,) if self.columns is self.rows else (self.rows, self.columns)
        return validator.padding_note(sum(int((~real).sum()) for real in sides))


def kind_of(maps: Iterable[Array], real: Bool) -> SiteKind:
    """Tell of which kind a single stack is: a decoder's where no query sees a later key."""
    if real.sum() < 2:  # a single token says nothing
        return "encoder"
    visible = (seen_keys(validator.cut_padding(layer, real, real)) for layer in maps)
    return "encoder" if any(np.triu(keys, 1).any() for keys in visible) else "decoder"


def _stacks(path: Path, fields: Mapping[str, Array], item: int | None, meta: Any) -> list[_Stack]:
    """Return the maps of one item by name, each with its kind."""
    present: dict[str, SiteKind | None] = {n: k for n, k in BY_KIND.items() if n in fields}
    present |= dict.fromkeys([n for n in PLAIN if n in fields][:1])
    crossed = "source_tokens" in fields
    kinds = meta.get("kinds")
    listed = isinstance(kinds, list) and len(kinds) == 1 and kinds[0] in BY_KIND.values()
    stacks = []
    for name, named in present.items():
        maps = _one_item(path, name, fields[name], item)
        kind = named or (kinds[0] if listed else "cross" if crossed else None)
        first = named == "encoder" and crossed
        stacks.append(_Stack(name, kind or "encoder", maps, first, stated=kind is not None))
    return stacks


def _sequences(
    path: Path, fields: Mapping[str, Array], item: int | None, stacks: list[_Stack], meta: Any
) -> _Sequences:
    """Return the tokens of both sides, and which of their positions are padding."""
    queries, source = _tokens_of(path, fields, "", item), _tokens_of(path, fields, "source_", item)
    assert queries is not None  # which is a problem of the file
    self_maps = [stack.maps for stack in stacks if stack.kind != "cross" and not stack.first]
    rows = _real(path, fields, "", item, queries, self_maps)
    queries = _with_output(without_padding(queries, rows), meta)
    if source is None:
        queries = _with_spans(path, queries, meta)
        return _Sequences(queries, queries, rows, rows)
    crossed = [stack.maps for stack in stacks if stack.kind == "cross"]
    columns = _real(path, fields, "source_", item, source, crossed, crossed=True)
    keys = _with_spans(path, without_padding(source, columns), meta)
    return _Sequences(queries, keys, rows, columns)


def _reach(
    path: Path, fields: Mapping[str, Array], maps: Mapping[Site, Array], meta: Any, sinks: bool
) -> dict[Site, KeyMask]:
    """Return the keys that each layer allows: as the file says, else as its weights show."""
    ranks = QUANTITIES[str(meta.get("quantity", "weights"))].ranks
    reach: dict[Site, KeyMask] = {}
    try:
        if "reach" in meta:
            reach = unpack_masks(meta["reach"], fields.get(BITS), maps, ranks=ranks)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            f"{path}: what it says of allowed keys does not fit its maps ({one_line(error)}); "
            "record it again"
        ) from None
    unknown = {site: weights for site, weights in maps.items() if site not in reach}
    declared = meta.get("error")
    rounding = declared if isinstance(declared, float) else 0.0
    return reach | validator.infer_masks(unknown, sink=sinks, error=rounding)


def _real(
    path: Path, fields: Mapping[str, Array], prefix: str, item: int | None, tokens: Tokens,
    layers: Sequence[Array], *, crossed: bool = False,
) -> Bool:  # fmt: skip
    """Which positions of one side are no padding: as the file says, or as tokens and weights do."""
    texts, mask = fields[f"{prefix}tokens"], fields.get(prefix + REAL)
    maps = [layer for array in layers for layer in array if layer.shape[-1] == len(tokens)]
    try:
        if mask is not None:
            real = validator.real_positions(mask, len(tokens), item, prefix + REAL)
        elif texts.ndim == 2 and "" in texts[item or 0, [0, -1]]:
            (held,) = np.nonzero(texts[item or 0] != "")
            real = np.zeros(len(tokens), np.bool_)
            real[held[0] : held[-1] + 1] = True
        elif "reach" in meta_of(dict(fields)) or not maps:
            return np.ones(len(tokens), np.bool_)
        else:
            return validator.find_padding(tokens, maps, crossed=crossed, start=True)
    except UsageError as error:
        raise InputError(f"{path}: {error}") from None
    square = [layer for layer in maps if layer.shape[1] == len(tokens) or crossed]
    validator.check_real(square, real, slice(None) if crossed else real, f"{path}:")
    return real


def _placed(
    path: Path, inputs: Inputs, fields: Mapping[str, Any], meta: Any, sequences: _Sequences
) -> Inputs:
    """Return the same with the places of its tokens, and the picture or sound in which they are."""
    sides = sequences.queries, sequences.keys
    try:
        queries, keys = (
            replace(tokens, places=places_in(_rows(fields.get(name), real), len(tokens)))
            for name, tokens, real in zip(
                ("places", "source_places"), sides, (sequences.rows, sequences.columns), strict=True
            )
        )
        if sides[0] is sides[1]:
            keys = queries
        named = {id(sides[1]): keys, id(sides[0]): queries}
        listed = (*queries.places, *keys.places)
        return replace(
            inputs,
            sides={
                kind: Sides(named[id(sides.queries)], named[id(sides.keys)])
                for kind, sides in inputs.sides.items()
            },
            picture=picture_in(fields.get("picture"), meta.get("picture"), listed),
            sound=sound_in(fields.get("sound"), meta.get("sound")),
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            f"{path}: where its tokens stand cannot be read ({one_line(error)}); record it again"
        ) from None


def _rows(array: Array | None, real: Bool) -> Array | None:
    """Return the rows of an array that are no padding, where it has one for each position."""
    return array if array is None or len(array) != len(real) else array[real]


def _info(path: Path, meta: dict[str, Any]) -> SourceInfo:
    """Who made the weights, as the file says; never more than text, and never a long one."""
    origin = SourceInfo(model=path.name, backend="recorded", exactness="as recorded")
    if not isinstance(meta.get("model"), str):
        return origin
    backend, exactness = meta.get("backend") or meta.get("road", ""), meta.get("exactness", "")
    provenance = f"{_short(backend)}: {_short(exactness)}".strip(": ")
    versions = meta.get("versions")
    listed = list(versions.items()) if isinstance(versions, dict) else []
    return replace(
        origin,
        model=f"{called(_short(meta['model']))} ({path.name})",
        exactness=f"as recorded ({provenance})" if provenance else "as recorded",
        device=_short(meta.get("device", "")),
        dtype=_short(meta.get("dtype", "")),
        versions={_short(name): _short(version) for name, version in listed[:_MOST_VERSIONS]},
    )


def _short(value: object) -> str:
    """Return what a file says of itself, as far as anybody reads it."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _one_item(path: Path, name: str, array: Array, item: int | None) -> Array:
    if array.dtype.kind != "f":
        raise InputError(f"{path}: {name} holds {array.dtype}, not floating-point weights")
    if array.ndim == 4:
        if item not in (None, 0):
            raise UsageError(
                "{} holds one item, not {}; leave out {item}", path, item + 1, item=...
            )
        return array
    if array.ndim != 5:
        raise InputError(
            f"{path}: {name} has shape {array.shape}; it must be [layers, heads, queries, keys] "
            "or [layers, batch, heads, queries, keys]"
        )
    count = array.shape[1]
    if item is None and count > 1:
        raise UsageError(
            "{} holds {} items; choose one with {item} from 0 to {}",
            path,
            count,
            count - 1,
            item=...,
        )
    if not 0 <= (item or 0) < count:
        raise UsageError(f"{path} has no item {item}; it holds {count}, from 0")
    return array[:, item or 0]


def _layers(path: Path, meta: dict[str, Any], kind: SiteKind, count: int) -> Sequence[int]:
    """Get the numbers of the layers whose maps a file holds: as it says, or one after the other."""
    named = meta.get("layers")
    listed = named.get(kind) if isinstance(named, dict) else None
    if listed is None:
        return range(count)
    if (
        not isinstance(listed, list)
        or len(listed) != count
        or any(type(layer) is not int or not 0 <= layer < MAX_LAYERS for layer in listed)
        or any(a >= b for a, b in itertools.pairwise(listed))
    ):
        raise InputError(
            f"{path}: its meta must list the numbers of its {count} {kind} layers, rising from 0, "
            f"not {cut(str(listed))}"
        )
    return listed


def _tokens_of(
    path: Path, fields: Mapping[str, Array], prefix: str, item: int | None
) -> Tokens | None:
    """One side's tokens, padding and all, of an item where there is a batch; None for none."""
    texts = fields.get(f"{prefix}tokens")
    if texts is None:
        return None
    flags = {flag: fields[prefix + flag] for flag in FLAGS if prefix + flag in fields}
    if texts.ndim == 2:
        if len(texts) <= (item or 0):
            raise InputError(
                f"{path}: {prefix}tokens has {len(texts)} rows, too few for item {item or 0}"
            )
        texts = texts[item or 0]
        flags = {flag: values[item or 0] for flag, values in flags.items()}
        if not (texts != "").any():
            raise InputError(f"{path}: {prefix}tokens of item {item or 0} are all empty")
    listed = tuple(str(text) for text in texts)
    if not flags:
        return marked(listed)
    as_type = {"special": bool, "separators": bool}
    values: dict[str, Any] = {f: tuple(as_type.get(f, int)(x) for x in v) for f, v in flags.items()}
    tokens = Tokens(listed, **values)
    if "words" in values:
        return tokens
    read = marked(listed, tokens.special)
    return replace(tokens, texts=read.texts, words=read.words)


def _with_output(tokens: Tokens, meta: dict[str, Any]) -> Tokens:
    """Return the tokens, the last of them marked as written by the model where the file says so."""
    count = meta.get("written")
    if isinstance(count, bool) or not isinstance(count, int):
        return tokens
    return replace(tokens, written=min(max(count, 0), len(tokens)))


def _with_spans(path: Path, tokens: Tokens, meta: dict[str, Any]) -> Tokens:
    """Return the tokens with the named parts that the file says they have."""
    if "spans" not in meta:
        return tokens
    try:
        spans = msgspec.convert(meta["spans"], tuple[Span, ...])
        check_apart(spans)
        return replace(tokens, spans=spans)
    except (msgspec.ValidationError, ValueError, InputError) as error:
        raise InputError(f"{path}: its spans: {one_line(error)}; record it again") from None


def without_padding(tokens: Tokens, real: Bool) -> Tokens:
    """Take the tokens that are no padding, bool [T]; the same where all are, or lengths differ."""
    if len(tokens) != len(real) or real.all():
        return tokens
    return tokens.picked(np.flatnonzero(real).tolist())
