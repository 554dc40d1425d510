"""Measures as papers define them, where ours of a like name are defined otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixMatching:
    """Prefix matching (Olsson et al. 2022, arXiv:2209.11895) on repeated random tokens.

    Attributes:
        means: for each head of the layout, over the probes; a perfect head has 0.5 with 4 copies.
        halves: half the width of the 95 % interval of each mean, probes being independent.
        chance: what uniform attention gets.
        probes: how many; each has ``copies`` times the same ``length`` random tokens.
        length: see ``probes``, as for ``copies``.
        copies: how often.
    """

    means: tuple[float, ...]
    halves: tuple[float, ...]
    chance: float
    probes: int
    length: int
    copies: int


@dataclass(frozen=True, slots=True)
class SinkRate:
    """Attention sinks as Gu et al. 2024 (arXiv:2410.10781) count them.

    A head is a sink on a text where the first token's mean weight over the first ``length`` rows
    exceeds ``threshold``.

    Attributes:
        rate: the share of heads that are sinks, the mean over texts.
        half: half the width of its 95 % interval over texts; None from a single one.
        heads: for each head of the layout the share of texts on which it is a sink.
        texts: how many had so many tokens.
        length: tokens from the beginning of a text.
        threshold: the paper's ε.
    """

    rate: float
    half: float | None
    heads: tuple[float, ...]
    texts: int
    length: int
    threshold: float
