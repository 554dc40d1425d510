"""The exit codes: one table, which ``attnviz --help`` shows; those that are no error's own."""

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

CODES = {
    0: "done; a check that was asked for holds",
    1: "the work cannot be done: a text, a model, a file",
    2: "wrong use: options, sizes, a selection of heads or tokens",
    IN_PART: "done, but for some texts that could not be used (export, profile)",
    DIFFERS: "a check does not hold (check, card --check, diff --fail-over, shapes --show verify)",
    NOTHING_COMPARED: "there was nothing to check (card --check, diff --fail-over)",
    BUG: "a bug",
    INTERRUPTED: "interrupted",
}
"""What each says, of every command."""


class Interrupted(AttnvizError):
    """Ctrl-C, with what is left to say."""

    exit_code = INTERRUPTED
