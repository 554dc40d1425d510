"""One text, by the functions of the other commands: logits, sources, capture and ablate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnviz.captures.look import capture
from attnviz.captures.trials import is_masked, predicted
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, SiteKind
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.ablation.function import ablate
from attnviz.features.ablation.result import Ablation
from attnviz.features.explain.result import MASKED, ExplainedHead, Explanation, KeyFinding
from attnviz.features.logits.function import logits
from attnviz.features.logits.result import Logits, Vote
from attnviz.features.sources.function import sources
from attnviz.scoring.stored import allowed_in

LARGEST_MAP = 64
"""Tokens of a map that is kept whole."""
WORDS = 5
"""Predictions that are told."""


@dataclass(frozen=True)
class ExplainQuestion:
    """What is asked.

    Attributes:
        answer: the word that is explained; by default the most probable.
        against: what it is compared with; by default the next most probable, or what won.
        count: how many heads.
    """

    answer: str | None = None
    against: str | None = None
    count: int = 3

    def check(self) -> None:
        """UsageError for what makes no sense."""
        if self.count < 1:
            raise UsageError(f"the number of heads must be at least 1, got {self.count}")


def run(source: Source, prompt: Prompt, question: ExplainQuestion) -> Explanation:
    """Answer it.

    Raises:
        AttnvizError: as the functions that it calls.
    """
    question.check()
    prompt = _written(source, prompt)
    first = logits(prompt, model=source, token=question.answer, top=WORDS)
    here = [one for one in first.predictions if one.position == first.position]
    chosen = next(one for one in here if one.token == first.token)
    answer, against = f"#{chosen.id}", question.against
    if against is None:
        against = f"#{next(one.id for one in here if one.id != chosen.id)}"
    found = logits(
        prompt, model=source, token=answer, against=against, position=first.position, top=WORDS
    )
    votes: Sequence[Vote] = found.votes[: question.count]
    everything = None
    if not found.parts:
        everything = _without(source, prompt, "*.*", answer, against)
        heads = [one.heads[0] for one in everything.ranked() if len(one.heads) == 1]
        heads = heads[: question.count]
    else:
        heads = [vote.head for vote in votes]
    kind = _kind(source)
    own = [head for head in heads if head.site.kind == kind]
    names = ", ".join(source.layout.name(head) for head in heads)
    maps = capture(prompt, model=source, select=names)
    told = [
        _head(source, prompt, maps, head, found, next((v for v in votes if v.head == head), None))
        for head in own or heads
    ]
    leads = list(dict.fromkeys(one.found.lead for one in told if one.found and one.found.lead))
    groups = [source.layout.name(head) for head in heads]
    groups += ["+".join(groups)] if len(groups) > 1 else []
    groups += [source.layout.name(lead) for lead in leads if lead not in heads]
    ablation = _without(source, prompt, ", ".join(groups), answer, against)
    return Explanation(
        source=source.info,
        layout=source.layout,
        notes=predicted_notes(source, prompt),
        texts=1,
        seed=ablation.seed,
        tokens=found.tokens,
        masked=is_masked(source),
        position=found.position,
        predictions=tuple(one for one in found.predictions if one.position == found.position),
        answer=found.token,
        against=found.against,
        difference=found.logit,
        sum=found.sum,
        parts=found.parts,
        by_token=_by_token(found),
        heads=tuple(told),
        effects=ablation.effects,
        methods=ablation.methods,
        method=ablation.method,
        reference=ablation.reference,
        reason=found.reason,
    )


def predicted_notes(source: Source, prompt: Prompt) -> tuple[str, ...]:
    """What the reader must not miss of the text itself, such as what was cut."""
    return source.prepare(prompt).notes


def _written(source: Source, prompt: Prompt) -> Prompt:
    """The prompt, with what the model writes after it as part of it, so that it is written once."""
    if prompt.generate is None:
        return prompt
    ids = predicted(source.prepare(prompt)).ids
    return replace(prompt, text=None, ids=ids, generate=None, special_tokens=False)


def _kind(source: Source) -> SiteKind:
    """The kind of layer that predicts."""
    kinds = source.layout.kinds
    return "decoder" if "decoder" in kinds else kinds[0]


def _without(source: Source, prompt: Prompt, heads: str, answer: str, against: str) -> Ablation:
    return ablate(
        prompt, model=source, heads=heads, metric="logit-diff", answer=answer, against=against
    )


def _by_token(found: Logits) -> tuple[float, ...]:
    rows = list((found.by_token or {}).values())
    return tuple(sum(column) for column in zip(*rows, strict=True))


def _head(
    source: Source, prompt: Prompt, maps: Capture, head: Head, found: Logits, vote: Vote | None
) -> ExplainedHead:
    """One of the heads, with the weight that counts."""
    whole = maps[head]
    row = [float(weight) for weight in whole[found.position]]
    key = max(range(len(row)), key=row.__getitem__)
    if vote is not None and vote.seen:
        key = vote.seen[0].position
    kept: tuple[tuple[int, ...], ...] = ()
    if max(whole.shape) <= LARGEST_MAP:
        layer = maps.maps[head.site]
        allowed = allowed_in(layer, head.site.kind, maps.reach.get(head.site))
        shown = np.where(
            allowed[maps.place(head) if len(allowed) > 1 else 0], np.rint(1000 * whole), MASKED
        )
        kept = tuple(map(tuple, shown.astype(int).tolist()))
    finding, reason = _key(source, prompt, head, found.position, key)
    return ExplainedHead(
        head, None if vote is None else vote.value, tuple(row), kept, key,
        None if vote is None else vote.seen[0].value, () if vote is None else vote.raises,
        finding, reason,
    )  # fmt: skip


def _key(
    source: Source, prompt: Prompt, head: Head, at: int, key: int
) -> tuple[KeyFinding | None, str]:
    """Where the key comes from, or why that cannot be told: a part of the answer, not its end."""
    name = source.layout.name(head)
    try:
        found = sources(prompt, name, at, key=key, against="mean", model=source)
    except (ModelError, InputError) as error:
        return None, str(error)
    finding = KeyFinding(found.score, found.side("key"))
    reads = [one for one in found.reads if one.side == "key" and one.head == finding.lead]
    return replace(finding, reads=reads[0] if reads else None), ""
