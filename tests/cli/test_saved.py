"""Files that attnviz wrote, and files that say so: shown, or refused in one line, within bounds."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.table import Table

import attnviz as av
from attnviz.cli import console
from attnviz.core.record import parsed
from attnviz.core.result import Result
from attnviz.corpus import lines as reading
from attnviz.drawing.renderable import Renderable
from attnviz.errors import AttnvizError, InputError
from attnviz.features.film.summary import unpacked
from attnviz.features.results import read_record, result_class
from attnviz.features.show import function
from attnviz.files import inflated
from tests import mostly_slow
from tests.cli.calling import call, ok, refused
from tests.features.live.test_live import live_page
from tests.samples import Samples

pytestmark = pytest.mark.usefixtures("few_sentences")

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
TEXT = "the cat saw the dog"
MUCH, LITTLE = 24 << 20, 16 << 20


def page_of(data: bytes, size: int | None = None) -> bytes:
    """A page that holds what zlib packed of some bytes."""
    held = base64.b64encode(zlib.compress(data, 9)).decode()
    many = len(data) if size is None else size
    tag = f'<script type="application/octet-stream" data-bytes="{many}" id="result">{held}</script>'
    return f"<!doctype html><title>a</title><body>{tag}</body>".encode()


HELD = {
    "a list": b"[]", "a number": b"1", "no JSON": b"{", "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"schema":' * 50_000 + b"1" + b"}" * 50_000, "no schema": b"{}",
    "a page without what made it": b'{"schema": "attnviz.page/1"}',
    "a page made by a list": b'{"schema": "attnviz.page/1", "made": []}',
    "a page made by numbers": b'{"schema": "attnviz.page/1", "made": {"model": 1}}',
    "a schema that is a list": b'{"schema": []}', "another schema": b'{"schema": "attnviz.none/1"}',
    "a result without fields": b'{"schema": "attnviz.heads/1"}', "no text": b"\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_pages_that_hold_something_else(name: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "p.html"
    path.write_bytes(page_of(HELD[name]))
    for more in ((), ("--json",), ("--csv",)):
        refused(capsys, "show", str(path), *more)
    code, _, err = call(capsys, "heads", "a b", "--evidence", str(path))
    assert code == 1, err


@pytest.mark.parametrize("size", [100, 0, 10**12 - 1])
def test_what_a_page_holds_is_unpacked_as_far_as_it_says(size: int, tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    path.write_bytes(page_of(b" " * MUCH, size))
    assert path.stat().st_size < 3 << 20
    tracemalloc.start()
    with pytest.raises(InputError, match="no page that attnviz wrote"):
        av.read(path)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    tracemalloc.stop()


def test_unpacking_is_exact() -> None:
    packed = zlib.compress(b"abc")
    assert inflated(packed, 3) == b"abc"
    assert inflated(zlib.compress(b""), 0) == b""
    for data, size in (
        (packed, 2),
        (packed, 4),
        (packed[:-1], 3),
        (b"", 0),
        (b"junk", 3),
        (packed, -1),
    ):
        with pytest.raises(ValueError, match=r"unpack|incorrect"):
            inflated(data, size)


def _npz(path: Path, member: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("attentions.npy", member)
    return path


def _header(shape: tuple[int, ...], more: int = 0) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode() + b" " * more
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text


@pytest.mark.parametrize(("kind", "method"), [
    ("long header", zipfile.ZIP_DEFLATED), ("short", zipfile.ZIP_DEFLATED),
    *(("false shape", m) for m in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
])  # fmt: skip
def test_archives_that_unpack_to_more_than_they_say(kind: str, method: int, tmp_path: Path) -> None:
    zeros = MUCH
    member = {
        "long header": _header((1, 1, 1, 1), more=zeros),
        "false shape": _header((1, 1, 2, 2)) + bytes(zeros),
        "short": _header((4096, 4096, 4096, 4096)) + bytes(16),
    }[kind]
    path = _npz(tmp_path / "a.npz", member, method)
    del member
    tracemalloc.start()
    with pytest.raises(InputError, match=r"header of|another size|packed as|more than a quarter"):
        av.read(path)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    tracemalloc.stop()


@pytest.mark.parametrize("data", [
    _header((1 << 20, 1 << 20)), _header((2, 2), more=1 << 20), _header((2, 2)) + bytes(15),
    b"\x93NUMPY", b"", b"PK\x03\x04junk", b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
])  # fmt: skip
def test_arrays_of_another_size_than_they_say(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"a\.npy"):
        av.read(tmp_path / "a.npy")
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    tracemalloc.stop()


def test_an_archive_in_the_place_of_an_array_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(InputError):
        av.read(tmp_path / "a.npy")


def test_a_checkpoint_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 24))
    with pytest.raises(InputError, match="packed as"):
        av.read(path)


def test_the_maps_of_a_film_are_as_large_as_it_says(tmp_path: Path) -> None:
    class Film:
        class maps:
            tokens = ("a", "b")
            data = base64.b64encode(zlib.compress(bytes(MUCH), 9)).decode()

        steps, heads = (1,), (1, 2)

    tracemalloc.start()
    with pytest.raises(InputError, match="maps of this film are damaged"):
        unpacked(Film)  # type: ignore[arg-type]
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    tracemalloc.stop()


def test_a_column_of_parquet_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    with parquet.ParquetWriter(
        path, arrow.schema([("text", arrow.string())]), compression="zstd", use_dictionary=False
    ) as writer:
        table = arrow.table({"text": ["a" * (1 << 20)] * 24})
        writer.write_table(table)
    read = list(reading.parquet_rows(str(path), reading.Columns()))
    assert len(read) == 24
    small, reading._BYTES = reading._BYTES, 1 << 23
    try:
        with pytest.raises(InputError, match=r"unpacks .* to 25\.2 MB, which no text is"):
            list(reading.parquet_rows(str(path), reading.Columns()))
    finally:
        reading._BYTES = small


# --- results with words and characters that no command writes -------------------------------------

HOSTILE = "\x1b]52;c;QUJD\x07\u202e\x9b31m\u2028"
ACTING = set("\x1b\x07\x9b\u202e\u2028")
MAKERS: dict[str, Callable[[], Any]] = {
    "heads": lambda: av.heads(TEXT, select="0.0, 1.4, 2.0, 3.*"),
    "ablate": lambda: av.ablate([TEXT, "a dog sat"], select="0.0, 0.1+0.2"),
    "sinks": lambda: av.sinks([TEXT]),
    "spans": lambda: av.spans(av.Prompt(TEXT, spans={"cat": "all:cat"})),
    "knockout": lambda: av.knockout(av.Prompt(TEXT, spans={"cat": "all:cat"}), window=1, draws=1),
    "lens": lambda: av.lens(TEXT), "logits": lambda: av.logits(TEXT), "flow": lambda: av.flow(TEXT),
    "explain": lambda: av.explain("the cat the"), "sources": lambda: av.sources(TEXT, select="1.0"),
    "patch": lambda: av.patch(task="gender", count=2, select="0.*"),
    "thoughts": lambda: av.thoughts("It rains. We stay. The sea was dark.", draws=1),
    "diff": lambda: av.diff(TEXT, TEXT.replace("dog", "cow"), align="position"),
    "check": lambda: av.check(SAMPLES / "recorded.npz"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "field", "value"), [
    (av.heads, "tokens", {}), (av.lens, "difference", None), (av.lens, "followed", []),
    (av.heads, "layout", {"heads": {"decoder": [6, 10**7, 6, 6]}}),
    (av.logits, "layout", {"heads": {"decoder": [6, 10**400, 6, 6]}}),
])  # fmt: skip
def test_a_result_without_what_it_shows_is_refused(make: Any, field: str, value: Any) -> None:
    result = make("the cat sat on the mat")
    with pytest.raises(InputError, match="the document is damaged: "):
        type(result).from_dict(result.to_dict() | {field: value})


def strings(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all strings in a document."""
    pairs = enumerate(part) if isinstance(part, list) else part.items()
    for key, inner in pairs:
        if isinstance(inner, str):
            yield (*path, key)
        elif isinstance(inner, list | dict):
            yield from strings(inner, (*path, key))


def fields(document: Any) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """Every field of strings, with the place of its first."""
    found: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for path in strings(document):
        kind = tuple("*" if isinstance(key, int) or key[:1].isdigit() else key for key in path)
        found.setdefault(kind, path)
    return found


@contextlib.contextmanager
def changed(
    document: Any, places: Iterable[tuple[Any, ...]], change: Callable[[str], str]
) -> Iterator[Any]:
    """In the ``with`` block, the document with the strings at some places changed."""
    before = []
    for *path, last in places:
        part = reduce(lambda inner, key: inner[key], path, document)
        before.append((part, last, part[last]))
        part[last] = change(part[last])
    try:
        yield document
    finally:
        for part, last, said in before:
            part[last] = said


def _everything(result: Any, whole: Any) -> str:
    """All that is printed of a result, as the console prints it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        screen = console.stdout()
        shown = result.for_terminal() if isinstance(result, Renderable) else function.parts(result)
        for part in (*shown, *getattr(result, "notes", ())):
            screen.print(part)
        if isinstance(result, Renderable):
            console.put(result.to_csv())
        console.put(result.to_json())
    if isinstance(result, Result):
        result.annotated_roles()
        with contextlib.suppress(AttnvizError):
            str(av.diff(result, whole))
        if isinstance(result, Renderable):
            str(result.finding("x.json"))
    return out.getvalue()


CHANGES: dict[str, Callable[[str], str]] = {
    "another word": lambda text: "zzz",
    "characters that act": lambda text: f"{text}{HOSTILE}\ud800",
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("name", MAKERS)
def test_whatever_a_result_says_it_is_shown_or_refused(name: str, kind: str) -> None:
    """Nothing ends as a bug or acts on the terminal, with every string field changed in turn."""
    whole, change = made(name), CHANGES[kind]
    document, places = whole.to_dict(), fields(whole.to_dict())

    def read(places: Iterable[tuple[Any, ...]]) -> Any:
        with changed(document, places, change), contextlib.suppress(AttnvizError):
            return read_record(parsed(json.dumps(document), "x.json"), "x.json")

    def shown(result: Any, field: str) -> bool:
        try:
            said = _everything(result, whole)
        except AttnvizError:
            return False
        except Exception as error:
            pytest.fail(f"{field}: {error!r}")
        assert not ACTING & set(said), field
        said.encode()
        return True

    every = {field: read([place]) for field, place in places.items()}
    readable = {field: found for field, found in every.items() if found is not None}
    assert readable
    if kind == "characters that act":
        together = read(places[field] for field in readable)
        if together is not None and shown(together, "all of them"):
            return
    for field, found in readable.items():
        shown(found, ".".join(field))


@cache
def made(name: str) -> Any:
    return MAKERS[name]()


def test_one_filter_is_on_all_that_consoles_print(capsys) -> None:
    console.stdout().print(f"a{HOSTILE}b\n", style="bold")
    console.stderr().print(f"a{HOSTILE}b")
    console.note([f"a{HOSTILE}b"], quiet=False)
    table = Table(f"h{HOSTILE}")
    table.add_row(f"c{HOSTILE}")
    console.stdout().print(table)
    captured = capsys.readouterr()
    assert not ACTING & set(captured.out + captured.err)
    assert r"a\x1b]52;c;QUJD" in captured.out
    assert r"\u202e\x9b31m\u2028b" in captured.out
    assert captured.out.count("\n") >= 3


def test_what_is_put_is_as_it_was_but_for_what_acts(capsys) -> None:
    """Each character of Unicode's first plane."""
    every = "".join(map(chr, range(0x10000)))
    console.put(every)
    wanted = (c if c.isprintable() or c in "\n\r\t" else f"\\u{ord(c):04x}" for c in every)
    assert capsys.readouterr().out == "".join(wanted) + "\n"


# --- a machine that lacks something ---------------------------------------------------------------


NEEDED = (
    ("scipy", "scipy", ("flow", TEXT, "--method", "max-flow")),
    ("PIL", "pillow", ("heatmap", TEXT, "-o", "x.png")),
    ("matplotlib", "matplotlib", ("heatmap", TEXT, "-o", "x.svg")),
)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    code = (
        "import json, sys; from attnviz.cli import main\n"
        "for package, _, line in json.loads(sys.argv[1]):\n"
        "    sys.modules[package] = None\n"
        "    print(main(line))\n"
        "    del sys.modules[package]\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, json.dumps(NEEDED)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "ATTNVIZ_CACHE": "off"},
    )  # fmt: skip
    assert ran.stdout.split() == ["1"] * 3, ran.stderr
    for (_, name, _), said in zip(NEEDED, ran.stderr.splitlines(), strict=True):
        assert said == f"attnviz: this needs {name}, which is not installed; pip install {name}"


@pytest.mark.skipif(os.name != "posix", reason="other systems keep a folder that is in use")
def test_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, out, err = call(capsys, "heads", "a b")
    monkeypatch.chdir(tmp_path)
    assert (code, out) == (1, "")
    assert err == "attnviz: the working directory is gone; change into one that is there\n"


@pytest.mark.parametrize("model", ["a" * 300, "a/" * 3000, "x\\u0000y"])
def test_a_model_of_a_project_that_no_folder_can_be(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(f'[tool.attnviz]\nmodel = "{model}"\n')
    refused(capsys, "heads", "a b")


# --- everything that commands write ---------------------------------------------------------------

SPANNED = (TEXT, "--span", "cat=all:cat")
WRITES: dict[str, tuple[str, ...]] = {
    "view": (TEXT,), "live": (), "heads": (TEXT,), "logits": (TEXT,), "lens": (TEXT,),
    "flow": (TEXT,), "sinks": (TEXT,), "explain": (TEXT,), "sources": (TEXT, "-s", "1.0"),
    "spans": SPANNED, "knockout": (*SPANNED, "--draws", "0"),
    "thoughts": ("It rains. We stay. The sea was dark.", "--draws", "0"),
    "ablate": (TEXT, "-s", "0.0, 0.1+0.2"), "circuits": ("--sample", "50"),
    "diff": (TEXT, TEXT.replace("dog", "cow"), "--align", "position"),
    "syntax": (f"{SAMPLES}/treebank.conllu",), "coref": (f"{SAMPLES}/pronouns.tsv",),
    "profile": (f"{SAMPLES}/sentences.txt", "--limit", "5"),
    "patch": ("--task", "gender", "--count", "2", "-s", "0.*"),
    "retrieval": ("--lengths", "40", "--depths", "0.5", "--count", "2", "--group-size", "1",
                  "--draws", "1", "--control", "0"),
    "film": (f"{SAMPLES}/phases/repeats-2.json",), "check": (f"{SAMPLES}/recorded.npz",),
    "models": ("llama",),
}  # fmt: skip
"""Commands that write with --out, small."""
NAMED = {"models": "families"}
STARTS = {
    ".json": b"{", ".html": b"<!doctype html>", ".svg": b"<?xml", ".dot": b"digraph",
    ".csv": b"",
}  # fmt: skip
LACKS = {"profile": {".html"}, "patch": {".html", ".dot"}, "check": {".svg"}}
"""Pages are of a few heads and of circuits, pictures of modules."""
LONG = ("explain", "profile", "film", "circuits")
"""Whose own tests draw them too; the rest of make slow."""
REDRAWN = ("heads", "ablate", "knockout", "logits")
"""Whose picture is drawn twice: what is read back is equal, and so are pictures of what is."""
SHOWN = (".json", ".html")
"""What can be shown again."""


@pytest.mark.parametrize("command", mostly_slow(WRITES, *(set(WRITES) - set(LONG))))
def test_what_a_command_writes_and_prints_is_one_result_and_is_shown_again(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, samples: Samples
) -> None:
    """Of every form: as its format begins, the same when it is made again, and shown or refused."""
    monkeypatch.chdir(tmp_path)
    line = (command, *WRITES[command], "-q")
    if command == "live":
        Path("x.html").symlink_to(live_page(samples))
    elif command == "view":
        ok(capsys, *line, "-o", "x.html")
    else:
        found = result_class(f"attnviz.{NAMED.get(command, command)}")
        forms = [form for form in STARTS if form in {*found.suffixes()} - LACKS.get(command, set())]
        printed = ok(capsys, *line, "--json", *(f"--out=x{form}" for form in forms))
        read = av.read("x.json")
        assert type(read) is found
        assert found.from_json(printed) == read
        for form in forms:
            data = Path(f"x{form}").read_bytes()
            assert data.startswith(STARTS[form])
            if form == ".csv" or (form == ".svg" and command in REDRAWN):
                assert data == read.to_bytes(form)
        rows = list(csv.DictReader(io.StringIO(read.to_csv()))) if ".csv" in forms else []
        assert len(rows) == (len(read.to_records()) if ".csv" in forms else 0)
    for path, more in product(sorted(tmp_path.glob("x.*")), ((), ("--json",))):
        if path.suffix not in SHOWN:
            refused(capsys, "show", path.name, *more)
            continue
        out = ok(capsys, "show", path.name, *more)
        assert out
        if more:
            assert json.loads(out)["schema"].startswith("attnviz.")
