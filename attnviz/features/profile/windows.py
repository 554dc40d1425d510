"""Long texts in windows of the model's length, cut between words.

Every window is a text of its own, so that it can be opened again with other commands. Tokenizers
differ in what they say about places in a text, so a window is found by trying: as many words as
give no more tokens than fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.errors import InputError, Setting, UsageError

LONGEST = 1024
"""Tokens of a window, also where a model could take more, unless another length is asked for."""
_WORDS = re.compile(r"\s*\S{1,40}")
"""A word with the space before it; what has no spaces is cut after 40 characters."""
_FULL = 0.95
"""A window is long enough when it fills so much of its room."""
_TRIES = 8


def limit(source: Source, window: int | None = None) -> int:
    """Tokens of a window."""
    most = source.max_tokens
    if window is None:
        return min(most or LONGEST, LONGEST)
    if window < 1 or (most is not None and window > most):
        room = "1 token or more" if most is None else f"1 to {most:,} tokens"
        raise UsageError(
            "{} is no window of this model, which takes {}", Setting("window", window), room
        )
    return window


def windows(
    prompt: Prompt, source: Source, stride: int | None = None, window: int | None = None
) -> Iterator[Inputs]:
    """A text as a model can take it, in one piece or several.

    ``prompt``: the text. One with a second text is never cut, nor a chat, a picture or a sound.
    """
    longest = limit(source, window)
    if prompt.image is not None or prompt.audio is not None or prompt.chat is not None:
        yield replace(source.prepare(prompt), texts=prompt.texts)
        return
    try:
        inputs = source.prepare(prompt)
    except InputError:
        if len(prompt.texts) > 1 or not _long(prompt, longest):
            raise
    else:
        if inputs.length <= longest or len(prompt.texts) > 1:
            yield replace(inputs, texts=prompt.texts)
            return
    yield from _cut(prompt, source, longest, stride)


def _long(prompt: Prompt, longest: int) -> bool:
    """Whether it may be its length that a model does not like: a token has a character at least."""
    return len(prompt.text or "") > longest // 4


def _cut(prompt: Prompt, source: Source, longest: int, stride: int | None) -> Iterator[Inputs]:
    """As few windows as words allow; each with its words as ``texts``."""
    text = prompt.text or ""
    spans = [match.span() for match in _WORDS.finditer(text)]

    def attempt(first: int, count: int) -> Inputs | None:
        words = text[spans[first][0] : spans[first + count - 1][1]].strip()
        try:
            inputs = source.prepare(prompt.cut_to(words))
        except InputError:
            if len(words) < 2:
                raise
            return None
        return replace(inputs, texts=(words,)) if inputs.length <= longest else None

    first, guess = 0, max(1, longest * 2 // 3)
    while first < len(spans):
        filled = _fill(partial(attempt, first), guess, len(spans) - first, longest)
        if filled is None:
            spans[first : first + 1] = _halves(spans[first], text, longest)
            continue
        count, inputs = filled
        yield inputs
        if first + count >= len(spans):
            return
        guess = count
        first += count if stride is None else max(1, min(count, round(count * stride / longest)))


def _halves(span: tuple[int, int], text: str, longest: int) -> list[tuple[int, int]]:
    """A word that no window holds, in two pieces: 40 characters can be 120 tokens."""
    start, end = span
    if end - start < 2:
        raise UsageError(
            "{} is too few for the tokens of {!r}; take a longer window",
            Setting("window", longest),
            text[start:end],
        )
    middle = (start + end) // 2
    return [(start, middle), (middle, end)]


def _fill(
    attempt: Callable[[int], Inputs | None], guess: int, most: int, longest: int
) -> tuple[int, Inputs] | None:
    """The number of words that fill a window, and the window; none where one word is too long."""
    low, best, high = 0, None, most + 1
    count = min(guess, most)
    for _ in range(_TRIES):
        inputs = attempt(count)
        if inputs is None:
            high = count
            count = max(low + 1, min(high - 1, int(count * 0.9)))
        else:
            low, best = count, inputs
            if inputs.length >= _FULL * longest or low + 1 >= high:
                break
            count = max(low + 1, min(high - 1, int(count * longest / inputs.length)))
        if low + 1 >= high:
            break
    while best is None and high > 1:  # words of very many tokens
        low = high // 2
        best, high = attempt(low), low
    return None if best is None else (low, best)
