"""``attnviz.explain``: why did the model say that?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.captures.inputs import Input, capture, prompts_of
from attnviz.captures.loading import answering, light
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import MASKS, is_masked, predicted
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.progress import Progress
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.errors import InputError, ModelError
from attnviz.features.ablation.function import ablate
from attnviz.features.ablation.result import Ablation, Effect
from attnviz.features.explain.result import UNSELECTED, Explain, ExplainedHead
from attnviz.features.explain.settings import ExplainSettings
from attnviz.features.logits.function import logits
from attnviz.features.logits.result import Logits, Prediction
from attnviz.features.sources.function import sources
from attnviz.features.sources.result import MEAN, SideSum, Sources
from attnviz.scoring.replay import unselected_in

HEADS = 3
"""Heads that are told about one by one."""
METHODS = "mean, resample"
MAP = 64
"""Tokens of a text whose whole maps are kept."""
_SOURCES = 5
_CANCELLED = 2.0
"""From here on, without their signs, the shares of a key's sources say little of their sum."""


@interface
def explain(
    text: Input,
    *,
    settings: ExplainSettings,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Explain:
    """Say why a model predicts a word and not another: which heads favour it, how they find it.

    What every head adds to the lead of the answer over the other word, after the last token (or at
    the mask), is that of :func:`attnviz.logits`, the sources of keys those of
    :func:`attnviz.sources`, and the changes of the lead those of :func:`attnviz.ablate`, all on
    this text.

    Args:
        text: a text or prompt; for masked models with one mask.
        progress: called again and again with a stage, how much is done and how much there is.

    Returns:
        The prediction, votes by head and by token, the (at most) three heads that add most to the
        lead, and the one that takes most from it; where logits are no sum, the three heads without
        which the lead falls most, found by ablating each.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError for a model without an LM head.

    Source:
        Direct logit attribution and composition, Elhage et al. 2021, "A Mathematical Framework for
        Transformer Circuits"; ablation by means, Wang et al. 2022 (arXiv:2211.00593).
    """
    (prompt,) = prompts_of(text, "predicts nothing, since that needs the model")
    answer, against = settings.answer, settings.against
    source = answering(light(model.load()))
    if source.no_logits:
        raise ModelError(f"{source.info.model} predicts no words: {source.no_logits}")
    if is_masked(source):
        texts = predicted(source.prepare(prompt)).texts
        if sum(text in MASKS for text in texts) != 1:
            known = " or ".join(MASKS)
            raise InputError(f"one prediction is explained; give a text with one mask ({known})")
    votes = logits(prompt, model=source, answer=answer, predictions=5)
    others = [word for word in votes.predictions if word.token != votes.token and not word.mark]
    if not others and against is None:
        raise ModelError(
            f"{source.info.model} has one output, and an explanation compares two; take attnviz "
            "logits or ablate"
        )
    contrast = logits(prompt, model=source, answer=answer, against=against or f"#{others[0].id}")
    first, other = (_numbered(contrast, text) for text in (contrast.token, contrast.against))
    study = _Study(source, prompt, first, other, settings.seed, progress)
    values, negative = contrast.heads(), None
    if values:
        ranked = sorted(values, key=lambda head: -values[head])
        chosen = [head for head in ranked[:HEADS] if values[head] > 0] or ranked[:1]
        if values[ranked[-1]] < 0 and ranked[-1] not in chosen:
            negative = ranked[-1]
    else:
        every = study.ablate(", ".join(map(source.layout.name, source.layout)), "mean")
        chosen = [effect.heads[0] for effect in every.ranked()[:HEADS]]
    result = _told(study, votes, contrast, chosen, negative)
    return replace(result, identity=model.identity)


class _Study:
    """One prediction of one model."""

    def __init__(
        self,
        source: Source,
        prompt: Prompt,
        answer: str,
        against: str,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.source, self.prompt, self.seed, self.progress = source, prompt, seed, progress
        self.answer, self.against = answer, against

    def ablate(self, heads: str, method: str = METHODS) -> Ablation:
        """What happens to the answer's lead without some heads."""
        return ablate(
            self.prompt, model=self.source, select=heads, method=method, metric="logit-diff",
            answer=self.answer, against=self.against, seed=self.seed, progress=self.progress,
        )  # fmt: skip

    def keys(self, name: str, at: int) -> tuple[tuple[SideSum, ...], str]:
        """The sources of the key that a head looks at most, and why they cannot be told."""
        try:
            result = sources(self.prompt, select=name, query=at, other_key=MEAN, model=self.source)
        except ModelError as error:
            return (), str(error)
        assert isinstance(result, Sources)  # of a single text
        return result.side("key")[:_SOURCES], ""


def _told(
    study: _Study, votes: Logits, contrast: Logits, chosen: Sequence[Head], negative: Head | None
) -> Explain:
    source = study.source
    shown = [*chosen, *([negative] if negative else [])]
    names = [source.layout.name(head) for head in shown]
    maps = capture(study.prompt, model=source, select=", ".join(names))
    split = [study.keys(name, contrast.position) for name in names]
    feeder = _feeder([keys for keys, _ in split[: len(chosen)]], chosen)
    together = "+".join(names[: len(chosen)])
    groups = [*names, together, *([source.layout.name(feeder)] if feeder else [])]
    report = study.ablate(", ".join(dict.fromkeys(groups)))
    effects: dict[str, Effect] = {effect.name: effect for effect in report.effects}
    raised = {vote.head: vote.raises for vote in (*votes.votes, *contrast.votes)}
    values = contrast.heads()
    explained = []
    for head, name, (keys, reason) in zip(shown, names, split, strict=True):
        weights = np.ma.filled(maps[head].astype(np.float64), 0.0)
        row = weights[contrast.position]
        small = len(weights) <= MAP
        left_out = unselected_in(maps.reach.get(head.site))
        cells = np.rint(1000 * weights).astype(int)
        cells = cells if left_out is None else np.where(left_out, UNSELECTED, cells)
        explained.append(
            ExplainedHead(
                head=head,
                vote=values.get(head),
                raises=raised.get(head, ()),
                weights=tuple(row.tolist()),
                position=int(row.argmax()),
                keys=keys,
                map=tuple(map(tuple, cells.tolist())) if small else (),
                effect=effects[name],
                reason=reason,
            )
        )
    return Explain(
        source=source.info,
        layout=source.layout,
        tokens=contrast.tokens,
        masked=is_masked(source),
        position=contrast.position,
        predictions=_predictions(votes, contrast),
        answer=contrast.token,
        against=contrast.against,
        logit=votes.logit,
        lead=contrast.logit,
        chosen_by="votes" if values else "ablation",
        parts=contrast.parts,
        by_token=contrast.by_token,
        heads=tuple(explained[: len(chosen)]),
        negative=explained[-1] if negative else None,
        together=effects[together],
        feeder=effects[source.layout.name(feeder)] if feeder else None,
        methods=report.methods,
        reference=report.reference,
        reason=contrast.reason,
        texts=1,
        seed=study.seed,
        notes=tuple(dict.fromkeys((*contrast.notes, *report.notes))),
    )


def _numbered(result: Logits, token: str) -> str:
    """A token that was predicted, by its id: a "." that is typed may be another token."""
    return f"#{next(word.id for word in result.predictions if word.token == token)}"


def _predictions(result: Logits, contrast: Logits) -> tuple[Prediction, ...]:
    """The most probable words, and those that were asked for, each once."""
    known = {word.id: word for word in (*contrast.predictions, *result.predictions)}
    return tuple(sorted(known.values(), key=lambda word: word.rank))


def _feeder(keys: Sequence[Sequence[SideSum]], chosen: Sequence[Head]) -> Head | None:
    """The earlier head that adds most to the keys of all heads, in their shares.

    A key whose sources nearly cancel has no say: its shares are of a small difference.
    """
    sums: dict[Head, float] = {}
    for some in keys:
        if sum(abs(part.share or 0.0) for part in some) > _CANCELLED:
            continue
        for part in some:
            if part.origin.head is not None and part.origin.head not in chosen and part.share:
                sums[part.origin.head] = sums.get(part.origin.head, 0.0) + part.share
    best = max(sums, key=lambda head: sums[head], default=None)
    return best if best is not None and sums[best] > 0.1 * len(keys) else None
