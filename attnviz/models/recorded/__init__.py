"""Attention recorded elsewhere, and ours on its way out: ``.npz``, ``.safetensors``, ``.json``.

A file holds ``attentions`` [L, H, T, S], or [L, B, H, T, S] for a batch, and ``tokens`` [T] (or
[B, T]); ``source_tokens`` [S] make it cross-attention. An encoder-decoder model's file holds
``encoder_attentions``, ``decoder_attentions`` and ``cross_attentions`` instead. In safetensors,
which has no strings, the tokens are JSON in the metadata. What attnviz writes also has the token
flags, which keys were allowed and, under ``meta``, where the weights came from. See
docs/recording.md.
"""

from __future__ import annotations

from attnviz.models.recorded.format import SUFFIXES, dump
from attnviz.models.recorded.reading import load

__all__ = ["SUFFIXES", "dump", "load"]
