"""``attnviz models``: what is on this machine, read without transformers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.models.catalog import inspect

CODE = """
import sys
from attnviz.cli import main
code = main(["models", *sys.argv[1:]])
assert "transformers" not in sys.modules
sys.exit(code)
"""


def listed(home: Path, *arguments: str) -> str:
    environment = {**os.environ, "HF_HOME": str(home)}
    environment.pop("HF_HUB_CACHE", None)
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments], env=environment, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip


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


def test_json_tells_what_can_be_used(home: Path) -> None:
    document = json.loads(listed(home, "--json"))
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


def test_table_fits_a_pipe(home: Path) -> None:
    table = listed(home)
    assert "org/good" in table
    assert "not usable: has only pickled weights" in " ".join(table.split())
    assert max(map(len, table.splitlines())) <= 100


def test_no_cache_is_no_mistake(tmp_path: Path) -> None:
    assert "fresh" in listed(tmp_path / "nothing")


def test_a_damaged_configuration_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    entry = inspect("x", tmp_path, "hub cache")
    assert not entry.usable
    assert "config.json" in entry.note
