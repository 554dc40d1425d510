"""What the rows of chosen heads add up to, to the same bits in any order.

Notation in shapes: H chosen heads, L their layers, Q classes of queries, C of keys, d width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Reals
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.corpus import relations
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.relations import CLASSES, TokenTraits
from attnviz.features.profile.parts import SampledText
from attnviz.features.profile.sampled.sample import (
    CRITERIA,
    LONGEST_TOKEN,
    PAIR_UNIT,
    Hashes,
    RowSample,
    Threshold,
    WholeRow,
    hashed,
    hashes,
    paired,
    token_keys,
)
from attnviz.features.profile.sampled.watch import (
    BINS,
    KEY_CLASSES,
    VECTORS,
    LayerRows,
    RowWatch,
    chosen_by_site,
    effects,
)
from attnviz.statistics.histogram import Exact, Histograms, Sketch


class HeadSums:
    """Everything that adds up, and the sample of rows.

    Attributes:
        rows: int64 [Q], rows that count, by class of query.
        histograms: of weights and norms, kind = head · 3 + criterion, with norms written; what
            effects are is known of the sample's whole rows alone.
        by_class: exact [H, Q, C], weight by class of query and key; ``uniform_by_class`` [L, Q, C].
        along: exact [H, 2, BINS], bits of entropy and weight on the sink along the text; with
            ``uniform_along`` [L, 2, BINS] of uniform attention, and ``along_rows`` int64 [BINS].
        moments: exact [H, d + 1, d] of each of :data:`~.watch.VECTORS` that is known: the sum of
            its vectors and below it that of their products.
        pairs: how often the token of the query and that of its strongest key are which, by head;
            behind them the same of uniform attention by layer, in units of 2⁻²⁰.
    """

    def __init__(self, heads: Sequence[Head]) -> None:
        self.heads = tuple(heads)
        self.sites = tuple(chosen_by_site(heads))
        h, layers = len(self.heads), len(self.sites)
        self.rows = np.zeros(len(CLASSES), np.int64)
        self.histograms = Histograms.empty()
        self.written = Exact((h,))  # exact [H], sums of norms written
        self.by_class = Exact((h, len(CLASSES), len(KEY_CLASSES)))
        self.uniform_by_class = Exact((layers, len(CLASSES), len(KEY_CLASSES)))
        self.along, self.uniform_along = Exact((h, 2, BINS)), Exact((layers, 2, BINS))
        self.along_rows = np.zeros(BINS, np.int64)
        self.moments: dict[str, Exact] = {}
        self.pairs = Sketch(h + layers)
        self.sample = RowSample.empty(h, layers)  # rows drawn at random

    def exact(self) -> dict[str, Exact]:
        """Return the exact sums by their names in a file."""
        fixed = ("written", "by_class", "uniform_by_class", "along", "uniform_along")
        sums_by_name = {name: getattr(self, name) for name in fixed}
        return sums_by_name | {f"moments.{name}": sums for name, sums in self.moments.items()}

    def layer_of(self) -> NDArray[np.int64]:
        """[H], which of the layers each head is in."""
        return np.array([self.sites.index(head.site) for head in self.heads], np.int64)

    def merge(self, other: HeadSums) -> None:
        """Add what other texts add up to."""
        self.rows += other.rows
        self.along_rows += other.along_rows
        self.histograms.merge(other.histograms)
        for name, sums in other.moments.items():
            self.moments.setdefault(name, Exact(sums.whole.shape))
        mine = self.exact()
        for name, sums in other.exact().items():
            mine[name].merge(sums)
        self.pairs.merge(other.pairs)
        self.sample.merge(other.sample)


class TaskRows:
    """Adds up the rows of one task; sums in float64 become exact at its end."""

    def __init__(
        self,
        source: Source,
        heads: Sequence[Head],
        seed: int,
        rows: Threshold,
        full: Threshold,
        effects: bool,
    ) -> None:
        self._source, self._seed, self._effects = source, seed, effects
        self._rows, self._whole = rows, full
        self._sums = HeadSums(heads)
        self._layers = self._sums.layer_of()
        self._outputs = {site: source.output(site) for site in self._sums.sites}
        self._readout = source.readout()
        shapes = {name: sums.whole.shape for name, sums in self._sums.exact().items()}
        self._float = {name: np.zeros(shape) for name, shape in shapes.items()}
        self._values: list[tuple[NDArray[np.int64], Reals, Reals]] = []
        self._samples: list[RowSample] = []
        self._counted: dict[int, list[tuple[Hashes, NDArray[np.int64]]]] = defaultdict(list)

    def begin(
        self,
        batch: Sequence[Inputs],
        keys: Sequence[int],
        clusters: Sequence[tuple[str, str]],
        sentences: Sequence[Sentence | None],
    ) -> None:
        """Before a batch runs, which :attr:`watch` looks at."""
        self._bits = [
            hashes(key, item.length, self._seed) for key, item in zip(keys, batch, strict=True)
        ]
        self._keys = keys
        self._clusters = [(hashed(name), hashed(alike)) for name, alike in clusters]
        kind = self._sums.sites[0].kind
        traits = [
            TokenTraits(item.sides[kind].queries, sentence)
            for item, sentence in zip(batch, sentences, strict=True)
        ]
        full = [
            np.flatnonzero(self._whole.may_have(bits) & ~tokens.special)
            for bits, tokens in zip(self._bits, traits, strict=True)
        ]
        self.watch = RowWatch(batch, traits, full, self._sums.heads, self._outputs)

    def ran(self) -> None:
        """After its pass: effects of the rows that are kept whole; NaN for all others."""
        watch, heads = self.watch, self._sums.heads
        self._found: list[Reals] = [
            np.full((len(heads), item.length), np.nan) for item in watch.batch
        ]
        self._deviations: list[Reals] = [np.zeros(0)] * len(self._found)
        for n, (item, rows) in enumerate(zip(watch.batch, watch.whole, strict=True)):
            if self._effects and len(rows):
                slopes, self._deviations[n] = effects(self._source, item, heads, self._readout)
                self._found[n][:, rows] = slopes[:, rows]

    def add(self, item: int, window: SampledText) -> None:
        """Add one item of the batch that ran."""
        watch, sums, effect = self.watch, self._sums, self._found[item]
        traits, text = watch.traits[item], (self._keys[item], self._clusters[item], window)
        layers = [watch.layers[item, site] for site in sums.sites]
        counts = ~traits.special
        for layer in layers:
            counts = counts & (layer.choices >= 2)
        rows = np.flatnonzero(counts)
        if not len(rows):
            return

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(layer, name) for layer in layers])

        values = np.stack([joined("top"), joined("norm"), effect], 2)[:, rows]  # [H, n, 3]
        values = values.astype(np.float32)
        norms = joined("written")[:, rows]
        classes = traits.classes[rows].astype(np.int64)
        sums.rows += np.bincount(classes, minlength=len(CLASSES))
        self._add_values(values[..., :2], norms)  # effects are of whole rows alone
        self._float["written"] += np.nan_to_num(norms).sum(1, dtype=np.float64)
        one_hot = np.eye(len(CLASSES))[classes].T  # [Q, n]
        by_class = joined("by_class")[:, rows]
        self._float["by_class"] += one_hot @ by_class
        stretch = np.log2(rows + 1).astype(np.int64).clip(0, BINS - 1)
        bins = np.eye(BINS)[stretch].T  # [BINS, n]
        sums.along_rows += np.bincount(stretch, minlength=BINS)
        along = np.stack([joined("entropy"), joined("sink")], 2)[:, rows].astype(np.float64)
        self._float["along"] += (bins @ np.nan_to_num(along)).swapaxes(1, 2)
        names = token_keys(traits.tokens.texts)
        self._uniform(item, layers, rows, (one_hot, bins), names)
        for head, pairs in enumerate(paired(names[rows], names[joined("key")[:, rows]])):
            self._counted[head].append((pairs, np.ones(len(rows), np.int64)))
        self._moments(item, rows)
        self._sampled(item, rows, text, values, norms)

    def finished(self) -> HeadSums:
        """Return the sums of the task."""
        sums = self._sums
        if self._values:
            kinds, values, masses = (
                np.concatenate(column) for column in zip(*self._values, strict=True)
            )
            sums.histograms = Histograms.of(kinds, values, masses)
        for name in self._float:
            if name.startswith("moments."):
                sums.moments[name.partition(".")[2]] = Exact(self._float[name].shape)
        for name, exact in sums.exact().items():
            exact.add(self._float[name][None])
        for kind, several in self._counted.items():
            pairs, amounts = (np.concatenate(column) for column in zip(*several, strict=True))
            sums.pairs.add(kind, pairs, amounts)
        sums.sample.merge(*self._samples)
        return sums

    def _add_values(self, values: Reals, norms: Reals) -> None:
        heads, _, kinds = values.shape
        numbers = np.arange(heads)[:, None, None] * len(CRITERIA) + np.arange(kinds)
        numbers = np.broadcast_to(numbers, values.shape)
        masses = np.broadcast_to(np.nan_to_num(norms)[..., None], values.shape)
        finite = np.isfinite(values)
        self._values.append((numbers[finite], values[finite], masses[finite]))

    def _uniform(
        self,
        item: int,
        layers: Sequence[LayerRows],
        rows: NDArray[np.int64],
        hot: tuple[Reals, Reals],
        names: Hashes,
    ) -> None:
        """Work out what uniform attention would do in each layer; once for equal masks."""
        traits, h = self.watch.traits[item], len(self._sums.heads)
        features = self.watch.features[item]
        entries: list[tuple[LayerRows, Reals, Reals, tuple[Hashes, NDArray[np.int64]]]] = []
        for number, layer in enumerate(layers):
            cached = next((e for e in entries if np.array_equal(e[0].allowed, layer.allowed)), None)
            if cached is None:
                uniform = layer.allowed[rows] / layer.choices[rows, None]
                by_class = hot[0] @ (uniform @ features)
                sink = uniform[:, traits.sink].sum(1)
                along = np.stack([np.log2(layer.choices[rows]), sink])
                q, keys = np.nonzero(layer.allowed[rows])
                pairs, places = np.unique(paired(names[rows[q]], names[keys]), return_inverse=True)
                mass = np.bincount(places, uniform[q, keys], len(pairs))
                cached = (layer, by_class, along @ hot[1].T, (pairs, np.rint(mass * PAIR_UNIT)))
                entries.append(cached)
            self._float["uniform_by_class"][number] += cached[1]
            self._float["uniform_along"][number] += cached[2]
            self._counted[h + number].append((cached[3][0], cached[3][1].astype(np.int64)))

    def _moments(self, item: int, rows: NDArray[np.int64]) -> None:
        by_site = [self.watch.vectors(item, site) for site in self._sums.sites]
        for name in VECTORS:
            available = [vectors[name] for vectors in by_site if name in vectors]
            if len(available) < len(by_site) or len({array.shape[2] for array in available}) > 1:
                continue  # no common plane of these heads
            x = np.concatenate(available)[:, rows].astype(np.float64)
            sums = np.concatenate([x.sum(1)[:, None], x.swapaxes(1, 2) @ x], 1)
            total = self._float.setdefault(f"moments.{name}", np.zeros(sums.shape))
            total += sums

    def _sampled(
        self,
        item: int,
        rows: NDArray[np.int64],
        text: tuple[int, tuple[int, int], SampledText],
        values: Reals,
        norms: Reals,
    ) -> None:
        """Choose the rows that may be in the sample."""
        watch, sums = self.watch, self._sums
        traits = watch.traits[item]
        bits, deviations = self._bits[item], self._deviations[item]
        may = self._rows.may_have(bits[rows])
        full = set(rows[self._whole.may_have(bits[rows])].tolist())
        self._rows.add([bits[rows]])
        self._whole.add([bits[rows]])
        if not may.any():
            return
        chosen = rows[may]
        layers = [watch.layers[item, site] for site in sums.sites]
        targets = relations.targets(traits, chosen)  # [R, n, S]
        key = np.concatenate([layer.key for layer in layers])[:, chosen].T  # [n, H]
        hit = targets[:, np.arange(len(chosen))[:, None], key]  # [R, n, H]
        powers = (1 << np.arange(len(hit)))[:, None, None]
        chance = np.stack(
            [(targets & layer.allowed[chosen]).sum(-1) / layer.choices[chosen] for layer in layers]
        )  # [L, R, n]
        texts = np.array([name[:LONGEST_TOKEN] for name in traits.tokens.texts], object)
        columns = {
            "hash": bits[chosen],
            "text": np.full(len(chosen), text[0], np.uint64),
            "cluster": np.full(len(chosen), text[1][0], np.uint64),
            "alike": np.full(len(chosen), text[1][1], np.uint64),
            "row": chosen.astype(np.int32),
            "condition": relations.conditions(traits)[chosen],
            "query_class": traits.classes[chosen],
            "query": texts[chosen],
            "choices": np.stack([layer.choices[chosen] for layer in layers], 1).astype(np.int32),
            "chance": chance.transpose(2, 0, 1).astype(np.float32),
            "key": key.astype(np.int32),
            "hits": (hit * powers).sum(0).astype(np.int64),
            "key_class": traits.classes[key],
            "name": texts[key],
            "values": values[:, may].swapaxes(0, 1),
            "written": norms[:, may].T.astype(np.float32),
        }
        sample = RowSample(columns)
        if full:
            by_site = [watch.vectors(item, site) for site in sums.sites]
            ids = traits.tokens.ids
            for index, row in enumerate(watch.whole[item].tolist()):
                if row not in full:
                    continue
                weights = np.concatenate([layer.weights[:, index] for layer in layers])
                sample.whole[int(bits[row])] = WholeRow(
                    np.rint(weights * 65535).astype(np.uint16),
                    {
                        name: np.concatenate([vectors[name][:, row] for vectors in by_site])
                        for name in VECTORS
                        if f"moments.{name}" in self._float
                    },
                    float(deviations[row]) if len(deviations) else float("nan"),
                    int(ids[row + 1]) if row + 1 < len(ids) else -1,
                )
            sample.texts[text[0]] = text[2]
        self._samples.append(sample)
        if len(self._samples) > 64:
            self._sums.sample.merge(*self._samples)
            self._samples.clear()
