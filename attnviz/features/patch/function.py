"""``attnviz.patch``: which heads carry an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.captures.look import DEFAULT_MODEL, Model, load, loader
from attnviz.core.progress import Progress
from attnviz.errors import UsageError
from attnviz.features.patch.metrics import Function
from attnviz.features.patch.pairs import Align, Pair, pair_of, read_pairs
from attnviz.features.patch.paths import Mlps
from attnviz.features.patch.result import Patch
from attnviz.features.patch.run import PatchStudy, run
from attnviz.features.patch.settings import By, Directions, PatchSettings
from attnviz.features.patch.targets import Component
from attnviz.models.identity import identity
from attnviz.scoring.user_measures import Outputs, given_fill

Pairs = Pair | Mapping[str, Any] | str | Path | Iterable[Pair | Mapping[str, Any]]
"""One pair or several, as :class:`Pair` or as a dictionary of its fields; or a JSONL file."""


def patch(
    pairs: Pairs | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    task: str | None = None,
    component: Component = "z",
    by: By = "head",
    heads: str | None = None,
    at: str | None = None,
    direction: Directions = "both",
    metric: str | Function | None = None,
    fill: str | Callable[[Outputs], Any] | None = None,
    align: Align = "position",
    estimate: bool = False,
    paths: str | Sequence[str] = (),
    edges: int = 0,
    steps: int = 5,
    mlps: Mlps = "frozen",
    circuit: bool = False,
    size: int | None = None,
    faithful: float = 0.85,
    group: str | None = None,
    count: int = 60,
    seed: int = 0,
    batch_tokens: int | None = None,
    jobs: int = 1,
    ray: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Patch:
    """Put values of one run into another, and measure what of the answer comes with them.

    Args:
        pairs: clean and corrupted prompts with the answer, see :class:`attnviz.Pair`; a list, one,
            or a JSONL file. Nothing with ``task``.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        task: a built-in task in place of pairs: ``"induction"``, ``"induction-swap"``,
            ``"ioi"``, ``"agreement"``, ``"gender"``.
        component: what is patched: the heads' outputs before W_O (``"z"``), their queries, keys or
            values as attention reads them (``"q"``, ``"k"``, ``"v"``; after rotary positions), the
            ``"pattern"`` alone (the other run's weights on this run's values), ``"attention"`` or
            ``"mlp"`` sublayers, ``"residual"`` states as they enter each layer.
        by: all positions at once (``"head"``), or each by itself (``"position"``).
        heads: which, see :mod:`attnviz.scoring.groups`: ``"2.0, 2.0+2.4, layer:2"``; by default
            every head alone. Keys and values that several heads share go together.
        at: which positions: ``"-1"``, ``"3,4"``, ``"span"`` for those that differ, or
            ``"span:NAME"`` for a part that :attr:`attnviz.Pair.spans` names.
        direction: ``"denoise"`` (clean values into the corrupted run), ``"noise"`` or ``"both"``.
        metric: ``"logit-diff"``, ``"prob"``, ``"log-prob"``, ``"kl"`` (to the clean run),
            ``"loss"``; or a function of the logits [V] where the answer belongs, and the pair, that
            gives one number. By default the logit difference, where there is something to hold the
            answer against, else log-prob.
        fill: a function of :class:`attnviz.Outputs`, or the name of one that :func:`attnviz.fill`
            has registered: what takes the place of a head's output, made of it and of the other
            run's. By default the other run's output itself.
        align: ``"word"`` aligns prompts of different lengths word by word.
        estimate: also estimate every effect from one gradient (attribution patching).
        paths: in place of heads, paths from senders to an input of receivers or to the logits:
            ``"1.4 -> *.k"``, ``"2.* -> 3.0"``, ``"2.0 -> logits"``: one or several.
        edges: estimate the paths between all heads by gradients, and measure so many of the
            strongest exactly.
        steps: the estimates are a mean over so many inputs between corrupted and clean embeddings
            (EAP-IG); 0 for the corrupted run alone (EAP).
        mlps: between the ends of a path as in the run that is patched (``"frozen"``), or run again
            (``"free"``); heads between are always held.
        circuit: find the heads that do the task on one half of the pairs (by group), and judge
            them on the other.
        size: heads of the circuit; by default the fewest that are faithful enough.
        faithful: share of the effect that they keep, where they are found.
        group: of a file, the field that names what a pair belongs to.
        count: pairs of a task.
        seed: of a task's draws and of the bootstrap.
        batch_tokens: tokens that run at once at most; found by itself if None.
        jobs: processes, or actors on Ray.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
        device: where to run.
        dtype: in which precision.
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
    chosen = PatchSettings(
        component=component,
        by=by,
        heads=heads,
        at=at,
        direction=direction,
        align=align,
        estimate=estimate,
        paths=(paths,) if isinstance(paths, str) else tuple(paths),
        edges=edges,
        steps=steps,
        mlps=mlps,
        circuit=circuit,
        size=size,
        faithful=faithful,
        fill=given_fill(fill).name if callable(fill) else fill,
        count=count,
        seed=seed,
        batch_tokens=batch_tokens,
        jobs=jobs,
        ray=ray,
    )
    chosen.check()
    given = pairs_of(pairs, task, group)
    source = load(model, device=device, dtype=dtype)
    study = PatchStudy(
        source,
        given,
        chosen,
        metric,
        loader(model, source, device=device, dtype=dtype),
        progress or (lambda stage, done, all_: None),
    )
    return replace(run(study), identity=identity(model))


def pairs_of(pairs: Pairs | None, task: str | None, group: str | None) -> list[Pair] | str:
    """The pairs that were given, or the name of a task.

    Raises:
        UsageError: both, or neither; InputError: no pairs.
    """
    if (pairs is None) == (task is None):
        raise UsageError("give pairs, or {task} for built-in ones", task="induction")
    if task is not None:
        if group is not None:
            raise UsageError("{group} is a field of a file of pairs; leave out {task}", group=group,
                             task=...)  # fmt: skip
        return task
    if isinstance(pairs, str | Path):
        return read_pairs(str(pairs), group)
    if isinstance(pairs, Pair | Mapping):
        pairs = [pairs]
    assert pairs is not None
    return [pair_of(one, f"pair {n}", group) for n, one in enumerate(pairs, 1)]
