"""Circuits of models that mix tokens otherwise too, or normalize what heads read, make or write.

Against dense float64 matrices of transformers' own modules, which are looked up here by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.heads import Head, Site
from attnviz.errors import ModelError
from attnviz.features.circuits.result import Circuits
from tests.families import built, families
from tests.features.circuits.test_circuits import array, check_edges, copied

pytest.importorskip("transformers")

PATTERN = ["linear_attention", "full_attention"] * 2
FULL = {"num_hidden_layers": 4}
SIZES: Mapping[str, dict[str, Any]] = {
    "qwen3_next": FULL | {"layer_types": PATTERN}, "qwen3_5_text": FULL | {"layer_types": PATTERN},
    "olmo_hybrid": FULL | {"layer_types": PATTERN}, "bamba": FULL | {"attn_layer_indices": [1, 3]},
    "falcon_h1": {}, "minimax": FULL | {"layer_types": PATTERN}, "qwen3": {}, "gemma3_text": {},
    "granite": {},
}  # fmt: skip
GAMMA_LESS_ONE = ("qwen3_next", "qwen3_5_text", "gemma3_text")
SLOW = ("qwen3_5_text", "minimax", "granite", "gemma3_text")


class Dense:
    """The matrices of a model's heads."""

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model = name, model
        self.layers = list(model.model.layers)

    def gamma(self, norm: Any) -> np.ndarray:
        return array(norm.weight) + (self.name in GAMMA_LESS_ONE)  # type: ignore[no-any-return]

    def heads(self, number: int) -> list[dict[str, np.ndarray]]:
        """W_Q, W_K, W_V, [D, d], and W_O, [d, D], as the stream meets them; none without heads."""
        layer = self.layers[number]
        own = getattr(layer, "self_attn", None)
        if own is None or not hasattr(own, "k_proj"):
            return []
        q, k, v = (array(getattr(own, f"{part}_proj").weight).T for part in "qkv")
        if q.shape[1] == 32:  # beside the queries of every head stands its gate
            q = q.reshape(16, 4, 2, 4)[:, :, 0].reshape(16, 16)
        if self.name == "falcon_h1":
            k = k * own.key_multiplier
            own_norm = layer.input_layernorm
            q, k, v = (x * layer.attention_in_multiplier for x in (q, k, v))
        else:
            own_norm = getattr(layer, "input_layernorm", None)
        if hasattr(own, "q_norm"):
            q, k = (x * np.resize(self.gamma(n), x.shape[1])
                    for x, n in ((q, own.q_norm), (k, own.k_norm)))  # fmt: skip
        if own_norm is not None:
            q, k, v = (self.gamma(own_norm)[:, None] * x for x in (q, k, v))
        out = array(own.o_proj.weight).T
        if self.name in ("olmo_hybrid", "gemma3_text"):
            out = out * self.gamma(layer.post_attention_layernorm)
        split = [np.split(x, 4, 1) for x in (q,)]
        split += [[part for part in np.split(x, 2, 1) for _ in range(2)] for x in (k, v)]
        split.append(np.split(out, 4, 0))
        return [dict(zip("QKVO", parts, strict=True)) for parts in zip(*split, strict=True)]

    def path(self, first: int, second: int) -> np.ndarray:
        """What the stream is multiplied with between two layers' attention, σ left out."""
        width = np.ones(16)
        if self.name != "minimax":
            return width
        for number in range(first, second):
            layer = self.layers[number]
            norms = [] if number == first else [layer.input_layernorm]
            for norm in (*norms, layer.post_attention_layernorm):
                width = width * array(norm.weight)
        return width


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SIZES
])  # fmt: skip
def case(request: pytest.FixtureRequest) -> tuple[str, Dense, Circuits]:
    kinds = dict(families())
    if request.param not in kinds:
        pytest.skip(f"this transformers has no {request.param}")
    model = built(kinds[request.param], **SIZES[request.param])
    return request.param, Dense(request.param, model), av.circuits(model=av.load(model))


def test_edges_against_dense_matrices(case: tuple[str, Dense, Circuits]) -> None:
    _, dense, report = case
    heads = {number: own for number in range(len(dense.layers)) if (own := dense.heads(number))}
    check_edges(report, heads, lambda first, second: np.diag(dense.path(first, second)))


def test_copying_against_dense_matrices(case: tuple[str, Dense, Circuits]) -> None:
    name, dense, report = case
    if name == "minimax":
        assert "normalizes the sum" in report.reasons["copying"]
        return
    model = dense.model
    last = getattr(model.model, "norm", None) or model.model.final_layernorm
    unembed = array(model.get_output_embeddings().weight) * dense.gamma(last)
    x = array(model.get_input_embeddings().weight)
    if name != "olmo_hybrid":
        x = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
    for number in range(len(dense.layers)):
        for index, own in enumerate(dense.heads(number)):
            score, _ = copied(x, own, unembed)
            head = Head(Site("decoder", number), index)
            assert report.plain[head].score == pytest.approx(score, abs=2e-3), head


def test_what_has_no_heads_is_said(case: tuple[str, Dense, Circuits]) -> None:
    name, dense, report = case
    without = [n for n in range(len(dense.layers)) if not dense.heads(n)]
    notes = " ".join(report.notes)
    assert (f"{len(without)} of {len(dense.layers)} layers have no attention" in notes) == bool(
        without
    )
    assert ("also mix tokens without attention (Mamba-2)" in notes) == (name == "falcon_h1")
    assert ("normalized before they meet" in notes) == hasattr(dense.layers[-1].self_attn, "q_norm")
    assert ("normalized before it is added" in notes) == (name in ("olmo_hybrid", "gemma3_text"))
    assert {head.layer for head in report.plain}.isdisjoint(without)


def test_one_layer_that_attends_has_copying_alone() -> None:
    report = av.circuits(model=av.load(built(dict(families())["bamba"])))
    assert "one layer of it attends" in report.reasons["edges"]
    assert len(report.plain) == 4
    assert not report.edges


@pytest.mark.slow
def test_streams_whose_channels_are_scaled_apart_are_refused_with_the_reason() -> None:
    source = av.load(built(dict(families())["zaya"]))
    with pytest.raises(ModelError, match="every channel of what enters it with another number"):
        av.circuits(model=source)
