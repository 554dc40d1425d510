"""Gaze: the weight that text gives to a region of a picture, against the region's share of it.

Of the rows of some text that may attend to a picture, with weights α, the gaze of a head at a box
is

    Σ_rows Σ_{j in box} α_ij / Σ_rows Σ_{j in picture} α_ij,

the part on the box of the weight that reaches the picture. Its chance is the box's part of the
picture's tokens that these rows may attend to. How much reaches the picture stands beside it. From
five pictures on it has an interval over pictures, of a ratio of sums: words of a text, and texts
about one picture, are not independent of each other. Heads
that track the region being described are the gaze heads of Gandikota & Bau 2026, arXiv:2606.14703,
who score them by a correlation over passes about several regions; this is one region's weight.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.core.heads import Layout
from attnviz.core.media import Picture
from attnviz.core.spans import Span
from attnviz.core.tokens import Tokens
from attnviz.features.spans.observe import SpanSums
from attnviz.features.spans.result import WORDS, Gaze, HeadGaze
from attnviz.statistics.ratios import ratios

Groups = list[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Looking:
    """Which rows look at which boxes.

    Attributes:
        boxes: names of spans that are boxes.
        texts: names of the other spans.
    """

    boxes: tuple[str, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, several: Sequence[Tokens]) -> Looking:
        """Of some texts with their spans."""
        spans = [span for tokens in several for span in tokens.spans]
        boxes = dict.fromkeys(span.name for span in spans if span.box is not None)
        others = dict.fromkeys(span.name for span in spans if span.name not in boxes)
        return cls(tuple(boxes), tuple(others))

    def rows(self, tokens: Tokens) -> Groups:
        """The words of a text, and each span of it, without any token of a picture."""
        if not self.boxes:
            return []
        seen = {place for place, at in enumerate(tokens.places) if at}
        words = [n for n in range(len(tokens)) if n not in seen and not tokens.special[n]]
        spans = {span.name: span.positions for span in tokens.spans}
        groups = [words, *(spans.get(name, ()) for name in self.texts)]
        return [tuple(place for place in group if place not in seen) for group in groups]

    def keys(self, tokens: Tokens, picture: Picture | None) -> Groups:
        """Of every box its tokens, and those of the picture that it is in."""
        spans = {span.name: span for span in tokens.spans}
        return [group for name in self.boxes for group in _both(spans.get(name), tokens, picture)]

    def gazes(
        self, texts: Sequence[SpanSums], groups: Sequence[str], layout: Layout
    ) -> tuple[Gaze, ...]:
        """What every head gives to each box, from sums over :meth:`rows` and :meth:`keys`."""
        return tuple(self._gazes(texts, groups, layout)) if self.boxes else ()

    def _gazes(
        self, texts: Sequence[SpanSums], groups: Sequence[str], layout: Layout
    ) -> Iterator[Gaze]:
        values, chances, rows = (
            np.sum([getattr(sums, name) for sums in texts], axis=0)
            for name in ("values", "chances", "rows")
        )  # [N, 1 + texts, 2 * boxes]
        for number, box in enumerate(self.boxes):
            for source, name in enumerate((WORDS, *self.texts)):
                on_box, on_picture = 2 * number, 2 * number + 1
                count = rows[:, source, on_picture]
                if not count.any():
                    continue
                there, picture = (
                    np.stack([sums.values[:, source, place] for sums in texts])
                    for place in (on_box, on_picture)
                )  # [G, N]
                found = ratios(there, picture, groups, joint=False)
                ends = np.stack([found.low, found.high], 1).clip(0, 1)  # [N, 2]
                yield Gaze(
                    box,
                    name,
                    int(count.max()),
                    tuple(
                        _of_head(
                            values[n, source, on_box : on_picture + 1],
                            chances[n, source, on_box : on_picture + 1],
                            int(count[n]),
                            ends[n].tolist(),
                        )
                        for n in range(len(layout))
                    ),
                )


def pictured(picture: Picture | None) -> str:
    """What tells the picture of a text from others: texts about one picture belong together."""
    return "" if picture is None else hashlib.sha256(picture.pixels.tobytes()).hexdigest()


def _both(span: Span | None, tokens: Tokens, picture: Picture | None) -> Groups:
    """The tokens of a box, and those of its picture; none where a text lacks it."""
    if span is None or span.box is None:
        return [(), ()]
    crops = () if picture is None else picture.crops
    mine = [crop for crop in crops if crop.number == span.box.picture]
    own = [
        n
        for n, place in enumerate(tokens.places)
        if len(place) == 2 and (not mine or any(c.row <= place[0] < c.row + c.rows for c in mine))
    ]
    return [span.positions, own]


def _of_head(
    values: Sequence[float], chances: Sequence[float], rows: int, ends: Sequence[float]
) -> HeadGaze:
    """From sums on a box and on its picture, and the ends of the interval, NaN for none."""
    if not rows:
        return HeadGaze(None, None, None, None)
    box, picture = map(float, values)
    chance = float(chances[0] / chances[1])
    share = box / picture if picture > 0 else None
    return HeadGaze(
        share,
        chance,
        None if share is None or not chance else share / chance,
        picture / rows,
        *(None if np.isnan(end) else float(end) for end in ends),
    )
