"""MHA, GQA, MQA and MLA side by side: parameters, FLOPs, KV cache, decoding, and what fits.

A decoding step reads every weight once for all sequences of the batch, and of each sequence the
whole cache. Few FLOPs a byte (its arithmetic intensity) mean that memory, not arithmetic, sets its
pace: a roofline argument, Williams et al. 2009 (doi:10.1145/1498765.1498785), for decoding Shazeer
2019 (arXiv:1911.02150). Where an indexer selects keys, its own keys are read whole and the cache of
those selected. Attention alone: what else a model holds is read besides.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from attnviz.attention.costs import (
    FLOAT32_BYTES,
    cache_elements,
    cached_tokens,
    crossing,
    flops,
    parameters,
    projections,
    read_elements,
    streamed_elements,
    weights_elements,
)
from attnviz.attention.spec import (
    PROJECTIONS,
    AttentionSpec,
    Kind,
    LayerAxes,
    RunSizes,
    check_sizes,
    divisors,
)
from attnviz.errors import SizeError, UsageError, cut
from attnviz.features.shapes import result as results
from attnviz.models.configs.model import ModelSpec, presets

DEFAULT_TOKENS = 4096
_USERS = 3  # published models that are named beside a kind of attention


def stack_of(model: ModelSpec) -> Stack:
    """Return the layers of a model that keep keys and values of decoded tokens."""
    return [(group.spec, len(group.layers)) for group in model.cached_groups]


def model_cache(model: ModelSpec, run: RunSizes) -> results.ModelCache | None:
    """Return the cache of all layers at the cache or seq length of a run, or at 4,096 tokens."""
    tokens, sequences = run.cache or run.seq or DEFAULT_TOKENS, run.batch or 1
    stack = stack_of(model)
    if not stack:
        return None
    sequence = cache_bytes(stack, tokens, run.cache_width)
    crossed = sum(len(g.layers) * cache_elements(g.spec) for g in model.cross_groups)
    return results.ModelCache(
        tokens=tokens,
        sequences=sequences,
        bytes_per_token=run.cache_width * sum(n * cache_elements(spec) for spec, n in stack),
        bytes_per_sequence=sequence,
        bytes_per_batch=sequences * sequence,
        cross_bytes_per_token=run.cache_width * crossed or None,
    )


def longest(stack: Stack, width: int, memory: int) -> int:
    """Return the most tokens of one sequence whose cache fits; -1 when any number does."""
    if all(spec.window is not None for spec, _ in stack):
        window = max(spec.window or 0 for spec, _ in stack)
        if cache_bytes(stack, window, width) <= memory:
            return -1
    lengths = range(memory + 1)  # a token takes at least a byte
    return bisect_right(lengths, memory, key=lambda n: cache_bytes(stack, n, width)) - 1


def compare(
    spec: AttentionSpec,
    run: RunSizes,
    *,
    layers: int = 1,
    model: ModelSpec | None = None,
    memory: int | None = None,
) -> results.CompareAnswer:
    """Compare the kinds at the sizes of ``spec``, its cache at the run's or 4,096 tokens."""
    if spec.kind == "cross":
        raise UsageError(
            "{compare} is about caches of decoded tokens; cross-attention has none", compare=...
        )
    stack: Stack = stack_of(model) if model else [(spec, layers)]
    if not stack:
        raise UsageError(
            "{compare} is about caches of decoded tokens; {} is an encoder and keeps none",
            model.name if model else "",
            compare=...,
        )
    tokens = run.cache or run.seq or DEFAULT_TOKENS
    axes = LayerAxes(spec, run)
    other_weights = 0  # of the model
    if model is not None:
        other_weights = (model.whole or model.attention_parameters) - _weights(stack)
    attending = sum(count for layer, count in stack if not layer.borrowed)
    full = attending * cache_elements(_as(spec, "mha", spec.heads)) * run.cache_width
    rows, totals = [], []
    for name, variant in _variants(spec):
        is_own = _same(variant, spec)
        swapped = stack if is_own else [(_keep_reach(variant, layer), n) for layer, n in stack]
        sequence = cache_bytes(swapped, tokens, run.cache_width)
        token = attending * cache_elements(variant) * run.cache_width
        weights = (other_weights + _weights(swapped)) * run.width
        room = None if memory is None else max(0, memory - weights)
        step = decoding(swapped, tokens, run)
        total = flops(variant, axes).total
        costs = results.VariantCosts(
            name=name,
            layer=results.LayerSizes.of(variant),
            parameters=parameters(variant).total,
            flops=results.Formula.of(total),
            cache_elements_per_token=cache_elements(variant),
            cache_bytes_per_token=token,
            cache_bytes_per_sequence=sequence,
            cache_bytes_per_batch=(run.batch or 1) * sequence,
            ratio_to_mha=token / full,
            read_bytes_per_decoded_token=step.bytes_per_token,
            flops_per_byte=step.intensity,
            decoding_flops=step.flops // step.batch,
            decoding_flops_rebuilt=sum(
                count * step_flops(layer, tokens, absorbed=False) for layer, count in swapped
            ),
            weights_bytes=weights,
            fits_tokens=None if room is None else longest(swapped, run.cache_width, room),
            fits_sequences=None if room is None else room // sequence,
            used_by=_used_by(variant),
            own=is_own,
        )
        rows.append(costs)
        totals.append(total)
    return results.CompareAnswer(
        title="",
        layer=results.LayerSizes.of(spec),
        run=results.LayerRun.of(run),
        layers=attending,
        tokens=tokens,
        memory_bytes=memory,
        variants=tuple(rows),
        spec=spec,
        sizes=run,
        totals=tuple(totals),
        subject=model.name if model else spec.title,
        whole=bool(model and model.whole),
    )


def _weights(stack: Stack) -> int:
    return sum(layers * parameters(spec).total for spec, layers in stack)


def _variants(spec: AttentionSpec) -> list[tuple[str, AttentionSpec]]:
    """MHA; GQA with 2, 4, 8 heads to a key head where that divides, and as asked; MQA; MLA."""
    heads = spec.heads
    groups = {heads // g for g in (2, 4, 8) if heads % g == 0 and heads // g > 1}
    if spec.kind != "mla":
        groups.add(spec.kv_heads)
    rows = [("MHA", _as(spec, "mha", heads))]
    rows += [
        (f"GQA, G = {g}", _as(spec, "gqa", g))
        for g in sorted(groups, reverse=True)
        if g in divisors(heads) and 1 < g < heads
    ]
    if heads > 1:
        rows.append(("MQA", _as(spec, "mqa", 1)))
    mla = spec if spec.kind == "mla" else _as(spec, "mla", heads)
    rows.append((f"MLA, r = {mla.latent}, dᵣ = {mla.rope_dim}", mla))
    return rows


def _as(spec: AttentionSpec, kind: Kind, kv_heads: int) -> AttentionSpec:
    """Get the same widths as another kind; MLA in DeepSeek-V2's proportions, r = 4·d, d_r = d/2."""
    latent = kind == "mla"
    names = PROJECTIONS["mla" if latent else "other"]
    return replace(
        spec,
        kind=kind,
        kv_heads=kv_heads,
        latent=4 * spec.head_dim if latent else 0,
        rope_dim=spec.head_dim // 4 * 2 if latent else 0,
        query_latent=0,
        value_dim=spec.head_dim,
        biases=frozenset(names) if spec.biases else frozenset(),
        extras=(),
        scaled=True,
        scale_dim=0,
        multiplier=None,
        indexer=None,
        turned=True,
    )


def with_kv_heads(spec: AttentionSpec, kv_heads: int) -> AttentionSpec:
    """Give a layer another number of key heads; SizeError where that does not divide its heads."""
    sizes = check_sizes(spec.d_model, spec.heads, kv_heads=kv_heads, head_dim=spec.head_dim)
    kind: Kind = "mha" if sizes.kv_heads == spec.heads else "mqa" if sizes.kv_heads == 1 else "gqa"
    return replace(spec, kind=kind, kv_heads=sizes.kv_heads)


def on_gpus(spec: AttentionSpec, gpus: int) -> AttentionSpec:
    """Take one GPU's share, tensor parallel: heads dealt out, few key heads and latents copied."""
    goes = [n for n in divisors(spec.heads) if spec.kv_heads % n == 0 or n % spec.kv_heads == 0]
    if gpus not in goes:
        raise SizeError(
            f"{spec.heads} heads on {spec.kv_heads} key heads do not go on {gpus} GPUs; numbers "
            f"of GPUs that work: {', '.join(map(str, goes))}"
        )
    heads, kv_heads = spec.heads // gpus, max(1, spec.kv_heads // gpus)
    kind: Kind = "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"
    kind = spec.kind if spec.kind in ("mla", "cross") else kind
    return replace(spec, kind=kind, heads=heads, kv_heads=heads if kind == "mla" else kv_heads)


def _keep_reach(variant: AttentionSpec, layer: AttentionSpec) -> AttentionSpec:
    return replace(variant, window=layer.window, chunked=layer.chunked, borrowed=layer.borrowed)


def _same(variant: AttentionSpec, spec: AttentionSpec) -> bool:
    kinds = (variant.kind == "mla") == (spec.kind == "mla")
    return kinds and variant.kv_heads == spec.kv_heads


def _used_by(spec: AttentionSpec) -> tuple[str, ...]:
    """Name presets whose main layer has as many key heads: ``Llama 3 70B (64/8)``."""
    titles = []
    for preset in presets().values():
        layer = preset.model.main.spec
        if layer.kind == spec.kind and (spec.kind != "gqa" or layer.kv_heads == spec.kv_heads):
            shared = "" if layer.kv_heads == layer.heads else f"/{layer.kv_heads}"
            titles.append((layer.heads != spec.heads, f"{preset.title} ({layer.heads}{shared})"))
    if spec.kind == "mha":  # G is H here: another H would be another G
        titles = [preset for preset in titles if not preset[0]]
    equal = [title for distant, title in titles if not distant]
    near = [title for distant, title in titles if distant]
    return (*_spread(equal, _USERS), *_spread(near, _USERS - min(_USERS, len(equal))))


def _spread(titles: list[str], limit: int) -> list[str]:
    """At most so many of some titles, early and late ones."""
    if len(titles) <= limit:
        return titles
    if limit < 2:
        return titles[len(titles) - limit :]
    return [titles[i * (len(titles) - 1) // (limit - 1)] for i in range(limit)]


_MEMORY = re.compile(r"(?i)^\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(([kmgtp]?)(i?)b?)\s*$")
_POWERS = " kmgtp"


def parse_memory(text: str) -> int:
    """Read ``80GB`` (10⁹), ``80GiB`` (2³⁰), ``512M``, ``900B``; UsageError for ``1e9`` or 0."""
    matched = _MEMORY.match(text)
    number, unit, letter, binary = matched.groups() if matched else ("", "i", "", "i")
    if binary and not letter:
        raise UsageError("{memory} is not a size; write 80GB, 80GiB or 512MB", memory=cut(text))
    power = _POWERS.index(letter.lower() or " ")
    if not unit:
        raise UsageError(
            "{memory} has no unit; write {}GB (10⁹ bytes) or {}GiB (2³⁰)",
            number,
            number,
            memory=cut(text),
        )
    size = int(float(number) * (1024 if binary else 1000) ** power)
    if size < 1 or size > 1 << 60:
        raise UsageError(
            "{memory} must be at least one byte and below one exbibyte", memory=cut(text)
        )
    return size


Stack = Sequence[tuple[AttentionSpec, int]]
"""The layers that keep a cache: each kind of layer, and how many there are of it."""


class Decoding(NamedTuple):
    """One step that decodes a token of every sequence."""

    # bytes of the layers' weights. cache: bytes read of all sequences' keys and values.
    weights: int
    cache: int
    flops: int  # 2 per multiply-add. batch: how many sequences.
    batch: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes read for one decoded token: a share of the weights, and its own cache."""
        return (self.weights + self.cache) / self.batch

    @property
    def intensity(self) -> float:
        """FLOPs per byte that is read."""
        return self.flops / (self.weights + self.cache)


def cache_bytes(stack: Stack, tokens: int, width: int) -> int:
    """Count one sequence's KV cache: every layer's tokens (a window's at most) by its numbers."""
    return sum(
        layers * cached_tokens(spec, tokens) * cache_elements(spec) * width
        for spec, layers in stack
    )


def decoding(stack: Stack, tokens: int, run: RunSizes) -> Decoding:
    """Cost a step on a cache of ``tokens`` tokens of every sequence, the new one among them."""
    batch = run.batch or 1
    return Decoding(
        weights=_weights(stack) * run.width,
        cache=batch
        * sum(layers * read_elements(spec, tokens) for spec, layers in stack)
        * run.cache_width,
        flops=batch * sum(layers * step_flops(spec, tokens) for spec, layers in stack),
        batch=batch,
    )


def step_flops(spec: AttentionSpec, tokens: int, *, absorbed: bool = True) -> int:
    """Count one token's FLOPs in a layer with ``tokens`` keys; MLA's absorbed, or from latents."""
    keys, index = cached_tokens(spec, tokens), 0
    if spec.indexer is not None:
        keys, index = min(tokens, spec.indexer.keep), spec.indexer.heads * (spec.indexer.width + 1)
    matrices = projections(spec)
    if spec.kind == "mla" and not absorbed:
        learned = sum(p.weights * (keys if p.over == "all keys" else 1) for p in matrices)
    else:
        learned = sum(p.weights for p in matrices)
    learned += index * tokens
    if spec.kind == "mla" and absorbed:
        return 2 * (learned + spec.heads * keys * (2 * spec.latent + spec.rope_dim))
    return 2 * (learned + spec.heads * keys * (spec.score_dim + spec.value_dim))


Variable = Literal["seq", "d-model", "heads", "kv-heads", "context-length", "tp"]
VARIABLES: tuple[Variable, ...] = ("seq", "d-model", "heads", "kv-heads", "context-length", "tp")
DECODED = ("kv-heads", "tp")
"""Sizes along which a decoding step is costed: key heads, and the GPUs that share the heads."""
MAX_STEPS = 200
DEFAULT_SEQ = 2048

_SWEEP = re.compile(r"^\s*(?P<name>[a-z_-]+)\s*=\s*(?P<values>.+?)\s*$", re.IGNORECASE)
_NUMBER = r"[0-9][0-9_]{0,20}"
_ONE = re.compile(_NUMBER)
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})(?:\s*:\s*(?P<op>[x+])(?P<by>{_NUMBER}))?"
)
_UP_TO_H = re.compile(r"(?i)(\.\.\s*)h\s*$")


def parse_sweep(text: str, heads: int = 0) -> tuple[Variable, tuple[int, ...]]:
    """Read ``seq=128..131072`` (doubling), ``seq=0..9:+3``, ``heads=1..64:x4``, ``seq=1,5,9``."""
    matched, option = _SWEEP.match(text), cut(text)
    unread = UsageError(
        "{sweep} is not understood; write NAME=LOW..HIGH, for example seq=128..131072", sweep=option
    )
    if not matched:
        raise unread
    name = matched["name"].lower().replace("_", "-")
    variable = next((v for v in VARIABLES if v == name), None)
    if variable is None:
        raise UsageError("a sweep cannot vary {!r}; it takes {}", cut(name), ", ".join(VARIABLES))
    values = matched["values"]
    if variable == "kv-heads" and heads:
        values = _UP_TO_H.sub(rf"\g<1>{heads}", values)
    ranged = _RANGE.fullmatch(values)
    if not ranged:
        parts = [part.strip() for part in values.split(",")]
        if not all(map(_ONE.fullmatch, parts)):
            raise unread
        numbers = sorted({_whole(part) for part in parts})
        if len(numbers) > MAX_STEPS:
            raise UsageError("{sweep} has more than {} steps; give fewer", MAX_STEPS, sweep=option)
    elif variable == "kv-heads" and heads and not ranged["op"]:
        low, high = _ends(option, ranged)
        numbers = [divisor for divisor in divisors(heads) if low <= divisor <= high]
        if not numbers:
            raise UsageError("{sweep} has no number that divides {} heads", heads, sweep=option)
    else:
        numbers = _steps(option, ranged)
    if numbers[0] < 1:
        raise UsageError("{sweep} must start at 1 or above, not {}", numbers[0], sweep=option)
    return variable, tuple(numbers)


def _whole(digits: str) -> int:
    return int(digits.replace("_", ""))


def _ends(option: str, ranged: re.Match[str]) -> tuple[int, int]:
    low, high = _whole(ranged["low"]), _whole(ranged["high"])
    if low > high:
        raise UsageError(
            "{sweep} runs from {:,} down to {:,}; swap the two", low, high, sweep=option
        )
    if low < 1:
        raise UsageError("{sweep} must start at 1 or above, not {}", low, sweep=option)
    return low, high


def _steps(option: str, ranged: re.Match[str]) -> list[int]:
    low, high = _ends(option, ranged)
    step = _whole(ranged["by"] or "2")
    doubling = ranged["op"] != "+"
    if step < (2 if doubling else 1):
        raise UsageError("{sweep} never ends: step {}{}", ranged["op"], step, sweep=option)
    numbers, value = [], low
    while value <= high:
        numbers.append(value)
        if len(numbers) > MAX_STEPS:
            raise UsageError(
                "{sweep} has more than {} steps; take larger ones", MAX_STEPS, sweep=option
            )
        value = value * step if doubling else value + step
    if numbers[-1] != high:
        numbers.append(high)
    return numbers


def sweep(
    text: str, run: RunSizes, spec_at: Callable[[Variable, int | None], AttentionSpec]
) -> results.SweepAnswer:
    """Cost a layer along one size (:func:`parse_sweep`), with ``spec_at`` its layer at a value."""
    subject = spec_at("seq", None)
    variable, values = parse_sweep(text, subject.heads)
    specs = [spec_at(variable, value) for value in values]
    runs = [_run_at(spec, run, variable, value) for spec, value in zip(specs, values, strict=True)]
    cost = _decoding if variable in DECODED else _costs
    points = tuple(map(cost, values, specs, runs))
    equal = crossing(specs[0]) if variable == "seq" and specs[0].kind != "cross" else None
    return results.SweepAnswer(
        title="",
        layer=results.LayerSizes.of(specs[0]),
        run=results.LayerRun.of(runs[0]),
        variable=variable,
        crossing_length=equal,
        points=points,
        specs=tuple(specs),
        subject_spec=subject,
        sizes=runs[0],
    )


def _run_at(spec: AttentionSpec, run: RunSizes, variable: Variable, value: int) -> RunSizes:
    if run.cache is not None:
        raise UsageError("a sweep and {cache} do not go together; leave one out", cache=run.cache)
    if variable == "context-length" and spec.kind != "cross":
        raise UsageError(
            "{sweep} needs {kind}; for self-attention sweep seq",
            sweep="context-length=...",
            kind="cross",
        )
    seq = value if variable == "seq" else run.seq or DEFAULT_SEQ
    length = run.context_length
    if spec.kind == "cross":
        length = value if variable == "context-length" else length or DEFAULT_SEQ
    return replace(run, seq=seq, context_length=length, batch=run.batch or 1)


def _costs(value: int, spec: AttentionSpec, run: RunSizes) -> results.SweepCosts:
    """Cost a run through one layer."""
    axes = LayerAxes(spec, run)
    cost = flops(spec, axes)
    projected, attended = cost.projections.value or 0, cost.attention.value or 0
    return results.SweepCosts(
        value=value,
        parameters=parameters(spec).total,
        weights_bytes=(weights_elements(axes).value or 0) * run.width,
        projection_flops=projected,
        attention_flops=attended,
        attention_share=attended / (attended + projected),
        streamed_bytes=(streamed_elements(axes) or 0) * FLOAT32_BYTES,
    )


def _decoding(value: int, spec: AttentionSpec, run: RunSizes) -> results.SweepCosts:
    """Cost a step that decodes a token in one layer."""
    step = decoding([(spec, 1)], run.seq or DEFAULT_SEQ, run)
    return results.SweepCosts(
        value=value,
        parameters=parameters(spec).total,
        weights_bytes=step.weights,
        cache_bytes_per_token=cache_elements(spec) * run.cache_width,
        cache_bytes=step.cache,
        read_bytes_per_decoded_token=step.bytes_per_token,
        decoding_flops=step.flops,
        flops_per_byte=step.intensity,
    )
