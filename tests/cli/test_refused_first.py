"""What cannot be is said at once, before a model is read, whichever command it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from attnviz.cli import COMMANDS, app, main
from attnviz.models.demo import DEMOS
from tests.cli.calling import refused

MODEL = ("--model", "no/such/folder")
SAMPLES = "sample_inputs"
LINES: dict[str, tuple[str, ...]] = {
    "heads": ("a b", *MODEL), "explain": ("a b", *MODEL), "heatmap": ("a b", *MODEL),
    "view": ("a b", *MODEL), "live": MODEL, "profile": (f"{SAMPLES}/sentences.txt", *MODEL),
    "ablate": ("a b", *MODEL), "patch": ("a b", "a c", *MODEL),
    "syntax": (f"{SAMPLES}/treebank.conllu", *MODEL), "coref": (f"{SAMPLES}/pronouns.tsv", *MODEL),
    "spans": ("a b", "--span", "x=a", *MODEL), "knockout": ("a b", "--span", "x=a", *MODEL),
    "thoughts": ("A b. C d.", *MODEL), "sinks": ("a b", *MODEL),
    "retrieval": (f"{SAMPLES}/needles.jsonl", *MODEL), "logits": ("a b", *MODEL),
    "lens": ("a b", *MODEL), "sources": ("a b", "-s", "0.0", *MODEL), "flow": ("a b", *MODEL),
    "circuits": MODEL, "film": ("no-such-run",),
    "atlas": ("--texts", f"{SAMPLES}/sentences.txt", *MODEL), "diff": ("a b", *MODEL),
    "capture": ("a b", *MODEL), "check": ("none.npz",), "shapes": ("--show", "diagram"),
    "models": (), "demo": (),
}  # fmt: skip
"""What each command that writes with --out would do, if it could."""
OTHERS = {"show", "card", "export"}
"""What can be written depends on the file read or on the card; export writes into a folder."""


def options(name: str) -> set[str]:
    """The options that a command takes."""
    command: Any = typer.main.get_command(app)
    return {one for given in command.get_command(None, name).params for one in given.opts}


def test_every_command_that_writes_a_file_is_here() -> None:
    assert {name for name in COMMANDS if "--out" in options(name)} == {*LINES, *OTHERS}


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_form_that_is_not_there_is_refused_first(name: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "result.qqq"
    said = refused(capsys, name, *LINES[name], "--out", str(path), code=2)
    assert said.startswith("attnviz: cannot write 'result.qqq'; name the file ."), said
    assert not path.exists()


@pytest.mark.parametrize("name", [name for name in sorted(LINES) if "--csv" in options(name)])
def test_two_forms_to_print_exclude_each_other(name: str, capsys) -> None:
    assert "--json and --csv " in refused(capsys, name, *LINES[name], "--json", "--csv", code=2)


TEXT = ("a b",)
TEXTS = (f"{SAMPLES}/sentences.txt",)
NAMED = (*TEXT, "--span", "x=a")
PAIR = ("a b", "a c", "--answer", "d")

Lines = dict[str, list[tuple[str, ...]]]
"""Command lines, by the command."""


def each(lines: Lines) -> Any:
    return pytest.mark.parametrize(("name", "line"), [(n, one) for n in lines for one in lines[n]])


ABSENT: Lines = {
    "heads": [(*TEXT, "--evidence"), ("--file",), ("--chat",), ("--image",)],
    "heatmap": [("--image",)], "view": [(*TEXT, "--evidence"), ("--texts",)],
    "profile": [(*TEXTS, "--evidence"), ()],
    "ablate": [(*TEXT, "--evidence"), (*TEXT, "--reference"), ("--texts",)], "patch": [()],
    "syntax": [()], "coref": [()], "spans": [("--texts",)],
    "thoughts": [("--file",), ("--chat",), ("--texts",)], "sinks": [("--texts",)],
    "retrieval": [()], "lens": [("--by", "head", "--texts")], "sources": [("-s", "0.0", "--texts")],
    "circuits": [("--evidence",)],
    "atlas": [("--texts",), ("--texts", *TEXTS, "--gold"), ("--texts", *TEXTS, "--evidence")],
    "diff": [("--other-model", "no/other", "--texts")], "export": [("--out-dir", "maps")],
}  # fmt: skip
"""A file behind each of these is read first; what one of another kind would say does not matter."""
NO_FILE = "absent.jsonl"


@each(ABSENT)
def test_a_file_that_is_not_there_is_refused_first(
    name: str, line: tuple[str, ...], capsys
) -> None:
    said = refused(capsys, name, *line, NO_FILE, *MODEL)
    assert NO_FILE in said, said
    assert "no/such" not in said


WRONG: Lines = {
    "heads": [(*TEXT, "--span", "x=zzz"), (*TEXT, "--span", "x=regex:("), (*TEXT, "--role", "zzz"),
              (*TEXT, "--sort", "zzz"), (*TEXT, "--font", "zzz")],
    "explain": [(*TEXT, "--span", "x=zzz")],
    "heatmap": [(*TEXT, "--rows", "zzz"), (*NAMED, "--keys", "zzz")],
    "view": [(*TEXT, "--rows", "zzz")],
    "profile": [(*TEXTS, "--role", "zzz"), (*TEXTS, "--sort", "zzz"), (*TEXTS, "--font", "zzz"),
                (*TEXTS, "--out", "zzz.html"), (*TEXTS, "--out", ".")],
    "ablate": [(*NAMED, "--position", "span:zzz"), (*TEXT, "--span", "x=zzz"),
               (*TEXT, "--font", "zzz"), ("--probe", "--span", "zzz=a"),
               ("--probe", "--pair", "zzz"),
               (*TEXT, "-s", "0.0", "--out-dir", "pyproject.toml/zzz")],
    "patch": [("--task", "zzz"), ("--task", "induction", "--out", "zzz.html"),
              ("--task", "induction", "--out", "."), ("--task", "induction", "--out", "zzz.dot")],
    "atlas": [("--texts", *TEXTS, "--out-dir", "pyproject.toml/zzz")],
    "syntax": [(f"{SAMPLES}/treebank.conllu", "--relation", "zzz")],
    "spans": [(*TEXT, "--span", "x=zzz"), (*NAMED, "--keys", "zzz"), (*NAMED, "--rows", "zzz")],
    "logits": [(*TEXT, "--span", "x=zzz")],
}  # fmt: skip
"""Parts that are not there, what a result would not have, and places where nothing can be."""


@each(WRONG)
def test_what_cannot_be_is_refused_first(name: str, line: tuple[str, ...], capsys) -> None:
    assert main([name, *line, *MODEL]) in (1, 2)
    said = capsys.readouterr().err
    assert "no/such" not in said
    words = ("zzz", "circuit", "--probe", "row by row", "no pattern")
    assert any(word in said for word in words), said


HEADS: Lines = {
    "heads": [(*TEXT, "-s"), (*TEXT, "--without")], "heatmap": [(*TEXT, "-s")],
    "view": [(*TEXT, "-s"), (*TEXT, "--without"), (*TEXT, "--why"), (*TEXT, "-s", "clearest:2,")],
    "live": [("-s",)], "profile": [(*TEXTS, "-s")],
    "ablate": [(*TEXT, "-s"), (*TEXT, "-s", "0.0+"), (*TEXT, "-s", "role:induction+")],
    "knockout": [(*NAMED, "-s"), (*NAMED, "-s", "role:induction+")],
    "patch": [(*PAIR, "-s"), (*PAIR, "--paths", "0.0 -> ")], "spans": [(*NAMED, "-s")],
    "sources": [(*TEXT, "-s")], "circuits": [("-s",)],
    "capture": [(*TEXT, "-o", "a.npz", "-s"), (*TEXT, "-o", "a.npz", "--without")],
    "export": [(*TEXTS, "--out-dir", "maps", "-s")],
}  # fmt: skip
"""A selection of heads ends each of these."""
TAKING_HEADS = {"select", "without", "why", "paths"}


def test_every_command_that_takes_heads_is_here() -> None:
    root: Any = typer.main.get_command(app)
    taking = {
        name
        for name in COMMANDS
        if any(p.name in TAKING_HEADS for p in root.get_command(None, name).params)
    }
    assert taking == set(HEADS)


@pytest.fixture
def configured(tmp_path: Path) -> str:
    """A folder with everything of a model but its weights."""
    shutil.copytree(
        DEMOS["demo-gpt2"], tmp_path / "cut", ignore=shutil.ignore_patterns("*.safetensors")
    )
    return str(tmp_path / "cut")


@each(HEADS)
def test_heads_that_are_not_there_are_refused_before_weights_are_read(
    name: str, line: tuple[str, ...], configured: str, capsys
) -> None:
    before, last = line[:-1], line[-1]
    joined = (*before, f"{last}9.9") if last.endswith(("+", " ", ",")) else (*line, "9.9")
    assert main([name, *joined, "--model", configured]) == 2
    assert "no head 9.9; this model has layers 0-3 with heads 0-5" in capsys.readouterr().err
    there = [part.replace("9.9", "3.1") for part in joined]
    assert "has no weights" in refused(capsys, name, *there, "--model", configured)


@pytest.mark.parametrize(
    ("line", "package"),
    [
        (("profile", "a.parquet"), "pyarrow"),
        (("export", "a.parquet", "--out-dir", "maps"), "pyarrow"),
        (("atlas", "--texts", "a.parquet"), "pyarrow"),
        (("spans", "--texts", "a.parquet", "--span", "x=a"), "pyarrow"),
        (("profile", "sounds"), "soundfile"), (("heads", "--audio", "sounds/a.wav"), "soundfile"),
        (("profile", "a.txt", "--ray"), "ray"), (("ablate", "a b", "--ray"), "ray"),
    ],
)  # fmt: skip
def test_what_reads_an_input_and_is_not_installed_is_said_first(
    line: tuple[str, ...], package: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnviz.errors.find_spec", lambda name: None)
    Path("a.parquet").write_bytes(b"PAR1")
    Path("a.txt").write_text("a b\n")
    Path("sounds").mkdir()
    Path("sounds/a.wav").write_bytes(b"RIFF")
    assert f'needs {package}; pip install "attnviz[' in refused(capsys, *line, *MODEL, code=2)
