"""Tiny checkpoints, as tests of models have them."""

from tests.models.conftest import folders

__all__ = ["folders"]
