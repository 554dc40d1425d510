"""Which axis is what in arrays of attention, and the steps of generated text joined.

Letters name axes: l layers, b batch, h heads, q queries, k keys. A list has one array a layer, bhqk
or hqk; an array of all layers is lhqk. What could be read in two ways is refused, and ``layout``
says it; what was read in one way of several that fit is said in a note.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.core.arrays import is_array
from attnviz.errors import InputError, UsageError
from attnviz.models.recorded.format import Array

AXES = {"l": "layers", "b": "batch", "h": "heads", "q": "queries", "k": "keys"}
"""Letters of a layout, each with the axis that it stands for."""
AVERAGED = "The weights are means over heads, shown as one head a layer."
"""What is said of arrays without an axis for heads."""

_ONE_MAP = (
    "without heads give one map a layer, [queries, keys], and layout='qk'; a query that is none of "
    "the tokens has its name in tokens, and these in source_tokens"
)


@dataclass(frozen=True)
class Layers:
    """One item's weights, layer by layer."""

    maps: tuple[Array, ...]  # [H, T, S] of each layer, float32 or float64
    low: tuple[bool, ...]  # whether each was in half precision
    notes: tuple[str, ...] = ()  # how axes were read, where that could have been otherwise
    # of generated text how many of the queries were read and not written; None for other
    prompt: int | None = None


def is_steps(attentions: Any) -> bool:
    """Tell whether these are the steps of ``generate``, each with the arrays of its layers."""
    return (
        isinstance(attentions, list | tuple)
        and bool(attentions)
        and all(isinstance(step, list | tuple) and bool(step) for step in attentions)
        and all(is_array(x) and x.ndim == 4 for step in attentions for x in step if x is not None)
    )


def layers_of(attentions: Any) -> Sequence[Any]:
    """List one array for each layer; layers without attention are left out."""
    if is_array(attentions):
        return list(attentions)
    if not isinstance(attentions, Sequence) or isinstance(attentions, str):
        raise UsageError(
            "attentions are a list with an array for each layer, or a model's output, not {}",
            type(attentions).__name__,
        )
    layers = [layer for layer in attentions if layer is not None]
    for number, layer in enumerate(layers):
        if isinstance(layer, Sequence):
            raise UsageError(
                "layer {} is a list itself; give one array for each layer, or the steps of "
                "generate(), each with [batch, heads, queries, keys] of every layer", number,
            )  # fmt: skip
        if not is_array(layer):
            raise UsageError(
                "layer {} must be a torch or NumPy array, not {}", number, type(layer).__name__
            )
    return layers


def read_layers(
    stack: Any, *, layout: str | None, item: int | None, rows: int | None, crossed: bool, label: str
) -> Layers:
    """Read one item's weights, layer by layer."""
    if is_steps(stack):
        return _joined(stack, item, rows, crossed, label)
    if layout is not None:
        _check_layout(layout)
    notes: tuple[str, ...] = ()
    if is_array(stack):
        layout, notes = _of_stack(stack, layout, item, rows)
        if "l" in layout:
            stack = _moved(
                stack, [layout.index("l"), *(n for n, x in enumerate(layout) if x != "l")]
            )
            layout = layout.replace("l", "")
        else:
            stack = [stack]
    elif layout is not None and "l" in layout:
        raise UsageError(
            "a list has an array for each layer, so that {layout} has no l", layout=layout
        )
    layers = layers_of(stack)
    if not layers:
        raise InputError(f"there are no {label}layers in these attentions; give at least one")
    if layout is None and all(layer.ndim == 3 for layer in layers):
        layout, notes = _of_three(layers, item, rows)
    read = [_one(layer, f"{label}layer {n}", layout, item) for n, layer in enumerate(layers)]
    if layout is not None and "h" not in layout:
        notes += (AVERAGED,)
    return Layers(tuple(maps for maps, _ in read), tuple(low for _, low in read), notes)


def sizes_of(attentions: Any, layout: str | None) -> tuple[int, int, int]:
    """Tell the queries, keys and items of layers, before their axes are checked."""
    if is_steps(attentions):
        parts = [next(x for x in step if x is not None) for step in attentions]
        queries = parts[-1].shape[2] if _reread(parts) else sum(x.shape[2] for x in parts)
        return queries, int(parts[-1].shape[3]), len(parts[0])
    stack = is_array(attentions)
    first: Any = attentions if stack else next(iter(layers_of(attentions)), np.zeros((0, 0)))
    usual = {5: "lbhqk", 4: "lhqk" if stack else "bhqk", 3: "hqk"}
    letters = layout if layout and len(layout) == first.ndim else usual.get(first.ndim, "qk")
    sizes = dict(zip(letters, first.shape, strict=False))
    return sizes["q"], sizes["k"], sizes.get("b", 1)


def choose_item(count: int, item: int | None) -> int:
    """Choose from a batch; UsageError where it must be said, or is not there."""
    if item is None and count > 1:
        raise UsageError(
            "this is a batch of {}; choose one with {item} from 0 to {}", count, count - 1, item=...
        )
    if not 0 <= (item or 0) < count:
        raise UsageError("this is a batch of {}; there is no {item}", count, item=item)
    return item or 0


def _check_layout(layout: str) -> None:
    if (
        not isinstance(layout, str)
        or len(set(layout)) != len(layout)
        or not {"q", "k"} <= set(layout) <= set(AXES)
    ):
        axes = ", ".join(f"{letter} {name}" for letter, name in AXES.items())
        raise UsageError(
            "no {layout}; it has one letter an axis, q and k among them: {}", axes, layout=layout
        )


def _of_stack(
    array: Any, layout: str | None, item: int | None, rows: int | None
) -> tuple[str, tuple[str, ...]]:
    """Return the axes of one array, and what to say of them."""
    shape = list(array.shape)
    if layout is not None:
        if len(layout) != len(shape):
            raise InputError(
                "the array has shape {}, which {layout} does not fit", shape, layout=layout
            )
        return layout, ()
    if len(shape) == 4:
        if item is None and (rows or 1) == 1:
            return "lhqk", ()
        raise UsageError(
            "an array {} may be [layers, heads, queries, keys] or one layer's [batch, heads, "
            "queries, keys]; say {layout} or 'bhqk'", shape, layout="lhqk",
        )  # fmt: skip
    if len(shape) == 3:
        raise InputError(
            "an array {} may be one layer's heads, a batch or layers; give a layer's heads as "
            "[array], or say {layout}, 'bqk' or 'lqk'", shape, layout="hqk",
        )  # fmt: skip
    if len(shape) < 3:
        raise InputError("an array {} has no axis for heads; {}", shape, _ONE_MAP)
    if len(shape) != 5:
        raise InputError(
            "an array of all layers is [layers, heads, queries, keys] or [layers, batch, heads, "
            "queries, keys], not {}", shape,
        )  # fmt: skip

    def fits(batch: int) -> bool:
        chosen = batch == 1 if item is None else 0 <= item < batch
        return chosen and rows in (None, batch)

    ways = [way for way, batch in (("lbhqk", shape[1]), ("blhqk", shape[0])) if fits(batch)]
    if len(ways) != 1 and not shape[0] == shape[1] == 1:
        raise UsageError(
            "an array {} may be [layers, batch, heads, queries, keys] or [batch, layers, heads, "
            "queries, keys]; say {layout} or 'blhqk', and which {item} where there are several",
            shape, layout="lbhqk", item=...,
        )  # fmt: skip
    if len(ways) != 1:  # one layer of one item
        return "lbhqk", ()
    return ways[0], (_read_as(ways[0], "blhqk" if ways[0] == "lbhqk" else "lbhqk"),)


def _of_three(
    layers: Sequence[Any], item: int | None, rows: int | None
) -> tuple[str, tuple[str, ...]]:
    """Return the axes of layers that have three, and what to say of them."""
    sizes = {len(layer) for layer in layers}
    if sizes == {1}:
        return "hqk", ()
    if item is not None or (rows or 1) > 1:
        raise UsageError(
            "layers of shape {} have heads or a batch, which {} not tell; say {layout} for heads, "
            "and 'bqk' for a batch of means over heads",
            list(layers[0].shape), "the item does" if item is not None else "rows of tokens do",
            layout="hqk",
        )  # fmt: skip
    return "hqk", (_read_as("hqk", "bqk"),) if len(sizes) == 1 else ()


def _read_as(layout: str, rival: str) -> str:
    first, second = ([AXES[letter] for letter in way] for way in (layout, rival))
    return f"Arrays are read as [{', '.join(first)}]; layout={rival!r} reads [{', '.join(second)}]."


def _moved(array: Any, order: Sequence[int]) -> Any:
    return array.permute(*order) if hasattr(array, "detach") else array.transpose(order)


def _one(layer: Any, label: str, layout: str | None, item: int | None) -> tuple[Array, bool]:
    """One item's [H, T, S] of a layer, and whether it was in half precision."""
    layout = layout or {3: "hqk", 4: "bhqk"}.get(layer.ndim, "")
    if len(layout) != layer.ndim or not layout:
        raise InputError(
            "{} has shape {}; it must be [heads, queries, keys] or [batch, heads, queries, keys]{}",
            label,
            list(layer.shape),
            f": a single layer is [array]; {_ONE_MAP}" if layer.ndim < 3 else "",
        )
    if "b" in layout:
        batch_axis = layout.index("b")
        index = choose_item(layer.shape[batch_axis], item)
        layer = layer[(slice(None),) * batch_axis + (index,)]
        layout = layout.replace("b", "")
    elif item not in (None, 0):
        raise UsageError("{} is not a batch; leave out {item}", label, item=item)
    layer = _moved(layer, [layout.index(axis) for axis in "hqk" if axis in layout])
    array, low = as_numpy(layer, label)
    return (array if "h" in layout else array[None]), low


def as_numpy(weights: Any, label: str) -> tuple[Array, bool]:
    """Copy weights to NumPy, in float32 or float64, and tell whether they were halves."""
    if hasattr(weights, "detach"):
        if weights.is_meta or str(weights.layout) != "torch.strided":
            form = "meta" if weights.is_meta else "sparse"
            raise InputError("{} is a {} tensor; give a dense one with values", label, form)
        weights = weights.detach().cpu()
        low = weights.dtype.is_floating_point and weights.dtype.itemsize <= 2
        array: Array = (weights.float() if low else weights).numpy()
    else:
        # what a mask hides is no weight
        low, array = weights.dtype == np.float16, np.ma.filled(weights, 0)
    if array.dtype.kind != "f":
        raise InputError("{} holds {}, not floating-point weights", label, array.dtype)
    if not array.size:
        raise InputError("{} has shape {}, which holds no weights", label, list(array.shape))
    return np.array(array, np.float64 if array.dtype.itemsize == 8 else np.float32), low


def _joined(
    steps: Sequence[Sequence[Any]], item: int | None, rows: int | None, crossed: bool, label: str
) -> Layers:
    """One item's maps of all queries from the steps of generated text.

    The first step has the queries of what was read, the others one each. Keys of self-attention
    grow with the queries; where they are fewer they are a window's last, where more the empty ones
    of a cache of fixed size.
    """
    counts = {len([x for x in step if x is not None]) for step in steps}
    if len(counts) != 1:
        raise InputError("the steps of generated text have unequal numbers of layers")
    batch = len(next(x for x in steps[0] if x is not None))
    if any(len(x) != batch for step in steps for x in step if x is not None) or (
        rows is not None and rows != batch
    ):
        raise beams(batch, rows)
    chosen = choose_item(batch, item)
    layers: list[list[Array]] = []
    low = []
    for number in range(counts.pop()):
        read = [
            as_numpy([x for x in step if x is not None][number][chosen], f"{label}layer {number}")
            for step in steps
        ]
        layers.append([array for array, _ in read])
        low.append(any(half for _, half in read))
    maps = [_rows_joined(parts, crossed, f"{label}layer {n}") for n, parts in enumerate(layers)]
    return Layers(tuple(maps), tuple(low), (), layers[0][0].shape[1])


def _rows_joined(parts: Sequence[Array], crossed: bool, label: str) -> Array:
    """Get the rows of one layer's steps [H, q, k] as [H, T, T], or [H, T, S] of cross-attention."""
    if _reread(parts):
        return parts[-1]
    heads = {part.shape[0] for part in parts}
    if len(heads) != 1 or (crossed and len({part.shape[2] for part in parts}) != 1):
        raise InputError("{} changes its shape between the steps of generated text", label)
    if crossed:
        return np.concatenate(parts, 1)
    length = sum(part.shape[1] for part in parts)
    result = np.zeros((heads.pop(), length, length), parts[0].dtype)
    start = 0
    for part in parts:
        stop = start + part.shape[1]
        keys = min(part.shape[2], stop)
        if part[..., keys:].any():  # else of a cache of fixed size
            raise InputError(
                "{} has {} keys where {} tokens were read: give the whole output of generate()",
                label, part.shape[2], stop,
            )  # fmt: skip
        result[:, start:stop, stop - keys : stop] = part[..., :keys]
        start = stop
    return result


def _reread(parts: Sequence[Array]) -> bool:
    """Tell whether every step [H, q, k] read the whole text again, for want of a cache."""
    return all(b.shape[-2] == a.shape[-2] + 1 for a, b in itertools.pairwise(parts))


def beams(batch: int, rows: int | None) -> InputError:
    """Say why the steps of a beam search are not joined."""
    clause = "" if rows is None else f" for {rows} sequence{'s' * (rows != 1)}"
    return InputError(
        f"these steps have {batch} rows{clause}: a beam search reorders its rows at every step, so "
        "that they are of no one text; generate with num_beams=1, or run the text through the "
        "model once"
    )


def refuse_beams(output: Mapping[str, Any]) -> None:
    """Raise InputError for what a beam search returned."""
    if output.get("beam_indices") is not None:
        steps = next((v for v in output.values() if is_steps(v)), None)
        batch = len(steps[0][0]) if steps else 0
        sequences = output.get("sequences")
        raise beams(batch, None if sequences is None else len(sequences))
