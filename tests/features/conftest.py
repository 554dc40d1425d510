"""Tiny checkpoints, as tests of models have them."""

from tests.models.conftest import folders, read_once

__all__ = ["folders", "read_once"]
