"""``attnviz.patch``: which heads carry an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from attnviz.captures.loading import answering, light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.core.split import field_of
from attnviz.errors import UsageError
from attnviz.features.patch.pairs import Pair, pair_of, read_pairs
from attnviz.features.patch.result import Patch
from attnviz.features.patch.run import PatchStudy, check_heads, run
from attnviz.features.patch.settings import PatchSettings
from attnviz.features.patch.tasks import check_task
from attnviz.scoring.user_measures import given_fill

Pairs = Pair | Mapping[str, Any] | str | Path | Iterable[Pair | Mapping[str, Any]]
"""One pair or several, as :class:`Pair` or as a dictionary of its fields; or a JSONL file."""


@interface
def patch(
    pairs: Pairs | None = None,
    *,
    settings: PatchSettings,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Patch:
    """Put values of one run into another, and measure what of the answer comes with them.

    Args:
        pairs: clean and corrupted prompts with the answer, see :class:`attnviz.Pair`; a list, one,
            or a JSONL file. Nothing with ``task``.
        progress: called again and again with a stage, how much is done and how much there is.

    Returns:
        Effects as shares Σ (patched - corrupted) / Σ (clean - corrupted) over pairs for denoising,
        Σ (clean - patched) / Σ (clean - corrupted) for noising, with 95 % intervals over pairs.

    Raises:
        UsageError: options that make no sense, alone or together.
        SelectionError: heads that the model does not have.
        InputError: a pair that cannot be used, or a metric that does not move.
        ModelError: a model that cannot be patched, or gives no logits.

    Source:
        Vig et al. 2020 (arXiv:2004.12265), Meng et al. 2022 (arXiv:2202.05262), Zhang & Nanda 2023
        (arXiv:2309.16042), Heimersheim & Nanda 2024 (arXiv:2404.15255); paths: Wang et al. 2022
        (arXiv:2211.00593), Goldowsky-Dill et al. 2023 (arXiv:2304.05969); estimates: Syed et al.
        2023 (arXiv:2310.10348), Hanna et al. 2024 (arXiv:2403.17806).
    """
    if callable(settings.fill):
        settings = settings.but(fill=given_fill(settings.fill).name)
    given = pairs_of(pairs, settings.task, settings.group, settings.split)
    source = answering(light(model.load(heads=partial(check_heads, settings))))
    study = PatchStudy(
        source,
        given,
        settings,
        settings.metric,
        model.again(source),
        progress or (lambda stage, done, all_: None),
    )
    return replace(run(study), identity=model.identity)


def pairs_of(
    pairs: Pairs | None, task: str | None, group: str | None, split: str
) -> list[Pair] | str:
    """The pairs that were given, or the name of a task."""
    if (pairs is None) == (task is None):
        raise UsageError("give pairs, or {task} for built-in ones", task="induction")
    if task is not None:
        if group is not None:
            raise UsageError("{group} is a field of a file of pairs; leave out {task}", group=group,
                             task=...)  # fmt: skip
        if field_of(split):
            raise UsageError("{split} is of a file of pairs; leave out {task}", split=split,
                             task=...)  # fmt: skip
        check_task(task)
        return task
    part = field_of(split) or None
    if isinstance(pairs, str | Path):
        return read_pairs(str(pairs), group, part)
    if isinstance(pairs, Pair | Mapping):
        pairs = [pairs]
    assert pairs is not None
    return [pair_of(pair, f"pair {n}", group, part) for n, pair in enumerate(pairs, 1)]
