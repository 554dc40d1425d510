"""Running a fresh layer beside the closed forms: every step's shape, parameters, FLOPs, bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from attnviz.attention.steps import Step, Walk
from attnviz.errors import UsageError
from attnviz.features.shapes.result import Compared, VerifyAnswer
from attnviz.models.configs.model import ModelSpec, group_parameters

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.attention.spec import AttentionSpec
    from attnviz.models.configs.families import LayerGroup

MAX_BYTES = 2 << 30
DEFAULT_T, DEFAULT_S = 7, 11


def needed_bytes(walk: Walk) -> int:
    """Roughly what running the walk takes: its activations and its parameters."""
    total = walk.parameters.total * walk.run.width
    for step in walk.steps:
        total += (step.bytes.value or 0) if step.bytes is not None else 0
    return total


def verify(walk: Walk) -> VerifyAnswer:
    """Build the fresh layer of a walk, run it step by step, and compare; UsageError above 2 GiB."""
    if walk.spec.kind != "mla" and walk.spec.value_dim != walk.spec.head_dim:
        raise UsageError(
            "{verify} runs attnviz's own layer, whose values are as wide as its keys; {head_dim} "
            "without a second width",
            verify=...,
            head_dim=...,
        )
    needed = needed_bytes(walk)
    if needed > MAX_BYTES:
        raise UsageError(
            "{verify} would run the layer in about {:,.1f} GiB, more than {} GiB",
            needed / 2**30,
            MAX_BYTES >> 30,
            remedy="take smaller {seq}, {batch} or {d_model}",
            verify=...,
            seq=...,
            batch=...,
            d_model=...,
        )
    runner = _Runner(walk)
    runner.run()
    return VerifyAnswer.of(runner.checks, f"fresh {walk.spec.title}, run in {walk.run.number}")


class _Runner:
    """Takes the layer's own parts through the steps that its forward takes."""

    def __init__(self, walk: Walk) -> None:
        import torch

        from attnviz.attention.layers import build_layer

        spec, run = walk.spec, walk.run
        self.walk = walk
        self.checks: list[Compared] = []
        latent = spec.kind == "mla"
        self.dtype = getattr(torch, run.number)
        self.layer: Any = build_layer(
            spec.kind,
            spec.d_model,
            spec.heads,
            kv_heads=None if latent else spec.kv_heads,
            head_dim=spec.head_dim,
            latent=spec.latent or None,
            rope_dim=spec.rope_dim if latent else None,
            bias=bool(spec.biases),
            causal=spec.causal,
        ).to(self.dtype)
        generator = torch.Generator().manual_seed(0)

        def draw(tokens: int) -> Tensor:
            shape = (run.batch or 1, tokens, spec.d_model)
            return torch.randn(shape, generator=generator).to(self.dtype)

        self.x = draw((run.cache or 0) + (run.new or DEFAULT_T))
        self.context = self.x
        if spec.kind == "cross":
            self.context = draw(run.context_length or DEFAULT_S)

    def said(self, key: str) -> Step:
        return self.walk.step(key)

    def check(self, key: str, what: str, said: object, value: object) -> None:
        self.checks.append(Compared.of(self.said(key).name, what, _text(said), _text(value)))

    def step(self, key: str, compute: Callable[[], Tensor], *, module: Any = None) -> Tensor:
        """Run one step under torch's FLOP counter, and compare what it did."""
        from torch.utils.flop_counter import FlopCounterMode

        step = self.said(key)
        with FlopCounterMode(display=False) as counter:
            result = compute()
        self.check(key, "shape", step.sizes, tuple(result.shape))
        if module is not None:
            count = sum(p.numel() for p in module.parameters())
            self.check(key, "parameters", step.parameters, count)
        if step.flops.value or counter.get_total_flops():
            self.check(key, "FLOPs", step.flops.value, counter.get_total_flops())
        return result

    def project(self, **given: Tensor) -> list[Tensor]:
        """Multiply tensors with learned matrices, by the names of these."""
        modules = ((name, getattr(self.layer, name), x) for name, x in given.items())
        return [self.step(name, partial(module, x), module=module) for name, module, x in modules]

    def run(self) -> None:
        """All steps, then the whole layer: its parameters, and its output."""
        import torch

        with torch.no_grad():
            self.layer.eval()
            cached = self.walk.run.cache
            new = self.x if cached is None else self.x[:, cached:]
            source = self.context if cached is None else new
            self.check("x", "shape", self.said("x").sizes, tuple(new.shape))
            if self.walk.spec.kind == "cross":
                self.check("context", "shape", self.said("context").sizes, tuple(source.shape))
            heads = self.latent_heads if self.walk.spec.kind == "mla" else self.plain_heads
            query, key, value = heads(new, source)
            output = self.mix(query, key, value)
            whole = self.layer(self.x, None if self.context is self.x else self.context)
        if cached is not None and not self.walk.spec.causal:
            return  # earlier outputs would look ahead, the last one sees the same
        if self.walk.spec.window is None:
            expected = whole[:, -output.shape[1] :]
            same = torch.allclose(output, expected, rtol=1e-2, atol=_tolerance(self.dtype))
            self.check("w_o", "equals the layer's own output", True, same)

    def plain_heads(self, new: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        import torch

        layer, spec = self.layer, self.walk.spec
        split = "view_kv" if any(s.key == "view_kv" for s in self.walk.steps) else "view"
        turn = split.replace("view", "transpose")
        query, key, value = self.project(w_q=new, w_k=source, w_v=source)
        query = self.step("view", lambda: query.view(*query.shape[:2], spec.heads, -1))
        key, value = (
            self.step(split, partial(x.view, *x.shape[:2], spec.kv_heads, -1)) for x in (key, value)
        )
        query = self.step("transpose", lambda: query.transpose(1, 2))
        key, value = (self.step(turn, partial(x.transpose, 1, 2)) for x in (key, value))
        if self.walk.run.cache is not None:
            length = self.said("cache").sizes[2] or 1
            _, old_key, old_value = layer.project(self.x, self.x)
            past = slice(old_key.shape[2] - length, self.walk.run.cache)
            key = self.step("cache", lambda: torch.cat([old_key[:, :, past], key], 2))
            value = self.step("cache", lambda: torch.cat([old_value[:, :, past], value], 2))
            self._bytes("cache", key, value)
        if spec.group > 1:
            shape = (query.shape[0], spec.kv_heads, spec.group, *query.shape[2:])
            self.step("share", lambda: query.view(shape))
        return query, key, value

    def latent_heads(self, new: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        import torch

        from attnviz.attention.layers import rotate, split_heads

        layer, spec, cached = self.layer, self.walk.spec, self.walk.run.cache
        query, latent = self.project(w_q=new, w_latent=source)
        (shared,) = self.project(w_k_rope=source) if spec.rope_dim else (None,)
        if cached is not None:
            length = self.said("cache").sizes[1] or 1
            past = self.x[:, self.x.shape[1] - length : cached]
            latent = torch.cat([layer.w_latent(past), latent], 1)
            parts = [latent]
            if shared is not None:
                shared = torch.cat([layer.w_k_rope(past), shared], 1)
                parts.append(shared)
            joined = self.step("cache", lambda: torch.cat(parts, -1))
            self._bytes("cache", joined)
        key, value = self.project(w_k=latent, w_v=latent)
        query = self.step("view", lambda: query.view(*query.shape[:2], spec.heads, -1))
        query = self.step("transpose", lambda: query.transpose(1, 2))
        value = self.step("transpose_kv", lambda: split_heads(value, spec.heads))
        key = split_heads(key, spec.heads)
        if shared is None:
            return query, self.step("rope_k", lambda: key), value
        content, position = query[..., : spec.head_dim], query[..., spec.head_dim :]
        before = torch.zeros_like(position[:, :, :1]).expand(-1, -1, cached or 0, -1)
        turned = rotate(torch.cat([before, position], 2))[:, :, cached or 0 :]
        query = self.step("rope", lambda: torch.cat([content, turned], -1))
        shared_head = split_heads(shared, 1)
        offset = self.x.shape[1] - shared_head.shape[2] if cached is not None else 0
        padded = torch.nn.functional.pad(shared_head, (0, 0, offset, 0))
        every = rotate(padded)[:, :, offset:].expand(-1, spec.heads, -1, -1)
        key = self.step("rope_k", lambda: torch.cat([key, every], -1))
        self._bytes("rope_k", key)
        return query, key, value

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention itself through the real :func:`attend`, then the output projection."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        spec = self.walk.spec
        with FlopCounterMode(display=False) as counter:
            mixed, weights = attended(query, key, value, spec)
        flops = counter.get_total_flops()
        if spec.window is not None and self.walk.run.cache is None:
            with FlopCounterMode(display=False) as counter:
                banded = _banded(query, key, value, spec)
            flops = counter.get_total_flops()
            same = torch.allclose(mixed, banded, rtol=1e-2, atol=_tolerance(self.dtype))
            self.check("heads", "equals the window's keys alone", True, same)
        square = {"scores", "scale", "mask", "window", "softmax"}
        for name in (step.key for step in self.walk.steps if step.key in square):
            self.check(name, "shape", self.said(name).sizes, tuple(weights.shape))
        both = (self.said("scores").flops + self.said("heads").flops).value
        self.check("scores", "FLOPs, with those of A V", both, flops)
        self._bytes("softmax", weights.to(self.dtype))
        self.check("heads", "shape", self.said("heads").sizes, tuple(mixed.shape))
        joined = self.step("untranspose", lambda: mixed.transpose(1, 2))
        joined = self.step("concat", lambda: joined.contiguous().view(*joined.shape[:2], -1))
        self._bytes("concat", joined)
        (output,) = self.project(w_o=joined)
        self._bytes("w_o", output)
        count = sum(p.numel() for p in self.layer.parameters())
        self.check("w_o", "parameters of the whole layer", self.walk.parameters.total, count)
        return output

    def _bytes(self, key: str, *tensors: Tensor) -> None:
        said = self.said(key).bytes
        size = sum(t.numel() * t.element_size() for t in tensors)
        self.check(key, "bytes", None if said is None else said.value, size)


def attended(
    query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec, **how: Any
) -> tuple[Tensor, Tensor]:
    """Attend by the real :func:`attend`: heads' outputs [B, H, T, d_v], weights [B, H, T, S]."""
    from attnviz.attention.layers import attend

    weights: list[Tensor] = []

    class Watcher:
        def observe(self, rows: Any) -> None:
            weights.append(rows.weights.clone())

    mixed = attend(
        query,
        key,
        value,
        causal=spec.causal,
        window=spec.window,
        observers=[Watcher()],
        block_rows=query.shape[2],
        **how,
    ).output
    return mixed, weights[0]


def _banded(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """Attend [B, H, T, d_v] with each window's keys alone, laid out as [B, H, T, d, w]."""
    import torch

    window, length = spec.window or 0, query.shape[2]
    before, after = window - 1, 0 if spec.causal else window - 1
    if before + 1 + after >= length:  # as long as the text: every query meets every key
        places = torch.arange(length)[None].expand(length, -1)
        near = [tensor.transpose(2, 3)[:, :, None] for tensor in (key, value)]
    else:
        places = torch.arange(length)[:, None] + torch.arange(-before, after + 1)
        pad = torch.nn.functional.pad
        near = [
            pad(tensor, (0, 0, before, after)).unfold(2, before + 1 + after, 1)
            for tensor in (key, value)
        ]
    keys, values = (tensor.repeat_interleave(spec.group, 1) for tensor in near)
    back = torch.arange(length)[:, None] - places
    seen = (places >= 0) & (places < length) & (back.abs() < window)
    seen &= (back >= 0) | (not spec.causal)
    scores = (query[:, :, :, None] @ keys)[:, :, :, 0] / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return (weights[:, :, :, None] @ values.transpose(3, 4))[:, :, :, 0]


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _tolerance(dtype: Any) -> float:
    return {"torch.float64": 1e-10, "torch.float32": 1e-5}.get(str(dtype), 3e-2)


def verify_model(
    model: ModelSpec, layers: dict[tuple[str, str, int], int], origin: str
) -> VerifyAnswer:
    """Compare closed forms with parameters counted in ``origin`` by (stack, kind, layer)."""
    checks = []
    for group in model.groups:
        kind, stack = placed(group)
        numbers = group.layers[:1] if group.shared else group.layers
        found = sum(
            count
            for (where, what, number), count in layers.items()
            if what == kind and number in numbers and (not stack or where in ("", stack))
        )
        checks.append((group.label, group_parameters(group), found))
    checks.append(("all attention", model.attention_parameters, sum(layers.values())))
    compared = (
        Compared.of(label, "parameters", _text(formula), _text(found))
        for label, formula, found in checks
    )
    return VerifyAnswer.of(compared, f"{model.name}, counted in {origin}")


def placed(group: LayerGroup) -> tuple[str, str]:
    """Say whether like layers attend to themselves or across, and in which stack they stand."""
    stack = next((s for s in ("encoder", "decoder") if group.label.startswith(s)), "")
    return "cross" if group.spec.kind == "cross" else "self", stack


def verify_towers(
    name: str,
    towers: Mapping[str, ModelSpec],
    parameters: Mapping[str, Mapping[tuple[str, str, int], int]],
    origin: str,
) -> VerifyAnswer:
    """Do so for a model of several towers, each by itself; those not among ``towers`` are not."""
    checks = [
        replace(check, step=f"{tower}: {check.step}")
        for tower, model in towers.items()
        for check in verify_model(model, dict(parameters.get(tower, {})), origin).checks
    ]
    return VerifyAnswer.of(checks, f"{name}, counted in {origin}")
