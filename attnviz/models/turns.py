"""Modules that run several times in one pass, such as one that serves several layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

from torch import nn

T = TypeVar("T")


class Turns(Generic[T]):
    """What a module stands for each time that it runs, in a pass or in several."""

    def __init__(self, listed: Iterable[tuple[nn.Module, T]]) -> None:
        self._of: dict[int, list[T]] = {}
        self._modules: dict[int, nn.Module] = {}
        for module, meaning in listed:
            self._of.setdefault(id(module), []).append(meaning)
            self._modules[id(module)] = module
        self._ran: Counter[int] = Counter()

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Each once."""
        return tuple(self._modules.values())

    def next(self, module: nn.Module) -> T:
        """What a module stands for in the run that ends now."""
        own, number = self._of[id(module)], self._ran[id(module)]
        self._ran[id(module)] += 1
        return own[number % len(own)]
