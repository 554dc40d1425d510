"""Families of transformers by their names, out of what was measured."""

from __future__ import annotations

import json

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import UsageError
from attnviz.features.models.function import families
from tests import ROOT

PAGE = (ROOT / "docs" / "families.md").read_text("utf-8").partition("\n## ")[0]


def test_all_are_those_of_the_page() -> None:
    listed = families("all").families
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(listed) == len(rows)
    assert f"{len(listed)} families," in PAGE
    ran = sum(bool(family.heads) for family in listed)
    assert f"of which {ran} are built and give attention" in " ".join(PAGE.split())


def test_a_part_of_a_name_and_other_spellings_are_enough() -> None:
    names = [family.family for family in families("qwen3").families]
    assert {"qwen3", "qwen3_moe", "qwen3_next"} <= set(names)
    assert all("qwen3" in name for name in names)
    (oss,) = families("gpt-oss").families
    assert oss.family == "gpt_oss"
    assert oss.heads == 12


def test_a_family_that_there_is_not_has_neighbours() -> None:
    with pytest.raises(UsageError, match="has 'llamma' in its name; like it: llama"):
        families("llamma")
    with pytest.raises(UsageError, match="of any other is checked when it is loaded"):
        families("zzzzzz")


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["models", "llama", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "attnviz.families/1"
    assert document["families"][0]["family"] == "llama"
    file = f"{tmp_path}/families.json"
    assert main(["models", "llama", "-o", file]) == 0
    assert av.read(file).families[0].family == "llama"
    capsys.readouterr()
    assert main(["models", "llama", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("family,maps,heads,logits,ablation,linear\n")
    assert main(["models", "llama", "--show", "demo-gpt2"]) != 0
    assert "leave out the other options" in capsys.readouterr().err
