"""Scores and roles of users: functions that are registered beside attnviz's own.

    import attnviz as av

    @av.role("numbers", mean=0.3, lift=3.0, code="num", short="nu")
    @av.score("numbers", formula="sum of w[j] over tokens that are numbers", targets=True)
    def numbers(block):
        return block.on([text.strip().isdigit() for text in block.key_texts])

What is registered goes the way of attnviz's own scores, see :mod:`attnviz.scoring.scores`: the same
registry, sums, chance, intervals and drawings. See docs/plugins.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from attnviz.core import arrays
from attnviz.core.arrays import exact
from attnviz.core.heads import SiteKind
from attnviz.core.interface import interface
from attnviz.core.media import Space
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.scoring import plugins, roles, scores
from attnviz.scoring.axes import Axes
from attnviz.scoring.block import Block, Region, Uniform
from attnviz.scoring.plugins import Guarded, qualified_name
from attnviz.scoring.roles import SHOWN, Evidence, RoleDef
from attnviz.scoring.scores import EVERYWHERE, SCORES, ScoreDef, Unit
from attnviz.scoring.totals import Totals


@dataclass(frozen=True, eq=False)
class ScoreBlock:
    """Attention weights of some query rows of one text, and the tokens that they are between.

    A text comes in several blocks, and a block need not hold all keys: those that none of its rows
    may attend to are left out at both ends. So a position is found by ``positions`` and
    ``key_positions``, never by a row's or a column's number.

    Attributes:
        weights: [H, r, s], float32 or float64; rows sum to 1, or to less where part went to a
            learned sink that is no key, or to 0 where a row has no key. Not to be changed. For the
            chance of a score they are those of uniform attention over the allowed keys; H is 1
            where all heads share a mask.
        allowed: bool [H or 1, r, s], the keys that each query may attend to.
        start: position of the first query row in its text, from 0.
        key_start: position of the first key.
        queries: all tokens of the queries' sequence, with ids, special tokens, words and spans.
        keys: all tokens of the keys' sequence; the same as ``queries`` but for cross-attention.
    """

    weights: Tensor
    allowed: Tensor
    start: int
    key_start: int
    queries: Tokens
    keys: Tokens

    @cached_property
    def positions(self) -> Tensor:
        """Int64 [r], the positions of the query rows."""
        rows = self.weights.shape[1]
        return torch.arange(self.start, self.start + rows, device=self.weights.device)

    @cached_property
    def key_positions(self) -> Tensor:
        """Int64 [s], the positions of the keys."""
        count = self.weights.shape[2]
        return torch.arange(self.key_start, self.key_start + count, device=self.weights.device)

    @property
    def query_texts(self) -> tuple[str, ...]:
        """The readable texts of the r query tokens, as ``" keys"`` or ``"##ing"``."""
        return self.queries.texts[self.start : self.start + self.weights.shape[1]]

    @property
    def key_texts(self) -> tuple[str, ...]:
        """The readable texts of the s key tokens."""
        return self.keys.texts[self.key_start : self.key_start + self.weights.shape[2]]

    def on(self, targets: Tensor | Sequence[bool]) -> Tensor:
        """[H, r], the weight on some keys.

        Args:
            targets: bool [s], or [r, s] where they differ from row to row.
        """
        mask = torch.as_tensor(targets, dtype=torch.bool, device=self.weights.device)
        return (self.weights * mask).sum(-1)


@dataclass(frozen=True, slots=True)
class UserCall:
    """A user's function of a block of one text, guarded: a score, its chance or its rows."""

    guarded: plugins.Guarded  # the function, with what messages call it
    shared: bool = False  # whether one value a row may stand for all heads

    def __call__(self, block: Block) -> Tensor:
        """[B, H, r], the values of a block of several texts; 0 after the end of a text."""
        values = torch.zeros_like(arrays.to_torch(block.weights[..., 0]))
        for item, text in texts_of(block):
            heads, rows, _ = text.weights.shape
            value = self._values(text, torch.Size((heads, rows)))
            values[item, :, :rows] = value.to(values.dtype)
        return arrays.converted(values, block.weights)

    def leave_out(self, region: Region) -> Tensor:
        """Bool [B, r], the rows that a score leaves out: not those the function takes."""
        block = Uniform(region)
        items, _, rows, _ = block.weights.shape
        device = arrays.to_torch(block.weights).device
        omitted = torch.ones(items, rows, dtype=torch.bool, device=device)
        for item, text in texts_of(block):
            count = text.weights.shape[1]
            omitted[item, :count] = ~self._values(text, torch.Size((count,))).bool()
        return arrays.converted(omitted, block.weights)

    def _values(self, block: ScoreBlock, shape: torch.Size) -> Tensor:
        """Give the function's values for a block, in that shape; UsageError for any other."""
        sizes = list(block.weights.shape)

        def read(value: Any) -> tuple[Tensor, Tensor]:
            tensor = torch.as_tensor(value, device=block.weights.device)
            return tensor, tensor.detach().expand(shape)

        value, values = self.guarded(
            block, context=f", given a block of {sizes} weights,", read=read
        )
        if value.ndim not in (0, len(shape)) and not self.shared:
            raise UsageError(
                f"the {self.guarded.named} gives values of shape {list(value.shape)} for a block "
                f"of {sizes} weights; it must give {list(shape)}"
            )
        return values


def texts_of(block: Block) -> Iterator[tuple[int, ScoreBlock]]:
    """Yield the texts of a block, each without padding, with its place in the batch."""
    region = block.region
    allowed = region.allowed if region.allowed.shape[1] == 1 else region.allowed[:, block.heads]
    weights, allowed = arrays.to_torch(block.weights), arrays.to_torch(allowed)
    first = region.items.start or 0
    for item in range(len(block.weights)):
        length, width = region.axes.lengths[first + item]
        rows = min(region.rows, length - region.start)
        keys = min(region.keys, width - region.key_start)
        if rows > 0 and keys > 0:
            sides = region.axes.sides[first + item]
            yield (
                item,
                ScoreBlock(
                    weights[item, :, :rows, :keys],
                    allowed[item, :, :rows, :keys],
                    region.start,
                    region.key_start,
                    sides.queries,
                    sides.keys,
                ),
            )


_TEXT = "The keys to the 12 cabinets are on the table , and the keys to the 7 doors are not ."
_WORDS = tuple(_TEXT.split(" "))
_HEADS, _WINDOW = 3, 6
_BLOCKS = (64, 7, 1)  # rows of a block: all of them, some, one
_NEAR = 1e-5  # values of one row that differ by more, relatively, are not the same


def check(score: ScoreDef, named: str) -> None:
    """Try a score on random rows."""
    kinds: tuple[SiteKind, ...] = ("cross",) if score.crossed else ("decoder", "encoder", "cross")
    for kind in kinds:
        if kind == "cross" and score.ordered:
            continue
        for window in (None, _WINDOW) if kind == "decoder" else (None,):
            complete, *parts = (_values(score, named, kind, window, step) for step in _BLOCKS)
            for step, part in zip(_BLOCKS[1:], parts, strict=True):
                _check_same(named, complete, part, f"blocks of {step} row{'s' * (step > 1)}")
            single = _values(score, named, kind, window, _BLOCKS[0], one_head=True)
            _check_same(named, complete, single, "one head at a time")


def _check_values(score: ScoreDef, named: str, values: Tensor, context: str) -> None:
    """Check that what counts is finite and in the range of its unit."""
    limit = 1.0 if score.unit == "share" else math.inf
    wrong = ~values.isfinite() | (values < -_NEAR) | (values > limit + _NEAR)
    if wrong.any():
        bounds = "between 0 and 1" if score.unit == "share" else "finite, and 0 or more"
        raise UsageError(
            f"the {named} gives {float(values[wrong][0]):g} {context}; a score in {score.unit} is "
            f"{bounds} on every row that counts: leave other rows out by rows="
        )


def _check_same(named: str, expected: Tensor, values: Tensor, manner: str) -> None:
    """Check that the rows have the same values however they come."""
    equal = (expected - values).abs() <= _NEAR * (1 + expected.abs())
    equal |= (expected == values) | (expected.isnan() & values.isnan())
    if equal.all():
        return
    head, row = (~equal).nonzero()[0].tolist()
    raise UsageError(
        f"the {named} depends on the block that a row comes in: row {row} of head {head} has "
        f"{float(expected[head, row]):.4g} where all rows come at once and "
        f"{float(values[head, row]):.4g} in {manner}; find places by block.positions and "
        "block.key_positions, and let a row depend on no other"
    )


def _values(
    score: ScoreDef,
    named: str,
    kind: SiteKind,
    window: int | None,
    step: int,
    *,
    one_head: bool = False,
) -> Tensor:
    """Return the score of every row, float64 [H, T]; those that count are checked."""
    rows: dict[int, list[Tensor]] = {}
    for block in _blocks(kind, window, step, one_head=one_head):
        original = block.weights.clone()
        assert score.function is not None
        result = score.function(block)
        values, defined, _ = Totals([score], 1, block.weights.shape[1]).measured(block)
        if not torch.equal(original, block.weights):
            raise UsageError(f"the {named} changes the weights of its block; let it take a copy")
        _check_values(score, named, values[defined], "for a row")
        expected = block.region.expected
        assert expected is not None
        chances = expected.chances[expected.possible & block.region.countable[:, :, None]]
        _check_values(score, named, chances, "as chance")
        rows.setdefault(block.region.start, []).append(result[0])
    return exact(torch.cat([torch.cat(parts) for _, parts in sorted(rows.items())], 1))


def _blocks(kind: SiteKind, window: int | None, step: int, *, one_head: bool) -> Iterator[Block]:
    """Random attention, as it would come by; always the same."""
    tokens = Tokens(
        tuple(f" {word}" for word in _WORDS),
        tuple(sorted(set(_WORDS)).index(word) + 5 for word in _WORDS),
        special=tuple(n == 0 for n in range(len(_WORDS))),
    )
    length = len(tokens)
    keys = (
        Tokens(tokens.texts[: length - 5], tokens.ids[: length - 5]) if kind == "cross" else tokens
    )
    allowed = torch.ones(length, len(keys), dtype=torch.bool)
    if kind == "decoder":
        allowed = allowed.tril()
    if window is not None:
        allowed &= allowed.triu(1 - window)
    draws = torch.randn(_HEADS, length, len(keys), generator=torch.Generator().manual_seed(0))
    weights = (2 * draws).masked_fill(~allowed, -math.inf).softmax(-1)
    axes = Axes([Sides(tokens, keys)], kind, weights)
    groups = [slice(h, h + 1) for h in range(_HEADS)] if one_head else [slice(0, _HEADS)]
    for heads in groups:
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            reached = allowed[rows].any(0).nonzero().flatten()
            columns = slice(int(reached[0]), int(reached[-1]) + 1)
            part = weights[None, heads, rows, columns].clone()
            region = Region(
                axes, slice(0, 1), start, columns.start, allowed[None, None, rows, columns],
                torch.empty(part.numel()),
            )  # fmt: skip
            yield Block(part, region)


Function = TypeVar("Function", bound=Callable[..., Any])

COLORS = ("#440066", "#aa8800", "#882244", "#aa44aa", "#666666", "#66aa66")
"""Of users' roles in turn, as far from those of attnviz's own as is left."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_RESERVED = ("layer", "role", "score")  # orders of a table, which a score of that name would hide


@interface
def score(
    name: str,
    *,
    formula: str = "",
    unit: Unit = "share",
    targets: bool = False,
    chance: float | Callable[[ScoreBlock], Any] | None = None,
    rows: Callable[[ScoreBlock], Any] | None = None,
    cross: bool = False,
    spaces: Sequence[Space] = ("text",),
    source: str = "",
) -> Callable[[Function], Function]:
    """Register a score of one's own; a decorator of a function of a :class:`ScoreBlock`.

    The function gives [H, r]: a value for every head and query row of a block. A score is a mean
    over rows, so a row's value may depend on its own weights, the tokens and positions alone: not
    on which rows or heads come in the same block, how many there are, or what was called before.
    It must be finite, and in the range of its unit, on every row that counts. When it is registered
    it is tried on random rows in blocks of several sizes; run it again in a notebook, and the new
    function takes the place of the old.

    Args:
        name: as in tables and JSON: small letters, digits and underscores.
        formula: per row, in words or symbols; shown with the score.
        unit: ``"share"`` (0 to 1), or ``"bits"`` or ``"tokens"`` (0 or more).
        targets: whether it is the share of the weight on some keys. A row then counts only where
            uniform attention puts some of its weight on these but not all, and what roles of the
            user look at is compared with it.
        chance: what a head that attends uniformly has: a number, or a function of the same block
            that gives [r] or [H or 1, r]; by default the score itself, of uniform attention over
            the allowed keys.
        rows: a function of a block that gives bool [r]: the rows on which the score is defined. Of
            these, rows of special tokens, or with fewer than two keys to choose from, never count.
        cross: whether it means something in cross-attention too.
        spaces: kinds of keys among which it does: ``"text"``, ``"patches"``, ``"frames"``.
        source: where the definition comes from, for the page.

    Raises:
        UsageError: a name that is taken, or a function that cannot be added up; it is named.
    """

    def registered(function: Function) -> Function:
        qualified = qualified_name(function)
        _check_name("score", name, qualified, SCORES)
        if name in _RESERVED or (name in SHOWN and not SHOWN[name].user):
            raise UsageError(f"a score cannot be called {name!r}; that name means something else")
        if wrong := [space for space in spaces if space not in EVERYWHERE]:
            raise UsageError(f"no {wrong[0]!r} in spaces; choose of {', '.join(EVERYWHERE)}")
        named = f"score {name!r} ({qualified})"
        definition = ScoreDef(
            name,
            UserCall(Guarded(function, named)),
            formula,
            source or qualified,
            unit,
            targets,
            ordered=not cross,
            unless=None if rows is None else UserCall(Guarded(rows, f"rows of {named}")).leave_out,
            spaces=tuple(spaces),
            chance=None if chance is None else _chance(chance, named),
            user=qualified,
        )
        check(definition, named)
        scores.register(definition)
        plugins.remember(function)
        return function

    return registered


@interface
def role(
    name: str,
    *,
    score: str | None = None,
    mean: float,
    lift: float = 2.0,
    code: str | None = None,
    short: str | None = None,
    color: str | None = None,
    reason: str = "",
    source: str = "",
    rests: bool = False,
    unless: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Register a role of one's own: what a head is called whose score reaches a mean and a lift.

    A decorator, either of a function that :func:`score` has registered, or, with ``score=``, of a
    function of all scores of a head by name, which says whether the role holds beside the evidence:

        @av.role("sharp_previous", score="previous", mean=0.5, code="shrp", short="sh")
        def sharp(scores):
            return scores["entropy"].mean < 0.5

    The evidence is judged as that of attnviz's own roles: over several texts a head shows it where
    the score surely reaches both, in one family with all other roles (so that more roles ask for
    more evidence of each). What the function says is about means, and has no interval.

    Args:
        name: as in tables and JSON.
        score: whose evidence it is, where it is not that of the function.
        mean: that the score must reach, and ``lift`` how many times chance.
        lift: see ``mean``.
        code: up to four letters on tiles; by default those the name begins with.
        short: two letters for small tiles.
        color: of tiles, ``"#rrggbb"``; by default one of :data:`COLORS`.
        reason: why these bounds, for the page.
        source: where the role is described.
        rests: whether it is a place where attention rests, not a thing that a head does.
        unless: roles that already say as much: with one of these, this one is left out.

    Raises:
        UsageError: a name, code or colour that is taken or makes no sense, or no such score.
    """

    def registered(function: Function) -> Function:
        qualified = qualified_name(function)
        _check_name("role", name, qualified, SHOWN)
        names = [score.name for score in SCORES.values() if _is(score.function, function)]
        evidence = score or (names[0] if names else None)
        if evidence is None:
            raise UsageError(
                f"the role {name!r} ({qualified}) needs a score: decorate a function that av.score "
                "has registered, or name one by score="
            )
        if evidence not in SCORES:
            raise UsageError(f"no score is called {evidence!r}; choose {', '.join(SCORES)}")
        if SCORES[evidence].unit != "share":
            raise UsageError(f"a role needs a score between 0 and 1; {evidence} is in "
                             f"{SCORES[evidence].unit}")  # fmt: skip
        if not 0 < mean <= 1 or lift < 0:
            raise UsageError(f"a role needs a mean above 0 and up to 1 and a lift of 0 or more, "
                             f"not {mean:g} and {lift:g}")  # fmt: skip
        if wrong := [name for name in unless if name not in SHOWN]:
            raise UsageError(f"no role is called {wrong[0]!r}; choose {', '.join(SHOWN)}")
        condition = (
            None if score is None else Guarded(function, f"role {name!r} ({qualified})").holds
        )
        letters = _letters(name, code, 4), _letters(name, short, 2)
        roles.register(
            RoleDef(
                name,
                _color(name, color),
                *letters,
                (Evidence(evidence, float(mean), float(lift)),),
                reason or f"the score {evidence} reaches {mean:g} and {lift:g} times chance",
                source or qualified,
                rests=rests,
                unless=tuple(unless),
                condition=condition,
                user=qualified,
            )
        )
        plugins.remember(function)
        return function

    return registered


def _chance(chance: float | Callable[[ScoreBlock], Any], named: str) -> Callable[[Block], Any]:
    """Return what gives the chance [B, A, r]: a function's, or a number for every row."""
    if callable(chance):
        return UserCall(Guarded(chance, f"chance of {named}"), shared=True)
    return lambda block: block.xp.full_like(block.weights[..., 0], float(chance))


def _is(registered: object, function: object) -> bool:
    return isinstance(registered, UserCall) and registered.guarded.function is function


def _check_name(kind: str, name: str, qualified: str, registered: Mapping[str, Any]) -> None:
    """Refuse what is no name, or belongs to somebody else."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:40]!r} is no name of a {kind} ({qualified}); use small letters, digits and _"
        )
    existing = registered.get(name)
    if existing is not None and existing.user != qualified:
        owner = f"by {existing.user}" if existing.user else "in attnviz"
        raise UsageError(f"there is a {kind} {name!r} {owner} already; call that of {qualified} "
                         "otherwise")  # fmt: skip


def _letters(name: str, code: str | None, limit: int) -> str:
    """Return the code of a role that no other has."""
    used = {(role.code, role.short)[limit == 2] for role in SHOWN.values() if role.name != name}
    if code is not None:
        if not (code.isalnum() and len(code) <= limit) or code in used:
            raise UsageError(f"{code[:20]!r} is no code for the role {name!r}: take up to {limit} "
                             f"letters, not {', '.join(sorted(used))}")  # fmt: skip
        return code
    plain = name.replace("_", "")
    choices = [plain[:limit], *(plain[0] + letter for letter in plain[1:] + "123456789")]
    return next(letter for letter in choices if letter not in used)


def _color(name: str, color: str | None) -> str:
    if color is not None:
        if not _COLOR.fullmatch(color):
            raise UsageError(f"{color[:20]!r} is no colour for the role {name!r}; write #rrggbb")
        return color.lower()
    if name in SHOWN:
        return SHOWN[name].color
    used = [role.color for role in SHOWN.values() if role.user]
    return next((c for c in COLORS if c not in used), COLORS[len(used) % len(COLORS)])
