"""``attnviz.ablate``: what happens to a model without some of its heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, load, loader, prepared
from attnviz.core.progress import Progress
from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.errors import UsageError
from attnviz.features.ablation.fills import MeanOver
from attnviz.features.ablation.result import Ablation
from attnviz.features.ablation.run import Study, run
from attnviz.features.ablation.settings import (
    METHODS,
    AblationSettings,
    Average,
    Mask,
    Normalize,
    Order,
)
from attnviz.features.evidence import Evidence, Roles, given_roles, read_evidence
from attnviz.models.identity import identity
from attnviz.scoring.user_measures import Outputs, Predictions, given_fill, given_metric


def ablate(
    what: Look | Iterable[Look] | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    probe: bool = False,
    heads: str | None = None,
    method: str = METHODS,
    reference: Look | Iterable[Look] | None = None,
    groups: Sequence[str | None] | None = None,
    mean_over: MeanOver = "positions",
    metric: str | Callable[[Predictions], Any] | None = None,
    fill: Callable[[Outputs], Any] | None = None,
    answer: str | None = None,
    against: str | None = None,
    at: str | None = None,
    mask: Mask = "some",
    gradient: bool = False,
    normalize: Normalize = "none",
    average: Average = "mean",
    smallest: float = 0.01,
    positions: bool = False,
    curve: bool = False,
    order: Order = "effect",
    remeasure: bool = False,
    random_orders: int = 3,
    tolerance: float = 0.05,
    seed: int = 0,
    draws: int | None = None,
    batch_tokens: int | None = None,
    jobs: int = 1,
    ray: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    evidence: Evidence | Sequence[Evidence] | None = None,
) -> Ablation:
    """Ablate heads, alone or in groups, and measure what that changes.

    Args:
        what: a text or prompt, or several; nothing with ``probe``.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        probe: repeat random tokens instead, and measure the second half: what the repetition tells.
        heads: what to ablate, see :mod:`attnviz.scoring.groups`: ``"2.4, 3.0+3.1"``,
            ``"layer:2"``, ``"role:induction"``; by default every head alone, and the heads of
            each role together.
        method: what takes a head's place: ``"zero"``, its ``"mean"`` output over a reference, or
            its output on another text (``"resample"``); several by comma. Effects are ranked by the
            first, and two must agree before a head is called needed.
        reference: texts for means and other outputs, which are none of those measured. By default
            each half of the texts is filled from the other half, and a single text from English
            sentences of attnviz's own.
        groups: for each text what it belongs to, such as its document, or None; texts of one group
            count as one where certainty is concerned. Texts that are the same do so anyway.
        mean_over: a mean for each of the ``"positions"``, or one over all ``"tokens"``.
        metric: ``"loss"`` in nats, ``"kl"`` in nats, ``"logit-diff"`` or ``"hidden"``
            (1 - cosine of the last hidden states); by default loss, or hidden for models without an
            LM head. Or a function of :class:`attnviz.Predictions` that gives a number for every
            position, or the name of one that :func:`attnviz.metric` has registered.
        fill: a function of :class:`attnviz.Outputs` that gives what takes a head's place, as one
            more method before the others; ``method`` takes those by name that
            :func:`attnviz.fill` has registered.
        answer: for logit-diff, the token that should win.
        against: the token that it is compared with.
        at: ``"span:NAME"`` to measure on the tokens of a span of the texts alone (of a language
            model: where they are predicted); texts without it do not count.
        mask: of a masked model's tokens ``"some"`` (15 %) at once, or ``"each"`` in turn.
        gradient: also take the gradient of the metric by every head's gate.
        normalize: gradients as they are (``"none"``), or each ``"layer"`` 's over their ℓ2 norm.
        average: over texts: the ``"mean"`` over all positions, or the ``"trimmed"`` mean or
            ``"median"`` of the texts' own means.
        smallest: the smallest effect of interest, as a share of the metric on the full model.
        positions: keep the change at every position; needs a single text.
        curve: ablate one head after the other, in an order chosen on half of the texts, and measure
            it on the other half.
        order: of the curve: by ``"effect"``, ``"gradient"``, ``"role"``, or ``"random"``.
        remeasure: rank the heads that are left again after every tenth of them.
        random_orders: beside the curve, so many random orders.
        tolerance: how much a curve may cost, in the metric's unit.
        seed: of masks, halves, draws and random orders.
        draws: for resample, other texts for each text; by default one, and more for a few texts.
        batch_tokens: tokens that run at once at most; found by itself if None.
        jobs: processes, or actors on Ray.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        evidence: results of :func:`attnviz.syntax` or :func:`attnviz.coref`, or their files, whose
            roles ``heads`` may then name: ``"role:obj"``.

    Raises:
        UsageError: options that make no sense, alone or together.
        SelectionError: heads that the model does not have.
        InputError: no text, or none with anything to predict.
        ModelError: a model that cannot be ablated, or not by this metric.

    Source:
        Michel et al. 2019 (arXiv:1905.10650) for gates, Wang et al. 2022 (arXiv:2211.00593) for
        means, Chan et al. 2022 (Causal Scrubbing) for resampling.
    """
    chosen = AblationSettings(
        heads=heads,
        method=_methods(method, fill),
        mean_over=mean_over,
        metric=given_metric(metric) if callable(metric) else metric,
        answer=answer,
        against=against,
        at=at,
        mask=mask,
        gradient=gradient,
        normalize=normalize,
        average=average,
        smallest=smallest,
        positions=positions,
        curve=curve,
        order=order,
        remeasure=remeasure,
        random_orders=random_orders,
        tolerance=tolerance,
        seed=seed,
        draws=draws,
        batch_tokens=batch_tokens,
        jobs=jobs,
        ray=ray,
    )
    chosen.check()
    if (what is None) == (not probe):
        raise UsageError("give texts, or {probe} for repeated random tokens", probe=True)
    if probe and groups is not None:
        raise UsageError("{probe} draws its own texts, which have no {groups}", probe=True,
                         groups=...)  # fmt: skip
    source = load(model, device=device, dtype=dtype)
    study = Study(
        source,
        None if what is None else prepared(source, what),
        chosen,
        None if reference is None else prepared(source, reference),
        loader(model, source, device=device, dtype=dtype),
        progress or (lambda stage, done, all_: None),
        tuple(groups or ()),
        _annotated(evidence, source, model),
    )
    if groups is not None and len(study.groups) != len(study.texts or ()):
        raise UsageError(
            "{} groups for {} texts: give one for each text, or None",
            len(study.groups),
            len(study.texts or ()),
        )
    study.notes.extend(_written(study.texts or ()))
    return replace(run(study), identity=identity(model))


def _methods(method: str, fill: Callable[[Outputs], Any] | None) -> str:
    """The methods, with a function's own before the others."""
    return method if fill is None else f"{given_fill(fill).name}, {method}"


def _annotated(
    evidence: Evidence | Sequence[Evidence] | None, source: Source, model: Model
) -> Roles:
    """Roles that results about this model give its heads; UsageError for another model's."""
    several = read_evidence(evidence)
    for one in several:
        one.result.check_model(one.name, source.info, source.layout, identity(model))
    return given_roles(several)


def _written(texts: Sequence[Inputs]) -> tuple[str, ...]:
    """What to say of texts that the model went on with: what it wrote, or how many there are."""
    wrote = [inputs for inputs in texts if inputs.output]
    if len(wrote) > 1:
        return (f"The model went on with {len(wrote):,} texts before they were measured.",)
    return wrote[0].notes if wrote else ()
