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

Which heads a table lists, and in which order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.capture import Capture
from attnviz.core.heads import SITE_PREFIX, Head, Layout, Site, SiteKind
from attnviz.core.record import parsed
from attnviz.core.scores import HeadScores
from attnviz.core.source import Rows
from attnviz.errors import InputError, SelectionError, UsageError, system_errors
from attnviz.files import contents
from attnviz.scoring.observe import ScoreObserver, allowed_keys
from attnviz.scoring.roles import (
    ANNOTATED,
    MIN_ROWS,
    ROLES,
    SHOWN,
    does_something,
    is_called,
    role_name,
)
from attnviz.scoring.scores import SCORES

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
        """Return the numbers meant, out of ``count``; empty where one of them does not exist."""
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
    """Return the same heads, groups or paths with other names for the files in them."""
    paths = []
    for match in _FILE.finditer(text):
        path = located(match[1].strip())
        if path != _file(f"@{path}"):
            raise SelectionError(f"{path!r} cannot stand in a selection; {_RENAME}")
        paths.append(path)
    remaining = iter(paths)
    return _FILE.sub(lambda match: f"@{next(remaining)}{' ' * match[1].endswith(' ')}", text)


def _file(item: str) -> str:
    """Return the file that an item names; SelectionError where the name would go on."""
    match = _FILE.fullmatch(item)
    if match is None:
        raise SelectionError(f"cannot read {item[:_SHOWN]!r} as a circuit's file; {_RENAME}")
    return match[1].strip()


def _circuit(name: str, layout: Layout) -> list[Head]:
    """Return the heads of a circuit in a file that ``attnviz patch`` wrote."""
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
    """Say what exists, for errors: ``layers 0-11 with heads 0-11``, by kind where several."""
    parts = []
    for kind in layout.kinds:
        runs, start = [], 0
        for count, group in groupby(layout.heads[kind]):
            layers = len(list(group))
            heads = f" with {_numbered('head', 0, count)}" if count else ": no attention"
            runs.append(_numbered("layer", start, layers) + heads)
            start += layers
        prefix = f"{SITE_PREFIX[kind]}: " if len(layout.kinds) > 1 else ""
        parts.append(prefix + ", ".join(runs))
    return "; ".join(parts) or "no heads"


def _numbered(noun: str, first: int, count: int) -> str:
    return f"{noun} {first}" if count == 1 else f"{noun}s {first}-{first + count - 1}"


def _read(item: str, layout: Layout) -> list[Head]:
    """Return the heads that one item means."""
    label = item if len(item) <= _SHOWN else item[: _SHOWN - 1] + "…"
    match = _ITEM.fullmatch(item)
    if match is None:
        raise SelectionError(f"cannot read {label!r} as heads; {_FORMS}")
    layers = _Span.read(match["l"] or match["l2"])
    heads = _Span.read(match["h"] or match["h2"])
    for span, noun in ((layers, "layers"), (heads, "heads")):
        if span.last < span.first:
            raise SelectionError(
                f"{label!r} counts {noun} backwards; write {span.last}-{span.first}"
            )
    kinds = layout.kinds
    if match["kind"] is not None:
        kind = _KINDS.get(match["kind"])
        if kind not in layout.kinds:
            prefixes = ", ".join(f"{SITE_PREFIX[k]}:" for k in layout.kinds)
            prefix = label.partition(":")[0]
            raise SelectionError(f"no {prefix}: heads in this model; it has {prefixes}")
        kinds = (kind,)
    chosen = [head for kind in kinds for head in _of_kind(kind, layers, heads, layout)]
    if not chosen:
        raise SelectionError(f"no head {label}; this model has {describe(layout)}")
    return chosen


def _of_kind(kind: SiteKind, layers: _Span, heads: _Span, layout: Layout) -> Iterator[Head]:
    """Yield the heads of one kind of site; none where a number that was written does not exist."""
    counts = layout.heads[kind]
    numbers = layers.within(len(counts))
    if not layers.every and not all(heads.within(counts[layer]) for layer in numbers):
        return
    for layer in numbers:
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
    """Return the heads that show a role, by what was measured."""
    name = role_name(name)
    roles = [(head.head, role) for head in scores for role in head.roles]
    heads = dict.fromkeys(head for head, role in roles if is_called(role, name))
    if not heads and name not in ROLES:
        about = sorted({role.of for _, role in roles if role.of})
        raise SelectionError(f"unknown role {name!r}; choose one of {', '.join([*ROLES, *about])}")
    return tuple(heads)


def _item(item: str, layout: Layout, roles: Roles) -> Sequence[Group]:
    names = item.removeprefix("all-but:")
    named = [_part(part, layout, roles) for part in names.split("+")]
    chosen = frozenset(head for heads in named for head in heads)
    if names != item:
        chosen = frozenset(layout) - chosen
        if not chosen:
            raise SelectionError(f"{item} leaves no head to ablate; name fewer")
    group = tuple(head for head in layout if head in chosen)
    if names != item or "+" in names or (":" in names and names.startswith(("layer:", "role:"))):
        return [Group(item, group)]
    return [Group(layout.name(head), (head,)) for head in group]


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


def arrange(
    heads: Sequence[HeadScores],
    *,
    role: str | None = None,
    sort: str = "layer",
    top: int | None = None,
    everything: bool = False,
    named: Sequence[HeadScores] = (),
) -> tuple[HeadScores, ...]:
    """Filter, sort and cut a list of heads."""
    role = None if role is None else role_name(role)
    annotated = [r for h in (*heads, *named) for r in h.roles if r.name in ANNOTATED]
    relations = sorted({r.of for r in annotated if r.of})
    known_role = role is None or role in SHOWN or role.partition(":")[0] in ANNOTATED
    if not known_role and not any(is_called(r, str(role)) for r in annotated):
        raise UsageError(f"unknown role {role!r}; roles are {', '.join([*SHOWN, *relations])}")
    by_role = sort not in ("layer", "role", "score", *SCORES)
    criterion = role_name(sort)
    if by_role and not any(is_called(r, criterion) for r in annotated):
        choices = ", ".join([*SCORES, *sorted({r.name for r in annotated}), *relations])
        if annotated:
            raise UsageError(
                "cannot sort by {!r}; use layer, role, score, or one of {}", sort, choices
            )
        raise UsageError(
            "cannot sort by {!r}; use layer, role, score, or one of {}; or with a result of "
            "annotated text, see {evidence}, a relation such as obj",
            sort,
            choices,
            evidence=...,
        )
    if role is not None:
        listed = [h for h in heads if any(is_called(r, role) for r in h.roles)]
    else:
        listed = [h for h in heads if everything or does_something(h)]
    if sort == "role":
        order = {name: number for number, name in enumerate(SHOWN)}
        listed.sort(
            key=lambda h: (
                (order[h.roles[0].name], -(h.roles[0].evidence.mean or 0.0))
                if h.roles
                else (len(order), 0.0)
            )
        )
    elif sort == "score":
        listed.sort(key=lambda h: -(h.roles[0].evidence.mean or 0.0) if h.roles else 0.0)
    elif by_role:
        listed.sort(key=lambda h: -_score(h, criterion))
    elif sort != "layer":
        listed.sort(key=lambda h: -_mean(h, sort))
    return tuple(listed[:top])


def leading(scores: HeadScores, role: str | None = None) -> tuple[int, float, Head]:
    """Sorts heads by what there is to see: the clearest evidence first.

    Heads that do something come before those that only have a place to rest, and heads without a
    role last, by any score that has enough rows. Clear is a large lift; ties go by position.
    """
    matching = [r for r in scores.roles if role is None or is_called(r, role)]
    active = [r for r in matching if not r.rests]
    lifts = [r.evidence.lift or 0.0 for r in active or matching]
    if not lifts:
        lifts = [s.lift or 0.0 for s in scores.scores.values() if s.rows >= MIN_ROWS]
    return 0 if active else 1 if matching else 2, -max(lifts, default=0.0), scores.head


def _score(head: HeadScores, annotated: str) -> float:
    """Of a role from annotation; 0 where the head has it not."""
    roles = [r for r in head.roles if r.name in ANNOTATED and is_called(r, annotated)]
    return max((r.evidence.mean or 0.0 for r in roles), default=0.0)


def _mean(head: HeadScores, score: str) -> float:
    measured = head.scores.get(score)
    return float("-inf") if measured is None or measured.mean is None else measured.mean


_CHOICES = 8  # so many keys of every query are looked at, the strongest


_AT_ONCE = 32  # keys that are asked about at once


def targets(capture: Capture, head: Head, score: str) -> NDArray[np.bool_]:
    """Ask a score which keys it counts, [T, S]; none in rows without any."""
    allowed = allowed_keys(capture, head)
    length, keys = allowed.shape
    hits = np.zeros_like(allowed)
    for first in range(0, keys, _AT_ONCE):
        block = range(first, min(first + _AT_ONCE, keys))
        single = np.zeros((len(block), length, keys), np.float32)
        for number, key in enumerate(block):
            single[number, :, key] = 1.0
        hits[:, block.start : block.stop] = _counted(capture, head, score, single).T
    return hits & allowed


def strongest_pair(capture: Capture, head: Head, score: str) -> tuple[int, int] | None:
    """Return the query and the key with the largest weight among the targets of a score.

    Which keys are targets is asked of the score itself: it sees, in place of the head, heads that
    put all of a row's weight on its strongest key, on its second, and so on.
    """
    if not SCORES[score].on_targets:
        return None
    weights = np.nan_to_num(np.asarray(capture[head], np.float64))
    order = np.argsort(-weights, axis=1, kind="stable")[:, :_CHOICES]
    single = np.zeros((order.shape[1], *weights.shape), np.float32)
    np.put_along_axis(single, order.T[..., None], 1.0, -1)
    hits = _counted(capture, head, score, single).T
    largest = np.where(hits, np.take_along_axis(weights, order, 1), -np.inf)
    query, choice = divmod(int(largest.argmax()), largest.shape[1])
    if largest[query, choice] in (0, -np.inf):
        return None
    return query, int(order[query, choice])


def _counted(
    capture: Capture, head: Head, score: str, single: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Ask a score in which rows [n, T] it counts the one key that they have, [n, T, S]."""
    hits = np.zeros(single.shape[:2], np.bool_)

    def watch(item: int, site: Site, start: int, names: Sequence[str], values: Any) -> None:
        hits[:, start : start + values.shape[2]] = values[0] > 0.5

    allowed = arrays.array(allowed_keys(capture, head)[None, None])
    observer = ScoreObserver([capture.inputs], capture.layout, [score], watch)
    observer.observe(Rows(head.site, 0, 0, arrays.array(single[None]), allowed))
    return hits
