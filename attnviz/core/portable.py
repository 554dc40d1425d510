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
    """A tokenizer as plain values."""

    kind: str  # ``bytepairs`` (GPT-2, RoBERTa) or ``wordpieces`` (BERT)
    tokens: tuple[str, ...]  # every piece as the vocabulary spells it, by id
    texts: tuple[str, ...]  # every piece as a reader sees it, by id
    special: tuple[int, ...]  # ids of control tokens; ``separators`` of those that end a segment
    separators: tuple[int, ...]
    mask: int | None  # the id of the mask, or None
    before: tuple[int, ...]  # ids that stand before a text; ``after`` behind it
    after: tuple[int, ...]  # ids that stand behind a text
    # tokens that are found in the text before it is split: ``text``, ``id``, and whether white
    # space to their ``left`` and ``right`` belongs to them
    whole: tuple[Mapping[str, Any], ...]
    # what else the kind needs, by the names that the page's scripts use
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Portable:
    """A BERT or a GPT-2 as plain values."""

    source: SourceInfo  # where it comes from
    layout: Layout  # its heads
    causal: bool  # whether tokens see only those before them
    pre_norm: bool  # normalization before each sublayer and at the end, instead of after each
    activation: str  # ``gelu``, ``gelu_tanh`` or ``relu``
    eps: float  # of the normalizations
    scales: tuple[float, ...]  # the factor on the attention scores of each layer
    offset: int  # the first row of the positions that is used
    max_tokens: int  # the longest text
    inner: int  # F
    # name -> float32 array. ``tokens`` [V, D], ``positions`` [P, D], ``segment`` [D] of the first
    # segment where there is one, ``norm.weight`` and ``norm.bias`` [D]; of layer l ``l.project``
    # [3D, D], ``l.out`` [D, D], ``l.up`` [F, D], ``l.down`` [D, F], each with ``.weight`` and
    # ``.bias``, and ``l.norm1``, ``l.norm2``; of an LM head ``words.table`` [V, D] unless ``tied``,
    # ``words.bias`` [V], ``words.dense``, ``words.norm``
    tensors: Mapping[str, NDArray[np.float32]]
    words: bool  # whether it has an LM head; ``tied``: that multiplies with ``tokens``
    tied: bool
    vocabulary: Vocabulary  # its tokenizer
