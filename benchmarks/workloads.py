"""What the streaming benchmarks run: a GPT-2-shaped stack, a Llama-like layer, and plain scores.

Everything is random and offline; the tokens repeat as those of text do (Zipf), so that there is
something to find.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.attention.layers import MultiHeadAttention, attend
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.quantities import QUANTITIES
from attnviz.core.source import Observer, Source
from attnviz.core.tokens import Sides, Tokens
from attnviz.core.weights import OutputProjection, Sublayer, output_slices
from attnviz.models.decomposition import MixingObserver
from attnviz.models.norm_based import NormObserver
from attnviz.models.pretrained import load
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.totals import Sums
from benchmarks.startup import minilm

Run = Callable[[], Any]


def tokens(length: int) -> Tokens:
    """Random words that occur as often as those of a text, every tenth or so a comma."""
    draw = random.Random(0)
    weights = [1 / (rank + 2.7) for rank in range(5000)]
    ids = draw.choices(range(5000), weights, k=length)
    return Tokens(tuple("," if i == 1 else f" w{i}" for i in ids), tuple(ids))


def observer(length: int, layers: int, heads: int) -> ScoreObserver:
    """All scores of a decoder's layers."""
    side = tokens(length)
    return ScoreObserver(
        [Inputs({"decoder": Sides(side, side)})], Layout({"decoder": (heads,) * layers})
    )


class Block(nn.Module):
    """A pre-norm transformer block of GPT-2's shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, causal=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, attention: Callable[[MultiHeadAttention, Tensor], Tensor]
    ) -> Tensor:
        """[1, T, D] to the same, with attention done in the caller's way."""
        x = x + attention(self.attention, self.norm_1(x))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2Shape:
    """12 layers of 12 heads, D = 768, T = 512."""

    layers, heads, width = 12, 12, 768

    def __init__(self, length: int = 512) -> None:
        torch.manual_seed(0)
        self.length = length
        self.blocks = [Block(self.width, self.heads).eval() for _ in range(self.layers)]
        self.x = torch.randn(1, self.length, self.width)

    def sdpa(self) -> Tensor:
        """Return the plain forward: no weights to be seen."""
        return self._run(lambda layer, x, _: layer(x))

    def scores(self) -> Any:
        """Every score of every head."""
        watch = observer(self.length, self.layers, self.heads)
        self._run(lambda layer, x, i: layer(x, site=Site("decoder", i), observers=[watch]))
        return watch.result()

    def norms(self) -> Any:
        """Return the same scores of what every head writes, ‖α f(x)‖."""
        return self._weighed("norm")

    def norms_mixed(self) -> Any:
        """Return the same, and mixing ratios, as ``attnviz heads --quantity norm`` shows them."""
        side = tokens(self.length)
        inputs = [Inputs({"decoder": Sides(side, side)})]
        mixing = MixingObserver(cast("Source", self), QUANTITIES["norm"], inputs)
        return self._weighed("norm", mixing), mixing.result()

    def layers_norms(self) -> Any:
        """Return the same of what every layer writes, with its residual connection."""
        return self._weighed("norm-residual")

    def _weighed(self, quantity: str, *beside: Observer) -> Any:
        what = QUANTITIES[quantity]
        watch = observer(self.length, self.layers, 1 if what.layers else self.heads)
        weighing = NormObserver(cast("Source", self), what, [watch], shares=True)

        def run(layer: MultiHeadAttention, x: Tensor, i: int) -> Tensor:
            watching = [weighing, *beside]
            return layer(x, residual=x, site=Site("decoder", i), observers=watching)

        self._run(run)
        return watch.result()

    def output(self, site: Site) -> OutputProjection:
        """W_O of a layer."""
        out = self.blocks[site.layer].attention.w_o
        return OutputProjection(output_slices(out.weight, self.heads), out.bias)

    def sublayer(self, site: Site) -> Sublayer:
        """Return what stands around its attention."""
        return Sublayer("pre")

    def eager(self) -> list[Tensor]:
        """Return the usual way to see weights: all of them, kept."""
        kept: list[Tensor] = []

        def run(layer: MultiHeadAttention, x: Tensor, _: int) -> Tensor:
            weights, output = eager(*layer.project(x, x))
            kept.append(weights)
            mixed: Tensor = layer.w_o(output.transpose(1, 2).flatten(2))
            return mixed

        self._run(run)
        return kept

    def _run(self, attention: Callable[[MultiHeadAttention, Tensor, int], Tensor]) -> Tensor:
        x = self.x
        for number, block in enumerate(self.blocks):
            x = block(x, lambda layer, h, n=number: attention(layer, h, n))
        return x


class Sentences:
    """Sentences through all-MiniLM-L6-v2, a real BERT, 32 at a time as they come.

    Their words are those of sample_inputs/story.txt, their lengths spread as in a treebank of web
    text: a mean of 23 tokens, half of them under 20, one in twenty over 50.
    """

    batch = 32

    def __init__(self, count: int = 512) -> None:
        draw = random.Random(0)
        story = Path(__file__).parent.parent / "sample_inputs" / "story.txt"
        words = story.read_text("utf-8").split()
        lengths = [2 + min(75, round(draw.gammavariate(1.3, 11.5))) for _ in range(count)]
        texts = [" ".join(draw.choices(words, k=length)) for length in lengths]
        self.source = load(minilm(), device="cpu", dtype="float32")
        items = [self.source.prepare(Prompt(text)) for text in texts]
        self.tokens = sum(item.length for item in items) / count
        self.batches = [items[i : i + self.batch] for i in range(0, count, self.batch)]

    def sdpa(self) -> None:
        """Run the forward passes alone."""
        for batch in self.batches:
            self.source.forward(batch)

    def scores(self) -> list[Sums]:
        """Every score of every head, each sentence by itself."""
        found = []
        for batch in self.batches:
            watch = ScoreObserver(batch, self.source.layout)
            self.source.forward(batch, [watch])
            found += [watch.sums(number) for number in range(len(batch))]
        return found


class LlamaLike:
    """One layer's attention: 32 query heads on 8 key/value heads, d = 128 unless said otherwise."""

    heads, groups = 32, 8

    def __init__(self, length: int = 4096, head_dim: int = 128) -> None:
        torch.manual_seed(0)
        self.length = length
        self.query = torch.randn(1, self.heads, length, head_dim)
        self.key, self.value = (torch.randn(1, self.groups, length, head_dim) for _ in range(2))

    def sdpa(self) -> Tensor:
        """PyTorch's fused kernel."""
        return F.scaled_dot_product_attention(
            self.query, self.key, self.value, is_causal=True, enable_gqa=True
        )

    def scores(self) -> Any:
        """Every score of every head."""
        watch = observer(self.length, 1, self.heads)
        self._attend([watch])
        return watch.result()

    def eager_scores(self) -> dict[str, Tensor]:
        """Return the usual way: whole maps, then each score by its formula."""
        weights, _ = eager(self.query, self.key, self.value)
        return plain_scores(weights[0], tokens(self.length))

    def _attend(self, observers: Sequence[Observer]) -> Tensor:
        site = Site("decoder", 0)
        return attend(
            self.query, self.key, self.value, causal=True, site=site, observers=observers
        ).output


class LlamaLayer:
    """The same with its projections: D = 4096, as in Llama 3 8B."""

    def __init__(self, length: int = 4096) -> None:
        heads, groups = LlamaLike.heads, LlamaLike.groups
        layer = MultiHeadAttention(4096, heads, kv_heads=groups, bias=False, causal=True)
        self.layer = layer.eval()
        self.x = torch.randn(1, length, 4096)

    def sdpa(self) -> Tensor:
        """Return the layer with PyTorch's fused kernel."""
        output: Tensor = self.layer(self.x)
        return output

    def scores(self) -> Any:
        """Every score of every head."""
        watch = observer(self.x.shape[1], 1, LlamaLike.heads)
        self.layer(self.x, site=Site("decoder", 0), observers=[watch])
        return watch.result()


def held_bytes(workload: object) -> int:
    """Bytes of a workload's weights and inputs."""
    tensors: list[Tensor] = []
    for value in vars(workload).values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, nn.Module):
                tensors.extend(part.parameters())
            elif isinstance(part, Tensor):
                tensors.append(part)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def eager(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention with whole weights [1, H, T, T], as models without a fused kernel do it."""
    share = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(share, dim=1) for x in (key, value))
    length = query.shape[2]
    mask = torch.full((length, length), torch.finfo(query.dtype).min, dtype=query.dtype).triu(1)
    scores = query @ key.mT / math.sqrt(query.shape[3]) + mask
    weights = torch.softmax(scores, dim=-1)
    return weights, weights @ value


def plain_scores(weights: Tensor, side: Tokens) -> dict[str, Tensor]:
    """Means [H] of every score of causal maps [H, T, T] without special tokens, by the formulas."""
    length = weights.shape[1]
    i, j = torch.arange(length)[:, None], torch.arange(length)
    codes = torch.tensor(side.ids)
    before = torch.cat([torch.tensor([-1]), codes[:-1]])
    comma = torch.tensor([text == "," for text in side.texts])
    earlier = (j <= i - 2) & (j > 0)
    seen = j <= i
    targets = {
        "previous": (j == i - 1) & (j > 0),
        "self": (j == i) & (j > 0),
        "first": (j == 0) & (i >= 2),
        "punctuation": comma & seen & (j > 0) & ~comma[:, None],
        "local": ((i - j).abs() <= 2) & seen & (j > 0),
        "duplicate": earlier & (codes == codes[:, None]),
        "induction": earlier & (before == codes[:, None]),
    }
    means = {}
    rest = 1 - weights[..., 0]
    for name, target in targets.items():
        counts = target.sum(-1)
        rows = (counts > 0) & (counts < seen.sum(-1))
        values = (weights * target).sum(-1)
        means[name] = values[:, rows].mean(-1)
        if name in ("duplicate", "induction"):
            enough = rows & (rest >= 0.1) & (i[:, 0] > 0)
            ratio = torch.where(enough, values / rest, 0)
            means[f"{name}_no_sink"] = ratio.sum(-1) / enough.sum(-1)
    bits = -(weights * torch.log2(weights.clamp(min=torch.finfo(weights.dtype).tiny))).sum(-1)
    means["entropy"] = bits[:, 1:].mean(-1)
    means["entropy_share"] = (bits / torch.log2(j + 1.0))[:, 1:].mean(-1)
    means["distance"] = (weights * (i - j).abs()).sum(-1)[:, 1:].mean(-1)
    means["top"] = weights.amax(-1)[:, 1:].mean(-1)
    return means
