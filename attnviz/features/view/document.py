"""What the page knows: captures and their scores as plain values, ready to become JSON.

Texts are made visible here, once (:func:`attnviz.drawing.labels.visible`), so that no control or
bidirectional character of a token ever reaches the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.quantities import QUANTITIES
from attnviz.core.result import Finding, Measure
from attnviz.core.scores import HeadScores, Role, Score
from attnviz.core.tokens import Tokens
from attnviz.drawing import palette
from attnviz.drawing.grid import KIND_TITLES, SCHEMES, minus
from attnviz.drawing.labels import (
    counted,
    head_phrase,
    head_title,
    origin,
    percent,
    rounded,
    visible,
)
from attnviz.errors import UsageError
from attnviz.features.profile.result import Alike
from attnviz.features.view.encoding import Packed, cells, deflated, pack, pack_terms, scene
from attnviz.scoring.merged import GOES_ON, word_starts
from attnviz.scoring.roles import ANNOTATED, FEW_ROWS, MIN_ROWS, SHOWN, drawn
from attnviz.scoring.scores import SCORES
from attnviz.scoring.select import leading, strongest_pair

Value = TypeVar("Value")


def beside(findings: Sequence[Finding], layout: Layout, heads: Collection[Head]) -> dict[str, Any]:
    """Give ``findings`` and ``measures`` of the page's data, by kind of layer and head's number."""
    named = {layout.name(head): head for head in heads}
    parts: Counter[str] = Counter()
    entries, measures = [], []
    for finding in findings:
        parts[finding.part] += 1
        suffix = "" if parts[finding.part] == 1 else str(parts[finding.part])
        sentences = {
            head: [minus(visible(line)) for line in lines] for head, lines in finding.said.items()
        }
        entries.append(
            {
                "title": finding.title,
                "name": visible(finding.name),
                "how": visible(finding.how),
                "said": _by_kind(sentences, named),
            }
        )
        for measure in finding.measures:
            key = f"{finding.part}{suffix}-{measure.name}"
            measures.append(_measure(measure, key, len(entries) - 1, finding, named))
    return {"findings": entries, "measures": measures}


def _measure(
    measure: Measure, key: str, number: int, finding: Finding, named: Mapping[str, Head]
) -> dict[str, Any]:
    """One number of the page's heads, to five digits."""
    values = {head: [rounded(x, 5) for x in value] for head, value in measure.values.items()}
    return {
        "key": key,
        "title": visible(measure.title),
        "unit": measure.unit,
        "from": visible(finding.name),
        "finding": number,
        "orange": measure.adverse,
        "ends": list(measure.ends),
        "values": _by_kind(values, named),
    }


def _by_kind(values: Mapping[str, Value], named: Mapping[str, Head]) -> dict[str, dict[str, Value]]:
    by_kind: dict[str, dict[str, Value]] = {}
    for name, value in values.items():
        if name in named:
            head = named[name]
            by_kind.setdefault(head.site.kind, {})[head.name] = value
    return by_kind


_PLAIN = {
    "previous": "looks at the previous token",
    "next": "looks at the next token",
    "self": "looks at the token itself",
    "first": "puts its weight on the first token, an attention sink",
    "separator": "puts its weight on separators, as attention sinks",
    "punctuation": "looks at punctuation",
    "local": "looks at nearby tokens",
    "duplicate": "looks at earlier copies of the token",
    "induction": "looks at what followed the same token before",
    "monotonic": "moves along the keys in order",
    "registers": "puts its weight on registers, as attention sinks",
    "diffuse": "spreads its weight over all tokens",
}
"""What a head of a role does, in a plain sentence."""


def see(capture: Capture, scored: HeadScores, among: str) -> dict[str, Any] | None:
    """Find what the head that opens a page shows most clearly, and the pair of tokens to see it at.

    The role is the one that puts the head first; its pair is None where the role is about no
    single keys, or comes from other texts. With it comes its doubt: ``hedge`` stands before what
    is said, ``doubt`` behind it, with the figure.
    """
    roles = [role for role in scored.roles if not role.rests] or list(scored.roles)
    if not roles:
        return None
    role = max(roles, key=lambda other_role: other_role.evidence.lift or 0.0)
    pair = strongest_pair(capture, scored.head, role.score) if role.score in SCORES else None
    verb = "sink:" if role.rests else "does"
    role_said = "is diffuse" if role.name == "diffuse" else f"{verb} {role.title}"
    weight = None if pair is None else rounded(float(capture[scored.head][pair]), 5)
    hedge, doubt = _doubt(role, among, random=capture.source.untrained)
    return {
        "said": _PLAIN.get(role.name, role_said),
        "pair": pair,
        "weight": weight,
        "hedge": hedge,
        "doubt": doubt,
    }


def _doubt(role: Role, among: str, *, random: bool) -> tuple[str, str]:
    """How sure a role is of the head chosen for it: before what is said of it, and after."""
    score = role.evidence
    chosen = f"the clearest of {among}"
    if random:
        return "by chance ", f"the weights are random, nothing was learned; it is {chosen}"
    rows = counted(score.rows, "row")
    if role.few_rows:
        return "perhaps ", f"on {rows} of this text, too few to tell; {chosen}"
    mean = "" if score.mean is None else f"{score.mean:.2f} on average over {rows}"
    if score.mean is not None and score.chance is not None:
        mean += f", by chance {score.chance:.2f}"
    return "", "; ".join(part for part in (mean, f"{chosen}, in this text alone") if part)


_AVERAGED = {
    "heads": ", means over heads",
    "layers": ", means over layers",
    "all": ", the mean of all heads",
}
_LABEL = 80
_CODE = 5
_TEXT = 2000
_NO_SPACE_BEFORE = frozenset(".,;:!?%)]}'’”…")
_ENDINGS = frozenset(("t", "s", "d", "m", "ll", "re", "ve"))
Scored = tuple[Capture, Sequence[HeadScores]]
"""A capture and the scores of its heads."""


def document(
    captures: Sequence[Capture],
    scores: Sequence[Sequence[HeadScores]],
    heads: Sequence[Collection[Head]],
    second: Sequence[Scored | None],
    *,
    title: str,
    bits: int,
    notes: Sequence[str] = (),
    alike: Sequence[Mapping[SiteKind, Alike]] = (),
    runs: Sequence[str] = (),
    findings: Sequence[Finding] = (),
) -> tuple[dict[str, Any], list[str]]:
    """Return the page's data, and the packed maps that it refers to by number."""
    if not captures:
        raise UsageError("nothing to view: give at least one capture")
    chunks: list[str] = []
    planes = {id(plane): plane for by_kind in alike for plane in by_kind.values()}
    numbers = {key: number for number, key in enumerate(planes)}
    items = [
        _item((capture, scored), beside, chosen, bits, chunks)
        for capture, scored, chosen, beside in zip(captures, scores, heads, second, strict=True)
    ]
    for item, by_kind in zip(items, alike, strict=False):
        for kind in (*item["kinds"], *item["written"]):
            kind["alike"] = numbers.get(id(by_kind.get(kind["kind"])))
    for number, item in enumerate(items):
        item["run"] = visible(runs[number]) if runs else ""
        item["notes"] += [visible(note) for note in notes]
    page = {
        "title": visible(title),
        "bits": bits,
        "items": items,
        "planes": [_plane(plane) for plane in planes.values()],
        **beside(findings, captures[0].layout, frozenset().union(*heads)),
        "roles": [
            {
                "name": role.name,
                "color": role.color,
                "ink": palette.ink(role.color),
                "code": role.code,
                "reason": role.reason,
                "source": role.source,
                "user": role.user,
            }
            for role in SHOWN.values()
        ],
        "scores": [
            {
                "name": score.name, "formula": score.formula, "source": score.source,
                "unit": score.unit, "user": score.user,
            }
            for score in SCORES.values()
        ],
        "palettes": {name: list(palette.anchors(name)) for name in palette.PALETTES},
        "palette": palette.DEFAULT_PALETTE,
        "against": bool(runs),
        "spanColors": list(palette.SPAN_COLORS),
        "signed": {scheme: list(colors) for scheme, colors in SCHEMES.items()},
        "fewRows": FEW_ROWS,
        "few": palette.FEW,
        "noRole": palette.NO_ROLE,
        "minRows": MIN_ROWS,
    }  # fmt: skip
    return page, chunks


def _item(
    looked: Scored, second: Scored | None, chosen: Collection[Head], bits: int, chunks: list[str]
) -> dict[str, Any]:
    """One text: its axes, and for each kind of site its layers, by one quantity or two."""
    axes: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}
    scene_data = scene(looked[0].inputs)

    def axis(tokens: Tokens) -> int:
        if id(tokens) not in numbers:
            numbers[id(tokens)] = len(axes)
            axes.append(_axis(tokens) | {"cells": cells(tokens, scene_data)})
        return numbers[id(tokens)]

    capture = looked[0]
    places = {}
    for kind in capture.layout.kinds:
        sides = capture.inputs.sides[kind]
        queries, keys = axis(sides.queries), axis(sides.keys)
        places[kind] = (queries, queries if sides.queries == sides.keys else keys)
    kinds = _kinds(*looked, chosen, places, bits, chunks)
    text = " | ".join(map(visible, capture.inputs.texts)) or _reading(axes[kinds[0]["queries"]])
    return {
        "label": _cut(text, _LABEL),
        "text": _cut(text, _TEXT),
        "origin": origin(capture),
        "model": visible(capture.source.model),
        "notes": [visible(note) for note in capture.inputs.notes],
        "emptyRows": capture.empty_rows,
        "axes": axes,
        "scene": scene_data,
        "kinds": kinds,
        "written": _kinds(*second, chosen, places, bits, chunks) if second else [],
    }


def _kinds(
    capture: Capture,
    scores: Sequence[HeadScores],
    chosen: Collection[Head],
    places: Mapping[SiteKind, tuple[int, int]],
    bits: int,
    chunks: list[str],
) -> list[dict[str, Any]]:
    """Return the layers of one quantity by kind of site; their packed maps go to ``chunks``."""
    scored = {s.head: s for s in scores}
    kinds: list[dict[str, Any]] = []
    for kind in capture.layout.kinds:
        sites: list[dict[str, Any]] = []
        error, full = 0.0, 1.0
        for site, maps in sorted(capture.maps.items()):
            kept = capture.indices(site)
            held = [row for row, i in enumerate(kept) if Head(site, i) in chosen]
            indices = [kept[row] for row in held]
            if site.kind != kind or not indices:
                continue
            packed: Packed = pack(np.asarray(maps)[held], bits)
            error = max(error, packed.error)
            sites.append(
                {
                    "layer": site.layer,
                    "causal": packed.causal,
                    "chunk": len(chunks),
                    "reach": None,
                    "heads": [
                        _head(i, top, whole, scored.get(Head(site, i)))
                        | _called(capture.layout, Head(site, i))
                        for i, top, whole in zip(indices, packed.tops, packed.whole, strict=True)
                    ],
                }
            )
            chunks.append(packed.text)
            sites[-1]["reach"] = _reach(capture, site, indices, chunks)
            for row, index in enumerate(indices):
                sites[-1]["heads"][row]["terms"] = _terms(capture, Head(site, index), chunks)
        if not sites:
            continue
        if capture.quantity != "weights":
            full = max(head["top"] for site in sites for head in site["heads"]) or 1.0
        ours = [scored[h] for h in chosen if h in scored and h.site.kind == kind]
        ours = [] if capture.layout.mean else ours
        # a page that explains some heads opens on one of these
        ours = [scored_head for scored_head in ours if scored_head.head in capture.terms] or ours
        opening = min(ours, key=leading) if ours else None
        among = counted(len(ours), "head") + " that are explained" * bool(capture.terms)
        queries, keys = places[kind]
        kinds.append(
            {
                "kind": kind,
                "title": KIND_TITLES[kind]
                + _AVERAGED.get(
                    capture.layout.mean, ", one map a layer" if capture.layout.whole else ""
                ),
                "queries": queries,
                "keys": keys,
                "opening": opening.head.name if opening else "",
                "see": see(capture, opening, among) if opening else None,
                "sites": sites,
                "quantity": capture.quantity,
                "whole": capture.layout.whole,
                **({"mixers": capture.layout.mixers} if capture.layout.mixers else {}),
                "formula": QUANTITIES[capture.quantity].formula,
                "full": full,
                "error": error,
                "alike": None,
            }
        )
    return kinds


def _called(layout: Layout, head: Head) -> dict[str, str]:
    """Return the name and the title of a mean; nothing for a head, which its numbers name."""
    if not layout.mean:
        return {}
    return {"called": layout.name(head), "title": head_title(layout.name(head), ())}


def _plane(alike: Alike) -> dict[str, Any]:
    """Where every head is, by its name, and the three that are most like it."""
    return {
        "rows": alike.rows,
        "texts": alike.texts,
        "kept": rounded(alike.kept, 5),
        "heads": {
            head.name: [
                *(round(float(x), 4) for x in position),
                *((neighbour.name, round(distance, 4)) for neighbour, distance in near),
            ]
            for head, position, near in zip(alike.heads, alike.places, alike.nearest, strict=True)
        },
    }


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _reading(axis: dict[str, Any]) -> str:
    """Return a sequence as a line of text, without special tokens; a pair with a bar between."""
    parts: dict[int, str] = {}
    for start, word in zip(axis["starts"], axis["words"], strict=True):
        if not axis["special"][start]:
            segment = axis["segments"][start]
            parts[segment] = parts.get(segment, "") + (" " if axis["gaps"][start] else "") + word
    return " | ".join(text.strip() for text in parts.values())


def _axis(tokens: Tokens) -> dict[str, Any]:
    """One sequence of tokens: its labels, how it reads as a text, and where its words start."""
    spaced = any(text.startswith(" ") for text in tokens.texts)
    gaps, inline = [], []
    for index, text in enumerate(tokens.texts):
        if tokens.special[index] or (index and tokens.special[index - 1]):
            gap = True
        elif spaced:
            gap = text.startswith(" ")
        else:
            previous = tokens.texts[index - 1] if index else ""
            new = not index or tokens.words[index] != tokens.words[index - 1]
            is_ending = previous in ("'", "’") and text in _ENDINGS
            gap = new and text[:1] not in _NO_SPACE_BEFORE and not is_ending
        bare = text.removeprefix(" ") if gap and text.strip() else text
        if index and tokens.words[index] == tokens.words[index - 1]:
            bare = bare.removeprefix("##") or bare
        gaps.append(int(gap))
        inline.append(visible(GOES_ON.sub("", bare)))
    starts, words = word_starts(tokens)
    return {
        "labels": [visible(text) for text in tokens.texts],
        "inline": inline,
        "gaps": gaps,
        "special": [int(special) for special in tokens.special],
        "separators": [int(separator) for separator in tokens.separators],
        "segments": list(tokens.segments),
        "written": tokens.written,
        "spans": [{"name": visible(s.name), "ranges": s.ranges} for s in tokens.spans],
        "starts": [int(start) for start in starts],
        "words": [visible(text.removeprefix(" ") or text) for text in words.texts],
    }


def _terms(capture: Capture, head: Head, chunks: list[str]) -> dict[str, Any] | None:
    """Give what a head's weights are made of, where captured; the numbers go to ``chunks``."""
    terms = capture.terms.get(head)
    if terms is None:
        return None
    reach = capture.reach[head.site]
    if reach.bits is not None and len(reach.bits) > 1:  # heads of a layer differ
        reach = replace(reach, bits=reach.bits[head.index][None])
    text, facts = pack_terms(terms, reach, capture[head], capture.layout)
    chunks.append(text)
    return {"chunk": len(chunks) - 1, **facts}


def _reach(
    capture: Capture, site: Site, indices: Sequence[int], chunks: list[str]
) -> dict[str, Any] | None:
    """Which keys a layer's queries may attend to; None where that is not known."""
    reach = capture.reach.get(site)
    if reach is None:
        return None
    bits = None
    if reach.bits is not None:
        by_head = len(reach.bits) > 1
        bits = {"chunk": len(chunks), "each": by_head}
        chunks.append(
            deflated(np.packbits(reach.bits[indices] if by_head else reach.bits).tobytes())
        )
    facts = {"causal": reach.causal, "window": reach.window, "sink": reach.sink, "bits": bits}
    if reach.unselected is not None:
        facts["unselected"] = len(chunks)
        chunks.append(deflated(np.packbits(reach.unselected).tobytes()))
    return facts


def _head(index: int, top: float, whole: bool, scored: HeadScores | None) -> dict[str, Any]:
    scores = scored.scores if scored else {}
    return {
        "index": index,
        "top": top,
        "whole": whole,
        "roles": [_role(role) for role in scored.roles] if scored else [],
        "scores": [_score(scores.get(name)) for name in SCORES],
        "sink": scored.sink if scored else None,
    }


def _role(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "title": role.title,
        "code": role.of[:_CODE] or drawn(role.name).code,
        "given": role.name in ANNOTATED,
        "score": role.score,
        "numbers": _score(role.evidence),
        "few": role.few_rows,
        "rests": role.rests,
        "said": head_phrase([role]),
        "possible": "" if role.possible is None else percent(role.possible),
        "rival": None if role.rival is None else [role.rival.name, rounded(role.rival.mean, 5)],
    }


def _score(score: Score | None) -> list[float | None]:
    """Mean, chance, lift and rows of a score."""
    if score is None:
        return [None, None, None, 0]
    return [*(rounded(x, 5) for x in (score.mean, score.chance, score.lift)), score.rows]
