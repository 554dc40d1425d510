"""What is wrong with attention from outside, all of it and where: one check of files and arrays.

A problem says what was expected and what was found, under its path: ``attentions[2, 0, 5]`` is
layer 2, head 0, query 5. :func:`attnviz.check` lists all problems; a reader raises the first.

Which positions are padding and which keys a query may attend to, in attention from outside.

Neither is guessed. Padding is what an attention mask says, or tokens that are a model's padding
and that no other query attends to; where weights look padded and tokens do not tell, one line asks.
Masks are what is given, or the zeros that all heads of a layer share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import on_host
from attnviz.core.capture import KeyMask, blocked_by, seen_keys
from attnviz.core.heads import Site
from attnviz.core.quantities import QUANTITIES, Quantity
from attnviz.core.result import FileProblem
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, Setting, UsageError, cut
from attnviz.models.recorded.format import BY_KIND, FLAGS, PLAIN, REAL, Array, meta_of

SUM_TOLERANCE = 1e-3
"""How far the sum of a row may be from 1."""
HALF_TOLERANCE = 2e-2
"""The same in half precision, to which every weight was rounded."""
MOST_ROUNDED = 4e-3
"""A weight of 1 in 8 bits is off by at most this."""
MOST_ROUNDED_SUM = 0.1
"""No row is farther from its sum than this, however many rounded weights it has."""
HALF = "half precision"
"""How a capture names the precision of such weights."""


def refusal(problem: FileProblem, source: str = "") -> InputError:
    """Say a problem of a source on one line."""
    location = ": ".join(part for part in (source, problem.path) if part)
    return InputError(f"{location}: expected {problem.expected}, found {problem.found}")


def refuse(problems: Iterable[FileProblem], source: str = "") -> None:
    """Raise InputError for the first problem of a source."""
    for problem in problems:
        raise refusal(problem, source)


@dataclass(frozen=True)
class Part:
    """Where one layer's maps stand in what was given."""

    name: str  # of the array, or of the layer
    first: tuple[int | str, ...] = ()  # the indices before that of the head; ``:`` for all
    # the positions of its queries, padding left out; None for all; ``keys`` likewise
    rows: NDArray[np.intp] | None = None
    keys: NDArray[np.intp] | None = None

    def at(self, head: int, *indices: int) -> str:
        """Name a head's row, or one of its weights, by its indices in the whole array."""
        axes = zip((self.rows, self.keys), indices, strict=False)
        ends = [position if axis is None else int(axis[position]) for axis, position in axes]
        return f"{self.name}[{', '.join(map(str, (*self.first, head, *ends)))}]"

    def along(self, axis: str) -> str:
        """Name an axis, ``queries`` or ``keys``."""
        ends = (axis if axis == name else ":" for name in ("queries", "keys"))
        return f"{self.name}[{', '.join((*map(str, self.first), ':', *ends))}]"


def find_problems(fields: Mapping[str, Array]) -> Iterator[FileProblem]:
    """Find what is wrong with the fields of a file before their weights are looked at."""
    names = [name for name in BY_KIND if name in fields] or [n for n in PLAIN if n in fields][:1]
    yield from _token_problems(fields, "")
    if "cross_attentions" in names or "source_tokens" in fields:
        yield from _token_problems(fields, "source_")
    if "meta" in fields:
        yield from _meta_problems(fields["meta"])
    for name in names:
        array = fields[name]
        if array.dtype.kind != "f":
            yield FileProblem(name, "floating-point weights", f"{array.dtype}")
        elif array.ndim not in (4, 5) or 0 in array.shape:
            yield FileProblem(
                name,
                "shape [layers, heads, queries, keys] or [layers, batch, heads, queries, keys]",
                f"shape {list(array.shape)}",
            )


def find_in_weights(fields: Mapping[str, Array]) -> Iterator[FileProblem]:
    """Find what is wrong with the weights of a file of one item, whatever its other fields are."""
    meta = meta_of(dict(fields))
    quantity = str(meta.get("quantity", "weights"))
    for name in (*PLAIN, *BY_KIND):
        array = fields.get(name)
        if array is None or array.ndim != 4 or array.dtype.kind != "f":
            continue
        for layer, weights in enumerate(array):
            part, problem = Part(name, (layer,)), None
            for problem in weight_problems(weights, part, QUANTITIES.get(quantity)):
                yield problem
            if problem is None and quantity == "weights":
                room = tolerance_of(str(array.dtype), meta.get("error"), array.shape[-1])
                yield from sum_problems(weights, part, room, sink="sink" in str(meta.get("reach")))


def _token_problems(fields: Mapping[str, Array], prefix: str) -> Iterator[FileProblem]:
    name = f"{prefix}tokens"
    texts = fields.get(name)
    if texts is None:
        yield FileProblem(name, "the text of each token, [T] or [B, T]", "nothing")
        return
    if texts.dtype.kind != "U":
        yield FileProblem(name, "strings", f"{texts.dtype}")
    if texts.ndim not in (1, 2) or not texts.size:
        yield FileProblem(name, "shape [T] or [B, T], not empty", f"shape {list(texts.shape)}")
    for flag in (*FLAGS, REAL):
        values = fields.get(prefix + flag)
        if values is None:
            continue
        if values.dtype.kind not in "biu":
            yield FileProblem(prefix + flag, "whole numbers or booleans", f"{values.dtype}")
        if values.shape != texts.shape:
            yield FileProblem(
                prefix + flag,
                f"shape {list(texts.shape)}, that of {name}",
                f"shape {list(values.shape)}",
            )


def _meta_problems(text: Array) -> Iterator[FileProblem]:
    try:
        meta = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        yield FileProblem("meta", "a JSON object as one string", f"no JSON ({error})"[:200])
        return
    if not isinstance(meta, dict):
        yield FileProblem("meta", "a JSON object", type(meta).__name__)
        return
    quantity = meta.get("quantity", "weights")
    if quantity not in QUANTITIES:
        yield FileProblem("meta.quantity", f"one of {', '.join(QUANTITIES)}", cut(repr(quantity)))


def length_problems(part: Part, shape: tuple[int, ...], sides: Sides) -> Iterator[FileProblem]:
    """Find axes of maps [..., T, S] that are not as long as the tokens on their sides."""
    for axis, side, tokens in ((-2, "queries", sides.queries), (-1, "keys", sides.keys)):
        if shape[axis] != len(tokens):
            expected = f"{len(tokens)} {side}, one for each token"
            yield FileProblem(part.along(side), expected, f"{shape[axis]}")


def weight_problems(weights: Array, part: Part, of: Quantity | None) -> Iterator[FileProblem]:
    """Find weights [H, T, S] that are not finite, or negative where their quantity has no sign."""
    if not (finite := np.isfinite(weights)).all():
        partly = np.any(finite.any(-1) & ~finite.all(-1))
        remedy = "" if partly else ", 0 where all keys are masked"
        yield _first_of(part, ~finite, f"finite weights{remedy}", weights)
    elif (weights < 0).any() and not (of is not None and of.signed):
        yield _first_of(part, weights < 0, "weights after softmax, 0 or more", weights)


def sum_problems(
    weights: Array, part: Part, tolerance: float, *, sink: bool = False
) -> Iterator[FileProblem]:
    """Find the rows of [H, T, S] that are no distribution.

    Every row sums to 1, or all of its weights are 0 where it is masked; with a learned sink a row
    sums to 1 or less.
    """
    sums = weights.sum(-1, dtype=np.float64)
    wrong = sums > 1 + tolerance
    if not sink:
        wrong |= (sums < 1 - tolerance) & weights.any(-1)
    if wrong.any():
        expected = f"a row that sums to 1 (or 0 where masked) within {tolerance:g}"
        columns = weights.sum(-2, dtype=np.float64)
        swapped = (abs(columns - 1) <= tolerance).all()
        remedy = "as columns do here: swap queries and keys" if swapped else (
            "after softmax, before dropout"
        )  # fmt: skip
        if not sink and not swapped and not (sums > 1 + tolerance).any():
            remedy += ", or with sinks=True where a learned sink takes a part"
        yield _first_of(part, wrong, f"{expected}, {remedy}", sums)


def tolerance_of(dtype: str, error: object = None, keys: int = 0) -> float:
    """Tell how far a row of that many keys may be from its sum.

    More where weights were in half precision (float16, bfloat16), and where a page that saved them
    declares the ``error`` by which each is off at most.
    """
    if dtype.removeprefix("torch.") in (HALF, "float16", "bfloat16"):
        return HALF_TOLERANCE
    if type(error) is not float or not 0 <= error <= MOST_ROUNDED:
        return SUM_TOLERANCE
    return SUM_TOLERANCE + min(error * keys, MOST_ROUNDED_SUM)


def _first_of(part: Part, wrong: Array, expected: str, values: Array) -> FileProblem:
    """Name the first of many places, and say how many there are."""
    index = tuple(int(n) for n in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    suffix = f", and {count - 1} more" if count > 1 else ""
    return FileProblem(part.at(*index), expected, f"{float(values[index]):.6g}{suffix}")


def damaged(error: InputError, source: str) -> FileProblem:
    """Tell what stands in the way of reading any field: of JSON, with its path."""
    line = str(error).removeprefix(f"{source} is damaged: ").partition("; make it again")[0]
    text, marker, location = line.partition(" - at `")
    if not marker:
        return FileProblem("", "a recording", line)
    path = location.rstrip("`").removeprefix("$.")
    expected, _, got = text.partition(", got ")
    return FileProblem(path, expected.removeprefix("Expected ").strip("`"), got.strip("`") or text)


PADDING = frozenset(
    {"[PAD]", "<pad>", "<PAD>", "[pad]", "<|pad|>", "<|padding|>", "<|PAD|>", "<|PAD_TOKEN|>"}
    | {"<|finetune_right_pad_id|>", "<|vision_pad|>", "<unused0>", "<pad_token>"}
)
"""Texts of tokens that are nothing but padding."""
ENDS = frozenset({"<|endoftext|>", "</s>", "<eos>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>"})
"""Texts of tokens that end a text, which models without a token for padding are padded with."""

Bool = NDArray[np.bool_]
Maps = Sequence[Array]


def padding_note(count: int) -> tuple[str, ...]:
    """Say how many positions of padding are left out; nothing for none."""
    if not count:
        return ()
    return (f"{count} position{'s' * (count != 1)} of padding left out.",)


def real_positions(mask: Any, length: int, item: int | None, name: str = REAL) -> Bool:
    """Read an attention mask as bool [T], of an item where it has rows."""
    array = on_host(mask)
    if array.ndim == 2:
        if len(array) > 1 and item is None:
            raise UsageError(
                "{} has {} rows; choose one with {item}", Setting(name), len(array), item=...
            )
        if not 0 <= (item or 0) < len(array):
            raise UsageError(
                "{} has {} rows; there is no {item}", Setting(name), len(array), item=item
            )
        array = array[item or 0]
    if array.ndim != 1 or len(array) != length:
        raise UsageError(
            "{} has shape {}, and there are {} positions; it takes a 1 for each token and a 0 for "
            "each padding", Setting(name), list(array.shape), length,
        )  # fmt: skip
    if not np.isin(array, (0, 1)).all() or not array.any():
        raise UsageError("{} takes 1 for tokens and 0 for padding, and some token", Setting(name))
    return array.astype(np.bool_)


def check_real(maps: Maps, real: Bool, rows: Bool | slice, label: str) -> None:
    """Raise InputError where a query that is no padding gives weight to padding, or none does."""
    if maps and real.any() and not any(layer[:, rows][..., real].any() for layer in maps):
        raise InputError(
            "by the attention mask no token attends to any; it takes 1 for each token and 0 for "
            "each padding, the other way round than key_padding_mask of PyTorch"
        )
    for number, layer in enumerate(maps):
        outside = seen_keys(layer[:, rows]) & ~real
        if outside.any():
            row, key = np.argwhere(outside)[0]
            query = int(np.arange(layer.shape[1])[rows][row])
            raise InputError(
                "{} layer {}: query {} gives weight to position {}, which is padding by the "
                "attention mask; give the mask that the model ran with", label, number, query, key,
            )  # fmt: skip


def cut_padding(layer: Array, queries: Bool, keys: Bool) -> Array:
    """Take the rows and keys of [H, T, S] that are no padding; where it is not as long, all."""
    if layer.shape[1:] != (len(queries), len(keys)) or (queries.all() and keys.all()):
        return layer
    return np.ascontiguousarray(layer[:, queries][:, :, keys])


def find_padding(
    tokens: Tokens,
    maps: Maps,
    *,
    pad: str | None = None,
    crossed: bool = False,
    start: bool = False,
) -> Bool:
    """Find the positions of a sequence that are no padding, bool [T].

    ``maps`` [H, T, T] of layers in which it attends to itself; of cross-attention [H, T', T].
    """
    length = len(tokens)
    real = np.ones(length, np.bool_)
    texts = np.array(tokens.texts, object)
    sure = PADDING | ({pad} if pad is not None and pad not in ENDS else set())
    like: Bool = np.array([text in sure for text in tokens.texts])
    left, right = _run(like), _run(like[::-1])
    if like.all() or (maps and not _fit(maps, length, crossed)):
        return real
    if not maps:
        real[: left - (start and left > 0)] = False
        real[length - right :] = False
        return real
    visible: Bool = np.logical_or.reduce([seen_keys(layer) for layer in maps])
    if left or right:
        first = _count_unseen(visible, left, crossed)
        if first < left and not (start and left - first == 1):
            _ask(f"{first} to {left - 1} are {texts[first]!r} and get weight")
        real[:first] = False
        if right and visible[slice(None) if crossed else real & ~like, length - right :].any():
            _ask(f"the last {right} are {texts[-1]!r} and get weight")
        real[length - right :] = False
        return real
    if texts[0] in ENDS:
        first = _count_unseen(visible, _run(texts == texts[0]), crossed)
        # rows of padding attend to nothing or to all; a text of its own attends to itself
        if crossed or (~visible[:first].any(1) | visible[:first, first:].any(1)).all():
            real[:first] = False
    if texts[-1] in ENDS:
        right = _run(texts[::-1] == texts[-1])
        unseen = min(right, _run(~np.logical_or.reduce(visible, 0)[::-1]))
        if right > 1 and not unseen:
            _ask(f"the last {right} are {texts[-1]!r}")
        real[length - unseen :] = False
    if real.all() and not crossed:
        _ask_where_padded(visible, maps)
    return real


def _fit(maps: Maps, length: int, crossed: bool) -> bool:
    """Tell whether maps are of that many keys and, but for cross-attention, queries."""
    return all(m.shape[2] == length and (crossed or m.shape[1] == length) for m in maps)


def _run(flags: Bool) -> int:
    """Count how many at the beginning are True."""
    return len(flags) if flags.all() else int(flags.argmin())


def _count_unseen(visible: Bool, limit: int, crossed: bool) -> int:
    """Count how many of the first keys no query after them sees."""
    for count in range(limit, 0, -1):
        if not visible[0 if crossed else count :, :count].any():
            return count
    return 0


def _ask_where_padded(visible: Bool, maps: Maps) -> None:
    """Raise UsageError for weights as padding leaves them, where no token says so."""
    attending: Bool = np.logical_or.reduce(visible, 1)
    unseen: Bool = ~np.logical_or.reduce(visible, 0)
    for side, keys, rows in (("first", unseen, attending), ("last", unseen[::-1], attending[::-1])):
        count = _run(keys)
        if count < len(keys) and rows[:count].any():
            _ask(f"no query attends to the {side} {count}, which attend themselves")
    level: Bool = np.logical_and.reduce([_are_level(layer) for layer in maps])
    count = _run(level & attending & visible.all(1))
    if count and count < len(visible) and not visible[count:, :count].any():
        _ask(f"no query attends to the first {count}, which attend to all alike")


def _are_level(layer: Array) -> Bool:
    """Tell which queries of [H, T, S] attend to all keys alike, in every head; bool [T]."""
    with np.errstate(invalid="ignore"):
        level = abs(layer - layer[..., :1]) <= 1e-6 * layer[..., :1]
    return np.logical_and.reduce(level, (0, 2))


def _ask(reason: str) -> None:
    raise UsageError(
        "is there padding? of its positions {}; say which are tokens with {attention_mask} (1) and "
        "which are not (0); all 1 for none", reason, attention_mask=...,
    )  # fmt: skip


def infer_masks(
    maps: Mapping[Site, Array], *, sink: bool = False, error: float = 0
) -> dict[Site, KeyMask]:
    """Read the allowed keys off weights: the zeros that all heads of a layer share.

    Where weights were rounded so far that small ones are 0 (half precision, a page's 8 bits), only
    zeros that all layers share and those beyond a causal mask or a window count.

    ``maps`` [H, T, S] by site.
    """
    visible = {site: seen_keys(layer) for site, layer in maps.items()}
    if _are_rounded(list(maps.values()), error):
        shared: dict[tuple[Any, ...], Bool] = {}
        for site, keys in visible.items():
            group = (site.kind, keys.shape)
            shared[group] = shared.get(group, np.False_) | keys
        visible = {s: _filled(keys, shared[s.kind, keys.shape]) for s, keys in visible.items()}
    masks: dict[bytes, KeyMask] = {}
    result = {}
    for site, keys in visible.items():
        name = keys.tobytes() + bytes(str(keys.shape), "ascii")
        if name not in masks:
            masks[name] = KeyMask.of(keys[None], sink=sink)
        result[site] = masks[name]
    return result


def _are_rounded(maps: Maps, error: float) -> bool:
    """Tell whether small weights became 0."""
    least = min((float(m[m > 0].min()) for m in maps if (m > 0).any()), default=1.0)
    if error:
        return least <= 4 * error
    if least > 2**-20:
        return False
    with np.errstate(over="ignore", under="ignore"):
        return all(np.array_equal(m.astype(np.float16).astype(m.dtype), m) for m in maps)


def _filled(visible: Bool, shared: Bool) -> Bool:
    """Get the keys that any layer sees, but for those beyond a layer's own window; all bool [T, S].

    More keys than queries must lie beyond a window: fewer may have been rounded away.
    """
    length, key_length = visible.shape
    distance = abs(np.arange(length)[:, None] + (key_length - length) - np.arange(key_length))
    beyond = shared & (distance > distance[visible].max(initial=0))
    return shared & ~beyond if beyond.sum() > length else shared


def read_mask(mask: Any, shape: tuple[int, int, int], item: int | None, label: str) -> Bool:
    """Read the mask that a layer ran with as bool [H or 1, T, S], True for allowed keys.

    ``mask``: bool, True for what may be attended to, or added to the scores: [T, S], [H, T, S],
    [B, 1 or H, T, S]; ``shape`` [H, T, S] of the layer.
    """
    array = on_host(mask)
    heads, queries, keys = shape
    if array.shape[-2:] != (queries, keys) or array.ndim not in (2, 3, 4):
        raise UsageError(
            "the mask of {} has shape {}; it takes [queries, keys], [heads, queries, keys] or "
            "[batch, heads, queries, keys] of {} queries and {} keys",
            label, list(array.shape), queries, keys,
        )  # fmt: skip
    if array.ndim == 4:
        if not 0 <= (item or 0) < len(array) and len(array) != 1:
            raise UsageError("the mask of {} has no {item}", label, item=item)
        array = array[0 if len(array) == 1 else item or 0]
    elif array.ndim == 2:
        array = array[None]
    if len(array) not in (1, heads):
        raise UsageError(
            "the mask of {} has {} heads and the layer {}; of a batch it takes [batch, 1, queries, "
            "keys]", label, len(array), heads,
        )  # fmt: skip
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind == "f" and not np.isin(array, (0, 1)).all():
        added: Any = np.asarray(array, np.promote_types(array.dtype, "f4"))
        return ~np.asarray(blocked_by(added))
    if array.dtype.kind == "f" and not array.any():
        return np.ones(array.shape, np.bool_)
    raise UsageError(
        "the mask of {} holds {} of 0 and 1; give booleans, True for what may be attended to",
        label, array.dtype,
    )  # fmt: skip


def check_mask(weights: Array, allowed: Bool, label: str) -> None:
    """Raise InputError where weights lie on keys that a mask forbids."""
    sizes = abs(weights)
    outside = (sizes > 1e-30 * sizes.max(-1, keepdims=True)) & ~allowed
    if outside.any():
        head, query, key = np.argwhere(outside)[0]
        inverted = not ((sizes > 0) & allowed).any()
        raise InputError(
            "{}: head {} gives weight from query {} to key {}, which the mask forbids; {}",
            label, head, query, key,
            "True is what may be attended to: give ~mask" if inverted
            else "give the mask that the model ran with",
        )  # fmt: skip
