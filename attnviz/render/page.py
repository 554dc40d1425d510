"""What every offline page needs: its parts put together, data that cannot become markup, a policy.

A page is a template, a style behind the one that all share (``page.css``), a script put together
from modules (:mod:`attnviz.render.assemble`), and data.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Container, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


def filled(template: str, parts: Mapping[str, str]) -> bytes:
    """A template with its parts in place of ``{{name}}``, as UTF-8; parts are not looked into."""
    first, *rest = template.split("{{")
    out = [first]
    for part in rest:
        name, _, after = part.partition("}}")
        out += [parts[name], after]
    return "".join(out).encode("utf-8")


def stylesheet(own: Traversable) -> str:
    """A page's own style behind what all pages share."""
    return "".join(one.read_text("utf-8") for one in (files(__package__) / "page.css", own))


def modules(folder: Traversable, names: Container[str] | None = None) -> dict[str, str]:
    """The JavaScript modules of a folder, by name without ``.js``; only those named, if any are."""
    found = {
        entry.name.removesuffix(".js"): entry
        for entry in folder.iterdir()
        if entry.name.endswith(".js")
    }
    return {
        name: entry.read_text("utf-8")
        for name, entry in found.items()
        if names is None or name in names
    }


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
