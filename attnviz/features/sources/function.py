"""``attnviz.sources``: where a head's query and key come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from attnviz.captures.inputs import Input, prepare_each, prompts_of
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.quantities import check_attends
from attnviz.core.settings import Progress
from attnviz.features.sources.measure import measure
from attnviz.features.sources.result import MEAN, Sources, SourceShares, SourcesSettings
from attnviz.features.sources.run import answer, named_head, one_head


@interface
def sources(
    text: Input | Iterable[Input],
    *,
    settings: SourcesSettings,
    model: ModelSettings,
    parts: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Sources | SourceShares:
    """Split attention scores before softmax by what query and key were made of.

    With the scale of every normalization held at its value, query and key are sums over what
    earlier parts of the model wrote to the residual stream, so the score is a sum over pairs of
    these, s q_a·k_b (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). That
    the pairs add up to the model's own score, to 1e-4 of it in float32, is checked in every run.

    Of several texts, every row counts on which the head can find its keys: the mean score of the
    keys that count less that of all other keys is split. Shares are ratios of sums over the rows,
    with intervals over the texts.

    Args:
        text: a text or prompt, or several.
        parts: of several texts, which part of the data each is of, for ``split="field:NAME"``.
        progress: of several texts, called again and again with a stage, how much is done and how
            much there is.

    Returns:
        Of one text the matrix of sources [N, M] in units of the score, sums by side, and the
        query's row; of several the share of each source.

    Raises:
        UsageError: several heads, recorded attention, no such role, or a key against itself.
        InputError: no such position, a key that the model blocks, or no row that counts.
        ModelError: the sources do not add up to the score, or cannot be told.
    """
    single = isinstance(text, Input)
    lacks = "has no queries and keys to split, since those need the model"
    prompts, model = prompts_of(text, lacks, model)
    if single:
        settings.check_one()
    else:
        settings.check_several()
    source = light(model.load(heads=partial(named_head, settings.select)))
    check_attends(source.info.model, source.layout)
    inputs = prepare_each(source, prompts)
    result: Sources | SourceShares
    if single:
        result = answer(source, inputs[0], settings)
    else:
        baseline: Literal["mean", "rest"] = "rest" if settings.other_key == "rest" else MEAN
        tell = progress or (lambda stage, count, total: None)
        head = one_head(source, settings.select)
        (shares,) = measure(
            source, inputs, {head: settings.role}, baseline, settings.seed, tell, settings.split,
            parts or (),
        ).values()  # fmt: skip
        result = shares()
    return replace(result, identity=model.identity)
