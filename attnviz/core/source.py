"""A forward pass as everything above ``models/`` knows it: what goes in, goes by, and comes out.

:class:`Source` runs a batch. Attention leaves it block by block as :class:`Rows`, for whoever
watches (:class:`Observer`); a :class:`Gate` changes what a layer's heads pass on, a
:class:`Cut` what they attend to; gradients reach the gates; a :class:`Start`
begins in the middle; :class:`Output` is what is left at the end.
What it computes with are NumPy arrays or torch tensors (:mod:`attnviz.core.arrays`), in one pass of
one kind. Notation in shapes: B batch, H query heads, G key/value heads, T queries, S keys, d_v
width of a head's values, D width of the residual stream, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Movable
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Tokens
from attnviz.core.weights import Embedding, Held, OutputProjection, Reading, Readout, Sublayer

CutMethod = Literal["mask", "rescale", "zero", "redirect"]
"""What happens to the weights of cut edges, see :class:`Cut`."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut(Movable):
    """Which edges of a layer are cut: of some heads, from some queries to some keys.

    Attention knockout (Geva et al. 2023, arXiv:2304.14767). An item's edges are all that lead from
    its rows to its keys; every array has N items, or one that stands for all. Of the weights α of
    a row with cut keys K:

    - ``mask``: the scores of K are -inf before softmax, so that the others share what K had;
    - ``rescale``: α_K = 0 after softmax, and the others are scaled to the sum that the row had: the
      same as ``mask``, but for learned sinks, which then take nothing of it;
    - ``zero``: α_K = 0, and nothing else changes;
    - ``redirect``: what K had goes to the keys in ``instead``, in proportion to what they have.

    A row that would be left without any key keeps its own token, but for ``zero``; where keys are
    of another sequence, it is all zero. A row that sees no key of ``instead`` stays as it is.

    With an ``order`` it is a control: the row loses as much weight m as K has, but from its other
    keys, one after the other in that order, each whole but the last. K keeps its weight, and what
    other keys are left with is scaled by (1 - m) / (1 - 2m), so that the row sums to what it did
    (with ``zero`` it is not). A row whose other keys have no more than m, or that has but one
    other key, stays as it is: no such control can be made. What is redirected has no ``order``.
    """

    heads: Array  # bool [N, H]
    rows: Array  # bool [N, T], by position
    keys: Array  # bool [N, S]
    method: CutMethod = "mask"  # see above
    onward: bool = False  # whether rows after the T-th, which a model writes, are cut as well
    instead: Array | None = None  # bool [N, S], of ``redirect``
    # int64 [N, S], the places of keys in the order, each once; None for no control
    order: Array | None = None

    @property
    def masks(self) -> bool:
        """Whether it is no more than a mask before softmax."""
        return self.method == "mask" and self.order is None


Cuts = Mapping[Site, Cut]
"""The cuts of a pass, by layer."""


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a layer's weights are made of: softmax(c tanh(s q·k / c) + bias) where keys are allowed.

    Views of the layer's own tensors, of all rows and keys, not of a block.
    """

    # [B, H, T, d], as they meet keys: turned by their positions where the model does that
    query: Array
    key: Array  # [B, G, S, d]; query head h meets key head h // (H / G)
    value: Array  # [B, G, S, d_v]
    scale: float  # s
    softcap: float | None = None  # c; None for scores that are not capped
    # added to the scores, each broadcastable to [B, H, T, S]; very low where an additive mask
    # blocks
    biases: tuple[Array, ...] = ()
    sinks: Array | None = None  # [H], scores of learned sinks that are no keys; None for none


@dataclass(frozen=True, slots=True)
class Rows:
    """A block of attention weights: some query rows of one layer, as :func:`attend` gives it."""

    site: Site  # the layer
    start: int  # position of the block's first query
    key_start: int  # position of the block's first key; keys outside the block got no weight
    weights: Array  # [B, H, r, s], float32 or float64, after softmax and before dropout
    # bool, broadcastable to ``weights``: the keys each query may attend to; None when every key in
    # the block is allowed to every query in it
    allowed: Array | None
    # what softmax was taken of, [B, H, r, s] and finite (very low where blocked), so that a
    # logarithm of the weights need not be computed again; None where it is not at hand
    logits: Array | None = None
    # [B, G, s, d_v], what the keys of the block carry, G heads for H queries' heads; a view of the
    # layer's own values; None where it is not at hand
    values: Array | None = None
    # whether part of each row went to a learned sink that is no key, so that rows sum to less than
    # 1 by design
    sink: bool = False
    # [B, r, D], what the residual path carries past attention to the block's queries; None where it
    # is not at hand
    residual: Array | None = None
    # what passes of each head's output, and what takes its place; None where all passes
    gate: Gate | None = None
    terms: Terms | None = None  # what the weights were computed from; None where it is not at hand
    # [B, H, r, d_v], what the layer multiplies z_h with before W_O, held at its value on this pass
    # (:attr:`OutputProjection.held`); None where W_O takes z_h as it is
    passes: Array | None = None
    # [B, H, r, d_v], of that the gate (Qiu et al. 2025, arXiv:2505.06708); None where there is
    # none
    opened: Array | None = None
    # [B, H, r], its mean over a head's channels, where it is between 0 and 1
    openness: Array | None = None
    # bool [B or 1, 1, r, S], of all keys, those outside of the block too: which a query could have
    # seen and the layer's indexer did not select, so that they are not allowed; None where nothing
    # selects
    unselected: Array | None = None

    @property
    def mask(self) -> Array:
        """Bool [B or 1, H or 1, r, s]: the keys of the block that each query may attend to."""
        allowed, lib = self.allowed, arrays.of(self.weights)
        if allowed is None:
            allowed = lib.full((1, 1, 1, 1), True, lib.bool_, self.weights)
        allowed = allowed[(None,) * (4 - allowed.ndim)]
        shape = (*allowed.shape[:2], *self.weights.shape[2:])
        return arrays.of(allowed).xp.broadcast_to(allowed, shape)


class Observer(Protocol):
    """Something that watches attention weights go by."""

    def observe(self, rows: Rows) -> None:
        """Take in one block; must not keep or change ``rows.weights`` without copying."""


@dataclass(frozen=True, slots=True, eq=False)
class Gate(Movable):
    """How much of each head's output z_h passes, ξ z_h + (1 - ξ) fill, before W_O mixes the heads.

    The head gates of Michel et al. 2019 (arXiv:1905.10650), with something to put in a head's
    place: its mean for mean ablation, another text's output for resample ablation.

    Where attention ran once for what n gates each change in their own way (:class:`Start`), shares
    are [n · B, H]: the outputs are repeated, n times the whole batch.
    """

    share: Array  # ξ, [H] or [B, H]; 1 changes nothing, 0 takes the head away
    fill: Array | None = None  # [H, d_v] or [B, T, H, d_v]; None for zero

    def by_head(self, like: Array) -> tuple[Array, Array | None]:
        """Give share [(B,) H, 1, 1] and fill [(B,) H, 1 or T, d_v], in the type of an array."""
        lib = arrays.of(like)
        share = lib.cast(self.share, like.dtype)[..., None, None]
        if self.fill is None:
            return share, None
        fill = lib.cast(self.fill, like.dtype)
        return share, fill[:, None] if fill.ndim == 2 else fill.swapaxes(1, 2)


Gates = Mapping[Site, Gate]
"""The gates of a pass; layers that are not in it pass everything."""


Part = Literal["q", "k", "v", "pattern", "z", "gate"]
"""What of a layer another run can give: queries, keys and values as attention reads them (after
rotary positions), its weights after softmax, the heads' outputs as attention gives them, and the
gate that they are multiplied with before W_O, where there is one."""

PARTS: tuple[Part, ...] = get_args(Part)
Kept = Literal["q", "k", "v", "pattern", "z", "gate", "written"]
"""What can be kept of a layer: its parts, and the heads' outputs as W_O gets them."""


@dataclass(frozen=True, slots=True, eq=False)
class Donor(Movable):
    """Another run's values in place of a layer's own: x + share (values - x), by head and position.

    Activation patching (Vig et al. 2020, arXiv:2004.12265) with shares of 0 and 1. The gradient
    of a metric to the shares, at 0, is attribution patching's estimate of the same (Nanda 2023):
    Σ (values - x) ∂m/∂x. Donors come before gates; observers see the layer's own weights.

    Where attention ran once for what n donors change each in their own way (:class:`Start`), the
    shares of ``pattern`` and ``z`` are of n · B items, as for :class:`Gate`.
    """

    part: Part  # what is replaced. Of ``pattern``, the other run's weights mix this run's values
    # q [B, H, T, d], k [B, G, S, d], v [B, G, S, d_v], pattern [B, H, T, S], z [B, H, T, d_v], gate
    # [B, H, T, d_v]; the batch may be a part of B that repeats
    values: Array
    share: Array  # [B, H or G] or [B, H or G, T or S]; 1 takes the other run's, 0 leaves this one's


Donors = Mapping[Site, Sequence[Donor]]
"""The donors of a pass; at most one for each part of a layer."""


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Where a pass begins, if not at the embeddings, and where it ends."""

    # the first layer that runs, from 0; the number of layers for none: what is left then is the
    # closing normalization and the LM head
    layer: int
    # [B, T, D], what enters it: ``Output.states[layer]`` of an earlier pass; of a batch that is the
    # same items n times over, those of the first B / n are enough. A model may then attend once in
    # that layer, up to the gate
    hidden: Array
    end: int | None = None  # the layer before which the pass ends; None for after the last


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Keys and values of tokens that ran before, for a pass of what comes after them."""

    # of every layer keys and values, [B, G, S, d] and [B, G, S, d_v]
    layers: tuple[tuple[Array, Array], ...]

    @property
    def length(self) -> int:
        """S, how many tokens they are of."""
        return int(self.layers[0][0].shape[2])

    def first(self, count: int) -> Past:
        """Those of the first tokens alone."""
        return Past(tuple((key[:, :, :count], value[:, :, :count]) for key, value in self.layers))


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a forward pass ends with. Positions beyond an item's own length mean nothing."""

    # [B, T, D], the last layer's states, normalized where the model ends with a normalization; of
    # the decoder in an encoder-decoder model. None unless asked for
    hidden: Array | None = None
    # [B, T, V] of the LM head, or at some positions; None unless asked for and there is one, see
    # :attr:`Source.no_logits`
    logits: Array | None = None
    # what enters each layer that ran, and what leaves the last one before any closing
    # normalization, [B, T, D] each; empty unless asked for
    states: tuple[Array, ...] = ()
    # what each layer's feed-forward part adds to the residual stream, [B, T, D] each, 0 of layers
    # without one; empty unless asked for
    mlps: tuple[Array, ...] = ()
    past: Past | None = None  # keys and values of all tokens; None unless asked for
    # with ``mlps``, what the parts add that mix tokens without attention, [B, T, D] by layer, of
    # the layers that :attr:`Readout.mixers` names
    mixers: Mapping[int, Array] = field(default_factory=dict)
    # with ``mlps``, σ of the n normalizations that a layer puts over the stream, [B, T, n] in
    # float64 by layer, of the layers in :attr:`Readout.over`
    deviations: Mapping[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ForwardRequest:
    """What a forward pass is to change, and what it is to give beside the blocks of weights."""

    gates: Gates | None = None  # what passes of each head's output, by layer
    # what another run puts in place of this one's queries, keys, values, weights or heads' outputs,
    # by layer
    donors: Donors | None = None
    # which edges of attention are cut, by layer; observers see the weights that are left
    cuts: Cuts | None = None
    # whether the last hidden states are needed; without them (and without logits and states) the
    # pass ends when the last layer has attended
    hidden: bool = True
    logits: bool = False  # whether the LM head runs
    # at which of the positions that run, in their order and the same in every item; None for all
    # The LM head may take as long as several layers
    logits_at: tuple[int, ...] | None = None
    # one position of each item, int64 [B], at which last hidden states and logits are needed: they
    # are then [B, 1, ...]. None for all, or those of ``logits_at``. What the last layer does behind
    # its attention may then be left out elsewhere
    ends: NDArray[np.int64] | None = None
    states: bool = False  # whether the states between the layers are kept
    # whether what the feed-forward parts add is kept, for models with a :meth:`Source.readout`
    mlps: bool = False
    # whether the blocks of every layer with a known :meth:`Source.sublayer` carry what the residual
    # path carries; without it they may
    residuals: bool = False
    # whether the blocks carry what their weights are made of, of every layer where it is known;
    # without it they may
    terms: bool = False
    # let gradients reach the gates, the donors and the states of a start; the model's own weights
    # stay frozen. Without it nothing is tracked
    grad: bool = False
    # begin at a layer, with these states: gating a layer leaves everything below it as it was
    start: Start | None = None
    # whether keys and values are kept, of a model that :attr:`Source.continues`
    keep: bool = False
    # run only the tokens behind these, of whole texts of one length: changing a token's attention
    # leaves all before it as it was. Hidden states and logits are of the tokens that run; there are
    # no observers, and no states are kept
    past: Past | None = None

    @property
    def asked(self) -> Positions:
        """The positions at which logits are needed, as :func:`at_positions` takes them."""
        return self.logits_at if self.ends is None else self.ends


Positions = Sequence[int] | NDArray[np.int64] | None
"""Positions of every item, the same of each; as an array [B], one of each item; None for all."""


def at_positions(rows: Array, positions: Positions) -> Array:
    """Take some positions of every item, in their order, [B, T, ...] -> [B, n, ...]."""
    if positions is None:
        return rows
    if isinstance(positions, np.ndarray):
        lib = arrays.of(rows)
        items = lib.arange(0, len(rows), lib.int64, rows)
        return rows[items, lib.asarray(positions, lib.int64, rows)][:, None]
    first, stop = positions[0], positions[-1] + 1
    lib = arrays.of(rows)
    run = list(positions) == list(range(first, stop))  # no copy, which is too large for logits
    return rows[:, slice(first, stop) if run else lib.asarray(positions, lib.int64, rows)]


PLAIN = ForwardRequest()
"""A pass as it is, with its last hidden states."""


class Source(Protocol):
    """A loaded model: the one thing that ``models/`` hands up."""

    @property
    def info(self) -> SourceInfo:
        """Where its weights come from."""

    @property
    def layout(self) -> Layout:
        """Which heads it has."""

    @property
    def max_tokens(self) -> int | None:
        """The longest sequence it can take, or None."""

    @property
    def vocab_size(self) -> int | None:
        """The number of token ids, or None where there is no vocabulary."""

    @property
    def no_logits(self) -> str:
        """Why the model gives no logits, as the end of a sentence; empty where it does."""

    @property
    def no_gates(self) -> str:
        """Why its attention cannot be gated, as the end of a sentence; empty where it can."""

    @property
    def start_kind(self) -> SiteKind | None:
        """The kind of layers that a :class:`Start` may name; None where none can."""

    @property
    def continues(self) -> bool:
        """Whether a pass may go on behind the keys and values of another (:class:`Past`)."""

    @property
    def concurrent(self) -> int:
        """How many passes of it threads may run side by side; 0 where passes are large instead."""

    def prepare(self, prompt: Prompt) -> Inputs:
        """Tokenize; raises InputError or UsageError on what this model cannot take."""

    def tokens(self, ids: Sequence[int]) -> Tokens:
        """Return what ids stand for; ModelError where there is no vocabulary."""

    def forward(
        self,
        batch: Sequence[Inputs],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Output:
        """Run the model; every layer's rows go to every observer.

        Shorter items are padded on the right; padding is never attended to, so an item's rows
        ``[:T]`` and keys ``[:S]`` are the same as when it runs alone.

        Args:
            batch: prepared inputs.
            observers: each gets every block of attention weights.
            request: what the pass is to change, and what it is to give beside the blocks.

        Raises:
            ModelError: gates, donors, cuts, a start or parts that this model cannot do, see
                :attr:`no_gates`, :attr:`start_kind` and :meth:`readout`; or it does not fit in
                memory.
        """

    def output(self, site: Site) -> OutputProjection:
        """W_O and b_O of a layer."""

    def sublayer(self, site: Site) -> Sublayer:
        """Return what a layer does around its attention, or why that is not known."""

    def reading(self, site: Site) -> Reading:
        """W_Q, W_K and W_V of a layer, and what the layer reads through."""

    def embedding(self) -> Embedding:
        """W_E, and the positions where those are added."""

    @property
    def no_sum(self) -> str:
        """Why what heads write does not reach later layers in a known way; empty where it does."""

    def readout(self) -> Readout:
        """How the residual stream becomes logits, or why it is no sum of parts."""

    def cutting(self, cuts: Cuts) -> AbstractContextManager[Source]:
        """Let cuts stand in every pass inside the ``with`` block, also where the model writes."""

    def gated(self, shares: Mapping[str, float]) -> AbstractContextManager[Source]:
        """Let only a share of some heads' outputs pass in every pass inside the ``with`` block.

        Args:
            shares: selections of heads, such as ``"5.1"``, and what passes of them.
        """


def tolerance(source: Source) -> float:
    """Give how far parts may add up off their logit or score, as a share of one above 1."""
    return 0.05 if source.info.dtype in ("float16", "bfloat16") else 1e-4


def held(source: Source) -> tuple[Held, ...]:
    """Give what the layers of a model multiply their heads' outputs with around W_O, each once."""
    kinds: dict[Held, None] = dict.fromkeys(
        kind for site in source.layout.sites for kind in source.output(site).held
    )
    readout = source.readout().summed
    kinds |= {"after": None} if readout.after else {}
    kinds |= {"over": None} if readout.over else {}
    if readout.head is not None:
        kinds["pool" if readout.head.norm is None else "head"] = None
    return tuple(kinds)
