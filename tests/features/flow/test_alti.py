"""ALTI against every vector written out in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.errors import ModelError
from attnviz.features.flow.description import formula
from attnviz.features.flow.function import run
from attnviz.models.demo import DEMOS
from tests.features.flow.reference import PLACES, alti
from tests.models.tiny import LONG, SHORT, build, hooked_only, inputs_of


@pytest.mark.parametrize("family", PLACES)
def test_tiny_models_equal_vectors_written_out(family: str, tmp_path: Path) -> None:
    build(family, tmp_path, words=True)
    source = av.load(tmp_path)
    if source.info.backend != "native":
        hooked_only(source)
    two = len(source.layout.kinds) > 1
    inputs = inputs_of(source, LONG, SHORT)
    report = run(source, inputs, "alti")
    expected = alti(family, tmp_path, LONG, SHORT if two else ())
    np.testing.assert_allclose(report.total, expected, atol=2e-5)
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-5)
    assert report.targets == (len(LONG) if two else 0)


@pytest.mark.parametrize(
    ("family", "name"), [("gpt2", "demo-gpt2"), ("bert", "demo-bert"), ("bert", "minilm")]
)
def test_trained_models_equal_vectors_written_out(family: str, name: str, minilm: str) -> None:
    source = av.load(minilm if name == "minilm" else name)
    inputs = source.prepare(Prompt("The keys to the cabinet are on the table"))
    (sides,) = inputs.sides.values()
    report = run(source, inputs)
    assert report.method == "alti"
    expected = alti(family, DEMOS.get(name, minilm), sides.queries.ids)
    np.testing.assert_allclose(report.total, expected, atol=2e-5)


def test_long_texts_go_by_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a block and more keys than are written out at a time change nothing."""
    source = av.load("demo-gpt2")
    inputs = source.prepare(Prompt("one two three four five " * 12))
    whole = run(source, inputs)
    import attnviz.attention.blocks as attending
    from attnviz.attention import contributions

    monkeypatch.setattr(attending, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(contributions, "PART_ELEMENTS", 1 << 13)
    parts = run(source, inputs)
    np.testing.assert_allclose(parts.total, whole.total, atol=1e-5)


def test_each_order_of_normalization_is_named() -> None:
    texts = {name: formula(av.flow("a cat sat", model=name)) for name in DEMOS}
    assert "pre-norm" in texts["demo-gpt2"]
    assert "post-norm" in texts["demo-bert"]


def test_what_a_model_does_not_tell_is_said(monkeypatch, tmp_path: Path) -> None:
    build("bloom", tmp_path)  # runs eagerly: weights and nothing else
    source = av.load(tmp_path)
    inputs = inputs_of(source, SHORT, ())
    report = run(source, inputs)
    assert report.method == "rollout"
    assert str(report.notes[0]).startswith("Rollout instead of ALTI: in ")
    with pytest.raises(ModelError, match="ALTI needs the vectors that attention moves, and in "):
        run(source, inputs, "alti")


def test_a_fresh_layer_flows() -> None:
    report: Any = av.flow("the cat sat", model=av.FreshConfig(layers=2))
    assert report.method == "alti"
    assert "post-norm" in formula(report)
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-5)


def test_two_texts_of_a_fresh_layer() -> None:
    report = av.flow(av.Prompt("the cat sat", pair="le chat"), model="fresh")
    assert report.targets == 2
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(report.total[:2], np.eye(2, 5))
    assert (report.total[2:, :2] > 0).all()


def test_layers_are_counted_as_they_go_by() -> None:
    told: list[tuple[str, int, int]] = []
    av.flow("a cat sat", progress=lambda *one: told.append(one))
    assert told[-1] == ("layers", 4, 4)
    told.clear()
    av.flow("a cat sat", method="max-flow", progress=lambda *one: told.append(one))
    assert told[-1] == ("max-flow", 4, 4)
