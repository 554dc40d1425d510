"""How much alike heads are: Jensen-Shannon divergence over the same rows.

Clark et al. 2019 (arXiv:1906.04341, section 6, figure 6) compare two heads by the divergence of
their attention from the same token. All pairs of heads cost much more than their scores, so this
is measured on a sample of texts, those whose hashes are the smallest, and on some rows of each.
Whoever counts keeps the same ones. Of captures (:func:`alike`) the maps are there already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Floats, to_numpy
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.features.profile.result import Alike
from attnviz.features.profile.tasks import mixed
from attnviz.statistics.clusters import LEAST, LEVEL, half_width

TEXTS = 64  # texts in the sample, where the matrices are small enough
ROWS = 16  # rows of a text, at most
MOST = 1536  # heads of a kind that are compared: more pairs would take minutes and gigabytes
_BYTES = 32 << 20  # what all matrices of the sample may take
_WORK = 1 << 23  # logarithms of a text, about, where a single row does not take more
_TINY = 1e-30

Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Divergences:
    """What one text of the sample says."""

    key: int  # the hash of the text
    rows: Mapping[SiteKind, int]  # how many rows were compared, for each kind of site
    # float32 [n(n-1)/2] for each kind, the divergence of each pair of its n heads in bits, summed
    # over the rows; pairs as ``np.triu_indices(n, 1)`` has them.
    sums: Mapping[SiteKind, NDArray[np.float32]]


def sample_size(layout: Layout) -> int:
    """How many texts the sample of a model's heads has; none where there are too many heads."""
    if too_many(layout):
        return 0
    pairs = sum(n * (n - 1) // 2 for n in map(sum, layout.heads.values()))
    return max(1, min(TEXTS, _BYTES // (4 * max(pairs, 1))))


def too_many(layout: Layout) -> bool:
    """Whether a model has more heads of a kind than are compared with each other."""
    return max(map(sum, layout.heads.values()), default=0) > MOST


class Comparing:
    """Watches the rows of a batch that are compared."""

    def __init__(
        self,
        batch: Sequence[Inputs],
        keys: Mapping[int, int],
        layout: Layout,
        rows: int = ROWS,
        work: int = _WORK,
    ) -> None:
        self._keys, self._layout = keys, layout
        self._rows: dict[tuple[int, SiteKind], list[int]] = {}
        self._seen: dict[tuple[int, SiteKind], dict[Site, list[Singles]]] = {}
        for item, key in keys.items():
            for kind, sides in batch[item].sides.items():
                heads = sum(layout.heads.get(kind, ()))
                room = work // max(1, heads * heads // 2 * len(sides.keys))
                usable = [i for i, special in enumerate(sides.queries.special) if not special]
                draw = np.argsort(mixed(key, np.array(usable, np.uint64)), kind="stable")
                chosen = draw[: max(1, min(rows, room))]
                self._rows[item, kind] = sorted(usable[i] for i in chosen)
                self._seen[item, kind] = {}

    def observe(self, rows: Rows) -> None:
        """Copy the rows that are compared."""
        stop = rows.start + rows.weights.shape[2]
        for item in self._keys:
            kind = rows.site.kind
            inside = [i - rows.start for i in self._rows[item, kind] if rows.start <= i < stop]
            if inside:
                chosen = to_numpy(rows.weights[item][:, inside])
                padded = np.zeros((*chosen.shape[:2], rows.key_start + chosen.shape[2]), np.float32)
                padded[..., rows.key_start :] = chosen
                self._seen[item, kind].setdefault(rows.site, []).append(padded)

    def divergences(self, item: int) -> Divergences:
        """All pairs of heads of one item."""
        sums = {}
        counts = {}
        for (number, kind), by_site in self._seen.items():
            if number == item and by_site:
                width = max(weights.shape[-1] for blocks in by_site.values() for weights in blocks)
                # with zeros for the keys that a block of rows cannot reach
                layers = [
                    np.concatenate(
                        [
                            np.pad(w, ((0, 0), (0, 0), (0, width - w.shape[2])))
                            for w in by_site[site]
                        ],
                        axis=1,
                    )
                    for site in self._layout.sites
                    if site in by_site
                ]
                sums[kind] = _pairs(np.concatenate(layers)).astype(np.float32)
                counts[kind] = layers[0].shape[1]
        return Divergences(self._keys[item], counts, sums)


def _pairs(weights: Singles) -> Floats:
    """[n, r, S] -> [n(n-1)/2], the divergence of each pair of heads in bits, summed over rows."""
    share = weights / np.maximum(weights.sum(-1, keepdims=True), _TINY)  # a learned sink takes some
    entropy = _entropy(share)
    distances = []
    for head in range(len(share) - 1):
        middle = (share[head] + share[head + 1 :]) / 2
        divergence = _entropy(middle) - (entropy[head] + entropy[head + 1 :]) / 2
        distances.append(np.maximum(divergence, 0).sum(-1))
    return np.concatenate(distances).astype(np.float64) if distances else np.zeros(0)


def _entropy(share: Singles) -> Singles:
    logs = np.log2(np.maximum(share, _TINY))
    logs *= share
    return -logs.sum(-1)


def distances(
    sample: Sequence[Divergences],
    kind: SiteKind,
    heads: int,
    weights: Mapping[int, float] | None = None,
) -> tuple[Floats, Floats]:
    """Return the distances between heads, and how sure they are.

    Returns [n, n], the square root of the mean divergence in bits over all rows: 0 for heads that
    always look at the same, 1 for heads that never do; NaN without a row. And [n, n], its standard
    error with texts as clusters, that of the mean over twice the distance; NaN from a single text.
    """
    texts = sorted((d for d in sample if kind in d.sums), key=lambda d: d.key)
    total, squares, cross = (np.zeros(heads * (heads - 1) // 2) for _ in range(3))
    count = count_squares = drawn = 0.0
    for text in texts:
        weight = 1.0 if weights is None else weights[text.key]
        sums, rows = text.sums[kind].astype(np.float64), text.rows[kind]
        total += weight * sums
        squares += weight * sums * sums
        cross += weight * rows * sums
        count += weight * rows
        count_squares += weight * rows * rows
        drawn += weight
    distances, errors = (np.zeros((heads, heads)) for _ in range(2))
    upper = np.triu_indices(heads, 1)
    if not count:
        distances[upper] = errors[upper] = np.nan
        return distances + distances.T, errors + errors.T
    mean = total / count
    spread = np.maximum(squares - 2 * mean * cross + mean * mean * count_squares, 0)
    error = np.sqrt(drawn / (drawn - 1) * spread) / count if drawn > 1 else np.nan
    distances[upper] = np.sqrt(np.minimum(mean, 1))
    errors[upper] = error / (2 * np.maximum(distances[upper], _TINY))
    return distances + distances.T, errors + errors.T


def related(distances: Floats, errors: Floats, texts: int) -> NDArray[np.bool_]:
    """Which pairs of heads are surely more alike than heads drawn at random are.

    Those whose divergence (the distance squared) is below half that of the median pair, with the
    upper end of a one-sided interval that holds for the pairs of all heads at once (Bonferroni).

    ``distances`` [n, n] and their standard ``errors``; returns [n, n]; none where fewer
    than :data:`~attnviz.statistics.clusters.LEAST` texts say how sure distances are.
    """
    n = len(distances)
    upper = distances[np.triu_indices(n, 1)]
    if texts < LEAST or not len(upper) or np.isnan(upper).any():
        return np.zeros((n, n), np.bool_)
    t = half_width(texts - 1, 1 - 2 * (1 - LEVEL) / len(upper))
    near: NDArray[np.bool_] = distances + t * errors < np.sqrt(np.median(upper**2) / 2)
    np.fill_diagonal(near, False)
    return near


def plane(distances: Floats) -> Floats:
    """Place distances [n, n] in a plane [n, 2]: classical scaling (Torgerson 1952), by width."""
    n = len(distances)
    centre = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-centre @ (distances**2) @ centre / 2)
    places: Floats = np.zeros((n, 2))
    for column, best in enumerate(np.argsort(values)[::-1][:2]):
        axis = vectors[:, best] * np.sqrt(max(values[best], 0))
        places[:, column] = axis * np.sign(axis[np.abs(axis).argmax()] or 1)
    return places


def nearest(
    distances: Floats, head: int, count: int, among: NDArray[np.bool_]
) -> tuple[tuple[int, float], ...]:
    """List the heads most alike one by ``distances`` [n, n], of the pairs ``among`` [n, n]."""
    order = np.argsort(distances[head], kind="stable").tolist()
    similar = [neighbour for neighbour in order if among[head, neighbour]]
    return tuple((neighbour, float(distances[head, neighbour])) for neighbour in similar[:count])


def known(mean: NDArray[np.float64], errors: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    """Distances [n, n] to the digits that are known, given their standard errors."""
    return tuple(
        tuple(digits(*pair) for pair in zip(*rows, strict=True))
        for rows in zip(mean.tolist(), errors.tolist(), strict=True)
    )


def digits(distance: float, error: float) -> float:
    """Return a distance rounded to the digits that are known; two where nothing says more."""
    half = 2 * error
    places = 2 if not half >= 0 else 1 if half >= 0.05 else 2 if half >= 0.005 else 3
    return round(distance, places)


_LEAST_HEADS = 3  # of a kind: fewer have no map to speak of
_NEAREST = 3  # heads that are named for each of a capture
CAPTURE_ROWS = 32  # rows of a capture, at most
_PAIR_WORK = 1 << 28
"""Logarithms of all texts together, about: a second for 1,024 heads, a sixth of one for 144."""


def alike(
    captures: Sequence[Capture], heads: Sequence[Collection[Head]]
) -> list[Mapping[SiteKind, Alike]]:
    """Give how alike the heads of every capture are; of one model's, over its texts together."""
    groups: dict[tuple[str, str, frozenset[Head]], list[int]] = {}
    for number, (capture, group) in enumerate(zip(captures, heads, strict=True)):
        all_heads = capture.layout.whole or bool(capture.layout.mean)
        key = (capture.source.model, capture.quantity, frozenset(() if all_heads else group))
        groups.setdefault(key, []).append(number)
    out: list[Mapping[SiteKind, Alike]] = [{} for _ in captures]
    for (_, _, group), numbers in groups.items():
        by_kind = _together([captures[number] for number in numbers], group)
        for number in numbers:
            out[number] = by_kind
    return out


def _together(captures: Sequence[Capture], heads: Collection[Head]) -> Mapping[SiteKind, Alike]:
    """Return the same heads over several texts."""
    chosen: dict[SiteKind, list[Head]] = {}
    for head in captures[0].layout:
        if head in heads:
            chosen.setdefault(head.site.kind, []).append(head)
    chosen = {kind: group for kind, group in chosen.items() if _LEAST_HEADS <= len(group) <= MOST}
    counts = {
        kind: tuple(sum(head.layer == n for head in group) for n in range(group[-1].layer + 1))
        for kind, group in chosen.items()
    }
    layout = Layout(counts)
    captures = captures[: sample_size(layout)] if chosen else ()
    sample = [
        _divergences(capture, chosen, layout, number, _PAIR_WORK // len(captures))
        for number, capture in enumerate(captures)
    ]
    by_kind: dict[SiteKind, Alike] = {}
    for kind, group in chosen.items():
        separation, _ = distances(sample, kind, len(group))
        if np.isnan(separation).any():
            continue
        mask = ~np.eye(len(group), dtype=np.bool_)
        places = plane(separation)
        total = float((separation**2).sum()) / (2 * len(group))
        by_kind[kind] = Alike(
            tuple(group),
            places,
            tuple(
                tuple((group[near], far) for near, far in nearest(separation, n, _NEAREST, mask))
                for n in range(len(group))
            ),
            float((places**2).sum()) / total if total > 0 else 1.0,
            sum(text.rows.get(kind, 0) for text in sample),
            sum(kind in text.rows for text in sample),
        )
    return by_kind


def _divergences(
    capture: Capture, chosen: Mapping[SiteKind, Sequence[Head]], layout: Layout, key: int, work: int
) -> Divergences:
    """Return what one text says of the heads that are compared."""
    watch = Comparing([capture.inputs], {0: key}, layout, CAPTURE_ROWS, work)
    for site, maps in capture.maps.items():
        indices = [capture.place(head) for head in chosen.get(site.kind, ()) if head.site == site]
        if indices:
            weights = np.asarray(maps[indices], np.float32)
            watch.observe(Rows(site, 0, 0, arrays.array(weights[None]), None))
    return watch.divergences(0)
