"""The command line as a user meets it: results, exit codes, one clear line for every mistake."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import console, main
from attnviz.cli.console import CODES
from attnviz.cli.declared import VARIABLE
from attnviz.files import human_bytes
from tests import ROOT, forking
from tests.cli.calling import SENTENCE, call, heads_of, ok, refused


def process(*arguments: str, **options) -> subprocess.CompletedProcess:
    return forking.run([sys.executable, "-m", "attnviz", *arguments], text=True, **options)


# ------------------------------------------------------------------ what works


def test_heatmap_shows_weights_and_files(capsys, tmp_path: Path) -> None:
    model = "demo-bert"
    out = ok(capsys, "heatmap", SENTENCE, "-m", model, "--select", "0.2")
    assert "0.2" in out
    assert "table" in out
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    files = {tmp_path / f"x.{suffix}": start for suffix, start in starts.items()}
    outs = [f"--out={path}" for path in files]
    ok(capsys, "heatmap", SENTENCE, "-m", model, "-s", "0.2", *outs)
    assert all(path.read_bytes().startswith(start) for path, start in files.items())
    plot = tmp_path / "grid.png"
    ok(capsys, "heads", SENTENCE, "-m", model, "--out", str(plot))
    assert plot.read_bytes().startswith(starts["png"])
    assert len(list(tmp_path.iterdir())) == 4, "temporary files left behind"


def test_text_from_file_and_standard_input(capsys, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "t.txt"
    path.write_text("\ufeffgrün und blau\n", encoding="utf-8")
    with path.open(encoding="utf-8") as piped:
        monkeypatch.setattr("sys.stdin", piped)
        for name in (str(path), "-"):
            document = heads_of(capsys, "--file", name, "-m", "fresh")
            texts = document["tokens"]["encoder"]["keys"]["texts"]
            assert texts == ["grün", "und", "blau"]


def test_hostile_tokens_never_reach_the_terminal_raw(capsys) -> None:
    text = "safe \x1b[31mred\x1b[0m \x07 \u202eevil [bold]x[/] </b>"
    for command in (["heads"], ["heatmap", "-s", "0.0"]):
        out = ok(capsys, *command, text, "-m", "fresh")
        assert not set("\x07\u202e") & set(out)


def test_colours_only_where_a_terminal_wants_them(capsys, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    code, out, _ = call(capsys, "heatmap", SENTENCE, "-m", "fresh", "-s", "0.1")
    assert code == 0
    assert "\x1b[" in out
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR")
    code, out, _ = call(capsys, "heatmap", SENTENCE, "-m", "fresh", "-s", "0.1")
    assert "\x1b[" not in out


@pytest.mark.parametrize(
    ("term", "number", "colours"),
    [("alacritty", 256, True), ("xterm", 8, True), ("screen", 8, True), ("vt340", 8, False)],
)
def test_colours_of_terminals_that_are_not_called_after_them(
    monkeypatch, term: str, number: int, colours: bool
) -> None:
    curses = pytest.importorskip("curses")
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.setattr(curses, "setupterm", lambda: None)
    monkeypatch.setattr(curses, "tigetnum", lambda name: number)
    assert console.stdout().color_system == ("256" if colours else "standard")


def test_quiet_keeps_notes_to_itself(capsys) -> None:
    code, _, err = call(capsys, "heads", "word " * 600, "-m", "demo-bert", "--truncate", "-q")
    assert (code, err) == (0, "")


def test_version(capsys) -> None:
    assert ok(capsys, "--version") == f"attnviz {av.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], 'attnviz: name a command: attnviz heads "The cat sat"\n'),
        (["heads"], 'attnviz: heads needs a text, such as "The cat sat"\n'),
        (["export"], "attnviz: export needs files of texts and --out FOLDER\n"),
        (["shapes"], "attnviz: shapes needs sizes, such as --d-model 512 --heads 8\n"),
    ],
)
def test_without_arguments_help_ends_with_what_is_missing(capsys, arguments, line) -> None:
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (2, line)
    assert "Usage: attnviz" in out


def test_alone_at_a_terminal_it_shows_three_things_to_try(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = [line for line in ok(capsys).splitlines() if line.startswith("  attnviz ")]
    monkeypatch.undo()
    assert len(lines) == 3
    for line in lines:
        example = line.strip().partition("   ")[0]
        if "demo" not in example:
            ok(capsys, *shlex.split(example)[1:])


def test_an_empty_table_leads_on(capsys, tmp_path) -> None:
    _, out, err = call(capsys, "heads", "a lamp", "--role", "coreference")
    assert "no head shows a role" in out
    assert "note: try a longer text, or attnviz heads --probe" in err
    _, _, err = call(capsys, "heads", "a lamp", "--role", "coreference", "-q")
    assert err == ""
    _, _, err = call(capsys, "heads", "the cat and the cat")
    assert "note: try" not in err
    (tmp_path / "a.txt").write_text("a lamp\na desk\n", "utf-8")
    _, _, err = call(capsys, "profile", str(tmp_path / "a.txt"), "--role", "coreference")
    assert "note: try more texts, or --top all" in err


def test_commands_are_listed_in_groups(capsys) -> None:
    text = ok(capsys, "--help")
    places = [text.index(f"{name} ───") for name in ("Input", "Keep", "Learn")]
    assert places == sorted(places)
    assert places[0] < text.index(" view ") < places[1] < text.index(" export ")


def test_the_help_and_the_documents_have_one_table_of_exit_codes(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    helped = ok(capsys, "--help")
    documented = (ROOT / "docs" / "architecture.md").read_text("utf-8").replace("`", "")
    for code, means in CODES.items():
        assert f" {code}: {means}" in helped
        assert f"| {code} | {means} |" in documented


@pytest.mark.parametrize(
    ("code", "commands"),
    [
        (1, ["heads -f no.txt", "profile no.txt", "ablate --texts no.txt", "syntax no.conllu",
             "coref no.tsv", "show no.json", "check no.json", "heads --recorded no.npz"]),
        (1, [f"{name} a -m no/model" for name in ("heads", "heatmap", "logits", "ablate")]),
        (2, ["heads a -s 9.9", "heatmap a -s 9.9", "ablate a -s 9.9", "sources a -s 9.9"]),
        (2, ["logits a --at 99", "lens a --at 99", "sources a -s 2.0 --at 99", "flow a --to 99",
             "heatmap a --rows 99"]),
        (2, ["view a -o x.html --max-mb 0.1", "live a -o x.html --max-mb 0.1"]),
        (2, ["heads a -o x.bmp", "heatmap a -o x.bmp", "profile a.txt -o x.bmp", "view a -o x.bmp",
             "capture a -o x.bmp"]),
    ],
)  # fmt: skip
def test_the_same_mistake_has_the_same_exit_code(
    capsys, tmp_path: Path, monkeypatch, code: int, commands: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a b c\n")
    assert {line: call(capsys, *line.split())[0] for line in commands} == dict.fromkeys(
        commands, code
    )
    assert os.listdir() == ["a.txt"]


def test_what_is_not_installed_is_said_before_a_model_loads(capsys, monkeypatch) -> None:
    monkeypatch.setattr("attnviz.errors.find_spec", lambda name: None)
    monkeypatch.setattr("attnviz.captures.loading.load", lambda *_, **__: pytest.fail("it loads"))
    code, _, err = call(capsys, "heads", "--audio", "x")
    assert (code, err) == (2, 'attnviz: --audio needs soundfile; pip install "attnviz[audio]"\n')


def test_a_text_of_a_dash_is_standard_input(capsys, monkeypatch) -> None:
    said = io.TextIOWrapper(io.BufferedReader(io.BytesIO(SENTENCE.encode())), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", said)
    assert heads_of(capsys, "-") == heads_of(capsys, SENTENCE)


def test_what_is_written_is_named_with_its_size(capsys, tmp_path: Path) -> None:
    for command, name in [("heatmap", "x.png"), ("heads", "x.json"), ("capture", "x.npz"),
                          ("view", "x.html"), ("flow", "x.csv")]:  # fmt: skip
        path = tmp_path / name
        out = ok(capsys, command, "a b c", "-o", str(path))
        assert f"wrote {path} ({human_bytes(path.stat().st_size)})" in out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("attnviz he", ["heads", "heatmap", "help"]), ("attnviz heads --sel", ["--select"]),
        ("attnviz heads --model demo-", ["demo-bert", "demo-gpt2"]),
        ("attnviz heads -m fr", ["fresh"]), ("attnviz models --show demo-g", ["demo-gpt2"]),
        ("attnviz heads -m demo-bert -s 2.", [f"2.{n}" for n in range(6)]),
        ("attnviz heatmap -s 1.4,3.", [f"1.4,3.{n}" for n in range(6)]),
        ("attnviz heads -s al", ["all"]), ("attnviz help attention-si", ["attention-sink"]),
    ],
)  # fmt: skip
def test_a_shell_completes_commands_options_and_values(
    typed: str, offered: list[str], monkeypatch, capsys
) -> None:
    monkeypatch.setenv("_ATTNVIZ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == offered


def test_the_model_is_the_environments_or_the_projects(capsys, tmp_path, monkeypatch) -> None:
    def model() -> str:
        return heads_of(capsys, "a b c")["source"]["model"]

    inner = tmp_path / "one" / "two"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert model() == "demo-gpt2"
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.attnviz]\nmodel = "demo-bert"\n')
    assert model() == "demo-bert"
    assert heads_of(capsys, "a b c", "-m", "demo-gpt2")["source"]["model"] == "demo-gpt2"
    assert json.loads(ok(capsys, "lens", "a [MASK]", "--json"))["source"]["model"] == "demo-bert"
    monkeypatch.setenv(VARIABLE, "demo-gpt2")
    assert model() == "demo-gpt2"
    monkeypatch.delenv(VARIABLE)
    ok(capsys, "capture", "a b c", "-m", "demo-gpt2", "-o", "c.npz")
    assert model() == "demo-bert"
    assert heads_of(capsys, "--recorded", "c.npz")["source"]["backend"] == "recorded"
    for text, says in [("[tool.attnviz]\nmodle = 1\n", "takes model alone"),
                       ("[tool.attnviz]\nmodel = 1\n", "is a name, not '1'"),
                       ("[tool", "is not readable TOML")]:  # fmt: skip
        project.write_text(text)
        code, _, err = call(capsys, "heads", "a")
        assert code in (1, 2)
        assert says in err
        assert err.count("\n") == 1
        ok(capsys, "lens", "--help")


def test_names_in_short(capsys) -> None:
    assert len(heads_of(capsys, "a b", "-s", "all")["heads"]) == 24
    half = heads_of(capsys, "a b", "--dtype", "bf16")
    assert half["source"]["dtype"] == "bfloat16"
    fresh = json.loads(ok(capsys, "models", "--show", "fresh", "--json"))
    assert (fresh["groups"][0]["heads"], fresh["parameters"]) == (8, 4 * 128 * 128 + 4 * 128)
    assert "all keys" in ok(capsys, "models", "--show", "fresh")


# ------------------------------------------------------------------ what cannot work


@pytest.fixture(scope="module")
def bad(tmp_path_factory) -> str:
    """A folder of files that are wrong in every way we know."""
    tmp = tmp_path_factory.mktemp("bad")
    (tmp / "latin1.txt").write_bytes("grün".encode("latin-1"))
    (tmp / "blank.txt").write_text(" \n\t\n")
    (tmp / "utf16.txt").write_text("a b", encoding="utf-16")
    np.savez(tmp / "sums.npz", attentions=np.ones((1, 1, 2, 2), "f4"), tokens=np.array(["a", "b"]))
    return str(tmp)


MISTAKES = [
    # arguments, exit code, words of the one line; many more are in messages.txt
    (["-f", "{tmp}/latin1.txt", "-m", "fresh"], 1, ["not UTF-8", "byte 2"]),
    (["-f", "{tmp}/blank.txt", "-m", "fresh"], 1, ["empty"]),
    (["-f", "{tmp}/none.txt", "-m", "fresh"], 1, ["No such file or directory; check the path"]),
    (["-f", "{tmp}", "-m", "fresh"], 1, ["directory"]),
    (["-f", "/dev/zero", "-m", "fresh"], 1, ["/dev/zero is neither a file nor a pipe"]),
    (["-f", "/dev/urandom", "-m", "fresh"], 1, ["/dev/urandom is "]),
    (["-f", "{tmp}/utf16.txt", "-m", "fresh"], 1, ["UTF-16; save the file as UTF-8"]),
    (["a", "-m", "fresh", "--d-model", "512", "--heads", "6"], 2, ["85.33", "4 or 8"]),
    (["a", "-m", "fresh", "--d-model", "-8"], 2, ["at least 1, got -8"]),
    (["a", "-m", "fresh", "--d-model", "8000000"], 2, ["more than half of this machine's"]),
    (["a", "--d-model", "wide"], 2, ["wide", "see attnviz heads --help"]),
    (["a", "-m", "fresh", "--select", "banana"], 2, ["banana", "4.11"]),
    (["a", "-m", "fresh", "--select", ""], 2, ["empty"]),
    (["--ids", "1,999999", "-m", "{minilm}"], 1, ["999999", "30521"]),
    (["a", "--layers", "2", "--causal"], 2, ["--layers, --causal shape a fresh layer"]),
    (["a", "-m", "{minilm}", "--device", "cuda:7"], 1, ["cuda:7", "cpu"]),
    (["--recorded", "{tmp}/none.npz"], 1, ["is missing"]),
    (["--recorded", "{tmp}/sums.npz"], 1, ["expected a row that sums to 1", "found 2"]),
]


@pytest.mark.parametrize(("arguments", "code", "words"), MISTAKES, ids=lambda v: str(v)[:60])
def test_mistakes_get_one_clear_line(capsys, bad, minilm, arguments, code, words) -> None:
    arguments = [a.format(minilm=minilm, tmp=bad) for a in arguments]
    before = sorted(Path(bad).rglob("*"))
    err = refused(capsys, "heads", *arguments, code=code)
    for word in words:
        assert word in err
    assert sorted(Path(bad).rglob("*")) == before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a b\n\ncaf\xe9\n", "lines.txt:3 is not UTF-8 (byte 3 is 0xe9)"),
        (b"a b\n" + b"c " * (1 << 20), "lines.txt:2 is longer than 1 MiB"),
        (b"\n \n", "lines.txt holds no text; give one text per line"),
        (b"\0", "lines.txt:1 is no text: it holds zero bytes"),
    ],
)
def test_lines_that_cannot_be_used(capsys, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "lines.txt").write_bytes(content)
    page = str(tmp_path / "page.html")
    lines = str(tmp_path / "lines.txt")
    assert says in refused(capsys, "view", "--texts", lines, "-m", "fresh", "-o", page)


LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["heads", "--file", LONG], ["heads", "--recorded", f"{LONG}.npz"],
        ["heads", "a b", "--model", LONG], ["heatmap", "a b", "-o", f"{LONG}.png"],
        ["capture", "a b", "-o", f"{LONG}.npz"], ["view", "a b", "-o", f"{LONG}.html"],
        ["view", "--texts", LONG, "-o", "page.html"], ["export", LONG, "-o", "maps"],
        ["export", "s.txt", "-o", LONG], ["export", "--recorded", f"{LONG}.npz", "-o", "maps"],
        ["profile", LONG], ["shapes", "--show", "numbers", "--file", LONG],
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)  # fmt: skip
def test_names_longer_than_any_file_may_have(
    capsys, tmp_path: Path, monkeypatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.txt").write_text("a b\n")
    error = refused(capsys, *arguments)
    assert "too long" in error or "neither a folder nor a hub id" in error
    assert [path.name for path in tmp_path.iterdir()] == ["s.txt"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="drops the right of root to go anywhere")
def test_folders_that_may_not_be_searched(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    commands = [
        ["heads", "--file", "closed/s.txt"], ["heads", "--recorded", "closed/s.npz"],
        ["heads", "a b", "--model", "./closed"], ["heads", "a b", "--model", "closed/model"],
        ["shapes", "--model", "./closed"], ["heatmap", "a b", "-o", "closed/x.png"],
        ["export", "closed/s.txt", "-o", "maps"], ["export", "closed/*.txt", "-o", "maps"],
        ["export", "s.txt", "-o", "closed/maps"], ["models"],
    ]  # fmt: skip
    code = (
        "import ctypes, os, sys\n"
        "prctl = ctypes.CDLL(None).prctl\n"
        "prctl(24, 1), prctl(24, 2)  # no CAP_DAC_OVERRIDE, no CAP_DAC_READ_SEARCH after exec\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])\n"
    )
    run = (
        f"from attnviz.cli import main\nfor arguments in {commands}:\n    print(main(arguments))\n"
    )
    (tmp_path / "s.txt").write_text("a b\n")
    closed.mkdir()
    closed.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, run], check=False, cwd=tmp_path, capture_output=True,
            text=True, env={**os.environ, "HF_HUB_CACHE": str(closed / "hub")},
        )  # fmt: skip
    finally:
        closed.chmod(0o700)
    said = done.stderr.splitlines()
    assert done.stdout.split() == ["1"] * len(commands), done.stderr
    assert len(said) == len(commands)
    assert all(re.match(r"attnviz: cannot .*closed.*: Permission denied", x) for x in said), said


def test_a_text_has_a_largest_size(capsys, tmp_path: Path) -> None:
    """The limit is that of all files of text; a pipe is as good as a file."""
    os.mkfifo(tmp_path / "pipe")
    for size, said in ((64 << 20, "is longer than 64 MiB"), (0, "")):
        writer = threading.Thread(
            target=lambda size=size: (tmp_path / "pipe").write_bytes(b"a b" + b" a" * (size // 2))
        )
        writer.start()
        code = main(["heads", "--file", str(tmp_path / "pipe"), "-m", "fresh", "-q"])
        writer.join()
        assert (code, said in capsys.readouterr().err) == (bool(said), True)


def test_a_read_only_folder_keeps_what_it_has(tmp_path: Path, capsys, monkeypatch) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"precious")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("attnviz.files.os.replace", full)
    said = refused(capsys, "heatmap", "a b", "-m", "fresh", "-o", str(path))
    assert "No space left" in said
    assert path.read_bytes() == b"precious"
    assert [p.name for p in tmp_path.iterdir()] == ["x.png"]


def test_interrupt_is_130_and_one_line(tmp_path: Path) -> None:
    fifo = tmp_path / "text"
    os.mkfifo(fifo)
    # a shell's background processes ignore the signal, and so would the child of such a process
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from attnviz.__main__ import run\nrun()"
    child = forking.Popen(
        [sys.executable, "-c", code, "heads", "-f", str(fifo), "-m", "fresh"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with fifo.open("wb"):  # returns once the child reads, so it is in the middle of its work
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=120)
    assert child.returncode == 130
    assert err == "attnviz: interrupted\n"


def test_interrupt_while_importing() -> None:
    code = "import attnviz.cli as c\ndef main(): raise KeyboardInterrupt\nc.main = main\n"
    code += "from attnviz.__main__ import run\nrun()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (130, "attnviz: interrupted\n")


def piped(*arguments: str, line: bool = False) -> tuple[int, str]:
    """Exit code and errors of a command whose reader goes away, at once or after a line."""
    reader, writer = os.pipe()
    if not line:
        os.close(reader)
    child = forking.Popen(
        [sys.executable, "-m", "attnviz", *arguments],
        stdout=writer, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writer)
    if line:
        with open(reader, "rb", buffering=0) as some:
            some.readline()
    _, err = child.communicate(timeout=120)
    return child.returncode, err


def test_broken_pipes_are_silent() -> None:
    assert piped("heads", "a b c", "-m", "fresh", "--json")[1] == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_standard_output_that_is_full_or_closed() -> None:
    command = f"{sys.executable} -m attnviz shapes --d-model 8 --heads 2"
    given = {"shell": True, "text": True, "stderr": subprocess.PIPE}
    full = subprocess.run(f"{command} > /dev/full", check=False, **given)
    assert full.returncode == 1
    assert full.stderr == "attnviz: cannot write to standard output: No space left on device\n"
    closed = subprocess.run(f"{command} >&-", check=False, **given)
    assert (closed.returncode, closed.stderr) == (0, "")


# ------------------------------------------------------------------ streams, names and bugs


def test_a_bug_is_one_line_and_says_how_to_report_it(capsys, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a\nb \x1b[31m")

    monkeypatch.setattr("attnviz.features.heads.function.heads", broken)
    err = refused(capsys, "heads", "a", "-m", "fresh", code=70)
    assert err.startswith(r"attnviz: unexpected ZeroDivisionError: a b \x1b[31m; this is a bug")
    assert "--traceback" in err
    with pytest.raises(ZeroDivisionError):
        main(["--traceback", "heads", "a", "-m", "fresh"])
    with pytest.raises(ZeroDivisionError):
        main(["heads", "a", "-m", "fresh", "--traceback"])
    assert call(capsys, "heads", "-m", "fresh", "--", "--traceback")[0] == 70


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried 9 bytes"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
    ids=repr,
)
def test_too_little_memory_is_no_bug(capsys, monkeypatch, error: Exception) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("attnviz.features.heads.function.heads", full)
    assert "attnviz: out of memory" in refused(capsys, "heads", "a", "-m", "fresh")


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.slow)])
def test_what_standard_output_cannot_hold(tmp_path: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    text = "a → 鍵 \U0001f600 é"
    for arguments in (["--help"], ["shapes", "--seq", "3"]):
        command = [sys.executable, "-m", "attnviz", *arguments]
        begun = subprocess.run(
            command, env=environment, encoding=encoding, capture_output=True, check=False
        )
        assert (begun.returncode, begun.stderr) == (0, "")
    shown = process("heads", text, "-m", "fresh", "-q", env=environment, encoding=encoding)
    assert (shown.returncode, shown.stderr) == (0, "")
    document = json.loads(
        process("heads", text, "-m", "fresh", "--json", env=environment, encoding=encoding).stdout
    )
    assert document["tokens"]["encoder"]["keys"]["texts"] == text.split()


def test_names_that_act_on_a_terminal_or_are_no_text(tmp_path: Path) -> None:
    name = os.fsencode(str(tmp_path)) + b"/\x1b[31mred\xff.npz"
    command = [sys.executable, "-m", "attnviz", "capture", "a b", "-m", "fresh", "-o", name]
    made = forking.run(command)
    assert (made.returncode, made.stderr) == (0, b"")
    assert rb"\x1b[31mred\udcff.npz" in made.stdout
    assert b"\x1b" not in made.stdout
    missing = [*command[:3], "heads", "--recorded", name + b"x.npz"]
    told = forking.run(missing)
    assert told.returncode == 1
    assert b"\x1b" not in told.stderr
    assert told.stderr.count(b"\n") == 1


def test_streams_that_were_closed() -> None:
    command = f"{sys.executable} -m attnviz heads -f - -m fresh <&-"
    closed = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stdout) == (1, "")
    assert closed.stderr == "attnviz: the text is empty; give at least one word\n"


def test_an_export_without_standard_error_still_draws(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b\nc d\n")
    closed = "import os, sys\nos.close(2)\nsys.stderr = None\n"
    code = closed + "from attnviz.__main__ import run\nrun()"
    command = ["-c", code, "export", "a.txt", "-o", "o", "-m", "fresh", "--jobs", "2"]
    done = forking.run([sys.executable, *command], cwd=tmp_path)
    assert done.returncode == 0
    assert len(list((tmp_path / "o").rglob("*.png"))) == 16


SLOW_READ = [pytest.param(x, marks=pytest.mark.slow) for x in ("--help", "shapes --show presets")]


@pytest.mark.parametrize("arguments", ["shapes --d-model 512 --heads 8", *SLOW_READ])
def test_readers_that_have_seen_enough(arguments: str) -> None:
    assert piped(*arguments.split(), line=True) == (0, "")


def test_no_browser_is_one_line(tmp_path: Path) -> None:
    starter = tmp_path / "xdg-open"
    starter.write_text("#!/bin/sh\necho one; echo two >&2; exit 3\n")
    starter.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path)}
    shown = process("view", "a b", "-m", "fresh", env=environment)
    assert shown.returncode == 0
    assert shown.stderr == "note: no browser could be opened; open the file yourself\n"
    assert "one" not in shown.stdout.split()


def test_a_text_that_names_a_file_is_run_and_said(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("story.txt").write_text("the cat sat\n")
    for command in (["heads"], ["view", "-o", "p.html"], ["heatmap"]):
        assert main([*command, "story.txt"]) == 0
        said = "note: story.txt is taken as the text itself; to read the file of that name"
        assert said in capsys.readouterr().err
    for quiet in (["story.txt", "-q"], ["--file", "story.txt"], ["the story"]):
        assert main(["heads", *quiet]) == 0
        assert "is taken as the text itself" not in capsys.readouterr().err


def test_the_page_of_several_texts_counts_them_all(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("the cat sat\na dog\n")
    assert main(["view", "--texts", "t.txt", "-o", "p.html"]) == 0
    assert re.search(r"· 2 texts, \d+ tokens ·", capsys.readouterr().out)
    assert main(["view", "a dog", "--other-model", "demo-gpt2", "-o", "p.html"]) == 0
    assert re.search(r"· \d+ tokens ·", capsys.readouterr().out)


FOREIGN = """
import warnings
import huggingface_hub.utils.logging as hub, transformers.utils.logging as library
print(library._get_default_logging_level(), hub._get_default_logging_level())
for module in ("transformers.generation.utils", "torch.nn.modules", "tokenizers", "mine"):
    warnings.warn_explicit(f"{module} tells", UserWarning, module, 1, module=module, registry={})
"""


def test_no_library_tells_of_a_model_before_a_command_does(tmp_path, monkeypatch, capsys) -> None:
    def told(name: str) -> tuple[str, list[str]]:
        (tmp_path / name).write_text(FOREIGN)
        with pytest.warns(UserWarning, match="tells") as warned:
            code, _, err = call(capsys, "heads", "a b", "-q", "--plugin", str(tmp_path / name))
        assert code == 0, err
        return err, [str(one.message) for one in warned]

    assert told("p.py") == ("50 50\n", ["mine tells"])
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")  # who asks hears it
    monkeypatch.setattr(sys, "warnoptions", ["default"])
    heard, warned = told("q.py")
    assert (heard, len(warned)) == ("20 50\n", 4)
    assert "HF_HUB_VERBOSITY" not in os.environ
