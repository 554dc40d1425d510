"""The model that runs where none is named."""

from __future__ import annotations

DEFAULT_MODEL = "demo-gpt2"
"""A small GPT-2 that comes with attnviz; see its MODEL_CARD.md."""
