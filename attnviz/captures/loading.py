"""From a model's name, or a model that is loaded already, to what runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.core.interface import interface
from attnviz.core.labels import CLASSIFIERS
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import DEFAULT_MODEL
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import Observer, Source
from attnviz.errors import ModelError, UsageError
from attnviz.models.controls import FreshConfig
from attnviz.models.device import Placement, resolve
from attnviz.scoring.observe import following, observe, score_batch
from attnviz.scoring.select import read_groups, role_heads

Model = str | Path | FreshConfig | Source
"""A name, a folder or a hub id; the options of a fresh layer; or a loaded model. Beside a source
also a transformers model in memory."""


@interface
def load(
    model: Any = DEFAULT_MODEL,
    *,
    tokenizer: Any = None,
    device: str = "auto",
    dtype: str = "auto",
    untrained: int | None = None,
    scale: Literal["default", "trained"] = "default",
    reads: Literal["text", "image"] = "text",
) -> Source:
    """Load a model once, to use it for many texts.

    Args:
        model: a bundled model's name, ``"fresh"``, a :class:`FreshConfig`, a model folder, a hub
            id, or a loaded model: what this returned, or a transformers ``PreTrainedModel``. That
            is run in evaluation mode with our attention, and is as it was between two passes. A
            PEFT model, a compiled or a parallel one, a SentenceTransformer and a pipeline are
            opened, and ``info.reason`` says so.
        tokenizer: for a transformers model, its tokenizer; without it only ids can be used.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``; ``balanced``,
            ``balanced_low_0`` or ``sequential`` divide the layers among the devices there are
            (accelerate).
        dtype: ``auto``, ``float32``, ``bfloat16``, ``float16``; ``8bit`` and ``4bit`` quantize the
            weights on the way in (bitsandbytes).
        untrained: a seed; random weights in place of the trained ones, for the same configuration
            and with the same tokenizer: what the architecture does before it has learned.
        scale: of those: ``default`` as transformers draws them before training, ``trained`` the
            entries of every trained tensor in random order, which are as large as the trained ones.
        reads: ``text`` or ``image``: which of its towers, for models such as CLIP that have one for
            each. Others read what they read.

    Raises:
        ModelError: the model cannot be used; DeviceError: the device is not there.
        SizeError, UsageError: options that make no sense.
    """
    if not Placement.of(device, dtype).plain and not isinstance(model, str | Path):
        raise UsageError(
            "{device} and {dtype} need the name or folder of a {model}",
            device=device,
            dtype=dtype,
            model=...,
        )
    if _is_module(model) and untrained is None:
        return _borrowed(model, tokenizer, device, dtype)
    if tokenizer is not None:
        raise UsageError(
            "{tokenizer} goes with a transformers model in memory; other models have their own",
            tokenizer=...,
        )
    if model == "fresh":
        model = FreshConfig()
    if untrained is not None and not isinstance(model, str | Path):
        raise UsageError(
            "untrained weights need the name or folder of a trained {model}, not {}",
            "a fresh layer" if isinstance(model, FreshConfig) else "a loaded one",
            model=...,
        )
    if isinstance(model, FreshConfig):
        from attnviz.models.untrained import Fresh

        model.check()
        return Fresh(model, *resolve(device, dtype))
    if isinstance(model, str | Path):
        from attnviz.models import pretrained

        return pretrained.load(
            str(model), device=device, dtype=dtype, untrained=untrained, scale=scale, reads=reads
        )
    if not (hasattr(model, "prepare") and hasattr(model, "forward")):
        raise UsageError(
            "{model} takes a name, a folder, a FreshConfig, a transformers model or what load() "
            "returned, not {}",
            type(model).__name__,
            model=...,
        )
    return model


def light(source: Source) -> Source:
    """Give the same model, which may give NumPy arrays in place of tensors where that spares torch.

    For whoever takes both, as formulas on :mod:`attnviz.core.arrays` do.
    """
    return getattr(source, "light", source)


def answering(source: Source, *, needed: bool = True) -> Source:
    """Return a model, light, for questions on what it predicts: a classifier's labels, or words.

    Where a label is ``needed``, a classifier whose head is not known is a ModelError; else it is
    left as it is.
    """
    if not getattr(source, "architecture", "").endswith(CLASSIFIERS):
        return light(source)
    from attnviz.models.hooked.labels import labelled

    try:
        return light(labelled(source))
    except ModelError:
        if needed:
            raise
        return light(source)


def load_light(model: Any, **options: Any) -> Source:
    """:func:`light` of what :func:`load` gives."""
    return light(load(model, **options))


def expected(model: object) -> Layout | None:
    """Give the heads of a model, without reading its weights; None where only loading it tells."""
    if model == "fresh":
        model = FreshConfig()
    if isinstance(model, FreshConfig):
        kind: SiteKind = "decoder" if model.causal else "encoder"
        kind = "cross" if model.kind == "cross" else kind
        return Layout({kind: (model.heads,) * model.layers})
    if not isinstance(model, str | Path):
        layout = getattr(model, "layout", None)
        return layout if isinstance(layout, Layout) else None
    from attnviz.models.configs.model import layout_of
    from attnviz.models.folder import locate_config

    try:
        config, _ = locate_config(str(model))
    except ModelError:  # loading says it, and more of it
        return None
    return layout_of(config)


def find(*models: object) -> None:
    """Look for models by their names before the first is loaded; ModelError where one is not."""
    from attnviz.models.folder import locate

    for model in models:
        if isinstance(model, str | Path) and model != "fresh":
            locate(str(model))


def _is_module(model: object) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or isinstance(model, str | Path | FreshConfig):
        return False
    if isinstance(model, torch.nn.Module):
        return True
    from attnviz.models.hooked.wrapped_model import is_wrapper

    return type(model).__module__.startswith("transformers.") and is_wrapper(model)


def _borrowed(model: Any, tokenizer: Any, device: str, dtype: str) -> Source:
    """Return a model in memory, which is neither moved nor converted."""
    from attnviz.models import hooked

    source = hooked.borrow(model, tokenizer)
    location, precision = source.info.device, source.info.dtype
    if device not in ("auto", location) or dtype not in ("auto", precision):
        raise UsageError(
            "a model in memory stays on {} in {}; move it yourself, and leave out {device} and "
            "{dtype}",
            location,
            precision,
            device=...,
            dtype=...,
        )
    return source


@contextmanager
def ablated(
    source: Source,
    heads: str | None,
    inputs: Inputs,
    annotated: Callable[[Sequence[HeadScores]], Sequence[HeadScores]] = lambda scores: scores,
) -> Iterator[Inputs]:
    """Take heads away inside the ``with`` block."""
    if heads is None:
        yield inputs
        return

    def roles(name: str) -> tuple[Head, ...]:
        observer = score_batch(source, [inputs])
        return role_heads(annotated(observer.result()), name)

    groups = read_groups(heads, source.layout, roles)
    removed = dict.fromkeys(head for group in groups for head in group.heads)
    names = ", ".join(source.layout.name(head) for head in removed)
    note = f"Without {names}: the output of these heads is set to zero."
    with source.gated({head.qualified: 0.0 for head in removed}):
        yield replace(inputs, notes=(*inputs.notes, note))


def observed(
    source: Source,
    inputs: Inputs,
    *observers: Observer,
    off: str | None = None,
    viewed: Source | None = None,
    progress: Progress | None = None,
    terms: bool = False,
) -> Inputs:
    """Run a text once for what observers see of it."""
    with ablated(source, off, inputs) as noted:
        counters = following(inputs, source.layout, progress)
        observe(viewed or source, [noted], *observers, *counters, terms=terms)
    return noted
