"""``attnviz.retrieval``: which heads copy a needle out of a long text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.features.retrieval.needles import read_needles
from attnviz.features.retrieval.result import Retrieval
from attnviz.features.retrieval.run import run
from attnviz.features.retrieval.settings import RetrievalSettings


@interface
def retrieval(
    needles: str | Path | None = None,
    *,
    settings: RetrievalSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, done, all_: None,
) -> Retrieval:
    """Find the heads that copy a needle out of a long text, and see what is lost without them.

    Two scores of every head: what it copies while the model generates the answer (Wu et al. 2024,
    arXiv:2404.15574), and how much weight goes from the question to the needle, less that from a
    question without content (QRHead, arXiv:2506.09944). Heads are ranked on even needles and
    measured on odd ones; there the first of them are ablated, against as many others. A model that
    generates nothing (BERT) has the query-focused score alone.

    Args:
        needles: a .jsonl file, see :mod:`attnviz.features.retrieval.needles`; by default random
            words that the tokenizer keeps whole.
        progress: called again and again with a stage, how much is done and how much there is.

    Returns:
        Shares from 0 to 1 of N heads with 95 % intervals over needles, cells of lengths and depths,
        ablations, and the same model with random weights.

    Raises:
        UsageError: lengths that do not fit; AttnvizError: see :mod:`attnviz.errors`.
    """
    read = None if needles is None else read_needles(str(needles))
    source = light(model.load())
    control = None
    named = isinstance(model.model, str | Path) and model.model != "fresh"
    if settings.control and named:
        control = model.loading(untrained=settings.seed)
    result = run(source, read, settings, control, progress)
    return replace(result, identity=model.identity)
