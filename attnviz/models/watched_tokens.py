"""What the queries and keys of watched layers are called: tokens that were named, or numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnviz.core.heads import SiteKind
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models.recorded.arrays import joined, prefix, unspoken
from attnviz.models.recorded.reading import without_padding


def sides_of(
    sizes: Mapping[SiteKind, tuple[int, int]],
    extra: Mapping[SiteKind, tuple[str, ...]],
    before: Mapping[SiteKind, int],
    learned: set[SiteKind],
    tokens: Tokens | None,
    source: Tokens | None,
) -> dict[SiteKind, Sides]:
    """The tokens on both axes of every kind; numbers where nobody names them."""
    crosses = "cross" in sizes
    most = max(before.values())
    if source is not None and not crosses and most:  # the names of all keys
        if tokens is not None and len(source) == most:
            tokens = joined(source, tokens)
        elif tokens is None or len(tokens) + most != len(source):
            tokens = source
        else:
            tokens = joined(without_padding(source, np.arange(len(source)) < most), tokens)
        source = None
    if source is not None and not crosses:
        raise UsageError("only one sequence was attended to; leave out {source_tokens}",
                         source_tokens=...)  # fmt: skip
    sides: dict[SiteKind, Sides] = {}
    for kind, (queries, keys) in sizes.items():
        own = source if kind == "encoder" and len(sizes) > 1 else tokens
        other = source if kind == "cross" else own
        if kind == "cross" and own is not None and len(own) == queries + most:
            own = without_padding(own, np.arange(len(own)) >= most)
        named = "query " if kind in learned else ""
        rows = _fitting(own, queries, kind, "query", (), before[kind], named)
        columns = rows
        if kind == "cross" or extra[kind]:
            columns = _fitting(other, keys, kind, "key", extra[kind], before[kind])
        sides[kind] = Sides(rows, columns)
    return sides


def _fitting(
    tokens: Tokens | None,
    count: int,
    kind: str,
    what: str,
    extra: tuple[str, ...],
    before: int,
    named: str = "",
) -> Tokens:
    """Fit tokens to positions, extra keys and those of a prefix among them; numbers for none."""
    own = count - len(extra)
    if tokens is None:
        tokens = Tokens(tuple(f"{named}{n}" for n in range(own - before)))
    if before and len(tokens) == own - before:
        tokens = joined(unspoken(prefix(before)), tokens)
    if len(tokens) != own:
        raise InputError(
            "the {} layers have {} {} positions, and there are {} tokens; they must agree",
            kind,
            own,
            what,
            len(tokens),
        )
    return joined(tokens, unspoken(extra)) if extra else tokens
