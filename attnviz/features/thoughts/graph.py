"""Which thought feeds which, for Graphviz."""

from __future__ import annotations

from attnviz.drawing.labels import shorten, visible
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import Thoughts

_TEXT = 40


def dot(result: Thoughts) -> str:
    """The first trace as DOT: an edge to each sentence from those that it needs most."""
    trace = result.traces[0]
    lines = ["digraph thoughts {", "  rankdir=TB;", '  node [shape=box, fontname="sans-serif"];']
    for number, sentence in enumerate(trace.sentences):
        text = f"{words.number(trace, number)}: {shorten(visible(sentence.text), _TEXT)}"
        lines.append(f"  s{number + 1} [label={_quoted(text)}];")
    for number in range(len(trace.sentences)):
        lines += [
            f"  s{other + 1} -> s{number + 1} [label={_quoted(words.effect(value))}];"
            for other, value in trace.feeds(number)
        ]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
