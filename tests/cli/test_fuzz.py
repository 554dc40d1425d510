"""Generated command lines: whatever is asked, the answer is a result or one line, never a bug."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnviz.cli import COMMANDS, Commands, main
from attnviz.cli.console import BUG

COUNT = int(os.environ.get("ATTNVIZ_FUZZ", "100")) // 10
"""How many command lines, a tenth of all inputs; ``make fuzz`` asks for thousands of new ones."""

WORDS = st.one_of(
    st.sampled_from(
        ["a b", "", " ", "-", "a.txt", "t.csv", "t.jsonl", "bad.bin", "folder", "no/where", "x.npz",
         "small.npz", "x.png", "x.html", "out", "~nobody", "\x1b[31mred", "\udcff.txt", "a" * 300,
         "demo-gpt2", "demo-bert", "fresh", "0.0", "*.*", "0-3.*", "enc:1.1", "cross", "mla", "gqa",
         "induction", "entropy", "cpu", "float32", "global", "viridis", "grid,overview", "NaN",
         "seq=1..9", "seq=_.._", "80GB", "gpt2", "llama3-8b", "words", "{}", "{0}", "{model}"]
    ),
    st.text(st.characters(exclude_characters="\0"), max_size=12),  # no argument can hold it
)  # fmt: skip
NUMBERS = st.one_of(
    st.sampled_from(["0", "1", "2", "-1", "7", "64", "nan", "inf", "1e9", "9" * 20, "9" * 5000]),
    st.integers(-5, 40).map(str),
)
SLOW = {"jobs", "help", "install_completion", "show_completion"}


def parameters(command: str) -> list:
    found = Commands().get_command(None, command)
    return [one for one in found.params if one.name not in SLOW]


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its options, sensible values and others."""
    command = draw(st.sampled_from([name for name in COMMANDS if name not in ("demo", "mcp")]))
    line = [command]
    for one in draw(st.lists(st.sampled_from(parameters(command)), max_size=5)):
        if one.param_type_name == "argument":
            line.append(draw(WORDS))
            continue
        line.append(draw(st.sampled_from([*one.opts, *one.secondary_opts])))
        if not one.is_flag:
            numeric = one.type.name in ("integer", "float")
            line.append(draw(NUMBERS if numeric and draw(st.integers(0, 9)) else WORDS))
    if command == "export":
        line += ["--jobs", "1"]
    return line


@pytest.fixture
def _folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with files of all sorts to stumble over, and no browser."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr("attnviz.cli.output.open_page", lambda page: page.unlink() is not None)
        monkeypatch.setattr("attnviz.corpus.texts.sample_texts", lambda: "a.txt")  # not 40 texts
        monkeypatch.setattr("attnviz.features.live.opening.sentences", lambda: ("a b",))
        monkeypatch.setattr("attnviz.features.atlas.function.MEASURED_HEADS", 1)
        Path("a.txt").write_text("a b c\n\nd e\n")
        Path("t.csv").write_text("text,id\na b,1\n")
        Path("t.jsonl").write_text('{"text": "a b", "pair": "c"}\n')
        Path("bad.bin").write_bytes(bytes(range(256)))
        Path("folder").mkdir()
        weights = np.full((1, 2, 2, 2), 0.5, "f4")
        np.savez("small.npz", attentions=weights, tokens=np.array(["a", "b"]))
        yield


@pytest.mark.usefixtures("_folder")
@settings(
    max_examples=COUNT, deadline=None, derandomize="ATTNVIZ_FUZZ" not in os.environ, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(command_lines())
def test_no_command_line_finds_a_bug(line: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"a b\n")))  # type: ignore[arg-type]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch("sys.stdin", given),
    ):
        code = main(line)
    assert code != BUG, err.getvalue()
    assert code in (0, 1, 2, 3, 4, 5), (code, err.getvalue())
    if code in (1, 2):
        assert err.getvalue().endswith("\n")
        said = [x for x in err.getvalue().splitlines() if not x.endswith("; skipped")]
        assert sum(x.startswith("attnviz: ") for x in said) <= 1
        assert "\x1b[31m" not in err.getvalue()
