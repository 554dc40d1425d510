"""A random sample of texts, in one pass over them."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator

from attnviz.corpus.texts import InvalidRecord, Text


def sample(
    texts: Iterable[Text | InvalidRecord], size: int, seed: int = 0
) -> Iterator[Text | InvalidRecord]:
    """Some of the texts, each with the same chance, in their order.

    Every text draws a number by hashing the seed and its own number, and the smallest are kept:
    memory grows with the sample only, and a smaller sample of the same seed is a part of a larger.
    """
    heap: list[tuple[int, int, Text]] = []  # the largest draw first
    for text in texts:
        if isinstance(text, InvalidRecord):
            yield text
            continue
        draw = hashlib.blake2b(f"{seed} {text.number}".encode(), digest_size=16).digest()
        entry = (-int.from_bytes(draw), text.number, text)
        if len(heap) < size:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    yield from sorted((text for _, _, text in heap), key=lambda text: text.number)
