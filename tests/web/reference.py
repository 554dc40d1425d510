"""Cases for the pages' scripts, with answers computed here, in float64 or in decimals.

Nothing here is shared with the package's own code but how weights are packed and what a page says
of a tokenizer, which are what the scripts read, and the sources of scores, which have a reference
of their own (``tests/features/sources/reference.py``).
"""

from __future__ import annotations

import functools
import math
import random
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnviz.captures.loading import load
from attnviz.core.prompt import Prompt
from attnviz.drawing.palette import anchors
from attnviz.features.live.page import _kernel, _network, pack
from attnviz.features.sources.function import sources
from attnviz.models import demo
from attnviz.models.native.portable import Portable

Array = NDArray[np.float64]

ROW = "the cat river moon stone bread the cat river moon stone"

LINES = (
    "The keys to the cabinet are on the table because the keys to the cabinet were lost",
    "It's 1234 o'clock,\tisn't it?\n\nWe'll see...  ", "naïve façade Ångström ΟΔΥΣΣΕΥΣ Σ İstanbul",
    "注意力机制 と アテンション 관심 внимание תשומת لب", "a" * 120, "[MASK] a[SEP]b <|endoftext|>c",
    "👩‍🔬 e\u0301 \u00a0\u3000\u200b x", " ", "",
)  # fmt: skip


def cases() -> dict[str, Any]:
    """What the scripts are asked, and what they should answer, by the test's name."""
    draw = np.random.default_rng(11)
    return {
        "reason": [_reason(draw, number) for number in range(8)], "palette": _palette(),
        "digits": _digits(), "alignment": _alignment(),
        "ways": [_ways(draw, count) for count in (1, 2, 7)],
        "tokenizer": [_tokenizer(name) for name in ("demo-gpt2", "demo-bert")],
        "network": [_network_case(draw, causal=causal) for causal in (True, False)],
        "origins": [_origins(name) for name in ("demo-gpt2", "demo-bert")], "kernel": _kernel(),
        "chance": [[seed, n, mulberry32(seed, n)] for seed in (0, 7, 2**32 - 1) for n in range(5)],
    }  # fmt: skip


def softmax(scores: Array) -> Array:
    """Over the last axis; scores may be -inf."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _reason(draw: np.random.Generator, number: int) -> dict[str, Any]:
    """A head's weights, in all combinations of a softcap, a sink and a bias; causal."""
    width, T = 4, 5
    q, k = draw.normal(size=(2, T, width)) * 2
    softcap = 3.0 if number & 1 else None
    sink = float(draw.normal()) if number & 2 else None
    bias = draw.normal(size=(T, T)) if number & 4 else None
    scores = 0.5 * q @ k.T
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
    beside = np.full((T, 1), -np.inf if sink is None else sink)
    return {
        "terms": {"width": width, "S": T, "queries": q.ravel().tolist(), "scale": 0.5}
        | {"keys": k.ravel().tolist(), "softcap": softcap, "sink": sink, "norms": [1.0] * T},
        "bias": None if bias is None else bias.tolist(),
        "weights": softmax(np.concatenate([scores, beside], 1))[:, :T].tolist(),
        "dots": (q @ k.T).tolist(),
    }


def _palette() -> list[dict[str, Any]]:
    """Palettes with their colours between the points, not rounded."""
    out = []
    for name in ("blues", "magma"):
        points = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in anchors(name)])
        places = np.linspace(0, len(points) - 1, 256)
        channels = [np.interp(places, range(len(points)), channel) for channel in points.T]
        out.append({"points": list(anchors(name)), "ramp": np.stack(channels, 1).ravel().tolist()})
    return out


def _rounded(value: float, decimals: int, way: str = ROUND_HALF_UP) -> Decimal:
    """A number's exact binary value to so many decimals."""
    return Decimal(value).quantize(Decimal(1).scaleb(-decimals), way)


def _known(low: float, high: float) -> str:
    """A weight between two bounds: all digits known of four; else those wider than the bounds."""
    usual = min(6, max(0, 3 - math.floor(math.log10(high))))
    for decimals in range(usual, -1, -1):
        text = _rounded(low, decimals)
        both = text and text == _rounded(high, decimals)
        if both and (low == high or len(str(text).lstrip("0.").replace(".", "")) >= 2):
            return f"{text:f}"
    half, middle = (high - low) / 2, (high + low) / 2
    sure = min(usual, math.ceil(-math.log10(high - low)) - 1) if half else -1
    alone = f"{_rounded(middle, sure):f}" if sure >= 0 and low >= half else "0"
    if float(alone) and (sure >= 2 or len(alone.lstrip("0.").replace(".", "")) >= 2):
        return alone
    decimals = min(6, max(0, -math.floor(math.log10(half)))) if half else 0
    shown = _rounded(middle, decimals)
    if half == 0 or low < half or shown == 0:
        return f"<{_upward(max(high, 1e-6)):f}"
    return f"{shown:f} ± {_upward(half + abs(middle - float(shown))):f}"


def _upward(bound: float) -> Decimal:
    """One significant digit, not below."""
    decimals = max(0, -math.floor(math.log10(bound)))
    return _rounded(bound * (1 - 1e-12), decimals, ROUND_CEILING)


def _digits() -> list[list[Any]]:
    """Bounds, and what is known of what lies between them."""
    draw = random.Random(3)
    out: list[list[Any]] = [[1.0, 1.0, "1.000"], [0.5, 0.5, "0.5000"], [0.0, 0.004, "<0.004"]]
    for _ in range(400):
        high = 10 ** draw.uniform(-7, 0)
        low = high * (1 - draw.choice([0, 1e-5, 1e-3, 0.02, 0.3, 0.9, 1]) * draw.random())
        out.append([low, high, _known(low, high)])
    return out


def _alignment() -> list[list[Any]]:
    """Two sequences and the least number of edits between them (Levenshtein)."""
    draw = random.Random(5)
    out = []
    for _ in range(60):
        one, other = (draw.choices("abcd", k=draw.randrange(9)) for _ in range(2))
        row = list(range(len(other) + 1))
        for i, left in enumerate(one, 1):
            corner, row[0] = row[0], i
            for j, right in enumerate(other, 1):
                corner, row[j] = row[j], min(corner + (left != right), row[j] + 1, row[j - 1] + 1)
        out.append([one, other, row[-1]])
    return out


def _ways(draw: np.random.Generator, count: int) -> dict[str, Any]:
    """Mixing matrices of three layers: what reaches each position from there, and goes there."""
    steps = softmax(draw.normal(size=(3, count, count)) * 2)
    first, second, third = steps
    node, none = count - 1, np.eye(count)
    reached = [none, first, second @ first, third @ second @ first]
    given = [third @ second @ first, third @ second, third, none]
    return {
        "count": count, "steps": steps.reshape(3, -1).tolist(), "node": node,
        "back": [ways[node].tolist() for ways in reached],
        "onward": [ways[:, node].tolist() for ways in given], "lines": int((steps >= 0.25).sum()),
    }  # fmt: skip


@functools.cache
def _model(name: str) -> tuple[Any, Portable]:
    model = load(name, device="cpu", dtype="float32")
    return model, model.portable()


def _tokenizer(name: str) -> dict[str, Any]:
    """A page's vocabulary, and what the tokenizers library makes of texts."""
    reference = Tokenizer.from_file(str(Path(demo.__file__).parent / name / "tokenizer.json"))
    vocabulary = _network(_model(name)[1])["vocabulary"]
    return {
        "name": name,
        "vocabulary": vocabulary,
        "texts": [[line, reference.encode(line).ids] for line in LINES],
    }


def _origins(name: str) -> dict[str, Any]:
    """A bundled model as a page has it, and the sources of some scores as ``av.sources`` does."""
    model, made = _model(name)
    entries, packed = pack(made.tensors, 16)
    asked = []
    for head, query, key in (("0.1", 4, 2), ("1.4", 6, 5), ("2.0", 9, 3), ("3.5", 7, 7)):
        found = sources(ROW, select=head, query=query, key=key, model=model)
        by = {
            side: {one.origin.name(found.layout): one.value for one in found.side(side)}
            for side in ("query", "key")
        }
        number = list(found.layout).index(found.head)
        asked.append({"head": number, "query": query, "key": key, "score": found.score, "by": by})
    (kind,) = model.layout.kinds
    ids = model.prepare(Prompt(ROW)).sides[kind].queries.ids
    network = {"entries": entries, **_network(made)}
    return {"network": network, "packed": packed, "ids": list(ids), "asked": asked}


def mulberry32(seed: int, n: int) -> float:
    """The n-th number of the generator, by its own definition, in whole numbers of any size."""
    mask = 2**32 - 1
    a = seed
    for _ in range(n + 1):
        a = (a + 0x6D2B79F5) & mask
    t = ((a ^ (a >> 15)) * (a | 1)) & mask
    t ^= (t + ((t ^ (t >> 7)) * (t | 61) & mask)) & mask
    return ((t ^ (t >> 14)) & mask) / 2**32


def _network_case(draw: np.random.Generator, *, causal: bool) -> dict[str, Any]:
    """A network of two layers with random weights, and its maps and logits on five tokens.

    Causal: normalization before sublayers, GELU's tanh form; else after them, and GELU itself.
    """
    width, inner, heads, vocabulary, rows = 8, 12, 2, 9, 6
    shapes: dict[str, tuple[int, ...]] = {"tokens": (vocabulary, width), "positions": (rows, width)}
    shapes |= {"norm.weight": (width,), "norm.bias": (width,), "words.bias": (vocabulary,)}
    for layer in range(2):
        for name, size, of in (("project", 3 * width, width), ("out", width, width),
                               ("up", inner, width), ("down", width, inner)):  # fmt: skip
            shapes |= {f"{layer}.{name}.weight": (size, of), f"{layer}.{name}.bias": (size,)}
        for name in ("norm1", "norm2"):
            shapes |= {f"{layer}.{name}.weight": (width,), f"{layer}.{name}.bias": (width,)}
    tensors = {
        name: draw.normal(size=shape).astype(np.float16).astype(np.float32)
        for name, shape in shapes.items()
    }
    entries, packed = pack(tensors, 16)
    ids, gates = [3, 1, 4, 1, 5], [1.0, 0.0, 0.5, 1.0]
    activation = "gelu_tanh" if causal else "gelu"
    network = {"entries": entries, "layers": 2, "heads": heads, "width": width, "inner": inner}
    network |= {"causal": causal, "preNorm": causal, "activation": activation, "eps": 1e-5}
    network |= {"scales": [0.5, 0.4], "offset": 1, "words": True, "tied": True}
    network |= {"maxTokens": rows - 1}
    maps, logits = _forward({n: v.astype(float) for n, v in tensors.items()}, network, ids, gates)
    return {"network": network, "packed": packed, "ids": ids, "gates": gates} | {
        "maps": [one.ravel().tolist() for one in maps],
        "logits": logits.tolist(),
    }


def _forward(
    tensors: dict[str, Array], network: dict[str, Any], ids: list[int], gates: list[float]
) -> tuple[list[Array], Array]:
    """Every layer's weights [heads, T, T], and the logits [T, V]; Vaswani et al. 2017."""

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(x.var(-1, keepdims=True) + network["eps"])
        return np.asarray(scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])

    def affine(x: Array, name: str) -> Array:
        return np.asarray(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])

    def gelu(x: Array) -> Array:
        if network["activation"] == "gelu_tanh":
            return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
        return np.asarray(x / 2 * (1 + np.vectorize(math.erf)(x / np.sqrt(2))))

    T, heads, before = len(ids), network["heads"], network["preNorm"]
    x = tensors["tokens"][ids] + tensors["positions"][network["offset"] :][:T]
    x = x if before else norm(x, "norm")
    maps = []
    for layer, scale in enumerate(network["scales"]):
        read = norm(x, f"{layer}.norm1") if before else x
        made = affine(read, f"{layer}.project").reshape(T, 3, heads, -1)
        q, k, v = made.transpose(1, 2, 0, 3)
        scores = scale * q @ k.transpose(0, 2, 1)
        if network["causal"]:
            scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
        maps.append(softmax(scores))
        mixed = maps[-1] @ v * np.reshape(gates[layer * heads : (layer + 1) * heads], (heads, 1, 1))
        x = x + affine(mixed.transpose(1, 0, 2).reshape(T, -1), f"{layer}.out")
        x = x if before else norm(x, f"{layer}.norm1")
        read = norm(x, f"{layer}.norm2") if before else x
        x = x + affine(gelu(affine(read, f"{layer}.up")), f"{layer}.down")
        x = x if before else norm(x, f"{layer}.norm2")
    x = norm(x, "norm") if before else x
    return maps, x @ tensors["tokens"].T + tensors["words.bias"]
