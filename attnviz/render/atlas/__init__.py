"""The atlas: everything known about every head of a model, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnviz.render.labels import visible
from attnviz.render.page import html_page, parts, safe_json
from attnviz.render.palette import anchors, ink
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES


def atlas_page(document: Mapping[str, Any], *, title: str) -> bytes:
    """The whole page, as UTF-8.

    Args:
        document: what :func:`attnviz.gathered.gather` made.
        title: of the page.
    """
    template, style, script = parts(__package__, "main")
    data = {
        "atlas": _visible(document),
        "roles": {
            role.name: {"color": role.color, "ink": ink(role.color), "code": role.code}
            for role in ROLES.values()
        },
        "scores": {score.name: score.formula for score in SCORES.values()},
        "palettes": {"light": list(anchors("blues")), "dark": list(anchors("magma"))},
    }
    return html_page(
        template,
        title=visible(title),
        style=style,
        script=script,
        data=safe_json(data),
    )


def _visible(value: Any) -> Any:
    """The same values with every string fit to be shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(one) for one in value]
    return value
