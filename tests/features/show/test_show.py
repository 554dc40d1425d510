"""``attnviz show`` and ``av.read``: everything that attnviz writes, read and printed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.record import Record
from attnviz.features.models.function import models, show
from attnviz.features.results import RESULTS, result_class
from attnviz.features.shapes import function as shapes

TEXT = "the cat sat and the cat ran"
FILM = Path(__file__).parents[3] / "sample_inputs" / "phases" / "repeats-2.json"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command line: its exit code, and what it printed."""

    def ran(*arguments: object) -> tuple[int, str, str]:
        code = main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return ran


@pytest.fixture(scope="module")
def kept(folder: Path) -> dict[str, Path]:
    """A file of every kind."""
    capture = av.capture(TEXT)
    results: dict[str, Record] = {
        "heads": av.heads(TEXT), "ablate": av.ablate(TEXT, select="0.*"),
        "spans": av.spans(av.Prompt(TEXT, spans={"cat": "all:cat"})),
        "shapes": shapes.walk(shapes.Layer(d_model=16, heads=2), shapes.RunSizes(seq=3)),
        "model": show("demo-gpt2"), "models": models(),
    }  # fmt: skip
    files = {name: folder / f"{name}.json" for name in results}
    for name, result in results.items():
        files[name].write_text(result.to_json(), "utf-8")
    files["capture"] = av.write_capture(capture, folder / "cat.npz")
    files["check"] = folder / "check.json"
    files["check"].write_text(av.check(files["capture"]).to_json(), "utf-8")
    files["state"] = folder / "t.profile"
    av.profile(texts=[f"{TEXT} {n}" for n in range(12)], state=files["state"], jobs=1)
    files["film"] = FILM
    return files


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("heads", "layer ↓  head →"), ("ablate", "change of loss without the head"),
        ("spans", "·cat"), ("shapes", "MHA, D = 16, 2 heads of 8"),
        ("model", "native: attnviz's own forward pass"), ("models", "random weights, any size"),
        ("capture", "layer ↓  head →"), ("check", "can be read"), ("state", "12 texts"),
        ("film", "25 checkpoints"),
    ],
)  # fmt: skip
def test_everything_is_printed_again(kept: dict[str, Path], run: Run, name: str, says: str) -> None:
    code, out, _ = run("show", kept[name])
    assert code == 0
    assert says in out


@pytest.mark.parametrize("name", ["heads", "ablate", "spans", "shapes", "model", "models", "check"])
def test_json_is_what_was_read(kept: dict[str, Path], run: Run, name: str) -> None:
    code, out, _ = run("show", kept[name], "--json")
    assert code == 0
    assert json.loads(out) == json.loads(kept[name].read_text("utf-8"))
    assert av.read(kept[name]).to_dict() == json.loads(out)


def test_a_command_and_show_print_the_same(kept: dict[str, Path], run: Run) -> None:
    told = run("heads", TEXT, "-q")[1].splitlines()
    assert run("show", kept["heads"], "-q")[1].splitlines() == told
    assert run("show", kept["heads"], "-q", "--csv")[1] == run("heads", TEXT, "-q", "--csv")[1]
    assert (
        run("ablate", TEXT, "--select", "0.*", "-q", "--top", "2")[1].splitlines()
        == run("show", kept["ablate"], "-q", "--top", "2")[1].splitlines()
    )


def test_a_capture_is_shown_by_what_its_heads_do(kept: dict[str, Path], run: Run) -> None:
    recorded = run("heads", "--recorded", kept["capture"], "-q", "--role", "previous")[1]
    assert run("show", kept["capture"], "-q", "--role", "previous")[1] == recorded


def test_heads_are_chosen_and_sorted(kept: dict[str, Path], run: Run) -> None:
    def listed(*options: str) -> list[str]:
        lines = run("show", kept["heads"], "-q", *options)[1].splitlines()
        start = next(n for n, line in enumerate(lines) if line.startswith("head "))
        end = lines.index("", start)
        return [line.split()[0] for line in lines[start + 2 : end] if "." in line.split()[0]]

    every = [head.head.name for head in av.read(kept["heads"]).heads]
    assert set(listed("--top", "all")) == set(every)
    assert len(listed("--top", "2")) == 2
    held = av.read(kept["heads"])
    best = max(held.heads, key=lambda head: head.scores["previous"].mean or 0)
    assert listed("--sort", "previous", "--top", "1") == [best.head.name]


def test_evidence_stands_beside_heads(kept: dict[str, Path], run: Run, tmp_path: Path) -> None:
    assert "What other results say" not in run("show", kept["heads"])[1]
    told = run("show", kept["heads"], "--evidence", kept["ablate"])[1]
    live = run("heads", TEXT, "--evidence", kept["ablate"])[1]
    assert told.splitlines()[10:] == live.splitlines()[10:]
    assert run("show", kept["state"], "--evidence", kept["ablate"])[0] == 0
    code, _, error = run("show", kept["ablate"], "--evidence", kept["heads"])
    assert (code, error.count("\n")) == (2, 1)
    assert "holds no scores of heads for --evidence to stand beside" in error


def test_other_forms(kept: dict[str, Path], run: Run, tmp_path: Path) -> None:
    out = [tmp_path / name for name in ("a.png", "a.csv", "a.json")]
    code, *_ = run("show", kept["ablate"], "-q", *(part for path in out for part in ("-o", path)))
    assert code == 0
    assert out[0].read_bytes().startswith(b"\x89PNG")
    table, plain = out[1].read_text("utf-8"), av.read(kept["ablate"]).to_csv()
    names = [line.rpartition(",")[0] for line in table.splitlines()]  # the last says what made it
    assert names[2:] == plain.splitlines()[2:]
    assert av.read(out[2]) == av.read(kept["ablate"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["heads", "ablate", "--csv"], "--csv is for one result; give one FILE"),
        (["heads", "ablate", "-o", "x.json"], "--out is for one result; give one FILE"),
        (["shapes", "--csv"], "has no form for --csv; take --json"),
        (["shapes", "--top", "3"], "--top: not for what attnviz shapes wrote"),
        (["spans", "--role", "first"], "--role: not for what attnviz spans wrote"),
        (["ablate", "-o", "x.txt"], "cannot write 'x.txt'; name the file .json, .csv"),
        (["heads", "--json", "--csv"], "--json and --csv exclude each other"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    kept: dict[str, Path], run: Run, arguments: list[str], says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    code, out, error = run("show", *(kept.get(one, one) for one in arguments))
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert says in error
    assert not list(tmp_path.iterdir())


def test_several_are_shown_by_name(kept: dict[str, Path], run: Run) -> None:
    code, out, _ = run("show", kept["model"], kept["check"])
    assert code == 0
    assert out.index("model.json") < out.index("native") < out.index("check.json")


def test_what_attnviz_did_not_write(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    (tmp_path / "empty").mkdir()
    for name in ("x.json", "none.json", "empty", "none.npz"):
        code, out, error = run("show", tmp_path / name)
        assert (code, out, error.count("\n")) == (1, "", 1)


def test_read_takes_what_other_tools_recorded(tmp_path: Path) -> None:
    maps = np.full((2, 2, 3, 3), 1 / 3, "f4")
    np.save(tmp_path / "all.npy", maps)
    for layer, weights in enumerate(maps):
        (tmp_path / "layers").mkdir(exist_ok=True)
        np.save(tmp_path / "layers" / f"layer_{layer}.npy", weights)
    document = {"schema": "attnviz.capture/1", "tokens": ["a", "b", "c"]}
    (tmp_path / "c.json").write_text(json.dumps({**document, "attentions": maps.tolist()}))
    read: list[Any] = [
        av.read(tmp_path / "all.npy"), av.read(tmp_path / "layers"), av.read(tmp_path / "c.json"),
        av.read(list(maps), ["a", "b", "c"]), av.read(tmp_path / "all.npy", ["a", "b", "c"]),
    ]  # fmt: skip
    for capture in read:
        np.testing.assert_allclose(capture["1.1"], maps[1, 1])
    tokens = [next(iter(one.inputs.sides.values())).queries.texts for one in read]
    assert tokens[2] == tokens[3] == tokens[4] == ("a", "b", "c")


def test_options_of_recordings_are_for_recordings(kept: dict[str, Path]) -> None:
    with pytest.raises(av.AttnvizError):
        av.read(kept["heads"], ["a"])


def test_every_result_says_which_command_makes_it() -> None:
    for name in RESULTS:
        kind = result_class(name)
        assert kind is not None
        assert kind.command
