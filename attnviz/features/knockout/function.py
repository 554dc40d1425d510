"""``attnviz.knockout``: what is lost when some tokens may not attend to others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from attnviz.captures.loading import answering, light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.features.knockout.result import Knockout
from attnviz.features.knockout.run import run
from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.features.knockout.texts import Given, cut_texts
from attnviz.scoring.groups import check_groups


@interface
def knockout(
    text: Given | Path | Iterable[Given],
    *,
    settings: KnockoutSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, done, all_: None,
) -> Knockout:
    """Cut attention from some tokens to others, and measure what that changes.

    The weights α_ij of rows i to keys j are cut in all heads, in some, or in a window of layers.
    Beside a cut stand random controls: the same rows lose as much weight from other keys. What the
    model writes while edges are cut is shown for a prompt with ``generate``.

    Args:
        text: a text or a prompt with ``spans``, or several; of a dictionary ``text`` (or
            ``messages``), ``spans``, ``target``, ``answer`` and ``against``; as a Path a .jsonl
            file of such.
        progress: called again and again with a stage, how much is done and how much there is.

    Returns:
        For each pair of parts and each group of heads the change of the metric, that of the
        controls, and their difference, with 95 % intervals over texts that hold together.

    Raises:
        UsageError: names of no part, or a metric that does not fit.
        SelectionError: heads that the model does not have.
        InputError: a text that cannot be used, or in which there is nothing to cut.
        ModelError: a model that cannot be cut, or gives no logits.

    Source:
        Geva et al. 2023 (arXiv:2304.14767) for knockout and its windows of layers.
    """
    texts, model = cut_texts(text, settings.answer, settings.against, model)
    asked = settings.select
    heads = None if asked is None else partial(check_groups, asked)
    result = run(answering(light(model.load(heads=heads))), texts, settings, progress)
    return replace(result, identity=model.identity)
