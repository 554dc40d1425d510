"""What is said of ablations: of distances, of what zero removes, where methods disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest

import attnviz as av
from attnviz.features.ablation.description import finding
from attnviz.features.ablation.result import Ablation, Effect
from attnviz.features.ablation.words import disagree
from tests.features.ablation.test_run import TEXTS


@pytest.fixture(scope="module")
def real() -> dict[str, Ablation]:
    return {
        "texts": av.ablate(TEXTS, select="0.5, 2.4, 3.0+3.1", estimate="plain"),
        "distance": av.ablate(TEXTS, model="demo-bert", metric="kl", select="1.*", method="zero"),
    }


def test_a_distance_has_no_base_and_no_side(real: dict[str, Ablation]) -> None:
    told = finding(real["texts"], "a.json").how
    assert f"with all heads it is {real['texts'].base:.3g} nats" in told
    assert "above 0 is worse" in told
    told = finding(real["distance"], "a.json").how
    assert "with all heads" not in told
    assert "worse" not in told


def test_what_zero_removes_too_is_said_where_zero_did(real: dict[str, Ablation]) -> None:
    report = real["texts"]
    assert report.methods == ("mean", "resample")
    assert any(effect.mean_share is not None for effect in report.effects)
    assert "which zero removes too" not in repr(finding(report, "a.json"))
    with_zero = _renamed(report, {"mean": "mean", "resample": "zero"})
    assert "which zero removes too" in repr(finding(with_zero, "a.json"))


def _renamed(report: Ablation, names: dict[str, str]) -> Ablation:
    """The same changes, by methods of other names."""

    def by(effect: Effect) -> Effect:
        told = tuple(replace(change, method=names[change.method]) for change in effect.by)
        return replace(effect, by=told)

    effects = tuple(by(effect) for effect in report.effects)
    return replace(report, methods=tuple(names.values()), effects=effects)


def test_methods_disagree_about_sizes_and_about_what_matters(real: dict[str, Ablation]) -> None:
    report = real["texts"]
    effect = replace(report.effects[0], verdict="needed")

    def by(*changes: float) -> bool:
        told = tuple(replace(effect.first, change=c, sure=True) for c in changes)
        return disagree(replace(report, smallest=0.05), replace(effect, by=told))

    assert not by(0.1, 0.3)
    assert by(0.1, 0.6), "more than five times as large"
    assert by(0.04, 0.1), "below the smallest effect of interest"
