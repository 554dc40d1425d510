"""Scores by source, computed another way: with numbers for parts, by hand, in float64.

Written from the formulas and the plain weights of transformers' modules, without a forward pass of
theirs, without derivatives and without attnviz. A stream is a dictionary from the name of a source
to what it has written, [T, D]; a normalization is applied to every part with the σ of their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Stream = dict[str, Tensor]


@dataclass(frozen=True)
class Norm:
    """γ (x - mean x) / σ + β, or without the mean."""

    scale: Tensor
    eps: float
    shift: Tensor | None = None
    centred: bool = False

    def __call__(self, parts: Stream) -> Stream:
        """Every part, σ being that of the sum."""
        whole = sum(parts.values())
        if self.centred:
            whole = whole - whole.mean(-1, keepdim=True)
        sigma = (whole.square().mean(-1, keepdim=True) + self.eps).sqrt()
        made = {
            name: self.scale * (x - x.mean(-1, keepdim=True) if self.centred else x) / sigma
            for name, x in parts.items()
        }
        return made if self.shift is None else added(made, "biases", self.shift)


@dataclass(frozen=True)
class Attention:
    """One attention layer: W as [out, in], and what becomes of queries and keys."""

    heads: int
    groups: int
    weights: dict[str, Tensor]
    biases: dict[str, Tensor]
    scale: float
    norms: tuple[Norm, Norm] | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    bias: Tensor | None = None
    softcap: float | None = None
    causal: bool = True
    window: int | None = None


@dataclass(frozen=True)
class Layer:
    """A layer: ``arrangement`` is pre, post or parallel; ``after`` the norms of sandwich layers."""

    attention: Attention
    norms: tuple[Norm, Norm]
    mlp: Callable[[Tensor], Tensor]
    arrangement: str = "pre"
    after: tuple[Norm, Norm] | None = None


@dataclass(frozen=True)
class Split:
    """Of one attention layer: parts of queries [T, H, d] and keys [S, H, d], and what else."""

    queries: Stream
    keys: Stream
    scale: float
    bias: Tensor
    weights: Tensor

    def matrix(self, head: int, query: int, key: int) -> dict[tuple[str, str], float]:
        """What every pair of sources adds to a score."""
        return {
            (a, b): float(self.scale * (q[query, head] @ k[key, head]))
            for a, q in self.queries.items()
            for b, k in self.keys.items()
        }


def added(parts: Stream, name: str, x: Tensor) -> Stream:
    """The stream with something more in it."""
    like = next(iter(parts.values()))
    return {**parts, name: parts.get(name, torch.zeros_like(like)) + x}


def attended(
    layer: Attention, parts: Stream, name: Callable[[int], str], other: Stream | None = None
) -> tuple[Split, Stream]:
    """Attention on the parts of what it reads, and what its heads write."""
    keyed = parts if other is None else other

    def made(which: str, parts: Stream, heads: int) -> Stream:
        weight, bias = layer.weights[which], layer.biases.get(which)
        found = {n: (x @ weight.T).unflatten(-1, (heads, -1)) for n, x in parts.items()}
        return found if bias is None else added(found, "biases", bias.view(heads, -1))

    q, k = made("q", parts, layer.heads), made("k", keyed, layer.groups)
    v = sum(made("v", keyed, layer.groups).values())
    if layer.norms is not None:
        q, k = layer.norms[0](q), layer.norms[1](k)
    if layer.rotary is not None:
        q, k = ({n: turned(x, *layer.rotary) for n, x in some.items()} for some in (q, k))
    repeat = layer.heads // layer.groups
    k = {n: x.repeat_interleave(repeat, 1) for n, x in k.items()}
    v = v.repeat_interleave(repeat, 1)
    queries, keys = sum(q.values()), sum(k.values())
    scores = layer.scale * torch.einsum("thd,shd->hts", queries, keys)
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    bias = torch.zeros_like(scores) if layer.bias is None else layer.bias.expand_as(scores)
    scores = scores + bias
    distance = torch.arange(len(queries))[:, None] - torch.arange(len(keys))
    if layer.causal:
        scores = scores.masked_fill(distance < 0, -torch.inf)
    if layer.window is not None:
        scores = scores.masked_fill(distance.abs() >= layer.window, -torch.inf)
    weights = scores.softmax(-1)
    z = torch.einsum("hts,shd->thd", weights, v)
    out = layer.weights["o"].unflatten(1, (layer.heads, -1))  # [D, H, d_v]
    written = {name(h): z[:, h] @ out[:, h].T for h in range(layer.heads)}
    if "o" in layer.biases:
        written = added(written, "biases", layer.biases["o"])
    return Split(q, k, layer.scale, bias, weights), written


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the two halves of the first ``width`` dimensions, [T, H, d]."""
    width = cos.shape[-1]
    turning, rest = x[..., :width], x[..., width:]
    half = width // 2
    swapped = torch.cat([-turning[..., half:], turning[..., :half]], -1)
    return torch.cat([turning * cos[:, None] + swapped * sin[:, None], rest], -1)


def joined(stream: Stream, *more: Stream) -> Stream:
    """The sum of streams."""
    for parts in more:
        for name, x in parts.items():
            stream = added(stream, name, x)
    return stream


def through(layers: list[Layer], stream: Stream) -> tuple[list[Split], Stream]:
    """A stack of layers, and what leaves it."""
    found = []
    for number, layer in enumerate(layers):
        first, second = layer.norms

        def name(head: int, number: int = number) -> str:
            return f"{number}.{head}"

        read = stream if layer.arrangement == "post" else first(stream)
        split, written = attended(layer.attention, read, name)
        found.append(split)
        if layer.after is not None:
            written = layer.after[0](written)
        middle = joined(stream, written)
        if layer.arrangement == "post":
            middle = first(middle)
        entering = {
            "pre": lambda middle=middle, second=second: second(middle),
            "post": lambda middle=middle: middle,
            "parallel": lambda stream=stream, second=second: second(stream),
        }[layer.arrangement]()
        out = {f"MLP {number}": layer.mlp(sum(entering.values()))}
        if layer.after is not None:
            out = layer.after[1](out)
        stream = joined(middle, out)
        if layer.arrangement == "post":
            stream = second(stream)
    return found, stream


# What transformers calls these things, family by family.


def layer_norm(module: Any) -> Norm:
    return Norm(module.weight, module.eps, module.bias, True)


def rms_norm(module: Any, plus: float = 0.0) -> Norm:
    eps = getattr(module, "variance_epsilon", None) or module.eps
    return Norm(plus + module.weight, eps)


def linear(modules: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and biases of linear layers by their letters."""
    biases = {n: m.bias for n, m in modules.items() if m.bias is not None}
    return {n: m.weight for n, m in modules.items()}, biases


def gpt2(model: Any, ids: Tensor) -> list[Split]:
    size, heads = model.config.n_embd, model.config.n_head
    layers = []
    for block in model.h:
        attention, mlp = block.attn, block.mlp
        joint, bias = attention.c_attn.weight.T, attention.c_attn.bias
        weights = dict(zip("qkv", joint.split(size), strict=True))
        biases = dict(zip("qkv", bias.split(size), strict=True))
        weights["o"], biases["o"] = attention.c_proj.weight.T, attention.c_proj.bias

        def forward(x: Tensor, mlp: Any = mlp) -> Tensor:
            x = x @ mlp.c_fc.weight + mlp.c_fc.bias
            gelu = torch.nn.functional.gelu(x, approximate="tanh")
            return gelu @ mlp.c_proj.weight + mlp.c_proj.bias

        one = Attention(heads, heads, weights, biases, (size / heads) ** -0.5)
        layers.append(Layer(one, (layer_norm(block.ln_1), layer_norm(block.ln_2)), forward))
    stream = {"token": model.wte.weight[ids], "position": model.wpe.weight[: len(ids)]}
    return through(layers, stream)[0]


def llama(model: Any, ids: Tensor) -> list[Split]:
    """Llama, Qwen3, Gemma 2 and Gemma 3, and mixtures of experts of their form."""
    config, kind = model.config, model.config.model_type
    gemma = kind.startswith("gemma")
    positions = torch.arange(len(ids))[None]
    like = torch.zeros(1, len(ids), config.hidden_size, dtype=torch.float64)
    layers = []
    for number, block in enumerate(model.layers):
        attention, mlp = block.self_attn, block.mlp
        letters = {n: getattr(attention, f"{n}_proj") for n in "qkvo"}
        types = (config.layer_types[number],) if kind == "gemma3_text" else ()
        cos, sin = (x[0].double() for x in model.rotary_emb(like, positions, *types))
        qk = None
        if hasattr(attention, "q_norm"):
            qk = tuple(rms_norm(getattr(attention, f"{n}_norm"), float(gemma)) for n in "qk")
        window = None
        if gemma and config.layer_types[number] == "sliding_attention":
            window = config.sliding_window
        scale = config.query_pre_attn_scalar**-0.5 if gemma else attention.head_dim**-0.5
        one = Attention(
            config.num_attention_heads, config.num_key_value_heads, *linear(letters), scale, qk,
            (cos, sin), softcap=getattr(config, "attn_logit_softcapping", None), window=window,
        )  # fmt: skip
        names = ["input_layernorm", "post_attention_layernorm"]
        after = None
        if gemma:
            names[1] = "pre_feedforward_layernorm"
            outer = (block.post_attention_layernorm, block.post_feedforward_layernorm)
            after = tuple(rms_norm(norm, 1.0) for norm in outer)
        norms = tuple(rms_norm(getattr(block, n), float(gemma)) for n in names)

        def forward(x: Tensor, mlp: Any = mlp) -> Tensor:
            made = mlp(x[None])  # experts give their router's scores as well
            return (made[0] if isinstance(made, tuple) else made)[0]

        layers.append(Layer(one, norms, forward, after=after))
    factor = config.hidden_size**0.5 if gemma else 1.0
    return through(layers, {"token": model.embed_tokens.weight[ids] * factor})[0]


def bert(model: Any, ids: Tensor) -> list[Split]:
    config, table = model.config, model.embeddings
    layers = []
    for block in model.encoder.layer:
        own, out = block.attention.self, block.attention.output
        letters = {"q": own.query, "k": own.key, "v": own.value, "o": out.dense}

        def forward(x: Tensor, block: Any = block) -> Tensor:
            x = torch.nn.functional.gelu(block.intermediate.dense(x))
            return block.output.dense(x)

        heads = config.num_attention_heads
        scale = (config.hidden_size / heads) ** -0.5
        one = Attention(heads, heads, *linear(letters), scale, causal=False)
        norms = (layer_norm(out.LayerNorm), layer_norm(block.output.LayerNorm))
        layers.append(Layer(one, norms, forward, "post"))
    stream = {
        "token": table.word_embeddings.weight[ids],
        "position": table.position_embeddings.weight[: len(ids)],
        "segment": table.token_type_embeddings.weight[:1].expand(len(ids), -1),
    }
    return through(layers, layer_norm(table.LayerNorm)(stream))[0]


def fused(module: Any, heads: int, groups: int, width: int) -> tuple[dict, dict]:
    """W_Q, W_K and W_V of Bloom and Falcon, which stand head by head (group by group)."""
    rows = module.weight.view(groups, heads // groups + 2, width, -1)
    parts = {"q": rows[:, :-2], "k": rows[:, -2:-1], "v": rows[:, -1:]}
    weights = {n: x.flatten(0, 2) for n, x in parts.items()}
    if module.bias is None:
        return weights, {}
    bias = module.bias.view(groups, heads // groups + 2, width)
    parts = {"q": bias[:, :-2], "k": bias[:, -2:-1], "v": bias[:, -1:]}
    return weights, {n: x.flatten() for n, x in parts.items()}


def slopes(heads: int) -> Tensor:
    """Of ALiBi, for a number of heads that is a power of 2."""
    return torch.tensor([2.0 ** (-8 * (n + 1) / heads) for n in range(heads)], dtype=torch.float64)


def bloom(model: Any, ids: Tensor) -> list[Split]:
    config = model.config
    heads, width = config.n_head, config.hidden_size // config.n_head
    layers = []
    for block in model.h:
        attention, mlp = block.self_attention, block.mlp
        weights, biases = fused(attention.query_key_value, heads, heads, width)
        weights["o"], biases["o"] = attention.dense.weight, attention.dense.bias

        def forward(x: Tensor, mlp: Any = mlp) -> Tensor:
            x = mlp.dense_h_to_4h(x)
            gelu = x * 0.5 * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))
            return mlp.dense_4h_to_h(gelu)

        bias = slopes(heads)[:, None, None] * torch.arange(len(ids))
        one = Attention(heads, heads, weights, biases, width**-0.5, bias=bias)
        norms = (layer_norm(block.input_layernorm), layer_norm(block.post_attention_layernorm))
        layers.append(Layer(one, norms, forward))
    start = {"token": model.word_embeddings.weight[ids]}
    return through(layers, layer_norm(model.word_embeddings_layernorm)(start))[0]


def falcon(model: Any, ids: Tensor) -> list[Split]:
    """With its new architecture (two norms, in parallel) and rotary positions or ALiBi."""
    config = model.config
    heads, groups = config.num_attention_heads, config.num_kv_heads
    width = config.hidden_size // heads
    layers = []
    for block in model.h:
        attention, mlp = block.self_attention, block.mlp
        weights, biases = fused(attention.query_key_value, heads, groups, width)
        weights["o"] = attention.dense.weight
        rotary, bias = None, None
        if config.alibi:
            bias = slopes(heads)[:, None, None] * torch.arange(len(ids)) * width**-0.5
            bias = 2 * bias  # transformers' eager layers add it to a mask that holds it already
        else:
            like = torch.zeros(1, len(ids), config.hidden_size, dtype=torch.float64)
            found = model.rotary_emb(like, torch.arange(len(ids))[None])
            rotary = tuple(x[0].double() for x in found)
        one = Attention(heads, groups, weights, biases, width**-0.5, rotary=rotary, bias=bias)

        def forward(x: Tensor, mlp: Any = mlp) -> Tensor:
            up = x @ mlp.dense_h_to_4h.weight.T
            return torch.nn.functional.gelu(up) @ mlp.dense_4h_to_h.weight.T

        norms = (layer_norm(block.ln_attn), layer_norm(block.ln_mlp))
        layers.append(Layer(one, norms, forward, "parallel"))
    return through(layers, {"token": model.word_embeddings.weight[ids]})[0]


def t5(model: Any, ids: Tensor, target: Tensor) -> dict[str, list[Split]]:
    """Both stacks and the attention between them, under the names enc, dec and cross."""
    config = model.config

    def attention(module: Any, bias: Tensor | None, *, causal: bool) -> Attention:
        letters = {n: getattr(module, n) for n in "qkvo"}
        heads = config.num_heads
        return Attention(heads, heads, *linear(letters), 1.0, bias=bias, causal=causal)

    def name(stack: str) -> Callable[[int], str]:
        return lambda head: f"{stack}.{head}"

    found: dict[str, list[Split]] = {"enc": [], "dec": [], "cross": []}
    memory: Stream = {}
    for of, kind, tokens in ((model.encoder, "encoder", ids), (model.decoder, "decoder", target)):
        stream, short = {"token": model.shared.weight[tokens]}, kind[:3]
        first = of.block[0].layer[0].SelfAttention
        bias = first.compute_bias(len(tokens), len(tokens))[0]
        for number, block in enumerate(of.block):
            own, *cross, forward = block.layer
            one = attention(own.SelfAttention, bias, causal=short == "dec")
            read = rms_norm(own.layer_norm)(stream)
            split, written = attended(one, read, name(f"{short}:{number}"))
            found[short].append(split)
            stream = joined(stream, written)
            for layer in cross:
                one = attention(layer.EncDecAttention, None, causal=False)
                read = rms_norm(layer.layer_norm)(stream)
                split, written = attended(one, read, name(f"cross:{number}"), memory)
                found["cross"].append(split)
                stream = joined(stream, written)
            out = forward.DenseReluDense(sum(rms_norm(forward.layer_norm)(stream).values()))
            stream = added(stream, f"{kind} MLP {number}", out)
        memory = rms_norm(of.final_layer_norm)(stream)
    return found
