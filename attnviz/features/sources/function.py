"""``attnviz.sources``: where a head's query and key come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, load, prompt_of
from attnviz.core.capture import Capture
from attnviz.errors import UsageError
from attnviz.features.sources.measure import measure
from attnviz.features.sources.result import MEAN, Others, Sources, SourceShares
from attnviz.features.sources.run import Against, SplitAsked, answer
from attnviz.models.identity import identity


def sources(
    what: Look,
    head: str,
    at: int = -1,
    *,
    key: int | None = None,
    against: Against = None,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
) -> Sources:
    """Split one attention score before softmax by what its query and its key were made of.

    With the scale of every normalization held at its value, query and key are sums over what
    earlier parts of the model wrote to the residual stream, so the score is a sum over pairs of
    these, s q_a·k_b (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). That
    the pairs add up to the model's own score, to 1e-4 of it in float32, is checked in every run.

    Args:
        what: a text or prompt.
        head: whose score, such as ``"2.0"``; one head.
        at: position of the query, from 0 or, negative, from the end.
        key: position of the key; by default the one with the largest weight.
        against: split the difference to another score: of the key at this position; ``"mean"``, the
            mean over all other keys; or ``"rest"``, that mean by their weights among themselves,
            which is how the logarithm of the weight's odds changes.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.

    Returns:
        The matrix of sources [N, M] in units of the score, sums by side, and the query's row.

    Raises:
        UsageError: several heads, recorded attention, or a key against itself.
        InputError: no such position, or a key that the model blocks.
        ModelError: the sources do not add up to the score, or cannot be told.
    """
    if isinstance(what, Capture):
        raise UsageError(
            "recorded attention has no queries and keys to split, since those need the model; "
            "give a text and {model}",
            model=...,
        )
    asked = SplitAsked(head, at, key, against)
    asked.check()
    source = load(model, device=device, dtype=dtype)
    inputs = source.prepare(prompt_of(what))
    return replace(answer(source, inputs, asked), identity=identity(model))


def source_shares(
    texts: Iterable[Look],
    head: str,
    *,
    role: str | None = None,
    against: Others = MEAN,
    seed: int = 0,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    progress: Callable[[str, int, int], None] | None = None,
) -> SourceShares:
    """Say where a head finds its keys, over the rows of many texts on which it can.

    On every row, the mean score of the keys that count less that of all other keys is split as
    :func:`sources` does. Shares are ratios of sums over the rows, with intervals over the texts.

    Args:
        texts: texts or prompts.
        head: whose keys, such as ``"2.0"``; one head.
        role: whose target keys count, such as ``"induction"``; by default of the role that the
            head has on these texts, and if it has none, the key with the largest weight.
        against: ``"mean"`` where all keys count alike in both means; ``"rest"`` where each counts
            by its weight among them: what changes the logarithm of these keys' odds.
        seed: of the bootstrap behind the joint intervals.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        UsageError: several heads, or no such role.
        InputError: no text, or none with a row that counts.
        ModelError: sources that do not add up to the scores, or cannot be told.
    """
    prompts = []
    for one in texts:
        if isinstance(one, Capture):
            raise UsageError("recorded attention has no queries and keys to split; give texts")
        prompts.append(prompt_of(one))
    source = load(model, device=device, dtype=dtype)
    prepared = [source.prepare(one) for one in prompts]
    tell = progress or (lambda stage, done, all_: None)
    found = measure(source, prepared, head, role, against, seed, tell)
    return replace(found, identity=identity(model))
