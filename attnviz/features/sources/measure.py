"""Over many texts: what share of a head's contrast between keys comes from where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnviz.core.heads import Head
from attnviz.core.origins import Origin
from attnviz.core.progress import Progress
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Source
from attnviz.errors import InputError, UsageError
from attnviz.features.sources.result import MEAN, REST, Others, SourceShare, SourceShares
from attnviz.features.sources.run import HELD, mean_of, one_head, plain
from attnviz.features.sources.split import split
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.roles import SHOWN, role_name
from attnviz.scoring.scores import SCORES
from attnviz.scoring.strongest import targets
from attnviz.scoring.sums import Sums, fold
from attnviz.statistics.clusters import FEW
from attnviz.statistics.ratios import ratios


@dataclass
class _Text:
    """Sums over the rows of one text that count.

    Attributes:
        name: of its cluster, the text itself.
        contrast: of q·k.
        added: by position.
        sides: what every source adds, of the query and of the keys.
    """

    name: str
    rows: int
    of_rows: int
    contrast: float = 0.0
    added: float = 0.0
    sides: dict[str, dict[Origin, float]] = field(default_factory=dict)


def measure(
    source: Source,
    texts: Sequence[Inputs],
    head: str,
    role: str | None,
    against: Others,
    seed: int,
    progress: Progress,
) -> SourceShares:
    """The shares of all sources.

    Args:
        source: the model.
        texts: prepared.
        head: its name.
        role: whose targets count; None for that of the head on these texts.
        against: see :class:`~attnviz.features.sources.result.SourceShares`.
        seed: of the bootstrap.
        progress: called again and again.

    Raises:
        InputError: no text, or none with a row that counts; UsageError: no such role.
        ModelError: see :func:`~attnviz.features.sources.split.split`.
    """
    if not texts:
        raise InputError("no text to measure; give at least one")
    if against not in (MEAN, REST):
        raise UsageError("{against} is mean or rest, not {!r}", against, against=...)
    one = one_head(source, head)
    score = _own(source, texts, one, progress) if role is None else _asked(role)
    found = []
    for number, inputs in enumerate(texts):
        found.append(_text(source, inputs, one, score, against))
        progress("sources", number + 1, len(texts))
    used = [text for text in found if text.rows]
    if not used:
        raise InputError(
            f"no row of these texts has a key that {score or 'the largest weight'} counts and "
            "another one; give longer texts or another role"
        )
    total = sum(text.contrast for text in used)
    rows = sum(text.rows for text in used)
    if abs(total) < 1e-9 * rows:
        raise InputError("the scores of these rows do not differ, so that there are no shares")
    return SourceShares(
        source=source.info,
        layout=source.layout,
        texts=len(used),
        seed=seed,
        notes=(
            *dict.fromkeys(note for inputs in texts for note in inputs.notes),
            *_notes(used, len(texts)),
        ),
        head=one,
        score=score,
        against=against,
        chosen=role is not None,
        rows=rows,
        of_rows=sum(text.of_rows for text in found),
        contrast=total / rows,
        added=sum(text.added for text in used) / rows,
        by_query=_shares(used, "query", rows, seed),
        by_key=_shares(used, "key", rows, seed),
    )


def _asked(role: str) -> str:
    """The score whose targets a role has."""
    known = {
        name: one.evidence[0].score
        for name, one in SHOWN.items()
        if one.evidence and SCORES[one.evidence[0].score].on_targets
    }
    name = role_name(role)
    if name not in known:
        raise UsageError("no role {!r} has target keys; choose from {}", role, ", ".join(known))
    return known[name]


def _own(source: Source, texts: Sequence[Inputs], head: Head, progress: Progress) -> str:
    """The score behind the role of a head on these texts; empty where it has none with targets."""
    parts = []
    for number, inputs in enumerate(texts):
        observer = ScoreObserver([inputs], source.layout)
        source.forward([inputs], [observer], ForwardRequest(hidden=False))
        parts.append(observer.total())
        progress("roles", number + 1, len(texts))
    heads = list(source.layout)
    total = fold(parts, Sums.zero(len(heads)))
    roles = [one for one in total.roles(heads.index(head)) if SCORES[one.score].on_targets]
    acting = [one for one in roles if not one.rests] or roles
    return acting[0].score if acting else ""


def _text(source: Source, inputs: Inputs, head: Head, score: str, against: Others) -> _Text:
    """Split the contrasts of one text."""
    capture = plain(source, inputs, head)
    terms = capture.terms[head]
    length, keys = len(terms.query), len(terms.key)
    reach = capture.reach[head.site].allowed(length, keys)
    allowed = reach[capture.place(head) if len(reach) > 1 else 0]
    scores = terms.scores(allowed)
    name = "\n".join(inputs.texts) or str([sides.keys.ids for sides in inputs.sides.values()])
    if score:
        wanted = targets(capture, head, score)
    else:
        wanted = (scores == scores.max(1, keepdims=True)) & allowed
    counts = np.flatnonzero(wanted.any(1) & (allowed & ~wanted).any(1))
    text = _Text(name, len(counts), length)
    if not len(counts):
        return text
    mix = np.zeros((length, keys))
    for sign, some in ((1.0, wanted), (-1.0, allowed & ~wanted)):
        mix[counts] += sign * mean_of(scores[counts], some[counts], weighed=against == REST)
    found = split(source, inputs, head, terms)
    query = found.queries(counts.tolist())
    q = terms.query[counts].astype(np.float64)
    k = mix[counts] @ terms.key.astype(np.float64)  # [rows, d]
    toward = mix[counts].T @ q  # [S, d]
    text.contrast = terms.scale * float((q * k).sum())
    text.added = 0.0 if terms.bias is None else float((mix * terms.bias).sum())
    of_query = terms.scale * np.einsum("npd,pd->n", query.values.cpu().numpy(), k)
    of_key = terms.scale * np.einsum("msd,sd->m", found.keys.values.cpu().numpy(), toward)
    for side, origins, values in (
        ("query", query.origins, of_query),
        ("key", found.key_origins, of_key),
    ):
        text.sides[side] = dict(zip(origins, values.tolist(), strict=True))
    return text


def _shares(texts: Sequence[_Text], side: str, rows: int, seed: int) -> tuple[SourceShare, ...]:
    """The shares of one side's sources, the largest first."""
    origins = list(dict.fromkeys(origin for text in texts for origin in text.sides[side]))
    a = np.array([[text.sides[side].get(origin, 0.0) for origin in origins] for text in texts])
    judged = ratios(a, np.array([text.contrast for text in texts]), [t.name for t in texts],
                    seed=seed)  # fmt: skip
    found = [
        SourceShare(
            origin,
            float(a[:, n].sum() / rows),
            float(judged.value[n]),
            *(
                float(ends[n]) if np.isfinite(ends[n]) else None
                for ends in (judged.low, judged.high, judged.joint_low, judged.joint_high)
            ),
        )
        for n, origin in enumerate(origins)
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.share)))


def _notes(used: Sequence[_Text], texts: int) -> Iterator[str]:
    yield HELD
    if len(used) < texts:
        yield f"{texts - len(used)} of {texts} texts have no row that counts."
    if len({text.name for text in used}) < FEW:
        yield f"Below {FEW} texts the intervals cover less than they say."
