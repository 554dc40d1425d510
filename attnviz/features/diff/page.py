"""Differences as one page that needs nothing else: the heads by distance, each with its maps."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head
from attnviz.core.tokens import Sides
from attnviz.drawing.grid import SCHEMES
from attnviz.drawing.html import still
from attnviz.drawing.labels import model_name, token_labels, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.errors import UsageError
from attnviz.features.diff import description
from attnviz.features.diff.result import Diff
from attnviz.scoring.scores import SCORES
from attnviz.web.page import result_page


def page(report: Diff) -> bytes:
    """Return the whole page, as UTF-8."""
    if report.kind != "maps":
        raise UsageError(f"two reports of {report.kind} have no maps to show; compare captures")
    check_single(report.texts)
    if not report.maps:
        raise UsageError("a saved diff holds no maps; compare the two runs again")
    title = description.headline(report)
    return result_page(__package__, report, title=title, still=still(report), data=_data(report))


def check_single(texts: int) -> None:
    """Refuse a page of several texts, whose maps are not kept."""
    if texts > 1:
        raise UsageError(
            f"a page shows the maps of one text, and {texts} were compared; give a single text or "
            "capture of each"
        )


def _data(report: Diff) -> dict[str, Any]:
    by_name = {report.layout.name(head): head for head in report.maps}
    origin = [f"{model_name(info)}, {info.backend} backend, {info.exactness}"
              for info in (report.source, report.other)]  # fmt: skip
    return {
        "before": visible(report.before),
        "after": visible(report.after),
        "below": f"{description.title(report)} · {description.below(report)}",
        "same": description.same(report),
        "align": report.align,
        "origin": list(map(visible, origin)),
        "notes": [visible(str(note)) for note in report.notes],
        "sides": {
            kind: [_labels(sides), _labels(report.others[kind])]
            for kind, sides in report.sides.items()
        },
        "heads": [_head(report, by_name[change.name], asdict(change)) for change in report.heads],
        "palette": list(anchors(DEFAULT_PALETTE)),
        "signed": {scheme: list(colors) for scheme, colors in SCHEMES.items()},
    }


def _head(report: Diff, head: Head, change: dict[str, Any]) -> dict[str, Any]:
    """Give a head's figures, its first map and how it changed, as base64 of float32."""
    distance = change["distance"]
    if distance is not None:
        distance = {**distance, "token": visible(distance["token"])}
    rows, columns = report.maps[head].shape
    mask = report.masked.get(head)
    units = {name: "" if kind.unit == "share" else kind.unit for name, kind in SCORES.items()}
    changes = [{**figure, "unit": units.get(figure["name"], "")} for figure in change["changes"]]
    return {
        **change,
        "changes": changes,
        "distance": distance,
        "kind": head.site.kind,
        "rows": rows,
        "columns": columns,
        "first": _base64(report.first[head].astype("<f4")),
        "change": _base64(report.maps[head].astype("<f4")),
        "masked": "" if mask is None else _base64(np.packbits(mask)),
    }


def _labels(sides: Sides) -> dict[str, list[str]]:
    return {"queries": list(token_labels(sides.queries)), "keys": list(token_labels(sides.keys))}


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
