"""Which bug an attention module has, told from a trace of one call.

Which token each row and key of a map is of, is told by moving one token of the input at a time;
which numbers meet in a product, by the places that views give them. So heads may be laid out in any
way: what must hold is that a map has the tokens of one item as its queries and as its keys, that
softmax runs over the axis that the values are summed over, that the scale is 1/√d, that what is
masked has no weight, and that a token's output is made of that token's rows. A bug is named only
where one of these is broken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnviz.features.check import anatomy
from attnviz.features.check.anatomy import Attention
from attnviz.features.check.module import find_rotary_bugs
from attnviz.features.check.result import Bug
from attnviz.features.check.trace import Change, Recorded

_DROPOUT = {"native_dropout", "bernoulli", "bernoulli_", "rand_like", "_fused_dropout"}
_FAINT = -20.0  # A mask must lower a score by more than that; e^-20 is 2e-9
_ZERO = 1e-12  # weights below that count as none


@dataclass(eq=False)
class Diagnosis:
    """What is wrong with the attention of one call, and what is not known."""

    bugs: list[Bug] = field(default_factory=list)  # by name
    # what mends each, by its name
    changes: dict[str, dict[int, Change]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is unusual and right
    failed: list[str] = field(default_factory=list)  # tests that fail without a name for it


@dataclass(frozen=True)
class Expected:
    """What was asked of the module, as far as it is known."""

    heads: int | None = None  # how many heads it is to have; None for any
    causal: bool | None = None  # whether a query must not see later tokens; None where nothing says
    # bool [T, S], True for what a mask that was handed in allows; None for none
    masked: Tensor | None = None
    cross: bool = False  # whether keys are of another input
    # of rotary positions, as the module names it; None where it names none
    base: float | None = None


class Doctor:
    """Looks at one call."""

    def __init__(self, call: Recorded, expected: Expected) -> None:
        self.call, self.expected = call, expected
        self.result = Diagnosis()
        self.tokens = call.tokens
        self.attentions, self.others = anatomy.find_attention(call)

    def diagnose(self) -> Diagnosis:
        """Everything that is wrong."""
        if any(node.name in _DROPOUT for node in self.call.nodes):
            self._add(Bug.of("dropout"))
            return self.result
        if any(reason.endswith(anatomy.TWICE) for reason in self.others):
            self._add(Bug.of("softmax twice"))
            return self.result
        for attention in self.attentions:
            self._look_at(attention)
        if self.attentions and not self.result.bugs:
            self._merge()
        if self.attentions and not self.result.bugs:
            self._batches()
        return self.result

    def _add(self, bug: Bug, mend: Mapping[int, Change] | None = None) -> None:
        """Note a bug, with what mends it; of several of one name the first is told."""
        if bug.name not in self.result.changes:
            self.result.bugs.append(bug)
        self.result.changes.setdefault(bug.name, {}).update(mend or {})

    def _look_at(self, attention: Attention) -> None:
        softmax = attention.softmax
        summed = attention.summed_axes
        if attention.dim not in summed:
            axis = next(iter(summed), softmax.value.ndim - 1)
            bug = Bug.of("axis", dim=attention.dim, axis=axis, last=axis - softmax.value.ndim)
            self._add(bug, {softmax.number: _constant(attention.scores.value.softmax(axis))})
            return
        if self._layout(attention):
            return
        self._scale(attention)
        self._mask(attention)
        self._after(attention)
        self._shared(attention)
        base, cross = self.expected.base, self.expected.cross
        for bug in find_rotary_bugs(self.call, attention, base, cross=cross):
            self._add(bug)

    # which tokens meet

    def _layout(self, attention: Attention) -> bool:
        """Whether the axes of heads, tokens and batch are confused; says so."""
        sides = "KQ" if attention.keys_are_left else "QK"
        several = [bool((touched.sum(0) > 1).any()) for touched in attention.tokens_of_sides]
        mixed = [name for name in "QK" if several[sides.index(name)]]
        rows, keys = attention.tokens
        values = attention.value_tokens
        if mixed and self._mixed_before(attention):
            self.result.failed.append(
                "queries or keys are of several tokens before they meet (a layer or a convolution "
                "stands before): check the attention by itself"
            )
            return True
        if mixed:
            view = Bug.of("view/vectors", sides=" and ".join(mixed))
            self._add(Bug.of("transpose") if mixed == ["K"] else view)
            return True
        if bool((values == -1).any()) and self._mixed_before(attention):
            self.result.failed.append(
                "values are of several tokens before they are read: check the attention by itself"
            )
            return True
        if bool((values == -1).any()):
            self._add(Bug.of("view/values"))
            return True
        named = [name for name, tokens in (("Q", rows), ("K", keys)) if self._wrong(tokens, name)]
        if self._wrong(values[:, None], "V"):
            named.append("V")
        if named:
            self._confused(attention, named)
            return True
        real = keys[:, 0] >= 0
        if values.shape == keys[:, 0].shape and bool(
            (values != keys[:, 0])[real & (values >= 0)].any()
        ):
            self._add(Bug.of("values"))
            return True
        return False

    def _mixed_before(self, attention: Attention) -> bool:
        """Whether a vector is of several tokens already where it leaves its projection."""
        for factor in (*attention.sides, attention.values):
            if factor.source is None:
                continue
            projection, *_ = anatomy.back_to_projection(self.call, factor.source)
            if projection is None:
                return True
            rows = self.call.touched(projection).any(-1).sum(0)
            if bool((rows > 1).any()):
                return True
        return False

    def _wrong(self, tokens: Tensor, name: str) -> bool:
        """Whether a map has not each token of one item equally often; [N, queries, keys]."""
        for grid in tokens:
            line = grid[:, 0] if name == "Q" else grid[0]
            line = line[line >= 0]
            if not len(line):
                continue
            items = {self.tokens[t][:2] for t in line.tolist()}
            counts = torch.bincount(line)
            counts = counts[counts > 0]
            number = self.tokens[int(line[0])][0]
            length = self.call.inputs[number].shape[1]
            if len(items) > 1 or len(counts) != length or len(set(counts.tolist())) > 1:
                return True
        return False

    def _confused(self, attention: Attention, sides: list[str]) -> None:
        """Say how the tokens of a map are confused; of queries, keys or values."""
        keys = attention.tokens[1][:, 0]
        tokens = max(keys, key=lambda of_map: len(set(of_map.tolist())))  # of some map most
        items, positions = attention.places(tokens)
        several = len(set(items.tolist())) > 1
        if several and len(set(positions.tolist())) == 1:
            self._add(Bug.of("batch_first"))
        elif several:
            self._add(Bug.of("view/items"))
        elif len(set(tokens.tolist())) == 1:
            self._add(Bug.of("heads/tokens"))
        else:
            self._add(Bug.of("view/tokens", sides=" and ".join(sides)))

    # scale, mask, weights

    def _scale(self, attention: Attention) -> None:
        width, factor = attention.width, attention.factor
        if factor is None:
            self.result.notes.append(
                "queries or keys are normalized or scaled by what is learned, so that the scale is "
                "not judged"
            )
            return
        right = 1 / math.sqrt(width)
        if math.isclose(factor, right, rel_tol=1e-5):
            return
        if attention.biased and math.isclose(factor, 1.0, rel_tol=1e-5):
            self.result.notes.append("scores are not scaled, and have a position bias, as T5's")
            return
        model = int(self.call.inputs[0].shape[-1])
        heads, keys = self.expected.heads or model // width, attention.met.shape[-1]
        names = {
            1 / math.sqrt(heads): f"scores are divided by √H = √{heads}, not by √d = √{width}",
            1.0: "scores are not scaled",
            1 / width: f"scores are divided by d = {width}, not by its root",
            math.sqrt(width): f"scores are multiplied by √d = √{width}",
            float(width): f"scores are multiplied by d = {width}",
            1 / math.sqrt(model): f"scores are divided by √D = √{model}, not by √d = √{width}",
            1 / model: f"scores are divided by D = {model}",
            width**-0.25: "scores are divided by the fourth root of d: one of Q and K is scaled",
            1 / math.sqrt(keys): f"scores are divided by √S = √{keys}, not by √d = √{width}",
        }
        values = int(attention.applied.value.shape[-1 if attention.side == 0 else -2])
        if values != width:
            names[1 / math.sqrt(values)] = (
                f"scores are divided by √{values}, the width of a value, not by √{width}, that of "
                "a query and a key"
            )
        for wrong, text in names.items():
            if math.isclose(factor, wrong, rel_tol=1e-5):
                bug = Bug.of("scale", text=text, width=width, root=math.sqrt(width))
                self._add(bug, {attention.product.number: lambda value: value * (right / factor)})
                return
        self.result.notes.append(
            f"scores are multiplied by {factor:.4g}; 1/√d would be {right:.4g}"
        )

    def _allowed(self, attention: Attention) -> Tensor | None:
        """Return what may be attended to, bool [N, T, S]; None where nothing says."""
        rows, keys, real = attention.pairs
        if self.expected.masked is not None:
            mask = self.expected.masked
            if mask.ndim == 3:  # of every item
                items = attention.places(attention.tokens[1])[0]
                return mask[items.clamp_min(0), rows.clamp_min(0), keys.clamp_min(0)] | ~real
            return mask[rows.clamp_min(0), keys.clamp_min(0)] | ~real
        if self.expected.causal:
            return (keys <= rows) | ~real
        return None

    def _mask(self, attention: Attention) -> None:
        """Judge what masks do, against what they should."""
        rows, keys, real = attention.pairs
        if int(rows.max()) < 1 or not bool((rows != keys).any()):
            return
        places = attention.met_places.clamp_min(0)
        weights = attention.softmax.value.reshape(-1)[places]
        scores = attention.scores.value.reshape(-1)[places]
        moved = self.call.touched(attention.scores).any(0).reshape(-1)[places]
        attended = (weights > _ZERO) & real
        fixed = ~moved & real  # scores that no token moves
        if bool(weights.isnan().any()):
            self._without_keys(attention, weights, (fixed | ~scores.isfinite()))
            return
        faint = fixed & attended & (scores > _FAINT)
        if bool(faint.any()) and bool(moved[real].any()):
            self._filled(attention, faint, float(scores[faint][0]))
            return
        allowed = self._allowed(attention)
        if allowed is None:
            self._hinted(attention, rows, keys, attended, real)
        else:
            self._against(attention, attended, allowed)

    def _without_keys(self, attention: Attention, weights: Tensor, blocked: Tensor) -> None:
        """Rows of NaN: every key of theirs is blocked."""
        rows, keys, real = attention.pairs
        if bool(blocked[real & (keys >= rows)].all()):
            self._off_by_one(attention, "its own token is masked too, so that the first row has no "
                             "key and becomes NaN")  # fmt: skip
            return
        self._add(Bug.of("no key", count=int(weights.isnan().any(-1)[0].sum())))

    def _filled(self, attention: Attention, faint: Tensor, value: float) -> None:
        """Masked scores that keep a weight."""
        rows, keys, real = attention.pairs
        below = (faint == ((keys < rows) & real)) | (faint == ((keys <= rows) & real))
        if bool((faint <= (keys > rows)).all()):
            self._add(Bug.of("fill/later", value=value), self._masked_right(attention))
        elif bool(below.all()):
            self._add(Bug.of("inverted/weak"), self._masked_right(attention))
        else:
            self._add(Bug.of("fill/weak", value=value))

    def _against(self, attention: Attention, attended: Tensor, allowed: Tensor) -> None:
        """Compare what has a weight with what may have one; bool [N, T, S] both."""
        rows, keys, real = attention.pairs
        eye, later = keys == rows, (keys > rows) & real
        leaks, lost = attended & ~allowed & real, ~attended & allowed & real
        causal = bool(self.expected.causal)
        second = rows > 0  # with all of its keys at -1e9, the first row is uniform
        if not bool(leaks.any()):
            if causal and bool(lost.any()) and bool((lost <= eye).all()):
                self._off_by_one(attention, "a token does not see itself")
        elif not bool((attention.met.abs() > _ZERO)[leaks].any()):
            return  # taken away behind softmax, which is said there
        elif causal and bool((attended == ((keys < rows) & real))[second].all()):
            self._off_by_one(attention, "a token does not see itself, and the first sees them all")
        elif causal and bool((leaks <= (keys == rows + 1)).all()):
            self._off_by_one(attention, "each token sees the next one")
        elif causal and bool((attended == (later | eye & real)).all() or (attended == later).all()):
            self._add(Bug.of("inverted"), self._masked_right(attention))
        elif self._by_head(attention, attended, real):
            return
        elif causal and bool(attended[real].all()):
            self._add(Bug.of("no mask"), self._masked_right(attention))
        else:
            self.result.failed.append("a mask does not block what it is to block")

    def _by_head(self, attention: Attention, attended: Tensor, real: Tensor) -> bool:
        """Whether a mask falls on some maps alone, as one that broadcasts over the wrong axis."""
        bare = attended.masked_fill(~real, True).flatten(1).all(1)
        if bool(bare.any()) and not bool(bare.all()):
            bug = Bug.of("mask axis", bare=int(bare.sum()), maps=len(bare))
            self._add(bug, self._masked_right(attention))
            return True
        return False

    def _off_by_one(self, attention: Attention, text: str) -> None:
        self._add(Bug.of("off by one", text=text), self._masked_right(attention))

    def _masked_right(self, attention: Attention) -> dict[int, Change]:
        """Return the softmax with the raw scores masked as they should be."""
        rows, keys, real = attention.pairs
        wrong = torch.zeros(attention.softmax.value.numel(), dtype=torch.bool)
        places = attention.met_places.clamp_min(0)
        wrong[places[(keys > rows) & real]] = True
        raw = attention.product.value.reshape(-1)[attention.score_places.clamp_min(0)]
        scale = 1 / math.sqrt(attention.width)
        factor = attention.factor if attention.factor is not None else scale
        # what of the scale lies in Q and K already, before their product
        sides = [side.source for side in attention.sides if side.source is not None]
        before = math.prod(anatomy.back_to_projection(self.call, side)[1] for side in sides)
        scores = raw * (factor / before)
        masked = scores.masked_fill(wrong.reshape(scores.shape), -torch.inf)
        return {attention.softmax.number: _constant(masked.softmax(attention.dim))}

    def _hinted(
        self, attention: Attention, rows: Tensor, keys: Tensor, attended: Tensor, real: Tensor
    ) -> None:
        """Without a word on masks: what a triangle that is not whole says."""
        eye, later, earlier = (real & mask for mask in (keys == rows, keys > rows, keys < rows))
        if not bool(attended[later].any()):
            if not bool(attended[eye].any()):
                self._off_by_one(attention, "a token does not see itself")
        elif bool(attended[real].all()):
            return
        elif bool((attended & later <= (keys == rows + 1)).all()):
            if bool((attended & earlier & (keys < rows - 1)).any()):  # else a window to both sides
                self._off_by_one(attention, "each token sees the next one")
        elif not bool(attended[earlier].any()):
            self._add(Bug.of("inverted"), self._masked_right(attention))
        else:
            self._by_head(attention, attended, real)

    def _after(self, attention: Attention) -> None:
        """Whether weights are changed between softmax and values."""
        real = attention.met_places >= 0
        weights = attention.softmax.value.reshape(-1)[attention.met_places.clamp_min(0)]
        met = attention.met
        if met.shape != weights.shape or bool(weights.isnan().any()):
            return
        changed = ((met - weights).abs() > 1e-9) & real
        if not bool(changed.any()):
            return
        sums = met.sum(-1)
        zeroed = (met.abs() <= _ZERO) & (weights > _ZERO)
        if bool(zeroed.any()) and bool((changed <= zeroed).all()):
            rows, keys, _ = attention.pairs
            mend = self._masked_right(attention) if bool((zeroed <= (keys > rows)).all()) else {}
            self._add(Bug.of("mask after softmax", low=float(sums.min())), mend)
        elif bool(zeroed.any()) and bool(((sums - 1).abs() < 1e-6).all()):
            self.result.notes.append("weights are masked after softmax and brought back to sum 1")
        elif not bool(((sums - 1).abs() < 1e-6).all()):
            softmax, places = attention.softmax, attention.weight_places.clamp_min(0)
            right = {attention.weights.number: _constant(softmax.value.reshape(-1)[places])}
            bug = Bug.of("weights changed", low=float(sums.min()), high=float(sums.max()))
            self._add(bug, {} if attention.weights is softmax else right)
        else:
            self.result.notes.append("weights are changed after softmax, and still sum to 1")

    def _shared(self, attention: Attention) -> None:
        """Whether queries and keys are the same numbers."""
        left, right = attention.sides
        a, b = left.tensor, right.tensor.transpose(-1, -2)
        if a.shape != b.shape or self.expected.cross or a.shape[-2] < 2:
            return
        if attention.projections == (None, None):
            self.result.notes.append("queries and keys are what the module is given, with no "
                                    "matrix of its own")  # fmt: skip
            return
        ratio = a / b
        finite = ratio[ratio.isfinite()]
        if finite.numel() and bool(((finite - finite[0]).abs() < 1e-9).all()):
            self._add(Bug.of("one matrix"))

    # what becomes of head outputs

    def _merge(self) -> None:
        reached: list[Tensor] = []
        last = self.call.inputs[0].shape[1] - 1
        for first in self.attentions:
            later = [a for a in self.attentions if a.softmax.number > first.applied.number]
            if self.call.moves(first.applied, [a.scores for a in later]):
                self.result.failed.append(
                    "one layer reads what another's attention gives: check the attention by itself"
                )
                return
        for attention in self.attentions:
            outputs = attention.laid(attention.applied.value)
            rows = attention.tokens[0].amax(-1)  # [N, queries]
            for item, position in ((0, 1), (1, last), (0, 3)):
                token = next(
                    (n for n, t in enumerate(self.tokens) if t[1:] == (item, position)), None
                )
                places = rows.eq(-3 if token is None else token)[..., None]
                places = places.expand(anatomy.as_batch(outputs).shape)
                if not bool(places.any()):
                    continue
                marked = attention.laid(places.reshape(outputs.shape))
                moved = self.call.moved(attention.applied, marked)
                reached_tokens = {(int(b), int(t)) for b, t in moved.any(-1).nonzero().tolist()}
                if reached_tokens - {(item, position)} or not reached_tokens:
                    self._merged_wrong(reached_tokens, item, position)
                    return
            reached += self._channels(attention, rows, outputs)
        if len(reached) > 1 and bool((torch.stack(reached).sum(0) <= 1).all()):
            self._add(Bug.of("no W_O"))  # no channel is moved by two heads

    def _merged_wrong(self, reached: set[tuple[int, int]], item: int, position: int) -> None:
        if not reached:
            self._add(Bug.of("unused/heads"))
            return
        positions = sorted(t for _, t in reached if (_, t) != (item, position))
        tokens = f"tokens {', '.join(map(str, positions[:4]))}"
        places = tokens if positions else "another item"
        self._add(Bug.of("merge", position=position, places=places))

    def _channels(self, attention: Attention, rows: Tensor, outputs: Tensor) -> Iterator[Tensor]:
        """Which channels of one token's output each head moves, bool [D] each."""
        token = next(n for n, t in enumerate(self.tokens) if t[1:] == (0, 1))
        batched = anatomy.as_batch(outputs)
        for number, line in enumerate(rows):
            for row in (line == token).nonzero().flatten().tolist():
                places = torch.zeros(batched.shape, dtype=torch.bool)
                places[number, row] = True
                marked = attention.laid(places.reshape(outputs.shape))
                yield self.call.moved(attention.applied, marked)[0, 1]

    def _batches(self) -> None:
        touched = self.call.output_touched()
        for number, (_, item, _) in enumerate(self.tokens):
            items = touched[number].any(-1).any(-1)
            items[item] = False
            if bool(items.any()):
                self.result.failed.append("an item's output moves with another item of the batch")
                return
        if self.expected.causal and self.expected.masked is None:
            for number, (_, item, position) in enumerate(self.tokens):
                if bool(touched[number][item, :position].any()):
                    self.result.failed.append("an earlier token's output moves with a later token")
                    return


def _constant(tensor: Tensor) -> Change:
    """Another result of the same size."""
    return lambda value: tensor.reshape(value.shape)
