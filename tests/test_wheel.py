"""The wheel: all that the package needs to run, and nothing else.

``make dist`` sets ``$ATTNVIZ_WHEEL`` to the wheel that it has built; otherwise one is built here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import attnviz
from tests import ROOT

pytestmark = pytest.mark.slow

KINDS = {".py", ".pyi", ".typed",
         ".json", ".toml", ".safetensors", ".md", ".txt", ".js", ".ts", ".css",
         ".html", ".wat", ".wasm", ".mplstyle"}  # fmt: skip
DATA = {
    "model.safetensors", "tokenizer.json", "MODEL_CARD.md", "presets.toml", "main.js",
    "product.wasm", "sentences.txt", "py.typed",
}  # fmt: skip
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    if "ATTNVIZ_WHEEL" in os.environ:
        return Path(os.environ["ATTNVIZ_WHEEL"])
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet",
         "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def test_wheel_is_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.stat().st_size < 15_000_000
    names = set(zipfile.ZipFile(wheel).namelist())
    about = f"attnviz-{attnviz.__version__}.dist-info/"
    assert {name.removeprefix(about) for name in names if name.startswith(about)} == METADATA
    inside = {name for name in names if not name.startswith(about)}
    samples = {name for name in inside if name.startswith("attnviz/sample_inputs/")}
    assert samples == {
        f"attnviz/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "sample_inputs").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside -= samples
    assert inside == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "attnviz").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in inside} <= KINDS
    assert {Path(name).name for name in inside} >= DATA


def test_installed_wheel_runs_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True)
    code = "import attnviz, attnviz.__main__ as m; assert 'site' in attnviz.__file__; m.run()"
    result = subprocess.run(
        [sys.executable, "-c", code, "heads", "the cat and the cat"], cwd=tmp_path, text=True,
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "demo-gpt2" in result.stdout
    copied = subprocess.run(
        [sys.executable, "-c", code, "demo", "--out-dir", "samples"], cwd=tmp_path, text=True,
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "samples" / "treebank.conllu").is_file()
