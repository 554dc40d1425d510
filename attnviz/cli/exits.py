"""The exit codes that are not an error's own."""

from __future__ import annotations

from attnviz.errors import AttnvizError

IN_PART = 3
"""Some texts could not be used and the rest is done."""
DIFFERS = 4
"""A check does not hold: of ``diff --fail-over``, ``shapes --show verify``, ``card --check``."""
NOTHING_COMPARED = 5
"""What a check is about is not there."""
BUG = 70
INTERRUPTED = 130


class Interrupted(AttnvizError):
    """Ctrl-C, with what is left to say."""

    exit_code = INTERRUPTED
