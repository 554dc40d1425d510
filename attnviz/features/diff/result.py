"""What differs between two runs, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import SourceInfo
from attnviz.core.result import Result
from attnviz.core.tokens import Sides
from attnviz.drawing.renderable import Renderable
from attnviz.features.diff import Alignment

OTHER_UNITS = ("entropy", "distance")
"""Scores in bits and in tokens, which do not compare with shares."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far apart a head's rows are: Jensen-Shannon distances, from 0 (the same) to 1.

    Attributes:
        mean: over the rows.
        largest: of any row; ``text`` and ``row`` say where, from 0, and ``token`` its query.
        rows: that were compared.
    """

    mean: float
    largest: float
    text: int
    row: int
    token: str
    rows: int


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure in both runs.

    Attributes:
        name: of the score; ``effect`` of an ablation.
        before: in the first; ``after`` in the second.
        after: see ``before``.
        change: the second less the first.
        low: of its own 95 % interval, paired over texts; None where texts cannot be paired or are
            too few; ``high`` likewise.
        high: the other end.
        typical: the change in the typical text: the median over texts.
        joint_low: of the interval of that, 95 % for all heads and scores together; None likewise;
            ``joint_high`` the other end.
        joint_high: see ``joint_low``.
        detectable: how far from 0 the typical change must be for that interval to leave out 0 in
            80 % of such samples; None likewise.
    """

    name: str
    before: float
    after: float
    change: float
    low: float | None = None
    high: float | None = None
    typical: float | None = None
    joint_low: float | None = None
    joint_high: float | None = None
    detectable: float | None = None

    @property
    def sure(self) -> bool:
        """Whether the joint interval leaves out zero."""
        low, high = self.joint_low, self.joint_high
        return low is not None and high is not None and (low > 0 or high < 0)


MOVING = ("maps", "writing", "need")
"""What of a head moves between two models: where it looks, what it writes, what it is worth."""
ADDED = "added"
"""‖ΔW‖ (Frobenius) of what an adapter adds to a head; ``added query`` and so on to one matrix."""


@dataclass(frozen=True, slots=True)
class Along:
    """Do the heads move to which an adapter adds much? Spearman's rank correlation over heads.

    Attributes:
        what: moved, one of :data:`MOVING`, by its size in the typical text.
        rho: the correlation.
        p: of one as strong where all heads change places; ``p_within`` where heads of a layer do,
            so that what layers share counts for nothing.
        p_within: see ``p``.
    """

    what: str
    rho: float
    p: float
    p_within: float


@dataclass(frozen=True, slots=True)
class HeadChange:
    """What differs for one head, or for one group of an ablation.

    Attributes:
        name: of the head or group.
        distance: of its maps; None where only reports were compared.
        changes: of its figures.
        gained: roles it has in the second run only; ``lost`` in the first only.
        lost: see ``gained``.
        moved: between two models over several texts: ``maps``, the mean distance of a text's rows;
            ``writing``, how much of what the head writes behind W_O changed, as a share of its size
            (both 0 before); ``need``, by how many nats more the loss rises where its mean takes its
            place. Of an adapter also what is ``added`` to its matrices; those of keys and values
            are its group's.
    """

    name: str
    distance: Distance | None
    changes: tuple[FigureChange, ...]
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    moved: tuple[FigureChange, ...] = ()

    def largest(self) -> float:
        """Measure the maps' mean distance; without maps the largest change of a share or effect."""
        if self.distance is not None:
            return self.distance.mean
        return max((abs(change.change) for change in self._shares), default=0.0)

    @property
    def compared(self) -> bool:
        """Whether anything that :meth:`largest` is of could be compared."""
        return self.distance is not None or bool(self._shares)

    @property
    def _shares(self) -> list[FigureChange]:
        return [change for change in self.changes if change.name not in OTHER_UNITS]


@dataclass(frozen=True, kw_only=True, repr=False)
class Diff(Renderable, Result):
    """What differs between two runs; the header is that of the first.

    Attributes:
        other: the model of the second run; ``other_identity`` what no other model shares with it.
        other_identity: see ``other``.
        before: what the first run was, in words; ``after`` the second.
        after: see ``before``.
        kind: what was compared: ``maps``, the file of an ``adapter`` with nothing, or the results
            of a command: ``heads``, ``profile`` ...
        heads: everything that both have, the largest difference first.
        align: how rows were matched; empty for reports.
        sides: the tokens of a single text in the first run, by kind of site; ``others`` in the
            second. Files have neither of them, and no maps.
        others: see ``sides``.
        first: of the first run, [T, S] by head, of a single text.
        maps: after less before, likewise.
        masked: keys that may not be attended to in either run, bool [T, S] by head, where there
            are some.
        along: how what an adapter adds to heads and what moves go together.
        elsewhere: tensors that the adapter changes and that are of no head.
    """

    schema: ClassVar[str] = "attnviz.diff/1"
    command: ClassVar[str] = "diff"

    other: SourceInfo
    other_identity: Mapping[str, Any] = field(default_factory=dict)
    before: str
    after: str
    kind: str
    heads: tuple[HeadChange, ...]
    align: Alignment | Literal[""] = ""
    along: tuple[Along, ...] = ()
    elsewhere: tuple[str, ...] = ()
    sides: Mapping[str, Sides] = field(default_factory=dict, compare=False)
    others: Mapping[str, Sides] = field(default_factory=dict, compare=False)
    first: Mapping[Head, NDArray[np.floating[Any]]] = field(default_factory=dict, compare=False)
    maps: Mapping[Head, NDArray[np.floating[Any]]] = field(default_factory=dict, compare=False)
    masked: Mapping[Head, NDArray[np.bool_]] = field(default_factory=dict, compare=False)

    @property
    def largest(self) -> float | None:
        """What a threshold is compared with: the largest :meth:`HeadChange.largest`.

        None where no head could be compared.
        """
        return max((head.largest() for head in self.heads if head.compared), default=None)

    @property
    def uncompared(self) -> tuple[str, ...]:
        """The heads that have nothing in both runs that could be compared."""
        return tuple(head.name for head in self.heads if not head.compared)

    def check_model(
        self, name: str, source: SourceInfo, layout: Layout, identity: Mapping[str, Any]
    ) -> None:
        """Refuse to stand beside what is of a model that is neither of the two."""
        second = self.other_identity and dict(self.other_identity) == dict(identity)
        if not (second and self.layout.heads == layout.heads):
            super().check_model(name, source, layout, identity)

    def __repr__(self) -> str:
        largest = ", ".join(f"{head.name} {head.largest():.3g}" for head in self.heads[:3])
        return f"<Diff {self.before} / {self.after}, {self.kind}: {largest}>"

    def _picture_png(self) -> bytes | None:
        return self.to_bytes("png") if self.kind == "maps" else None
