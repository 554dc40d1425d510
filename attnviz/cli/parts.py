"""Messages of a chat and named parts of a text, as options and files give them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnviz.cli.voice import option
from attnviz.errors import InputError, UsageError


def _told(name: str) -> Any:
    """What a JSON file holds; InputError where it cannot be read."""
    from attnviz.core.record import parsed
    from attnviz.corpus import lines

    return parsed(lines.text(name), lines.shown(name))


def read_chat(name: str | None, system: str | None, user: str | None) -> list[dict[str, Any]]:
    """The messages of a chat: of a file, a system message before and the user's after them.

    Raises:
        UsageError: two system messages, or one alone; InputError: a file without messages.
    """
    found = [] if name is None else _told(name)
    if isinstance(found, dict):
        found = found.get("messages")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(
            f'{name} holds no list of messages; write [{{"role": "user", "content": "..."}}]'
        )
    if system is not None and any(one.get("role") == "system" for one in found):
        raise UsageError(f"{name} has a system message; leave out {option('system')}")
    before = [] if system is None else [{"role": "system", "content": system}]
    after = [] if user is None else [{"role": "user", "content": user}]
    if not found and not after:
        raise UsageError(f"a system message alone is no chat; add {option('user')}")
    return [*before, *found, *after]


def read_spans(given: Iterable[str], name: Path | None) -> dict[str, str] | None:
    """Named parts of a text, of options and of a file.

    Raises:
        UsageError: one without a name, or two of the same name; InputError: an unusable file.
    """
    found: dict[str, str] = {}
    listed = [] if name is None else _told(str(name))
    if isinstance(listed, dict) and all(isinstance(one, str) for one in listed.values()):
        found = dict(listed)
    elif name is not None:
        raise InputError(f'{name} holds no spans; write {{"document": "regex:Paris.*?river"}}')
    for one in given:
        title, is_one, written = one.partition("=")
        if not is_one:
            raise UsageError(f"--span takes NAME=TEXT, not {one[:40]!r}")
        if title in found:
            raise UsageError(f"two spans have the name {title[:40]!r}; name one of them otherwise")
        found[title] = written
    return found or None
