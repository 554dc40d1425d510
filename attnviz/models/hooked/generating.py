"""What a model's own ``generate`` is given: which token to take, and whom to tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from attnviz.core.prompt import Generation
from attnviz.models.choice import Choice


class Drawn:
    """Lets ``generate`` take the tokens that we draw: they alone stay possible."""

    def __init__(self, generation: Generation) -> None:
        self._choose = Choice(generation)

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [1, V] that leave one token."""
        only = torch.full_like(scores, -torch.inf)
        only[0, self._choose(scores[0])] = 0
        return only


class TokenStreamer:
    """Hands tokens on as ``generate`` streams them, the prompt left out."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell, self._begun = tell, False

    def put(self, ids: Tensor) -> None:
        """What came first is the prompt, or the decoder's start."""
        if self._begun:
            self._tell(int(ids.reshape(-1)[-1]))
        self._begun = True

    def end(self) -> None:
        """Nothing comes after it."""


def stepwise(
    following: Callable[[Sequence[int]], Tensor],
    ids: Sequence[int],
    generation: Generation,
    ends: Collection[int],
    tell: Callable[[int], None],
) -> tuple[int, ...]:
    """What is written with a whole pass for each token, for a model that is changed meanwhile.

    ``following``: the logits [V] that follow some ids.
    """
    choose, new = Choice(generation), list[int]()
    while len(new) < generation.tokens and not (new and new[-1] in ends):
        new.append(choose(following((*ids, *new))))
        tell(new[-1])
    return tuple(new)
