"""``attnviz.explain``: why did the model say that?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attnviz.attention.contributions import direction
from attnviz.captures import trials
from attnviz.captures.inputs import Input, capture, prompts_of
from attnviz.captures.loading import answering
from attnviz.captures.settings import ModelSettings
from attnviz.core import arrays
from attnviz.core.arrays import Array, converted, exact
from attnviz.core.heads import Head, Site
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.settings import Progress
from attnviz.core.source import Donor, ForwardRequest, Gate, Kept, Output, Source, Start
from attnviz.errors import AttnvizError, InputError, ModelError, UsageError
from attnviz.features.ablation.fills import Fills, Reference
from attnviz.features.ablation.measure import gradients
from attnviz.features.ablation.result import Ablation, Effect
from attnviz.features.ablation.run import Study, choose_reference, run
from attnviz.features.ablation.settings import AblationSettings
from attnviz.features.explain import result as records
from attnviz.features.logits.function import run as logits
from attnviz.features.logits.result import Logits, LogitsSettings
from attnviz.features.sources.result import MEAN, SideSum, SourcesSettings
from attnviz.features.sources.run import answer as sources
from attnviz.interventions.metrics import check, logit_difference
from attnviz.scoring.observe import allowed_keys, unselected_in

EVERY = 48  # up to so many heads a model has each of them ablated; of more, candidates
CANDIDATES = 8
"""Heads with the largest votes that are candidates; as many have the largest gradients."""
_SHARE = 0.1  # of the lead: MLPs that add or take less are not traced to heads
_TRACED = 3  # MLPs that are, at most


class _Layers:
    """A model on a text, run again layer by layer with some heads at their means.

    ``fills``: the means [1, T, H, d_v], by layer.
    """

    def __init__(self, source: Source, inputs: Inputs, fills: Fills) -> None:
        self._source, self._inputs, self._fills = source, inputs, fills
        kinds: tuple[Kept, ...] = ("z",)
        outputs = trials.Activations(kinds, source.layout.sites)
        request = ForwardRequest(hidden=False, states=True, mlps=True)
        self.whole = source.forward([inputs], [outputs], request)
        self._z = outputs.values["z"]

    def mlp(self, layer: int, heads: Sequence[Head]) -> Array:
        """Return what the MLP of a layer adds, [1, T, D], without its edges from some heads."""
        entering = self.whole.states[layer]
        for earlier in sorted({head.layer for head in heads if head.layer < layer}):
            attention = self.whole.states[earlier + 1] - self.whole.mlps[earlier]
            changed = self._again(earlier, heads)
            entering = entering + (changed.states[-1] - changed.mlps[-1] - attention)
        return self._again(layer, heads, entering).mlps[-1]

    def _again(
        self, layer: int, heads: Sequence[Head] = (), entering: Array | None = None
    ) -> Output:
        """Run a layer with its heads' outputs held, but for some that are at their means."""
        sites = [site for site in self._source.layout.sites if site.layer == layer]
        donors: dict[Site, list[Donor]] = {}
        gates: dict[Site, Gate] = {}
        for site in sites:
            z = self._z[site]
            lib = arrays.of(z)
            donors[site] = [Donor("z", z, lib.full((1, z.shape[1]), 1, z.dtype, z))]
            share = lib.full((z.shape[1],), 1, z.dtype, z)
            for head in heads:
                if head.site == site:
                    share[head.index] = 0
            if site in self._fills:
                fill = lib.cast(converted(self._fills[site], z), z.dtype)
                gates[site] = Gate(share, fill)
        state = self.whole.states[layer] if entering is None else entering
        return self._source.forward(
            [self._inputs],
            request=ForwardRequest(
                donors=donors, gates=gates, hidden=False, states=True, mlps=True,
                start=Start(layer, state, layer + 1),
            ),
        )  # fmt: skip


HEADS = 3  # heads that are told about one by one
METHODS = "mean, resample"
MAP = 64  # tokens of a text whose whole maps are kept
_SOURCES = 5
_CANCELLED = 2.0
"""From here on, without their signs, the shares of a key's sources say little of their sum."""


@interface
def explain(
    text: Input,
    *,
    settings: records.ExplainSettings,
    model: ModelSettings,
    progress: Progress | None = None,
) -> records.Explain:
    """Say why a model predicts a word and not another: where its lead comes from, part by part.

    What every part (embedding, heads, MLPs, biases) adds to the lead of the answer over the other
    word, after the last token (or at the mask), is that of :func:`attnviz.logits`, the sources of
    keys those of :func:`attnviz.sources`, and the changes of the lead those of
    :func:`attnviz.ablate`, all on this text.

    Args:
        text: a text or prompt; for masked models with one mask.

    Returns:
        The prediction, what adds up to its lead, votes by head and by token, the (at most) three
        heads without which the lead falls most, found by ablating each candidate, what of the
        MLPs' shares comes through them, and the head whose vote takes most from the lead.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError for a model without an LM head.

    Source:
        Direct logit attribution and composition, Elhage et al. 2021, "A Mathematical Framework for
        Transformer Circuits"; ablation by means, Wang et al. 2022 (arXiv:2211.00593).
    """
    lacks = "predicts nothing, since that needs the model"
    (prompt,), model = prompts_of(text, lacks, model)
    answer, against = settings.answer, settings.against
    source = answering(model.load())
    if source.no_logits:
        raise ModelError(f"{source.info.model} predicts no words: {source.no_logits}")
    # once: an encoder-decoder model writes the text that is missing
    inputs = source.prepare(prompt)
    if trials.is_masked(source):
        texts = trials.predicted(inputs).texts
        if sum(text in trials.MASKS for text in texts) != 1:
            masks = " or ".join(trials.MASKS)
            raise InputError(f"one prediction is explained; give a text with one mask ({masks})")
    elif trials.labels_of(source) is not None:
        trials.answer_place(source, trials.predicted(inputs))  # refuses labels of tokens
    votes = logits(source, inputs, LogitsSettings(answer=answer))
    rivals = [word for word in votes.predictions if word.token != votes.token and not word.mark]
    if not rivals and against is None:
        raise ModelError(
            f"{source.info.model} has one output, and an explanation compares two; take attnviz "
            "logits or ablate"
        )
    against = against or f"#{rivals[0].id}"
    contrast = logits(source, inputs, LogitsSettings(answer=answer, against=against))
    pair = _number(contrast, contrast.token), _number(contrast, contrast.against)
    tell: Progress = progress or (lambda stage, count, total: None)
    study = _Study(source, prompt, inputs, pair, settings.seed, tell)
    values, negative = contrast.heads(), None
    tried = study.candidates(values)
    effects = study.ablate(", ".join(map(source.layout.name, tried)), "mean")
    costing = [effect.heads[0] for effect in effects.ranked()[:HEADS] if effect.change < 0]
    chosen = costing or [effects.ranked()[0].heads[0]]
    voters = sorted(values, key=lambda head: -values[head])[:HEADS]
    voters = [head for head in voters if values[head] > 0]
    if values:
        least = min(values, key=lambda head: values[head])
        negative = least if values[least] < 0 and least not in chosen else None
    result = _told(study, votes, contrast, chosen, voters, negative)
    named = tuple(dict.fromkeys((*tried, *voters)))
    try:
        shares = study.mlp_shares(contrast, named, voters)
    except ModelError:  # whose layers take no donors: its MLPs are not traced
        shares = ()
    return replace(result, identity=model.identity, candidates=tried, mlps=shares)


@dataclass(eq=False)
class _Study:
    """One prediction of one model."""

    source: Source
    prompt: Prompt
    inputs: Inputs
    pair: tuple[int, int]  # the answer's id, and that of the other word
    seed: int
    progress: Progress

    @cached_property
    def trial(self) -> trials.Trial:
        """The prediction: after the last token, or at the mask."""
        if trials.is_masked(self.source):
            return trials.at_mask(0, self.inputs, trials.mask_id(self.source))[0]
        return trials.last(0, self.inputs, self.source)[0]

    @cached_property
    def reference(self) -> Reference:
        """What takes the place of heads in every ablation."""
        metric = logit_difference(*self.pair)
        check(self.source, metric)
        study = Study(self.source, [self.inputs], AblationSettings(seed=self.seed))
        try:
            return choose_reference(study, metric, [self.trial], (0,))
        except UsageError as error:  # whose remedies are another command's
            raise UsageError(
                "heads are filled here from sentences of attnviz's own, which this model cannot "
                "read; attnviz ablate fills them from yours with {reference}, or by {method}",
                reference=...,
                method="zero",
            ) from error

    def candidates(self, votes: Mapping[Head, float]) -> tuple[Head, ...]:
        """Choose the heads to ablate: all of a small model, else by vote and by gradient.

        ``votes``: what each head adds to the lead; empty where logits are no sum.
        """
        layout = list(self.source.layout)
        if len(layout) <= EVERY:
            return tuple(layout)
        try:
            slopes = gradients(self.source, [self.trial], logit_difference(*self.pair))
        except AttnvizError:
            if not votes:  # nothing else tells which
                return tuple(layout)
            slopes = None
        by_gradient = {} if slopes is None else dict(zip(layout, slopes[0].tolist(), strict=True))
        ranked = [
            head
            for values in (votes, by_gradient)
            for head in sorted(values, key=lambda head: -values[head])[:CANDIDATES]
        ]
        return tuple(sorted(set(ranked), key=layout.index))

    def ablate(self, heads: str, method: str = METHODS) -> Ablation:
        """Measure the answer's lead without some heads, as :func:`attnviz.ablate` does."""
        answer, against = (f"#{token}" for token in self.pair)
        settings = AblationSettings(
            select=heads, method=method, metric="logit-diff", answer=answer, against=against,
            seed=self.seed,
        )  # fmt: skip
        return run(
            Study(self.source, [self.inputs], settings, self.reference, progress=self.progress)
        )

    def keys(self, name: str, row: int | None) -> tuple[tuple[SideSum, ...], str]:
        """Return the sources of the key that a head looks at most, and why they cannot be told."""
        if row is None:
            return (), "its queries are the encoder's, and what is explained is the decoder's"
        try:
            question = SourcesSettings(select=name, query=row, other_key=MEAN)
            result = sources(self.source, self.inputs, question)
        except ModelError as error:
            return (), str(error)
        return result.side("key")[:_SOURCES], ""

    def mlp_shares(
        self, contrast: Logits, heads: Sequence[Head], voters: Sequence[Head]
    ) -> tuple[records.MlpShare, ...]:
        """Trace the MLPs with the largest shares of the lead to heads, largest first."""
        least = _SHARE * abs(contrast.logit)
        large = [p for p in contrast.parts if p.kind == "mlp" and abs(p.value) >= least]
        large = sorted(large, key=lambda part: -abs(part.value))[:_TRACED]
        kind = self.source.start_kind
        if not large or kind is None or any(head.site.kind != kind for head in heads):
            return ()
        readout = self.source.readout().summed
        if readout.over or readout.residual_scales:
            return ()
        means = self.reference.means([self.trial], {head.site for head in heads})
        bench, row = _Layers(self.source, self.inputs, means), (0, self.trial.positions[0])
        stream = bench.whole.states[-1][row]
        toward = direction(readout.converted(stream), stream, *self.pair).vector
        shares = []
        for part in large:
            layer = part.layer
            assert layer is not None
            if layer in bench.whole.mixers:  # which reads what the edges change, too
                continue
            baseline = float(exact(bench.whole.mlps[layer][row]) @ toward)
            lost = {
                cut: baseline - float(exact(bench.mlp(layer, cut)[row]) @ toward)
                for cut in dict.fromkeys([*((head,) for head in heads), tuple(voters)])
                if any(head.layer <= layer for head in cut)
            }
            edges = tuple(records.EdgeShare(head, lost[head,]) for head in heads if (head,) in lost)
            together = lost.get(tuple(voters), 0.0)
            shares.append(records.MlpShare(layer, part.value, edges, together))
        return tuple(shares)


def _told(
    study: _Study,
    votes: Logits,
    contrast: Logits,
    chosen: Sequence[Head],
    voters: Sequence[Head],
    negative: Head | None,
) -> records.Explain:
    source = study.source
    beside = [head for head in voters if head not in chosen]
    heads = [*chosen, *beside, *([negative] if negative else [])]
    names = [source.layout.name(head) for head in heads]
    maps = capture(study.prompt, model=source, select=", ".join(names))
    sides = maps.inputs.sides
    decoder = list(sides.values())[-1].queries
    at = {
        kind: contrast.position if side.queries == decoder else None for kind, side in sides.items()
    }
    split = [study.keys(name, at[head.site.kind]) for head, name in zip(heads, names, strict=True)]
    feeder = _feeder([keys for keys, _ in split[: len(chosen) + len(beside)]])
    group = "+".join(names[: len(chosen)])
    groups = [*names, group, *([source.layout.name(feeder)] if feeder else [])]
    report = study.ablate(", ".join(dict.fromkeys(groups)))
    effects: dict[str, Effect] = {effect.name: effect for effect in report.effects}
    raised = {vote.head: vote.raises for vote in (*votes.votes, *contrast.votes)}
    values = contrast.heads()
    # the most probable words, and those that were asked for, each once
    words = {word.id: word for word in (*contrast.predictions, *votes.predictions)}
    explained = []
    for head, name, (keys, reason) in zip(heads, names, split, strict=True):
        weights = np.ma.filled(maps[head].astype(np.float64), 0.0)
        query = at[head.site.kind]
        row = weights.mean(0) if query is None else weights[query]
        small = max(weights.shape) <= MAP
        left_out = unselected_in(maps.reach.get(head.site))
        cells = np.where(
            allowed_keys(maps, head), np.rint(1000 * weights).astype(int), records.BLOCKED
        )
        cells = cells if left_out is None else np.where(left_out, records.UNSELECTED, cells)
        explained.append(
            records.ExplainedHead(
                head=head,
                vote=values.get(head),
                raises=raised.get(head, ()),
                weights=tuple(row.tolist()),
                position=int(row.argmax()),
                tokens=sides[head.site.kind].keys.texts,
                query=query,
                keys=keys,
                map=tuple(map(tuple, cells.tolist())) if small else (),
                effect=effects[name],
                reason=reason,
            )
        )
    return records.Explain(
        source=source.info,
        layout=source.layout,
        tokens=contrast.tokens,
        masked=trials.is_masked(source),
        position=contrast.position,
        predictions=tuple(sorted(words.values(), key=lambda word: word.rank)),
        answer=contrast.token,
        against=contrast.against,
        logit=votes.logit,
        lead=contrast.logit,
        candidates=(),
        parts=contrast.parts,
        mlps=(),
        by_token=contrast.by_token,
        heads=tuple(explained[: len(chosen)]),
        voters=tuple(voters),
        beside=tuple(explained[len(chosen) : len(chosen) + len(beside)]),
        negative=explained[-1] if negative else None,
        together=effects[group],
        feeder=effects[source.layout.name(feeder)] if feeder else None,
        smallest=report.smallest or 0.0,
        methods=report.methods,
        reference=report.reference,
        reason=contrast.reason,
        texts=1,
        seed=study.seed,
        notes=tuple(dict.fromkeys((*contrast.notes, *report.notes))),
    )


def _number(result: Logits, token: str) -> int:
    """Give the id of a token that was predicted: a "." that is typed may be another token."""
    return next(word.id for word in result.predictions if word.token == token)


def _feeder(keys: Sequence[Sequence[SideSum]]) -> Head | None:
    """Find the earlier head that adds most to all heads' keys; none where sources nearly cancel."""
    sums: dict[Head, float] = {}
    count = 0
    for group in keys:
        wrote = [part for part in group if part.origin.head is not None and part.share]
        if not wrote or sum(abs(part.share or 0.0) for part in group) > _CANCELLED:
            continue
        count += 1
        for part in wrote:
            assert part.origin.head is not None
            sums[part.origin.head] = sums.get(part.origin.head, 0.0) + (part.share or 0.0)
    best = max(sums, key=lambda head: sums[head], default=None)
    return best if best is not None and sums[best] > 0.1 * count else None
