"""The tests mirror the package."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""Of the repository."""
