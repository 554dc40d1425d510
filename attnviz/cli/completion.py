"""What a shell offers for a value: choices, models on this machine, heads of one, terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from attnviz.cli.defaults import default_model
from attnviz.errors import AttnvizError

Offer = Callable[..., list[str]]


def offer(name: str, choices: Sequence[str]) -> Offer | None:
    """What completes a value."""
    if choices:
        return lambda incomplete: _starting(incomplete, choices)
    return _OFFERS.get(name)


def models(incomplete: str) -> list[str]:
    """Models of this machine, and folders here that hold one."""
    from attnviz.features.models.catalog import names

    here = (
        str(path.parent)
        for path in Path().glob(f"{incomplete.rstrip('*') or ''}*/config.json")
        if not any(character in incomplete for character in "*?[")
    )
    return _starting(incomplete, (*names(), *sorted(here)))


def heads(ctx: typer.Context, incomplete: str) -> list[str]:
    """The heads of the model that was named before, behind those that are typed already."""
    typed, comma, last = incomplete.rpartition(",")
    model = ctx.params.get("model") or default_model()
    return [f"{typed}{comma}{head}" for head in _starting(last, ("all", *_heads_of(model)))]


def terms(incomplete: str) -> list[str]:
    """Terms of the glossary, as one word each."""
    from attnviz.core import questions

    known = (name for term in questions.terms() for name in (term.name, *term.also))
    return _starting(incomplete, (name.replace(" ", "-") for name in known))


def _heads_of(model: Any) -> list[str]:
    """``0.0``, ``0.1``, ... by the configuration alone; none where it is not here."""
    from attnviz.features.models.catalog import folder_of
    from attnviz.models.configs.model import read_config as read_attention
    from attnviz.models.folder import read_config

    folder = folder_of(str(model))
    if folder is None:
        return []
    try:
        groups = read_attention(read_config(folder), str(model)).groups
    except (AttnvizError, OSError):
        return []
    layers = sorted((layer, group.spec.heads) for group in groups for layer in group.layers)
    return [f"{layer}.{head}" for layer, count in layers for head in range(count)]


def _starting(incomplete: str, known: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(known) if name.lower().startswith(incomplete.lower())]


_OFFERS: dict[str, Offer] = {
    "model": models, "other_model": models, "show": models, "select": heads, "without": heads,
    "term": terms,
}  # fmt: skip
"""By the name of a setting."""
