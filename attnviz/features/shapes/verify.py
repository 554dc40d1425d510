"""Running a fresh layer beside the closed forms: every step's shape, parameters, FLOPs, bytes.

A model's own attention layers, run by transformers, beside attnviz's layer with their weights.

What reaches W_Q and W_K of a layer goes through :func:`own_layer`, which does the steps of the walk
one by one; shapes and values are compared with what transformers' module makes of the same input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.spec import AttentionSpec, RunSizes
from attnviz.attention.walkthrough import Walk, bucket, walk
from attnviz.errors import UsageError
from attnviz.features.shapes.result import Compared, VerifyAnswer
from attnviz.models.configs.families import LayerGroup
from attnviz.models.configs.keys import keys_of
from attnviz.models.configs.model import ModelSpec, group_parameters, read_config
from attnviz.models.external_errors import refusing, silenced
from attnviz.models.parameter_count import place_of

if TYPE_CHECKING:
    from torch import Tensor, nn

MAX_BYTES = 2 << 30
DEFAULT_T, DEFAULT_S = 7, 11


def verify(walk: Walk) -> VerifyAnswer:
    """Build the fresh layer of a walk, run it step by step, and compare; UsageError above 2 GiB."""
    if walk.spec.kind != "mla" and walk.spec.value_dim != walk.spec.head_dim:
        raise UsageError(
            "{verify} runs attnviz's own layer, whose values are as wide as its keys; {head_dim} "
            "without a second width",
            verify=...,
            head_dim=...,
        )
    needed = walk.parameters.total * walk.run.width
    needed += sum(step.bytes.value or 0 for step in walk.steps if step.bytes is not None)
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

    def check(self, key: str, label: str, expected: object, value: object) -> None:
        self.checks.append(
            Compared.of(self.walk.step(key).name, label, _text(expected), _text(value))
        )

    def step(self, key: str, compute: Callable[[], Tensor], *, module: Any = None) -> Tensor:
        """Run one step under torch's FLOP counter, and compare what it did."""
        from torch.utils.flop_counter import FlopCounterMode

        step = self.walk.step(key)
        with FlopCounterMode(display=False) as counter:
            result = compute()
        self.check(key, "shape", step.sizes, tuple(result.shape))
        if module is not None:
            count = sum(p.numel() for p in module.parameters())
            self.check(key, "parameters", step.parameters, count)
        if step.flops.value or counter.get_total_flops():
            self.check(key, "FLOPs", step.flops.value, counter.get_total_flops())
        return result

    def project(self, **inputs: Tensor) -> list[Tensor]:
        """Multiply tensors with learned matrices, by the names of these."""
        modules = ((name, getattr(self.layer, name), x) for name, x in inputs.items())
        return [self.step(name, partial(module, x), module=module) for name, module, x in modules]

    def run(self) -> None:
        """All steps, then the whole layer: its parameters, and its output."""
        import torch

        with torch.no_grad():
            self.layer.eval()
            cached = self.walk.run.cache
            new = self.x if cached is None else self.x[:, cached:]
            source = self.context if cached is None else new
            self.check("x", "shape", self.walk.step("x").sizes, tuple(new.shape))
            if self.walk.spec.kind == "cross":
                self.check("context", "shape", self.walk.step("context").sizes, tuple(source.shape))
            heads = self.latent_heads if self.walk.spec.kind == "mla" else self.plain_heads
            query, key, value = heads(new, source)
            output = self.mix(query, key, value)
            reference = self.layer(self.x, None if self.context is self.x else self.context)
        if cached is not None and not self.walk.spec.causal:
            return  # earlier outputs would look ahead, the last one sees the same
        if self.walk.spec.window is None:
            expected = reference[:, -output.shape[1] :]
            equal = torch.allclose(output, expected, rtol=1e-2, atol=_tolerance(self.dtype))
            self.check("w_o", "equals the layer's own output", True, equal)

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
            length = self.walk.step("cache").sizes[2] or 1
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
            length = self.walk.step("cache").sizes[1] or 1
            past = self.x[:, self.x.shape[1] - length : cached]
            latent = torch.cat([layer.w_latent(past), latent], 1)
            parts = [latent]
            if shared is not None:
                shared = torch.cat([layer.w_k_rope(past), shared], 1)
                parts.append(shared)
            cache = self.step("cache", lambda: torch.cat(parts, -1))
            self._bytes("cache", cache)
        key, value = self.project(w_k=latent, w_v=latent)
        query = self.step("view", lambda: query.view(*query.shape[:2], spec.heads, -1))
        query = self.step("transpose", lambda: query.transpose(1, 2))
        value = self.step("transpose_kv", lambda: split_heads(value, spec.heads))
        key = split_heads(key, spec.heads)
        if shared is None:
            return query, self.step("rope_k", lambda: key), value
        content, position = query[..., : spec.head_dim], query[..., spec.head_dim :]
        past_positions = torch.zeros_like(position[:, :, :1]).expand(-1, -1, cached or 0, -1)
        rotated = rotate(torch.cat([past_positions, position], 2))[:, :, cached or 0 :]
        query = self.step("rope", lambda: torch.cat([content, rotated], -1))
        shared_head = split_heads(shared, 1)
        offset = self.x.shape[1] - shared_head.shape[2] if cached is not None else 0
        padded = torch.nn.functional.pad(shared_head, (0, 0, offset, 0))
        rotary_keys = rotate(padded)[:, :, offset:].expand(-1, spec.heads, -1, -1)
        key = self.step("rope_k", lambda: torch.cat([key, rotary_keys], -1))
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
            equal = torch.allclose(mixed, banded, rtol=1e-2, atol=_tolerance(self.dtype))
            self.check("heads", "equals the window's keys alone", True, equal)
        square = {"scores", "scale", "mask", "window", "softmax"}
        for name in (step.key for step in self.walk.steps if step.key in square):
            self.check(name, "shape", self.walk.step(name).sizes, tuple(weights.shape))
        expected = (self.walk.step("scores").flops + self.walk.step("heads").flops).value
        self.check("scores", "FLOPs, with those of A V", expected, flops)
        self._bytes("softmax", weights.to(self.dtype))
        self.check("heads", "shape", self.walk.step("heads").sizes, tuple(mixed.shape))
        concat = self.step("untranspose", lambda: mixed.transpose(1, 2))
        concat = self.step("concat", lambda: concat.contiguous().view(*concat.shape[:2], -1))
        self._bytes("concat", concat)
        (output,) = self.project(w_o=concat)
        self._bytes("w_o", output)
        count = sum(p.numel() for p in self.layer.parameters())
        self.check("w_o", "parameters of the whole layer", self.walk.parameters.total, count)
        return output

    def _bytes(self, key: str, *tensors: Tensor) -> None:
        expected = self.walk.step(key).bytes
        size = sum(t.numel() * t.element_size() for t in tensors)
        self.check(key, "bytes", None if expected is None else expected.value, size)


def attended(
    query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec, **options: Any
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
        **options,
    ).output
    return mixed, weights[0]


def _banded(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec) -> Tensor:
    """Attend [B, H, T, d_v] with each window's keys alone, laid out as [B, H, T, d, w]."""
    import torch

    window, length = spec.window or 0, query.shape[2]
    behind, ahead = window - 1, 0 if spec.causal else window - 1
    if behind + 1 + ahead >= length:  # as long as the text: every query meets every key
        places = torch.arange(length)[None].expand(length, -1)
        near = [tensor.transpose(2, 3)[:, :, None] for tensor in (key, value)]
    else:
        places = torch.arange(length)[:, None] + torch.arange(-behind, ahead + 1)
        pad = torch.nn.functional.pad
        near = [
            pad(tensor, (0, 0, behind, ahead)).unfold(2, behind + 1 + ahead, 1)
            for tensor in (key, value)
        ]
    keys, values = (tensor.repeat_interleave(spec.group, 1) for tensor in near)
    distance = torch.arange(length)[:, None] - places
    allowed = (places >= 0) & (places < length) & (distance.abs() < window)
    allowed &= (distance >= 0) | (not spec.causal)
    scores = (query[:, :, :, None] @ keys)[:, :, :, 0] / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
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
        kind, stack = site_of(group)
        numbers = group.layers[:1] if group.shared else group.layers
        total = sum(
            count
            for (tower, attends, number), count in layers.items()
            if attends == kind and number in numbers and (not stack or tower in ("", stack))
        )
        checks.append((group.label, group_parameters(group), total))
    checks.append(("all attention", model.attention_parameters, sum(layers.values())))
    compared = (
        Compared.of(label, "parameters", _text(formula), _text(total))
        for label, formula, total in checks
    )
    return VerifyAnswer.of(compared, f"{model.name}, counted in {origin}")


def site_of(group: LayerGroup) -> tuple[str, str]:
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


TOKENS, SOURCE = 9, 7
MAX_PARAMETERS = 300_000_000
"""Larger models are run at tiny sizes, for their weights alone would fill a gigabyte."""

RUNS = frozenset(
    {"bert", "roberta", "electra", "gpt2", "llama", "mistral", "mixtral", "gemma", "gemma2"}
    | {"gemma3_text", "olmo", "olmo2", "olmo3", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe"}
    | {"t5", "mt5", "bart", "distilbert", "granite"}
)
"""Families whose layers are run; those of others are counted alone."""

TOLERANCE = 1e-4
"""Share of the largest number by which float32 results of the same formula may differ."""

_ONE_PLUS = frozenset({"gemma3_text"})  # families whose norms keep their weights less 1

_NAMES = (
    ("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj", "dense")),
    ("q_lin", "k_lin", "v_lin", ("out_lin",)),
    ("query", "key", "value", ("dense",)),
    ("q", "k", "v", ("o",)),
    ("c_attn", "", "", ("c_proj",)),
    ("qkv_proj", "", "", ("o_proj",)),
)


@dataclass
class WatchedLayer:
    """One layer at work: its module, its matrices, and what went in and came out of them."""

    attention: nn.Module
    modules: tuple[nn.Module, nn.Module | None, nn.Module | None, nn.Module]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, name: str, tensor: Tensor) -> None:
        """Remember a tensor by its name; the last one of that name stays."""
        self.tensors[name] = tensor.detach()


def can_run(model: ModelSpec) -> bool:
    """Say whether :func:`own_layer` can do every step; not with scaled rotary frequencies."""
    scaled = any(group.spec.rotary and group.spec.rotary.scaling for group in model.groups)
    return model.family in RUNS and not scaled


def run_layers(
    model: ModelSpec, config: Mapping[str, Any], folder: Path | None
) -> tuple[list[Compared], str]:
    """Run a model, or a tiny one without ``folder``; compare each group's first layer with ours."""
    import torch
    import transformers

    spec, weights = model, "with its own weights"
    with refusing(f"transformers cannot build {model.name}"), silenced():
        if folder is not None:
            network = transformers.AutoModel.from_pretrained(
                folder,
                attn_implementation="eager",
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
            )
        else:
            fields = {**config, **tiny(model, config)}
            spec, weights = read_config(fields, model.name), "at tiny sizes with random weights"
            network = _drawn(transformers.AutoConfig.for_model(**fields))
    layers = _watched(network)
    ids = torch.arange(1, TOKENS + 1)[None]
    inputs = {"input_ids": ids}
    if any(group.spec.kind == "cross" for group in spec.groups):
        inputs = {"input_ids": ids[:, :SOURCE], "decoder_input_ids": ids}
    with torch.no_grad():
        with refusing(f"transformers cannot run {model.name}"):
            network.eval()(**inputs)
        checks = [
            check
            for group in spec.groups
            for check in _compared(group, layers, network.config, spec.family)
        ]
    tokens = f"{TOKENS} tokens"
    return checks, f"transformers' {type(network).__name__} was run {weights} on {tokens}."


def _drawn(settings: Any) -> nn.Module:
    """Give a network with random weights, vectors too, so that no norm and no bias does nothing."""
    import torch
    import transformers

    maker: Any = transformers.AutoModel
    network: nn.Module = maker.from_config(settings, attn_implementation="eager")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            spread = 1 / math.sqrt(parameter.shape[-1]) if parameter.dim() > 1 else 0.5
            parameter.normal_(0, spread, generator=generator)
    return network.float()


def tiny(model: ModelSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    """Give fields that make a model small and keep its kind: shared heads, windows, all layers."""
    keys, spec = keys_of(model.family), model.main.spec
    kv_heads = min(spec.kv_heads, 2)
    heads = kv_heads * min(spec.group, 3) if spec.group > 1 else 2
    kv_heads = heads if spec.group == 1 else kv_heads
    square = spec.heads * spec.head_dim == spec.d_model
    sizes = {
        "d_model": 8 * heads if square else 24,
        "heads": heads,
        "decoder_heads": heads,
        "kv_heads": kv_heads,
        "head_dim": 8,
        "inner": 16,
        "vocab": 32,
    }
    fields = {
        name: size for field, size in sizes.items() for name in getattr(keys, field)
        if name in config or field in ("inner", "vocab")
    }  # fmt: skip
    if keys.kv_heads and "num_key_value_heads" not in fields and model.family != "gpt2":
        fields["num_key_value_heads"] = kv_heads
    if "head_dim" not in fields and keys.head_dim == ("head_dim",) and model.family != "gpt2":
        fields["head_dim"] = 8
    fields |= dict.fromkeys(("num_experts", "num_local_experts"), 2)
    fields |= {"num_experts_per_tok": 1, "moe_intermediate_size": 16, "d_ff": 16}
    fields |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    fields |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    fields["decoder_start_token_id"] = 0
    if model.family in ("gemma2", "gemma3_text"):
        fields["query_pre_attn_scalar"] = 12
    if any(group.spec.window is not None for group in model.groups):
        fields["sliding_window"] = 4
    return fields


def _watched(network: nn.Module) -> dict[tuple[str, str, int], WatchedLayer]:
    """Every layer of attention by (stack, kind, layer), watched from now on."""
    watched: dict[tuple[str, str, int], WatchedLayer] = {}
    modules = dict(network.named_modules())
    for name, module in modules.items():
        position = place_of(f"{name}.q")
        for q, k, v, outs in _NAMES:
            if position is None or position in watched or not hasattr(module, q):
                continue
            parent = modules.get(name.rpartition(".")[0] + ".output")
            holder = next((m for m in (module, parent) if any(hasattr(m, o) for o in outs)), None)
            if holder is None:
                continue
            out = next(getattr(holder, o) for o in outs if hasattr(holder, o))
            parts = (getattr(module, q), getattr(module, k, None), getattr(module, v, None), out)
            watched[position] = _watch(WatchedLayer(module, parts))
    return watched


def _watch(layer: WatchedLayer) -> WatchedLayer:
    q, k, v, out = layer.modules
    for letter, module in (("q", q), ("k", k), ("v", v), ("y", out)):
        if module is not None:

            def hook(_: Any, inputs: Any, output: Any, letter: str = letter) -> None:
                layer.keep(f"{letter} in", inputs[0])
                layer.keep(letter, output)

            module.register_forward_hook(hook)

    def weights(_: Any, __: Any, out: Any) -> None:
        if isinstance(out, tuple):
            for tensor in out[1:]:  # T5 returns its biases, of the same shape, before the weights
                if hasattr(tensor, "dim") and tensor.dim() == 4:
                    layer.keep("weights", tensor)

    layer.attention.register_forward_hook(weights)
    return layer


def _compared(
    group: LayerGroup, layers: Mapping[tuple[str, str, int], WatchedLayer], config: Any, family: str
) -> list[Compared]:
    """Shapes and values of a group's first layer."""
    spec, number = group.spec, group.layers[0]
    kind, stack = site_of(group)
    stack = stack or ("decoder" if kind == "cross" else "")
    step = f"{group.label}, layer {number}"
    watched = next(
        (layer for (tower, attends, i), layer in layers.items()
         if (attends, i) == (kind, number) and tower in ("", stack or tower)),
        None,
    )  # fmt: skip
    if watched is None or "q in" not in watched.tensors:
        return [Compared.of(step, "layer", "found", "not found")]
    first = next((layer for (tower, attends, i), layer in layers.items()
                  if (attends, i) == ("self", 0) and tower == stack), watched)  # fmt: skip
    theirs = watched.tensors
    x, source = theirs["q in"], theirs.get("k in", theirs["q in"])
    context = source.shape[1] if spec.kind == "cross" else None
    steps = walk(spec, RunSizes(1, x.shape[1], context))
    concat, output, weights = own_layer(spec, watched, first, config, family)
    checks = []
    parts = [(f"w_{letter}", letter) for letter in "qkv" if watched.modules[1] is not None]
    for key, name in [*parts, ("softmax", "weights"), ("concat", "y in"), ("w_o", "y")]:
        result = steps.step(key)
        shape = str(tuple(theirs[name].shape)) if name in theirs else "not found"
        checks.append(Compared.of(step, f"{result.name}, shape", str(result.sizes), shape))
    for key, name, ours in (
        ("softmax", "weights", weights),
        ("concat", "y in", concat),
        ("w_o", "y", output),
    ):
        if name in theirs:
            difference = _difference(ours, theirs[name])
            checks.append(Compared.of(step, f"{steps.step(key).name}, values", "equal", difference))
    return checks


def _difference(ours: Tensor, theirs: Tensor) -> str:
    """``equal`` within float32, or by how much of the largest value the two differ."""
    if ours.shape != theirs.shape:
        return f"shape {tuple(theirs.shape)}"
    share = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
    return "equal" if share < TOLERANCE else f"differ by {share:.2g} of the largest"


def own_layer(
    spec: AttentionSpec, watched: WatchedLayer, first: WatchedLayer, config: Any, family: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Run attnviz's layer with a real one's weights: heads, output and weights [B, H, T, S]."""
    import torch

    from attnviz.attention.layers import split_heads

    x = watched.tensors["q in"]
    source = watched.tensors.get("k in", x)
    q_module, k_module, v_module, out = watched.modules
    if k_module is None or v_module is None:
        matrix, added = _matrix(q_module)
        widths = [spec.heads * spec.head_dim, *[spec.kv_heads * spec.head_dim] * 2]
        pieces = list(torch.split(x @ matrix + added, widths, -1))
    else:
        pairs = ((x, q_module), (source, k_module), (source, v_module))
        pieces = [tensor @ _matrix(module)[0] + _matrix(module)[1] for tensor, module in pairs]
    queries, keys, value = pieces
    norm = spec.qk_norm

    def normed(part: Tensor, letter: str) -> Tensor:
        return _normed(spec, part, _norm(watched.attention, letter), family)

    if norm is not None and norm.joint:
        queries, keys = normed(queries, "q"), normed(keys, "k")
    query, key = split_heads(queries, spec.heads), split_heads(keys, spec.kv_heads)
    if norm is not None and not norm.joint:
        query, key = normed(query, "q"), normed(key, "k")
    if spec.rotary is not None:
        base = spec.rotary.base or _base(config, spec)
        query, key = _rotated(query, spec, base), _rotated(key, spec, base)
    bias = None
    if spec.buckets is not None:
        table: Any = first.attention.relative_attention_bias
        length = query.shape[2]
        rows = [
            [bucket(s - t, spec.buckets, causal=spec.causal) for s in range(length)]
            for t in range(length)
        ]
        bias = table.weight[torch.tensor(rows)].permute(2, 0, 1)[None]
    value = split_heads(value, spec.kv_heads)
    mixed, weights = attended(
        query, key, value, spec, scale=spec.scale, softcap=spec.softcap, bias=bias
    )
    concat = mixed.transpose(1, 2).reshape(*x.shape[:2], -1)
    matrix, offset = _matrix(out)
    return concat, concat @ matrix + offset, weights


def _matrix(module: nn.Module) -> tuple[Tensor, Tensor | float]:
    """Return the matrix [inputs, outputs] and bias of a projection; GPT-2 keeps it turned."""
    import torch

    part: Any = module
    weight = part.weight.mT if isinstance(module, torch.nn.Linear) else part.weight
    bias = getattr(part, "bias", None)
    return weight, 0.0 if bias is None else bias


def _norm(attention: nn.Module, letter: str) -> Any:
    return getattr(attention, f"{letter}_norm", getattr(attention, f"{letter}_layernorm", None))


def _normed(spec: AttentionSpec, x: Tensor, norm: Any, family: str) -> Tensor:
    """Normalize over the last axis, times the learned weights."""
    import torch

    if spec.qk_norm is not None and spec.qk_norm.kind == "LayerNorm":
        x = x - x.mean(-1, keepdim=True)
    eps = next(getattr(norm, n) for n in ("variance_epsilon", "eps") if hasattr(norm, n))
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    bias = getattr(norm, "bias", None)
    normed: Tensor = x * (norm.weight + (family in _ONE_PLUS))
    return normed if bias is None else normed + bias


def _base(config: Any, spec: AttentionSpec) -> float:
    """Return the base that transformers takes where the config names none."""
    rope = config.rope_parameters
    kind = "full_attention" if spec.window is None else "sliding_attention"
    return float(rope.get(kind, rope)["rope_theta"])


def _rotated(x: Tensor, spec: AttentionSpec, base: float) -> Tensor:
    """[B, H, T, d] with the first numbers of each head turned by position, as complex numbers."""
    import torch

    width = spec.rotary.width if spec.rotary is not None else 0
    rotary, plain = x[..., :width], x[..., width:]
    real, imaginary = rotary.chunk(2, -1)
    speed = base ** (-2 * torch.arange(width // 2) / width)
    angle = torch.arange(x.shape[2])[:, None] * speed
    z = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag, plain], -1)
