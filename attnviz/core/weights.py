"""What a model says of its weights: matrices, norms, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnviz.core import arrays
from attnviz.core.arrays import Array, Movable, converted, mapped

Held = Literal["gate", "norm", "scale", "after", "over", "head", "pool"]
"""A gate that is computed from what the layer reads (Qiu et al. 2025, arXiv:2505.06708), the γ / σ
of an RMS normalization (BitNet; Ma et al. 2024, arXiv:2402.17764), learned or constant scales; and
behind W_O the γ / σ of an RMS normalization (Gemma 2, OLMo 2), or the σ of the normalizations over
the sums (post-norm layers); and what an LM head of several layers does between its matrices, or a
classifier's pooler before its labels."""

_SAID = {
    "gate": "The gate that each head's output is multiplied with before W_O",
    "norm": "The scale of the normalization between heads and W_O",
    "after": "The scale of the normalization between W_O and the residual stream",
    "head": "What the LM head's activation leaves of each channel, with its normalization's scale,",
    "pool": "What the activation of the classifier's pooler leaves of each channel",
    "over": "The scale of every normalization after a sum (σ at the row that is read)",
}


def held_notes(kinds: Collection[Held]) -> Iterator[str]:
    """Yield what is held at its value where a sum over heads is split; a constant needs no word."""
    for kind, subject in _SAID.items():
        if kind in kinds:
            yield f"{subject} is held at its value here."


@dataclass(frozen=True, slots=True, eq=False)
class OutputProjection(Movable):
    """W_O, cut into heads: Σ_h z_h W_O^h + b_O is what the layer's attention gives.

    Where something is ``held``, it is Σ_h (z_h ⊙ m_h) W_O^h + b_O, with the m_h of a pass in
    :attr:`Rows.passes`.
    """

    weight: Array | None  # [H, d_v, D]; None where it is not known for certain
    bias: Array | None = None  # [D], or None
    reason: str = ""  # why there is no weight, empty where there is
    held: tuple[Held, ...] = ()  # what the layer multiplies its heads' outputs with before W_O

    def moved_to(self, like: Array) -> OutputProjection:
        """Return the same matrix as an array of the kind of another, where that is."""
        return Movable.converted(self, like)

    def converted(self, like: Array) -> OutputProjection:
        """Return the same matrix as an array of the kind and the type of another, where that is."""
        return mapped(self, lambda x: arrays.of(like).cast(converted(x, like), like.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Normalization(Movable):
    """γ ⊙ (x - mean x) / σ + β, layer or RMS normalization; see :class:`Readout`."""

    scale: Array  # γ, [D]
    eps: float  # ε
    shift: Array | None = None  # β, [D], or None
    centred: bool = True  # whether the mean goes


@dataclass(frozen=True, slots=True, eq=False)
class StreamNorms(Movable):
    """Normalizations that a layer puts over the whole stream, as post-norm layers do, in order."""

    # each with what the stream is multiplied with behind it in its γ and β
    norms: tuple[Normalization, ...]
    heads: int  # how many of them stand before the sum over the heads, or a mixer, is added
    mlp: int  # the same of the feed-forward part


@dataclass(frozen=True, slots=True, eq=False)
class HeadLayers(Movable):
    """What an LM head does before W_U: norm(f(n W + b)), n what the last normalization gives.

    With f(y) / y of every channel of y = n W + b (Φ(y) of GELU) and the σ of its normalization held
    at their values on a row, that is linear beside the biases.
    """

    weight: Array  # W transposed, [D, D]
    act: Callable[[Any], Any]  # f, number by number, 0 at 0; for arrays of the kind of ``weight``
    # the normalization; None where there is none, as in a classifier's pooler, whose W may be wider
    # or narrower
    norm: Normalization | None
    bias: Array | None = None  # b, [D], or None


@dataclass(frozen=True, slots=True, eq=False)
class Sublayer:
    """What a layer does around its attention: the residual connection, and a normalization.

    Post-norm (BERT; Vaswani et al. 2017, arXiv:1706.03762) gives norm(x + attention(x)), pre-norm
    (GPT-2, Llama; Xiong et al. 2020, arXiv:2002.04745) x + attention(norm(x)). In both, x is
    :attr:`Rows.residual`.
    """

    order: Literal["post", "pre"] | None  # which of the two; None where neither is known to hold
    # the normalization; None where there is none (pre-norm layers may lack it) or it is neither
    # layer nor RMS normalization
    norm: Normalization | None = None
    reason: str = ""  # why there is no order, as a sentence's end; empty where there is one


@dataclass(frozen=True, slots=True, eq=False)
class Readout(Movable):
    """How the residual stream becomes logits, where it is the sum of what the layers write to it.

    logits = (γ ⊙ (x - mean x) / σ + β) W_U + b with σ² = var x + ε (Ba et al. 2016,
    arXiv:1607.06450); RMS normalization (Zhang & Sennrich 2019, arXiv:1910.07467) leaves the mean
    in, σ² = mean x² + ε.
    """

    table: Array | None  # W_U transposed, [V, D]; None where there is no such sum
    scale: Array | None = None  # γ, [D]
    eps: float = 0.0  # ε
    shift: Array | None = None  # β, [D], or None
    bias: Array | None = None  # b, [V], or None
    centred: bool = True  # whether the mean goes
    reason: str = ""  # why there is no table, as the end of a sentence; empty where there is
    # what the model multiplies its logits with; ``scale`` and ``shift`` have it already
    factor: float = 1.0
    # by layer, the RMS normalization that the sum over the heads (and b_O) goes through before it
    # is added to the stream (Gemma 3, OLMo 2); nothing where it is added as it is
    after: Mapping[int, Normalization] = field(default_factory=dict)
    # by layer, what the sum over the heads is multiplied with before it is added, a number
    # (Granite) or one for each channel, [D]; nothing where that is 1 everywhere
    shares: tuple[Any, ...] = ()
    # by layer, what the stream that enters it is multiplied with before anything is added (Doge,
    # Gemma 4), likewise; nothing where that is 1 everywhere
    residual_scales: tuple[Any, ...] = ()
    # by layer, what it adds beside its parts and b_O, the same for every token, [D]
    biases: Mapping[int, Array] = field(default_factory=dict)
    # by layer, what a part is that mixes tokens without attention and adds to the stream: a layer
    # with a state, a convolution
    mixers: Mapping[int, str] = field(default_factory=dict)
    without_mlp: frozenset[int] = frozenset()  # the layers that have no feed-forward part
    # by layer, the normalizations that it puts over the whole stream (post-norm); with their σ held
    # (:attr:`Output.deviations`) they carry on what was added before
    over: Mapping[int, StreamNorms] = field(default_factory=dict)
    # whether there is a last normalization; without one σ is 1 and nothing is centred
    normed: bool = True
    # what stands between the last normalization and W_U; None where there is nothing
    head: HeadLayers | None = None
    # of logits that are capped, the same readout before the cap; None where there is no cap
    uncapped: Readout | None = None
    cap: float = 0.0  # c, where logits are c tanh(x / c) of the uncapped x; 0 where there is none

    def share(self, layer: int) -> Any:
        """Give what the sum over a layer's heads is multiplied with before it is added, or [D]."""
        return self.shares[layer] if self.shares else 1.0

    def onward(self, layer: int) -> Any:
        """Return what the layers behind one multiply the stream with that leaves it, or [D]."""
        scale: Any = 1.0
        for factor in self.residual_scales[layer + 1 :]:
            scale = scale * factor
        return scale

    @property
    def summed(self) -> Readout:
        """The readout whose logits are a sum: before the cap, where there is one."""
        return self if self.uncapped is None else self.uncapped


@dataclass(frozen=True, slots=True, eq=False)
class Reading(Movable):
    """What the heads of a layer read from the residual stream.

    With x the stream as it enters the layer and n = norm(x), q_h = n W_Q^h + b_Q^h, likewise keys
    and values; scores are ``scale`` · q · k. Queries and keys have width d.
    """

    # W_Q, [H, D, d]; None where it is not known for certain, as for ``key``
    query: Array | None = None
    key: Array | None = None  # W_K, [G, D, d]
    value: Array | None = None  # W_V, [G, D, d_v]; None where it is not known for certain
    query_bias: Array | None = None  # [H, d], or None
    key_bias: Array | None = None  # [G, d], or None
    # what the layer reads through; None where it reads the stream as it is
    norm: Normalization | None = None
    # what goes over the stream between this layer's attention and the next layer, in order (post-
    # norm models); nothing where the stream is only added to
    after: tuple[Normalization, ...] = ()
    scale: float = 1.0  # factor on the scores
    # queries and keys are turned by their positions (rotary embeddings) before they meet
    turned: bool = False
    causal: bool = True  # whether no query sees a later key
    # W_Q and W_K of queries and keys that are normalized (RMS) before they meet, with the γ of that
    # in them, so that scores are theirs but for two σ, which depend on the text; None where they
    # are not, or not known, and ``query`` and ``key`` are None beside it
    normed: tuple[Array, Array] | None = None
    # what goes over the stream that enters, once the layer has read it, before what its heads write
    # is added, in order; σ of these and of ``after`` depends on the text
    before: tuple[Normalization, ...] = ()
    # what every channel of the sum over the heads is multiplied with before it is added, [D], the γ
    # of a normalization of it too, but for its σ; None where that is 1
    gain: Array | None = None
    reason: str = ""  # why a matrix is missing, as the end of a sentence


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """What enters the first layer."""

    tokens: Array | None = None  # W_E, [V, D]; None where it is not known for certain
    # what position n adds, row n of [P, D]; None where nothing is added
    positions: Array | None = None
    norm: Normalization | None = None  # what both go through before the first layer, or None
    reason: str = ""  # why there is no table of tokens, as the end of a sentence


def output_slices(weight: Array, heads: int) -> Array:
    """W_O cut into heads: [D, H*d] as a linear layer stores it -> [H, d, D]."""
    return weight.T.reshape(heads, -1, weight.shape[0])


def input_slices(weight: Array, heads: int) -> Array:
    """W_Q, W_K or W_V cut into heads: [H*d, D] as a linear layer stores it -> [H, D, d]."""
    return weight.reshape(heads, -1, weight.shape[1]).swapaxes(1, 2)
