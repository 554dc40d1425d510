"""Attention sinks at any position, and massive activations. What is not known is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.result import UNKNOWN, Interval, Result
from attnviz.core.scores import SINK_SHARE
from attnviz.core.settings import Settings, setting
from attnviz.drawing.renderable import Renderable

NormOf = Literal["output", "value"]
"""Whether norms are of what a key adds through W_O, ‖v W_O‖, or of its value alone, ‖v‖."""
CostUnit = Literal["nats", "1 - cosine"]
MASSIVE, TIMES = 100.0, 1000.0
"""An activation larger than the first, and so many times the median, is massive (Sun et al.)."""


GATE_CLASSES = ("first", "punctuation", "repeated", "other")
"""What a query's token is, for the gate on a head's output: the first of these that holds."""


@dataclass(frozen=True, slots=True)
class GateByToken:
    """How far the gate on a head's output is open, by the token whose row it is.

    Each text counts once, with the mean over its rows of that class. No value where no text has
    any, or where a head has no gate.

    Attributes:
        first: at position 0.
        punctuation: elsewhere, without a letter or digit.
        repeated: at other tokens that occurred before.
        other: at the rest.
    """

    first: Interval = UNKNOWN
    punctuation: Interval = UNKNOWN
    repeated: Interval = UNKNOWN
    other: Interval = UNKNOWN


@dataclass(frozen=True, slots=True)
class HeadSink:
    """Where a head's attention rests. The sink of a text is the key with the most weight in all.

    Attributes:
        head: which.
        share: the mean weight on the sink, over the rows that may attend to it.
        chance: of ``share``: uniform attention's on the same key. It falls with the length.
        weight: its share of all of the head's weight.
        texts: in how many texts ``share`` exceeds :data:`SINK`.
        position, at: where the sink stands in most texts, from 0; ``at`` in how many.
        token, token_texts: the token that it is in most texts; ``token_texts`` in how many.
        norm: of the sink's value against the mean of the other keys': ‖f(sink)‖ / mean ‖f‖.
        written: the sink's share of Σ α ‖f‖ over all rows, in place of Σ α.
        learned: weight on a learned sink that is no key; 0 for none.
        output: the mean norm of the head's output, against the mean over the heads of its layer.
        gate: how far the gate on its output is open, over all rows; no value without a gate.
        gates: the same by the token; None without a gate.
        without: what it costs to set the head's output to zero; None where it was not measured.
        without_sink: the same where the sink's weight goes to the other keys, in proportion.
    """

    head: Head
    share: Interval
    chance: float
    weight: Interval
    texts: int
    position: int
    at: int
    token: str
    token_texts: int
    norm: Interval
    written: Interval
    learned: Interval
    output: Interval
    gate: Interval = UNKNOWN
    gates: GateByToken | None = None
    without: Interval | None = None
    without_sink: Interval | None = None


@dataclass(frozen=True, slots=True)
class LayerActivation:
    """The largest activation in the states after a layer, over all texts.

    Attributes:
        layer: after which, from 0; -1 for the embeddings.
        value, dimension, position, text: of it; ``dimension`` and ``position`` where it is, in text
            number ``text`` (from 0).
        token: at its position.
        median: of the magnitudes of that text's states there.
        massive: in how many texts some activation is larger than 100 and at least 1,000 times the
            median (Sun et al. 2024, arXiv:2402.17762).
    """

    layer: int
    value: float
    dimension: int
    position: int
    text: int
    token: str
    median: float
    massive: int

    @property
    def times(self) -> float | None:
        """How many times the median; None where that is 0."""
        return abs(self.value) / self.median if self.median > 0 else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Sinks(Renderable, Result):
    """Where attention rests, and what that does.

    Attributes:
        tokens: of all texts.
        norm_of: what norms are of.
        threshold: of ``share``; above it a key is a sink.
        dormant_below: of ``output``; below it a head is dormant.
        unit: of costs; None where they were not measured.
        base: the loss of the whole model, in nats per token; None elsewhere.
        heads: all of them, in the order of the layout.
        layers: the states; empty where the model does not show them.
    """

    schema: ClassVar[str] = "attnviz.sinks/1"
    command: ClassVar[str] = "sinks"

    tokens: int
    norm_of: NormOf
    threshold: float
    dormant_below: float
    unit: CostUnit | None = None
    base: float | None = None
    heads: tuple[HeadSink, ...]
    layers: tuple[LayerActivation, ...] = ()

    def has_sink(self, head: HeadSink) -> bool:
        """Whether a head has a sink in most texts, or a learned one that takes so much weight."""
        return 2 * head.texts > self.texts or self.rests_on_learned(head)

    def rests_on_learned(self, head: HeadSink) -> bool:
        """Whether a head's sink is a learned one, which is no key."""
        learned = head.learned.value or 0.0
        return learned > self.threshold and learned > (head.share.value or 0.0)

    def rests_with(self, head: HeadSink) -> float:
        """How much weight is on a head's sink, of either kind."""
        share = head.learned if self.rests_on_learned(head) else head.share
        return share.value or 0.0

    def is_dormant(self, head: HeadSink) -> bool:
        """Whether a head's output is small for its layer."""
        return head.output.value is not None and head.output.value < self.dormant_below

    @property
    def sinks(self) -> tuple[HeadSink, ...]:
        """The heads with a sink, that with most weight on it first."""
        heads = [head for head in self.heads if self.has_sink(head)]
        return tuple(sorted(heads, key=lambda head: -self.rests_with(head)))

    @property
    def gated(self) -> tuple[HeadSink, ...]:
        """The heads with a gate, the one first that is most shut at the first token."""
        heads = [head for head in self.heads if head.gates is not None]
        return tuple(sorted(heads, key=_opens))

    @property
    def dormant(self) -> tuple[HeadSink, ...]:
        """The heads whose output is small for their layer."""
        return tuple(head for head in self.heads if self.is_dormant(head))

    @property
    def massive(self) -> tuple[LayerActivation, ...]:
        """The layers after which some activation is massive."""
        return tuple(layer for layer in self.layers if layer.massive)

    def __repr__(self) -> str:
        return f"<Sinks {self.source.model}, {len(self.sinks)} of {len(self.heads)} heads>"


def _opens(head: HeadSink) -> float:
    """How much further a gate is open at the first token than at other tokens."""
    gates = head.gates or GateByToken()
    return (gates.first.value or 0.0) - (gates.other.value or 0.0)


SINK = SINK_SHARE
DORMANT = 0.5
"""A head whose output is smaller than this share of its layer's mean is called dormant."""


@dataclass(frozen=True)
class SinksSettings(Settings):
    """What counts as a sink, and whether its cost is measured."""

    threshold: float = setting(
        SINK, "Mean weight on a key that makes it a sink.", least=0, common=True
    )
    dormant: float = setting(
        DORMANT,
        "A head is dormant below this share of its layer's mean output.",
        least=0,
        command=False,
    )
    ablate: bool = setting(
        False,
        "Also measure what it costs to ablate each head with a sink, and its sink alone.",
        common=True,
    )
