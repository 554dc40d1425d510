"""Thoughts as one offline page: the trace with bars, arcs, and where a sentence is read later."""

from __future__ import annotations

from typing import Any

from attnviz.drawing.grid import minus
from attnviz.drawing.html import still
from attnviz.drawing.labels import closing, rounded, visible
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import Matrix, ReceiverHead, Resampled, Thoughts, Trace
from attnviz.web.page import result_page


def page(result: Thoughts) -> bytes:
    """Return the whole page, as UTF-8."""
    title = words.title(result)
    data = {
        "title": title,
        "measured": words.measure(result),
        "closing": closing(result.source),
        "apart": result.apart,
        "readers": words.readers(result),
        "draws": result.draws,
        "reliability": result.reliability,
        "heads": [_head(result, head) for head in result.ranked()],
        "traces": [_trace(result, trace) for trace in result.traces],
        "notes": [minus(note) for note in result.notes],
    }
    return result_page(
        __package__,
        result,
        title=title,
        headline=minus(words.sentence(result)),
        still=still(result),
        data=data,
    )


def _head(result: Thoughts, head: ReceiverHead) -> dict[str, Any]:
    return {
        "name": result.layout.name(head.head),
        "kurtosis": _short(head.kurtosis),
        "control": _short(head.control),
        "ends": minus(words.ends(head)),
        "sure": bool(head.sure),
    }


def _trace(result: Thoughts, trace: Trace) -> dict[str, Any]:
    return {
        "sentences": [
            [words.number(trace, n), visible(sentence.text), sentence.part]
            for n, sentence in enumerate(trace.sentences)
        ],
        "read": list(map(_short, trace.read)),
        "needed": list(map(_short, trace.importance(result.apart))) if trace.log_kl else None,
        "resampled": list(map(_anew, trace.anew)) if trace.resampled else None,
        "attention": [
            ["mean of all heads", _matrix(trace.attention)],
            *(
                [[f"mean of {words.readers(result)}", _matrix(_mean(trace))]]
                if trace.receivers
                else []
            ),
            *(
                [result.layout.name(receiver.head), _matrix(receiver.matrix)]
                for receiver in trace.receivers
            ),
        ],
        "effects": _matrix(trace.effects) if trace.log_kl else None,
        "feeds": [trace.feeds(n) for n in range(len(trace.sentences))],
    }


def _anew(sentence: Resampled | None) -> tuple[float | None, str, bool]:
    """Return the effect, its interval, and whether it is sure."""
    if sentence is None:
        return None, "", False
    return _short(sentence.effect), minus(words.ends(sentence)), bool(sentence.sure)


def _mean(trace: Trace) -> Matrix:
    """Return the mean of the matrices of the receivers."""
    matrices = [receiver.matrix for receiver in trace.receivers]
    return tuple(
        tuple(
            None if cells[0] is None else sum(cell or 0.0 for cell in cells) / len(cells)
            for cells in zip(*rows, strict=True)
        )
        for rows in zip(*matrices, strict=True)
    )


def _matrix(matrix: Matrix) -> list[list[float | None]]:
    """Return the part of it where the column is earlier than the row."""
    return [[_short(value) for value in row[:n]] for n, row in enumerate(matrix)]


def _short(value: float | None) -> float | None:
    """Five significant digits, which is more than the page shows."""
    return rounded(value, 5)
