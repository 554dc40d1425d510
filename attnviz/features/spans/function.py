"""``attnviz.spans``: how much every head attends to named parts of texts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from attnviz.captures import inputs as reading
from attnviz.captures.captured import notes
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import check_single_stack, distinct, same_as
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.settings import Progress
from attnviz.core.spans import ELSEWHERE, EVERY, LAST
from attnviz.errors import Setting, UsageError
from attnviz.features.spans import measure
from attnviz.features.spans.documents import sheet
from attnviz.features.spans.result import DocumentSettings, Spans, SpansSettings
from attnviz.models.norm_based import with_quantity
from attnviz.statistics.clusters import few_groups


@interface
def spans(
    text: reading.Input | Iterable[reading.Input] | Path,
    *,
    settings: SpansSettings,
    documents: DocumentSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, count, total: None,
) -> Spans:
    """Measure how much of their weight heads give to named parts of texts, against chance.

    The share of a row i on a span s is Σ_{j in s} α_ij; its chance the share of s among the keys
    that i may attend to. Both are means over the rows that may attend to any token of s; lift is
    the ratio of these means. Rows of norms (Kobayashi et al. 2020, arXiv:2004.10102) are divided by
    their sums.

    Args:
        text: a text or prompt with ``spans`` or a ``chat`` (every message is a span), several of
            them, or as a Path a .jsonl file of questions whose answer stands in one of several
            documents.

    Of a span that is a box of a picture there is the gaze of every head too, see
    :mod:`~attnviz.features.spans.measure`.

    Returns:
        Shares [N heads, K spans] with chance, lift and, from five texts, 95 % intervals over texts.

    Raises:
        UsageError: a text without spans, or rows that there are not; AttnvizError: see
        :mod:`attnviz.errors`.
    """
    if isinstance(text, Path) or documents.fields is not None:
        if not isinstance(text, str | Path):
            raise UsageError("documents are read from a .jsonl file; name one")
        result = sheet(
            light(model.load()), text, documents, rows=settings.rows, quantity=settings.quantity,
            progress=progress,
        )  # fmt: skip
        return replace(result, identity=model.identity)
    if extra := documents.changed(but=("seed",)):
        raise UsageError("{} is for a file of questions; name a .jsonl file", Setting(extra[0]))
    return _of_texts(text, model, settings.rows or LAST, settings.quantity, progress)


def _of_texts(
    text: reading.Input | Iterable[reading.Input],
    model: ModelSettings,
    rows: str,
    quantity: str,
    progress: Progress,
) -> Spans:
    several = list(reading.looks_of(text))
    if (unknown := reading.known_spans(several)) is not None:
        _check_rows(rows, unknown)
    looked = _looked(several, model, quantity)
    check_single_stack(looked.info.model, looked.layout, "spans")
    pairs = list(zip(looked.inputs, looked.runs, strict=True))
    distinct_pairs, copies = distinct(pairs, [_marked(item) for item in looked.inputs])
    texts = [inputs.tokens for inputs, _ in distinct_pairs]
    names = tuple(dict.fromkeys(span.name for tokens in texts for span in tokens.spans))
    _check_rows(rows, names)
    measuring = measure.Measuring(looked.layout, (*names, ELSEWHERE), rows)
    looking, gazes = measure.Looking.of(texts), list[measure.SpanSums]()
    for number, ((inputs, run), tokens) in enumerate(zip(distinct_pairs, texts, strict=True)):
        progress("texts", number, len(texts))
        groups = measuring.row_groups(tokens), measuring.key_groups(tokens)
        gaze_groups = looking.rows(tokens), looking.keys(tokens, inputs.picture)
        sums = run([*groups[0], *gaze_groups[0]], [*groups[1], *gaze_groups[1]])
        measuring.add(sums.block(slice(len(groups[0])), slice(len(groups[1]))), tokens)
        gazes.append(sums.block(slice(len(groups[0]), None), slice(len(groups[1]), None)))
    progress("texts", len(texts), len(texts))
    messages = measure.shortened(note for item in looked.inputs for note in notes(item))
    pictures = [measure.pictured(inputs.picture) for inputs, _ in distinct_pairs]
    few = few_groups(len({tokens.identity for tokens in texts}))
    return Spans(
        source=looked.info,
        layout=looked.layout,
        identity=looked.identity,
        texts=len(texts),
        rows=rows,
        quantity=quantity,
        spans=measuring.spans(),
        heads=measuring.heads(),
        gazes=tuple(looking.gazes(gazes, pictures, looked.layout)),
        notes=(*messages, *copies, *([few] if few and len(texts) > 1 else [])),
    )


def _check_rows(rows: str, names: Sequence[str]) -> None:
    """Raise UsageError where texts have no spans, or none of that name."""
    if not names:
        raise UsageError(
            "the text has no spans; name its parts with {span}, or give messages that hold words "
            "with {chat}",
            span=...,
            chat=...,
        )
    if rows not in (LAST, EVERY, *names):
        raise UsageError(f"no rows {rows!r}; choose last, all, {', '.join(names)}")


def _marked(inputs: Inputs) -> Hashable:
    """Return what tells a text and its spans from others."""
    key, spans = same_as(inputs), inputs.tokens.spans
    return None if key is None else (key, tuple((span.name, span.ranges) for span in spans))


@dataclass(frozen=True, eq=False, slots=True)
class _Looked:
    """Texts that can be measured: what each is, and what runs it."""

    info: SourceInfo
    layout: Layout
    identity: Mapping[str, Any]
    inputs: Sequence[Inputs]
    runs: Sequence[Callable[[measure.Groups, measure.Groups], measure.SpanSums]]


def _looked(several: Sequence[reading.Input], model: ModelSettings, quantity: str) -> _Looked:
    captures = [item for item in several if isinstance(item, Capture)]
    if not captures:
        several, model = reading.prompts_of(several, reading.NO_MODEL, model)
        source = light(model.load())
        shared = with_quantity(source, quantity, shares=True)
        inputs = reading.prepare_each(source, several)
        runs = [partial(measure.watched, shared, item) for item in inputs]
        return _Looked(source.info, shared.layout, model.identity, inputs, runs)
    first = captures[0]
    for item in several:
        if not isinstance(item, Capture) or item.layout.heads != first.layout.heads:
            raise UsageError("captures are measured with others of the same model alone")
        reading.check_quantity(item, quantity)
        if not all(item.holds(head) for head in item.layout):
            raise UsageError("a capture needs every head; capture it again without a selection")
    runs = [partial(measure.replayed, capture.finite()) for capture in captures]
    return _Looked(first.source, first.layout, {}, [capture.inputs for capture in captures], runs)
