"""``attnviz shapes``: every view in every format, what it refuses, and what it loads."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import typer
from typer.testing import CliRunner

import attnviz as av
from attnviz.attention import costs
from attnviz.cli import main
from attnviz.cli.console import DIFFERS
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.command import shapes as command
from attnviz.features.shapes.result import Answer
from attnviz.features.shapes.table import Paint, as_text, cells_wide, wrapped
from attnviz.models.demo import DEMOS

SCHEMA = Answer.json_schema()
COMMANDS = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))
APP = typer.Typer()
APP.command()(command)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(APP, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def answer(*arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json"))
    jsonschema_rs.validate(SCHEMA, document)
    read = Answer.from_dict(document)
    assert read.to_dict() == document
    assert type(read).from_json(read.to_json()) == read
    return document


def test_a_failed_verification_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.Projection, "parameters", property(lambda self: self.weights + 1))
    result = CliRunner().invoke(APP, ["--show", "verify", "--d-model", "16", "--heads", "2"])
    assert result.exit_code == DIFFERS
    assert "DIFFERS" in result.output


def test_numbers_begin_with_x_and_end_with_saturation() -> None:
    text = run("--show", "numbers", "cat sat on mat")
    places = [text.index(part) for part in ("X (4, 4)", "Y = Z W_O", "How saturated")]
    assert places == sorted(places)
    assert text.index("How saturated") < text.index("• Scores are scaled")


def test_a_sweep_says_whose_layer_it_is(tmp_path: Path) -> None:
    for sweep in ("seq=128..256", "kv-heads=1..H"):
        asked = ("--model", "llama3-8b", "--show", sweep)
        document = answer(*asked)
        assert document["model"] == "Llama 3 8B"
        assert document["title"].startswith("Llama 3 8B: ")
        run(*asked, "-o", str(tmp_path / "sweep.svg"))
        assert "Llama 3 8B" in (tmp_path / "sweep.svg").read_text()
    assert answer("--show", "seq=128..256")["model"] is None


def test_a_diagram_names_an_option_that_draws_it(tmp_path: Path) -> None:
    (flag,) = re.findall(r"(--[a-z-]+) F\.svg", run("--show", "diagram"))
    run("--show", "diagram", flag, str(tmp_path / "layer.svg"))
    assert (tmp_path / "layer.svg").read_text().startswith("<?xml")


def test_torch_is_not_imported_and_neither_is_rich() -> None:
    script = (
        "import sys\nfrom attnviz.features.shapes import function as answers\n"
        "from attnviz.features.shapes.table import as_text\n"
        "from attnviz.features.shapes.table import Paint\n"
        "import attnviz.features.shapes.command\n"
        "print(len(as_text(answers.walk(answers.Layer(512, 8)), 100, Paint(colour=False))))\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'rich.console', 'rich.table', 'transformers'}\n"
        "heavy.add('msgspec')\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    length, heavy = out.stdout.splitlines()
    assert int(length) > 1000
    assert heavy == "[]"


@pytest.mark.parametrize(("command", "view"), COMMANDS["views"])
def test_every_view_in_every_format(command: str, view: str) -> None:
    arguments = shlex.split(command)
    document = answer(*arguments)
    assert document["view"] == view
    text = run(*arguments)
    assert document["title"].split()[0] in text
    assert "\x1b" not in text
    markdown = run(*arguments, "--markdown")
    if view == "diagram":
        assert markdown.count("```") == 2
        return
    assert len([line for line in markdown.splitlines() if line.startswith("|")]) > 2
    if not {"--layers", "--model"} & set(arguments) or view == "compare":
        rows = list(csv.reader(io.StringIO(run(*arguments, "--csv"))))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 1


def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 100, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        for arguments in (
            ["--kind", "gqa", "--seq", "64", "--explain"],
            ["--kind", "mla", "--show", "diagram"],
            ["--model", "gemma2-9b"],
            ["--model", "llama3-70b", "--show", "compare:80GB", "--batch", "8"],
            ["--show", "presets"],
            ["--show", "scaling"],
            ["--show", "seq=128..131072"],
            ["--show", "numbers", "cat sat on mat"],
        ):
            lines = run(*arguments).splitlines()
            assert max(map(cells_wide, lines)) <= columns
            assert [line for line in lines if line != line.rstrip()] == []


def test_wide_terminals_give_shape_and_size_a_column_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--d-model", "64"], ["--model", "gemma2-9b"], ["--model", "demo-bert"]):
        monkeypatch.setenv("COLUMNS", "140")
        assert re.search("shape +size +operation", run(*arguments))
        monkeypatch.setenv("COLUMNS", "80")
        assert "size and shape" in run(*arguments)


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("--seq", "4")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("--seq", "4")


def test_ascii_terminals_get_ascii() -> None:
    plain = Paint(colour=False, ascii_only=True)
    layer = answers.Layer()
    for found in (
        answers.walk(layer, explain=True),
        answers.diagram(layer),
        answers.sweep(layer, "seq=1..64"),
    ):
        assert as_text(found, 100, plain).isascii()


def test_wrapping_keeps_every_word() -> None:
    text = "a bb ccc dddd eeeee ffffff"
    for width in (1, 5, 9, 40):
        lines = wrapped(text, width)
        assert " ".join(lines) == text
        assert all(len(line) <= width or " " not in line for line in lines)


def test_the_dtype_is_the_config_s_and_unset_is_said() -> None:
    llama = " ".join(run("--model", "llama3-8b").split())
    assert "KV cache in bfloat16, its config's dtype: 128 KiB per token" in llama
    assert answer("--model", "llama3-8b")["run"]["dtype"] == "bfloat16"
    assert answer("--model", "llama3-8b", "--dtype", "fp32")["run"]["dtype"] == "float32"
    assert "No dtype was chosen" not in llama
    for arguments in (["--seq", "4"], ["--model", "gpt2"], ["--show", "compare"]):
        assert answer(*arguments)["run"]["dtype"] == "float32"
        assert "No dtype was chosen, and no config names one" in run(*arguments)
    assert "No dtype was chosen" not in run("--dtype", "fp32")


def test_what_keeps_no_cache_says_so() -> None:
    bert = " ".join(run("--model", "bert-base").split())
    assert "An encoder keeps no cache" in bert
    assert "KV cache per token" not in bert
    t5 = " ".join(run("--model", "t5-base").split())
    assert "cross-attention 72.0 KiB per source token, once" in t5
    groups = answer("--model", "t5-base")["model"]["groups"]
    assert [g["cache_elements_per_token"] for g in groups] == [None, None, 1536, 1536, 1536]


def test_memory_counts_weights_that_are_there() -> None:
    folder = DEMOS["demo-gpt2"]
    found = answer("--model", str(folder), "--show", "compare:1GB")
    own = next(one for one in found["variants"] if one["own"])
    counted = answer("--model", str(folder), "--show", "verify")
    whole = counted["whole_parameters"]
    assert f"of the model's {whole:,} param" in counted["notes"][-1]
    assert own["weights_bytes"] == 2 * whole  # its config says float16


def test_a_partial_answer_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "zork", "hidden_size": 64, "num_attention_heads": 4})
    )
    assert "Partial answer: family 'zork'" in run("--model", str(tmp_path))


REFUSED = COMMANDS["refusals"]
REFUSED += [
    ["'" + "a " * 40 + "' --show numbers", "too many"],
    [f"--model {__file__}", "is a file"],
    [f"--d-model {'9' * 5000}", "not a valid int"],
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_refusals_say_what_is_wrong(arguments: str, said: str, capsys) -> None:
    assert main(["shapes", *shlex.split(arguments)]) != 0
    out, line = capsys.readouterr()
    assert out == ""
    assert line.count("\n") == 1
    assert re.search(said, line)


@pytest.mark.parametrize(
    "option", ["seq", "d-model", "layers", "sliding-window", "kind", "model", "show"]
)
def test_values_without_end_are_refused_in_a_short_line(option: str, capsys) -> None:
    for digits in (4000, 5000):
        assert main(["shapes", f"--{option}", "9" * digits]) != 0
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        assert len(line) < 300


def test_enormous_sizes_are_answered_without_allocating() -> None:
    document = answer("--d-model", str(1 << 24), "--heads", "1024", "--seq", str(1 << 40))
    step = next(s for s in document["steps"] if s["key"] == "softmax")
    assert step["bytes"]["value"] == 1024 * (1 << 80) * 4


def test_a_file_alone_is_the_diagram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = []
    for given in ([], ["--show", "diagram"]):
        path = tmp_path / f"{len(given)}.svg"
        assert main(["shapes", "--d-model", "16", "--heads", "2", *given, "-o", str(path)]) == 0
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]
    capsys.readouterr()


def test_python_has_every_view_and_shows_it_in_a_notebook(tmp_path: Path) -> None:
    walk = av.shapes(d_model=64, heads=4)
    assert walk == answers.walk(answers.Layer(d_model=64, heads=4))
    assert "(1, T, 64)" in str(walk)
    assert walk._repr_html_() == f"<pre>{html.escape(str(walk))}</pre>"
    assert av.shapes("cat sat", show="numbers").tokens == ("cat", "sat")
    assert av.shapes(model="llama3-70b", show="compare:80GB").view == "compare"
    assert av.shapes(d_model=64, heads=4, out=tmp_path / "x.svg").view == "diagram"
    assert (tmp_path / "x.svg").read_text().startswith("<")
    with pytest.raises(av.UsageError, match="show='animation' makes a file; add out="):
        av.shapes(show="animation")
