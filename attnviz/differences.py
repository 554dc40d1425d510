"""What differs between two runs, head by head: frozen values that know their own JSON.

The schema is docs/diff.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from attnviz.records import Head, Layout, Sides, SourceInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = "attnviz.diff/1"

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
class Change:
    """A figure in both runs.

    Attributes:
        name: of the score; ``effect`` of an ablation.
        before: in the first; ``after`` in the second.
        after: see ``before``.
        change: the second less the first.
        low: of the 95 % interval of the paired difference over texts, None where texts cannot be
            paired or are fewer than two; ``high`` likewise.
        high: the other end.
    """

    name: str
    before: float
    after: float
    change: float
    low: float | None = None
    high: float | None = None

    @property
    def sure(self) -> bool:
        """Whether an interval leaves out zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, slots=True)
class HeadChange:
    """What differs for one head, or for one group of an ablation.

    Attributes:
        name: of the head or group.
        distance: of its maps; None where only reports were compared.
        changes: of its figures.
        gained: roles it has in the second run only; ``lost`` in the first only.
        lost: see ``gained``.
    """

    name: str
    distance: Distance | None
    changes: tuple[Change, ...]
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def largest(self) -> float:
        """The mean distance of the maps; without maps the largest change of a share or effect."""
        if self.distance is not None:
            return self.distance.mean
        sizes = (abs(one.change) for one in self.changes if one.name not in OTHER_UNITS)
        return max(sizes, default=0.0)


@dataclass(frozen=True)
class DiffReport:
    """What differs between two runs.

    Attributes:
        before: what the first run was, in words; ``after`` the second.
        after: see ``before``.
        kind: what was compared: ``maps``, or reports: ``heads``, ``profile``, ``ablate``.
        heads: everything that both have, the largest difference first.
        align: how rows were matched: ``token``, ``position`` or ``word``; empty for reports.
        texts: how many were compared.
        layout: of the heads, for maps.
        sources: the model of the first run and of the second, for maps.
        sides: the tokens of a single text in the first run, by kind of site; ``others`` in the
            second.
        others: see ``sides``.
        first: of the first run, [T, S] by head, of a single text.
        maps: after less before, likewise.
        notes: full sentences that the reader must not miss.
    """

    before: str
    after: str
    kind: str
    heads: tuple[HeadChange, ...]
    align: str = ""
    texts: int = 0
    layout: Layout | None = None
    sources: tuple[SourceInfo, ...] = ()
    sides: Mapping[str, Sides] = field(default_factory=dict)
    others: Mapping[str, Sides] = field(default_factory=dict)
    first: Mapping[Head, NDArray[np.floating[Any]]] = field(default_factory=dict)
    maps: Mapping[Head, NDArray[np.floating[Any]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def largest(self) -> float:
        """What a threshold is compared with: the largest :meth:`HeadChange.largest`."""
        return max((head.largest() for head in self.heads), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """As docs/diff.schema.json says."""
        return {
            "schema": SCHEMA,
            "before": self.before,
            "after": self.after,
            "kind": self.kind,
            "align": self.align or None,
            "texts": self.texts,
            "largest": self.largest,
            "heads": [
                {
                    "name": head.name,
                    "distance": None if head.distance is None else asdict(head.distance),
                    "changes": [asdict(change) for change in head.changes],
                    "gained": list(head.gained),
                    "lost": list(head.lost),
                }
                for head in self.heads
            ],
            "notes": [str(note) for note in self.notes],
        }
