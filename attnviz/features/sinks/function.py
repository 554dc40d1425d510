"""``attnviz.sinks``: where every head's attention rests, and what that does."""

from __future__ import annotations

from collections.abc import Iterable

from attnviz.captures.captured import notes
from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import check_single_stack, distinct, same_as
from attnviz.core.interface import interface
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.features.sinks.measure import (
    activations,
    measured,
    norm_of,
    predicts,
    sinks_of,
    spent_on,
)
from attnviz.features.sinks.result import Sinks, SinksSettings
from attnviz.scoring.roles import SINK_LENGTH
from attnviz.statistics.clusters import few_groups

_TOLD = 4


@interface
def sinks(
    text: Input | Iterable[Input],
    *,
    settings: SinksSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, done, all_: None,
) -> Sinks:
    """Find the token at which each head's attention rests, at any position, and what that does.

    A head's sink is the key with the most weight in all; a mean weight of more than ``threshold``
    over the rows that may attend to it makes it one (Gu et al. 2024, arXiv:2410.10781). Whether it
    is a no-op is told by the norm of its value and by its share of Σ α ‖f‖ (Kobayashi et al. 2020,
    arXiv:2004.10102); a head is dormant by the norm of its output against its layer's mean
    (Sandoval-Segura et al. 2025, arXiv:2504.03889); massive activations are those of Sun et al.
    2024 (arXiv:2402.17762).

    Args:
        text: a text or prompt, or several.

    Returns:
        Every head with its sink, means over texts with 95 % intervals, and the largest activation
        after every layer.

    Raises:
        UsageError: recorded attention, which has no values, or a model with a decoder of its own;
        AttnvizError: see :mod:`attnviz.errors`.
    """
    lacks = "has no values, which sinks are told by"
    prompts, model = prompts_of(text, lacks, model)
    source = light(model.load())
    check_single_stack(source.info.model, source.layout, "sinks")
    ready = [source.prepare(prompt) for prompt in prompts]
    ready, copies = distinct(ready, [same_as(inputs) for inputs in ready])
    sums = []
    for number, inputs in enumerate(ready):
        progress("texts", number, len(ready))
        sums.append(measured(source, inputs))
    progress("texts", len(ready), len(ready))
    ablate, threshold = settings.ablate, settings.threshold
    spent = spent_on(source, ready, sums, threshold, progress) if ablate else []
    messages = list(dict.fromkeys(note for item in ready for note in notes(item)))
    few = few_groups(len(sums)) if len(sums) > 1 else None
    if min(len(measured.tokens) for measured in sums) < SINK_LENGTH:
        messages.append(
            f"Texts of fewer than {SINK_LENGTH} tokens give every head much weight on its first "
            "keys; compare with chance."
        )
    loss = predicts(source)
    tokens = sum(costs.tokens for costs in spent)
    return Sinks(
        source=source.info,
        layout=source.layout,
        identity=model.identity,
        texts=len(sums),
        corpus=fingerprint(map(same_as, ready)) if len(ready) > 1 else "",
        notes=(*messages[-_TOLD:], *copies, *([few] if few else [])),
        tokens=sum(len(measured.tokens) for measured in sums),
        norm_of=norm_of(source),
        threshold=threshold,
        dormant_below=settings.dormant,
        unit=("nats" if loss else "1 - cosine") if ablate else None,
        base=sum(o.base * o.tokens for o in spent) / tokens if spent and loss else None,
        heads=sinks_of(source, sums, threshold, spent),
        layers=activations(sums),
    )
