"""Attention of what a caller has in memory: arrays from elsewhere, PyTorch's modules at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attnviz.captures.captured import Captured, captured
from attnviz.core.interface import interface
from attnviz.core.tokens import Tokens


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

    def __init__(self, module: Any, passes: int) -> None:
        from attnviz.models.watching import Watch

        self._watch = Watch(module, passes)

    def __len__(self) -> int:
        """How many passes are kept."""
        return self._watch.passes

    def __repr__(self) -> str:
        return f"<Watched: {len(self)} pass{'es' * (len(self) != 1)}>"

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


@interface
@contextmanager
def watch(module: Any, *, passes: int = 1) -> Iterator[Watched]:
    """Watch PyTorch's own attention modules while your own code runs them.

    Every ``nn.MultiheadAttention`` in a module (those of ``nn.Transformer``, its encoder, decoder
    and their layers among them) is watched, every call of ``scaled_dot_product_attention`` that the
    module makes itself, and every softmax of the last axis whose result meets values in a product,
    as in attention that is written out: the weights of every head, before dropout. The first two
    are computed beside the module's own call, whose results, gradients and random numbers stay as
    they are; only PyTorch's fast path is off meanwhile, which changes results by rounding.

    Args:
        module: an ``nn.MultiheadAttention``, or whatever has some inside or attends itself. Heads
            that share an axis with the batch, [batch · heads, queries, keys], are told apart by the
            length of the first tensor that it is called with. Where nothing names the sequences,
            keys of another length than queries count as cross-attention.
        passes: how many of the last passes to keep. A pass is a call of ``module``; where only
            parts of it are called, it ends when a part is called again.

    Yields:
        What was watched: ``capture(tokens)`` of it, inside the ``with`` block or after it.

    Raises:
        UsageError: no module, or one of transformers, which :func:`load` takes; FlexAttention.
    """
    watched = Watched(module, passes)
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
