"""Texts to cut, each with the token that should follow where one is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.captures.inputs import prompt_of, prompts_of
from attnviz.captures.settings import ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.prompt import Prompt
from attnviz.corpus import lines
from attnviz.errors import InputError, UsageError

_FIELDS = ("text", "chat", "messages", "target", "spans", "answer", "against")


@dataclass(frozen=True, slots=True)
class CutText:
    """A text, and what is asked of it.

    Attributes:
        prompt: what runs.
        answer: the token that should follow; None where none is asked for.
        against: what it is set against; None for nothing.
    """

    prompt: Prompt
    answer: str | None = None
    against: str | None = None


Given = str | Prompt | Capture | CutText | Mapping[str, Any]
"""A text, a prompt, a capture, one with its answer, or a dictionary: ``text``, ``answer``, ..."""


def cut_texts(
    given: Given | Path | Iterable[Given],
    answer: str | None,
    against: str | None,
    model: ModelSettings,
) -> tuple[list[CutText], ModelSettings]:
    """Texts with their answers, and the model that they run on."""
    if isinstance(given, Path):
        texts = list(_read(given))
    else:
        single = isinstance(given, str | Prompt | CutText | Mapping | Capture)
        several: Iterable[Any] = [given] if single else given  # type: ignore[assignment]
        texts = []
        for number, item in enumerate(several, 1):
            plain = item
            if isinstance(item, Capture):
                lacks = "cannot be cut, since that needs the model"
                (plain,), model = prompts_of(item, lacks, model)
            texts.append(_text(plain, "the text" if single else f"text {number}"))
    if not texts:
        raise InputError("no text to cut; give at least one")
    return [
        replace(text, answer=text.answer or answer, against=text.against or against)
        for text in texts
    ], model


def _text(given: str | Prompt | CutText | Mapping[str, Any], place: str) -> CutText:
    if isinstance(given, CutText):
        return given
    if not isinstance(given, Mapping):
        return CutText(prompt_of(given))
    values = {name: given[name] for name in _FIELDS if given.get(name) is not None}
    values["chat"] = values.pop("messages", values.get("chat"))
    for name in ("text", "target", "answer", "against"):
        if not isinstance(values.get(name), str | None):
            raise InputError(f"{place}: its {name} is no text")
    spans = values.get("spans")
    if spans is not None and not (
        isinstance(spans, Mapping) and all(isinstance(span, str) for span in spans.values())
    ):
        raise InputError(f'{place}: its spans are no object such as {{"subject": "keys"}}')
    try:
        prompt = prompt_of(
            Prompt(
                values.get("text"),
                chat=values.get("chat"),
                target=values.get("target"),
                spans=values.get("spans"),
            )
        )
    except (UsageError, InputError) as error:
        raise InputError("{}: {}", place, error.message) from None
    return CutText(prompt, values.get("answer"), values.get("against"))


def _read(path: Path) -> Iterable[CutText]:
    """The texts of a .jsonl file, an object a line."""
    name = str(path)
    for number, line in lines.lines(name):
        place = f"{lines.shown(name)}:{number}"
        text = lines.sound(line, place)
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise InputError(f"{place} is no JSON object; write one with text and spans a line")
        yield _text(values, place)
