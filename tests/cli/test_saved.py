"""Files that attnviz wrote, and files that say so: shown, or refused in one line, within bounds."""

from __future__ import annotations

import base64
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.errors import InputError
from attnviz.files import inflated
from tests.cli.calling import call

TEXT = "the cat and the dog and the cat"
MUCH = 100 << 20


def page_of(data: bytes, size: int | None = None) -> bytes:
    """A page that holds what zlib packed of some bytes."""
    held = base64.b64encode(zlib.compress(data, 9)).decode()
    many = len(data) if size is None else size
    tag = f'<script type="application/octet-stream" data-bytes="{many}" id="result">{held}</script>'
    return f"<!doctype html><title>a</title><body>{tag}</body>".encode()


HELD = {
    "a list": b"[]",
    "a number": b"1",
    "no JSON": b"{",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"schema":' * 50_000 + b"1" + b"}" * 50_000,
    "no schema": b"{}",
    "a page without what made it": b'{"schema": "attnviz.page/1"}',
    "a page made by a list": b'{"schema": "attnviz.page/1", "made": []}',
    "a page made by numbers": b'{"schema": "attnviz.page/1", "made": {"model": 1}}',
    "a schema that is a list": b'{"schema": []}',
    "another schema": b'{"schema": "attnviz.none/1"}',
    "a result without fields": b'{"schema": "attnviz.heads/1"}',
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("name", HELD)
def test_pages_that_hold_something_else(name: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "p.html"
    path.write_bytes(page_of(HELD[name]))
    for more in ((), ("--json",), ("--csv",)):
        code, out, err = call(capsys, "show", str(path), *more)
        assert (code, out) == (1, ""), err
        assert err.count("\n") == 1
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
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
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


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("kind", ["long header", "false shape", "short"])
def test_archives_that_unpack_to_more_than_they_say(kind: str, method: int, tmp_path: Path) -> None:
    zeros = 48 << 20
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
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
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
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
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
    from attnviz.features.film.summary import unpacked

    class Film:
        class maps:
            tokens = ("a", "b")
            data = base64.b64encode(zlib.compress(bytes(MUCH), 9)).decode()

        steps, heads = (1,), (1, 2)

    tracemalloc.start()
    with pytest.raises(InputError, match="maps of this film are damaged"):
        unpacked(Film)  # type: ignore[arg-type]
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_a_column_of_parquet_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    with parquet.ParquetWriter(
        path, arrow.schema([("text", arrow.string())]), compression="zstd", use_dictionary=False
    ) as writer:
        table = arrow.table({"text": ["a" * (1 << 20)] * 64})
        writer.write_table(table)
    from attnviz.corpus import parquet as reading

    read = list(reading.parquet_rows(str(path), None, None, {}))
    assert len(read) == 64
    small, reading._BYTES = reading._BYTES, 1 << 24
    try:
        with pytest.raises(InputError, match=r"unpacks .* to 67\.1 MB, which no text is"):
            list(reading.parquet_rows(str(path), None, None, {}))
    finally:
        reading._BYTES = small
