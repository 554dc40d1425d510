"""From sums and sampled rows to what is said of each head.

What rows of heads write, and what their matrices meet and write, read out in tokens.

A row adds z_i W_O to the residual stream, and with the last normalization's σ as it was there that
adds γ ⊙ (p - mean p) / σ · W_U to the logits (docs/logits.md). A head's matrices are read through
the normalization before them, all but its σ: W_QK = N W_Q W_Kᵀ Nᵀ says which tokens meet, W_OV = N
W_V W_O what is written for what is read; of each the singular directions with the largest values
are named by the token embeddings that lie farthest along them (Millidge & Black 2022, "The singular
value decompositions of transformer weight matrices are highly interpretable"). Heads of later
layers read more than embeddings, so that theirs are a first approximation.

Notation: n rows, d width of a head, D of the residual stream, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import moved
from attnviz.core import arrays
from attnviz.core.arrays import Array, Bools, Floats, array, converted, ends, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.provenance import own_name
from attnviz.core.scores import Role
from attnviz.core.source import Source
from attnviz.core.weights import Normalization, Readout
from attnviz.corpus.relations import (
    CLASSES,
    CONDITIONS,
    GOLD_CONDITIONS,
    GOLD_RELATIONS,
    PLACES,
    RELATIONS,
)
from attnviz.features.profile.parts import (
    Behaviours,
    Calibration,
    ClassWeight,
    Decile,
    Distribution,
    HeadDistribution,
    Plane,
    Residue,
    RowPoint,
    RowShare,
    RuleLeaf,
    SampledRow,
    SampledText,
    Singular,
    Stretch,
    TokenPair,
)
from attnviz.features.profile.sampled import rules
from attnviz.features.profile.sampled.sample import (
    CRITERIA,
    PAIR_UNIT,
    WHOLE,
    TokenShares,
    WholeRow,
    pair_keys,
    plane,
    second,
    specific,
)
from attnviz.features.profile.sampled.sums import HeadSums
from attnviz.features.profile.sampled.watch import BINS, KEY_CLASSES
from attnviz.statistics.clusters import LEVEL, ClusterSums, holm, one_sided
from attnviz.statistics.histogram import Histograms, none_if_nan, part_of, parts

DECILES = 10
EXAMPLES = 12  # rows that are shown of each decile
PAIRS = 12
_LEAST_PAIRS = 5  # rows in which a pair comes at least, beyond the error of its count
_SHOWN_TOKENS = 256  # tokens of a text that are shown at most, from those before a row on
_BEFORE = 191

Roles = Sequence[Sequence[Role]]


def distribution(sums: HeadSums, roles: Roles, tokens: Sequence[TokenShares]) -> Distribution:
    """Everything but what is read out in tokens."""
    shared, sample = _Shared(sums), sums.sample
    size = shared.whole
    heads = tuple(
        _Head(shared, number).described(roles[number], tokens[number])
        for number in range(len(sums.heads))
    )
    points = tuple(
        RowPoint(str(sample["query"][n]), CLASSES[sample["query_class"][n]], int(sample["row"][n]))
        for n in range(size)
    )
    unknown = not any("effect" in head.deciles for head in heads)
    return Distribution(
        heads,
        int(sums.rows.sum()),
        len(sample),
        size,
        shared.shown(),
        points,
        "it is not known" if unknown else "",
        "a state file has no model to read them out with; run the command itself",
    )


class _Shared:
    """What heads have in common, and the texts that are shown, or parts of long ones, each once."""

    def __init__(self, sums: HeadSums) -> None:
        sample = sums.sample
        self.sums, self.whole = sums, min(len(sample), WHOLE)
        self.chances = second(sample["hash"])
        # what each row counts with [n], and whether it is of the copy that counts [n]
        self.clusters, self.single = sample.independent()
        first = [sample.whole[bits].vectors for bits in sample["hash"][: self.whole].tolist()]
        self.vectors = {name: np.array([row[name] for row in first]) for name in sums.moments}
        self._sample, self._places = sample, dict[tuple[int, int], int]()

    def place(self, row: int) -> tuple[int, slice]:
        """Where the text of a sampled row is in the list, and which of its tokens are there."""
        key, position = int(self._sample["text"][row]), int(self._sample["row"][row])
        length = len(self._sample.texts[key].tokens)
        first = max(0, min(position - _BEFORE, length - _SHOWN_TOKENS))
        first -= first % 32  # rows near each other share a part
        index = self._places.setdefault((key, first), len(self._places))
        return index, slice(first, min(first + _SHOWN_TOKENS + 32, length))

    def shown(self) -> tuple[SampledText, ...]:
        """In the order of their places."""
        texts = []
        for key, first in self._places:
            text = self._sample.texts[key]
            tokens = text.tokens[first : first + _SHOWN_TOKENS + 32]
            texts.append(replace(text, place=own_name(text.place), first=first, tokens=tokens))
        return tuple(texts)


class _Head:
    """One head of the sums."""

    def __init__(self, shared: _Shared, number: int) -> None:
        sums, self._whole = shared.sums, shared.whole
        self._sums, self._number, self._shared = sums, number, shared
        self._clusters, self._single = shared.clusters, shared.single
        self._layer = int(sums.layer_of()[number])
        self._rows: dict[int, int] = {}
        sample = sums.sample
        gold = bool((sample["chance"][:, :, -GOLD_RELATIONS:] > 0).any())
        relations = len(RELATIONS) - (0 if gold else GOLD_RELATIONS)
        conditions = len(CONDITIONS) - (0 if gold else GOLD_CONDITIONS)
        self._made = rules.Rows(
            rules.unpacked(sample["hits"][:, number], relations),
            sample["chance"][:, self._layer, :relations].astype(np.float64),
            rules.unpacked(sample["condition"], conditions),
        )

    def described(self, roles: Sequence[Role], tokens: TokenShares) -> HeadDistribution:
        """Everything but what is read out in tokens."""
        sums, number = self._sums, self._number
        criteria = {name: kind for kind, name in enumerate(CRITERIA)}
        deciles = {name: self._deciles(kind) for name, kind in criteria.items()}
        behaviours = self._behaviours()
        calibrations = tuple(
            self._calibration(role, self._made.hits[:, PLACES[role.name]])
            for role in roles
            if role.name in PLACES
        )
        favoured, neglected = specific(tokens)
        return HeadDistribution(
            sums.heads[number],
            tuple(self._row(row) for row in self._rows),
            {name: several for name, several in deciles.items() if several},
            behaviours,
            calibrations,
            tuple(self._classes()),
            tuple(self._pairs()),
            sums.pairs.error(number),
            favoured,
            neglected,
            tuple(self._along()),
            dict(self._planes()),
            tuple(self._decile_of(0, np.arange(self._whole)).tolist()),
        )

    def _place(self, row: int) -> int:
        """Return the place of a sampled row among those that are shown."""
        return self._rows.setdefault(int(row), len(self._rows))

    def _histogram(self, kind: int) -> tuple[NDArray[np.int64], ...]:
        """Bins, counts and masses of a criterion: of all rows, of effects those of whole rows."""
        if CRITERIA[kind] != "effect":
            return self._sums.histograms.kind(self._number * len(CRITERIA) + kind)
        sample, first = self._sums.sample, slice(self._whole)
        values, norms = sample["values"][first, self._number, kind], sample["written"][first]
        finite = np.isfinite(values)
        masses = np.nan_to_num(norms[finite, self._number])
        return Histograms.of(np.zeros(len(masses), np.int64), values[finite], masses).kind(0)

    def _decile_of(self, kind: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        bins, counts, _ = self._histogram(kind)
        values = self._sums.sample["values"][rows, self._number, kind]
        if not len(bins):
            return np.zeros(len(rows), np.int64)
        return part_of(values, self._shared.chances[rows], bins, counts, DECILES)

    def _deciles(self, kind: int) -> tuple[Decile, ...]:
        bins, counts, masses = self._histogram(kind)
        if not len(bins):
            return ()
        bounds = parts(bins, counts, masses, DECILES)
        sampled = CRITERIA[kind] == "effect"
        total = bounds.masses.sum() if sampled else self._sums.written.value()[self._number]
        rows = np.arange(self._whole)
        rows = rows[np.isfinite(self._sums.sample["values"][rows, self._number, kind])]
        deciles = self._decile_of(kind, rows)
        return tuple(
            Decile(
                float(bounds.low[n]),
                float(bounds.high[n]),
                float(bounds.counts[n]),
                float(bounds.masses[n] / total) if total > 0 else None,
                tuple(self._place(row) for row in rows[deciles == n][:EXAMPLES]),
            )
            for n in range(DECILES)
        )

    def _row(self, row: int) -> SampledRow:
        sample, number = self._sums.sample, self._number
        text, window = self._shared.place(row)
        sampled = sample.whole[int(sample["hash"][row])]
        weight, norm, effect = (float(x) for x in sample["values"][row, number])
        hits = self._made.hits[row]
        weights = sampled.weights[number, window] * (1000 / 65535)
        return SampledRow(
            text,
            int(sample["row"][row]),
            int(sample["key"][row, number]),
            str(sample["name"][row, number]),
            weight,
            none_if_nan(norm),
            none_if_nan(float(sample["written"][row, number])),
            none_if_nan(effect),
            tuple(np.rint(weights).astype(int).tolist()),
            tuple(RELATIONS[n].name for n in np.flatnonzero(hits)),
        )

    def _share(self, holds: Bools, of: Bools, chance: NDArray[np.float64] | None) -> RowShare:
        """Return a share of sampled rows, with texts as clusters; copies of a row count once."""
        of = of & self._single
        rows = int(of.sum())
        if not rows:
            return RowShare(None, 0)
        sums = self._by_text(holds[of].astype(np.float64), of)
        value, half = float(holds[of].mean()), float(sums.half())
        expected = None if chance is None else float(chance[of].mean())
        if np.isnan(half):
            return RowShare(value, rows, expected)
        return RowShare(value, rows, expected, max(0.0, value - half), min(1.0, value + half))

    def _by_text(self, values: NDArray[np.float64], of: Bools) -> ClusterSums:
        """Return the sums of values of some rows, with texts as clusters."""
        texts, places = np.unique(self._clusters[of], return_inverse=True)
        a = np.bincount(places, values, len(texts)).astype(np.float64)
        return ClusterSums.of(a, np.bincount(places, minlength=len(texts)))

    def _kept(self, tree: rules.Tree, held_out: Bools) -> rules.Tree:
        """Leave out rules that do not surely beat chance on held-out rows (Holm, all heads)."""
        tried = [
            (leaf.path, rule, decided & held_out & self._single, holds)
            for leaf in rules.reached(tree, self._made)
            for rule, decided, holds in leaf.rules
        ]
        p = []
        for _, rule, of, holds in tried:
            sums = self._by_text(holds[of] - self._made.chance[of, rule], of)
            p.append(float(one_sided(sums.mean(), sums.error(), sums.freedom())))
        sure = holm(np.nan_to_num(p, nan=1.0)) * len(self._sums.heads) <= 1 - LEVEL
        keep = {(path, rule) for (path, rule, *_), stays in zip(tried, sure, strict=True) if stays}
        return rules.pruned(tree, keep)

    def _behaviours(self) -> Behaviours:
        """Rules from one half of the texts, measured on the other."""
        texts = self._clusters
        held_out = (texts & np.uint64(1)) > 0
        chosen_rows = self._made.of(~held_out & self._single)
        tree = self._kept(rules.grown(chosen_rows), held_out)
        held_out &= self._single
        leaves = rules.reached(tree, self._made)
        holding = {n: holds & held_out for n, holds in rules.behaviours_of(leaves).items()}
        chance = self._made.chance
        shares = {
            RELATIONS[n].name: self._share(holds, held_out, chance[:, n])
            for n, holds in sorted(holding.items(), key=lambda pair: (-int(pair[1].sum()), pair[0]))
        }
        explained = np.zeros(len(texts), np.bool_)
        for holds in holding.values():
            explained |= holds
        leaf_records = tuple(
            RuleLeaf(
                tuple((CONDITIONS[n].name, holds) for n, holds in leaf.path),
                float(leaf.rows[held_out].mean()) if held_out.any() else 0.0,
                tuple(
                    (
                        RELATIONS[n].name,
                        self._share(holds & held_out, decided & held_out, chance[:, n]),
                    )
                    for n, decided, holds in leaf.rules
                ),
            )
            for leaf in leaves
        )
        return Behaviours(
            len(chosen_rows),
            int(held_out.sum()),
            shares,
            self._share(~explained, held_out, None),
            leaf_records,
        )

    def _calibration(self, role: Role, holds: Bools) -> Calibration:
        relation = PLACES[role.name]
        chance = self._made.chance[:, relation]
        possible = (chance > 0) & (chance < 1)
        misses = possible & ~holds
        return Calibration(
            role.title,
            self._share(holds, possible, chance),
            float(possible.mean()) if len(possible) else 0.0,
            tuple(self._residue(misses, relation)),
        )

    def _residue(self, misses: Bools, relation: int) -> Iterator[Residue]:
        """Rows in groups of their own: by rules that are found on them, else by class of key."""
        total = int(misses.sum())
        if not total:
            return
        rows_left = self._made.of(misses)
        hits = rows_left.hits.copy()
        hits[:, relation] = False
        chosen, _ = rules.listed(
            rules.Rows(hits, rows_left.chance, rows_left.conditions), max(3, round(0.05 * total))
        )
        unexplained = misses.copy()
        groups: list[tuple[int, str, bool, Bools]] = []
        for n in chosen:
            group_rows = unexplained & self._made.hits[:, n]
            groups.append((int(group_rows.sum()), RELATIONS[n].name, True, group_rows))
            unexplained &= ~group_rows
        classes = self._sums.sample["key_class"][:, self._number]
        for n, name in enumerate(CLASSES):
            group_rows = unexplained & (classes == n)
            if group_rows.any():
                groups.append((int(group_rows.sum()), name, False, group_rows))
        for count, name, related, group_rows in sorted(groups, key=lambda group: -group[0]):
            examples = np.flatnonzero(group_rows[: self._whole])[:3]
            yield Residue(name, related, count / total, tuple(self._place(n) for n in examples))

    def _classes(self) -> Iterator[ClassWeight]:
        sums = self._sums
        weight = sums.by_class.value()[self._number]
        uniform = sums.uniform_by_class.value()[self._layer]
        for q, query in enumerate(CLASSES):
            rows = int(sums.rows[q])
            for k, key in enumerate(KEY_CLASSES):
                if rows and uniform[q, k] > 0:
                    yield ClassWeight(
                        query, key, float(weight[q, k] / rows), float(uniform[q, k] / rows), rows
                    )

    def _pairs(self) -> Iterator[TokenPair]:
        """Those that come more often than uniform attention explains, by how much more."""
        sums, number = self._sums, self._number
        sample = sums.sample
        names = dict.fromkeys(
            zip(sample["query"].tolist(), sample["name"][:, number].tolist(), strict=True)
        )
        layer, error = len(sums.heads) + self._layer, sums.pairs.error(number)
        keys = pair_keys(list(names))
        counts = sums.pairs.count(number, keys).tolist()
        uniform = (sums.pairs.count(layer, keys) / PAIR_UNIT).tolist()
        pairs = []
        for (query, key), rows, expected in zip(names, counts, uniform, strict=True):
            if rows - error >= _LEAST_PAIRS and rows - error > expected > 0:
                pairs.append(TokenPair(query, key, rows, expected, rows / expected))
        pairs.sort(key=lambda pair: (pair.expected - pair.rows, pair.query, pair.key))
        yield from pairs[:PAIRS]

    def _along(self) -> Iterator[Stretch]:
        sums = self._sums
        means = sums.along.value()[self._number]
        uniform = sums.uniform_along.value()[self._layer]
        for n in range(BINS):
            rows = int(sums.along_rows[n])
            if rows:
                figures = (
                    float(x[n] / rows) for pair in zip(means, uniform, strict=True) for x in pair
                )
                yield Stretch((1 << n) - 1, (1 << (n + 1)) - 2, rows, *figures)

    def _planes(self) -> Iterator[tuple[str, Plane]]:
        for name, moments in self._sums.moments.items():
            sums = moments.value(self._number)
            axes, mean, variance = plane(sums, int(self._sums.rows.sum()))
            if self._whole:
                points = self._shared.vectors[name][:, self._number].astype(np.float64)
                coordinates = np.rint((points - mean) @ axes * 1e4) / 1e4
                yield name, Plane(variance, tuple((x, y) for x, y in coordinates.tolist()))


WORDS = 5  # tokens that a row raised most, and lowered
DIRECTIONS = 4  # singular directions that are named, of each matrix
ENDS = 6  # tokens at each end of one
_AT_ONCE = 1 << 24  # logits that are in memory together


_HEAD = "its LM head has several layers, and what these leave of a row is not kept for every row"
_OVER = (
    "its layers normalize the sums, and the scales of these, which what a row wrote goes through, "
    "are not kept for every row"
)


def with_words(distribution: Distribution, sums: HeadSums, source: Source) -> Distribution:
    """Return the same with what the model alone can say."""
    readout = source.readout()
    if readout.over or readout.head is not None:
        readout = Readout(None, reason=_OVER if readout.over else _HEAD)
    sample = sums.sample
    keys = {
        (text.number, own_name(text.place), text.window): key for key, text in sample.texts.items()
    }
    windows = [keys[text.number, text.place, text.window] for text in distribution.texts]
    first = (sample[name][:WHOLE].tolist() for name in ("text", "row", "hash"))
    sampled = {(text, row): sample.whole[bits] for text, row, bits in zip(*first, strict=True)}
    vocabulary = _Vocabulary(source, readout)
    heads = []
    for number, head in enumerate(distribution.heads):
        rows = [sampled[windows[row.text], row.row] for row in head.rows]
        qk, ov = vocabulary.directions(head.head)
        read = vocabulary.read(head, [(row, row.vectors["z"][number]) for row in rows])
        heads.append(replace(head, rows=read, qk=qk, ov=ov))
    reason = readout.reason if readout.table is None else ""
    return replace(distribution, heads=tuple(heads), no_words=reason)


class _Vocabulary:
    """The tokens of a model as its heads read and write them."""

    def __init__(self, source: Source, readout: Readout) -> None:
        self._source, self._readout = source, readout
        self._texts: dict[int, str] = {}
        self._embedded: Floats | None = None
        self._raising: Floats | None = None
        self._read: tuple[Site, Floats] | None = None  # of the layer that was asked for last
        embedding = source.embedding()
        if embedding.tokens is not None:
            self._embedded = _double(embedding.tokens)
            if embedding.norm is not None:
                self._embedded = _divided(embedding.norm, self._embedded)
                self._embedded = self._embedded * _double(embedding.norm.scale)
        if readout.table is not None and readout.scale is not None:
            self._raising = _double(readout.table) * _double(readout.scale)
            if readout.centred:
                self._raising -= self._raising.mean(-1, keepdims=True)

    def read(
        self, head: HeadDistribution, sampled: Sequence[tuple[WholeRow, NDArray[np.float32]]]
    ) -> tuple[SampledRow, ...]:
        """Give a head's rows with the tokens that they raised and lowered; each with z [d]."""
        readout, output = self._readout, self._source.output(head.head.site).weight
        sigmas = np.array([row.sigma for row, _ in sampled])
        if readout.table is None or output is None or not len(sampled):
            return head.rows
        if not np.isfinite(sigmas).all():
            return head.rows
        assert readout.scale is not None
        parts = np.array([z for _, z in sampled], np.float64) @ _double(output[head.head.index])
        if readout.centred:
            parts = parts - parts.mean(-1, keepdims=True)
        states = parts * _double(readout.scale) / sigmas[:, None]
        rows: list[SampledRow] = []
        step = max(1, _AT_ONCE // len(readout.table))
        for first in range(0, len(states), step):
            chunk = slice(first, first + step)
            rises = to_numpy(moved(readout, converted(array(states[chunk]), readout.table)))
            highest, lowest = ends(rises, WORDS)
            following = [row.next for row, _ in sampled[chunk]]
            self._learn([*highest.ravel().tolist(), *lowest.ravel().tolist(), *following])
            for row, rise, raised, lowered, follows in zip(
                head.rows[chunk], rises, highest.tolist(), lowest.tolist(), following, strict=True
            ):
                rows.append(
                    replace(
                        row,
                        raises=self._named(raised),
                        lowers=self._named(lowered),
                        next=self._texts.get(follows),
                        added=float(rise[follows]) if 0 <= follows < len(rise) else None,
                    )
                )
        return tuple(rows)

    def directions(self, head: Head) -> tuple[tuple[Singular, ...], tuple[Singular, ...]]:
        """Of W_QK and W_OV of a head; none where a matrix is not known."""
        reading, output = self._source.reading(head.site), self._source.output(head.site)
        if self._embedded is None:
            return (), ()
        qk: tuple[Singular, ...] = ()
        ov: tuple[Singular, ...] = ()
        heads = self._source.layout.heads[head.site.kind][head.layer]
        if self._read is None or self._read[0] != head.site:
            self._read = head.site, _divided(reading.norm, self._embedded)
        read = self._read[1]
        if reading.query is not None and reading.key is not None:
            query = _folded(reading.norm, reading.query[head.index])
            key = _folded(reading.norm, reading.key[head.index // (heads // len(reading.key))])
            qk = self._directions(query, key, read, read)
        if reading.value is not None and output.weight is not None and self._raising is not None:
            group = head.index // (heads // len(reading.value))
            value = _folded(reading.norm, reading.value[group])
            output_weight = _double(output.weight[head.index]).T
            ov = self._directions(value, output_weight, read, self._raising)
        return qk, ov

    def _directions(
        self, first: Floats, second: Floats, read: Floats, raised: Floats
    ) -> tuple[Singular, ...]:
        """Return the largest singular directions of ``first`` @ ``second``.T, [D, d] each."""
        u, sizes, v = singular(first, second)
        total = max(float((sizes**2).sum()), 1e-300)
        largest = max(float(sizes[0]), 1e-300)
        count = min(DIRECTIONS, len(sizes))
        ends_of = ends((read @ u[:, :count]).T, ENDS), ends((raised @ v[:, :count]).T, ENDS)
        sides = [side for pair in zip(*ends_of, strict=True) for side in pair]
        self._learn(np.concatenate([side.ravel() for side in sides]).tolist())
        named = ([self._named(row) for row in side.tolist()] for side in sides)
        return tuple(
            Singular(float(size / largest), float(size**2 / total), *texts)
            for size, *texts in zip(sizes[:count], *named, strict=True)
        )

    def _learn(self, ids: Iterable[int]) -> None:
        """Have the texts of tokens; ids below 0 stand for none."""
        new = sorted({id_ for id_ in ids if id_ >= 0} - self._texts.keys())
        self._texts.update(zip(new, self._source.tokens(new).texts, strict=True))

    def _named(self, ids: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._texts[id_] for id_ in ids)


def singular(first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """Decompose ``first`` @ ``second``.T by QR: [D, d], values [d], [D', d]; firsts point up."""
    q1, r1 = np.linalg.qr(first)
    q2, r2 = np.linalg.qr(second)
    u, sizes, v = np.linalg.svd(r1 @ r2.T)
    u, v = q1 @ u, q2 @ v.T
    signs = np.sign(np.take_along_axis(u, abs(u).argmax(0)[None], 0))
    signs[signs == 0] = 1
    return u * signs, sizes, v * signs


def _double(x: Array | None) -> Floats:
    assert x is not None
    return to_numpy(arrays.exact(x))


def _folded(norm: Normalization | None, weight: Array) -> Floats:
    """Return what reads normalized states as what reads them but for σ, [D, d]."""
    exact = _double(weight)
    return exact if norm is None else _double(norm.scale)[:, None] * exact


def _divided(norm: Normalization | None, x: Floats) -> Floats:
    """(x - mean x) / σ, [V, D], without γ and β."""
    if norm is None:
        return x
    x = x - x.mean(-1, keepdims=True) if norm.centred else x
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps)
