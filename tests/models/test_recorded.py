"""Recorded attention: the way out and back in, and every way a file can be wrong."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file as save_safetensors

import attnviz as av
from attnviz.captures.files import read_items
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.models import recorded


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    w = np.random.default_rng(seed).random(shape)
    return (w / w.sum(-1, keepdims=True)).astype(np.float32)


def store(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.fixture
def good() -> dict[str, np.ndarray]:
    return {"attentions": weights(3, 2, 4, 4), "tokens": np.array(["a", " b", "[SEP]", "é"])}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "kinds", [("encoder",), ("decoder",), ("cross",), ("encoder", "decoder", "cross")]
)
def test_round_trip(tmp_path: Path, suffix: str, kinds: tuple[str, ...]) -> None:
    queries = Tokens((" x", "\n", "日", "</script>"), (5, 6, 7, 8), (True, False, False, False))
    keys = Tokens(("p", "q", "</s>"), (1, 2, 3), (False, False, True), (False, False, True))
    sides = {
        "encoder": Sides(keys, keys) if len(kinds) > 1 else Sides(queries, queries),
        "decoder": Sides(queries, queries),
        "cross": Sides(queries, keys),
    }
    layout = Layout(dict.fromkeys(kinds, (2, 2, 2)))
    maps = {
        s: weights(2, len(sides[s.kind].queries), len(sides[s.kind].keys), seed=s.layer)
        for s in layout.sites
    }
    info = SourceInfo("my model", "hooked", "max 1e-7", "cpu", "float32", "", {"torch": "2"})
    capture = Capture(info, layout, Inputs({k: sides[k] for k in kinds}), maps)
    path = av.write_capture(capture, tmp_path / f"c{suffix}")
    back = av.read(path)
    assert back.layout == layout
    assert back.inputs.sides == capture.inputs.sides
    assert all(np.array_equal(back.maps[s], maps[s]) for s in layout.sites)
    assert back.source.backend == "recorded"
    assert back.source.model.startswith("my model")
    assert "hooked: max 1e-7" in back.source.exactness
    assert back.source.versions == {"torch": "2"}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_layers_without_attention_leave_gaps(tmp_path: Path, suffix: str) -> None:
    """Of a hybrid: it was refused, after ``models --show`` had promised it."""
    tokens = Tokens(("a", "b", "c"), (1, 2, 3))
    layout = Layout({"decoder": (0, 2, 0, 0, 2)})
    maps = {Site("decoder", n): weights(2, 3, 3, seed=n) for n in (1, 4)}
    info = SourceInfo("a hybrid", "hooked", "", "cpu", "float32")
    capture = Capture(info, layout, Inputs({"decoder": Sides(tokens, tokens)}), maps)
    back = av.read(av.write_capture(capture, tmp_path / f"c{suffix}"))
    assert back.layout == layout
    assert list(back.maps) == list(maps)
    assert all(np.array_equal(back.maps[site], maps[site]) for site in maps)
    with pytest.raises(UsageError, match="every head, as many in one layer as in another"):
        recorded.dump(replace(capture, maps={Site("decoder", 1): maps[Site("decoder", 1)]}), suffix)


@pytest.mark.parametrize(
    "layers", [[0, 1], [2, 1, 0], [0, 1, 1], [-1, 0, 1], [0, 1, 10**9], [0, 1, "2"], 3, {}]
)
def test_numbers_of_layers_that_are_none(tmp_path: Path, good, layers: object) -> None:
    meta = np.array(json.dumps({"layers": {"encoder": layers}}))
    with pytest.raises(InputError, match="numbers of its 3 encoder layers"):
        av.read(store(tmp_path / "x.npz", **good, meta=meta))


def test_layer_and_head_axes_are_not_swapped(tmp_path: Path, good) -> None:
    capture = av.read(store(tmp_path / "x.npz", **good))
    head = Head(Site("encoder", 2), 1)
    assert np.array_equal(capture[head], good["attentions"][2, 1])
    assert len(capture.layout) == 6
    assert capture.inputs.sides["encoder"].keys.special == (False, False, True, False)
    capitals = (tmp_path / "x.npz").rename(tmp_path / "X.NPZ")  # as some systems name them
    assert np.array_equal(av.read(capitals)[head], capture[head])
    assert av.write_capture(capture, tmp_path / "Y.NPZ").read_bytes()[:2] == b"PK"


def test_kind_of_the_maps(tmp_path: Path) -> None:
    causal = np.tril(weights(1, 1, 3, 3))
    causal /= causal.sum(-1, keepdims=True)
    tokens = np.array(["a", "b", "c"])
    decoder = av.read(store(tmp_path / "d.npz", attentions=causal, tokens=tokens))
    assert decoder.layout.kinds == ("decoder",)
    cross = av.read(
        store(tmp_path / "c.npz", attentions=weights(1, 1, 3, 2), tokens=tokens,
              source_tokens=np.array(["p", "q"]))
    )  # fmt: skip
    assert cross.layout.kinds == ("cross",)
    assert cross.inputs.sides["cross"].keys.texts == ("p", "q")


def test_items_of_a_batch_are_cut_to_their_tokens(tmp_path: Path) -> None:
    batch = np.zeros((2, 2, 3, 4, 4), np.float32)
    batch[:, 0] = weights(2, 3, 4, 4)
    batch[:, 1, :, :, :2] = weights(2, 3, 4, 2)
    tokens = np.array([["a", "b", "c", "d"], ["e", "f", "", ""]])
    path = store(tmp_path / "b.npz", attentions=batch, tokens=tokens)
    assert av.read(path, item=0).maps[Site("encoder", 1)].shape == (3, 4, 4)
    second = av.read(path, item=1)
    assert second.inputs.sides["encoder"].queries.texts == ("e", "f")
    assert np.array_equal(second.maps[Site("encoder", 1)], batch[1, 1, :, :2, :2])
    with pytest.raises(UsageError, match="choose one with item from 0 to 1"):
        av.read(path)
    with pytest.raises(UsageError, match="no item 2"):
        av.read(path, item=2)


def _with(**changes: object):
    def change(good: dict) -> dict:
        return {k: v for k, v in (good | changes).items() if v is not None}

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_with(attentions=weights(2, 4, 4)), r"found shape \[2, 4, 4\]"),
        (_with(attentions=weights(3, 2, 5, 5)), "expected 4 queries, one for each token, found 5"),
        (_with(attentions=weights(3, 2, 4, 3)), "expected 4 keys, one for each token, found 3"),
        (_with(attentions=weights(0, 2, 4, 4)), r"found shape \[0, 2, 4, 4\]"),
        (_with(tokens=None), "tokens: expected the text of each token.*found nothing"),
        (_with(tokens=np.array([1, 2, 3, 4])), "tokens: expected strings, found int64"),
        (_with(tokens=np.array(["a", "b"], object)), "holds a pickle"),
        (_with(attentions=None), "no array 'attentions'"),
        (
            _with(special=np.array([True, False])),
            r"special: expected shape \[4\].* found shape \[2\]",
        ),
    ],
)
def test_contents_that_are_wrong(tmp_path: Path, good, change, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        av.read(store(tmp_path / "x.npz", **change(good)))
    assert "\n" not in str(caught.value)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    path = tmp_path / "evil.npz"
    np.savez(path, attentions=weights(1, 1, 1, 1), tokens=np.array([Evil()], object))
    with pytest.raises(InputError, match="pickle"):
        av.read(path)
    bare = tmp_path / "bare.npz"
    bare.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="cannot read"):
        av.read(bare)
    assert not (tmp_path / "ran").exists()


def _npy(shape: tuple[int, ...], data: bytes) -> bytes:
    out = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + data


def test_sizes_are_checked_before_reading(tmp_path: Path, monkeypatch) -> None:
    """A header that lies, and a small file that inflates to a huge one."""
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("attentions.npy", _npy((12, 12, 100_000, 100_000), b"\0" * 64))
    with pytest.raises(InputError, match="another size"):
        av.read(path)
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("attentions.npy", _npy((1, 1, 2000, 2000), b"\0" * 16_000_000))
    assert bomb.stat().st_size < 100_000
    monkeypatch.setattr("attnviz.models.limits.physical_memory", lambda: 40_000_000)
    with pytest.raises(InputError, match=r"16\.0 MB, more than a quarter"):
        av.read(bomb)


@given(data=st.data())
def test_damaged_files_give_one_line(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    suffix = data.draw(st.sampled_from([".npz", ".safetensors"]))
    layout = Layout({"encoder": (2,)})
    tokens = Tokens(("a", "b"))
    capture = Capture(
        SourceInfo("m", "fresh", "e"), layout, Inputs({"encoder": Sides(tokens, tokens)}),
        {Site("encoder", 0): weights(2, 2, 2)},
    )  # fmt: skip
    raw = bytearray(recorded.dump(capture, suffix))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = folder / f"x{suffix}"
    path.write_bytes(raw)
    message = ""
    try:
        av.read(path)
    except AttnvizError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(("place", "bit"), [(8, 1), (10, 99)])
def test_encrypted_or_unknown_compression(tmp_path: Path, good, place: int, bit: int) -> None:
    """The flags and the method stand in the archive's directory, after each PK\\1\\2."""
    path = store(tmp_path / "x.npz", **good)
    raw = bytearray(path.read_bytes())
    start = raw.find(b"PK\x01\x02")
    while start >= 0:
        raw[start + place] = bit
        start = raw.find(b"PK\x01\x02", start + 1)
    path.write_bytes(raw)
    with pytest.raises(InputError, match="cannot read"):
        av.read(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [("missing.npz", "is missing"), ("folder.npz", "a folder"), ("x.pt", "No such file")],
)
def test_paths_that_cannot_be_read(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match=says):
        av.read(tmp_path / name)


def test_what_cannot_be_written(tmp_path: Path, good) -> None:
    capture = av.read(store(tmp_path / "x.npz", **good))
    with pytest.raises(UsageError, match=r"npz or \.safetensors"):
        av.write_capture(capture, tmp_path / "x.pt")
    with pytest.raises(av.OutputError, match="does not exist"):
        av.write_capture(capture, tmp_path / "no" / "x.npz")
    partial = Capture(capture.source, capture.layout, capture.inputs, {})
    with pytest.raises(UsageError, match="every head"):
        av.write_capture(partial, tmp_path / "y.npz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npz"]


# --- batches and damaged files ---------------------------------------------------------------


def padded_batch(first: int, last: int) -> np.ndarray:
    """[2, 1, 3, 5, 5]: one item whose tokens stand at first:last."""
    batch = np.zeros((2, 1, 3, 5, 5), np.float32)
    size = last - first
    batch[:, 0, :, first:last, first:last] = weights(2, 3, size, size)
    return batch


@pytest.mark.parametrize(
    "texts", [["", "", "a", "b", "c"], ["a", "b", "c", "", ""], ["", "a", "", "c", ""]]
)
def test_padding_on_either_side_and_empty_tokens(texts: list[str], tmp_path: Path) -> None:
    real = [i for i, text in enumerate(texts) if text]
    first, last = real[0], real[-1] + 1
    batch = padded_batch(first, last)
    path = store(
        tmp_path / "b.npz", attentions=batch, tokens=np.array([texts]), special=[[False] * 5]
    )
    capture = av.read(path)
    assert capture.inputs.sides["encoder"].queries.texts == tuple(texts[first:last])
    stored = batch[1, 0, :, first:last, first:last]
    assert np.array_equal(capture.maps[Site("encoder", 1)], stored)


def test_fewer_rows_than_items(tmp_path: Path) -> None:
    batch = weights(2, 3, 2, 4, 4)
    words = [["a", "b", "c", "d"]]
    path = store(tmp_path / "b.npz", attentions=batch, tokens=np.array(words * 2))
    found = list(read_items(path))
    assert [isinstance(one, Capture) for one in found] == [True, True, False]
    assert "tokens has 2 rows, too few for item 2" in str(found[2])
    flags = np.zeros((2, 4), bool)
    path = store(tmp_path / "f.npz", attentions=batch, tokens=np.array(words * 3), special=flags)
    with pytest.raises(InputError, match=r"special: expected shape \[3, 4\]"):
        recorded.load(path, 0)


def test_a_second_member_of_the_same_name_is_refused(tmp_path: Path, good) -> None:
    """zipfile lets ``attentions`` stand beside ``attentions.npy``; which one is read is luck."""
    path = store(tmp_path / "x.npz", **good)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("attentions", b"\x93NUMPY\x01\x00")
    with pytest.raises(InputError, match="two arrays called 'attentions'"):
        av.read(path)


@pytest.mark.parametrize("dtype", ["complex64", "int64", "bool"])
def test_weights_that_are_no_fractions_are_refused_in_both_formats(
    dtype: str, tmp_path: Path
) -> None:
    array = np.eye(3)[None, None].astype(dtype)
    texts = np.array(["a", "b", "c"])
    with pytest.raises(InputError, match=f"expected floating-point weights, found {dtype}"):
        av.read(store(tmp_path / "x.npz", attentions=array, tokens=texts))
    path = tmp_path / "x.safetensors"
    save_safetensors({"attentions": array}, path, metadata={"tokens": json.dumps(texts.tolist())})
    with pytest.raises(InputError, match=f"expected floating-point weights, found {dtype}"):
        av.read(path)


def test_double_precision_survives_safetensors(tmp_path: Path) -> None:
    array = weights(1, 1, 3, 3).astype(np.float64) / 3 * 3
    path = tmp_path / "x.safetensors"
    save_safetensors({"attentions": array}, path, metadata={"tokens": json.dumps(["a", "b", "c"])})
    read = av.read(path)
    assert read.maps[Site("encoder", 0)].dtype == np.float64
    assert read.inputs.sides["encoder"].queries.texts == ("a", "b", "c")


def test_headers_and_metadata_that_break_their_readers(tmp_path: Path, good) -> None:
    deep = "[" * 100_000
    path = store(tmp_path / "m.npz", **good, meta=np.array(deep))
    with pytest.raises(InputError, match="meta: expected a JSON object"):
        av.read(path)
    header = b"\x93NUMPY\x01\x00" + (10).to_bytes(2, "little") + b"(((((((((("
    with zipfile.ZipFile(tmp_path / "h.npz", "w") as archive:
        archive.writestr("attentions.npy", header)
    with pytest.raises(InputError, match="cannot read"):
        av.read(tmp_path / "h.npz")
    with zipfile.ZipFile(tmp_path / "l.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("attentions.npy", b"x" * 5000)
    data = bytearray((tmp_path / "l.npz").read_bytes())
    data[60:80] = b"\xff" * 20
    (tmp_path / "l.npz").write_bytes(data)
    with pytest.raises(InputError, match="cannot read"):
        av.read(tmp_path / "l.npz")
    codes = np.array(["a", "b", "c", "d"])
    codes.view(np.uint32)[0] = 0x7FFFFFFF
    with pytest.raises(InputError, match="invalid characters"):
        av.read(store(tmp_path / "c.npz", attentions=good["attentions"], tokens=codes))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_other_names_are_listed_with_their_shapes(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"other{suffix}"
    arrays = {"weights": np.zeros((1, 2, 3, 3), "f4"), "scale": np.zeros(3, "f4")}
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_safetensors(arrays, path)
    with pytest.raises(InputError, match=r"no array 'attentions'.*weights \[1, 2, 3, 3\]") as told:
        recorded.load(path)
    assert "scale [3]" in str(told.value)


@pytest.mark.parametrize("flag", ["ids", "words", "segments", "special", "separators"])
@pytest.mark.parametrize("values", [[np.inf, 1, 2, 3], [0.0, 1, 2, 3], ["a", "b", "c", "d"]])
def test_what_stands_beside_tokens_is_whole(tmp_path: Path, good, flag: str, values) -> None:
    path = store(tmp_path / "x.npz", **good, **{flag: np.array(values)})
    with pytest.raises(
        InputError, match=rf"x\.npz: {flag}: expected whole numbers or booleans, found"
    ):
        recorded.load(path)


def test_what_a_file_says_of_itself_is_kept_short(tmp_path: Path, good) -> None:
    """A name of a megabyte made every picture of an export take minutes."""
    long = "m" * 100_000
    meta = {"model": long, "device": long, "dtype": long, "backend": long, "exactness": long}
    meta["versions"] = {f"{n}{long[:1000]}": long for n in range(9)}
    path = store(tmp_path / "x.npz", **good, meta=np.array(json.dumps(meta)))
    found = recorded.load(path).source
    assert found.model == f"{'m' * 199}… (x.npz)"
    assert len(repr(found)) < 10_000
