"""A message names parameters; each interface words them in its own way."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import attnviz
from attnviz import files
from attnviz.cli import declared
from attnviz.core.interface import interface
from attnviz.errors import (
    InputError,
    Message,
    OutputError,
    PackageError,
    Setting,
    UsageError,
    absent,
    system_errors,
)
from attnviz.models.external_errors import refusing


@pytest.fixture(autouse=True)
def _no_command() -> None:
    """As before any command has run."""
    declared.speak_for(())


def test_a_message_speaks_python_and_the_command_line() -> None:
    error = InputError(
        "{:,} tokens do not fit in the memory of {}", 9000, "a{b}c",
        remedy="shorten the text or use {device} with {causal}, see {max_mb}", device="cpu",
        causal=False, max_mb=...,
    )  # fmt: skip
    what = "9,000 tokens do not fit in the memory of a{b}c"
    in_python = "shorten the text or use device='cpu' with causal=False, see max_mb"
    assert str(error) == f"{what}; {in_python}"
    assert (error.what, error.remedy) == (what, in_python)
    assert error.parameters == {"device": "cpu", "causal": False, "max_mb": ...}
    options = "shorten the text or use --device cpu with --no-causal, see --max-mb"
    assert declared.words(error.message) == f"{what}; {options}"


def test_braces_of_a_plain_sentence_stay() -> None:
    error = UsageError("no file {x} or {}", remedy="look {there}")
    assert str(error) == "no file {x} or {}; look {there}"
    assert error.parameters == {}
    with pytest.raises(KeyError, match="there"):
        UsageError("look {there} at {}", 1)


def test_messages_inside_messages_and_names_that_vary() -> None:
    inner = Message("{pair} is too long", pair=...)
    error = InputError("{}: {}", "a.jsonl:3", inner)
    assert str(error) == "a.jsonl:3: pair is too long"
    assert declared.words(error.message) == "a.jsonl:3: --pair is too long"
    two = UsageError("{} and {} exclude each other", Setting("json"), Setting("kv_heads", 2))
    assert declared.words(two.message) == "--json and --kv-heads 2 exclude each other"
    assert two.parameters == {"json": ..., "kv_heads": 2}


def test_errors_and_notes_travel_between_processes_and_into_json() -> None:
    error = UsageError("{} is too much", 7, remedy="lower {jobs}", jobs=...)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is UsageError
    assert (str(back), back.what, back.remedy) == (str(error), error.what, "lower jobs")
    assert declared.words(back.message) == "7 is too much; lower --jobs"
    assert json.loads(json.dumps([error.message])) == ["7 is too much; lower jobs"]


def test_what_is_asked_of_python_is_answered_in_python() -> None:
    with pytest.raises(attnviz.UsageError, match=r"^demo-gpt2 reads one text.* models take pair$"):
        attnviz.capture("a", pair="b")
    with pytest.raises(attnviz.InputError, match=r"; shorten it or add truncate=True$"):
        attnviz.capture("word " * 2000)


def test_a_package_that_is_absent_is_named_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """By functions, results and names, and by what else turns a library's errors into ours."""
    shown = attnviz.heatmap("The cat sat", "0.1")

    def lacking(*_: object) -> None:
        raise ModuleNotFoundError(name="not_there.part")

    monkeypatch.setattr(type(shown), "_draw", lacking)
    monkeypatch.setattr(attnviz, "import_module", lacking)
    for ask in (
        interface(lacking), refusing("a library")(lacking), partial(shown.to_bytes, "png"),
        lambda: attnviz.HeadsCallback,
    ):  # fmt: skip
        with pytest.raises(PackageError, match=r"^this needs not-there, .*; pip install not-there"):
            ask()
    assert shown._repr_html_() is None
    for error in (ModuleNotFoundError("no name"), ModuleNotFoundError(name="attnviz.none")):
        assert absent(error) is None


def test_what_the_system_refuses_has_a_remedy(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="cannot read x: No such file or directory; check the path"),
        system_errors(InputError, "cannot read x"),
    ):
        (tmp_path / "none").read_bytes()
    with pytest.raises(OutputError, match="No such file or directory; choose another place"):
        files.place(tmp_path / "none" / "x", [b""])
    with (
        pytest.raises(OutputError, match="cannot write x: Is a directory; choose another place"),
        system_errors(OutputError, "cannot write x"),
    ):
        tmp_path.read_bytes()


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_no_file_can_have_are_refused(name: str, tmp_path: Path) -> None:
    report, texts = attnviz.heads("a b"), tmp_path / "texts.txt"
    texts.write_text("a b\n")
    attempts: list[tuple[type[attnviz.AttnvizError], Callable[[], object]]] = [
        (InputError, lambda: attnviz.read(name)),
        (InputError, lambda: attnviz.patch(name)),
        (OutputError, lambda: report.save(f"{name}.png")),
        (OutputError, lambda: report.save(f"{name}.json")),
        (OutputError, lambda: attnviz.profile(texts, state=name)),
        (OutputError, lambda: attnviz.export(texts, name)),
    ]
    for kind, attempt in attempts:
        with pytest.raises(kind, match="no file can have this name; check the path"):
            attempt()


def test_messages_are_one_line_of_a_readable_length() -> None:
    for error in (InputError("no file {!r}\n{}", "x" * 5000, "y\nz"), InputError("a\n" * 5000)):
        assert "\n" not in str(error)
        assert len(str(error)) < 610
        assert "\n" not in error.message.worded(lambda name, value: f"--{name}")
    error = InputError("a" * 5000 + "; the remedy")
    assert str(error).startswith("aaa")
    assert str(error).endswith("aaa; the remedy")
