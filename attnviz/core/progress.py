"""How far some work has come, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called again and again with a stage, how much of it is done, and how much there is."""
