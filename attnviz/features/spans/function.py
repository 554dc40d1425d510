"""``attnviz.spans``: how much every head attends to named parts of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from attnviz.captures.look import (
    DEFAULT_MODEL,
    Look,
    Model,
    check_quantity,
    load,
    looks_of,
    prepared,
)
from attnviz.captures.notes import notes
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout
from attnviz.core.progress import Progress
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.spans import ELSEWHERE, EVERY, LAST
from attnviz.errors import UsageError
from attnviz.features.spans.documents import DocumentSettings
from attnviz.features.spans.measure import (
    Groups,
    Measuring,
    check_stack,
    replayed,
    shortened,
    tokens_of,
    watched,
)
from attnviz.features.spans.observe import SpanSums
from attnviz.features.spans.result import Spans
from attnviz.features.spans.sheet import sheet
from attnviz.models.identity import identity
from attnviz.models.weighed import weighed
from attnviz.statistics.clusters import few_groups


def spans(
    what: Look | Iterable[Look] | Path,
    *,
    model: Model = DEFAULT_MODEL,
    rows: str | None = None,
    weigh: str = "weights",
    documents: DocumentSettings | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = lambda stage, done, all_: None,
    **options: Any,
) -> Spans:
    """Measure how much of their weight heads give to named parts of texts, against chance.

    The share of a row i on a span s is Σ_{j in s} α_ij; its chance the share of s among the keys
    that i may attend to. Both are means over the rows that may attend to any token of s; lift is
    the ratio of these means.

    Args:
        what: a text or prompt with ``spans`` or a ``chat`` (every message is a span), several of
            them, or a .jsonl file of questions whose answer stands in one of several documents.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        rows: whose weight: ``"last"`` (the last token's), ``"all"``, or the name of a span; of a
            file of questions ``"answer"``.
        weigh: ``"weights"``, or ``"norm"`` for the norms of what is written (Kobayashi et al. 2020,
            arXiv:2004.10102), each row divided by its sum.
        documents: of a file of questions; or its fields by themselves, see ``options``.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        options: fields of :class:`~attnviz.features.spans.documents.DocumentSettings`:
            ``context``, ``question``, ``answer``, ``gold``, ``distractors``, ``select_on``,
            ``seed``, ``strict``.

    Returns:
        Shares [N heads, K spans] with chance, lift and, from five texts, 95 % intervals over texts.

    Raises:
        UsageError: a text without spans, or rows that there are not; AttnvizError: see
        :mod:`attnviz.errors`.
    """
    known = DocumentSettings.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; choose from {', '.join(known)}")
    if options:
        documents = replace(documents or DocumentSettings(), **options)
    if documents is not None or isinstance(what, Path):
        if not isinstance(what, str | Path):
            raise UsageError("documents are read from a .jsonl file; name one")
        source = load(model, device=device, dtype=dtype)
        settings = documents or DocumentSettings()
        found = sheet(source, what, settings, rows=rows, weigh=weigh, progress=progress)
        return replace(found, identity=identity(model))
    return _of_texts(what, model, rows or LAST, weigh, device, dtype, progress)


def _of_texts(
    what: Look | Iterable[Look],
    model: Model,
    rows: str,
    weigh: str,
    device: str,
    dtype: str,
    progress: Progress,
) -> Spans:
    looked = _looked(list(looks_of(what)), model, weigh, device, dtype)
    check_stack(looked.info.model, looked.layout)
    found = [tokens_of(one) for one in looked.inputs]
    if not any(tokens.spans for tokens in found):
        raise UsageError(
            "the text has no spans; name its parts with {span}, or give messages that hold words "
            "with {chat}",
            span=...,
            chat=...,
        )
    names = tuple(dict.fromkeys(span.name for tokens in found for span in tokens.spans))
    if rows not in (LAST, EVERY, *names):
        raise UsageError(f"no rows {rows!r}; choose last, all, {', '.join(names)}")
    measuring = Measuring(looked.layout, (*names, ELSEWHERE), rows)
    for number, (run, tokens) in enumerate(zip(looked.runs, found, strict=True)):
        progress("texts", number, len(found))
        sums = run(measuring.row_groups(tokens), measuring.key_groups(tokens))
        measuring.add(sums, tokens)
    progress("texts", len(found), len(found))
    told = shortened(note for one in looked.inputs for note in notes(one, looked.info, 0))
    few = few_groups(len(found))
    return Spans(
        source=looked.info,
        layout=looked.layout,
        identity=looked.identity,
        texts=len(found),
        rows=rows,
        quantity=weigh,
        spans=measuring.spans(),
        heads=measuring.heads(),
        notes=(*told, *([few] if few and len(found) > 1 else [])),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Looked:
    """Texts that can be measured: what each is, and what runs it."""

    info: SourceInfo
    layout: Layout
    identity: Mapping[str, Any]
    inputs: Sequence[Inputs]
    runs: Sequence[Callable[[Groups, Groups], SpanSums]]


def _looked(several: Sequence[Look], model: Model, weigh: str, device: str, dtype: str) -> _Looked:
    captures = [one for one in several if isinstance(one, Capture)]
    if not captures:
        source = load(model, device=device, dtype=dtype)
        shown = weighed(source, weigh, shares=True)
        inputs = prepared(source, several)
        runs = [partial(watched, shown, one) for one in inputs]
        return _Looked(source.info, shown.layout, identity(model), inputs, runs)
    first = captures[0]
    for one in several:
        if not isinstance(one, Capture) or one.layout.heads != first.layout.heads:
            raise UsageError("captures are measured with others of the same model alone")
        check_quantity(one, weigh)
        if not all(one.holds(head) for head in one.layout):
            raise UsageError("a capture needs every head; capture it again without a selection")
    runs = [partial(replayed, one) for one in captures]
    return _Looked(first.source, first.layout, {}, [one.inputs for one in captures], runs)
