"""What README.md and docs/ name in the repository is there, and their Python fits it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import attnviz as av
from docs import moving
from tests import forking

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = re.compile(r"`((?:attnviz|tests|benchmarks|proofs|training|docs|sample_inputs)/[\w./-]*)`")
MODULES = re.compile(r"python -m ((?:attnviz|tests|benchmarks|proofs|training)(?:\.\w+)*)")
LINKS = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


def missing(page: Path, text: str) -> list[str]:
    """What a page names and the repository has not."""
    files = [name for name in FILES.findall(text) if not (ROOT / name).exists()]
    links = [name for name in LINKS.findall(text) if not (page.parent / name).exists()]
    return files + links + [name for name in MODULES.findall(text) if find_spec(name) is None]


def refused(text: str) -> Iterator[str]:
    """Calls of attnviz in the Python of a page that do not fit the function."""
    code = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for block in (*code, *re.findall(r"`(av\.\w+\([^`\n]*\))`", text)):
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            package, *names = ast.unparse(call.func).split(".")
            if package != "av" or len(names) != 1:
                continue
            if names[0] not in av.__all__:
                yield f"{ast.unparse(call)}: there is no av.{names[0]}"
                continue
            function = getattr(av, names[0])
            keywords = {keyword.arg: 0 for keyword in call.keywords if keyword.arg is not None}
            try:
                inspect.signature(function).bind(*call.args, **keywords)
            except TypeError as error:
                yield f"{ast.unparse(call)}: {error}"


def test_python_calls_functions_as_they_are() -> None:
    wrong = {page.name: list(refused(page.read_text("utf-8"))) for page in PAGES}
    assert {name: calls for name, calls in wrong.items() if calls} == {}


def test_wrong_calls_are_told() -> None:
    text = "```python\nav.heads('a', to=1)\nav.Heads.from_json(x)\n```\nand `av.nothing()`\n"
    assert [call.partition("(")[0] for call in refused(text)] == ["av.heads", "av.nothing"]


def test_files_links_and_modules_are_there() -> None:
    found = {page.name: missing(page, page.read_text("utf-8")) for page in PAGES}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_test_can_fail() -> None:
    text = "`attnviz/nowhere/`, [here](away.md#there), [out](https://a.org), `python -m attnviz.no`"
    assert missing(PAGES[0], text) == ["attnviz/nowhere/", "away.md", "attnviz.no"]


def test_it_is_what_the_commands_print(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = moving.TARGET.read_text("utf-8")

    def forked(command: list[str], env: dict[str, str], encoding: str, **_: object) -> Any:
        return forking.run(command, env=env, encoding=encoding)

    monkeypatch.setattr(moving, "subprocess", SimpleNamespace(run=forked, PIPE=None))
    assert kept == moving.made(), "run python -m docs.moving"


def test_it_is_small_asks_for_nothing_and_has_both_schemes() -> None:
    kept = moving.TARGET.read_text("utf-8")
    assert len(kept) < 1_000_000
    drawn = ElementTree.fromstring(kept)
    assert {element.tag.rpartition("}")[2] for element in drawn.iter()} <= {
        "svg", "title", "desc", "style", "clipPath", "rect", "g", "text"
    }  # fmt: skip
    assert re.findall(r"url\((?!#)|https?://(?!www\.w3\.org/2000/svg)|@import", kept) == []
    assert "prefers-color-scheme:dark" in kept
    assert "prefers-reduced-motion:no-preference" in kept


def test_scenes_follow_each_other_for_the_whole_time() -> None:
    kept = moving.TARGET.read_text("utf-8")
    lasting = [moving._seconds([moving.Text()] * count) for count in (10, moving.ROWS + 10)]
    assert lasting[1] - lasting[0] == 20 * moving.SCROLLING
    for number in range(len(moving.COMMANDS)):
        assert f'id="s{number}"' in kept
        assert f"@keyframes s{number}{{" in kept


PAGE = Path(__file__).parents[1] / "docs" / "families.md"


@pytest.mark.parametrize("name", ["llama", "olmo2", "gemma2", "qwen3_next", "bloom"])
def test_a_line_of_the_page_is_what_is_found(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    page = PAGE.read_text(encoding="utf-8")
    if f"of transformers {transformers.__version__} " not in page:
        pytest.skip("the page is of another version of transformers")
    from tests.families import families, row

    config = dict(families())[name]
    made = row(name, config)
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    cells = [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]
    assert cells[:1] + cells[2:3] == made[:1] + made[2:3]
    assert cells[1].partition(":")[0] == made[1].partition(":")[0]
    split = made[3].replace("e-", "").isdigit()
    assert cells[3] == made[3] or (split and float(cells[3]) < 1e-4 and float(made[3]) < 1e-4)
    for cell, own in zip(cells[4:], made[4:], strict=True):
        assert bool(cell) == bool(own)
        assert own in ("", "–") or float(own) < 1e-4


RIVER = "the cat river moon stone bread the cat river moon stone"
CLOCK = "Mary gave the old blue clock to Peter, and later Mary gave the old blue"


def test_the_repeated_word_is_predicted() -> None:
    """As claims of docs/same-word.md have it of the river."""
    first = av.logits(CLOCK).predictions[0]
    assert (first.token, first.rank) == (" clock", 1)


def test_heads_of_the_repeated_text_are_induction_heads() -> None:
    named = {head.head.name for head in av.heads(RIVER).heads
             if any(role.name == "induction" for role in head.roles)}  # fmt: skip
    assert {"2.0", "3.0", "3.3"} <= named


def test_no_example_repeats_what_the_model_does_not_continue() -> None:
    """On counted words demo-gpt2 predicts a comma."""
    for file in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"),
                 *(ROOT / "attnviz").glob("features/*/command.py")]:  # fmt: skip
        assert not re.search(r"one two three one two", file.read_text(encoding="utf-8")), file


def test_a_capture_as_a_tidy_frame() -> None:
    pandas = pytest.importorskip("pandas")
    capture = av.capture("The cat sat", select="2.0, 1.4")
    found = capture.to_pandas()
    assert isinstance(found, pandas.DataFrame)
    assert list(found.columns) == [
        "layer", "index", "head", "query", "key", "query_token", "key_token", "weight"
    ]  # fmt: skip
    assert len(found) == 2 * 4 * 5 // 2  # two heads, four tokens, causal
    sums = found.groupby(["head", "query"])["weight"].sum()
    assert sums.to_numpy() == pytest.approx(1, abs=1e-5)
    row = found[(found["head"] == "2.0") & (found["query"] == 3) & (found["key"] == 1)].iloc[0]
    assert row["weight"] == capture["2.0"][3, 1]
    assert (row["query_token"], row["key_token"]) == (capture.tokens[3], capture.tokens[1])


def test_no_cell_of_a_csv_is_a_formula() -> None:
    import csv
    import io

    found = list(csv.reader(io.StringIO(av.logits("=1 + 2 @ a - b", predictions=3).to_csv())))
    cells = [cell for row in found for cell in row]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@")]
    assert all(float(cell) < 0 for cell in cells if cell.startswith("-"))
