"""A small network with all that it takes to run it elsewhere: frozen values, no torch.

Made by the native backend (:mod:`attnviz.models.native.portable`), read by the page that runs the
model itself (:mod:`attnviz.features.live.page`). Notation in shapes: V vocabulary, P positions,
D width, F width of the feed-forward part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnviz.core.heads import Layout
from attnviz.core.provenance import SourceInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer as plain values.

    Attributes:
        kind: ``bytepairs`` (GPT-2, RoBERTa) or ``wordpieces`` (BERT).
        tokens: every piece as the vocabulary spells it, by id.
        texts: every piece as a reader sees it, by id.
        special: ids of control tokens; ``separators`` of those that end a segment.
        separators: see ``special``.
        mask: the id of the mask, or None.
        before: ids that stand before a text; ``after`` behind it.
        after: ids that stand behind a text.
        whole: tokens that are found in the text before it is split: ``text``, ``id``, and whether
            white space to their ``left`` and ``right`` belongs to them.
        settings: what else the kind needs, by the names that the page's scripts use.
    """

    kind: str
    tokens: tuple[str, ...]
    texts: tuple[str, ...]
    special: tuple[int, ...]
    separators: tuple[int, ...]
    mask: int | None
    before: tuple[int, ...]
    after: tuple[int, ...]
    whole: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Portable:
    """A BERT or a GPT-2 as plain values.

    Attributes:
        source: where it comes from.
        layout: its heads.
        causal: whether tokens see only those before them.
        pre_norm: normalization before each sublayer and at the end, instead of after each.
        activation: ``gelu``, ``gelu_tanh`` or ``relu``.
        eps: of the normalizations.
        scales: the factor on the attention scores of each layer.
        offset: the first row of the positions that is used.
        max_tokens: the longest text.
        inner: F.
        tensors: name -> float32 array. ``tokens`` [V, D], ``positions`` [P, D], ``segment`` [D] of
            the first segment where there is one, ``norm.weight`` and ``norm.bias`` [D]; of layer l
            ``l.project`` [3D, D], ``l.out`` [D, D], ``l.up`` [F, D], ``l.down`` [D, F], each with
            ``.weight`` and ``.bias``, and ``l.norm1``, ``l.norm2``; of an LM head
            ``words.table`` [V, D] unless ``tied``, ``words.bias`` [V], ``words.dense``,
            ``words.norm``.
        words: whether it has an LM head; ``tied``: that multiplies with ``tokens``.
        tied: see ``words``.
        vocabulary: its tokenizer.
    """

    source: SourceInfo
    layout: Layout
    causal: bool
    pre_norm: bool
    activation: str
    eps: float
    scales: tuple[float, ...]
    offset: int
    max_tokens: int
    inner: int
    tensors: Mapping[str, NDArray[np.float32]]
    words: bool
    tied: bool
    vocabulary: Vocabulary
