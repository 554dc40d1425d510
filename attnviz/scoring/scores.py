"""The scores: what a head attends to, one pure function each, in one registry.

A score is a function of a :class:`~attnviz.scoring.block.Block` that gives a value for every item,
head and query row, [B, H, r]. Its chance is the same function of uniform attention over the allowed
keys. docs/roles.md is the same list for readers.

Four rules hold for all of them but ``sink``, which is defined as in Gu et al. 2024, so that nothing
flatters:

- A row counts only if its query is not a special token, has at least two keys to choose from, and
  got any weight at all.
- A row counts for a share of the weight only if uniform attention would put some of it, but not
  all of it, on the targets.
- The sink (position 0 and special tokens, where attention rests: Clark et al. 2019, Xiao et al.
  2023) is never a target, except for ``first`` and ``separator``, which ask for it.
- Scores about distance or earlier tokens say nothing about cross-attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from attnviz.core.arrays import Array
from attnviz.core.media import Space
from attnviz.core.scores import SINK
from attnviz.scoring.block import LOCAL_WINDOW, SINK_REST, Block, Region
from attnviz.scoring.roles import CLARK, DARCET, GU, KENDALL, OLSSON, QIU, VOITA, WANG, XIAO

Unit = Literal["share", "bits", "tokens"]

EVERYWHERE: tuple[Space, ...] = ("text", "patches", "frames")
IN_ORDER: tuple[Space, ...] = ("text", "frames")
TEXT: tuple[Space, ...] = ("text",)


@dataclass(frozen=True, slots=True)
class ScoreDef:
    """A score's entry in the registry."""

    name: str  # as in tables and JSON
    # values [B, H, r] of a block; None for ``sink``, which no single row has
    function: Callable[[Block], Array] | None
    formula: str  # per row i, with w the weights of its keys j
    source: str  # where the definition comes from
    unit: Unit = "share"  # ``share`` (0 to 1), ``bits`` or ``tokens``
    on_targets: bool = True  # whether it is the share of weight on some target keys
    # whether it needs queries and keys to be one sequence (not cross-attention)
    ordered: bool = True
    off_sink: bool = False  # whether it is a share of the weight that is not on the sink
    asks_sink: bool = False  # whether its targets are in the sink
    # rows [B, r] or [r] that do not count, for what they are themselves
    unless: Callable[[Region], Array] | None = None
    spaces: tuple[Space, ...] = EVERYWHERE  # the kinds of keys among which it means something
    crossed: bool = False  # whether it needs two sequences (cross-attention only)
    gated: bool = False  # whether it is of the gate on heads' outputs, which few models have
    # [B, A, r] of a block of uniform attention; by default what the function gives
    chance: Callable[[Block], Array] | None = None
    user: str = ""  # the qualified name of a user's function; empty for attnviz's own

    @property
    def comparable(self) -> bool:
        """Whether it is the weight on some target keys, as a share of all."""
        return self.on_targets and not self.off_sink

    def means_something(self, *, ordered: bool, space: Space, gated: bool = False) -> bool:
        """Whether it does, where queries and keys are one sequence or not, in a kind of keys."""
        fits = not self.crossed if ordered else not self.ordered
        return fits and space in self.spaces and (gated or not self.gated)


def _duplicate(block: Block) -> Array:
    """Return the weight on earlier occurrences of the same token."""
    return block.on(block.region.duplicate)


def _induction(block: Block) -> Array:
    """Return the weight on tokens right after an earlier occurrence of the same token."""
    return block.on(block.region.induction)


def _near_start(region: Region) -> Array:
    """Rows for which position 0 is the token itself or the one before."""
    return (region.positions < 2) & region.axes.ordered


_ENTRIES = (
    ScoreDef(
        "previous", lambda block: block.near[..., LOCAL_WINDOW - 1],
        "w[i-1]; i-1 is not in the sink", VOITA, spaces=IN_ORDER,
    ),
    ScoreDef(
        "next", lambda block: block.near[..., LOCAL_WINDOW + 1],
        "w[i+1]; i+1 is not in the sink", VOITA, spaces=IN_ORDER,
    ),
    ScoreDef(
        "self", lambda block: block.near[..., LOCAL_WINDOW], "w[i]; i is not in the sink", CLARK
    ),
    ScoreDef(
        "first", lambda block: block.first, "w[0]; rows i >= 2 (all rows of cross-attention)", XIAO,
        ordered=False, asks_sink=True, unless=_near_start,
    ),
    ScoreDef(
        "separator", lambda block: block.separator,
        "sum of w[j] over separators j > 0; rows that are no separator", CLARK, ordered=False,
        asks_sink=True, unless=lambda region: region.queries(region.axes.is_separator), spaces=TEXT,
    ),
    ScoreDef(
        "punctuation", lambda block: block.punctuation,
        "sum of w[j] over punctuation j outside the sink; rows that are no punctuation", CLARK,
        ordered=False, unless=lambda region: region.queries(region.axes.is_punctuation),
        spaces=TEXT,
    ),
    ScoreDef(
        "local", lambda block: block.around,
        f"sum of w[j] over |i-j| <= {LOCAL_WINDOW}, j outside the sink; of patches, over rows and "
        f"columns within {LOCAL_WINDOW}", VOITA,
    ),
    ScoreDef(
        "duplicate", _duplicate,
        "sum of w[j] over j <= i-2 outside the sink with token[j] = token[i]", WANG, spaces=TEXT,
    ),
    ScoreDef(
        "duplicate_no_sink", _duplicate,
        f"duplicate / (1 - w on the sink); rows that leave {SINK_REST:g} off the sink", WANG,
        off_sink=True, spaces=TEXT,
    ),
    ScoreDef(
        "induction", _induction,
        "sum of w[j] over j <= i-2 outside the sink with token[j-1] = token[i]", OLSSON,
        spaces=TEXT,
    ),
    ScoreDef(
        "induction_no_sink", _induction,
        f"induction / (1 - w on the sink); rows that leave {SINK_REST:g} off the sink", OLSSON,
        off_sink=True, spaces=TEXT,
    ),
    ScoreDef(
        "registers", lambda block: block.registers, "sum of w[j] over register tokens", DARCET,
        ordered=False, asks_sink=True, spaces=("patches",),
    ),
    ScoreDef(
        "entropy", lambda block: block.entropy, "-sum of w[j] log2 w[j]", CLARK, "bits", False,
        False,
    ),
    ScoreDef(
        "entropy_share", lambda block: block.entropy / block.xp.log2(block.choices),
        "entropy / log2(number of allowed keys)", CLARK, "share", False, False,
    ),
    ScoreDef(
        "distance", lambda block: block.distance,
        "sum of w[j] |i-j|; of patches and frames, the mean distance to the keys that have a "
        "place, in patches or seconds", VOITA, "tokens", False,
    ),
    ScoreDef(
        "diagonal", lambda block: block.forward * (1 - block.sink),
        "the chance that a key drawn from w off the sink comes after one drawn from an earlier "
        "row, ties counted half", KENDALL, "share", False, False, off_sink=True, crossed=True,
        unless=lambda region: ~region.queries(region.axes.follows),
    ),
    ScoreDef("top", lambda block: block.top, "max of w[j]", VOITA, "share", False, False),
    ScoreDef(
        "gate", lambda block: block.gate, "mean over the head's channels of the gate on its output",
        QIU, "share", False, False, gated=True,
    ),
    ScoreDef(
        SINK, None, "w[s], s the key with the most weight in all; all rows that may attend to s",
        GU, "share", False, False,
    ),
)  # fmt: skip

_REGISTERED = {entry.name: entry for entry in _ENTRIES}

SCORES: Mapping[str, ScoreDef] = MappingProxyType(_REGISTERED)
"""Every score by its name, in the order of tables; users' own behind attnviz's."""


def register(score: ScoreDef) -> None:
    """Add a score, or put it in the place of one of the same name."""
    _REGISTERED[score.name] = score
