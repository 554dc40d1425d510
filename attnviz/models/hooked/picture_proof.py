"""Whether the tokens of pictures lie where they are said to, tried on the model itself.

Some models hand a fixed number of learned queries to the language model in place of patches. Such
tokens have no place, however well their number fits a grid. So a few patches of the pictures are
inverted, one after the other, and their own tokens have to be among those that move most. A tower
mixes patches, but each keeps most of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.models.hooked.picture_layout import GivenPicture, SeenCrop
from attnviz.models.hooked.picture_tiles import Pixels

_TRIED = 6  # patches, spread over the pictures
_AMONG = 16
"""A patch's token has to be in this part of its crop's tokens that move most: one in so many."""

Embed = Callable[[list[Pixels]], Tensor | None]
"""What the language model gets in place of text and pictures, [T, D]; None where it is hidden."""


def proved(
    given: Sequence[GivenPicture], crops: Sequence[SeenCrop], pieces: Sequence[int], embed: Embed
) -> bool:
    """Whether most of some patches move their own tokens."""
    pixels = [picture.pixels for picture in given]
    plain, held = embed(pixels), list[bool]()
    if plain is None:
        return False
    for crop, row, column in _spread(crops):
        number = crop.crop.number - 1
        changed = list(pixels)
        changed[number] = _inverted(pixels[number], crop.crop.patch(row, column))
        after = embed(changed)
        if after is None or after.shape != plain.shape:
            return False
        moved = (after - plain).abs().sum(-1)
        own = moved[[pieces[int(n)] for n in crop.order.flat]]
        mine = own[row * crop.crop.columns + column]
        held.append(bool(mine > 0) and int((own >= mine).sum()) <= max(1, len(own) // _AMONG))
    return 2 * sum(held) >= len(held)


def _spread(crops: Sequence[SeenCrop]) -> Iterator[tuple[SeenCrop, int, int]]:
    """Some patches of the larger crops, in turn."""
    fine = [seen for seen in crops if not seen.crop.whole]
    for number in range(_TRIED):
        seen = fine[number % len(fine)]
        place = int((number + 0.5) / _TRIED * seen.order.size)
        yield seen, *divmod(place, seen.crop.columns)


def _inverted(pixels: Pixels, box: tuple[float, float, float, float]) -> Pixels:
    """The same with the colours of a box inverted."""
    left, top, right, bottom = (max(0, round(edge)) for edge in box)
    changed = np.array(pixels)
    part = np.s_[top : max(bottom, top + 1), left : max(right, left + 1)]
    changed[part] = 255 - changed[part]
    # what is grey hardly changes when it is inverted
    changed[part] = np.where(abs(changed[part].astype(int) - 128) < 48, 255, changed[part])
    return changed


class _Stop(Exception):
    """Ends a pass once the language model was reached."""


@contextlib.contextmanager
def _reaching(body: nn.Module, length: int) -> Iterator[list[Tensor]]:
    """Keep the first ``inputs_embeds`` [1, length, D] of a part of a model; end the pass there."""
    reached: list[Tensor] = []

    def entering(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        embedded = kwargs.get("inputs_embeds")
        if isinstance(embedded, Tensor) and embedded.shape[:2] == (1, length):  # no tower's own
            reached.append(embedded.detach().float().cpu())
            raise _Stop

    with contextlib.ExitStack() as undo:
        for part in body.modules():
            if part is not body:
                undo.callback(part.register_forward_pre_hook(entering, with_kwargs=True).remove)
        yield reached


def embedded(body: nn.Module, length: int, run: Callable[[], Any]) -> Tensor | None:
    """What the language model inside ``body`` gets in a pass over so many tokens, [T, D].

    None where that is hidden.
    """
    with _reaching(body, length) as reached, torch.no_grad(), contextlib.suppress(_Stop):
        run()
    return reached[0][0] if reached else None
