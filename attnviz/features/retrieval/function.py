"""``attnviz.retrieval``: which heads copy a needle out of a long text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from attnviz.captures.look import DEFAULT_MODEL, Model, load
from attnviz.core.progress import Progress
from attnviz.errors import UsageError
from attnviz.features.retrieval.result import Retrieval
from attnviz.features.retrieval.run import run
from attnviz.features.retrieval.settings import RetrievalSettings
from attnviz.models.identity import identity


def retrieval(
    needles: str | Path | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    settings: RetrievalSettings | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = lambda stage, done, all_: None,
    **options: Any,
) -> Retrieval:
    """Find the heads that copy a needle out of a long text, and see what is lost without them.

    Two scores of every head: what it copies while the model generates the answer (Wu et al. 2024,
    arXiv:2404.15574), and how much weight goes from the question to the needle, less that from a
    question without content (QRHead, arXiv:2506.09944). Heads are ranked on even needles and
    measured on odd ones; there the first of them are ablated, against as many others.

    Args:
        needles: a .jsonl file, see :mod:`attnviz.features.retrieval.needles`; by default random
            words that the tokenizer keeps whole.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``; a model that generates
            nothing (BERT) has the query-focused score alone.
        settings: lengths, depths and the rest; or its fields by themselves, see ``options``.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        options: fields of :class:`~attnviz.features.retrieval.settings.RetrievalSettings`.

    Returns:
        Shares from 0 to 1 of N heads with 95 % intervals over needles, cells of lengths and depths,
        ablations, and the same model with random weights.

    Raises:
        UsageError: no such option, or lengths that do not fit; AttnvizError: see
        :mod:`attnviz.errors`.
    """
    known = RetrievalSettings.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; choose from {', '.join(known)}")
    for name in ("lengths", "depths", "ablate"):
        if isinstance(options.get(name), Sequence) and not isinstance(options[name], str):
            options[name] = tuple(options[name])
    chosen = replace(settings or RetrievalSettings(), **options)
    source = load(model, device=device, dtype=dtype)
    drawn = None
    if chosen.control and isinstance(model, str | Path) and model != "fresh":
        drawn = partial(load, model, device=device, dtype=dtype, untrained=chosen.seed)
    found = run(source, needles, chosen, drawn, progress)
    return replace(found, identity=identity(model))
