"""Ablations as JSON: the same value again, by its schema; what is damaged is named."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest

import attnviz as av
from attnviz.errors import InputError
from attnviz.features import results
from attnviz.features.ablation.description import finding
from attnviz.features.ablation.result import Ablation, Effect
from attnviz.features.ablation.words import disagree
from attnviz.models.controls import FreshConfig
from tests.features.ablation.test_run import TEXTS


@pytest.fixture(scope="module")
def real() -> dict[str, Ablation]:
    return {
        "texts": av.ablate(TEXTS, select="0.5, 2.4, 3.0+3.1", estimate="plain"),
        "curve": av.ablate(
            TEXTS, model=FreshConfig(64, 4, layers=2), curve="effect:1", method="mean"
        ),
        "positions": av.ablate(TEXTS[0], select="0.5", by="position"),
        "distance": av.ablate(TEXTS, model="demo-bert", metric="kl", select="1.*", method="zero"),
    }


@pytest.mark.parametrize("name", ["texts", "curve", "positions", "distance"])
def test_json_gives_the_same_value_again_and_follows_its_schema(
    real: dict[str, Ablation], tmp_path: Path, name: str
) -> None:
    found = real[name]
    assert Ablation.from_dict(found.to_dict()) == found
    assert Ablation.from_json(found.to_json()) == found
    assert results.read(found.save(tmp_path / "a.json")) == found
    jsonschema_rs.validate(Ablation.json_schema(), found.to_dict())
    rows = list(csv.DictReader(io.StringIO(found.save(tmp_path / "a.csv").read_text())))
    assert [row["name"] for row in rows] == [effect.name for effect in found.effects]
    assert str(results.read(tmp_path / "a.json")) == str(found)


def test_they_are_as_different_as_they_can_be(real: dict[str, Ablation]) -> None:
    """Or what comes back equal would say little."""
    assert any(effect.gradient for effect in real["texts"].effects)
    assert any(len(effect.heads) > 1 for effect in real["texts"].effects)
    assert real["curve"].curve
    assert real["positions"].by_position
    assert None in next(iter(real["positions"].by_position.values()))
    assert real["distance"].smallest is None


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "attnviz.ablate/2"}, "reads version 1; make it again with attnviz ablate"),
        ({"schema": "attnviz.coref/1"}, "is attnviz.coref/1, not attnviz.ablate/1"),
        ({"family": "many"}, r"Expected `int`, got `str` - at `\$.family`; make it again"),
        ({"base": None}, r"Expected `float`, got `null` - at `\$.base`"),
        ({"effects": [{"name": "0.5"}]}, r"missing required field `heads` - at `\$.effects"),
        ({"layout": {"heads": {"decoder": [5]}}}, "'[0-9].[0-9]' is not a head of this model"),
    ],
)
def test_what_is_damaged_is_named(
    real: dict[str, Ablation], change: dict[str, object], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**real["texts"].to_dict(), **change}))
    with pytest.raises(InputError, match=says) as caught:
        Ablation.from_json(path.read_text(), path.name)
    assert str(caught.value).startswith("a.json")
