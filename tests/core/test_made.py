"""Every file that is saved says what made it: model, hash, version, command, day.

Of a model's name it says enough to tell it from others, and nothing of where it lies.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.provenance import Made, call, called, command_line

EPOCH, DAY = "1700000000", "2023-11-14"
TEXT = "The cat and the cat"
CALL = f'av.lens("{TEXT}", position=-1)'


@pytest.fixture
def made_on_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)


@pytest.fixture(scope="module")
def lens() -> Any:
    return av.lens(TEXT, position=-1)


def test_a_line_names_model_hash_program_command_and_day(made_on_a_day: None, lens: Any) -> None:
    digits = lens.identity["checkpoint"]
    assert lens.made.line() == f"demo-gpt2 {digits[:8]} · attnviz {av.__version__} · {CALL} · {DAY}"


def test_json_says_it_in_front_and_is_read_back_equal(
    made_on_a_day: None, lens: Any, tmp_path: Path
) -> None:
    document = json.loads(lens.save(tmp_path / "x.json").read_text())
    assert list(document)[:2] == ["schema", "made"]
    assert document["made"] == {
        "model": "demo-gpt2", "hash": lens.identity["checkpoint"], "version": av.__version__,
        "command": CALL, "date": DAY,
    }  # fmt: skip
    assert av.read(tmp_path / "x.json") == lens
    assert "made" not in json.loads(lens.to_json()), "what is printed is the result alone"


def test_csv_has_a_column_for_it_and_parquet_metadata(lens: Any, tmp_path: Path) -> None:
    with lens.save(tmp_path / "x.csv").open(newline="") as file:
        first, *others = csv.DictReader(file)
    assert first.pop("made") == lens.made.line()
    assert {row.pop("made") for row in others} == {""}
    assert list(first) == list(lens.to_records()[0])
    parquet = pytest.importorskip("pyarrow.parquet")
    metadata = parquet.read_schema(lens.save(tmp_path / "x.parquet")).metadata
    assert json.loads(metadata[b"attnviz"]) == lens.made.to_dict()


def test_a_table_without_rows_has_the_column(lens: Any) -> None:
    from attnviz.drawing.tables import as_csv

    assert as_csv([], ["head"], lens.made) == "head,made\n"


def test_pictures_say_it_in_their_metadata(made_on_a_day: None, lens: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = av.heatmap(TEXT, "2.4")
    texts = image.open(picture.save(tmp_path / "x.png")).text
    assert texts["Software"] == f"attnviz {av.__version__}"
    assert texts["Source"] == f"demo-gpt2 {lens.identity['checkpoint']}"
    assert texts["Comment"].startswith("av.heatmap(")
    assert texts["Creation Time"] == DAY
    svg = picture.save(tmp_path / "x.svg").read_text()
    assert f"<dc:date>{DAY}</dc:date>" in svg
    assert picture.made.command.replace('"', "&quot;") in svg.replace('"', "&quot;")
    assert b"D:20231114000000" in picture.to_bytes("pdf")


def test_what_no_figure_library_draws_says_it_too(tmp_path: Path) -> None:
    """The mosaic of very many heads is written pixel by pixel; its texts may be of any script."""
    from attnviz.core.provenance import saying
    from attnviz.drawing.png import encode

    image, np = pytest.importorskip("PIL.Image"), pytest.importorskip("numpy")
    with saying(Made("модель", "1f", "9", "attnviz heatmap", DAY)):
        png = encode(np.zeros((2, 2), np.uint8), np.zeros((1, 3), np.uint8), 72)
    (tmp_path / "x.png").write_bytes(png)
    texts = image.open(tmp_path / "x.png").text
    assert texts == {"Software": "attnviz 9", "Source": "модель 1f",
                     "Comment": "attnviz heatmap", "Creation Time": DAY}  # fmt: skip


def test_the_same_command_gives_the_same_bytes_on_another_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    suffixes = "json", "csv", "html", "png", "svg", "pdf"
    files = []
    for epoch, count in ((EPOCH, 6), (EPOCH, 6), (str(int(EPOCH) + 86_400), 3)):
        outs = (word for end in suffixes[:count] for word in ("-o", f"x.{end}"))
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
        assert main(["lens", TEXT, "--position", "-1", "-q", *outs]) == 0
        files.append({end: Path(f"x.{end}").read_bytes() for end in suffixes})
    assert files[0] == files[1]
    # the day is in each; in pictures it was looked for above
    assert all(files[0][end] != files[2][end] for end in suffixes[:3])
    assert f"attnviz lens '{TEXT}' --position -1 -q -o x.json" in files[0]["json"].decode()


def test_folders_of_the_machine_are_left_out(tmp_path: Path) -> None:
    text = tmp_path / "essay.txt"
    text.write_text(TEXT)
    line = command_line(["heads", f"--file={text}", "-o", str(tmp_path / "x.png"), "a / b"])
    assert line == "attnviz heads --file=essay.txt -o x.png 'a / b'"
    assert call("heads", (text, None), {"model": str(tmp_path)}) == (
        f'av.heads("essay.txt", None, model="./{tmp_path.name}")'
    )


def test_what_is_shown_to_be_copied_runs_from_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big, text = tmp_path / "runs" / "big", tmp_path / "texts" / "a.txt"
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / ("0123456789" * 4)
    for folder in (big, text.parent, snapshot, tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    text.write_text(TEXT)
    asked = ["heads", str(text), "--model", str(big), "-o", str(tmp_path / "out" / "x.png")]
    monkeypatch.chdir(tmp_path)
    assert command_line(asked) == ("attnviz heads texts/a.txt --model ./runs/big -o out/x.png")
    assert call("film", ("./runs/step-*",), {}) == 'av.film("runs/step-*")'
    assert command_line(["heads", "runs", "org/model", f"--model={snapshot}"]) == (
        "attnviz heads runs org/model --model=org/tiny"
    )
    typed = {
        "attnviz heads a --model ./runs/big": "./runs/big",
        "attnviz heads a -m './a b' -q": "./a b",
        'av.heads("a", model="./big")': "./big",
        "attnviz heads a --model gpt2": "big",
        "attnviz heads '--other-model ./x'": "big",
    }
    assert {line: Made("big", command=line).model_typed for line in typed} == typed
    monkeypatch.chdir(tmp_path / "elsewhere")
    line = command_line([*asked, "--pairs", "@../texts/a.txt,@../texts/b.txt"])
    assert line == "attnviz heads a.txt --model ./big -o x.png --pairs @a.txt,@b.txt"


def test_long_texts_and_objects_are_named_and_not_copied() -> None:
    said = call("lens", ("x" * 900,), {"model": object(), "texts": ["a"] * 9})
    assert said == f'av.lens("{"x" * 200}…", model=object(…), texts=["a", "a", "a", "a", …])'
    assert len(command_line(["lens", "x" * 900])) < 230


def test_a_damaged_page_and_one_of_somebody_else_are_refused(lens: Any, tmp_path: Path) -> None:
    page = lens.save(tmp_path / "x.html").read_text()
    assert av.read(tmp_path / "x.html").to_dict() == lens.to_dict()
    for damaged in (re.sub('id="result">.{9}', 'id="result">AAAAAAAAA', page), "<p>no page</p>"):
        (tmp_path / "y.html").write_text(damaged)
        with pytest.raises(av.InputError, match=r"y\.html is no page that attnviz wrote"):
            av.read(tmp_path / "y.html")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("gpt2", "gpt2"), ("org/model", "org/model"), ("/data/my-bert", "my-bert"),
        ("/data/all_minilm/model", "all_minilm/model"),
        ("/data/bert-run/checkpoint-500", "bert-run/checkpoint-500"),
        ("/data/bert-run/final_model/", "bert-run/final_model"),
        ("/data/bert-run/1000/hf", "bert-run/1000/hf"),
        ("/data/secret/bert/runs/1000/hf", "runs/1000/hf"),
        (f"/c/models--openai--gpt2/snapshots/{'0123456789' * 4}", "openai/gpt2"),
        ("/home/alice/model", "model"), ("/Users/alice/checkpoint-3", "checkpoint-3"),
        ("~/model", "model"), ("/srv/person/model", "model"), ("/model", "model"),
        ("bert, untrained (seed 0)", "bert, untrained (seed 0)"),
    ],
)  # fmt: skip
def test_a_folder_is_named_by_the_part_that_says_something(
    path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/srv/person")
    assert called(path) == name


def test_a_relative_path_is_named_as_the_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny-bert" / "model"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder.parent)
    assert called("model") == called("./model") == called(str(folder)) == "tiny-bert/model"
    monkeypatch.chdir(folder)
    assert called(".") == "tiny-bert/model"
