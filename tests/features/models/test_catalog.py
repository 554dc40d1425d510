"""``attnviz models``: what is on this machine, read without transformers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.features.models.catalog import inspect

CODE = """
import sys
from attnviz.cli import main
for options in sys.argv[1:]:
    assert main(["models", *options.split()]) == 0
    print("====")
assert "transformers" not in sys.modules
"""


def listed(home: Path, *options: str) -> list[str]:
    """What is printed with each of the options, by one process."""
    environment = {**os.environ, "HF_HOME": str(home)}
    environment.pop("HF_HUB_CACHE", None)
    out = subprocess.run(
        [sys.executable, "-c", CODE, *options], env=environment, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    return out.split("====\n")[:-1]


@pytest.fixture
def home(tmp_path: Path, minilm: str) -> Path:
    """A hub cache with a good model, a pickled one, and one without a tokenizer."""
    for name, files in {
        "models--org--good": ("config.json", "model.safetensors", "tokenizer.json"),
        "models--org--pickled": ("config.json", "tokenizer.json"),
        "models--org--silent": ("config.json", "model.safetensors"),
    }.items():
        snapshot = tmp_path / "hub" / name / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (tmp_path / "hub" / name / "refs").mkdir()
        (tmp_path / "hub" / name / "refs" / "main").write_text("a" * 40)
        for file in files:
            shutil.copy(Path(minilm) / file, snapshot)
        if "pickled" in name:
            (snapshot / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    return tmp_path


def test_json_and_table_tell_what_can_be_used(home: Path) -> None:
    told, table = listed(home, "--json", "")
    document = json.loads(told)
    assert document["schema"] == "attnviz.models/1"
    models = {model["name"]: model for model in document["models"]}
    assert models["fresh"]["place"] == "built in"
    good = models["org/good"]
    assert (good["family"], good["shape"], good["usable"]) == ("bert", "6×12", True)
    assert good["size"] > 40_000_000
    assert not models["org/pickled"]["usable"]
    assert models["org/pickled"]["note"].startswith("has only pickled weights")
    assert models["org/silent"]["usable"]
    assert "--ids" in models["org/silent"]["note"]
    assert "org/good" in table
    assert "not usable: has only pickled weights" in " ".join(table.split())
    assert max(map(len, table.splitlines())) <= 100


@pytest.mark.slow
def test_no_cache_is_no_mistake(tmp_path: Path) -> None:
    (table,) = listed(tmp_path / "nothing", "")
    assert "fresh" in table


def test_a_damaged_configuration_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    entry = inspect("x", tmp_path, "hub cache")
    assert not entry.usable
    assert "config.json" in entry.note
