"""A model without some of its heads, for whatever looks at it: ``--without 2.4,role:first``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import Observer, Source
from attnviz.scoring.groups import read_groups, role_heads
from attnviz.scoring.passes import following, observe, score_batch


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
    gone = dict.fromkeys(head for group in groups for head in group.heads)
    names = ", ".join(source.layout.name(head) for head in gone)
    note = f"Without {names}: the output of these heads is set to zero."
    with source.gated({head.qualified: 0.0 for head in gone}):
        yield replace(inputs, notes=(*inputs.notes, note))


def observed(
    source: Source,
    inputs: Inputs,
    *observers: Observer,
    off: str | None = None,
    shown: Source | None = None,
    progress: Progress | None = None,
    terms: bool = False,
) -> Inputs:
    """Run a text once for what observers see of it."""
    with ablated(source, off, inputs) as noted:
        told = following(inputs, source.layout, progress)
        observe(shown or source, [noted], *observers, *told, terms=terms)
    return noted
