"""The sentences of a trace: think tags, a plain rule for where one ends, or spans of one's own.

A sentence ends behind ``.``, ``!`` or ``?`` and closing quotes or brackets, if white space follows
them (of other scripts also where none does), and at the end of a line. Not behind a single letter,
a number that begins a line, or one of a few abbreviations; and what has no letter or digit belongs
to the sentence before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from attnviz.core.spans import Range, Span
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.features.thoughts.result import Part, Sentence

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
"""What models write around their thoughts."""
_END = re.compile(r"[.!?…]+[\"'”’»)\]*_]*(?=\s)|[。！？]+[」』”’）]*|\n+")
_SHORT = re.compile(
    r"(?:^|[\s(\"'“‘])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|Prof|vs|etc|cf|e\.g|i\.e|Fig|Eq|No)\.$"
)
_NUMBERED = re.compile(r"^\W*\d+[.)]$")
_SHOWN = 300  # characters of a sentence that are kept


@dataclass(frozen=True, slots=True)
class Split:
    """A trace as it is split."""

    sentences: tuple[Sentence, ...]  # in their order
    tagged: bool  # whether think tags were found


def split(tokens: Tokens, own: Collection[str] = (), first: int = 0) -> Split:
    """The sentences of a trace."""
    text, offsets = _text(tokens)
    thought, answer, tagged = _parts(text, offsets[first][0] if first < len(tokens) else 0)

    def part(place: int) -> Part:
        if not tagged:
            return "text"
        return "thought" if thought[0] <= place < thought[1] else "answer"

    spans = [span for span in tokens.spans if span.name in own]
    if spans:
        ranges = _spanned(spans)
    else:
        pieces = [piece for whole in (thought, answer) for piece in _pieces(text, whole)]
        ranges = [("", *run) for run in _runs(tokens, offsets, pieces, first)]
    sentences = tuple(
        Sentence(
            name, tokens.running(range(start, stop)).strip()[:_SHOWN], start, stop,
            part(offsets[start][1] - 1),
        )
        for name, start, stop in ranges
    )  # fmt: skip
    if len(sentences) < 2:
        what = "1 sentence" if sentences else "no sentence"
        raise InputError(
            "the trace has {}, and nothing later could read it; give one of two or more, or name "
            "its parts with {span}",
            what,
            span=...,
        )
    return Split(sentences, tagged)


def _text(tokens: Tokens) -> tuple[str, list[Range]]:
    """The text that tokens spell, and where each stands in it."""
    text, offsets = "", []
    for token in tokens.texts:
        offsets.append((len(text), len(text) + len(token)))
        text += token
    return text, offsets


def _parts(text: str, first: int) -> tuple[Range, Range, bool]:
    """Where thoughts and an answer stand in a text, and whether tags say so."""
    for opening, closing in TAGS:
        start, stop = text.find(opening), text.find(closing)
        tagged = start >= 0 and (stop < 0 or start < stop)
        if not tagged and stop < first:
            continue
        inside = start + len(opening) if tagged else first
        if stop < 0:
            return (inside, len(text)), (len(text), len(text)), True
        return (inside, stop), (stop + len(closing), len(text)), True
    return (first, len(text)), (len(text), len(text)), False


def _pieces(text: str, whole: Range) -> list[Range]:
    """Where the sentences of a part stand in a text."""
    start, stop = whole
    pieces: list[Range] = []
    for match in _END.finditer(text, start, stop):
        if not match[0].isspace() and _goes_on(text[start : match.end()].lstrip()):
            continue
        pieces.append((start, match.end()))
        start = match.end()
    pieces.append((start, stop))
    joined: list[Range] = []
    for a, b in pieces:
        if any(map(str.isalnum, text[a:b])):
            joined.append((a, b))
        elif joined and text[a:b].strip():
            joined[-1] = (joined[-1][0], b)
    return joined


def _goes_on(sentence: str) -> bool:
    """Whether the stop at the end of these characters ends no sentence."""
    bare = sentence.rstrip("\"'”’»)]*_")
    return bool(_SHORT.search(bare) or _NUMBERED.match(sentence))


def _runs(
    tokens: Tokens, offsets: Sequence[Range], pieces: Sequence[Range], first: int
) -> list[Range]:
    """The tokens of each piece: those whose first character that is not white space is in it.

    Tokens of nothing but white space go with the sentence before them.
    """
    runs: list[list[int]] = [[] for _ in pieces]
    current = -1
    for place in range(first, len(tokens)):
        text = tokens.texts[place]
        start = offsets[place][0] + len(text) - len(text.lstrip())
        if not text.strip():
            if current >= 0:
                runs[current].append(place)
            continue
        inside = [n for n, (a, b) in enumerate(pieces) if a <= start < b]
        current = inside[0] if inside and not tokens.special[place] else -1
        if current >= 0:
            runs[current].append(place)
    return [(run[0], run[-1] + 1) for run in runs if run]


def _spanned(spans: Sequence[Span]) -> list[tuple[str, int, int]]:
    """Spans as sentences, in the order in which they stand."""
    for span in spans:
        if len(span.ranges) > 1:
            raise InputError(
                f"span {span.name!r} is in {len(span.ranges)} pieces; a sentence of a trace is one"
            )
    ordered = sorted(spans, key=lambda span: span.ranges[0])
    for before, after in pairwise(ordered):
        if before.ranges[0][1] > after.ranges[0][0]:
            raise InputError(
                f"spans {before.name!r} and {after.name!r} overlap; sentences of a trace stand "
                "one after the other"
            )
    return [(span.name, *span.ranges[0]) for span in ordered]
