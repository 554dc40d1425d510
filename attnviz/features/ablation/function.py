"""``attnviz.ablate``: what happens to a model without some of its heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from attnviz.captures.inputs import NO_MODEL, Input, check_span, prepare_each, prompts_of
from attnviz.captures.loading import answering, light
from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.core.heads import Layout
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.settings import Parallel, Progress
from attnviz.errors import UsageError
from attnviz.features.ablation.fills import MATCHED, UNMATCHED
from attnviz.features.ablation.result import Ablation
from attnviz.features.ablation.ruled import read_trees
from attnviz.features.ablation.run import Study, run
from attnviz.features.ablation.settings import AblationSettings, is_file
from attnviz.features.results import given_roles, read_evidence
from attnviz.scoring.select import check_groups
from attnviz.scoring.user_measures import Outputs, given_fill, given_metric


@interface
def ablate(
    text: Input | Iterable[Input] | None = None,
    *,
    probe: bool = False,
    settings: AblationSettings,
    reference: Input | Iterable[Input] | None = None,
    groups: Sequence[str | None] | None = None,
    parts: Sequence[str] | None = None,
    fill: Callable[[Outputs], Any] | None = None,
    attaching: Attaching,
    model: ModelSettings,
    parallel: Parallel,
    progress: Progress | None = None,
) -> Ablation:
    """Ablate heads, alone or in groups, and measure what that changes.

    Args:
        text: a text or prompt, or several; nothing with ``probe``.
        probe: repeat random tokens instead, and measure the second half: what the repetition tells.
        reference: texts for means and other outputs, which are none of those measured; or
            ``"matched"`` for those in the same state alone, the default where a structure is known:
            with ``probe`` other random tokens of the same length, with ``groups`` the other half
            of a group; or ``"unmatched"`` for any others: each half of the texts is filled from
            the other half, and a single text from English sentences of attnviz's own.
        groups: for each text what it belongs to, such as its document, or None; texts of one group
            count as one where certainty is concerned. Texts that are the same do so anyway.
        parts: for each text which part of the data it is of, for ``split="field:NAME"``.
        fill: a function of :class:`attnviz.Outputs` that gives what takes a head's place, as one
            more method before the others.

    Raises:
        UsageError: options that make no sense, alone or together.
        SelectionError: heads that the model does not have.
        InputError: no text, or none with anything to predict.
        ModelError: a model that cannot be ablated, or not by this metric.

    Source:
        Michel et al. 2019 (arXiv:1905.10650) for gates, Wang et al. 2022 (arXiv:2211.00593) for
        means, Chan et al. 2022 (Causal Scrubbing) for resampling.
    """
    if fill is not None:
        settings = settings.but(method=f"{given_fill(fill).name}, {settings.method}")
    if callable(settings.metric):
        settings = settings.but(metric=given_metric(settings.metric))
    if (text is None) == (not probe):
        raise UsageError("give texts, or {probe} for repeated random tokens", probe=True)
    if probe and groups is not None:
        raise UsageError("{probe} draws its own texts, which have no {groups}", probe=True,
                         groups=...)  # fmt: skip
    beside = read_evidence(attaching.evidence)
    select = settings.select

    def there(layout: Layout) -> None:
        if select is not None:
            check_groups(select, layout, annotated=bool(beside))

    if text is not None:
        text, model = prompts_of(text, NO_MODEL, model)
        for token in str(settings.position).split(","):
            if token.strip().startswith("span:"):
                check_span(token.strip().removeprefix("span:"), text)
    if not (isinstance(reference, str | None) and reference in (None, MATCHED, UNMATCHED)):
        reference, model = prompts_of(reference, NO_MODEL, model)
    source = model.load(heads=there)
    needed = settings.answer is not None
    source = light(source) if settings.metric == "hidden" else answering(source, needed=needed)
    for item in beside:
        item.result.check_model(item.name, source.info, source.layout, model.identity)
    study = Study(
        source,
        None if text is None else prepare_each(source, text),
        settings,
        reference if isinstance(reference, str | None) else prepare_each(source, reference),
        model.again(source),
        parallel,
        progress or (lambda stage, done, all_: None),
        tuple(groups or ()),
        given_roles(beside),
    )
    if groups is not None and len(study.groups) != len(study.texts or ()):
        raise UsageError(
            "{} groups for {} texts: give one for each text, or None",
            len(study.groups),
            len(study.texts or ()),
        )
    if parts is not None and len(parts) != len(study.texts or ()):
        raise UsageError(
            "{} parts for {} texts: give one for each text", len(parts), len(study.texts or ())
        )
    study.parts = tuple(parts or ())
    names = (method.partition(":")[2] for method in settings.rules)
    study.trees = {n: read_trees(n, source, model.identity) for n in names if is_file(n)}
    study.notes.extend(_written(study.texts or ()))
    return replace(run(study), identity=model.identity)


def _written(texts: Sequence[Inputs]) -> tuple[str, ...]:
    """Say of texts that the model went on with what it wrote, or how many there are."""
    wrote = [inputs for inputs in texts if inputs.output]
    if len(wrote) > 1:
        return (f"The model went on with {len(wrote):,} texts before they were measured.",)
    return wrote[0].notes if wrote else ()
