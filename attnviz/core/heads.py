"""Which heads a model has: sites (layers that attend), heads, and their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Literal

SiteKind = Literal["encoder", "decoder", "cross"]
"""Where attention happens: an encoder's or a decoder's self-attention, or cross-attention."""

Mean = Literal["heads", "layers", "all"]
"""What maps are averaged over: the heads of each layer, the layers, or both."""

SITE_KINDS: tuple[SiteKind, ...] = ("encoder", "decoder", "cross")
SITE_PREFIX: Mapping[SiteKind, str] = {"encoder": "enc", "decoder": "dec", "cross": "cross"}
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One attention layer: its kind and its number, from 0."""

    kind: SiteKind
    layer: int


@total_ordering
class Head:
    """One attention head: its site and its number in the layer, from 0.

    No dataclass, so that in files it is its name and nothing else (:mod:`attnviz.core.result`).
    """

    __slots__ = ("index", "site")
    site: Site
    index: int

    def __init__(self, site: Site, index: int) -> None:
        object.__setattr__(self, "site", site)
        object.__setattr__(self, "index", index)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a head is frozen; {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Head):
            return NotImplemented
        return self.index == other.index and self.site == other.site

    def __lt__(self, other: Head) -> bool:
        return (self.site, self.index) < (other.site, other.index)

    def __hash__(self) -> int:
        return hash((self.site, self.index))

    def __repr__(self) -> str:
        return f"Head(site={self.site!r}, index={self.index!r})"

    def __reduce__(self) -> tuple[type[Head], tuple[Site, int]]:
        return Head, (self.site, self.index)

    @property
    def layer(self) -> int:
        """The layer's number, from 0."""
        return self.site.layer

    @property
    def name(self) -> str:
        """``layer.head``, for example ``4.11``."""
        return f"{self.site.layer}.{self.index}"

    @property
    def qualified(self) -> str:
        """``kind:layer.head``, for example ``cross:4.11``."""
        return f"{SITE_PREFIX[self.site.kind]}:{self.name}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which heads a model has: for each kind of site, the number of heads in each layer.

    ``whole`` says that what counts as a head is a layer, all its heads together: ``4.*``.
    ``mean`` says that it is a mean over ``heads``, ``layers`` or ``all``; empty where it is none.
    ``mixers`` says of a stack some of whose layers have no heads what each layer is: ``attention``,
    ``gated delta rule``; it is empty elsewhere, and not compared.
    """

    heads: Mapping[SiteKind, tuple[int, ...]]
    whole: bool = False
    mixers: tuple[str, ...] = field(default=(), compare=False)
    mean: Mean | Literal[""] = ""

    @property
    def kinds(self) -> tuple[SiteKind, ...]:
        """The kinds of site present, in the order encoder, decoder, cross."""
        return tuple(kind for kind in SITE_KINDS if self.heads.get(kind))

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every attention layer, in the order encoder, decoder, cross."""
        return tuple(Site(kind, layer) for kind in self.kinds for layer in range(self.layers(kind)))

    def __iter__(self) -> Iterator[Head]:
        """Every head, layer by layer."""
        for site in self.sites:
            for index in range(self.heads[site.kind][site.layer]):
                yield Head(site, index)

    def __len__(self) -> int:
        return sum(sum(self.heads[kind]) for kind in self.kinds)

    def __contains__(self, head: object) -> bool:
        if not isinstance(head, Head):
            return False
        counts = self.heads.get(head.site.kind, ())
        return 0 <= head.layer < len(counts) and 0 <= head.index < counts[head.layer]

    def layers(self, kind: SiteKind) -> int:
        """Return the number of layers of one kind."""
        return len(self.heads.get(kind, ()))

    def name(self, head: Head) -> str:
        """Return the head's short name where that is unambiguous, else the qualified one."""
        prefix = "" if len(self.kinds) == 1 else f"{SITE_PREFIX[head.site.kind]}:"
        layer = "*" if self.mean in ("layers", "all") else head.layer
        return f"{prefix}{layer}.{'*' if self.whole or self.mean == 'all' else head.index}"

    def head(self, name: str) -> Head:
        """Return the head of a name, as :meth:`name` gives it; ValueError where there is none."""
        layer, _, index = name.rpartition(":")[2].partition(".")
        index = "0" if index == "*" and (self.whole or self.mean == "all") else index
        layer = "0" if layer == "*" and self.mean in ("layers", "all") else layer
        if _NUMBER.fullmatch(layer) and _NUMBER.fullmatch(index):
            for kind in self.kinds:
                head = Head(Site(kind, int(layer)), int(index))
                if head in self and self.name(head) == name:
                    return head
        raise ValueError(f"{name[:40]!r} is not a head of this model")
