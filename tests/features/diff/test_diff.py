"""Two runs side by side: distances by scipy-free hand formulas, intervals, alignment, refusals."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.cli.console import DIFFERS, NOTHING_COMPARED
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features import results
from attnviz.features.diff.result import Diff
from attnviz.features.diff.run import distances, paired
from attnviz.models.cache import identity
from attnviz.models.controls import FreshConfig
from attnviz.statistics.order import Between, Medians
from tests import ROOT
from tests.checkpoints import write
from tests.repeated import REPEATED
from tests.viewing import opened, until

SCHEMA = Diff.json_schema()
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


def one_row(*values: float) -> tuple[np.ndarray, np.ndarray]:
    """Texts of one row each, of one mean."""
    return np.array(values)[:, None], np.ones((len(values), 1), int)


def judged(before: np.ndarray, after: np.ndarray) -> tuple[Medians, Between]:
    """Of texts of one row each."""
    runs = [one_row(*before), one_row(*after)]
    return paired(runs, [a.sum(0) / b.sum(0) for a, b in runs])


def test_paired_intervals() -> None:
    """One row a text: the t interval of the differences, by hand, and their median."""
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=(2, 12))
    typical, own = judged(before, after)
    d = after - before
    half = 2.200985 * d.std(ddof=1) / np.sqrt(12)  # t with 11 degrees of freedom
    assert own.value == pytest.approx(d.mean())
    ends = (own.low[0], own.high[0])
    assert ends == pytest.approx((d.mean() - half, d.mean() + half), rel=1e-5)
    assert typical.center == pytest.approx(np.median(d))
    assert sorted(d)[2] <= typical.joint_low[0] <= sorted(d)[3]  # of 12 the third, 3.9 %
    typical, own = judged(before, before + 0.5)
    assert own.value == pytest.approx(0.5)
    assert np.isnan([own.low, own.high]).all()  # no spread says how sure a mean is
    assert typical.sure.all()  # and all texts say the same
    typical, own = judged(np.array([1.0]), np.array([1.5]))
    assert own.value == pytest.approx(0.5)
    assert np.isnan([own.low, typical.low]).all()


def test_means_of_texts_of_many_lengths_by_hand() -> None:
    """Two ratios with rows of their own: what both share in a text cancels."""
    rng = np.random.default_rng(2)
    runs = [(rng.normal(size=(30, 4)), rng.integers(1, 9, (30, 4))) for _ in "ab"]
    p, q = means = [a.sum(0) / b.sum(0) for a, b in runs]
    typical, own = paired(runs, means)
    (a, b), (c, d) = runs
    u = (c - q * d) / d.sum(0) - (a - p * b) / b.sum(0)
    error = np.sqrt(30 / 29 * (u * u).sum(0))
    assert own.high - own.value == pytest.approx(2.045230 * error, rel=1e-5)
    assert typical.center == pytest.approx(np.median(c / d - a / b, axis=0))


def test_many_texts_through_two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.features.diff.moved.NEED_TOKENS", 0)  # see test_moved
    model = av.load("demo-gpt2")
    bare = av.load("demo-gpt2")
    turned = (" ".join(reversed(text.split())) for text in REPEATED)
    many = tuple(dict.fromkeys((*TEXTS, *REPEATED, *turned)))[:18]
    with bare.gated({"1.4": 0}):
        found = av.diff(many, model=model, other_model=bare)
    assert found.texts == 18
    assert found.maps == {}
    by_name = {head.name: head for head in found.heads}
    assert by_name["0.0"].distance is not None
    assert by_name["0.0"].distance.mean == 0  # nothing before the gate changes
    assert found.heads[0].name.split(".")[0] in "23"
    sure = [c for head in found.heads for c in head.changes if c.sure]
    assert sure
    assert all(c.low <= c.change <= c.high for c in sure)
    assert all(c.joint_low <= c.typical <= c.joint_high for c in sure)
    assert found.heads[0].distance is not None
    assert found.heads[0].distance.text in range(18)


def test_alignment() -> None:
    with pytest.raises(InputError, match=r"differ from position 12 on: ' tired' and ' wide'"):
        av.diff(av.capture(TIRED), av.capture(WIDE))
    with pytest.raises(InputError, match="4 tokens and 3 cannot be aligned"):
        av.diff(av.capture("a b c"), av.capture("a b"), align="position")
    long, short = av.capture("an unextraordinariest cat"), av.capture("an old cat")
    with pytest.raises(InputError, match="cannot be aligned"):
        av.diff(long, short, align="position")
    words = av.diff(long, short, align="word")
    assert len(words.sides["decoder"].queries) == 4
    with pytest.raises(UsageError, match="align takes 'token', 'position' or 'word', not 'line'"):
        av.diff(long, short, align="line")


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    one = av.capture("a b")
    with pytest.raises(InputError, match="only the same heads"):
        av.diff(one, av.capture("a b", model=FreshConfig(heads=4)))
    with pytest.raises(InputError, match="keep other heads"):
        av.diff(one, av.capture("a b", select="0.*"))
    with pytest.raises(InputError, match="holds weights, the other norm"):
        av.diff(one, av.capture("a b", quantity="norm"))
    with pytest.raises(UsageError, match="give two runs"):
        av.diff("a b")
    with pytest.raises(UsageError, match="only texts can be run through two models"):
        av.diff(one, other_model="demo-gpt2")
    with pytest.raises(InputError, match="no text to compare"):
        av.diff([], other_model="demo-gpt2")
    (tmp_path / "x.json").write_text('{"schema": "other"}')
    with pytest.raises(InputError, match=r"x.json is a result of other; give a JSON"):
        av.diff(tmp_path / "x.json", tmp_path / "x.json")
    with pytest.raises(InputError, match="compare two reports"):
        av.diff(av.heads("a b").save(tmp_path / "heads.json"), one)
    with pytest.raises(InputError, match="cannot read"):
        av.diff(tmp_path / "none.json", tmp_path / "none.json")


def test_reports(tmp_path: Path) -> None:
    paths = [
        av.ablate(text, method="zero").save(tmp_path / f"{n}.json")
        for n, text in enumerate(TEXTS[:2])
    ]
    found = av.diff(*paths)
    documents = [json.loads(path.read_text("utf-8")) for path in paths]
    effects = [{e["name"]: e["by"][0]["change"] for e in doc["effects"]} for doc in documents]
    single = {head.name: head for head in found.heads}
    for name, effect in effects[0].items():
        if name in effects[1]:
            assert single[name].changes[0].change == pytest.approx(effects[1][name] - effect)
    assert found.kind == "ablate"
    with pytest.raises(UsageError, match="no maps to draw"):
        found.to_bytes("png")
    other = json.loads(paths[1].read_text("utf-8")) | {"metric": "kl"}
    (tmp_path / "kl.json").write_text(json.dumps(other))
    with pytest.raises(InputError, match="metric is loss in"):
        av.diff(paths[0], tmp_path / "kl.json")


def test_results_of_one_kind(tmp_path: Path) -> None:
    """Figures by head are those of the two results, given themselves or as files."""
    short, long = av.heads(TEXTS[0]), av.heads(TEXTS[2] * 2)
    found = av.diff(short, long)
    assert found.kind == "heads"
    by_name = {head.name: head for head in found.heads}
    for a, b in zip(short.heads, long.heads, strict=True):
        head = by_name[a.head.name]
        figures = {change.name: (change.before, change.after) for change in head.changes}
        assert figures == {
            name: (a.scores[name].mean, b.scores[name].mean)
            for name in a.scores
            if None not in (a.scores[name].mean, b.scores[name].mean)
        }
        names = [{role.name for role in one.roles} for one in (a, b)]
        assert set(head.gained) == names[1] - names[0]
        assert set(head.lost) == names[0] - names[1]
    paths = [one.save(tmp_path / f"{n}.json") for n, one in enumerate((short, long))]
    assert av.diff(*paths).heads == found.heads
    with pytest.raises(InputError, match=r"quantity is weights in .*, norm in"):
        av.diff(short, av.heads(TEXTS[0], quantity="norm"))
    with pytest.raises(InputError, match=r"0.json is of heads, the logits result of logits"):
        av.diff(paths[0], av.logits("a b"))
    with pytest.raises(UsageError, match="Flow has no figures of heads to compare"):
        av.diff(av.flow("a b"), av.flow("a b"))


def test_logits_of_two_texts() -> None:
    text = "one two three one two"
    ids, other = (av.logits(text + end, answer="three") for end in ("", " three one two"))
    found = av.diff(ids, other)
    changes = {head.name: head.changes[0].change for head in found.heads}
    for head, value in ids.heads().items():
        assert changes[head.name] == pytest.approx(other.heads()[head] - value)
    with pytest.raises(InputError, match=r"token is ·three in .*, ·one in"):
        av.diff(ids, av.logits(text, answer="one"))
    masked = av.logits("The cat sat on the [MASK].", model="demo-bert")
    assert av.diff(masked, masked).largest is None  # no logit is split by head


def test_circuits_of_two_models(tmp_path: Path) -> None:
    one, other = (
        av.circuits(model=FreshConfig(d_model=64, heads=4, layers=3, causal=True, seed=seed))
        for seed in (0, 1)
    )
    found = av.diff(one.save(tmp_path / "a.json"), other.save(tmp_path / "b.json"))
    assert found.kind == "circuits"
    assert len(found.heads) == 12
    by_name = {head.name: {c.name: c for c in head.changes} for head in found.heads}
    for name, changes in by_name.items():
        edges = [[e.excess for e in run.edges if e.writer.name == name] for run in (one, other)]
        assert ("strongest edge out" in changes) == all(edges)
        if all(edges):
            change = changes["strongest edge out"]
            assert (change.before, change.after) == tuple(map(max, edges))
    demo = av.circuits(sample=50)
    copying = {c.name: c.before for c in av.diff(demo, demo).heads[0].changes}
    assert {"copying plain", "previous by position"} <= set(copying)


def test_relations_and_antecedents_of_two_models(tmp_path: Path) -> None:
    """Accuracies on all data are those of the results."""
    treebank, pronouns = (ROOT / "sample_inputs" / f for f in ("treebank.conllu", "pronouns.tsv"))
    with av.load("demo-bert").gated({"1.2": 0}) as changed:
        one, other = (av.syntax(treebank, model=model) for model in ("demo-bert", changed))
    found = av.diff(one.save(tmp_path / "a.json"), other.save(tmp_path / "b.json"))
    assert found.kind == "syntax"
    changes = {head.name: {c.name: c for c in head.changes} for head in found.heads}
    for relations in zip(one.relations, other.relations, strict=True):
        for a, b in zip(*(relation.heads for relation in relations), strict=True):
            change = changes[one.layout.name(a.head)][f"{relations[0].name} to_head"]
            assert (change.before, change.after) == (a.to_head, b.to_head)
    with pytest.raises(InputError, match=r"punct is True in .*, False in"):
        av.diff(one, av.syntax(treebank, model="demo-bert", punct=False))
    coref = av.coref(pronouns, model="demo-bert")
    found = av.diff(coref, coref)
    assert (found.kind, found.largest) == ("coref", 0)
    assert {c.name for c in found.heads[0].changes} >= {"all to_name", "all from_name"}


def test_differences_come_back_equal(tmp_path: Path) -> None:
    several = [
        av.diff(TIRED, WIDE, align="position"),
        av.diff(av.capture(TIRED), av.capture(WIDE), align="word"),
        av.diff(av.heads(TIRED), av.heads(WIDE)),
        av.diff(*[av.Prompt("the cat sat", pair="le chat")] * 2, model="fresh"),
    ]
    for number, one in enumerate(several):
        jsonschema_rs.validate(SCHEMA, one.to_dict())
        assert Diff.from_json(one.to_json()) == one
        read = results.read(one.save(tmp_path / f"{number}.json"))
        assert read == one
        assert read.to_csv() == one.to_csv()
    read = results.read(tmp_path / "0.json")
    assert (read.maps, read.sides) == ({}, {})
    assert "head 3.1" not in str(read)  # files hold no maps
    assert "3.1" in str(read)
    assert read.to_bytes("svg").startswith(b"<?xml")
    with pytest.raises(UsageError, match="a saved diff holds no maps"):
        read.page()


def test_what_stands_beside_heads() -> None:
    found = av.diff(TIRED, WIDE, align="position")
    told = found.finding("diff.json")
    assert told is not None
    measures = {measure.name: measure.values for measure in told.measures}
    for head in found.heads:
        assert head.distance is not None
        assert measures["distance"][head.name] == (head.distance.mean, None, None)
        for change in head.changes:
            if change.name not in ("entropy", "distance"):
                assert measures[f"change: {change.name}"][head.name][0] == change.change
    assert "at ·tired (" in told.said["3.1"][0]


def test_it_stands_beside_either_model() -> None:
    one, other = (FreshConfig(layers=1, seed=seed) for seed in (0, 1))
    found = av.diff("a b", model=one, other_model=other)
    for config in (one, other):
        beside = av.capture("a b", model=config)
        found.check_model("d.json", beside.source, beside.layout, identity(config))
    third = FreshConfig(layers=1, seed=2)
    beside = av.capture("a b", model=third)
    with pytest.raises(UsageError, match=r"d.json is of "):
        found.check_model("d.json", beside.source, beside.layout, identity(third))


def test_profiles_by_state_file(tmp_path: Path) -> None:
    files = []
    for number, texts in enumerate((TEXTS, (*TEXTS[::-1], "the cat and the cat"))):
        (tmp_path / f"{number}.txt").write_text("\n".join(texts))
        files.append(tmp_path / f"{number}.profile")
        av.profile(str(tmp_path / f"{number}.txt"), state=files[-1], jobs=1)
    found = av.diff(*files)
    assert found.kind == "profile"
    assert len(found.heads) == 24
    assert any("3 texts, the second of 4" in note for note in found.notes)
    one, other = (av.read(path) for path in files)
    head = next(h for h in one.heads if h.head.name == found.heads[0].name)
    means = [profile[head.head].estimates["top"].mean for profile in (one, other)]
    (change,) = (c for c in found.heads[0].changes if c.name == "top")
    assert (change.before, change.after) == pytest.approx(tuple(means))


def test_files_and_command_line(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a.npz", TIRED), ("b.safetensors", WIDE)):
        assert main(["capture", text, "-o", name, "-q"]) == 0
    capsys.readouterr()
    same = ["diff", "a.npz", "a.npz", "--fail-over", "0"]
    assert main(same) == 0
    assert "nothing changed" in capsys.readouterr().out
    near = ["diff", "a.npz", "b.safetensors", "--align", "position"]
    assert main([*near, "--fail-over", "0.9"]) == 0
    assert main([*near, "--fail-over", "0.01", "--out", "d.png"]) == DIFFERS
    captured = capsys.readouterr()
    assert "head 3.1" in captured.out
    assert "more than 0.01" in captured.err
    assert main([*near, "--csv"]) == 0
    names = "name,layer,index,head,figure,before,after,change,low,high,typical,joint_low,joint_high"
    assert capsys.readouterr().out.splitlines()[0] == names
    assert main(["diff", TIRED, WIDE, "--align", "position", "--top", "2"]) == 0
    assert "22 heads differ less" in capsys.readouterr().out
    Path("t.txt").write_text("\n".join(TEXTS))
    tiny = str(write(tmp_path / "tiny", "gpt2", "GPT2LMHeadModel", n_positions=64))
    several = ["diff", "--texts", "t.txt", "-m", tiny, "--other-model", tiny]
    assert main(several) == 0
    assert main([*several, "-o", "e.png", "-o", "e.html"]) == 2
    assert "maps of one text" in capsys.readouterr().err
    assert not Path("e.png").exists(), "refused before anything is run or written"
    assert replace(av.diff("a b", "a b"), heads=()).largest is None


def test_what_cannot_be_compared_passes_no_check(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check = ["diff", "a.json", "b.json", "--fail-over", "0.5"]
    assert main(["heads", "the cat sat", "--json"]) == 0
    heads = json.loads(capsys.readouterr().out)

    def written(name: str, change: Callable[[dict[str, Any]], object]) -> None:
        document = copy.deepcopy(heads)
        change(document)
        Path(name).write_text(json.dumps(document))

    def without_means(document: dict[str, Any]) -> None:
        for score in document["heads"][3]["scores"].values():
            score["mean"] = None

    written("a.json", lambda document: None)
    written("b.json", lambda document: None)
    assert main(check) == 0
    for change in (without_means, lambda document: document["heads"][3]["scores"].clear()):
        written("b.json", change)
        assert main(check) == NOTHING_COMPARED
        assert "nothing to compare in both runs: 0.3\n" in capsys.readouterr().err
    for name in ("a.json", "b.json"):
        written(name, lambda document: document["heads"].clear())
    assert main(check) == NOTHING_COMPARED
    captured = capsys.readouterr()
    assert "nothing to compare in both runs: no head" in captured.err
    assert "nothing changed" not in captured.out
    assert main([*check[:-1], "nan"]) == 2
    written("a.json", lambda document: None)
    written("b.json", lambda d: d["heads"][0]["scores"]["top"].update(mean=math.nan))
    assert main(check) == 1
    assert "b.json is not readable JSON" in capsys.readouterr().err


def test_figures_that_are_not_finite_are_refused() -> None:
    found = av.circuits(model=FreshConfig(d_model=64, heads=4, layers=2, causal=True))
    odd = replace(found, edges=tuple(replace(edge, excess=math.nan) for edge in found.edges))
    with pytest.raises(InputError, match=r"strongest edge out is .* and nan in the other"):
        av.diff(found, odd)


def test_weights_that_are_not_finite_are_refused() -> None:
    capture = av.capture("the cat sat")
    maps = {site: np.full_like(layer, np.nan) for site, layer in capture.maps.items()}
    with pytest.raises(InputError, match="demo-gpt2 gives weights that are not finite"):
        av.diff(capture, replace(capture, maps=maps))


def test_names_are_checked_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.captures.loading.load", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(ModelError, match="nowhere"):
        av.diff("a text", model="demo-gpt2", other_model="./nowhere")
    with pytest.raises(ModelError, match="nowhere"):
        av.view("a text", model="demo-gpt2", other_model="./nowhere")


def test_the_page_has_the_maps(tmp_path: Path, browser: Any) -> None:
    report = av.diff(TIRED, WIDE, align="position")
    path = report.save(tmp_path / "d.html")
    by_name = {report.layout.name(head): head for head in report.maps}
    wide = av.capture(WIDE)
    with opened(browser) as found:
        page = found.visit(path).page
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


def test_what_has_no_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    texts, page = tmp_path / "t.txt", str(tmp_path / "d.html")
    texts.write_text("\n".join(TEXTS))
    assert main(["diff", "--texts", str(texts), "--other-model", "demo-gpt2", "-o", page]) == 2
    assert "3 were compared" in capsys.readouterr().err
    assert main(["diff", TIRED, TIRED, "-o", page]) == 0


def test_of_a_run_with_itself_nothing_changed(tmp_path: Path, browser: Any) -> None:
    same, other = av.diff(TIRED, TIRED), av.diff(TIRED, WIDE, align="position")
    assert "nothing changed: no head differs" in str(same)
    with opened(browser) as found:
        for name, one in (("same", same), ("other", other)):
            found.visit(one.save(tmp_path / f"{name}.html"))
            first = one.heads[0]
            assert first.distance is not None
            said = found.page.inner_text("h1")
            assert said.startswith("Nothing changed: no head differs") == (name == "same")
            if name == "other":
                assert said.startswith(f"Head {first.name} changed most between ")
                assert f"by {first.distance.mean:.3f} on average" in said
            titles = found.page.inner_text("#heads thead")
            assert "Jensen-Shannon distance" in titles
        assert "distance in tokens" in found.page.inner_text("#card")
        assert "entropy in bits" in found.page.inner_text("#card")


def test_models_of_equal_counts_are_told_apart() -> None:
    said = r"demo-gpt2 has decoder heads \(layers 0-3 with heads 0-5\), and demo-bert has encoder"
    with pytest.raises(InputError, match=said):
        av.diff("a b c", other_model="demo-bert")
