"""Rules: where a head of each role would look, as rows of weights that tokens alone decide.

A role says what a head looks at; put its rule in the head's place, and what is left of what the
head is worth says whether the name is what matters (``ablate --method rule``). A rule marks keys of
every query; marked keys share a row evenly, and a row without any rests on the sink: position 0
and special tokens. Users register others:

    import attnviz as av

    @av.rule("two-back")
    def two_back(text):
        return text.offset == 2

Notation in shapes: T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats
from attnviz.core.heads import Site
from attnviz.core.interface import interface
from attnviz.core.scores import HeadScores, UserDefined
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.scoring import plugins
from attnviz.scoring.axes import is_punctuation
from attnviz.scoring.block import LOCAL_WINDOW
from attnviz.scoring.plugins import Guarded, qualified_name
from attnviz.scoring.roles import role_name

Function = TypeVar("Function", bound=Callable[..., Any])
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RuleText:
    """What a rule sees of one text in one layer.

    Attributes:
        queries: the tokens of the rows.
        keys: the tokens of the columns; the same, but in cross-attention.
        allowed: bool [T, S], the keys that each query may attend to.
        site: the layer.
    """

    queries: Tokens
    keys: Tokens
    allowed: Flags
    site: Site

    @cached_property
    def offset(self) -> NDArray[np.int64]:
        """Int64 [T, S], how far back a key lies: 1 for the token before."""
        return np.subtract.outer(np.arange(len(self.queries)), np.arange(len(self.keys)))

    @cached_property
    def same(self) -> Flags:
        """Bool [T, S], whether query and key are one token, and none that a tokenizer added."""
        codes: dict[object, int] = {}
        rows, columns = (
            np.array([codes.setdefault(token, len(codes)) for token in tokens.identity])
            for tokens in (self.queries, self.keys)
        )
        return (rows[:, None] == columns) & ~np.array(self.keys.special, bool)

    @cached_property
    def sink(self) -> Flags:
        """Bool [S], the keys where attention rests: position 0 and special tokens."""
        flags = np.array(self.keys.special, bool)
        flags[0] = True
        return flags

    def of_keys(self, flags: list[bool] | tuple[bool, ...] | Flags) -> Flags:
        """Give the same keys to every query, bool [T, S]."""
        return np.broadcast_to(np.array(flags, bool), self.allowed.shape)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by its name."""

    name: str  # that of the role where it is one
    # of a :class:`RuleText`, marks or weights [T, S], none below 0
    function: Callable[[RuleText], Any]
    ordered: bool = True  # whether queries and keys must be one sequence
    user: str = ""  # the qualified name of a user's function; empty for attnviz's own

    def fits(self, site: Site) -> bool:
        """Whether it says anything about a layer."""
        return not self.ordered or site.kind != "cross"

    def rows(self, text: RuleText) -> Floats:
        """Return the weights of a text, float64 [T, S]; UsageError for what cannot be weights."""
        marked = self.function(text) if not self.user else self._called(text)
        marked = np.where(text.allowed, marked, 0.0)
        sink = np.where(text.allowed, text.sink, 0.0)
        lost = ~sink.any(-1, keepdims=True)
        sink = np.where(lost, text.allowed, sink)
        rows = np.where(marked.any(-1, keepdims=True), marked, sink)
        return rows / rows.sum(-1, keepdims=True).clip(np.finfo(float).tiny)

    def _called(self, text: RuleText) -> Floats:
        named, shape = f"rule {self.name!r} ({self.user})", text.allowed.shape
        marked = Guarded(self.function, named)(text, read=lambda got: np.asarray(got, np.float64))
        if marked.shape != shape or not np.isfinite(marked).all() or (marked < 0).any():
            fault = f"shape {list(marked.shape)}" if marked.shape != shape else "NaN, ∞ or below 0"
            raise UsageError(
                f"the {named} gives {fault} for {shape[0]} queries and {shape[1]} keys; it must "
                f"give weights or marks {list(shape)}"
            )
        return marked

    @property
    def mark(self) -> UserDefined:
        """As results say that it is no part of attnviz."""
        return UserDefined("rule", self.name, self.user)


def permuted(weights: Floats, allowed: Flags, seed: tuple[int, ...]) -> Floats:
    """Draw the positions of each row's weights anew among its allowed keys, float64 [T, S]."""
    draws = np.random.default_rng(seed).random(weights.shape)
    order = np.argsort(np.where(allowed, draws, np.inf), -1)  # allowed keys first
    largest = -np.sort(np.where(allowed, -weights, np.inf), -1)
    anew = np.zeros_like(weights)
    np.put_along_axis(anew, order, np.where(np.isfinite(largest), largest, 0.0), -1)
    return anew


def _last(marked: Flags) -> Flags:
    """Return the last of the keys that are marked in each row."""
    last = marked.shape[1] - 1 - np.argmax(marked[:, ::-1], -1)
    return marked & (np.arange(marked.shape[1]) == last[:, None])


def _copies(text: RuleText) -> Flags:
    """Earlier occurrences of the query's token."""
    return text.same & (text.offset > 0)


def _followers(text: RuleText) -> Flags:
    """Tokens right after an earlier occurrence of the query's token."""
    marked = np.zeros_like(text.allowed)
    marked[:, 1:] = _copies(text)[:, :-1]
    return marked & ~text.of_keys(text.keys.special)


_OWN = (
    Rule("previous", lambda text: text.offset == 1),
    Rule("next", lambda text: text.offset == -1),
    Rule("self", lambda text: text.offset == 0),
    Rule("first", lambda text: text.of_keys(np.arange(len(text.keys)) == 0), ordered=False),
    Rule("separator", lambda text: text.of_keys(text.keys.separators), ordered=False),
    Rule(
        "punctuation",
        lambda text: text.of_keys([is_punctuation(token) for token in text.keys.texts]),
        ordered=False,
    ),
    Rule("local", lambda text: abs(text.offset) <= LOCAL_WINDOW),
    Rule("duplicate", lambda text: _last(_copies(text))),
    Rule("duplicate-all", _copies),
    Rule("induction", lambda text: _last(_followers(text))),
    Rule("induction-all", _followers),
    Rule("diffuse", lambda text: text.allowed, ordered=False),
)

_REGISTERED = {entry.name: entry for entry in _OWN}

RULES: Mapping[str, Rule] = MappingProxyType(_REGISTERED)
"""Every rule by its name; roles that are none here have no rule of tokens."""


def named(name: str) -> Rule:
    """Find a rule by its name, its own or a role's other one; UsageError where there is none."""
    rule = RULES.get(name) or RULES.get(role_name(name))
    if rule is None:
        raise UsageError("no rule {!r}; choose one of {}", name[:40], ", ".join(RULES))
    return rule


def of_role(scores: HeadScores) -> str:
    """Return the rule of the first of a head's roles that has one; empty for a head without."""
    names = (role.name for role in scores.roles)
    return next(
        (name for name in names if name in RULES and RULES[name].fits(scores.head.site)), ""
    )


@interface
def rule(name: str) -> Callable[[Function], Function]:
    """Register a rule for ``ablate(method="rule:NAME")``; a decorator.

    The function gets the :class:`attnviz.RuleText` of one text and layer, with its tokens and the
    keys that each query may attend to, and marks keys, bool [T, S], or gives weights, none below 0.
    Keys that a query may not attend to get none, rows are scaled to sum to 1, and a row without
    any rests on the sink.

    Args:
        name: as ``method=`` and ``--method`` take it, behind ``rule:``; that of a role of one's own
            makes it the rule of heads that show it.

    Raises:
        UsageError: a name that is taken, or a function that fails on a short text.
    """

    def registered(function: Function) -> Function:
        qualified = qualified_name(function)
        existing = _REGISTERED.get(name)
        if not name.replace("-", "_").isidentifier():
            raise UsageError(f"{name[:40]!r} is no name; call the rule {qualified} otherwise")
        if existing is not None and existing.user != qualified:
            owner = existing.user or "attnviz's own"
            raise UsageError(
                f"there is a rule {name!r} already, {owner}; call that of {qualified} otherwise"
            )
        entry = Rule(name, function, ordered=False, user=qualified)
        tokens = Tokens(tuple("abcab"), tuple(range(5)))
        entry.rows(RuleText(tokens, tokens, np.tri(5, dtype=bool), Site("decoder", 0)))
        _REGISTERED[name] = entry
        plugins.remember(function)
        return function

    return registered
