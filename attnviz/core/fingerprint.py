"""What tells one corpus from another: a hash, for results and captions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

DIGITS = 16
"""Of a hash in a result; captions show the first half of them."""


def fingerprint(texts: Iterable[object]) -> str:
    """A hash of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(repr(text).encode("utf-8", "backslashreplace") + b"\n")
    return digest.hexdigest()[:DIGITS]
