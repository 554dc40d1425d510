"""A native model with every tensor changed: rounded, or taken from NumPy to torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TypeVar, cast

from attnviz.core.arrays import Array
from attnviz.models.native.network import Affine, NativeLayer, Network, Norm
from attnviz.models.native.words import Words

Part = TypeVar("Part")


def changed(part: Part, change: Callable[[Array], Array]) -> Part:
    """A network, or what it is made of, with every tensor changed.

    An LM head that shares the token embeddings gets a copy of its own, of the same values.
    """
    if isinstance(part, tuple):
        return cast(Part, tuple(changed(item, change) for item in part))
    if isinstance(part, Network | NativeLayer | Affine | Norm | Words):
        own = {f.name: changed(getattr(part, f.name), change) for f in fields(part)}
        return cast(Part, replace(part, **own))
    return cast(Part, change(cast(Array, part))) if hasattr(part, "dtype") else part
