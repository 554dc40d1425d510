"""docs/tour.ipynb runs from the top, and shows what it shows in the repository.

After a change that is meant, ``python -m tests.features.tour.test_notebook`` runs it anew and keeps
that.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests import ROOT

NOTEBOOK = ROOT / "docs" / "tour.ipynb"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+")
CLOSE = 0.021
"""Other processors round otherwise, and two digits are shown."""


def run() -> Any:
    """The notebook with the outputs of a fresh kernel, and nothing that differs between runs."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of tqdm, without ipywidgets
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True
    )
    client.execute(cwd=str(NOTEBOOK.parent))
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def shown(cell: Any) -> list[tuple[str, str]]:
    """What a cell shows: kinds of output with their joined texts, pictures without their bytes."""
    found: list[tuple[str, str]] = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            before = found.pop()[1] if found and found[-1][0] == output.name else ""
            found.append((output.name, before + output.text))
        for kind, content in sorted(output.get("data", {}).items()):
            text = "" if kind.startswith("image/") else "".join(content)
            found.append((kind, PICTURE.sub("picture", text)))
    return found


def same(one: str, other: str) -> bool:
    """Whether two texts have the same words, and numbers that are close."""
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (one, other)]
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    return all(abs(a - b) <= max(CLOSE, 0.01 * abs(a)) for a, b in zip(*numbers, strict=True))


@pytest.mark.slow
def test_the_tour_shows_what_a_fresh_run_shows() -> None:
    import nbformat

    kept = nbformat.read(NOTEBOOK, as_version=4)
    fresh = run()
    for number, (before, after) in enumerate(zip(kept.cells, fresh.cells, strict=True)):
        was, now = shown(before), shown(after)
        assert [kind for kind, _ in was] == [kind for kind, _ in now], f"cell {number}"
        for (kind, one), (_, other) in zip(was, now, strict=True):
            assert same(one, other), f"cell {number} shows another {kind}:\n{one}\n\n{other}"


def test_nothing_fails_or_warns_and_every_picture_has_words() -> None:
    import nbformat

    kept = nbformat.read(NOTEBOOK, as_version=4)
    pictures = 0
    for cell in (cell for cell in kept.cells if cell.cell_type == "code"):
        assert cell.execution_count, "run it from the top"
        for kind, text in shown(cell):
            assert kind != "stderr", text
            assert not kind.startswith("image/"), "a picture is kept once, in its text"
            pictures += text.count("<img ")
            assert text.count("<img ") == text.count('<img alt="') <= 1
        for output in cell.outputs:  # what Colab, JupyterLab and VS Code choose from
            assert set(output.get("data", {})) in (set(), {"text/plain", "text/html"})
    assert pictures >= 2


def test_the_comparison_can_fail() -> None:
    assert same("head 0.5: 0.73", "head 0.5: 0.74")
    assert not same("head 0.5: 0.73", "head 0.5: 0.79")
    assert not same("previous 0.5", "induction 0.5")


if __name__ == "__main__":
    import nbformat

    nbformat.write(run(), NOTEBOOK)


def test_every_cell_of_the_recipe_runs_and_shows_itself(tmp_path: Path, monkeypatch) -> None:
    """The cells of docs/python.md, one after the other, with what a notebook shows of each."""
    monkeypatch.chdir(tmp_path)
    shell = SimpleNamespace(version_info=(9, 0), get_ipython=lambda: None)  # for matplotlib
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(IFrame=IFrame))
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    recipe = page.partition("## A notebook, step by step")[2].partition("\n## ")[0]
    cells = re.findall(r"^```python\n(.*?)^```", recipe, re.DOTALL | re.MULTILINE)
    assert len(cells) > 8
    names: dict[str, Any] = {}
    for cell in cells:
        *lines, last = ast.parse(cell).body
        assert isinstance(last, ast.Expr), cell
        exec(compile(ast.Module(lines, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if not isinstance(value, Path):
            shown = value._repr_html_()
            assert shown.startswith("<") or "<" in shown, cell
            assert len(shown) < 2_000_000, cell
    assert {file.name for file in tmp_path.iterdir()} == {
        "live.html", "heads.html", "head.pdf", "heads.json"
    }  # fmt: skip


class IFrame(NamedTuple):
    """What IPython shows a page by."""

    src: str
    width: str
    height: int

    def _repr_html_(self) -> str:
        return f"<iframe src={self.src!r}>" if Path(self.src).is_file() else ""


def test_the_first_cells_open_and_install_it() -> None:
    badge, install = (cell["source"] for cell in json.loads(NOTEBOOK.read_text())["cells"][:2])
    assert "/blob/main/docs/tour.ipynb" in "".join(badge)
    assert "%pip install --quiet attnviz" in "".join(install)


@pytest.mark.slow
def test_the_marimo_app_runs_and_shows_grid_and_page(tmp_path: Path) -> None:
    pytest.importorskip("marimo")
    out, app = tmp_path / "heads.html", tmp_path / "heads.py"  # it writes beside the app
    app.write_bytes((ROOT / "docs" / "marimo" / "heads.py").read_bytes())
    command = [sys.executable, "-m", "marimo", "export", "html", str(app), "-o", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    page = out.read_text("utf-8")
    assert all(part in page for part in ("marimo-text", "data-attnviz", "data:image/png"))
