"""Which heads are ablated together: ``5.1``, ``3.0+3.1``, ``layer:2``, ``role:induction``.

Grammar, after the one of :mod:`attnviz.scoring.select`::

    groups := item ("," item)*
    item   := selection                        every head that it means, alone
            | part ("+" part)+                 all that the parts mean, together
            | "layer:" [kind ":"] number       the heads of a layer, together
            | "role:" name                     the heads that show a role on the same texts
            | "all-but:" part ("+" part)*      all heads but those
    part   := selection without commas (a circuit's ``@file`` among them) | "layer:..." | "role:..."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.scores import HeadScores
from attnviz.errors import SelectionError
from attnviz.scoring.roles import ROLES, is_called, role_name
from attnviz.scoring.select import select

Roles = Callable[[str], Collection[Head]]
"""The heads that show a role; raises SelectionError for a role that does not exist."""

_LAYER = re.compile(r"(?:(?P<kind>[a-z]+):)?(?P<layer>[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Group:
    """Heads that are ablated together.

    Attributes:
        name: as it is shown, ``5.1``, ``3.0+3.1``, ``layer:2``.
        heads: in the order of the layout; never empty.
    """

    name: str
    heads: tuple[Head, ...]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The layers that it touches, in the order of the layout."""
        return tuple(dict.fromkeys(head.site for head in self.heads))


def every_head(layout: Layout) -> tuple[Group, ...]:
    """Every head alone."""
    return tuple(Group(layout.name(head), (head,)) for head in layout)


def read_groups(text: str, layout: Layout, roles: Roles) -> tuple[Group, ...]:
    """Read what is to be ablated."""
    groups: dict[tuple[Head, ...], Group] = {}
    for item in map(_compact, text.split(",")):
        for group in _item(item, layout, roles):
            groups.setdefault(group.heads, group)
    return tuple(groups.values())


def check_groups(text: str, layout: Layout, *, annotated: bool = False) -> None:
    """Refuse groups that cannot be, before it is measured which heads have which role."""

    def known(name: str) -> Collection[Head]:
        if not annotated:
            role_heads((), name)
        return tuple(layout)

    for item in map(_compact, text.split(",")):
        if "role:" not in item:
            _item(item, layout, known)
        else:
            for part in item.removeprefix("all-but:").split("+"):
                _part(part, layout, known)


def _compact(item: str) -> str:
    """Without blanks, but for those in names of files."""
    parts = (part.strip() for part in item.split("+"))
    return "+".join(part if "@" in part else re.sub(r"\s+", "", part) for part in parts)


def role_heads(scores: Iterable[HeadScores], name: str) -> tuple[Head, ...]:
    """The heads that show a role, by what was measured."""
    name = role_name(name)
    roles = [(head.head, role) for head in scores for role in head.roles]
    heads = dict.fromkeys(head for head, role in roles if is_called(role, name))
    if not heads and name not in ROLES:
        about = sorted({role.of for _, role in roles if role.of})
        raise SelectionError(f"unknown role {name!r}; choose one of {', '.join([*ROLES, *about])}")
    return tuple(heads)


def _item(item: str, layout: Layout, roles: Roles) -> Sequence[Group]:
    rest = item.removeprefix("all-but:")
    named = [_part(part, layout, roles) for part in rest.split("+")]
    chosen = frozenset(head for heads in named for head in heads)
    if rest != item:
        chosen = frozenset(layout) - chosen
        if not chosen:
            raise SelectionError(f"{item} leaves no head to ablate; name fewer")
    together = tuple(head for head in layout if head in chosen)
    if rest != item or "+" in rest or (":" in rest and rest.startswith(("layer:", "role:"))):
        return [Group(item, together)]
    return [Group(layout.name(head), (head,)) for head in together]


def _part(part: str, layout: Layout, roles: Roles) -> Collection[Head]:
    if part.startswith("role:"):
        name = part.removeprefix("role:")
        heads = roles(name)
        if not heads:
            raise SelectionError(f"no head shows the role {name} on these texts; see attnviz heads")
        return heads
    if not part.startswith("layer:"):
        return select(part, layout)
    match = _LAYER.fullmatch(part.removeprefix("layer:"))
    if match is None:
        raise SelectionError(f"cannot read {part!r} as a layer; write layer:2 or layer:dec:2")
    kind = f"{match['kind']}:" if match["kind"] else ""
    return select(f"{kind}{match['layer']}.*", layout)
