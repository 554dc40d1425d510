"""What is wrong with a file that some other program wrote."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileProblem:
    """One thing that is wrong with a recording.

    Attributes:
        path: of it inside the file, such as ``attentions[2, 0, 5]``; empty for the whole file.
        expected: what the format asks for.
        found: what is there, and how often where it is there more than once.
    """

    path: str
    expected: str
    found: str
