"""Two runs side by side: distances by scipy-free hand formulas, intervals, alignment, refusals."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.comparing.rows import distances
from attnviz.errors import InputError, UsageError
from attnviz.models.untrained import FreshConfig
from attnviz.statistics.paired import difference
from tests.render.test_view_page import axe
from tests.viewing import opened, until

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "diff.schema.json").read_text("utf-8"))
TIRED = "The animal did not cross the street because it was too tired"
WIDE = TIRED.replace("tired", "wide")
TEXTS = ("The keys to the cabinet", "a b c a b", "One two three, and one two")


def js(p: np.ndarray, q: np.ndarray) -> float:
    """√ of the mean of two Kullback-Leibler divergences to the mixture, in bits."""
    m = (p + q) / 2

    def kl(a: np.ndarray) -> float:
        return sum(x * np.log2(x / y) for x, y in zip(a, m, strict=True) if x > 0)

    return float(np.sqrt(max((kl(p) + kl(q)) / 2, 0)))


def test_distances_by_hand() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), (2, 3, 4))
    q[0, 1] = p[0, 1]
    p[0, 2], q[0, 2] = [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]
    p[1, 0] = q[1, 0] = 0
    found = distances(p, q)
    assert found[0, 1] == 0
    assert found[0, 2] == pytest.approx(1)
    assert np.isnan(found[1, 0])
    for head in range(3):
        for row in range(4):
            if (head, row) != (1, 0):
                expected = js(p[head, row], q[head, row])
                assert found[head, row] == pytest.approx(expected, abs=1e-9)
    half = np.array([[[0.5, 0.0]]])  # the rest went to a learned sink
    assert distances(half, half * 2)[0, 0] == pytest.approx(
        js(np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    )


def test_captures_by_hand() -> None:
    one, other = av.capture(TIRED), av.capture(WIDE)
    found = av.diff(one, other, align="position")
    assert len(found.heads) == 24
    for head in found.heads:
        layer, index = map(int, head.name.split("."))
        maps = [capture[av.Head(av.Site("decoder", layer), index)] for capture in (one, other)]
        rows = [js(*map(np.float64, pair)) for pair in zip(*maps, strict=True)]
        assert head.distance is not None
        assert head.distance.mean == pytest.approx(np.mean(rows), abs=1e-4)
        assert head.distance.largest == pytest.approx(max(rows), abs=1e-4)
        assert head.distance.row == len(rows) - 1  # a causal model sees the other word last
        assert head.distance.token == " tired"
        key = av.Head(av.Site("decoder", layer), index)
        np.testing.assert_allclose(found.maps[key], maps[1] - maps[0], atol=1e-6)
    means = [head.largest() for head in found.heads]
    assert means == sorted(means, reverse=True)
    assert found.largest == means[0]


def test_the_same_run_differs_by_nothing() -> None:
    one = av.capture(TEXTS[0])
    found = av.diff(one, one)
    assert found.largest == 0
    assert not any(head.gained or head.lost for head in found.heads)
    assert all(change.change == 0 for head in found.heads for change in head.changes)


def test_scores_and_roles_are_those_of_heads() -> None:
    with av.load("demo-gpt2").gated({"0.5": 0, "1.4": 0}) as changed:
        other = av.capture(TEXTS[2] * 2, model=changed)
        after = av.heads(other)
    one = av.capture(TEXTS[2] * 2)
    before = av.heads(one)
    found = {head.name: head for head in av.diff(one, other).heads}
    lost = 0
    for a, b in zip(before.heads, after.heads, strict=True):
        head = found[a.head.name]
        for change in head.changes:
            assert change.before == pytest.approx(a.scores[change.name].mean)
            assert change.after == pytest.approx(b.scores[change.name].mean)
            assert change.low is None
        names = [{role.name for role in one.roles} for one in (a, b)]
        assert set(head.gained) == names[1] - names[0]
        assert set(head.lost) == names[0] - names[1]
        lost += len(head.lost)
    assert lost > 0


def test_paired_intervals() -> None:
    """One row a text: the t interval of the differences, by hand."""
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=(2, 12))
    change, low, high = difference([(a, 1) for a in before], [(a, 1) for a in after])
    d = after - before
    half = 2.200985 * d.std(ddof=1) / np.sqrt(12)  # t with 11 degrees of freedom
    assert change == pytest.approx(d.mean())
    assert (low, high) == pytest.approx((d.mean() - half, d.mean() + half), rel=1e-5)
    shared = [(a, 1) for a in before + 0.5]
    assert difference([(a, 1) for a in before], shared) == pytest.approx((0.5, 0.5, 0.5))
    assert difference([(1.0, 2)], [(2.0, 2)]) == (0.5, None, None)


def test_many_texts_through_two_models() -> None:
    model = av.load("demo-gpt2")
    bare = av.load("demo-gpt2")
    with bare.gated({"1.4": 0}):
        found = av.diff(TEXTS, model=model, against=bare)
    assert found.texts == 3
    assert found.maps == {}
    by_name = {head.name: head for head in found.heads}
    assert by_name["0.0"].distance is not None
    assert by_name["0.0"].distance.mean == 0  # nothing before the gate changes
    assert found.heads[0].name.split(".")[0] in "23"
    sure = [c for head in found.heads for c in head.changes if c.sure]
    assert sure
    assert all(c.low <= c.change <= c.high for c in sure)
    assert found.heads[0].distance is not None
    assert found.heads[0].distance.text in range(3)


def test_alignment() -> None:
    with pytest.raises(InputError, match=r"differ from position 13 on: ' tired' and ' wide'"):
        av.diff(av.capture(TIRED), av.capture(WIDE))
    with pytest.raises(InputError, match="4 tokens and 3 cannot be laid side by side"):
        av.diff(av.capture("a b c"), av.capture("a b"), align="position")
    long, short = av.capture("an unextraordinariest cat"), av.capture("an old cat")
    with pytest.raises(InputError, match="cannot be laid side by side"):
        av.diff(long, short, align="position")
    words = av.diff(long, short, align="word")
    assert len(words.sides["decoder"].queries) == 4
    with pytest.raises(UsageError, match="no alignment 'line': choose one of token, position"):
        av.diff(long, short, align="line")


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    one = av.capture("a b")
    with pytest.raises(InputError, match="only the same heads"):
        av.diff(one, av.capture("a b", model=FreshConfig(heads=4)))
    with pytest.raises(InputError, match="keep other layers"):
        av.diff(one, av.capture("a b", select="0.*"))
    with pytest.raises(InputError, match="holds weights, the other norm"):
        av.diff(one, av.capture("a b", weigh="norm"))
    with pytest.raises(UsageError, match="give two runs"):
        av.diff("a b")
    with pytest.raises(UsageError, match="only texts go through two models"):
        av.diff(one, against="demo-gpt2")
    with pytest.raises(InputError, match="no text to compare"):
        av.diff([], against="demo-gpt2")
    (tmp_path / "x.json").write_text('{"schema": "other"}')
    with pytest.raises(InputError, match="has the schema 'other'"):
        av.diff(tmp_path / "x.json", tmp_path / "x.json")
    with pytest.raises(InputError, match="only be compared with another report"):
        av.diff(tmp_path / "x.json", one)
    with pytest.raises(InputError, match="cannot read"):
        av.diff(tmp_path / "none.json", tmp_path / "none.json")


def test_reports(tmp_path: Path) -> None:
    paths = [av.ablate(text).save(tmp_path / f"{n}.json") for n, text in enumerate(TEXTS[:2])]
    found = av.diff(*paths)
    documents = [json.loads(path.read_text("utf-8")) for path in paths]
    effects = [{e["name"]: e["effect"] for e in doc["effects"]} for doc in documents]
    single = {head.name: head for head in found.heads}
    for name, effect in effects[0].items():
        if name in effects[1]:
            assert single[name].changes[0].change == pytest.approx(effects[1][name] - effect)
    assert found.kind == "ablate"
    with pytest.raises(UsageError, match="no maps to draw"):
        found.figure()
    jsonschema.validate(found.to_json(), SCHEMA)
    other = json.loads(paths[1].read_text("utf-8")) | {"metric": "kl"}
    (tmp_path / "kl.json").write_text(json.dumps(other))
    with pytest.raises(InputError, match="metric is loss in"):
        av.diff(paths[0], tmp_path / "kl.json")


def test_profiles_by_state_file(tmp_path: Path) -> None:
    files = []
    for number, texts in enumerate((TEXTS, (*TEXTS[::-1], "the cat and the cat"))):
        (tmp_path / f"{number}.txt").write_text("\n".join(texts))
        files.append(tmp_path / f"{number}.profile")
        av.profile(str(tmp_path / f"{number}.txt"), out=files[-1], jobs=1)
    found = av.diff(*files)
    assert found.kind == "profile"
    assert len(found.heads) == 24
    assert any("3 texts, the second of 4" in note for note in found.notes)
    one, other = (av.read_profile(path) for path in files)
    head = next(h for h in one.heads if h.head.name == found.heads[0].name)
    means = [profile[head.head].estimates["top"].mean for profile in (one, other)]
    (change,) = (c for c in found.heads[0].changes if c.name == "top")
    assert (change.before, change.after) == pytest.approx(tuple(means))


def test_files_and_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a.npz", TIRED), ("b.safetensors", WIDE)):
        assert main(["capture", text, "-o", name, "-q"]) == 0
    capsys.readouterr()
    same = ["diff", "a.npz", "a.npz", "--fail-over", "0"]
    assert main(same) == 0
    assert "no difference" in capsys.readouterr().out
    near = ["diff", "a.npz", "b.safetensors", "--align", "position"]
    assert main([*near, "--fail-over", "0.9"]) == 0
    assert main([*near, "--fail-over", "0.01", "--plot", "d.png"]) == 1
    captured = capsys.readouterr()
    assert "head 3.1" in captured.out
    assert "more than 0.01" in captured.err
    assert Path("d.png").read_bytes().startswith(b"\x89PNG")
    assert main([*near, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["before"] == "a.npz"
    assert main([*near, "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "head,figure,before,after,change,low,high"
    assert main(["diff", TIRED, WIDE, "--align", "position", "--top", "2"]) == 0
    assert "22 heads differ less" in capsys.readouterr().out
    Path("t.txt").write_text("\n".join(TEXTS))
    assert main(["diff", "--lines", "t.txt", "--against", "demo-gpt2"]) == 0
    report = av.diff("a.npz", "b.safetensors", align="position")
    for name, start in (("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.json", b"{")):
        assert report.save(name).read_bytes().startswith(start)
    assert replace(report, heads=()).largest == 0


def test_the_page_has_the_maps(tmp_path: Path, browser: Any) -> None:
    report = av.diff(TIRED, WIDE, align="position")
    path = report.save(tmp_path / "d.html")
    by_name = {report.layout.name(head): head for head in report.maps}
    wide = av.capture(WIDE)
    with opened(browser) as found:
        found.documents.add(path.as_uri())
        page = found.page
        page.goto(path.as_uri())
        names = page.eval_on_selector_all("#heads tbody tr", "all => all.map(r => r.dataset.head)")
        assert names == [head.name for head in report.heads]
        assert f"Head {names[0]}" in page.inner_text("#card")
        page.focus(f'[data-head="{names[1]}"] a')
        page.keyboard.press("Enter")
        until(page, f"document.querySelector('#card h2').textContent.includes('{names[1]}')")
        head = by_name[names[1]]
        last = report.maps[head].shape[0] - 1
        page.focus("#maps")
        for _ in range(last):
            page.keyboard.press("ArrowDown")
        column = int(abs(report.maps[head][last]).argmax())
        for _ in range(column):
            page.keyboard.press("ArrowRight")
        said = page.inner_text("#cell")
        before, change = report.first[head][last, column], report.maps[head][last, column]
        assert wide[names[1]][last, column] == pytest.approx(before + change, abs=1e-6)
        assert "tired" in said
        assert "wide" in said
        numbers = [float(n) for n in re.findall(r"[0-9]\.[0-9]+", said.replace("<0.0001", "0.0"))]
        assert numbers == pytest.approx([before, before + change, abs(change)], abs=0.006)
        box = page.locator("#maps canvas").nth(2).bounding_box()
        page.mouse.move(box["x"] + box["width"] - 3, box["y"] + box["height"] - 3)
        assert f"({last}, {last})" in page.inner_text("#cell")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing_on_the_page(
    tmp_path: Path, browser: Any, scheme: str, width: int
) -> None:
    path = av.diff(TIRED, WIDE, align="position").save(tmp_path / "d.html")
    size = {"width": width, "height": 900}
    with opened(browser, color_scheme=scheme, viewport=size) as found:
        found.documents.add(path.as_uri())
        found.page.goto(path.as_uri())
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        found.page.evaluate(axe())
        violations = found.page.evaluate("axe.run()")["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in violations] == []


def test_what_has_no_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(TEXTS))
    page = str(tmp_path / "d.html")
    assert main(["diff", "--lines", str(texts), "--against", "demo-gpt2", "-o", page]) == 2
    assert "3 were compared" in capsys.readouterr().err
    assert main(["diff", TIRED, TIRED, "-o", page]) == 0
    assert main(["diff", TIRED, TIRED, "-o", "d.txt"]) == 2
    assert ".html" in capsys.readouterr().err
