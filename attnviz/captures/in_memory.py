"""Attention of what a caller has in memory: arrays from elsewhere, PyTorch's modules at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attnviz.captures.captured import Captured, captured
from attnviz.core.heads import SITE_PREFIX, Site
from attnviz.core.interface import interface
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError


@interface
def from_arrays(
    attentions: Any,
    tokens: Any,
    *,
    source_tokens: Any = None,
    tokenizer: Any = None,
    item: int | None = None,
    kind: str | None = None,
    sinks: bool = False,
    model: str = "attention in memory",
) -> Captured:
    """Look at attention weights that were computed elsewhere.

    Args:
        attentions: an array for each layer, torch or NumPy, [heads, queries, keys] or
            [batch, heads, queries, keys], as ``output_attentions=True`` gives them; one array of
            all layers; or a model's whole output, whose ``attentions``, ``encoder_attentions``,
            ``decoder_attentions`` and ``cross_attentions`` are taken.
        tokens: the text of each position, or its id where there is a ``tokenizer``; of the
            decoder, and of the queries of cross-attention, where there are two sequences. For a
            batch either those of the item, or a list (array) of every item's.
        source_tokens: the same for the other sequence, that of the encoder: its tokens make a list
            of layers cross-attention.
        tokenizer: a transformers tokenizer, to read ids.
        item: which item of a batch; needed where there are several.
        kind: ``encoder``, ``decoder`` or ``cross``, for a list of layers; by default decoder where
            no query sees a later key.
        sinks: rows may sum to less than 1, for a learned sink takes a part (GPT-OSS).
        model: what to call where they come from.

    Raises:
        InputError: arrays that do not fit the tokens, or whose rows are no distributions.
        UsageError: arguments of the wrong type, an item that is not there or none chosen.
    """
    from attnviz.models import arrays

    own = tokens_of(tokens, tokenizer, item)
    other = None if source_tokens is None else tokens_of(source_tokens, tokenizer, item)
    return captured(
        arrays.from_arrays(attentions, own, other, item=item, kind=kind, sinks=sinks, model=model)
    )


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
    ) -> Captured:
        """What one item of a pass attended to, as :func:`attnviz.capture` gives it.

        Args:
            tokens: the text of each position; numbers by default. Of the decoder, and of the
                queries of cross-attention, where there are two sequences.
            source_tokens: the same for the other sequence.
            item: which item of a batch; needed where there are several.
            index: which of the passes that are kept; the last by default.

        Raises:
            UsageError: nothing has run, or there is no such pass or item.
            InputError: tokens that do not fit.
        """
        own, other = (
            None if t is None else tokens_of(t, None, item) for t in (tokens, source_tokens)
        )
        return captured(self._watch.capture(own, other, item, index))

    @property
    def layers(self) -> dict[str, str]:
        """Which module each layer of the last pass is: ``{"0": "blocks.0.attn"}``.

        Layers count in the order in which they run; of several kinds they are named with it, as
        heads are (``cross:0``). A module that attended twice has its second call's number.

        Raises:
            UsageError: nothing has run.
        """
        return {name: path for name, (_, path) in self._layers().items()}

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
        from attnviz.scoring.select import select

        layout = self._watch.layout
        chosen = select(",".join(map(self._named, heads.split(","))), layout)
        if getattr(gate, "ndim", 0) and tuple(gate.shape) != (len(chosen),):
            raise UsageError(
                "{gate} has the shape {}, and {} heads are chosen; it takes a number, or one each",
                tuple(gate.shape), len(chosen), gate=...,
            )  # fmt: skip
        with self._watch.gating(chosen, gate):
            yield

    def _layers(self) -> dict[str, tuple[Site, str]]:
        several = len({site.kind for site in self._watch.paths}) > 1
        return {
            f"{SITE_PREFIX[site.kind]}:{site.layer}" if several else str(site.layer): (site, path)
            for site, path in self._watch.paths.items()
        }

    def _named(self, heads: str) -> str:
        """A selection by a module's name as one by its layer's number."""
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
            Where nothing names the sequences, keys of another length than queries count as
            cross-attention.
        passes: how many of the last passes to keep. A pass is a call of ``module`` or of one of its
            methods; where only parts of it are called, it ends when a part is called again.
        layout: what the axes of written-out weights are where the code does not show it, a letter
            each: b batch, h heads, q queries, k keys, such as ``"hbqk"``.
        batch: how many items [batch · heads, queries, keys] holds.
        order: ``"bh"`` or ``"hb"``: which of the two is the slower one there.

    Yields:
        What was watched: ``capture(tokens)`` of it, inside the ``with`` block or after it.

    Raises:
        UsageError: no module, one of transformers, which :func:`load` takes, or a layout that is
            none.
    """
    watched = Watched(module, passes, layout=layout, batch=batch, order=order)
    with watched._watch.watching():
        yield watched


def tokens_of(given: Any, tokenizer: Any, item: int | None) -> Tokens:
    """Tokens as a caller has them: records, texts, ids, or rows of these for a batch."""
    from attnviz.models import arrays

    if isinstance(given, Tokens):
        return given
    listed = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(listed, Sequence) and listed and isinstance(listed[0], list | tuple):
        listed = listed[arrays.chosen(len(listed), item)]
    if tokenizer is None:
        return arrays.named(listed)
    return arrays.spelled(listed, tokenizer)
