"""Messages of a chat and named parts of a text, as options and files give them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from attnviz.cli.option_names import option
from attnviz.errors import InputError, UsageError


def read_json(name: str) -> Any:
    """What a JSON file holds; InputError where it cannot be read."""
    from attnviz.core.record import parsed
    from attnviz.corpus import lines

    return parsed(lines.text(name), lines.shown(name))


_MESSAGE = re.compile(r"(system|user|assistant):\s*(.*)", re.DOTALL)
"""A message that is written out."""


def read_chat(given: Iterable[str]) -> list[dict[str, Any]]:
    """The messages of a chat: of files, and such as ``user: TEXT``, in their order."""
    messages: list[dict[str, Any]] = []
    for written in given:
        message = _MESSAGE.fullmatch(written)
        messages += (
            _messages(written) if message is None else [{"role": message[1], "content": message[2]}]
        )
    if all(message.get("role") == "system" for message in messages):
        raise UsageError(f"a system message alone is no chat; add {option('chat', 'user: TEXT')}")
    return messages


def _messages(name: str) -> list[dict[str, Any]]:
    """The messages of a file."""
    chat = read_json(name)
    if isinstance(chat, dict):
        chat = chat.get("messages")
    if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
        raise InputError(
            f'{name} holds no list of messages; write [{{"role": "user", "content": "..."}}]'
        )
    return chat


def read_spans(given: Iterable[str]) -> dict[str, str]:
    """Named parts of a text, of options and of files (``@FILE``)."""
    spans: dict[str, str] = {}
    for written in given:
        for title, text in _named(written).items():
            if title in spans:
                raise UsageError(
                    f"two spans have the name {title[:40]!r}; name one of them otherwise"
                )
            spans[title] = text
    return spans


def _named(written: str) -> dict[str, str]:
    """The spans that one option names."""
    if not written.startswith("@"):
        title, is_one, text = written.partition("=")
        if not is_one:
            raise UsageError(f"--span takes NAME=TEXT or @FILE, not {written[:40]!r}")
        return {title: text}
    listed = read_json(written[1:])
    if isinstance(listed, dict) and all(isinstance(text, str) for text in listed.values()):
        return listed
    raise InputError(f'{written[1:]} holds no spans; write {{"document": "regex:Paris.*?river"}}')
