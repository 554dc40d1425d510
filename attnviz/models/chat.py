"""Messages of a chat as the text that the tokenizer's own template makes of them.

Where a message stands in that text is not searched for but shown by the template itself: a
character that is in no message is put into it, and where it comes out is where that place of the
message went. It counts only if the text is otherwise the same. So a template that trims a message,
or cuts what a model thought from an answer, shows what it left.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.core.arrays import doubles, on_numpy
from attnviz.core.prompt import Inputs, Prompt, Reply
from attnviz.core.source import ForwardRequest, Source
from attnviz.core.spans import Range, found_in, span_query
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, ModelError, UsageError, cut
from attnviz.models.external_errors import SECONDS, OutOfBounds, bounded, one_line

Chat = Sequence[Mapping[str, Any]]
Render = Callable[[Chat], str]
"""What a template makes of messages; raises whatever a template raises."""

LONGEST = 64 << 20
"""Characters of the text of a chat."""
_IN_ALL = 120.0  # seconds for all that is asked of a template to find the messages of one chat
_PRIVATE = range(0xE000, 0xF8FF)  # characters that Unicode leaves to whoever needs some


def check_chat(chat: Chat) -> None:
    """Refuse what is no list of messages."""
    if not chat:
        raise InputError('the chat has no messages; give one, {"role": ..., "content": ...}')
    for number, message in enumerate(chat, 1):
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role.strip():
            raise InputError(f'message {number} has no role; write {{"role": "user", ...}}')
        if content is None and len(message) > 1:  # such as a call of a tool
            continue
        if not isinstance(content, str):
            kind = type(content).__name__
            raise InputError(f"the content of message {number} ({role}) is no text but {kind}")
        try:
            content.encode()
        except UnicodeEncodeError:
            raise InputError(f"message {number} ({role}) is not valid Unicode") from None


def as_text(prompt: Prompt, render: Render, model: str) -> tuple[Prompt, tuple[str, ...]]:
    """Return a prompt with the text that a template makes of its chat, and its messages as spans.

    Other spans of the prompt are looked for inside of the messages, one by one.
    """
    chat = prompt.chat
    if chat is None:
        return prompt, ()
    check_chat(chat)
    render = _within_bounds(render, model)
    try:
        text = render(chat)
    except (ModelError, InputError):
        raise
    except Exception as error:  # templates raise what they like, and jinja2 its own
        raise InputError(
            f"the chat template of {model} refuses these messages: {one_line(error)}"
        ) from None
    spans: dict[str, str] = {}
    notes: list[str] = []
    regions: list[Range] = []
    for name, number in _names(chat).items():
        rendered, left_out = _Marked(chat, number, text, render).rendered()
        if rendered:
            spans[name] = _chars(rendered)
            regions += rendered
        if left_out:
            notes.append(f"The chat template of {model} {left_out.format(name=name)}.")
    for name, spec in (prompt.spans or {}).items():
        if name in spans:
            raise UsageError(f"{cut(name)!r} is a message of the chat; give the span another name")
        query = span_query(name, spec)
        if query.kind in ("text", "regex"):
            ranges, note = found_in(query, text, sorted(regions))
            spans[name] = _chars(ranges)
            notes += [note] if note else []
        else:
            spans[name] = spec
    named = replace(prompt, chat=None, text=text, special_tokens=False, spans=spans)
    return named, tuple(notes)


def _within_bounds(render: Render, model: str) -> Render:
    """Bound a template: it may not run for ever, nor write a text that nobody can use."""
    until = time.monotonic() + _IN_ALL

    def rendered(chat: Chat) -> str:
        try:
            with bounded(min(SECONDS, until - time.monotonic())):
                text = render(chat)
        except OutOfBounds as error:
            raise InputError(
                f"the chat template of {model} was stopped: {error}; mend it, or give the text as "
                "it is"
            ) from None
        if len(text) > LONGEST:
            raise InputError(
                f"the chat template of {model} makes a text of {len(text):,} characters, more than "
                f"{LONGEST:,}; mend it, or give the text as it is"
            )
        return text

    return rendered


def _chars(ranges: Sequence[Range]) -> str:
    """Ranges of characters as a prompt's spans have them."""
    return "chars:" + ",".join(f"{first}-{end - 1}" for first, end in ranges)


def _names(chat: Chat) -> dict[str, int]:
    """Return what messages are called, by their roles: ``user``, ``assistant``, ``user 2``."""
    names: dict[str, int] = {}
    for number, message in enumerate(chat):
        if not message.get("content"):
            continue
        role, count = message["role"].strip(), 1
        while (name := role if count == 1 else f"{role} {count}") in names:
            count += 1
        names[name] = number
    return names


class _Marked:
    """One message of a chat, and where its characters come out of the template."""

    def __init__(self, chat: Chat, number: int, text: str, render: Render) -> None:
        self._chat, self._number, self._text, self._render = chat, number, text, render
        self._content: str = chat[number]["content"]
        characters = set(text).union(*(str(message) for message in chat))
        self._mark = next(chr(code) for code in _PRIVATE if chr(code) not in characters)

    def rendered(self) -> tuple[tuple[Range, ...], str]:
        """Return the characters that are this message, and what is missing, to end a sentence."""
        content = self._content
        start, starts = self._edge(0, len(content) - len(content.lstrip()), last=False)
        end, ends = self._edge(len(content), len(content.rstrip()), last=True)
        intact = len(starts) == len(ends) and all(
            self._text[a:b] == content[start:end] for a, b in zip(starts, ends, strict=True)
        )
        if not starts or not intact or start >= end:
            return (), "does not show '{name}' as it was given, so that it is no span"
        ranges = tuple(zip(starts, ends, strict=True))
        lost = content[:start] + content[end:]
        if not lost:
            return ranges, ""
        amount = "white space" if not lost.strip() else f"{len(lost):,} characters"
        side = "around" if start and end < len(content) else "before" if start else "after"
        return ranges, f"leaves out {amount} {side} what is left of '{{name}}'"

    def _edge(self, *likely: int, last: bool) -> tuple[int, list[int]]:
        """Return the first place of the message that comes out, or the last one, and where."""
        for position in likely:
            if hits := self._out(position):
                return position, hits
        low, high = 0, len(self._content)  # what is before the first place does not come out
        while low < high:
            middle = (low + high + last) // 2
            if bool(self._out(middle)) == last:
                low = middle if last else middle + 1
            else:
                high = middle - 1 if last else middle
        return low, self._out(low)

    def _out(self, position: int) -> list[int]:
        """Where a place of the message stands in the text; nowhere if it is not the same text."""
        content, mark = self._content, self._mark
        marked = dict(self._chat[self._number])
        marked["content"] = content[:position] + mark + content[position:]
        chat = [*self._chat[: self._number], marked, *self._chat[self._number + 1 :]]
        try:
            out = self._render(chat)
        except InputError:
            raise
        except Exception:  # a template may look at what is said
            return []
        if out.replace(mark, "") != self._text:
            return []
        return [match.start() - count for count, match in enumerate(re.finditer(mark, out))]


AGREE = 0.1
"""Natural logarithms that half precision may be off by."""
_CAUSES = "another quantization, another chat template, or logarithms taken after a temperature"


def compared(source: Source, inputs: Inputs, reply: Reply) -> Inputs:
    """Return the same inputs with a note on how the reply's log probabilities compare."""
    ((kind, sides),) = inputs.sides.items()
    tokens = sides.queries
    span = next((span for span in tokens.spans if span.name == reply.span), None)
    if span is None:
        return inputs
    positions = [position for position in span.positions if position > 0]
    answered = replace(tokens, written=len(tokens) - positions[0]) if positions else tokens
    note = _note(source, inputs, answered, positions, reply)
    return replace(
        inputs, sides={kind: replace(sides, queries=answered, keys=answered)},
        notes=(*inputs.notes, note),
    )  # fmt: skip


def _note(
    source: Source, inputs: Inputs, tokens: Tokens, positions: list[int], reply: Reply
) -> str:
    count = len(reply.log_probs)
    if not count:
        return (
            "The server's response has no log probabilities to compare; ask it for them (logprobs)."
        )
    texts = [tokens.texts[position] for position in positions]
    if count == len(positions) + 1 and reply.texts:
        count -= 1  # the token that ends an answer, which is none of its text
    if count != len(positions) or not all(map(_alike, reply.texts, texts)):
        return (
            f"The tokenizer here reads the {len(reply.log_probs)} tokens that the server wrote as "
            f"{len(positions)} others: it has another tokenizer, or adds other tokens. Their log "
            "probabilities are not compared."
        )
    if source.no_logits:
        return f"Log probabilities are not compared: {source.no_logits}."
    request = ForwardRequest(hidden=False, logits=True)
    logits = source.forward([inputs], request=request).logits
    assert logits is not None
    rows = on_numpy.log_softmax(doubles(logits[0, [position - 1 for position in positions]]))
    local = rows[np.arange(len(positions)), [tokens.ids[position] for position in positions]]
    indices = [n for n in range(count) if reply.log_probs[n] is not None]
    if not indices:
        return "The server's response has no log probabilities to compare."
    remote = np.array([reply.log_probs[n] for n in indices], np.float64)
    gaps = np.abs(local[indices] - remote)
    worst = int(gaps.argmax())
    which = f"log probabilities of {len(indices)} tokens"
    if gaps[worst] <= AGREE:
        return f"The server's {which} and those of the model here agree to {gaps[worst]:.2g}."
    return (
        f"The server's {which} and those of the model here are up to {gaps[worst]:.2g} apart, at "
        f"{texts[indices[worst]]!r} ({remote[worst]:.2f} there, "
        f"{local[indices][worst]:.2f} here): {_CAUSES}."
    )


def _alike(sent: str, read: str) -> bool:
    """Whether two spellings may be of one token; some have no blanks, some are half a letter."""
    odd = "\N{REPLACEMENT CHARACTER}" in sent + read or sent.startswith(("bytes:", "token_id:"))
    return odd or sent.strip() == read.strip()
