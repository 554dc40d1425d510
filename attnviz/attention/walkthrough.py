"""The walk of a tensor through attention: every step's shape, cost, and reason. No torch here.

Shapes are those of ``attnviz.attention.layers``; ``attnviz shapes --show verify`` runs such a layer
and compares every step with what is said here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attnviz.attention.costs import (
    Flops,
    Parameters,
    Projection,
    cache_elements,
    flops,
    index_flops,
    mixing_flops,
    parameters,
    product,
    projections,
    score_flops,
)
from attnviz.attention.spec import (
    Amount,
    AttentionSpec,
    Buckets,
    Dim,
    Indexer,
    LayerAxes,
    RunSizes,
    Shape,
    check_sizes,
    spec_of,
)
from attnviz.files import packaged


def reasons() -> Mapping[str, str]:
    """Why each step is there, by its key."""
    return packaged(__file__, "why.toml")


NORMED = (3.0, 4.0)
DISTANCES = (0, 1, 2, 8, 20, 127, 128)


def example(key: str, spec: AttentionSpec) -> str:
    """One sentence with the numbers of a step of this layer; empty for steps that need none."""
    if key == "norm_q" and spec.qk_norm is not None:
        centred = spec.qk_norm.kind == "LayerNorm"
        return f"{vector(NORMED)} becomes {vector(normalized(NORMED, centred=centred))}."
    if key == "rotate_q" and spec.rotary is not None:
        return _rotated(spec)
    if key == "position_bias" and spec.buckets is not None:
        distances = [d for d in DISTANCES if d < spec.buckets.reach] + [spec.buckets.reach]
        numbers = [bucket(-d, spec.buckets, causal=spec.causal) for d in distances]
        text = f"Keys {listed(distances)} back have buckets {listed(numbers)} of {{:,}}"
        text = text.format(spec.buckets.count)
        ahead = "" if spec.causal else f", a key 1 ahead {bucket(1, spec.buckets, causal=False)}"
        return f"{text}{ahead}."
    if key == "window" and spec.window is not None:
        query = spec.window + 2
        first, last = visible(query, spec)
        until = f"{last:,}" if spec.causal else f"{last:,} in a text that long"
        return f"Query {query:,} (from 0) sees keys {first:,} to {until}."
    return ""


def normalized(values: Sequence[float], *, centred: bool) -> tuple[float, ...]:
    """Values over their root mean square, less their mean before where ``centred``.

    RMSNorm: Zhang and Sennrich 2019 (arXiv:1910.07467); LayerNorm: Ba et al. 2016
    (arXiv:1607.06450). No learned weight, and nothing added under the root.
    """
    mean = sum(values) / len(values) if centred else 0.0
    root = math.sqrt(sum((x - mean) ** 2 for x in values) / len(values))
    return tuple((x - mean) / root for x in values)


def turned(pair: tuple[float, float], position: int, frequency: float) -> tuple[float, float]:
    """Return a pair of numbers turned by ``position`` times ``frequency`` radians."""
    x, y = pair
    cos, sin = math.cos(position * frequency), math.sin(position * frequency)
    return x * cos - y * sin, x * sin + y * cos


def bucket(offset: int, table: Buckets, *, causal: bool) -> int:
    """Give the row of T5's table for a key ``offset`` positions after the query (before: negative).

    Half of the rows are single distances, the others grow as the logarithm up to ``reach``; where
    attention is not causal, later keys have the second half of the table. Raffel et al. 2020
    (arXiv:1910.10683), section 2.1.
    """
    rows = table.count if causal else table.count // 2
    first = rows if not causal and offset > 0 else 0
    distance = max(-offset, 0) if causal else abs(offset)
    exact = rows // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(table.reach / exact) * (rows - exact)
    return first + min(exact + int(grown), rows - 1)


def visible(query: int, spec: AttentionSpec) -> tuple[int, int]:
    """Find the first and last key that a query sees through its window, in an endless text."""
    window = spec.window or 0
    if spec.chunked:
        return query // window * window, query
    first = max(query - window + 1, 0)
    return first, query if spec.causal else query + window - 1


def vector(values: Sequence[float]) -> str:
    """``(0.5403, 0.8415)``."""
    return "(" + ", ".join(f"{round(x, 4) + 0.0:.5g}" for x in values) + ")"


def listed(values: Sequence[int]) -> str:
    """``0, 1 and 8``."""
    *head, last = map(str, values)
    return f"{', '.join(head)} and {last}" if head else last


def _rotated(spec: AttentionSpec) -> str:
    rotary = spec.rotary
    if rotary is None:
        return ""
    half = rotary.width // 2
    partner = 1 if rotary.adjacent else half
    text = f"Numbers 0 and {partner} are pair 0, which turns by 1 radian a position"
    if rotary.base is not None and half > 1:
        slowest = rotary.base ** (-2 * (half - 1) / rotary.width)
        text += f", the last pair by {slowest:.3g}"
    if rotary.scaling:
        text += f" (before {rotary.scaling} scaling)"
    once, twice = turned((1, 0), 1, 1), turned((1, 0), 2, 1)
    return f"{text}: (1, 0) becomes {vector(once)} at position 1 and {vector(twice)} at position 2."


class Step(NamedTuple):
    """One step of the walk."""

    key: str  # what the step is, for programs (``scores``, ``w_o``, ...).
    name: str  # what the result is called (``Q``, ``scores``, ``Y``)
    shape: Shape
    operation: str
    parameters: int
    flops: Amount  # 2 per multiply-add of its matrix product; zero where there is none
    bytes: Amount | None  # memory of the new tensor; None for a view, which takes none
    why: str  # the reason and the bug it guards against

    @property
    def symbols(self) -> str:
        """The shape in letters: ``[B, H, T, S]``."""
        return "[" + ", ".join(dim.symbol for dim in self.shape) + "]"

    @property
    def concrete(self) -> str:
        """The shape in numbers, letters where a size is unset: ``(2, 8, T, T)``."""
        return "(" + ", ".join(map(str, self.shape)) + ")"

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The shape as numbers, None where a size is unset."""
        return tuple(dim.size for dim in self.shape)


class Walk(NamedTuple):
    """A layer, what is run through it, and every step on the way."""

    spec: AttentionSpec
    run: RunSizes
    steps: tuple[Step, ...]
    parameters: Parameters
    flops: Flops

    def step(self, key: str) -> Step:
        """Return the first step of that key."""
        return next(step for step in self.steps if step.key == key)


def walk(spec: AttentionSpec, run: RunSizes) -> Walk:
    """Trace a run through a layer; errors for senseless sizes are those of :class:`LayerAxes`."""
    tracer = _Tracer(spec, run)
    tracer.inputs()
    if spec.kind == "mla":
        tracer.latent_heads()
    else:
        tracer.plain_heads()
    tracer.attention()
    tracer.output()
    return Walk(spec, run, tuple(tracer.steps), parameters(spec), flops(spec, tracer.axes))


class _Tracer:
    """Collects the steps in order."""

    def __init__(self, spec: AttentionSpec, run: RunSizes) -> None:
        self.spec, self.run, self.axes = spec, run, LayerAxes(spec, run)
        self.matrices = {p.name: p for p in projections(spec)}
        self.steps: list[Step] = []

    def add(
        self,
        key: str,
        name: str,
        shape: Shape,
        operation: str,
        *,
        matrix: Projection | None = None,
        cost: Amount | None = None,
        memory: Amount | None = None,
        view: bool = False,
        learned: int = 0,
    ) -> None:
        if matrix is not None:
            cost = matrix.flops(self.axes)
        self.steps.append(
            Step(
                key=key,
                name=name,
                shape=shape,
                operation=operation,
                parameters=matrix.parameters if matrix else learned,
                flops=cost or Amount(0),
                bytes=None if view else memory or product(shape, self.run.width),
                why=" ".join(filter(None, (reasons()[key], example(key, self.spec)))),
            )
        )

    def project(self, name: str, result: str, source: str, shape: Shape) -> None:
        matrix = self.matrices[name]
        letter = _MATRIX_LETTERS[name]
        bias = f" + b{letter[1:]}" if matrix.bias else ""
        self.add(name, result, shape, f"{source} {letter}{bias}", matrix=matrix)

    def inputs(self) -> None:
        a = self.axes
        note = "token vectors"
        if self.run.cache is not None:
            note = "the new token" if self.run.new == 1 else "the new tokens"
        self.add("x", "X", (a.b, a.t, a.d_model), note)
        if self.spec.kind == "cross":
            self.add("context", "C", (a.b, a.s, a.d_model), "the other sequence")

    def plain_heads(self) -> None:
        """MHA, GQA, MQA and cross-attention: project, view, transpose, share, cache."""
        a, spec = self.axes, self.spec
        d, d_v = _head_axes(spec)
        inner = _joined(spec, spec.head_dim)
        shared = f"{a.g.symbol}·d" if spec.kv_heads != spec.heads else inner.symbol
        source = "C" if spec.kind == "cross" else "X"
        self.project("w_q", "Q", "X", (a.b, a.t, inner))
        distinct = spec.value_dim != spec.head_dim
        value_axis = Dim(f"{a.g.symbol}·dᵥ" if distinct else shared, spec.kv_heads * spec.value_dim)
        key_axis = Dim(shared, spec.kv_heads * spec.head_dim)
        for name, result, size in (("w_k", "K", key_axis), ("w_v", "V", value_axis)):
            self.project(name, result, source, (a.b, a.new, size))
            if name == "w_k" and spec.qk_norm is not None and spec.qk_norm.joint:
                self.norms((a.b, a.t, inner), (a.b, a.new, size))
        if spec.kv_heads == spec.heads and a.new is a.t and not distinct:
            self.add("view", "Q, K, V", (a.b, a.t, a.h, d), ".view: cut D into heads", view=True)
            self.add("transpose", "Q, K, V", (a.b, a.h, a.t, d), ".transpose(1, 2)", view=True)
        else:
            kinds = (("K", d), ("V", d_v)) if distinct else (("K, V", d),)
            self.add("view", "Q", (a.b, a.t, a.h, d), ".view: cut H·d into heads", view=True)
            for name, dim in kinds:
                shape: Shape = (a.b, a.new, a.g, dim)
                self.add("view_kv", name, shape, ".view: cut into heads", view=True)
            self.add("transpose", "Q", (a.b, a.h, a.t, d), ".transpose(1, 2)", view=True)
            for name, dim in kinds:
                shape = (a.b, a.g, a.new, dim)
                self.add("transpose_kv", name, shape, ".transpose(1, 2)", view=True)
        queries, keys = (a.b, a.h, a.t, d), (a.b, a.g, a.new, d)
        if spec.qk_norm is not None and not spec.qk_norm.joint:
            self.norms(queries, keys)
        if spec.rotary is not None:
            part = "" if spec.rotary.width == spec.head_dim else f" the first {spec.rotary.width}"
            for key, result, axes in (("rotate_q", "Q", queries), ("rotate_k", "K", keys)):
                self.add(key, result, axes, f"rotate{part} by position")
        if self.run.cache is not None:
            appended = "cache + new" if self.spec.window is None else "cache + new, last window"
            per_token = (spec.head_dim + spec.value_dim) * self.run.cache_width
            memory = product((a.b, a.g, a.s), per_token)
            self.add("cache", "K, V", (a.b, a.g, a.s, d), f"append: {appended}", memory=memory)
        if spec.group > 1:
            shape = (a.b, a.g, Dim("H/G", spec.group), a.t, d)
            self.add("share", "Q by group", shape, f"{spec.group} heads read one K, V", view=True)

    def norms(self, queries: Shape, keys: Shape) -> None:
        """Normalize queries and keys to a root mean square of 1, then times what was learned."""
        norm = self.spec.qk_norm
        if norm is None:
            return
        over = "all heads" if norm.joint else "d"
        for key, result, shape, heads in (
            ("norm_q", "Q", queries, self.spec.heads),
            ("norm_k", "K", keys, self.spec.kv_heads),
        ):
            learned = norm.learned * self.spec.head_dim * (heads if norm.joint else 1)
            self.add(key, result, shape, f"{norm.kind} over {over}", learned=learned)

    def latent_heads(self) -> None:
        """MLA: latent, rebuilt keys and values, the rotary key that all heads share."""
        a, spec = self.axes, self.spec
        d, d_v = _head_axes(spec)
        axis = Dim("d+dᵣ" if spec.rope_dim else "d", spec.score_dim)
        source = "X"
        if spec.query_latent:
            latent = Dim("r_q", spec.query_latent)
            self.project("w_q_latent", "c_Q", "X", (a.b, a.t, latent))
            source = "c_Q"
        inner = Dim(f"H·({axis.symbol})" if spec.rope_dim else "H·d", spec.heads * spec.score_dim)
        self.project("w_q", "Q", source, (a.b, a.t, inner))
        self.project("w_latent", "c", "X", (a.b, a.new, Dim("r", spec.latent)))
        if spec.rope_dim:
            self.project("w_k_rope", "k_rope", "X", (a.b, a.new, Dim("dᵣ", spec.rope_dim)))
        if spec.indexer is not None:
            index = Dim("dᵢ", spec.indexer.width)
            self.project("w_index_k", "k_I", "X", (a.b, a.new, index))
        if self.run.cache is not None:
            letters = "r" + "+dᵣ" * bool(spec.rope_dim) + "+dᵢ" * (spec.indexer is not None)
            cached = "c; k_rope" + "; k_I" * (spec.indexer is not None)
            width = Dim(letters, cache_elements(spec))
            memory = product((a.b, a.s, width), self.run.cache_width)
            self.add("cache", cached, (a.b, a.s, width), "append: cache + new", memory=memory)
        if spec.indexer is not None:
            self.select(spec.indexer, source)
        for name, result, width, dim in (
            ("w_k", "K", d, spec.head_dim),
            ("w_v", "V", d_v, spec.value_dim),
        ):
            size = Dim(f"H·{width.symbol}", spec.heads * dim)
            self.project(name, result, "c", (a.b, a.s, size))
        self.add("view", "Q", (a.b, a.t, a.h, axis), ".view: cut into heads", view=True)
        self.add("transpose", "Q", (a.b, a.h, a.t, axis), ".transpose(1, 2)", view=True)
        self.add("transpose_kv", "V", (a.b, a.h, a.s, d_v), ".view, .transpose(1, 2)", view=True)
        if spec.rope_dim:
            position = "rotated position" if spec.turned else "shared part"
            self.add("rope", "Q", (a.b, a.h, a.t, axis), f"[content; {position}]")
        rotary = "rotated k_rope" if spec.turned else "k_rope, not rotated"
        operation = f"[content; {rotary}]" if spec.rope_dim else ".view, .transpose(1, 2)"
        shape = (a.b, a.h, a.s, axis)
        self.add("rope_k", "K", shape, operation, view=not spec.rope_dim)

    def select(self, indexer: Indexer, source: str) -> None:
        """Every key's score by the indexer's own heads, and the keys that stay."""
        a = self.axes
        query_axis = Dim("Hᵢ·dᵢ", indexer.heads * indexer.width)
        self.project("w_index_q", "Q_I", source, (a.b, a.t, query_axis))
        self.project("w_index_w", "w_I", "X", (a.b, a.t, Dim("Hᵢ", indexer.heads)))
        cost, square = index_flops(self.spec, a), (a.b, a.t, a.s)
        self.add("index", "index I", square, "Σ_h w_I,h · relu(q_I,h k_I)", cost=cost)
        self.add(
            "select", "selected", (a.b, a.t, a.seen), f"the {indexer.keep:,} keys of largest I"
        )

    def attention(self) -> None:
        """Scores, scale, mask, softmax, mixing."""
        a, spec = self.axes, self.spec
        square = (a.b, a.h, a.t, a.s)
        band = spec.indexer is not None or (spec.window is not None and self.run.cache is None)
        note = f"Q Kᵀ, {a.seen.size:,} keys a query" if band else "Q Kᵀ"
        self.add("scores", "scores", square, note, cost=score_flops(spec, a))
        if spec.scaled:
            self.add("scale", "scaled", square, f"· {spec.scale_text}")
        else:
            self.add("unscaled", "scaled", square, "· 1 (this model does not scale)")
        if spec.softcap is not None:
            self.add("softcap", "capped", square, f"{spec.softcap:g}·tanh(x / {spec.softcap:g})")
        if spec.buckets is not None:
            suffix = "" if spec.buckets.own else " of the first layer"
            learned = spec.buckets.count * spec.heads if spec.buckets.own else 0
            text = f"+ table{suffix}[bucket of key - query]"
            self.add("position_bias", "biased", square, text, learned=learned)
        self.add("mask", "masked", square, _mask(spec, self.run))
        if spec.window is not None and (self.run.cache is None or self.run.new != 1):
            self.add("window", "windowed", square, _window(spec))
        softmax = "softmax over keys and a sink" if spec.sink else "softmax over keys"
        self.add("softmax", "weights A", square, softmax)
        _, d_v = _head_axes(spec)
        self.add("heads", "head outputs", (a.b, a.h, a.t, d_v), "A V", cost=mixing_flops(spec, a))

    def output(self) -> None:
        """Heads side by side again, then mixed."""
        a, spec = self.axes, self.spec
        _, d_v = _head_axes(spec)
        if spec.gated:
            self.project("w_gate", "G", "X", (a.b, a.t, _joined(spec, spec.value_dim)))
        self.add("untranspose", "Z", (a.b, a.t, a.h, d_v), ".transpose(1, 2)", view=True)
        concatenated = _joined(spec, spec.value_dim)
        self.add("concat", "Z concat", (a.b, a.t, concatenated), ".contiguous() .view")
        if spec.gated:
            self.add("gate", "Z gated", (a.b, a.t, concatenated), "Z · sigmoid(G)")
        self.project("w_o", "Y", "Z", (a.b, a.t, a.d_model))


_MATRIX_LETTERS = {
    "w_q": "W_Q", "w_k": "W_K", "w_v": "W_V", "w_o": "W_O", "w_gate": "W_G", "w_q_latent": "W_DQ",
    "w_latent": "W_DKV", "w_k_rope": "W_KR", "w_index_q": "W_IQ", "w_index_k": "W_IK",
    "w_index_w": "W_IW",
}  # fmt: skip


def _head_axes(spec: AttentionSpec) -> tuple[Dim, Dim]:
    """Return the width of a head's keys, and of its values."""
    equal = spec.value_dim == spec.head_dim
    return Dim("d", spec.head_dim), Dim("d" if equal else "dᵥ", spec.value_dim)


def _joined(spec: AttentionSpec, width: int) -> Dim:
    """Return the axis of all heads side by side: D where it is as wide as the model."""
    size = spec.heads * width
    symbol = "d" if width == spec.head_dim else "dᵥ"
    return Dim("D" if size == spec.d_model else f"H·{symbol}", size)


def _mask(spec: AttentionSpec, run: RunSizes) -> str:
    if spec.indexer is not None:
        return (
            "-∞ where not selected" if run.cache is not None else "-∞ where later or not selected"
        )
    if run.cache is not None and run.new == 1:
        return "nothing to mask: all keys are past"
    if run.cache is not None and spec.causal:
        return f"-∞ where key > query + {run.cache:,}"
    return "-∞ where key > query" if spec.causal else "+ M: padding only"


def _window(spec: AttentionSpec) -> str:
    if spec.chunked:
        return f"-∞ outside of the query's chunk of {spec.window:,}"
    side = "|query - key|" if not spec.causal else "query - key"
    return f"-∞ where {side} ≥ {spec.window:,}"


def plain_steps() -> dict[str, Step]:
    """Walk through multi-head attention without biases; each step by the name of its result."""
    steps = walk(spec_of(check_sizes(512, 8), bias=False), RunSizes()).steps
    return {step.name: step for step in reversed(steps)}
