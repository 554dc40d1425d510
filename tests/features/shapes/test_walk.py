"""The walk, and its verification against the real layer."""

from __future__ import annotations

from typing import Any

import pytest

from attnviz.attention.spec import KINDS, AttentionSpec, RunSizes, check_sizes, spec_of
from attnviz.attention.steps import walk
from attnviz.features.shapes.verify import verify


def spec(
    kind: str, d_model: int, heads: int, *, bias: bool = True, **options: Any
) -> AttentionSpec:
    causal, window = options.pop("causal", False), options.pop("window", None)
    sizes = check_sizes(d_model, heads, kind=kind, **options)
    return spec_of(sizes, bias=bias, causal=causal, window=window)


# the walk


def test_the_walk_of_two_by_four_by_eight() -> None:
    steps = walk(spec("mha", 8, 2), RunSizes(2, 4)).steps
    assert [step.sizes for step in steps] == [
        (2, 4, 8),  # X
        (2, 4, 8),  # Q
        (2, 4, 8),  # K
        (2, 4, 8),  # V
        (2, 4, 2, 4),  # view
        (2, 2, 4, 4),  # transpose
        (2, 2, 4, 4),  # scores
        (2, 2, 4, 4),  # scaled
        (2, 2, 4, 4),  # masked
        (2, 2, 4, 4),  # weights
        (2, 2, 4, 4),  # head outputs
        (2, 4, 2, 4),  # transpose back
        (2, 4, 8),  # concat
        (2, 4, 8),  # Y
    ]
    assert sum(step.parameters for step in steps) == 4 * 8 * 8 + 4 * 8


def test_cross_attention_is_not_square() -> None:
    walked = walk(spec("cross", 256, 8), RunSizes(2, 12, 20))
    assert walked.step("softmax").sizes == (2, 8, 12, 20)
    assert walked.step("softmax").symbols == "[B, H, T, S]"
    assert walked.step("w_k").sizes == (2, 20, 256)
    assert walked.step("w_o").sizes == (2, 12, 256)


def test_causal_example_shapes() -> None:
    walked = walk(spec("mha", 128, 8, causal=True), RunSizes(4, 16))
    assert walked.step("w_o").sizes == (4, 16, 128)
    assert walked.step("softmax").sizes == (4, 8, 16, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_letters_agree_with_numbers(kind: str) -> None:
    one = spec(kind, 48, 6)
    context = 13 if kind == "cross" else None
    letters, numbers = walk(one, RunSizes(3)), walk(one, RunSizes(3, 7, context))
    for unset, known in zip(letters.steps, numbers.steps, strict=True):
        assert unset.symbols == known.symbols
        assert unset.flops.at(T=7, S=13) == known.flops
        assert (unset.bytes is None) == (known.bytes is None)
        if unset.bytes is not None and known.bytes is not None:
            assert unset.bytes.at(T=7, S=13) == known.bytes
    assert sum((s.flops for s in numbers.steps), 0) == numbers.flops.total
    assert sum(s.parameters for s in numbers.steps) == numbers.parameters.total


def test_views_take_no_memory_and_every_step_has_its_reason() -> None:
    for kind in KINDS:
        for run_ in (RunSizes(), RunSizes(cache=5)) if kind != "cross" else (RunSizes(),):
            for step in walk(spec(kind, 48, 6), run_).steps:
                assert (step.bytes is None) == (
                    step.operation[:5] == ".view"
                    or "transpose" in step.operation
                    or step.key == "share"
                )
                assert len(step.why) > 40
    whys = "\n".join(step.why for step in walk(spec("mha", 8, 2), RunSizes()).steps)
    for bug in (".contiguous()", "√d", "after softmax", "forget it"):
        assert bug in whys


# verification against the real layer

GRID: list[tuple[str, dict[str, Any]]] = [
    ("mha", {}), ("mha", {"head_dim": 5}), ("gqa", {"kv_heads": 3}), ("mqa", {}),
    ("mla", {"latent": 5, "rope_dim": 2}), ("mla", {"latent": 7, "rope_dim": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sizes"), GRID)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 3}])
def test_the_real_layer_does_what_the_walk_says(
    kind: str, sizes: dict[str, Any], options: dict[str, Any]
) -> None:
    for batch, seq in ((1, 1), (3, 7), (2, 13)):
        found = verify(
            walk(spec(kind, 30, 6, bias=batch == 3, **sizes, **options), RunSizes(batch, seq))
        )
        assert found.failures == ()
        assert {check.what for check in found.checks} >= {"shape", "parameters", "FLOPs", "bytes"}
    for cache in (0, 1, 8):
        one = spec(kind, 30, 6, **sizes, **options)
        assert verify(walk(one, RunSizes(2, cache=cache, dtype="float64"))).failures == ()
        chunk = RunSizes(2, 4, cache=cache, dtype="float64")
        assert verify(walk(one, chunk)).failures == ()


@pytest.mark.parametrize(("t", "s"), [(1, 1), (12, 20), (7, 3)])
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_real_cross_attention_does_too(t: int, s: int, kv_heads: int) -> None:
    one = spec("cross", 30, 6, kv_heads=kv_heads)
    assert verify(walk(one, RunSizes(2, t, s, dtype="bfloat16"))).failures == ()


def test_a_wrong_walk_is_found_out() -> None:
    right = walk(spec("mha", 30, 6), RunSizes(2, 7))
    bad = [
        step._replace(parameters=step.parameters + 1) if step.key == "w_q" else step
        for step in right.steps
    ]
    (failure,) = verify(right._replace(steps=tuple(bad))).failures
    assert (failure.step, failure.what) == ("Q", "parameters")
    other = walk(spec("mha", 30, 5), RunSizes(2, 7))
    assert verify(right._replace(steps=other.steps)).failures
