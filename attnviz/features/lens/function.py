"""``attnviz.lens``: what each layer already knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, load, looks_of, prompt_of
from attnviz.core.capture import Capture
from attnviz.errors import UsageError
from attnviz.features.lens.result import Lens, Position
from attnviz.features.lens.run import LensQuestion, run
from attnviz.features.lens.writes import run_heads
from attnviz.models.identity import identity

By = Literal["layer", "head"]


def lens(
    what: Look | Iterable[Look],
    *,
    model: Model = DEFAULT_MODEL,
    by: By = "layer",
    token: str | None = None,
    position: Position = None,
    top: int = 10,
    device: str = "auto",
    dtype: str = "auto",
    progress: Callable[[int], None] = lambda done: None,
) -> Lens:
    """Read the state after every layer as if it were the last: what each layer already knows.

    Every state [D] goes through the last normalization and the LM head of the model itself; the
    last one gives the model's own logits, which is checked at every run (1e-4 of the largest, 0.05
    in half precision). Beside the words stand the entropy and D(last ∥ this), both in nats. Of an
    encoder-decoder model the decoder is read, of a masked model the state at each mask.

    Args:
        what: a text or prompt; with ``by="head"`` also several.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        by: ``"layer"`` for the states, ``"head"`` for what each head writes, for models whose
            residual stream is a sum (see :func:`attnviz.logits`).
        token: a word whose rank and probability to follow along the layers; by default each
            position's own last prediction.
        position: of a token, from 0 or, negative, from the end, or ``"all"``. By default all; of
            masked models all masks; of heads the last token of a single text, all of several.
        top: how many words of each state or head.
        device: where to run.
        dtype: in which precision.
        progress: called with how many texts are done, where heads are read.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError for a model without an LM head, or one
            whose states cannot be read.

    Source:
        nostalgebraist 2020, "interpreting GPT: the logit lens"; of single heads Elhage et al. 2021,
        "A Mathematical Framework for Transformer Circuits". No lens is trained (Belrose et al.
        2023, arXiv:2303.08112, do that).
    """
    question = LensQuestion(token, position, top)
    question.check()
    if by not in ("layer", "head"):
        raise UsageError("{by} is layer or head", by=by)
    if by == "head" and token is not None:
        raise UsageError("{token} is followed along the layers; leave out {by}", token=token, by=by)
    looks = list(looks_of(what))
    given = [one for one in looks if not isinstance(one, Capture)]
    if len(given) < len(looks):
        raise UsageError(
            "recorded attention holds no states, since those need the model; give a "
            "text and {model}",
            model=...,
        )
    if by == "layer" and len(looks) != 1:
        raise UsageError(
            "layers are read on one text, and there are {}; give one, or read what heads write on "
            "all of them with {by}",
            len(looks),
            by="head",
        )
    source = load(model, device=device, dtype=dtype)
    texts = [source.prepare(prompt_of(one)) for one in given]
    if by == "head":
        found = run_heads(source, texts, question, progress)
    else:
        found = run(source, texts[0], question)
    return replace(found, identity=identity(model))
