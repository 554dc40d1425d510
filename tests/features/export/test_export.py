"""Exports: what is read, what is drawn, what it is called, and what is said about it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Layout
from attnviz.core.provenance import Made
from attnviz.corpus import texts as corpus
from attnviz.drawing.glyphs import LEVELS
from attnviz.errors import UsageError
from attnviz.features.export import paths, scored
from attnviz.features.export.gallery import page
from attnviz.features.export.settings import ExportSettings
from attnviz.models.controls import FreshConfig
from tests import forking
from tests.cli.calling import ok, refused
from tests.corpus.gold import results as gold

MODEL = FreshConfig(d_model=18, heads=3, layers=2)
ONE = {"jobs": 1}


def export(source: Path | str, out: Path, how: dict[str, Any] = ONE, model=MODEL, **chosen):
    return av.export(str(source), out, model=model, **{"dpi": 50, **chosen}, **how)


def written(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines) + b"\n")
    return path


def manifest(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]


def texts(out: Path) -> list[str]:
    return list(dict.fromkeys(line["text"] for line in manifest(out)))


def test_pictures_of_some_rows_and_keys(tmp_path: Path) -> None:
    """Cut as ``heatmap`` cuts, with their true positions; a text without them is left out."""
    source = written(tmp_path / "s.txt", "a b c d e f", "a b")
    out = tmp_path / "maps"
    found = export(source, out, rows="1-3", keys="0,2", select="0.1", format="png,npz")
    assert [bad.number for bad in found.bad] == [2]
    assert "ends at token 3; there are 2, from 0" in found.bad[0].reason
    lines = {line["layout"]: line for line in manifest(out)}
    picture, whole = lines["heads"], lines["weights"]
    assert picture["positions"] == {"queries": [1, 2, 3], "keys": [0, 2]}
    assert picture["tokens"]["queries"] == [whole["tokens"]["queries"][n] for n in (1, 2, 3)]
    assert picture["tokens"]["keys"] == [whole["tokens"]["queries"][n] for n in (0, 2)]
    assert "positions" not in whole
    assert len(texts(out)) == 1
    drawn = av.heatmap("a b c d e f", "0.1", model=MODEL, rows="1-3", keys="0,2")
    assert drawn.caption.startswith("queries 1–3 and keys 0, 2 of ")
    assert drawn.maps[0][1].shape == (3, 2)


# ------------------------------------------------------------------ what is read


def test_text_files_and_patterns(tmp_path: Path) -> None:
    written(tmp_path / "a.txt", b"\xef\xbb\xbfone two", "", "   ", "three four\r")
    written(tmp_path / "b.txt", "five six")
    done = export(tmp_path / "?.txt", tmp_path / "maps", select="0.0")
    assert done.inputs == done.pictures == 3
    assert texts(tmp_path / "maps") == ["one two", "three four", "five six"]
    places = [line["input"].rpartition("/")[2] for line in manifest(tmp_path / "maps")]
    assert places == ["a.txt:1", "a.txt:4", "b.txt:1"]


def test_bad_lines_are_reported_and_skipped(tmp_path: Path, capsys) -> None:
    lines = written(
        tmp_path / "x.jsonl", '{"text": "a good line", "id": 7}', "not json", '["a list"]',
        '{"text": 5}', '{"id": "no text"}', '{"text": "   "}', b'{"text": "caf\xe9"}',
        '{"text": "\\ud800 alone"}', '{"text": "a", "id": {"x": 1}}',
        '{"text": "' + "long " * 250_000 + '"}', '{"text": "' + "[" * 100 + '", "id": "fine"}',
        '{"text": "needs a pair", "pair": "second"}', "[" * 100_000,
    )  # fmt: skip
    out = tmp_path / "maps"
    arguments = [
        "export", str(lines), "-o", str(out), "--jobs", "1", "-s", "0.0", "-m", "fresh",
        "--d-model", "16",
    ]  # fmt: skip
    assert main(arguments) == 3
    error = capsys.readouterr().err
    assert [line["number"] for line in manifest(out)] == [1, 11]
    reported = re.findall(r"x\.jsonl:(\d+): (.*); skipped", error)
    assert [int(n) for n, _ in reported] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13]
    assert "Traceback" not in error
    assert len(error.splitlines()) == len(reported)
    assert main([*arguments, "--strict", "-o", str(tmp_path / "strict")]) == 1
    assert "x.jsonl:2: not JSON" in capsys.readouterr().err
    assert len(manifest(tmp_path / "strict")) <= 1


def test_tables(tmp_path: Path) -> None:
    table = written(
        tmp_path / "t.csv", "id,question,note", 'a,"what, where?",x', 'b,"two\nlines",y', "c",
        b"d,caf\xe9,z", "e,fine,",
    )  # fmt: skip
    with pytest.raises(UsageError, match="choose column from id, question, note"):
        export(table, tmp_path / "none")
    done = export(table, tmp_path / "maps", {"jobs": 1, "column": "question"}, select="1.2")
    assert texts(tmp_path / "maps") == ["what, where?", "two\nlines", "fine"]
    assert [bad.number for bad in done.bad] == [3, 4]
    assert {p.parent.name for p in (tmp_path / "maps").glob("*/*.png")} == {
        "0001-a", "0002-b", "0005-e"
    }  # fmt: skip
    tabs = written(tmp_path / "t.tsv", "text\tpair", "one two\t")
    assert export(tabs, tmp_path / "tabs").inputs == 1
    semicolons = written(tmp_path / "s.csv", "text;id", "one, two;a", '"three; four";b')
    export(semicolons, tmp_path / "semicolons", select="0.0")
    assert texts(tmp_path / "semicolons") == ["one, two", "three; four"]


def test_standard_input_and_limit(tmp_path: Path, monkeypatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(b"\n".join(b"word%d more" % n for n in range(50))))

    monkeypatch.setattr(sys, "stdin", Stdin)
    done = export("-", tmp_path / "maps", {"jobs": 1, "limit": 4}, select="0.0")
    assert done.inputs == 4
    assert [line["number"] for line in manifest(tmp_path / "maps")] == [1, 2, 3, 4]


def test_going_on_with_a_larger_limit(tmp_path: Path) -> None:
    source = written(tmp_path / "s.txt", *(f"a b c {'d ' * (n % 5)}{n}" for n in range(9)))
    out = tmp_path / "maps"
    export(source, out, {"jobs": 1, "limit": 4})
    more = export(source, out)
    assert (more.kept, more.pictures, more.inputs) == (4 * 6, 5 * 6, 9)
    again = export(source, out)
    assert (again.kept, again.pictures) == (54, 0)


# ------------------------------------------------------------------ what it is called


def test_hostile_ids_stay_in_the_folder(tmp_path: Path) -> None:
    ids = ["../../x", "a\0b", "x" * 400, "CON", "nul.txt", "🎉", "same", "same", "/etc/passwd"]
    ids += ["..", "", " ", "a/b\\c:d*e?f", "\u202e", "<script>", "é" * 300, "-rf", "x\ny"]
    lines = [json.dumps({"text": f"good text {n}", "id": name}) for n, name in enumerate(ids)]
    out = tmp_path / "deep" / "maps"
    done = export(written(tmp_path / "x.jsonl", *lines), out, select="0.0", format="png,npz")
    assert done.bad == []
    assert done.pictures == 2 * len(ids)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "x.jsonl"]
    assert sorted(p.name for p in out.parent.iterdir()) == ["maps"]
    folders = [p.name for p in out.iterdir() if p.is_dir() and p.name != ".attnviz"]
    assert len(folders) == len(ids)
    for name in folders:
        assert re.fullmatch(r"[0-9]{4}(-[a-z0-9-]{1,32})?", name)
    assert [line["id"] for line in manifest(out) if line["layout"] == "heads"] == ids


@given(st.text(max_size=100), st.integers(1, 10**7))
def test_every_name_is_safe(text: str, number: int) -> None:
    folder = paths.folder_name(number, text)
    assert paths.SAFE.fullmatch(f"{folder}/L00H00.png")
    assert len(folder) <= 50
    assert int(folder.split("-")[0]) == number


def test_names_of_several_kinds_of_attention() -> None:
    layout = Layout({"encoder": (4,), "cross": (4,)})
    head = av.Head(av.Site("cross", 0), 3)
    assert paths.stem("heads", [head], layout) == "cross-L00H03"
    assert paths.stem("overview", [head], layout) == "cross-overview"
    plain = Layout({"decoder": (4,) * 12})
    assert paths.stem("layers", [av.Head(av.Site("decoder", 11), 3)], plain) == "L11"


# ------------------------------------------------------------------ what is drawn


@pytest.mark.parametrize(
    "format",
    [
        "png",
        pytest.param("svg", marks=pytest.mark.slow),
        pytest.param("pdf", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_picture(tmp_path: Path, format: str) -> None:
    source = written(tmp_path / "s.txt", "the keys to the cabinet")
    style = {"dpi": 50, "values": format == "png", "hide": "labels" * (format == "svg")}
    out = tmp_path / "maps"
    done = export(
        source, out, layout=",".join(paths.LAYOUTS), select="*.1", **style,
        format=f"{format},safetensors",
    )  # fmt: skip
    found = {path.name for path in (out / "0001-the-keys-to-the").iterdir()}
    pictures = {"L00H01", "L01H01", "L00", "L01", "grid", "overview"}
    assert found == {f"{name}.{format}" for name in pictures} | {"weights.safetensors"}
    assert done.pictures == 7
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert all(p.read_bytes().startswith(starts[format]) for p in out.glob(f"*/*.{format}"))


def test_weights_beside_the_pictures_are_those_of_a_capture(tmp_path: Path) -> None:
    source = written(tmp_path / "s.txt", "the keys to the cabinet")
    export(source, tmp_path / "maps", select="0.1,1.2", format="png,npz")
    captured = av.capture("the keys to the cabinet", model=MODEL)
    with np.load(tmp_path / "maps" / "0001-the-keys-to-the" / "weights.npz") as stored:
        assert set(stored) == {"L00H01", "L01H02", "queries", "keys"}
        assert json.loads(str(stored["queries"])) == ["the", "keys", "to", "the", "cabinet"]
        for name, text in (("L00H01", "0.1"), ("L01H02", "1.2")):
            (head,) = av.select(text, captured)
            assert np.abs(stored[name] - captured[head]).max() < 1e-6


def test_role_and_top_choose_heads_of_each_sentence(tmp_path: Path, minilm: str) -> None:
    source = written(tmp_path / "s.txt", "The keys to the cabinet are on the table.", "A b c d e f")
    export(source, tmp_path / "role", model=minilm, role="previous")
    export(source, tmp_path / "top", model=minilm, select="clearest:2")
    for number, text in ((1, "The keys to the cabinet are on the table."), (2, "A b c d e f")):
        report = av.heads(text, model=minilm)
        expected = {h.head.name for h in report.heads if any(r.name == "previous" for r in h.roles)}
        lines = [line for line in manifest(tmp_path / "role") if line["number"] == number]
        assert {f"{line['layer']}.{line['index']}" for line in lines} == expected
        assert all("previous" in line["roles"] for line in lines)
        best = sorted(
            (h for h in report.heads if h.roles),
            key=lambda h: (
                h.does is None,
                -max(r.evidence.lift or 0 for r in h.roles if r.rests is (h.does is None)),
                h.head,
            ),
        )[:2]
        lines = [line for line in manifest(tmp_path / "top") if line["number"] == number]
        assert {f"{li['layer']}.{li['index']}" for li in lines} == {h.head.name for h in best}
        for line in lines:
            (scores,) = (
                h for h in report.heads if h.head.name == f"{line['layer']}.{line['index']}"
            )
            for name, score in line["scores"].items():
                assert score["mean"] == pytest.approx(scores.scores[name].mean, rel=1e-4, abs=1e-6)


def test_padding_and_batches_do_not_change_maps(minilm: str, monkeypatch) -> None:
    """Sentences of very different lengths in one padded batch, against one by one."""
    source = av.load(minilm)
    heads = frozenset(source.layout)
    items = [
        corpus.Text(n + 1, f"x:{n}", av.Prompt(f"{'the keys to a cabinet ' * n} are lost ."))
        for n in (0, 1, 2, 6)
    ]

    def ran() -> dict[int, scored.Scored]:
        found = scored.run_texts(items, source, ExportSettings(), heads, lambda i: True)
        return {result.input.number: result for result in found}

    sizes = []
    forward = type(source).forward

    def counted(self, batch, *rest):
        sizes.append(len(batch))
        return forward(self, batch, *rest)

    monkeypatch.setattr(type(source), "forward", counted)
    together = ran()
    one_by_one = partial(corpus.batches, largest=1)
    monkeypatch.setattr(scored, "batches", one_by_one)
    alone = ran()
    assert sizes == [4] + [1] * 4
    for number, one in alone.items():
        many = together[number]
        assert many.capture.inputs == one.capture.inputs
        for site, weights in one.capture.maps.items():
            assert many.capture.maps[site].shape == weights.shape
            assert np.abs(many.capture.maps[site] - weights).max() < 3e-6
            assert np.abs(many.capture.maps[site].sum(-1) - 1).max() < 1e-5
        for head, scores in one.scores.items():
            for name, score in scores.scores.items():
                other = many.scores[head].scores[name]
                assert other.rows == score.rows
                assert (other.mean is None) == (score.mean is None)
                assert other.mean is None or abs(other.mean - score.mean) < 1e-4


def test_cross_attention(tmp_path: Path) -> None:
    source = written(
        tmp_path / "x.jsonl",
        '{"text": "the keys", "pair": "die Schlüssel liegen hier"}',
        '{"text": "no context"}',
    )
    done = export(source, tmp_path / "maps", model=FreshConfig(kind="cross", d_model=16, heads=2))
    assert (done.pictures, len(done.bad)) == (2, 1)
    line = manifest(tmp_path / "maps")[0]
    assert line["tokens"]["keys"] == ["die", "Schlüssel", "liegen", "hier"]
    assert line["site"] == "cross"


def test_pictures_name_the_model_and_the_text_and_what_they_leave_out(tmp_path: Path) -> None:
    text = "the keys to the cabinet"
    source = written(tmp_path / "s.txt", text)
    style = {"dpi": 50, "hide": "sink", "format": "svg"}
    export(source, tmp_path / "maps", select="0.*", layout="heads,layers,overview", **style)
    lines = manifest(tmp_path / "maps")
    assert len(lines) == 5
    for line in lines:
        svg = (tmp_path / "maps" / line["file"]).read_text()
        drawn = " ".join(re.findall(r">([^<>]+)</(?:text|tspan)>", svg))
        assert set(f"{line['model']}: {text}".split()) <= set(drawn.split())
        assert "without the first token and separators" in drawn
        assert line["tokens"]["queries"] == text.split()[1:]


def test_a_text_of_nothing_but_the_sink_is_left_out(tmp_path: Path) -> None:
    source = written(tmp_path / "s.txt", "cat", "the cat sat")
    done = export(source, tmp_path / "maps", dpi=50, hide="sink")
    assert (done.inputs, [bad.number for bad in done.bad]) == (1, [1])
    assert "nothing is left" in str(done.bad[0].reason)


def test_the_pictures_show_the_weights(tmp_path: Path) -> None:
    """From the file back to the weights, without any of the exporter's code in between."""
    source = written(tmp_path / "s.txt", "the keys to the cabinet are lost")
    export(source, tmp_path / "maps", select="0.1")
    captured = av.capture("the keys to the cabinet are lost", model=MODEL)
    weights = captured[av.select("0.1", captured)[0]]
    pixels = np.asarray(Image.open(next((tmp_path / "maps").glob("*/*.png"))))
    levels = np.round(weights / weights.max() * (LEVELS - 1)).astype(int)
    row = next(n for n, line in enumerate(pixels) if (line < 240).sum() > 40)
    runs = [int(v) for v in pixels[row + 3][pixels[row + 3] < 240]]
    seen = [value for n, value in enumerate(runs) if n == 0 or value != runs[n - 1]]
    expected = [int(v) for n, v in enumerate(levels[0]) if n == 0 or v != levels[0][n - 1]]
    assert seen[: len(expected)] == expected


# ------------------------------------------------------------------ processes, manifest, gallery


def test_workers_draw_the_same_files(tmp_path: Path) -> None:
    source = written(tmp_path / "s.txt", *(f"the keys {'to ' * (n % 4)}{n}" for n in range(5)))
    for jobs in (1, 2):
        export(source, tmp_path / str(jobs), {"jobs": jobs}, layout="heads,grid")
    one, two = (
        {
            path.relative_to(tmp_path / jobs): path.read_bytes()
            for path in (tmp_path / jobs).rglob("*.*")
            if path.is_file()
        }
        for jobs in ("1", "2")
    )
    assert one == two


def test_workers_do_not_load_torch() -> None:
    code = (
        "import sys, attnviz.corpus.worker, attnviz.features.export.pictures, "
        "attnviz.drawing.raster, attnviz.drawing.heatmap_figure, attnviz.drawing.mosaic; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_manifest_lines_say_everything(tmp_path: Path) -> None:
    source = written(tmp_path / "x.jsonl", '{"text": "the keys", "id": "k1"}')
    export(source, tmp_path / "maps", layout="heads,overview")
    lines = manifest(tmp_path / "maps")
    first, last = lines[0], lines[-1]
    assert (first["id"], first["text"], first["input"]) == ("k1", "the keys", f"{source.name}:1")
    assert (first["site"], first["layer"], first["index"]) == ("encoder", 0, 0)
    assert first["head"] == "0.0"
    assert first["tokens"] == {"queries": ["the", "keys"]}
    assert first["settings"]["style"]["palette"] == "viridis"
    assert set(first["versions"]) >= {"attnviz", "torch"}
    for name in ("sha256", "bytes", "scores", "roles", "model", "backend", "exactness", "device"):
        assert name in first
    assert last["layout"] == "overview"
    assert set(last["heads"]) == {f"{layer}.{head}" for layer in range(2) for head in range(3)}


def test_hostile_text_stays_text_in_the_gallery(tmp_path: Path) -> None:
    text = "</script><img src=x onerror=alert(1)> & <!-- \u2028 ' \" ]]>"
    lines = [json.dumps({"text": text, "id": text}), json.dumps({"text": "plain"})]
    export(written(tmp_path / "x.jsonl", *lines), tmp_path / "maps", select="0.0")
    html = (tmp_path / "maps" / "index.html").read_text()
    assert "<img" not in html
    assert html.count("</script>") == 3  # with what made it
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    data = json.loads(found[1])
    assert [item[2] for item in data["items"]] == [text, "plain"]
    assert data["items"][0][3][0][0] == "0001-script-img-src-x/L00H00.png"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)  # a name space, no address
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; img-src 'self' file:; script-src 'sha256-")
    assert "unsafe" not in policy


def test_a_gallery_of_many_pictures_is_light() -> None:
    line = {
        "layout": "heads", "site": "encoder", "layer": 3, "roles": ["previous"], "id": None,
        "model": "many", "map": [192, 55, 578, 578],
    }  # fmt: skip
    lines = (
        json.dumps({**line, "number": n // 5 + 1, "index": n % 5, "text": f"sentence {n // 5}",
                    "file": f"{n // 5 + 1:04d}-sentence-{n // 5}/L03H{n % 5:02d}.png"}).encode()
        for n in range(10_000)
    )  # fmt: skip
    assert sum(map(len, page(lines, Made(), "blues"))) < 1_000_000


def test_the_closing_line(tmp_path: Path, capsys) -> None:
    source = written(tmp_path / "s.txt", "one two", "three four")
    arguments = ["export", str(source), "-o", str(tmp_path / "maps"), "--jobs", "1"]
    arguments += ["-m", "fresh", "--heads", "2"]
    assert main(arguments) == 0
    out = capsys.readouterr()
    assert re.match(
        r"wrote 4 files to \S+/maps · 2 inputs in [\d.]+ s · [\d.,]+ an? \w+ · 0 skipped", out.out
    )
    assert out.err == ""
    assert "wrote 0 files" in (again := ok(capsys, *arguments))
    assert "4 were there already" in again
    assert ok(capsys, *arguments, "--quiet") == ""


# ------------------------------------------------------------------ what does not go together


def test_words_in_the_pictures_and_weights(tmp_path: Path, minilm: str) -> None:
    source = written(tmp_path / "s.txt", "unbelievable embeddings")
    options = {"model": minilm, "select": "0.0-1", "dpi": 50, "words": True}
    export(source, tmp_path / "maps", layout="heads,grid", format="png,safetensors", **options)
    shown = {line["layout"]: line["tokens"]["queries"] for line in manifest(tmp_path / "maps")}
    assert shown["heads"] == shown["grid"] == ["[CLS]", "unbelievable", "embeddings", "[SEP]"]
    assert shown["weights"] == shown["heads"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.txt", b"\x7fELF\x00\x01", "no text: it holds zero bytes"),
        ("b.txt", "a b".encode("utf-16"), "UTF-16; save the file as UTF-8"),
        ("c.txt", b"caf\xe9", "not UTF-8 (byte 3 is 0xe9); save the file as UTF-8"),
        ("d.jsonl", b'{"text": }', "not JSON (Expecting value at character 10)"),
        ("e.jsonl", b'{"text": " "}', "the text is empty"),
        ("f.jsonl", b'{"text": "a", "pair": 3}', "'pair' is no text (3)"),
        ("g.csv", b"text,text\na,b", "two columns 'text'; rename one"),
        ("h.csv", b"", "no header; the first line must name the columns"),
        ("j.csv", b"text,id\nHello, world,1", "3 columns instead of 2"),
        ("i.jsonl", b'{"text": "a", "pair": "b"}', "take pair"),
    ],
)
def test_what_is_wrong_with_an_input_is_said_in_its_terms(
    tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(data)
    model = "demo-gpt2" if name == "i.jsonl" else MODEL
    (bad,) = export(tmp_path / name, tmp_path / "maps", model=model).bad
    assert says in bad.reason


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one two\nthree four\n",))
    writer.start()
    code = main(["export", str(pipe), "-o", str(tmp_path / "maps"), "--jobs", "1", "-s", "0.0"])
    writer.join()
    assert code == 0
    assert texts(tmp_path / "maps") == ["one two", "three four"]


def test_a_role_that_no_head_has_is_told(tmp_path: Path, capsys) -> None:
    source = written(tmp_path / "s.txt", "one two")
    arguments = ["export", str(source), "-o", str(tmp_path / "maps")]
    arguments += ["-m", "fresh", "--heads", "2"]
    assert main([*arguments, "--jobs", "1", "--role", "induction"]) == 0
    assert "no head has the role 'induction'" in capsys.readouterr().err


def test_the_closing_line_on_a_console_without_unicode(tmp_path: Path) -> None:
    source = written(tmp_path / "s.txt", "one two")
    command = [
        sys.executable, "-m", "attnviz", "export", str(source), "-m", "fresh", "--heads", "2",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = forking.run(
        [*command, "-o", str(tmp_path / "äöü"), "--jobs", "1"], env=environment, encoding="ascii"
    )
    assert found.returncode == 0
    assert "2 files to" in found.stdout
    assert found.stdout.isascii()


def test_recorded_files_keep_their_own_provenance(tmp_path: Path) -> None:
    files = []
    for name, dtype in (("a", "float32"), ("b", "bfloat16")):
        captured = av.capture("the keys to the cabinet", model=MODEL, dtype=dtype)
        (tmp_path / name).mkdir()
        files.append(av.write_capture(captured, tmp_path / name / "c.npz"))
    av.export(files, tmp_path / "maps", recorded=True, jobs=2)
    lines = manifest(tmp_path / "maps")
    assert {(line["number"], line["dtype"]) for line in lines} == {(1, "float32"), (2, "bfloat16")}
    index = (tmp_path / "maps" / "index.html").read_bytes()
    again = av.export(files, tmp_path / "maps", recorded=True, **ONE)
    assert (again.pictures, again.kept) == (0, len(lines))
    assert (tmp_path / "maps" / "index.html").read_bytes() == index


def test_one_recorded_file_or_item_does_not_stop_the_others(tmp_path: Path) -> None:
    small = av.capture("the keys", model=FreshConfig(d_model=18, heads=3, layers=1))
    large = av.capture("the keys", model=MODEL)
    files = [
        av.write_capture(found, tmp_path / f"{n}.npz") for n, found in enumerate((large, small))
    ]
    weights = np.stack(list(large.maps.values()))[:, None].repeat(3, 1)
    weights[:, 0] = np.nan
    tokens = np.array([large.inputs.sides["encoder"].queries.texts] * 3)
    np.savez(tmp_path / "batch.npz", attentions=weights, tokens=tokens)
    files += [tmp_path / "batch.npz", written(tmp_path / "broken.npz", "nothing")]
    done = av.export(files, tmp_path / "maps", recorded=True, select="1.0", **ONE)
    assert [bad.number for bad in done.bad] == [2, 3, 6]
    assert "no head" in done.bad[0].reason
    assert (done.inputs, done.pictures) == (3, 3)
    again = av.export(files, tmp_path / "maps", recorded=True, select="1.0", **ONE)
    assert (again.pictures, again.kept) == (0, 3)
    assert {line["backend"] for line in manifest(tmp_path / "maps")} == {"recorded"}


# ------------------------------------------------------------------ roles from annotation


def test_roles_of_results_choose_and_name_heads(tmp_path: Path, capsys) -> None:
    relations = gold.syntax(
        roles=[gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.4, 0.3, 0.5), 200)]
    ).save(tmp_path / "syntax.json")
    source = written(tmp_path / "a.txt", "The cat sat.", "A dog ran home.")
    run = ["export", str(source), "-m", "demo-bert", "--jobs", "1", "--format", "svg"]
    given = [*run, "-o", str(tmp_path / "with"), "--evidence", str(relations)]
    assert main([*given, "--role", "syntactic: obj"]) == 0
    assert "not from this one" in " ".join(capsys.readouterr().err.split())
    lines = manifest(tmp_path / "with")
    assert [Path(line["file"]).name for line in lines] == ["L01H02.svg"] * 2
    assert all(line["roles"][0] == "syntactic: obj" for line in lines)
    for line in lines:
        assert "syntactic: obj" in (tmp_path / "with" / line["file"]).read_text()
    # the same relation by its kind; as many files from the same folder
    assert "2 were there already" in ok(capsys, *given, "--role", "syntactic: obj")
    kind = ["-o", str(tmp_path / "kind"), "--evidence", str(relations), "--role", "syntactic"]
    assert main([*run, *kind]) == 0
    assert len(manifest(tmp_path / "kind")) == 2
    # results that differ are another export
    antecedents = gold.coref(roles=[gold.antecedent_head("3.0", (0.7, 0.6, 0.8), (0.2, 0.1, 0.3))])
    other = [str(antecedents.save(tmp_path / "coref.json"))]
    assert main([*given, "--evidence", *other, "--role", "syntactic: obj"]) == 1
    assert "evidence was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--role", "syntactic: obj"], "needs annotated text; give --evidence the JSON of attnviz"),
        (["--role", "coreference", "--evidence", "syntax.json"], "syntactic: obj are given"),
        (["--evidence", "syntax.json", "-m", "demo-gpt2"], "syntax.json is of"),
    ],
)
def test_a_role_that_no_result_gives_is_refused(
    tmp_path: Path, capsys, monkeypatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    role = gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.4, 0.3, 0.5), 200)
    gold.syntax(roles=[role]).save("syntax.json")
    written(tmp_path / "a.txt", "The cat sat.")
    run = ["export", "a.txt", "-o", "out", "-m", "demo-bert", "--jobs", "1", *arguments]
    assert says in " ".join(refused(capsys, *run, code=2).split())
