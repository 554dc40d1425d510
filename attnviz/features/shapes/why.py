"""Why each step of the walk is there, the bug that shows when it is done wrongly, and examples.

The steps that positions take part in come with numbers small enough to check by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnviz.attention.spec import AttentionSpec, Buckets

WHY = {
    "x": "One vector of D numbers for each token; batch first, so pass batch_first=True where "
    "a library expects [T, B, D], or the batch is attended across.",
    "context": "Keys and values come from here, queries from X; swap the two and the output has "
    "as many rows as the context.",
    "w_q": "Asks: what is this token looking for? All heads in one matrix; head h owns columns "
    "h·d to (h+1)·d.",
    "w_k": "Says: what does this token offer to be found by? Must come from the same sequence "
    "as V.",
    "w_v": "Says: what does this token hand over when it is attended to? Its length must be that "
    "of K.",
    "w_q_latent": "Queries go through a narrow layer first, which saves parameters and "
    "activations, not cache.",
    "w_latent": "Keys and values of all heads squeezed into r numbers: the only content a cache "
    "has to keep.",
    "w_k_rope": "Position cannot travel through the latent, so one small rotary key per token, "
    "shared by all heads, carries it.",
    "view": "Cuts the last axis into H pieces of d without moving a number; a view straight to "
    "[B, H, T, d] has the right shape but mixes tokens with heads.",
    "view_kv": "As for Q, but with G heads and the keys' own length: reusing H or T here is the "
    "usual error of cross and grouped attention.",
    "transpose": "Heads become a batch axis, so that one matrix product serves all of them; "
    "without it T and H are confused and scores come out [B, T, H, H].",
    "transpose_kv": "As for Q; the tensor is now a strided view, which a later .view refuses.",
    "cache": "Keys and values of earlier tokens are kept, not computed again; forgetting to append "
    "leaves the token looking only at itself.",
    "w_index_q": "The indexer asks with small heads of its own, made from the queries' latent; its "
    "rotation pairs i and i + half, where the other queries here pair neighbours.",
    "w_index_k": "One small key per token for all of the indexer's heads, normalized and cached "
    "beside the latent.",
    "w_index_w": "How much each of the indexer's heads counts for this token; it may be negative.",
    "index": "A cheap score of every key for each query: no softmax, and the same for all heads.",
    "select": "Only the keys of the largest index take part, the same for all heads; a query with "
    "fewer earlier keys than that keeps all of them.",
    "share": "H/G query heads read the same keys: head h reads key head h // (H/G); repeat (tile) "
    "instead of repeat_interleave pairs them wrongly at the right shape.",
    "rope": "The position part of each query is rotated and appended to its content; rotate the "
    "content as well and the latent trick no longer holds.",
    "rope_k": "Every head gets its own rebuilt content and the one shared position key, in the "
    "same order as in Q.",
    "norm_q": "Keeps scores from growing with the length of queries and keys, whatever was "
    "trained; over a head's d numbers or over all heads at once differs, at the same shape.",
    "norm_k": "As for Q, with weights of its own; before the rotation, which keeps lengths, and "
    "before the cache, or cached keys would be normalized twice.",
    "rotate_q": "Two rotated vectors' product depends on the distance of their positions alone; "
    "pairs are i and i + half, or two neighbours: the wrong one runs at the same shape.",
    "rotate_k": "Keys turn by their own position, values do not; cached keys are turned already, "
    "and a new one needs its true position, not 0.",
    "position_bias": "The only positions that such a model has: one learned number for each bucket "
    "of distances and head; later layers add the first one's, and a layer that forgets it sees a "
    "bag of words.",
    "window": "A query sees near keys only, so that its scores stop growing with the text; the "
    "size counts the query's own position, and off by one shows only in texts beyond it.",
    "scores": "Each query against each key, head by head; Kᵀ swaps the last two axes only "
    "(.transpose(-1, -2), not .T).",
    "scale": "A sum of d products has variance d: unscaled, softmax saturates and its gradient "
    "dies as d grows; divide by √d of one head, not √D.",
    "unscaled": "T5 leaves the factor out and folds it into the initial weights; adding it to "
    "trained weights flattens every head.",
    "softcap": "Keeps scores within a bound before the mask; after the mask it would turn -∞ into "
    "a number and let masked keys in.",
    "mask": "Blocked keys get -∞ before softmax; zeroing weights after softmax leaves rows that "
    "do not sum to 1, and future keys that still take part. M is [T, S] (causal), [B, 1, 1, S] "
    "(padding) or [B, 1, T, S], the same for all heads; nn.MultiheadAttention takes [B·H, T, S] "
    "with True = blocked, scaled_dot_product_attention takes True = allowed.",
    "softmax": "Over the last axis, the keys: every row sums to 1; dim=-2 would normalize over "
    "queries at the same shape. Dropout, in training, comes after it. A [B, H, T, S]; the mean "
    "over heads, which nn.MultiheadAttention returns by default, is [B, T, S].",
    "heads": "Each row is an average of V's rows by the weights: a head can only hand on what V "
    "holds.",
    "w_gate": "A gate for every number that a head hands on, from the same token vector: how much "
    "of it is let through.",
    "gate": "Each head's output is scaled number by number, after attention and before W_O, so a "
    "head can fall silent without a sink.",
    "untranspose": "Brings the heads of one token next to each other again; without it the concat "
    "glues different tokens together, at the right shape.",
    "concat": "The transpose left a strided view that .view refuses: .contiguous() copies it "
    "(.reshape does so silently), and then H and d are one axis.",
    "w_o": "Mixes the heads: Y = Σ_h Z_h W_O[h·d:(h+1)·d]; forget it and every head writes only "
    "into its own slice of the residual stream.",
}


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
    """A pair of numbers turned by ``position`` times ``frequency`` radians."""
    x, y = pair
    cos, sin = math.cos(position * frequency), math.sin(position * frequency)
    return x * cos - y * sin, x * sin + y * cos


def bucket(offset: int, table: Buckets, *, causal: bool) -> int:
    """The row of T5's table for a key ``offset`` positions after the query (before: negative).

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
    """The first and the last key that a query sees through its window, in a text without end."""
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
    *some, last = map(str, values)
    return f"{', '.join(some)} and {last}" if some else last


def _rotated(spec: AttentionSpec) -> str:
    rotary = spec.rotary
    if rotary is None:
        return ""
    half = rotary.width // 2
    other = 1 if rotary.adjacent else half
    text = f"Numbers 0 and {other} are pair 0, which turns by 1 radian a position"
    if rotary.base is not None and half > 1:
        slowest = rotary.base ** (-2 * (half - 1) / rotary.width)
        text += f", the last pair by {slowest:.3g}"
    if rotary.scaling:
        text += f" (before {rotary.scaling} scaling)"
    once, twice = turned((1, 0), 1, 1), turned((1, 0), 2, 1)
    return f"{text}: (1, 0) becomes {vector(once)} at position 1 and {vector(twice)} at position 2."
