"""A film as one offline page: a slider over the checkpoints, curves, all heads, and one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from attnviz.core.heads import SITE_PREFIX
from attnviz.drawing.grid import minus
from attnviz.drawing.html import still
from attnviz.drawing.labels import counted, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors, ink
from attnviz.features.film import description as words
from attnviz.features.film.description import life
from attnviz.features.film.result import Film, HeadFilm, StepCurve
from attnviz.scoring.roles import SHOWN
from attnviz.web.page import result_page


def page(film: Film) -> bytes:
    """Return the whole page, as UTF-8."""
    return result_page(
        __package__, film, title=words.headline(film), still=still(film), data=document(film)
    )


def document(film: Film) -> dict[str, Any]:
    """Return what the page's script draws, as js/types.d.ts says."""
    places = {head.head: number for number, head in enumerate(film.heads)}
    sites = film.layout.sites
    kinds = len(film.layout.kinds) > 1
    return {
        "steps": film.steps,
        "names": [visible(name) for name in film.names],
        "origin": f"{words.heading(film)} · {counted(film.texts, 'text')}",
        "layers": [
            f"{SITE_PREFIX[site.kind]} {site.layer}" if kinds else str(site.layer) for site in sites
        ],
        "heads": [_head(film, head) for head in film.heads],
        "loss": _curve(film.loss),
        "context": _curve(film.in_context),
        "baselines": [[visible(name), value] for name, value in film.baselines.items()],
        "first": places[words.clearest(film).head] if film.formations else 0,
        "formed": [
            {"head": places[formation.head], "score": formation.score, "role": formation.role}
            for formation in film.formations
        ],
        "events": list(map(asdict, film.events)),
        "told": list(map(minus, words.told(film))),
        "methods": [visible(words.closing(film)), words.METHOD, *map(str, film.notes)],
        "shares": [name for name, unit in film.units.items() if unit == "share"],
        "metric": film.metric,
        "maps": None if film.maps is None else {
            "tokens": [visible(text) for text in film.maps.tokens], "data": film.maps.data
        },
        "causal": film.layout.kinds == ("decoder",),
        "roles": {
            role.name: {"color": role.color, "ink": ink(role.color), "code": role.code}
            for role in SHOWN.values()
        },
        "palette": list(anchors(DEFAULT_PALETTE)),
    }  # fmt: skip


def _head(film: Film, head: HeadFilm) -> dict[str, Any]:
    role, score = words.known_by(head)
    return {
        "name": film.layout.name(head.head),
        "row": film.layout.sites.index(head.head.site),
        "column": head.head.index,
        "score": score,
        "role": role,
        "scores": {name: _curve(curve) for name, curve in head.scores.items()},
        "roles": head.roles,
        "effect": _curve(head.effect),
        "life": list(map(minus, life(film, head))),
    }


def _curve(curve: StepCurve | None) -> dict[str, Any] | None:
    return None if curve is None else asdict(curve)
