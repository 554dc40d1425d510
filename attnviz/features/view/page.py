"""The viewer: captures in, one HTML file out that needs nothing but a browser.

The page holds its style, its script and its data; a content security policy lets nothing else in
and nothing out. It is put together here from ``page.html``, ``style.css`` and the modules in
``js/``, without a bundler (:mod:`attnviz.web.page`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attnviz.core.capture import Capture
from attnviz.core.findings import Finding
from attnviz.core.heads import Head, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import Made
from attnviz.core.scores import HeadScores
from attnviz.drawing.labels import visible
from attnviz.errors import UsageError
from attnviz.features.profile.result import Alike
from attnviz.features.view.document import Scored, document
from attnviz.features.view.quantize import least_bytes, packed_bytes
from attnviz.features.view.scene import most_bytes, terms_bytes
from attnviz.features.view.still import still_bytes, still_overview
from attnviz.web.page import html_page, parts, safe_json

_SCORES_BYTES = 900  # about what the scores of one head take


def page(
    captures: Sequence[Capture],
    scores: Sequence[Sequence[HeadScores]],
    heads: Sequence[Collection[Head]],
    written: Sequence[Scored | None] = (),
    *,
    title: str,
    made: Made,
    bits: int = 8,
    notes: Sequence[str] = (),
    alike: Sequence[Mapping[SiteKind, Alike]] = (),
    findings: Sequence[Finding] = (),
    runs: Sequence[str] = (),
) -> bytes:
    """The whole page, as UTF-8."""
    if not captures:
        raise UsageError("nothing to view: give at least one capture")
    written = written or (None,) * len(captures)
    data, chunks = document(
        captures,
        scores,
        heads,
        written,
        title=title,
        bits=bits,
        notes=notes,
        alike=alike,
        findings=findings,
        runs=runs,
    )
    template, style, script = parts(__package__, "main")
    pictures = any(capture.inputs.picture is not None for capture in captures)
    maps = "\n".join(
        f'<script type="application/octet-stream" id="maps-{number}">{text}</script>'
        for number, text in enumerate(chunks)
    )
    return html_page(
        template,
        *["img-src data:"] * pictures,
        title=visible(title),
        style=style,
        script=script,
        of=made,
        still=still_overview(captures[0], scores[0], heads[0], notes),
        data=safe_json(data),
        maps=maps,
    )


def estimate(captures: Sequence[Capture], heads: Sequence[Collection[Head]], bits: int = 8) -> int:
    """About how many bytes the page will have, at most, before any of the work is done."""
    total = sum(len(part.encode()) for part in parts(__package__, "main"))
    if captures:
        total += still_bytes(captures[0], heads[0])
    for capture, chosen in zip(captures, heads, strict=True):
        total += most_bytes(capture.inputs)
        for site, maps in capture.maps.items():
            count = sum(head.site == site for head in chosen)
            total += packed_bytes([maps], bits) * count // len(maps) + count * _SCORES_BYTES
        total += sum(terms_bytes(terms) for head, terms in capture.terms.items() if head in chosen)
    return total


def least(inputs: Inputs, heads: Collection[Head], bits: int = 8) -> int:
    """What one text adds to :func:`estimate` at least, known before the model runs."""
    total = 0
    for head in heads:
        sides = inputs.sides[head.site.kind]
        total += least_bytes(len(sides.queries), len(sides.keys), bits) + _SCORES_BYTES
    return total
