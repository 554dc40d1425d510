"""One batch of annotated sentences: a forward pass, and what every head gets right in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.corpus.gold.pointing import Pointing
from attnviz.corpus.gold.tally import ALL, Hits, Key
from attnviz.scoring.passes import observe


@dataclass(frozen=True, eq=False, slots=True)
class Gold:
    """The cases of one sentence."""

    document: int  # from 1
    words: NDArray[np.int64]  # [C], the dependents; ``heads`` [C] theirs, ``names`` their relations
    heads: NDArray[np.int64]  # numbers of words, from 0
    names: tuple[str, ...]  # one for each case
    root: int  # the word that depends on none

    @property
    def columns(self) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
        """Names, heads and words, to go through them case by case."""
        return self.names, self.heads, self.words


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """A batch of tokenized sentences with their cases."""

    batch: tuple[Inputs, ...]
    gold: tuple[Gold, ...]


def hits_of(source: Source, task: Task) -> Hits:
    """How many cases of each document and relation each head finds, [N, 2]."""
    observer = Pointing(task.batch, source.layout)
    observe(source, task.batch, observer)
    keys: dict[Key, int] = {}
    right, owners = [], []
    for number, gold in enumerate(task.gold):
        pointed = observer.heads(number)[:, :, gold.words]  # [N, 2, C]
        right.append(pointed == gold.heads)
        owners += [keys.setdefault((gold.document, name), len(keys)) for name in gold.names]
    return _added(np.concatenate(right, 2), owners, keys)


def _added(right: NDArray[np.bool_], owners: Sequence[int], keys: Mapping[Key, int]) -> Hits:
    """Hits by document and relation, and by document alone."""
    member = np.zeros((len(owners), len(keys)), np.float32)
    member[np.arange(len(owners)), owners] = 1
    sums = np.rint(right.astype(np.float32) @ member).astype(np.int32)  # [N, 2, K]
    added: dict[Key, NDArray[np.int32]] = {}
    for (document, name), hits in zip(keys, np.moveaxis(sums, 2, 0), strict=True):
        added[document, name] = hits
        whole = added.get((document, ALL))
        added[document, ALL] = hits if whole is None else whole + hits
    return added
