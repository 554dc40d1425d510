"""The live page: a network in one HTML file, which runs it on whatever is typed.

Style, scripts, weights and tokenizer lie in the page. Its policy lets in these and a worker made
from one of its own scripts, and no connection. The scripts in ``js/`` are put together as those of
the viewer are, some of which they share.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.provenance import Made
from attnviz.core.scores import HeadScores
from attnviz.drawing.html import paragraphs, table
from attnviz.drawing.labels import head_phrase, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors, ink
from attnviz.features.live.lessons import Lesson
from attnviz.features.live.opening import Opening, RoundingErrors
from attnviz.models.native.portable import Portable
from attnviz.scoring.axes import is_punctuation
from attnviz.scoring.block import LOCAL_WINDOW, SINK_REST
from attnviz.scoring.roles import FEW_ROWS, MIN_ROWS, ROLES, RoleDef
from attnviz.scoring.select import leading
from attnviz.web.page import html_page, parts, safe_json

Array = NDArray[np.float32]
_LEVEL = 9
_STEPS = 127
_BLOCK = 64
"""Numbers that share a scale, where rows are cut up without a rest; else a whole row does."""


def rounded(values: Array, bits: int) -> Array:
    """Return what is left of values once they are stored."""
    if bits == 8 and values.ndim == 2:
        codes, scales = _codes(values)
        return (codes * scales[:, None]).reshape(values.shape)
    return values.astype(np.float16).astype(np.float32)


def pack(tensors: Mapping[str, Array], bits: int) -> tuple[list[dict[str, Any]], str]:
    """Where each array lies, and all of them as base64 of a zlib stream.

    The stream has all codes of 8 bits, and the low and the high bytes of all halves, first those of
    scales: bytes of one sort beside each other take less room.
    """
    entries: list[dict[str, Any]] = []
    codes, scales, halves = [b""], [b""], [b""]
    for name, values in tensors.items():
        eight = bits == 8 and values.ndim == 2
        entries.append({"name": name, "shape": list(values.shape), "bits": 8 if eight else 16})
        if eight:
            block_codes, factors = _codes(values)
            codes.append(block_codes.tobytes())
            scales.append(factors.astype("<f2").tobytes())
        else:
            halves.append(values.astype("<f2").tobytes())
    pairs = np.frombuffer(b"".join((*scales, *halves)), np.uint8).reshape(-1, 2)
    parts = (*codes, pairs[:, 0].tobytes(), pairs[:, 1].tobytes())
    return entries, base64.b64encode(zlib.compress(b"".join(parts), _LEVEL)).decode("ascii")


def _codes(values: Array) -> tuple[NDArray[np.int8], Array]:
    """Whole numbers from -127 to 127, [blocks, numbers], and the scale of each, a half."""
    across = values.shape[1]
    blocks = values.reshape(-1, across if across % _BLOCK else _BLOCK)
    scales = (np.abs(blocks).max(axis=1) / _STEPS).astype(np.float16).astype(np.float32)
    scales[scales == 0] = 1.0
    codes = np.rint(blocks / scales[:, None]).clip(-_STEPS, _STEPS)
    return codes.astype(np.int8), scales


def live_page(
    model: Portable,
    heads: Sequence[HeadScores],
    *,
    text: str,
    title: str,
    made: Made,
    errors: RoundingErrors,
    bits: int = 16,
    notes: Sequence[str] = (),
    lessons: Sequence[Lesson] = (),
    opening: Opening | None = None,
    off: Sequence[str] = (),
) -> bytes:
    """Return the whole page, as UTF-8."""
    entries, packed = pack(model.tensors, bits)
    template, style, script, worker = parts(__package__, "main", "worker")
    data = {
        "title": visible(title),
        "model": visible(model.source.model),
        "text": text,
        "causal": model.causal,
        "labels": [visible(piece) for piece in model.vocabulary.texts],
        "heads": [_head(scores) for scores in heads],
        "head": min(heads, key=leading).head.name if opening is None else opening.looks[0].head,
        "opening": opening and asdict(opening),
        "lessons": [_lesson(lesson) for lesson in lessons],
        "off": list(off),
        "errors": {"weight": errors.weight, "score": errors.score, "share": errors.share},
        "palette": list(anchors(DEFAULT_PALETTE)),
        "notes": [visible(note) for note in notes],
    }
    return html_page(
        template,
        "worker-src blob:",
        compiled=True,
        title=visible(title),
        style=style,
        script=script,
        of=made,
        still=_still(text, heads, notes),
        worker=worker,
        data=safe_json(data),
        network=safe_json({"entries": entries, **_network(model)}),
        weights=packed,
        kernel=_kernel(),
    )


def _still(text: str, heads: Sequence[HeadScores], notes: Sequence[str]) -> str:
    """Give what a page says that cannot run the model: its text, and what each head does there."""
    roles = ((scores.head.name, head_phrase(scores.roles) or "no role") for scores in heads)
    return (
        paragraphs("This page runs a transformer with JavaScript, which is off in this browser.",
                   f"On the text “{text}” its heads do this:")
        + table(("head", "what it does"), roles)
        + paragraphs(*notes)
    )  # fmt: skip


def _kernel() -> str:
    """Return the matrix product of ``product.wat``, assembled, in base64."""
    code = (files(__package__) / "product.wasm").read_bytes()
    return base64.b64encode(code).decode("ascii")


def _network(model: Portable) -> dict[str, Any]:
    words = model.vocabulary
    (kind,) = model.layout.kinds
    return {
        "layers": model.layout.layers(kind),
        "heads": model.layout.heads[kind][0],
        "width": int(model.tensors["tokens"].shape[1]),
        "inner": model.inner,
        "causal": model.causal,
        "preNorm": model.pre_norm,
        "activation": model.activation,
        "eps": model.eps,
        "scales": model.scales,
        "offset": model.offset,
        "maxTokens": model.max_tokens,
        "words": model.words,
        "tied": model.tied,
        "rules": _rules(),
        "vocabulary": {
            "kind": words.kind,
            "tokens": words.tokens,
            "special": words.special,
            "separators": words.separators,
            "marks": [n for n, text in enumerate(words.texts) if is_punctuation(text)],
            "mask": words.mask,
            "before": words.before,
            "after": words.after,
            "whole": [dict(token) for token in words.whole],
            **words.settings,
        },
    }


def _rules() -> dict[str, Any]:
    """Give what makes a role, as :mod:`attnviz.scoring.roles` has it, for pages to measure."""
    return {
        "least": MIN_ROWS,
        "few": FEW_ROWS,
        "rest": SINK_REST,
        "window": LOCAL_WINDOW,
        "roles": [
            {
                "name": role.name,
                "evidence": [[bound.score, bound.mean, bound.lift] for bound in role.evidence],
                "unless": role.unless,
                "rests": role.rests,
                **_drawn(role),
            }
            for role in ROLES.values()
            if not role.user  # the page has no Python
        ],
    }


def _drawn(role: RoleDef) -> dict[str, str]:
    return {"color": role.color, "ink": ink(role.color), "code": role.code}


def _lesson(lesson: Lesson) -> dict[str, Any]:
    """Return a lesson as the page's scripts read it."""
    entry = {"name": lesson.name, "title": lesson.title, "about": lesson.about}
    return entry | {
        "steps": [
            {part.name: getattr(step, part.name) for part in fields(step) if part.name != "holds"}
            for step in lesson.steps
        ]
    }


def _head(scores: HeadScores) -> dict[str, Any]:
    """Return a head with its leading role: what it does, else where it rests."""
    roles = [role for role in scores.roles if not ROLES[role.name].user]
    leading_role = ROLES[roles[0].name] if roles else None
    return {
        "id": scores.head.name,
        "said": head_phrase(roles) or "no role",
        "role": leading_role and {"name": leading_role.name, **_drawn(leading_role)},
    }
