"""What a model writes after a text while edges of its attention are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from attnviz.core.cuts import CutMethod
from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.core.spans import EVERY, LAST
from attnviz.errors import UsageError
from attnviz.features.knockout.measure import cuts_of
from attnviz.features.knockout.places import edges_of
from attnviz.features.knockout.result import CutEffect, Written
from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.features.knockout.texts import CutText

MOST = 8
"""Cuts with which a text is written."""


def written(
    source: Source,
    text: CutText,
    inputs: Inputs,
    effects: Sequence[CutEffect],
    settings: KnockoutSettings,
) -> tuple[Written, ...]:
    """What is written as the model is, and with each cut but windows; nothing unless asked for.

    Where ``last`` or ``all`` queries are cut off, so are those of all tokens that are written.
    """
    generation = text.prompt.generate
    if generation is None:
        return ()
    if "cross" in source.layout.kinds:
        raise UsageError(
            "{} writes with an encoder; {generate} cuts only models with a single stack",
            source.info.model,
            generate=generation.tokens,
        )
    prompt = replace(text.prompt, generate=replace(generation, tell=None))
    made = [Written("", "", "", source.prepare(prompt).output)]
    method = cast("CutMethod", "redirect" if settings.instead else settings.method)
    wanted = [effect for effect in effects if effect.kind == "all"]
    wanted += [effect for effect in effects if effect.kind == "heads"]
    for effect in wanted[:MOST]:
        edges = edges_of(inputs, effect.rows, effect.keys, settings.instead)
        if edges is None:
            continue
        order = np.random.default_rng([settings.seed, 0, 0])
        places = np.asarray(order.permutation(len(inputs.sides[edges.kind].keys)), np.int64)
        said = []
        for control in (None, [places])[: 1 + bool(settings.draws)]:
            cuts = cuts_of(
                [edges],
                [effect.heads],
                inputs,
                source.layout,
                method,
                control,
                onward=effect.rows in (LAST, EVERY),
            )
            with source.cutting(cuts):
                said.append(source.prepare(prompt).output)
        made.append(Written(effect.rows, effect.keys, effect.name, *said))
    return tuple(made)
