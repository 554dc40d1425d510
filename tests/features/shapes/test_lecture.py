"""Every fact of a first lecture on multi-head attention has a command that shows it."""

from __future__ import annotations

import re
import shlex

import pytest

from attnviz.cli import main

FACTS = (
    # shapes of every step
    ("X is [B, T, D]", "shapes --batch 2 --seq 4 --d-model 8 --heads 2", "X [B, T, D] (2, 4, 8)"),
    ("Q, K, V are [B, T, D]", "shapes --batch 2 --seq 4 --d-model 8 --heads 2",
     "V [B, T, D] (2, 4, 8) X W_V + b_V"),
    ("d = D / H", "shapes --d-model 512 --heads 8", "MHA, D = 512, 8 heads of 64"),
    ("D must be a multiple of H", "help 'embed_dim must be divisible by num_heads'",
     "D must be a multiple of H"),
    ("which head counts go", "shapes --d-model 512 --heads 6", "nearest: 4 or 8"),
    ("heads are cut by a view", "shapes --seq 4", "[B, T, H, d] (1, 4, 8, 64) .view"),
    ("and become a batch axis", "shapes --seq 4", "[B, H, T, d] (1, 8, 4, 64) .transpose(1, 2)"),
    ("scores are [B, H, T, S]", "shapes --seq 4", "scores [B, H, T, S] (1, 8, 4, 4) Q Kᵀ"),
    ("heads give [B, H, T, d]", "shapes --seq 4", "head outputs [B, H, T, d] (1, 8, 4, 64) A V"),
    ("concat is [B, T, D] again", "shapes --seq 4", "Z concat [B, T, D] (1, 4, 512)"),
    ("Y is as wide as X", "shapes --seq 4", "Y [B, T, D] (1, 4, 512) Z W_O"),
    ("a layer really has these shapes", "shapes --show verify --d-model 16 --heads 2",
     "comparisons are equal"),
    ("d_v may differ from d_k", "shapes --head-dim 64+32", "head outputs [B, H, T, dᵥ]"),
    # reshaping
    ("a view moves no number", "shapes --explain", "without moving a number"),
    ("a view straight to [B, H, T, d] mixes", "shapes --explain", "mixes tokens with heads"),
    ("contiguous before view", "shapes --explain", ".contiguous() copies it"),
    ("what the error of view means",
     "help \"view size is not compatible with input tensor's size and stride\"", "contiguous"),
    ("a reshaped module is found", "check sample_inputs/attention.py:Viewed", "1 bug: view"),
    ("Kᵀ swaps the last two axes", "shapes --explain", ".transpose(-1, -2), not .T"),
    ("batch comes first", "shapes --explain", "batch_first=True"),
    # scale
    ("scores are divided by √d", "shapes --heads 8", "· 1/√64"),
    ("not by √D", "shapes --explain", "√d of one head, not √D"),
    ("why: variance d", "shapes --explain", "A sum of d products has variance d"),
    ("what happens without", "shapes --show scaling", "Without the scale it dies as d grows"),
    ("scores and scaled scores", "shapes --show numbers 'cat sat'", "scaled by 1/√d"),
    ("a module without it is found", "check sample_inputs/attention.py:Unscaled", "1 bug: scale"),
    # masks
    ("a causal mask sets -∞", "shapes --causal --explain", "-∞ where key > query"),
    ("before softmax", "shapes --explain", "Blocked keys get -∞ before softmax"),
    ("shape of the mask", "shapes --heads 8", "[T, S], [B, 1, 1, S] for padding"),
    ("True = blocked, or allowed", "help attn_mask", "True = blocked"),
    ("the first query sees itself", "shapes --show numbers --file causal", "exactly its row of V"),
    ("padding blocks keys", "shapes --show numbers --file masked", "-∞"),
    ("no key left: NaN", "shapes --show numbers --file masked", "NaN NaN NaN NaN"),
    ("and what is robust", "shapes --show numbers --file masked", "robust: 0 where no key"),
    ("-1e9 makes it uniform", "shapes --show numbers:-1e9 --file masked",
     "0.250 0.250 0.250 0.250"),
    ("a mask after softmax", "shapes --show numbers:after --causal 'cat sat'",
     "rows sum to less than 1"),
    ("a late mask is found", "check sample_inputs/attention.py:LateMask", "mask after softmax"),
    ("the mask behind a cache", "shapes --seq 4 --cache 12 --causal", "torch.ones(4, 16).tril(12)"),
    # softmax
    ("softmax over keys", "shapes --heads 8", "softmax over keys"),
    ("dim=-1", "shapes --explain", "dim=-2 would normalize over queries"),
    ("a wrong axis is found", "check sample_inputs/attention.py:WrongAxis", "1 bug: axis"),
    ("less the maximum", "shapes --show numbers:overflow 'cat sat'", "exp(score - max)"),
    ("float16 overflows", "help 'float16 overflow'", "65,504"),
    ("dropout of weights", "shapes --show numbers:dropout 'cat sat'", "sums to 1 on average only"),
    # W_O, averages
    ("W_O mixes heads", "shapes --explain", "Mixes the heads: Y = Σ_h Z_h W_O"),
    ("its rows belong to heads", "shapes --show diagram --d-model 64 --heads 4",
     "W_O mixes the heads"),
    ("averaged weights are [B, T, S]", "help average_attn_weights", "[B, T, S]"),
    ("every head's are [B, H, T, S]", "shapes --heads 8", "averaged over heads"),
    # parameters and costs
    ("4·D² parameters", "shapes --d-model 512 --heads 8", "4·D² = 1,048,576"),
    ("with any number of heads", "shapes --d-model 512 --heads 16", "4·D² = 1,048,576"),
    ("FLOPs by a formula", "shapes --seq 128", "2·B·T·(matrix parameters)"),
    ("T² memory", "shapes --heads 8", "32·T² B B·H·T·S · 4 bytes"),
    ("attention dominates beyond 2·D", "shapes --heads 8", "as the projections at T = 1,024"),
    ("growth with T", "shapes --show seq=128..4096", "equal at T = 1,024"),
    # caches
    ("2·H·d numbers a token", "shapes --causal", "1,024 numbers, 4.00 KiB 2·H·d"),
    ("GQA keeps 2·G·d", "shapes --causal --kv-heads 2", "256 numbers, 1.00 KiB 2·G·d"),
    ("kinds side by side", "shapes --show compare", "MLA, r = 256"),
    ("a latent cache", "shapes --model deepseek-v2 --show compare", "576 numbers"),
    ("a batch's cache", "shapes --model llama3-8b --seq 8192 --batch 32", "32.0 GiB for all 32"),
    ("one token decoded", "shapes --cache 10 --causal", "decoding one token on a cache of 10"),
    ("heads on GPUs", "shapes --model qwen2.5-7b --show tp=8", "28 heads on 4 key heads do not go"),
    # models, other attention
    ("heads of GPT-3", "shapes --model gpt3", "MHA, D = 12,288, 96 heads of 128"),
    ("heads of Llama 3", "shapes --model llama3-70b", "64 heads of 128 on 8 key/value heads"),
    ("one key head", "shapes --model palm-540b", "48 heads of 256 on 1 key/value head"),
    ("cross-attention: S of the context", "shapes --kind cross --seq 12 --context-length 20",
     "weights A [B, H, T, S] (1, 8, 12, 20)"),
    ("positions rotate Q and K", "shapes --model llama3-8b --explain", "rotate by position"),
    ("or are added to scores", "shapes --model t5-base --explain", "table of the first layer"),
    ("attention alone has no order", "help 'positional encoding'", "does not know the order"),
    ("a window", "shapes --model mistral-7b --explain", "Query 4,098 (from 0) sees keys 3 to"),
)  # fmt: skip
"""A fact, the command that shows it, and what the command says of it."""


@pytest.mark.parametrize(("fact", "command", "said"), FACTS, ids=[fact for fact, *_ in FACTS])
def test_a_fact_has_its_command(
    fact: str, command: str, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "110")
    main(shlex.split(command))
    shown = " ".join(re.sub(r"[│•]", "", "".join(capsys.readouterr())).split())
    assert said in shown, fact
