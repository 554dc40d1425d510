"""What every offline page needs: data that cannot become markup, and a policy that lets it be."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


def safe_json(value: Any) -> str:
    """ASCII JSON that cannot end the script element that holds it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def policy(*more: str, **own: str) -> str:
    """A content security policy that lets in the page's own parts and nothing else.

    Args:
        more: further rules.
        own: the page's ``script`` and ``style``, which it names by their hashes.
    """
    rules = ["default-src 'none'", *more]
    rules += [f"{name}-src {_hash(text)}" for name, text in own.items()]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
