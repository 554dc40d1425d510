"""Attention in numbers: every matrix against a second opinion, inputs, and 1/√d."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.attention.layers import attend
from attnviz.errors import InputError, SizeError
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.result import Answer
from attnviz.features.shapes.table import Paint, as_text
from attnviz.features.shapes.tiny import EMBEDDINGS, bundled, from_json, from_text, read_json
from attnviz.features.shapes.worked import compute, scaling, shifted_row


def reference(q: Any, k: Any, v: Any, *, causal: bool) -> tuple[Any, Any]:
    """One head, one number at a time."""
    out, weights = [], []
    for i, query in enumerate(q):
        keys = range(i + 1) if causal else range(len(k))
        scores = [sum(a * b for a, b in zip(query, k[j], strict=True)) for j in keys]
        powers = [math.exp(score / math.sqrt(len(query))) for score in scores]
        row = [p / sum(powers) for p in powers] + [0.0] * (len(k) - len(powers))
        weights.append(row)
        out.append([sum(w * v[j][c] for j, w in enumerate(row)) for c in range(len(v[0]))])
    return np.array(weights), np.array(out)


def test_the_causal_vector() -> None:
    walked = compute(bundled("causal"))
    head = walked.heads[0]
    weights, output = reference(head.q, head.k, head.v, causal=True)
    np.testing.assert_allclose(head.weights, weights, atol=1e-15)
    np.testing.assert_allclose(walked.output, output, atol=1e-15)
    assert walked.output[0].tolist() == [0.5, 0.0]
    assert head.masked[0, 1] == -np.inf


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_every_number_of_a_sentence(kv_heads: int, causal: bool) -> None:
    given = from_text("cat sat on mat cat", kv_heads=kv_heads, causal=causal)
    x, w_q, w_k, w_v, w_o = (getattr(given, name) for name in ("x", "w_q", "w_k", "w_v", "w_o"))
    assert x[0].tolist() == list(EMBEDDINGS["cat"])
    walked = compute(given)
    outputs = []
    for h, head in enumerate(walked.heads):
        g = h * kv_heads // 2
        q, k, v = (x @ w[:, 2 * n : 2 * n + 2] for w, n in ((w_q, h), (w_k, g), (w_v, g)))
        weights, output = reference(q, k, v, causal=causal)
        np.testing.assert_allclose(head.scores, q @ k.T, atol=1e-13)
        np.testing.assert_allclose(head.scaled, q @ k.T / math.sqrt(2), atol=1e-13)
        np.testing.assert_allclose(head.weights, weights, atol=1e-13)
        np.testing.assert_allclose(head.output, output, atol=1e-13)
        bits = [-sum(w * math.log2(w) for w in row if w) for row in weights]
        np.testing.assert_allclose(head.entropy_bits, bits, atol=1e-13)
        np.testing.assert_allclose(head.top, weights.max(1), atol=1e-13)
        outputs.append(output)
    np.testing.assert_allclose(walked.concat, np.hstack(outputs), atol=1e-13)
    np.testing.assert_allclose(walked.output, np.hstack(outputs) @ w_o, atol=1e-13)
    np.testing.assert_allclose(sum(walked.contributions), walked.output, atol=1e-13)


def test_numbers_agree_with_attend() -> None:
    walked = compute(from_text("a b c d e", d_model=8, heads=2, kv_heads=1, causal=True, window=2))
    q = torch.tensor(np.stack([h.q for h in walked.heads]))[None]
    k, v = (torch.tensor(getattr(walked.heads[0], name))[None, None] for name in "kv")
    output = attend(q, k, v, causal=True, window=2).output
    np.testing.assert_allclose(output[0], np.stack([h.output for h in walked.heads]), atol=1e-12)


def test_equal_words_are_equal_vectors_and_seeds_differ() -> None:
    one, two = from_text("red red blue"), from_text("blue red", seed=1)
    assert one.x is not None
    assert two.x is not None
    assert one.x[0].tolist() == one.x[1].tolist() != one.x[2].tolist()
    assert one.x[2].tolist() != two.x[0].tolist()


def test_json_input_with_everything() -> None:
    content = {
        "tokens": ["a", "b"], "x": [[1, 0], [0, 1]], "context": [[1, 1], [2, 0], [0, 2]],
        "heads": 1, "w_q": [[1, 0], [0, 1]], "w_k": [[1, 0], [0, 1]], "w_v": [[1, 0], [0, 1]],
        "w_o": [[2, 0], [0, 2]], "b_o": [1, -1], "mask": [[1, 1, 0], [0, 0, 0]], "scale": 1.0,
    }  # fmt: skip
    walked = compute(read_json(json.dumps(content).encode(), "f.json"))
    weight = math.exp(1) / (math.exp(1) + math.exp(2))
    nan = math.nan  # as F.softmax gives it where every key is blocked
    np.testing.assert_allclose(walked.heads[0].weights, [[weight, 1 - weight, 0], [nan] * 3])
    assert np.isnan(walked.output[1]).all()
    assert walked.blocked == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "needs x"), ({"x": [[1, 2]], "zork": 1}, "unknown field 'zork'"),
        ({"x": [[1, 2], [3]]}, "all of one length"),
        ({"x": [[1, "a"]]}, "Expected `float`, got `str`"), ({"x": []}, "rows of numbers"),
        ({"x": [[1, 2]] * 40}, "at most 32"), ({"x": [[1.0] * 100]}, "at most"),
        ({"x": [[1, 2]], "tokens": ["a", "b"]}, "2 tokens for 1 rows"),
        ({"x": [[1, 2]], "tokens": "ab"}, "Expected `array | null`, got `str`"),
        ({"x": [[1, 2]], "w_q": [[1]]}, "need \\(2, 2\\)"),
        ({"x": [[1, 2]], "w_z": [[1]]}, "unknown field"),
        ({"x": [[1, 2]], "heads": "two"}, r"Expected `int | null`, got `str` - at `\$.heads`"),
        ({"x": [[1, 2]], "causal": "yes"}, "Expected `bool | null`, got `str`"),
        ({"x": [[1, 2]], "mask": [[1, 1]]}, "scores are"),
        ({"x": [[1, 2]], "context": [[1, 2, 3]]}, "must agree"),
        ({"x": [[1, float("nan")]]}, "NaN"), ({"x": [[10**400, 1]]}, "out of range"),
        ({"q": [[1, 2]], "k": [[1]], "v": [[1]]}, "do not fit"),
    ],
)  # fmt: skip
def test_junk_json(content: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_json(content, origin="f.json")


def test_junk_files() -> None:
    for data, said in ((b"nope", "not JSON"), (b"[1]", "object"), (b"\xff\xfe", "not JSON"),
                       (b" " * (1 << 21), "larger than 1 MiB")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            read_json(data, "f.json")
    with pytest.raises(SizeError, match="nearest"):
        from_text("a b", heads=3)


def test_scaling_keeps_entropy_where_raw_scores_lose_it() -> None:
    found = scaling(3)
    raw = [row.raw.entropy_bits for row in found.rows]
    assert raw == sorted(raw, reverse=True)
    assert raw[-1] < 0.5
    assert all(5 < row.scaled.entropy_bits < 6 for row in found.rows)
    last = found.rows[-1]
    assert last.raw.gradient_norm < 0.5 * last.scaled.gradient_norm


def test_scaling_finds_what_whole_keys_give() -> None:
    """Of all numbers of the keys, drawn: the same entropy, within what samples differ by."""
    found, draw = scaling(3, samples=2000).rows[2], np.random.default_rng(5)
    scores = np.einsum("nd,nkd->nk", *(draw.standard_normal((2000, *n, 16)) for n in ((), (64,))))
    for said, factor in ((found.raw, 1.0), (found.scaled, found.d**-0.5)):
        weights = np.exp(scores * factor) / np.exp(scores * factor).sum(1, keepdims=True)
        entropies = -(weights * np.log2(weights)).sum(1)
        assert abs(said.entropy_bits - entropies.mean()) < 6 * entropies.std() / 2000**0.5


def test_a_seed_decides_what_scaling_finds() -> None:
    one, again, other = (scaling(seed, keys=4, samples=5) for seed in (3, 3, 4))
    assert one == again != other


MASKED = {"x": [[1, 0], [0, 1], [1, 1]], "heads": 1, "mask": [[1, 1, 0], [0, 0, 0], [0, 1, 1]]}


@pytest.mark.parametrize("variant", ["", "-1e9", "after"])
def test_masked_rows_are_those_of_torch(variant: str) -> None:
    head = compute(from_json(MASKED, origin="f.json"), variant).heads[0]
    scores, allowed = torch.tensor(head.scaled), torch.tensor(MASKED["mask"], dtype=torch.bool)
    if variant == "after":
        expected = scores.softmax(-1) * allowed
    else:
        fill = -1e9 if variant else -torch.inf
        expected = scores.masked_fill(~allowed, fill).softmax(-1)
    np.testing.assert_allclose(head.weights, expected.numpy(), atol=1e-15)
    assert np.isnan(head.weights[1]).all() == (variant == "")
    if variant == "-1e9":
        np.testing.assert_allclose(head.weights[1], 1 / 3)  # all blocked keys, later ones too


def test_the_robust_row_is_that_of_torch_s_fused_attention() -> None:
    walked = compute(from_json(MASKED, origin="f.json"))
    head = walked.heads[0]
    q, k, v = (torch.tensor(part)[None, None] for part in (head.q, head.k, head.v))
    mask = torch.tensor(MASKED["mask"], dtype=torch.bool)
    fused = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    np.testing.assert_allclose(np.nan_to_num(head.output), fused[0, 0].numpy(), atol=1e-12)


def test_dropout_keeps_rows_of_one_only_on_average() -> None:
    rows = [compute(from_text("cat sat on mat"), "dropout", seed).heads[0] for seed in range(400)]
    sums = np.stack([head.weights.sum(1) for head in rows])
    assert (np.abs(sums - 1) > 0.05).mean() > 0.9
    np.testing.assert_allclose(sums.mean(0), 1, atol=0.1)
    first = rows[0]
    dropped = first.weights == 0
    np.testing.assert_allclose(first.weights[~dropped], 2 * first.softmaxed[~dropped])


def test_the_row_that_overflows_is_that_of_float32() -> None:
    walked = compute(from_text("cat sat on mat"), "overflow")
    row = shifted_row(walked)
    scores = torch.tensor(row[:, 0], dtype=torch.float32)
    assert torch.isinf(scores.exp()).all()
    assert np.isnan(row[:, 2]).all()
    np.testing.assert_allclose(row[:, 4], scores.softmax(0).numpy(), rtol=1e-5)
    np.testing.assert_allclose(row[:, 4], walked.heads[0].weights[-1], rtol=1e-4)


@pytest.mark.parametrize("variant", ["-1e9", "after", "dropout", "overflow", ""])
def test_variants_come_back_from_json(variant: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps(MASKED))
    example = answers.Example(file=tmp_path / "f.json")
    found = answers.numbers(example, variant=variant)
    assert Answer.from_json(found.to_json()) == found
    assert found.variant == variant
    assert ("NaN" in as_text(found, 100, Paint(colour=True))) == (variant not in ("-1e9", "after"))
