"""A page that runs the model itself: ``attnviz.live``."""

from __future__ import annotations

import math

import numpy as np

from attnviz.captures.inputs import prompt_of
from attnviz.captures.loading import Model, expected, light, load
from attnviz.core.arrays import array, to_numpy
from attnviz.core.interface import interface
from attnviz.core.provenance import DEFAULT_MODEL, Made
from attnviz.errors import ModelError, UsageError
from attnviz.features.live.lessons import LESSONS
from attnviz.features.live.opening import RoundingErrors, holding, moved, opening
from attnviz.features.live.page import live_page, rounded
from attnviz.features.live.result import LivePage, LiveSettings
from attnviz.files import human_bytes
from attnviz.models.cache import identity
from attnviz.models.native.source import Native
from attnviz.scoring.observe import score_batch
from attnviz.scoring.select import select
from attnviz.web import PageSettings

TEXT = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
"""The text that the page opens with where the model shows no finding on :mod:`.opening`'s."""


@interface
def live(
    text: str | None = None,
    *,
    settings: LiveSettings,
    page: PageSettings,
    model: Model = DEFAULT_MODEL,
) -> LivePage:
    """Put a whole model into one offline page: type, switch heads off, see everything change.

    The page has the weights, the tokenizer and a forward pass in JavaScript and WebAssembly, which
    runs in a thread of its own. How far storing the weights in few bits moves attention is measured
    on ``text`` and on sentences of attnviz's own, and said in the page. In 8 bits weights are whole
    numbers with a scale for every 64 of a row.

    Args:
        text: what stands in it when it opens; the roles of the heads are measured on it. By
            default one on which two heads in a row find the next word, where the model has them.
        model: of the native backend: a bundled model, or a BERT, DistilBERT, RoBERTa or GPT-2.

    Raises:
        SelectionError: heads that the model does not have.
        ModelError: a model that runs elsewhere, or one whose tokenizer cannot be put into a page.
        UsageError: a page that would be too large. InputError: a text that the model cannot take.
    """
    bits, max_mb, title = page.bits or 16, page.max_mb, page.title
    layout = None if settings.select is None else expected(model)
    if layout is not None:
        select(str(settings.select), layout)
    source = light(load(model, device="cpu", dtype="float32"))
    if not isinstance(source, Native):
        raise ModelError(
            f"{source.info.model} cannot run in a page, only models of the native backend: "
            "demo-gpt2, demo-bert, a BERT, DistilBERT, RoBERTa or GPT-2"
        )
    active = source.layout if settings.select is None else select(settings.select, source.layout)
    portable = source.portable()
    bytes_of = sum(array.size for array in portable.tensors.values()) * bits / 8 * 4 / 3
    if bytes_of > 1.1 * max_mb * 1e6:
        raise UsageError(
            "a page with {} would take about {}; allow it with {max_mb}",
            source.info.model,
            human_bytes(int(bytes_of)),
            max_mb=float(np.ceil(bytes_of / 1e6)),
        )
    rounded_source = source.rounded(lambda numbers: array(rounded(to_numpy(numbers), bits)))
    start = opening(rounded_source) if text is None else None
    if text is None:
        text = TEXT if start is None else start.text
    inputs = source.prepare(prompt_of(text))
    observer = score_batch(source, [inputs])
    errors = moved(source, rounded_source, inputs)
    name = source.info.model
    html = live_page(
        portable,
        observer.result(),
        text=text,
        opening=start,
        title=title or f"attnviz live: {name}",
        made=Made.now(name, identity=identity(model)),
        errors=errors,
        bits=bits,
        notes=_notes(source, bits, errors),
        off=[head.name for head in source.layout if head not in active],
        lessons=holding(LESSONS, rounded_source) if name == DEFAULT_MODEL else (),
    )
    if len(html) > max_mb * 1e6:
        raise UsageError(
            "a page with {} takes {}; allow it with {max_mb}",
            name,
            human_bytes(len(html)),
            max_mb=float(np.ceil(len(html) / 1e6)),
        )
    return LivePage(html, title or f"attnviz live: {name}", errors.weight)


def _notes(source: Native, bits: int, errors: RoundingErrors) -> tuple[str, ...]:
    share = f" and probabilities by {_upward(100 * errors.share)} %" if errors.share else ""
    moved = (
        f"that moved weights by {_upward(errors.weight)}{share} at most, and only digits "
        "that stand are shown"
        if errors.weight
        else "that changed nothing"
    )
    return (
        f"{source.info.model}, run by this page itself, its numbers stored in {bits} bits. On the "
        f"text the page opened with and {errors.texts - 1} sentences of attnviz, {moved}.",
        "Roles are measured on the text that is shown, with all heads on.",
    )


def _upward(value: float) -> str:
    """Two digits of a bound, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:.2g}"
