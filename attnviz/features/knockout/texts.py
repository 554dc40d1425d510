"""Texts to cut, each with the token that should follow where one is asked for, and what is cut.

Which queries and keys are meant: spans, the last token, all before it, sinks, punctuation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.captures.inputs import prompt_of, prompts_of
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import predicted
from attnviz.core.capture import Capture
from attnviz.core.heads import SiteKind
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.spans import EVERY, LAST, Span
from attnviz.core.tokens import Tokens
from attnviz.corpus import lines
from attnviz.errors import InputError, UsageError

_FIELDS = ("text", "chat", "messages", "target", "spans", "answer", "against")


@dataclass(frozen=True, slots=True)
class CutText:
    """A text, and what is asked of it."""

    prompt: Prompt  # what runs
    answer: str | None = None  # the token that should follow; None where none is asked for
    against: str | None = None  # what it is set against; None for nothing


Given = str | Prompt | Capture | CutText | Mapping[str, Any]
"""A text, a prompt, a capture, one with its answer, or a dictionary: ``text``, ``answer``, ..."""


def cut_texts(
    items: Given | Path | Iterable[Given],
    answer: str | None,
    against: str | None,
    model: ModelSettings,
) -> tuple[list[CutText], ModelSettings]:
    """Texts with their answers, and the model that they run on."""
    if isinstance(items, Path):
        texts = list(_read(items))
    else:
        single = isinstance(items, str | Prompt | CutText | Mapping | Capture)
        several: Iterable[Any] = [items] if single else items  # type: ignore[assignment]
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


def _text(item: str | Prompt | CutText | Mapping[str, Any], where: str) -> CutText:
    if isinstance(item, CutText):
        return item
    if not isinstance(item, Mapping):
        return CutText(prompt_of(item))
    values = {name: item[name] for name in _FIELDS if item.get(name) is not None}
    values["chat"] = values.pop("messages", values.get("chat"))
    for name in ("text", "target", "answer", "against"):
        if not isinstance(values.get(name), str | None):
            raise InputError(f"{where}: its {name} is no text")
    spans = values.get("spans")
    if spans is not None and not (
        isinstance(spans, Mapping) and all(isinstance(span, str) for span in spans.values())
    ):
        raise InputError(f'{where}: its spans are no object such as {{"subject": "keys"}}')
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
        raise InputError("{}: {}", where, error.message) from None
    return CutText(prompt, values.get("answer"), values.get("against"))


def _read(path: Path) -> Iterable[CutText]:
    """Yield the texts of a .jsonl file, an object a line."""
    fault = "no JSON object; write one with text and spans a line"
    for where, values in lines.objects(str(path), fault):
        if not isinstance(values, dict):
            raise InputError(f"{where} is {fault}")
        yield _text(values, where)


BEFORE, SINK, PUNCTUATION = "before", "sink", "punctuation"
ROWS = (LAST, EVERY)
KEYS = (BEFORE, SINK, PUNCTUATION, EVERY)


@dataclass(frozen=True, slots=True)
class Edges:
    """From some queries to some keys of one text."""

    kind: SiteKind  # of the layers that they are in
    rows: tuple[int, ...]  # positions of the queries, in order
    keys: tuple[int, ...]  # positions of the keys, in order
    instead: tuple[int, ...] = ()  # positions of the keys that get the weight; empty where none do


def names_of(inputs: Inputs) -> tuple[str, ...]:
    """Return the spans of a text."""
    return tuple(span.name for span in _named(inputs))


def edges_of(inputs: Inputs, rows: str, keys: str, instead: str | None = None) -> Edges | None:
    """Find the edges that two names mean in a text; None where it has no such part or layer."""
    spans = {span.name: span.positions for span in _named(inputs)}
    if rows not in spans and rows not in ROWS:
        return None
    two = "cross" in inputs.sides
    own = predicted(inputs)
    from_spans = rows in spans
    at = spans[rows] if from_spans else (len(own) - 1,) if rows == LAST else tuple(range(len(own)))
    source = inputs.sides["cross"].keys if two else own
    behind = two and not from_spans  # queries of a decoder
    of_decoder = behind and keys == BEFORE
    lost = spans[keys] if keys in spans else _class(own if of_decoder else source, keys, at)
    target = spans.get(instead or "", ())
    if lost is None or (instead is not None and not target):
        return None
    lost = tuple(n for n in lost if n not in set(target))
    kind: SiteKind = next(iter(inputs.sides))
    if two:
        kind = "decoder" if of_decoder else "cross" if behind else "encoder"
    if kind not in inputs.sides or not at or not lost:
        return None
    return Edges(kind, at, lost, target)


def tokens_of(inputs: Inputs, name: str) -> tuple[Tokens, tuple[int, ...]] | None:
    """Get the sequence that a span or the last token stands in, and where; None for other names."""
    for span in _named(inputs):
        if span.name == name:
            return _spanned(inputs), span.positions
    tokens = predicted(inputs)
    return (tokens, (len(tokens) - 1,)) if name == LAST else None


def _spanned(inputs: Inputs) -> Tokens:
    """Return the sequence whose parts are named: of an encoder and a decoder the encoder's."""
    return inputs.sides["cross"].keys if "cross" in inputs.sides else predicted(inputs)


def _named(inputs: Inputs) -> tuple[Span, ...]:
    return _spanned(inputs).spans


def _class(tokens: Tokens, name: str, rows: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the positions of a class of tokens; None for no such class."""
    places = range(len(tokens))
    if name == BEFORE:
        return tuple(range(min(rows)))
    if name == SINK:
        return tuple(n for n in places if n == 0 or tokens.special[n])
    if name == PUNCTUATION:
        return tuple(
            n
            for n in places
            if not tokens.special[n]
            and tokens.texts[n].strip()
            and not any(map(str.isalnum, tokens.texts[n]))
        )
    return tuple(places) if name == EVERY else None
