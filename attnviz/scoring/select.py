"""The one reader of head selections such as ``4.11``, ``L4H11``, ``0-3.*`` and ``cross:*.3``.

Grammar, case-insensitive, spaces ignored::

    selection := item ("," item)*
    item      := "@" file      the circuit of attnviz patch; its name ends at a comma, + or an arrow
    item      := "all"
    item      := [kind ":"] layers "." heads  |  [kind ":"] "L" layers "H" heads
    layers, heads := number | number "-" number | "*"
    kind      := "enc" | "dec" | "cross"          ("encoder" and "decoder" work too)

Numbers count from 0 and ranges include both ends. A number that is written down must exist; ``*``
takes what there is. Without a kind an item means every kind of site that has it, so on an
encoder-decoder model ``4.11`` is up to three heads and ``cross:4.11`` is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from attnviz.core.heads import SITE_PREFIX, Head, Layout, Site, SiteKind
from attnviz.core.record import parsed
from attnviz.core.scores import HeadScores
from attnviz.errors import InputError, SelectionError, system_errors
from attnviz.files import contents
from attnviz.scoring.roles import ROLES, is_called, role_name

_FORMS = "write 4.11, L4H11, 5.*, *.3, 0-3.*, all or a list of these with commas"
_RENAME = "a name ends at a comma, + or ->: rename the file or its folder"
_SPAN = r"\*|[0-9]{1,9}(?:-[0-9]{1,9})?"
_ITEM = re.compile(
    rf"(?:(?P<kind>[a-z]+):)?(?:(?P<l>{_SPAN})\.(?P<h>{_SPAN})|l(?P<l2>{_SPAN})h(?P<h2>{_SPAN}))"
)
_KINDS: dict[str, SiteKind] = {
    **{prefix: kind for kind, prefix in SITE_PREFIX.items()},
    **{kind: kind for kind in SITE_PREFIX},
}
_FILE = re.compile(r"@((?:(?!->)[^,+→])*)")
"""A circuit's file, with the blanks around its name, wherever heads are named: alone, in a group
(``@a.json+3.1``) and in a path (``@a.json -> 2.0``)."""
_SHOWN = 40  # characters of a faulty item that an error repeats


@dataclass(frozen=True, slots=True)
class _Span:
    """Some layers or heads: ``first`` to ``last``, or all that there are."""

    first: int
    last: int
    every: bool

    @classmethod
    def read(cls, text: str) -> _Span:
        if text == "*":
            return cls(0, 0, True)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first), False)

    def within(self, count: int) -> range:
        """The numbers meant, out of ``count``; empty where one of them does not exist."""
        if self.every:
            return range(count)
        return range(self.first, self.last + 1) if self.last < count else range(0)


def select(text: str, layout: Layout) -> tuple[Head, ...]:
    """Read a selection of heads."""
    if not isinstance(text, str):
        raise SelectionError(f"a selection of heads is a string, not {text!r}; {_FORMS}")
    if not text.strip():
        raise SelectionError(f"the selection of heads is empty; {_FORMS}")
    chosen: set[Head] = set()
    for item in text.split(","):
        if item.strip().startswith("@"):
            chosen.update(_circuit(_file(item.strip()), layout))
            continue
        if item.strip().lower() == "all":
            chosen.update(layout)
            continue
        compact = re.sub(r"\s+", "", item).replace("–", "-").lower()
        chosen.update(_read(compact, layout))
    return tuple(head for head in layout if head in chosen)


def with_files(text: str, located: Callable[[str], str]) -> str:
    """The same heads, groups or paths with other names for the files in them."""
    paths = []
    for match in _FILE.finditer(text):
        path = located(match[1].strip())
        if path != _file(f"@{path}"):
            raise SelectionError(f"{path!r} cannot stand in a selection; {_RENAME}")
        paths.append(path)
    rest = iter(paths)
    return _FILE.sub(lambda match: f"@{next(rest)}{' ' * match[1].endswith(' ')}", text)


def _file(item: str) -> str:
    """The file that an item names; SelectionError where the name would go on."""
    match = _FILE.fullmatch(item)
    if match is None:
        raise SelectionError(f"cannot read {item[:_SHOWN]!r} as a circuit's file; {_RENAME}")
    return match[1].strip()


def _circuit(name: str, layout: Layout) -> list[Head]:
    """The heads of a circuit in a file that ``attnviz patch`` wrote."""
    with system_errors(InputError, f"cannot read {name}"):
        data = contents(name)
    document = parsed(data, name)
    circuit = document.get("circuit") if isinstance(document, dict) else None
    if not isinstance(circuit, dict) or not isinstance(circuit.get("members"), list):
        raise SelectionError(
            f"{name} holds no circuit; give the JSON of attnviz patch with a circuit"
        )
    heads = []
    for member in circuit["members"]:
        head = member.get("head") if isinstance(member, dict) else None
        try:
            heads.append(layout.head(str(head)))
        except ValueError:
            raise SelectionError(
                f"{name} is a circuit of another model: no head {str(head)[:20]!r}; this one has "
                f"{describe(layout)}"
            ) from None
    if not heads:
        raise SelectionError(f"the circuit in {name} has no heads")
    return heads


def describe(layout: Layout) -> str:
    """What exists, for errors: ``layers 0-11 with heads 0-11``, by kind where there are several."""
    parts = []
    for kind in layout.kinds:
        runs, start = [], 0
        for count, group in groupby(layout.heads[kind]):
            layers = len(list(group))
            there = f" with {_numbered('head', 0, count)}" if count else ": no attention"
            runs.append(_numbered("layer", start, layers) + there)
            start += layers
        prefix = f"{SITE_PREFIX[kind]}: " if len(layout.kinds) > 1 else ""
        parts.append(prefix + ", ".join(runs))
    return "; ".join(parts) or "no heads"


def _numbered(noun: str, first: int, count: int) -> str:
    return f"{noun} {first}" if count == 1 else f"{noun}s {first}-{first + count - 1}"


def _read(item: str, layout: Layout) -> list[Head]:
    """The heads that one item means."""
    shown = item if len(item) <= _SHOWN else item[: _SHOWN - 1] + "…"
    match = _ITEM.fullmatch(item)
    if match is None:
        raise SelectionError(f"cannot read {shown!r} as heads; {_FORMS}")
    layers = _Span.read(match["l"] or match["l2"])
    heads = _Span.read(match["h"] or match["h2"])
    for span, noun in ((layers, "layers"), (heads, "heads")):
        if span.last < span.first:
            raise SelectionError(
                f"{shown!r} counts {noun} backwards; write {span.last}-{span.first}"
            )
    kinds = layout.kinds
    if match["kind"] is not None:
        kind = _KINDS.get(match["kind"])
        if kind not in layout.kinds:
            known = ", ".join(f"{SITE_PREFIX[k]}:" for k in layout.kinds)
            asked = shown.partition(":")[0]
            raise SelectionError(f"no {asked}: heads in this model; it has {known}")
        kinds = (kind,)
    chosen = [head for kind in kinds for head in _of_kind(kind, layers, heads, layout)]
    if not chosen:
        raise SelectionError(f"no head {shown}; this model has {describe(layout)}")
    return chosen


def _of_kind(kind: SiteKind, layers: _Span, heads: _Span, layout: Layout) -> Iterator[Head]:
    """The heads of one kind of site; none where a number that was written does not exist."""
    counts = layout.heads[kind]
    wanted = layers.within(len(counts))
    if not layers.every and not all(heads.within(counts[layer]) for layer in wanted):
        return
    for layer in wanted:
        for index in heads.within(counts[layer]):
            yield Head(Site(kind, layer), index)


Roles = Callable[[str], Collection[Head]]
"""The heads that show a role; raises SelectionError for a role that does not exist."""

_LAYER = re.compile(r"(?:(?P<kind>[a-z]+):)?(?P<layer>[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Group:
    """Heads that are ablated together."""

    name: str  # as it is shown, ``5.1``, ``3.0+3.1``, ``layer:2``
    heads: tuple[Head, ...]  # in the order of the layout; never empty

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
