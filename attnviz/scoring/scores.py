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


def previous(block: Block) -> Array:
    """Return the weight on the token before."""
    return block.near[..., LOCAL_WINDOW - 1]


def following(block: Block) -> Array:
    """Return the weight on the token after."""
    return block.near[..., LOCAL_WINDOW + 1]


def itself(block: Block) -> Array:
    """Return the weight on the token itself."""
    return block.near[..., LOCAL_WINDOW]


def local(block: Block) -> Array:
    """Return the weight within the window around the token, itself included."""
    return block.around


def first(block: Block) -> Array:
    """Return the weight on position 0."""
    return block.first


def separator(block: Block) -> Array:
    """Return the weight on tokens that end a segment."""
    return block.separator


def punctuation(block: Block) -> Array:
    """Return the weight on punctuation."""
    return block.punctuation


def duplicate(block: Block) -> Array:
    """Return the weight on earlier occurrences of the same token."""
    return block.on(block.region.duplicate)


def induction(block: Block) -> Array:
    """Return the weight on tokens right after an earlier occurrence of the same token."""
    return block.on(block.region.induction)


def entropy(block: Block) -> Array:
    """How spread the weights are, in bits."""
    return block.entropy


def entropy_share(block: Block) -> Array:
    """Entropy over its maximum, the logarithm of the number of allowed keys."""
    return block.entropy / block.xp.log2(block.choices)


def distance(block: Block) -> Array:
    """Return the mean distance between query and key: in tokens, patches or seconds."""
    return block.distance


def registers(block: Block) -> Array:
    """Return the weight on register tokens."""
    return block.registers


def diagonal(block: Block) -> Array:
    """How surely a key comes after those of earlier rows, times the weight off the sink."""
    return block.forward * (1 - block.sink)


def top(block: Block) -> Array:
    """Return the largest weight."""
    return block.top


def gate(block: Block) -> Array:
    """How far the gate on the head's output is open."""
    return block.gate


def _near_start(region: Region) -> Array:
    """Rows for which position 0 is the token itself or the one before."""
    return (region.positions < 2) & region.axes.ordered


def _nothing_before(region: Region) -> Array:
    """Rows before which no row counts."""
    return ~region.queries(region.axes.follows)


def _separators(region: Region) -> Array:
    return region.queries(region.axes.is_separator)


def _marks(region: Region) -> Array:
    return region.queries(region.axes.is_punctuation)


_ENTRIES = (
    ScoreDef("previous", previous, "w[i-1]; i-1 is not in the sink", VOITA, spaces=IN_ORDER),
    ScoreDef("next", following, "w[i+1]; i+1 is not in the sink", VOITA, spaces=IN_ORDER),
    ScoreDef("self", itself, "w[i]; i is not in the sink", CLARK),
    ScoreDef(
        "first",
        first,
        "w[0]; rows i >= 2 (all rows of cross-attention)",
        XIAO,
        ordered=False,
        asks_sink=True,
        unless=_near_start,
    ),
    ScoreDef(
        "separator",
        separator,
        "sum of w[j] over separators j > 0; rows that are no separator",
        CLARK,
        ordered=False,
        asks_sink=True,
        unless=_separators,
        spaces=TEXT,
    ),
    ScoreDef(
        "punctuation",
        punctuation,
        "sum of w[j] over punctuation j outside the sink; rows that are no punctuation",
        CLARK,
        ordered=False,
        unless=_marks,
        spaces=TEXT,
    ),
    ScoreDef(
        "local",
        local,
        f"sum of w[j] over |i-j| <= {LOCAL_WINDOW}, j outside the sink; of patches, over rows and "
        f"columns within {LOCAL_WINDOW}",
        VOITA,
    ),
    ScoreDef(
        "duplicate",
        duplicate,
        "sum of w[j] over j <= i-2 outside the sink with token[j] = token[i]",
        WANG,
        spaces=TEXT,
    ),
    ScoreDef(
        "duplicate_no_sink",
        duplicate,
        f"duplicate / (1 - w on the sink); rows that leave {SINK_REST:g} off the sink",
        WANG,
        off_sink=True,
        spaces=TEXT,
    ),
    ScoreDef(
        "induction",
        induction,
        "sum of w[j] over j <= i-2 outside the sink with token[j-1] = token[i]",
        OLSSON,
        spaces=TEXT,
    ),
    ScoreDef(
        "induction_no_sink",
        induction,
        f"induction / (1 - w on the sink); rows that leave {SINK_REST:g} off the sink",
        OLSSON,
        off_sink=True,
        spaces=TEXT,
    ),
    ScoreDef(
        "registers",
        registers,
        "sum of w[j] over register tokens",
        DARCET,
        ordered=False,
        asks_sink=True,
        spaces=("patches",),
    ),
    ScoreDef("entropy", entropy, "-sum of w[j] log2 w[j]", CLARK, "bits", False, False),
    ScoreDef(
        "entropy_share",
        entropy_share,
        "entropy / log2(number of allowed keys)",
        CLARK,
        "share",
        False,
        False,
    ),
    ScoreDef(
        "distance",
        distance,
        "sum of w[j] |i-j|; of patches and frames, the mean distance to the keys that have a "
        "place, in patches or seconds",
        VOITA,
        "tokens",
        False,
    ),
    ScoreDef(
        "diagonal",
        diagonal,
        "the chance that a key drawn from w off the sink comes after one drawn from an earlier "
        "row, ties counted half",
        KENDALL,
        "share",
        False,
        False,
        off_sink=True,
        unless=_nothing_before,
        crossed=True,
    ),
    ScoreDef("top", top, "max of w[j]", VOITA, "share", False, False),
    ScoreDef(
        "gate",
        gate,
        "mean over the head's channels of the gate on its output",
        QIU,
        "share",
        False,
        False,
        gated=True,
    ),
    ScoreDef(
        SINK,
        None,
        "w[s], s the key with the most weight in all; all rows that may attend to s",
        GU,
        "share",
        False,
        False,
    ),
)

_REGISTERED = {entry.name: entry for entry in _ENTRIES}

SCORES: Mapping[str, ScoreDef] = MappingProxyType(_REGISTERED)
"""Every score by its name, in the order of tables; users' own behind attnviz's."""


def register(score: ScoreDef) -> None:
    """Add a score, or put it in the place of one of the same name."""
    _REGISTERED[score.name] = score


def forget(name: str) -> None:
    """Take a user's score out again."""
    if name in _REGISTERED and _REGISTERED[name].user:
        del _REGISTERED[name]
