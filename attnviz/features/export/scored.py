"""Inputs through the model: maps and scores of each, from batches of about the same length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.captures.captured import only
from attnviz.captures.files import read_items
from attnviz.core.arrays import of
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Mean, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import HeadScores
from attnviz.core.source import Rows, Source
from attnviz.corpus.texts import InvalidRecord, Text, Tokenized, batches, tokenize
from attnviz.errors import InputError, Message, UsageError
from attnviz.features.export.settings import ExportSettings
from attnviz.features.results import Attached, given_roles, notes, with_roles
from attnviz.files import human_bytes
from attnviz.models import recorded
from attnviz.models.limits import physical_memory
from attnviz.scoring.merged import mean_capture
from attnviz.scoring.observe import Recorder, ScoreObserver, observe, score_capture
from attnviz.scoring.roles import ANNOTATED, ROLES, SHOWN, is_called, role_name
from attnviz.scoring.scores import SCORES
from attnviz.scoring.select import select


@dataclass(frozen=True, eq=False)
class RecordedInput:
    """One item of recorded attention; see :class:`attnviz.corpus.texts.Text`."""

    number: int
    place: str
    capture: Capture
    name: None = None

    @property
    def text(self) -> str:
        """The tokens in a row."""
        sides = next(iter(self.capture.inputs.sides.values()))
        return " ".join(sides.queries.texts)

    @cached_property
    def digest(self) -> str:
        """What tells this input from another: a hash of everything in it."""
        sha256_ = hashlib.sha256(json.dumps([self.name, self.text]).encode())
        for weights in self.capture.maps.values():
            sha256_.update(weights.tobytes())
        return sha256_.hexdigest()[:32]


Input = Text | RecordedInput


_SENSED = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"), "picture"),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg", ".m4a"), "sound"),
}
"""What files are by their names that hold no text."""


def check_texts(names: Sequence[str]) -> None:
    """Raise UsageError where a file to be read as text looks like something else."""
    for name in names:
        suffix = Path(name).suffix.lower()
        if suffix in recorded.SUFFIXES:
            raise UsageError(
                "{} looks like recorded attention; add {recorded}", name, recorded=True
            )
        if suffix in _SENSED:
            raise UsageError(
                "{} is a {}, and an export reads texts",
                name,
                _SENSED[suffix],
                remedy="capture it first, then give the capture with {recorded}",
                recorded=True,
            )


def read_recorded(names: Sequence[str]) -> Iterator[RecordedInput | InvalidRecord]:
    """Every item of recorded attention in some files."""
    number = 0
    for name in names:
        for index, item in enumerate(read_items(Path(name))):
            number += 1
            if isinstance(item, InputError):
                yield InvalidRecord(number, name, str(item).removeprefix(f"cannot read {name}: "))
            else:
                yield RecordedInput(number, f"{name}:{index}", item)


_BATCH_BYTES = 64 << 20  # how much the maps of a batch may take; a single input may take more
_NAN = Message("the model gives NaN; use {dtype}", dtype="float32")


@dataclass(frozen=True, eq=False)
class Scored:
    """An input after the model."""

    input: Input  # what it is
    capture: Capture  # its tokens, and the maps of the heads to draw
    scores: Mapping[Head, HeadScores]  # of every head


def run_texts(
    texts: Iterable[Text | InvalidRecord],
    source: Source,
    settings: ExportSettings,
    heads: frozenset[Head],
    is_wanted: Callable[[Input], bool],
) -> Iterator[Scored | InvalidRecord]:
    """Run texts through a model, those that are wanted."""

    def cost(inputs: Inputs) -> int:
        """Return what the maps to keep take, in float32."""
        sides = (inputs.sides[head.site.kind] for head in heads)
        return 4 * sum(len(pair.queries) * len(pair.keys) for pair in sides)

    tokenized = tokenize(
        texts, source, special_tokens=settings.special_tokens, truncate=settings.truncate
    )
    for batch in batches(_small_enough(tokenized, cost), cost, _BATCH_BYTES):
        if isinstance(batch, InvalidRecord):
            yield batch
        else:
            yield from _batch(batch, source, heads, is_wanted, settings)


def run_recorded(
    items: Iterable[RecordedInput | InvalidRecord],
    settings: ExportSettings,
    is_wanted: Callable[[Input], bool],
) -> Iterator[Scored | InvalidRecord]:
    """Score recorded attention; arguments as for :func:`run_texts`."""
    for item in items:
        if isinstance(item, InvalidRecord):
            yield item
            continue
        if not is_wanted(item):
            continue
        capture = item.capture
        if settings.mean is not None or capture.layout.mean:
            chosen = select(settings.heads or "all", capture.layout)
            held = only(capture, frozenset(filter(capture.holds, chosen)))
            yield _averaged(Scored(item, held, {}), settings.mean)
            continue
        scores = {scored_head.head: scored_head for scored_head in score_capture(capture).result()}
        yield Scored(item, capture, scores)


def _averaged(scored: Scored, mean: Mean | None) -> Scored:
    """Return the same with means in place of heads, of which none has a score."""
    capture = scored.capture if mean is None else mean_capture(scored.capture, mean)
    if not capture.layout.mean:
        return scored
    held = [head for head in capture.layout if capture.holds(head)]
    return replace(
        scored, capture=capture, scores={head: HeadScores(head, {}, ()) for head in held}
    )


def _small_enough(
    texts: Iterable[Tokenized | InvalidRecord], cost: Callable[[Inputs], int]
) -> Iterator[Tokenized | InvalidRecord]:
    """Get the texts whose maps this machine can hold; what cannot be used instead of the others."""
    for tokenized in texts:
        needed = 0 if isinstance(tokenized, InvalidRecord) else cost(tokenized.inputs)
        if isinstance(tokenized, InvalidRecord) or needed <= physical_memory() // 4:
            yield tokenized
            continue
        yield InvalidRecord(
            tokenized.text.number,
            tokenized.text.place,
            f"the maps of {tokenized.inputs.length} tokens take {human_bytes(needed)}, more than "
            "a quarter of this machine's memory; select fewer heads",
        )


def _batch(
    batch: Sequence[Tokenized],
    source: Source,
    heads: frozenset[Head],
    is_wanted: Callable[[Input], bool],
    settings: ExportSettings,
) -> Iterator[Scored | InvalidRecord]:
    """Run one batch, all of it or, where nothing in it is wanted, not at all."""
    chosen = [is_wanted(tokenized.text) for tokenized in batch]
    if not any(chosen):
        return
    inputs = [tokenized.inputs for tokenized in batch]
    recorder = Recorder(inputs, heads)
    sites, quantity = {head.site for head in heads}, settings.quantity
    scorer = _EachScored(inputs, source.layout, sites, chosen, shares=quantity != "weights")
    observe(source, inputs, recorder, scorer)
    for n, tokenized in enumerate(batch):
        if not chosen[n]:
            continue
        text, maps = tokenized.text, recorder.maps(n)
        if not all(np.isfinite(weights).all() for weights in maps.values()):
            yield InvalidRecord(text.number, text.place, _NAN)
            continue
        scores = {head.head: head for head in scorer.result(n)}
        capture = Capture(
            source.info,
            source.layout,
            tokenized.inputs,
            maps,
            reach=recorder.reach(n),
            quantity=quantity,
            kept=recorder.listed,
        )
        yield _averaged(Scored(text, capture, scores), settings.mean)


class _EachScored:
    """Scores the items of a batch one by one, where a plain observer would pool them.

    With ``shares`` rows are divided by their sums, since scores compare with chance.
    """

    def __init__(
        self,
        batch: list[Inputs],
        layout: Layout,
        sites: set[Site],
        chosen: list[bool],
        *,
        shares: bool,
    ) -> None:
        self._sites, self._shares = sites, shares
        self._each = [
            ScoreObserver([inputs], layout, tuple(SCORES)) if want else None
            for inputs, want in zip(batch, chosen, strict=True)
        ]

    def observe(self, rows: Rows) -> None:
        """Give every item its part of the block."""
        if rows.site not in self._sites:
            return
        allowed = rows.allowed
        if allowed is not None:
            allowed = allowed[(None,) * (4 - allowed.ndim)]
        for number, observer in enumerate(self._each):
            if observer is None:
                continue
            mine = slice(number, number + 1)
            shared = allowed is None or allowed.shape[0] == 1
            part = allowed if allowed is None or shared else allowed[mine]
            logits = None if rows.logits is None else rows.logits[mine]
            weights = rows.weights[mine]
            if self._shares:
                total = weights.sum(-1)[..., None]
                weights = weights / of(total).xp.where(total > 0, total, 1)
            observer.observe(replace(rows, weights=weights, allowed=part, logits=logits))

    def result(self, number: int) -> tuple[HeadScores, ...]:
        """Return the scores of one item."""
        observer = self._each[number]
        return () if observer is None else observer.result()


class Annotation:
    """Results and the roles they give; ``identity`` is that of the model."""

    def __init__(self, results: Sequence[Attached], identity: Mapping[str, Any]) -> None:
        self._results, self.identity = results, identity
        self._roles = given_roles(results)

    def check_role(self, role: str | None) -> None:
        """UsageError for a role that does not exist, or needs annotation and is in no result."""
        name = None if role is None else role_name(role)
        roles = [known_role for several in self._roles.values() for known_role, _ in several]
        if (
            name is None
            or name in ROLES
            or any(is_called(known_role, name) for known_role in roles)
        ):
            return
        named = sorted({known_role.title for known_role in roles})
        if name.partition(":")[0] not in ANNOTATED:
            choices = ", ".join([*SHOWN, *named])
            raise UsageError(f"unknown role {role!r}: choose one of {choices}")
        if named:
            raise UsageError(f"no head has the role {role!r}; {', '.join(named)} are given")
        raise UsageError(
            "the role {!r} needs annotated text; give {evidence} the JSON of attnviz syntax or "
            "attnviz coref that has it",
            role,
            evidence=...,
        )

    def check_model(self, source: SourceInfo, layout: Layout) -> None:
        """UsageError for results of another model."""
        for attached in self._results:
            attached.result.check_model(attached.name, source, layout, self.identity)

    def given(self, scored: Scored) -> Scored:
        """Return an input whose heads have these roles before their own."""
        if not self._results:
            return scored
        self.check_model(scored.capture.source, scored.capture.layout)
        heads = with_roles(tuple(scored.scores.values()), self._roles)
        return replace(scored, scores={head.head: head for head in heads})

    def notes(self) -> tuple[str, ...]:
        """Return what a reader must know beside these roles, as full sentences."""
        return tuple(notes(self._results, self.identity))

    def document(self) -> dict[str, Any]:
        """Get what another run must share to go on: which results; nothing where there are none."""
        digests = [
            hashlib.sha256(attached.result.to_json().encode()).hexdigest()
            for attached in self._results
        ]
        return {"evidence": digests} if digests else {}
