"""One pass taken apart: what every part of a model adds to a logit.

Notation in shapes: H query heads, G key/value heads, S keys, d_v width of a head's values, D width
of the residual stream, V vocabulary.

Writers and cancellers described: two lists, rows, what is found of every head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from attnviz.attention.contributions import Carrying, Direction, gain
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.result import RAISES, Finding, Interval, Measure, known
from attnviz.core.source import Output, Rows, Source
from attnviz.core.weights import OutputProjection, Readout
from attnviz.drawing import description
from attnviz.drawing.description import Column, Listing, estimate_column
from attnviz.drawing.grid import signed
from attnviz.drawing.labels import closing, counted, percent
from attnviz.drawing.labels import listing as joined
from attnviz.drawing.terminal import Line
from attnviz.errors import ModelError
from attnviz.features.logits.result import LogitPart, Push, Repair, Suppression, Writers


@dataclass
class StreamWatch:
    """An observer that keeps, of every layer, what one query sees."""

    position: int  # of the query
    item: int = 0  # of the batch
    # [d_v], what stands for the output of heads at the query in this item (a donor's)
    replaced: Mapping[Head, Array] = field(default_factory=dict)
    # [H, S] by layer, S the keys from the first up to the last that it may see
    weights: dict[Site, Array] = field(default_factory=dict)
    values: dict[Site, Array] = field(default_factory=dict)  # [G, S, d_v] by layer
    # [H, d_v] by layer, what the query's heads' outputs are multiplied with before W_O; of layers
    # that do so
    passes: dict[Site, Array] = field(default_factory=dict)

    def observe(self, rows: Rows) -> None:
        """Copy the query's row, if it is in this block."""
        place = self.position - rows.start
        if rows.values is None or not 0 <= place < rows.weights.shape[2]:
            return
        self.weights[rows.site] = _from_first(rows.weights[self.item, :, place], rows.key_start)
        self.values[rows.site] = _from_first(rows.values[self.item], rows.key_start)
        if rows.passes is not None:
            self.passes[rows.site] = exact(rows.passes[self.item, :, place])

    def output(self, head: Head) -> Array:
        """What attention gives of a head, z [d_v]."""
        if head in self.replaced:
            return arrays.converted(self.replaced[head], self.weights[head.site])
        weights, values = self.weights[head.site], self.values[head.site]
        return weights[head.index] @ values[head.index // (len(weights) // len(values))]


def by_source(watch: StreamWatch, site: Site, out: OutputProjection, toward: Direction) -> Array:
    """What every head of a layer adds through every token it sees, [H, S] in float64.

    The sum over S is the head's z_h W_O^h · d; W_O^h · d itself is taken in float32. What replaces
    a head's output came through no token, and stands at the last.
    """
    weights, values = watch.weights[site], watch.values[site]
    assert out.weight is not None
    on, shared = arrays.of(weights), len(weights) // len(values)
    weight = on.cast(out.weight, on.float32)
    each = exact(weight @ on.cast(toward.vector, on.float32))  # [H, d_v]
    if site in watch.passes:
        each = each * watch.passes[site]
    values = values[[head // shared for head in range(len(weights))]]  # [H, S, d_v]
    through: Array = weights * (values @ each[..., None])[..., 0]
    for head in watch.replaced:
        if head.site == site:
            through[head.index] = 0
            through[head.index, -1] = watch.output(head) @ each[head.index]
    return through


def written(watch: StreamWatch, head: Head, out: OutputProjection) -> Array:
    """What a head adds to the residual stream, (z_h ⊙ m_h) W_O^h, [D] in float64."""
    assert out.weight is not None
    z = watch.output(head)
    if head.site in watch.passes:
        z = z * watch.passes[head.site][head.index]
    return z @ exact(out.weight[head.index])


def behind(
    watch: StreamWatch, site: Site, out: OutputProjection, carrying: Carrying
) -> Array | float:
    """What a layer's sum over its heads is multiplied with, [D]; 1 for nothing.

    Up to the end, unless later layers normalize the stream; then up to where it is added.
    """
    readout = carrying.readout
    norm = readout.after.get(site.layer)
    factor: Array | float = readout.share(site.layer) * carrying.factor(site.layer)
    if norm is None:
        return factor
    heads = [Head(site, index) for index in range(len(watch.weights[site]))]
    xp = arrays.of(watch.weights[site]).xp
    total: Array = xp.stack([written(watch, head, out) for head in heads]).sum(0)
    total = total if out.bias is None else total + exact(out.bias)
    return gain(norm, total) * factor


def carried(output: Output, watch: StreamWatch, readout: Readout) -> Carrying:
    """The way of the stream through the layers at the query."""
    return Carrying(
        readout,
        {layer: some[watch.item, watch.position] for layer, some in output.deviations.items()},
    )


def split(
    source: Source, output: Output, watch: StreamWatch, toward: Direction, carrying: Carrying
) -> tuple[tuple[LogitPart, ...], dict[Head, NDArray[np.float64]]]:
    """Every part of the logit, and what the heads add by token.

    Returns the parts, and [S] by head.
    """
    place, vector, constant = (watch.item, watch.position), toward.vector, toward.constant
    readout = carrying.readout

    def adds(state: Array, layer: int, passed: int | None = None) -> float:
        return float(exact(state) @ carrying.back(vector, layer, passed))

    parts = [LogitPart("embedding", None, None, adds(output.states[0][place], -1))]
    sources: dict[Head, NDArray[np.float64]] = {}
    for layer, mlp in enumerate(output.mlps):
        before, between = carrying.passed(layer)
        for site in source.layout.sites:
            if site.layer == layer and site in watch.weights:
                heads, biases = attended(source, site, watch, vector, carrying, sources)
                parts += [*heads, *biases]
        mixer = output.mixers.get(layer)
        if mixer is not None:
            name = readout.mixers[layer]
            parts.append(LogitPart("mixer", layer, None, adds(mixer[place], layer, before), name))
        if layer in readout.biases:
            bias = adds(readout.biases[layer], layer)
            parts.append(LogitPart("bias", layer, None, bias))
        if layer not in readout.without_mlp:
            parts.append(LogitPart("mlp", layer, None, adds(mlp[place], layer, between)))
        shift = carrying.shifts(carrying.back(vector, layer), layer)
        if shift is not None:
            parts.append(LogitPart("bias", layer, None, float(shift)))
    parts.append(LogitPart("bias", None, None, constant))
    return tuple(parts), sources


def attended(
    source: Source,
    site: Site,
    watch: StreamWatch,
    vector: Array,
    carrying: Carrying,
    sources: dict[Head, NDArray[np.float64]],
) -> tuple[list[LogitPart], list[LogitPart]]:
    """What the heads of a layer add, and its b_O; ``sources`` gets what the heads add by token."""
    out = source.output(site).moved_to(vector)
    if carrying.readout.over:
        vector = carrying.back(vector, site.layer, carrying.passed(site.layer)[0])
    toward = Direction(vector * behind(watch, site, out, carrying), 0.0)
    heads = []
    for index, row in enumerate(to_numpy(by_source(watch, site, out, toward))):
        sources[Head(site, index)] = row
        heads.append(LogitPart("head", site.layer, index, float(row.sum())))
    if out.bias is None:
        return heads, []
    return heads, [LogitPart("bias", site.layer, None, float(exact(out.bias) @ toward.vector))]


def uncapped(readout: Readout, final: Array, token: int, against: int | None) -> float:
    """The logit, or the difference of two, before a cap, from the model's final state, [D]."""
    readout = readout.converted(final)
    assert readout.table is not None
    each = [
        float(exact(readout.table[id_]) @ exact(final))
        + (0.0 if readout.bias is None else float(readout.bias[id_]))
        for id_ in ([token] if against is None else [token, against])
    ]
    return each[0] if against is None else each[0] - each[1]


def check_closed(source: Source, total: float, logit: float) -> None:
    """Raise ModelError where parts do not add up to the model's own logit."""
    allowed = TOLERANCE.get(source.info.dtype, EXACT) * max(1.0, abs(logit))
    if not abs(total - logit) <= allowed:
        raise ModelError(
            f"the parts of {source.info.model} add up to {total:.5g} and the logit is "
            f"{logit:.5g}: they are not shown; an ablated head cannot be split"
        )


def _from_first(block: Array, key_start: int) -> Array:
    """A copy in float64, with zeros along axis 1 for the keys before the block's first."""
    on = arrays.of(block)
    before = on.zeros((len(block), key_start, *block.shape[2:]), block.dtype, block)
    return exact(on.xp.concatenate([before, block], 1))


TOLERANCE = {"float16": 0.05, "bfloat16": 0.05}
"""Largest difference of sum and logit, relative to the logit where that is larger than 1."""
EXACT = 1e-4
"""The same for every other precision."""


UP = -1
"""What raises the logit is blue, what lowers it orange: the sign that is orange."""

_SHOWN = 8  # parts of a list that the terminal shows in short
_LISTS = {
    "writer": "Writers, which push it up",
    "canceller": "Cancellers, which push it down",
    "": "Not told from chance",
}


def measured(result: Writers) -> str:
    """What was measured, in a sentence."""
    return (
        f"{result.of}, mean over {counted(result.texts, 'text')}: {signed(result.logit, 3)} = "
        f"heads and MLPs {signed(result.logit - result.rest, 3)}, embeddings and biases "
        f"{signed(result.rest, 3)}"
    )


def listing(pushes: Sequence[Push]) -> Listing:
    """What is said of each part."""
    columns = [
        Column("", "part", "part", left=True),
        *(Column(name, name) for name in ("kind", "layer")),
        Column("index", "head"),
        Column("head", lambda push: push.part if push.kind == "head" else None),
        estimate_column("mean", "mean", "logits", lambda mean: signed(mean.value, 3), _ends),
        Column("share", "share", "texts with that sign", percent),
        Column("adjusted", "adjusted", "p", "{:.2g}".format),
        Column("verdict", "verdict"),
        Column("suppression", lambda push: push.why and said_of(push.why)),
        *(estimate_column(name, _of("why", name)) for name in _TRIED),
        *(estimate_column(f"without_{name}", _of("repair", name)) for name in _CHANGES),
    ]
    return Listing(columns, pushes)


_TRIED = ("predicted", "predicted_others", "lowered", "lowered_others", "gone", "gone_others")
_CHANGES = {
    "total": "in all", "direct": "of it by itself", "heads": "other heads", "mlps": "MLPs",
    "scales": "scales",
}  # fmt: skip


def _of(part: str, name: str) -> Callable[[Push], Any]:
    """Take an estimate of what was looked into; None where nothing was."""
    return lambda push: (whole := getattr(push, part)) and getattr(whole, name)


def said_of(why: Suppression) -> str:
    """Whether it is copy suppression, and if not, what fails."""
    return f"no copy suppression ({', '.join(why.fails)})" if why.fails else "copy suppression"


def reasons(why: Suppression) -> str:
    """The same with its evidence, in a sentence."""

    def beside(share: Interval, null: Interval, of: str) -> str:
        ends = "" if share.low is None else f" [{description.interval(share)}]"
        return f"{description.percent(share)} %{ends} ({of} {description.percent(null)} %)"

    of = f"of {counted(why.texts, 'text')}"
    gone = "no other heads below it write or could be compared"
    if why.gone.value is not None:
        other = f"{counted(why.others, 'other head')} below it"
        without = f"of its push goes without {joined(why.writers)}"
        gone = f"{beside(why.gone, why.gone_others, other)} {without}"
    return (
        f"{said_of(why)}. The token that it reads is predicted below it in "
        f"{beside(why.predicted, why.predicted_others, 'other tokens')} {of}, and lowered in "
        f"{beside(why.lowered, why.lowered_others, 'others')}; {gone}"
    )


def repaired(pushes: Sequence[Push]) -> Listing:
    """What changes without each writer: all of it, and what adds up to it."""

    def most(push: Push) -> str:
        parts: Repair | Any = push.repair
        ranked = sorted(parts.by_part.items(), key=lambda item: -abs(item[1].value or 0.0))
        return ", ".join(f"{name} {signed(mean.value or 0.0)}" for name, mean in ranked[:_NAMED])

    columns = [Column("", "part", "without", left=True)]
    columns += [
        Column("", _of("repair", name), label, lambda mean: signed(mean.value or 0.0))
        for name, label in _CHANGES.items()
    ]
    return Listing([*columns, Column("", most, "most of all")], pushes)


_NAMED = 2  # parts that change most


def _ends(mean: Interval) -> str:
    if mean.low is None or mean.high is None:
        return "–"
    return f"{signed(mean.low, 3)} to {signed(mean.high, 3)}"


def parts(result: Writers, top: int | None, everything: bool) -> Iterator[RenderableType]:
    """Both lists, each with so many of its parts; the others as a number, or as a list too."""
    yield Line(measured(result), "bold")
    most = top or (len(result.pushes) if everything else _SHOWN)
    for verdict, heading in _LISTS.items():
        pushes = result.listed(verdict)
        yield ""
        yield Line(f"{heading}: {len(pushes) or 'none'}", "bold" if verdict else "")
        if pushes and (verdict or everything):
            yield listing(pushes).table(most)
            if len(pushes) > most:
                yield Line(f"{len(pushes) - most} more", "dim")
            yield from (Line(f"{push.part}: {reasons(push.why)}") for push in pushes if push.why)
        if replaced := [push for push in pushes if push.repair]:
            yield Line(
                "Without each, its mean over the other texts in its place, the logit changes"
            )
            yield repaired(replaced).table(most)
    yield Line(closing(result.source, counted(result.texts, "text")), "dim")


def finding(result: Writers, name: str) -> Finding:
    """What every head adds to the answers' logits, and whether it writes or cancels."""
    said = {
        head: [
            f"{signed(push.mean.value or 0.0)} logits ({_ends(push.mean)}), "
            f"{percent(push.share or 0.0)} of texts with that sign: "
            f"{push.verdict or 'not told from chance'}"
        ]
        for head, push in result.heads().items()
    }
    for head, push in result.heads().items():
        if push.why is not None:
            said[head].append(reasons(push.why))
        if push.repair is not None:
            means = ((name, _of("repair", name)(push)) for name in _CHANGES)
            adds = [f"{_CHANGES[name]} {signed(mean.value or 0.0)}" for name, mean in means]
            said[head].append(f"without it the logit changes {', '.join(adds)}")
    how = (
        f"What it adds by itself: {measured(result)}; in brackets a 95 % interval. Signs are "
        "judged over texts, Holm over all parts; what it makes later layers write counts as theirs."
    )
    values = known({head: push.mean for head, push in result.heads().items()})
    measure = Measure("push", f"what it adds to the {result.of}", "logits", UP, values, RAISES)
    return Finding.of("logits", name, "Does it write or cancel?", how, said, [measure])
