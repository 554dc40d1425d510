"""Attention of what a caller has in memory: arrays from elsewhere, PyTorch's modules at work."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.captured import Captured, captured
from attnviz.core.capture import Capture
from attnviz.core.heads import SITE_PREFIX
from attnviz.core.interface import interface
from attnviz.core.media import PATCH, Picture
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.models.recorded import arrays
from attnviz.models.recorded.arrays import ArrayOptions
from attnviz.scoring.select import select

_NAMED = re.compile(r"\d+,\d+$")


@interface
def from_arrays(
    attentions: Any, tokens: Any, *, options: ArrayOptions, model: str = "attention in memory"
) -> Captured:
    """Look at attention weights that were computed elsewhere.

    Args:
        attentions: an array for each layer, torch or NumPy, [heads, queries, keys] or
            [batch, heads, queries, keys], as ``output_attentions=True`` gives them; one array of
            all layers; the steps of generated text; or a model's whole output, whose
            ``attentions``, ``encoder_attentions``, ``decoder_attentions`` and ``cross_attentions``
            are taken, that of ``generate(output_attentions=True, return_dict_in_generate=True)``
            too.
        tokens: the text of each position, or its id where there is a ``tokenizer``; of the
            decoder, and of the queries of cross-attention, where there are two sequences. For a
            batch either those of the item, or a list (array) of every item's. Of generated text
            its ``sequences``.
        model: what to call where they come from.

    Raises:
        InputError: arrays that do not fit the tokens, or whose rows are no distributions; beams.
        UsageError: arguments of the wrong type, an item that is not there or none chosen; axes or
            padding that could be one thing or another.
    """
    queries, keys, resolved = axes_of(tokens, options)
    if queries is None:
        queries = tokens_of(tokens, options.tokenizer, options.item)  # which refuses None
    capture = arrays.from_arrays(attentions, queries, keys, options=resolved, model=model)
    return captured(with_picture(capture, options.picture, options.grid))


def with_picture(capture: Capture, picture: Any, grid: tuple[int, int] | None) -> Capture:
    """Return the same capture with the picture of its patches; UsageError if they do not fit."""
    axes = [axis for sides in capture.inputs.sides.values() for axis in (sides.queries, sides.keys)]
    if picture is None:
        if any(PATCH in axis.texts for axis in axes):
            raise UsageError("tokens that are None are patches; add their {picture}", picture=...)
        return capture
    laid_out = {id(axis): _with_places(axis, grid) for axis in axes}
    sizes = {size for _, size in laid_out.values() if size is not None}
    if len(sizes) != 1:
        raise UsageError(
            "no token is a patch of the {picture}; give None for each, or its row and column as "
            "'3,5'" if not sizes else "patches of {picture} have several grids", picture=...,
        )  # fmt: skip
    pixels, name = _pixels(picture)
    sides = {
        kind: Sides(laid_out[id(both.queries)][0], laid_out[id(both.keys)][0])
        for kind, both in capture.inputs.sides.items()
    }
    note = "The picture is shown whole, as if its patches covered all of it."
    inputs = replace(
        capture.inputs, sides=sides, picture=Picture(pixels, *sizes.pop(), name),
        notes=(*capture.inputs.notes, note),
    )  # fmt: skip
    return replace(capture, inputs=inputs)


def _with_places(
    tokens: Tokens, grid: tuple[int, int] | None
) -> tuple[Tokens, tuple[int, int] | None]:
    """Tokens with the places of their patches, and their grid; None for no patches."""
    named = {
        n: tuple(map(int, t.split(","))) for n, t in enumerate(tokens.texts) if _NAMED.match(t)
    }
    unnamed = [n for n, text in enumerate(tokens.texts) if text == PATCH]
    if not named and not unnamed:
        return tokens, None
    count = len(named) + len(unnamed)
    side = math.isqrt(count)
    if named and grid is None:
        grid = (max(row for row, _ in named.values()) + 1, max(c for _, c in named.values()) + 1)
    rows, columns = grid or (side, side)
    if rows * columns != count:
        raise UsageError(
            "{} tokens are patches, which are not {} × {}; say rows and columns with {grid}",
            count, rows, columns, grid=...,
        )  # fmt: skip
    order = [(row, column) for row in range(rows) for column in range(columns)]
    places: dict[int, tuple[int, ...]] = {**dict(zip(unnamed, order, strict=False)), **named}
    texts = [
        f"{places[n][0]},{places[n][1]}" if n in places else t for n, t in enumerate(tokens.texts)
    ]
    listed = tuple(places.get(n, ()) for n in range(len(tokens)))
    return replace(tokens, texts=tuple(texts), places=listed), (rows, columns)


def _pixels(picture: Any) -> tuple[NDArray[np.uint8], str]:
    """Return a picture as bytes [height, width, 3], and the name of its file."""
    from attnviz.models.containers import read_picture

    if isinstance(picture, str | Path):
        return read_picture(Path(picture)), Path(picture).name
    pixels = np.asarray(picture.convert("RGB") if hasattr(picture, "convert") else picture)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise UsageError(
            "{picture} has {} of shape {}; give a file, a PIL image or bytes [height, width, 3]",
            pixels.dtype, list(pixels.shape), picture=...,
        )  # fmt: skip
    return pixels, ""


def axes_of(
    tokens: Any, options: ArrayOptions
) -> tuple[Tokens | None, Tokens | None, ArrayOptions]:
    """Read the tokens of both sequences, with what they and the tokenizer tell of arrays."""
    tokenizer = options.tokenizer
    queries, keys = (
        None if texts is None else tokens_of(texts, tokenizer, options.item)
        for texts in (tokens, options.source_tokens)
    )
    listed = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    nested = (
        isinstance(listed, list | tuple) and bool(listed) and isinstance(listed[0], list | tuple)
    )
    pad = getattr(tokenizer, "pad_token_id", None)
    text = None if pad is None else tokens_of([pad], tokenizer, None).texts[0]
    return queries, keys, replace(options, rows=len(listed) if nested else None, pad=text)


class Watched:
    """What :func:`watch` gives: captures of what has run."""

    def __init__(self, module: Any, passes: int, **axes: Any) -> None:
        from attnviz.models.watching import Watch

        self._watch = Watch(module, passes, **axes)

    def __len__(self) -> int:
        """How many passes are kept."""
        return self._watch.passes

    def __repr__(self) -> str:
        unread = "".join(f"; not read: {reason}" for reason in self._watch.unread_in(-1))
        return f"<Watched: {len(self)} pass{'es' * (len(self) != 1)}{unread}>"

    def capture(
        self,
        tokens: Sequence[str] | Tokens | None = None,
        *,
        source_tokens: Sequence[str] | Tokens | None = None,
        item: int | None = None,
        index: int = -1,
        layers: Sequence[str] | None = None,
        picture: Any = None,
        grid: tuple[int, int] | None = None,
    ) -> Captured:
        """Return what one item of a pass attended to, as :func:`attnviz.capture` gives it.

        Args:
            tokens: the text of each position; numbers by default. Of the decoder, and of the
                queries of cross-attention, where there are two sequences. With keys of a cache or
                a prefix before those of the queries, of all keys or of the queries alone.
            source_tokens: the same for the other sequence.
            item: which item of a batch; needed where there are several.
            index: which of the passes that are kept; the last by default.
            layers: only these, by their names in :attr:`layers` or their modules' (``"encoder"``
                for all inside of it); needed where layers attend over unlike many positions. The
                others have no heads, and all keep their numbers.
            picture: what the patches among the tokens are of, see :func:`from_arrays`.
            grid: see ``picture``.

        Raises:
            UsageError: nothing has run, or there is no such pass or item.
            InputError: tokens that do not fit.
        """
        queries, keys = (
            None if t is None else tokens_of(t, None, item) for t in (tokens, source_tokens)
        )
        capture = self._watch.capture(queries, keys, item, index, layers)
        return captured(with_picture(capture, picture, grid))

    @property
    def layers(self) -> dict[str, str]:
        """Which module each layer of the last pass is: ``{"0": "blocks.0.attn"}``.

        Layers count in the order in which they run; of several kinds they are named with it, as
        heads are (``cross:0``). A module that attended twice has its second call's number.

        Raises:
            UsageError: nothing has run.
        """
        from attnviz.models.watching import by_name

        return {name: path for name, (_, path) in by_name([*self._watch.paths.items()]).items()}

    @contextmanager
    def ablate(self, heads: str, *, gate: Any = 0.0) -> Iterator[None]:
        """Take heads away, or turn them down, in whatever runs inside the ``with`` block.

        What a head gives is multiplied by its gate before it meets the matrix that joins heads.
        Later layers see what comes of it, and so do captures of these passes.

        Args:
            heads: a selection among those of the last pass: ``"2.1"``, ``"3.*"``; or of a module,
                ``"blocks.3:2"``.
            gate: 0 takes them away, 0.5 halves them; or a tensor [heads] with one for each, in
                their order, which gets a gradient where it asks for one.

        Raises:
            SelectionError: no such head.
            UsageError: nothing has run; outside of the ``with`` block of :func:`watch`; inside of
                another; gates that are not as many as heads.
        """
        layout = self._watch.layout
        chosen = select(",".join(map(self._named, heads.split(","))), layout)
        if getattr(gate, "ndim", 0) and tuple(gate.shape) != (len(chosen),):
            raise UsageError(
                "{gate} has the shape {}, and {} heads are chosen; it takes a number, or one each",
                tuple(gate.shape), len(chosen), gate=...,
            )  # fmt: skip
        with self._watch.gating(chosen, gate):
            yield

    def _named(self, heads: str) -> str:
        """Return a selection by a module's name as one by its layer's number."""
        module, colon, indices = heads.strip().rpartition(":")
        layers = [
            site
            for site, path in self._watch.paths.items()
            if colon and (path == module or path.startswith(f"{module}."))
        ]
        if len(layers) != 1:
            return heads
        (site,) = layers
        return f"{SITE_PREFIX[site.kind]}:{site.layer}.{indices}"


@interface
@contextmanager
def watch(
    module: Any,
    *,
    passes: int = 1,
    layout: str | None = None,
    batch: int | None = None,
    order: str | None = None,
) -> Iterator[Watched]:
    """Watch the attention of a PyTorch module while your own code runs it.

    Every ``nn.MultiheadAttention`` in a module (those of ``nn.Transformer``, its encoder, decoder
    and their layers among them) is watched, every call of ``scaled_dot_product_attention`` in it,
    and every softmax of scores of queries and keys that meets values: the weights of every head,
    before dropout. They are computed beside the module's own calls, whose results, gradients and
    random numbers are those of a run that nobody watches.

    Args:
        module: an ``nn.MultiheadAttention``, or whatever has some inside or attends itself. Which
            axis of weights is heads and which the batch is told by how queries and keys were made;
            what cannot be told, or is no attention, is not read, and notes of the capture say why.
            Keys of another sequence are cross-attention; those of a cache or a prefix stand before
            the queries' own. Where neither shows, keys of another length count as cross-attention.
        passes: how many of the last passes to keep. A pass is a call of ``module`` or of one of its
            methods; where only parts of it are called, it ends when a part is called again.
        layout: what the axes of written-out weights are where the code does not show it, a letter
            each: b batch, h heads, q queries, k keys, such as ``"hbqk"``.
        batch: how many items [batch · heads, queries, keys] holds.
        order: ``"bh"`` or ``"hb"``: which of the two is the slower one there.

    Yields:
        What was watched: ``capture(tokens)`` of it, inside the ``with`` block or after it.

    Raises:
        UsageError: no module, or a layout that is none.
    """
    watched = Watched(module, passes, layout=layout, batch=batch, order=order)
    with watched._watch.watching():
        yield watched


def tokens_of(tokens: Any, tokenizer: Any, item: int | None) -> Tokens:
    """Tokens as a caller has them: records, texts, ids, or rows of these for a batch."""
    from attnviz.models.recorded import layouts

    if isinstance(tokens, Tokens):
        return tokens
    array = hasattr(tokens, "tolist")
    listed = tokens.tolist() if array else tokens
    if isinstance(listed, Sequence) and listed and isinstance(listed[0], list | tuple):
        listed = listed[layouts.choose_item(len(listed), item)]
    if isinstance(listed, list | tuple) and None in listed:  # patches of a picture
        listed = [PATCH if token is None else token for token in listed]
    if tokenizer is None and not (array and listed and isinstance(listed[0], int)):
        return arrays.named(listed)
    return arrays.spelled(listed, tokenizer)
