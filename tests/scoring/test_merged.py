"""Captures of words and means of captures, against sums and means by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import attnviz as av
from attnviz.captures.inputs import tiled
from attnviz.core.heads import Head
from attnviz.core.prompt import Prompt
from attnviz.core.questions import nearest
from attnviz.errors import UsageError
from attnviz.features.export.function import export
from attnviz.models.controls import FreshConfig
from attnviz.scoring.probe import PREFIX_LENGTH, match_prefixes, prefix_matching, probe_prompts

TEXT = "The keyring was unusable"
NAMES = {"heads": ["0.*", "1.*"], "layers": ["*.0", "*.1", "*.2", "*.3"], "all": ["*.*"]}


@pytest.fixture(scope="module")
def held() -> av.Capture:
    """Two layers of four heads of a decoder."""
    return av.capture(TEXT, model="demo-gpt2", select="0-1.0-3")


@pytest.mark.parametrize("mean", ["heads", "layers", "all"])
def test_a_mean_is_the_mean(held: av.Capture, mean: str) -> None:
    whole = np.stack(list(held.maps.values())).astype(np.float64)
    axes = {"heads": (1,), "layers": (0,), "all": (0, 1)}[mean]
    made = av.capture(held, mean=mean)
    maps = np.concatenate(list(made.maps.values()))
    expected = whole.mean(axes).reshape(maps.shape)
    np.testing.assert_allclose(maps, expected, atol=1e-7)
    shown = [made.layout.name(head) for head in made.layout if made.holds(head)]
    assert shown == NAMES[mean]
    assert [made.layout.head(name) for name in shown] == list(filter(made.holds, made.layout))


@pytest.mark.parametrize("mean", ["heads", "layers", "all"])
def test_a_mean_is_never_scored_as_a_head(held: av.Capture, mean: str) -> None:
    made = av.capture(held, mean=mean)
    with pytest.raises(UsageError, match="no scores"):
        av.heads(made)
    with pytest.raises(UsageError, match="means already"):
        av.capture(made, mean="all")
    picture = av.heatmap(held, mean=mean)
    assert not picture.roles
    assert "hides what single heads do" in picture.caption
    assert mean != "all" or picture.to_bytes("svg")


def test_only_the_heads_that_are_selected_count(held: av.Capture) -> None:
    made = av.heatmap(held, "1.0, 1.3", mean="heads")
    ((head, weights, _),) = made.maps
    assert held.layout.name(head) == "1.0"
    expected = (held["1.0"] + held["1.3"]) / 2
    np.testing.assert_allclose(np.ma.filled(weights, 0), expected, atol=1e-7)


def test_words_keep_what_may_be_attended_to(held: av.Capture) -> None:
    made = av.capture(held, words=True)
    tokens = held.inputs.sides["decoder"].queries
    assert len(made.tokens) == 1 + max(tokens.words) + 1
    (reach, *_) = made.reach.values()
    assert reach.causal
    np.testing.assert_allclose(made["0.0"].sum(1), 1, atol=1e-6)


def test_numbers_by_word_in_files(held: av.Capture, tmp_path: Path) -> None:
    made, picture = av.capture(held, words=True), av.heatmap(held, "1.2", words=True)
    for suffix in ("csv", "json", "npz", "safetensors"):
        picture.save(tmp_path / f"w.{suffix}")
    lines = (tmp_path / "w.csv").read_text().splitlines()
    assert lines[0].startswith("layer,index,head,query,key,query_token,key_token,weight")
    count = len(made.tokens)
    assert len(lines) == 1 + count * (count + 1) // 2
    document = json.loads((tmp_path / "w.json").read_text())
    listed = np.array(document["maps"][0]["weights"], float)
    np.testing.assert_allclose(np.nan_to_num(listed), made["1.2"], atol=1e-7)
    assert document["words"] is True
    assert "sum over" in " ".join(document["notes"])
    arrays = np.load(tmp_path / "w.npz")
    np.testing.assert_array_equal(arrays["1.2"], np.nan_to_num(listed).astype("f4"))
    assert tuple(json.loads(str(arrays["keys"]))) == made.tokens


def test_rows_that_are_cut_keep_their_places(held: av.Capture) -> None:
    picture = av.heatmap(held, "1.2", rows="2-3", hide="sink")
    document = json.loads(picture.to_bytes("json"))
    assert document["maps"][0]["positions"]["queries"] == [2, 3]
    assert document["maps"][0]["positions"]["keys"][0] == 1


def test_a_capture_of_words_comes_back_from_its_file(tmp_path: Path) -> None:
    whole = av.capture(TEXT, model="demo-bert", words=True)
    av.write_capture(whole, tmp_path / "w.npz")
    again = av.read(tmp_path / "w.npz")
    assert again.tokens == whole.tokens
    np.testing.assert_array_equal(again["0.1"], whole["0.1"])
    mean = av.capture(TEXT, model="demo-bert", mean="heads")
    av.write_capture(mean, tmp_path / "m.npz")
    back = av.read(tmp_path / "m.npz")
    assert back.layout == mean.layout
    with pytest.raises(UsageError, match="no scores"):
        av.heads(back)
    av.write_capture(whole, tmp_path / "w.csv")
    assert "unusable" in (tmp_path / "w.csv").read_text()


def test_an_export_of_words_has_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(TEXT + "\n")
    options = {"model": "demo-bert", "jobs": 1, "format": "png,npz"}
    export(tmp_path / "t.txt", tmp_path / "w", words=True, select="1.2", **options)
    (file,) = (tmp_path / "w").rglob("*.npz")
    arrays = np.load(file)
    expected = av.capture(TEXT, model="demo-bert", words=True)
    np.testing.assert_allclose(arrays["L01H02"], expected["1.2"], atol=1e-6)
    assert tuple(json.loads(str(arrays["queries"]))) == expected.tokens
    export(tmp_path / "t.txt", tmp_path / "m", mean="heads", select="0-1.*", **options)
    names = sorted(path.name for path in (tmp_path / "m").rglob("L*.png"))
    assert names == ["L00-mean.png", "L01-mean.png"]
    with pytest.raises(UsageError, match="no roles"):
        export(tmp_path / "t.txt", tmp_path / "n", mean="heads", role="first", **options)


def test_a_page_of_means_names_them_and_scores_none(held: av.Capture, tmp_path: Path) -> None:
    av.view(held, mean="layers").save(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    assert '"called":"*.0"' in page.replace(" ", "")
    assert "hides what single heads do" in page
    with pytest.raises(UsageError, match="single heads"):
        av.view(held, mean="layers", why="0.1")


def test_the_help_finds_means_and_words() -> None:
    assert "--mean heads" in nearest("average over heads")[0].command
    assert "--words" in nearest("weights by word")[0].command


WORDS = " ".join(f"w{n % 37}" for n in range(150))


@pytest.mark.parametrize(("causal", "rows", "keys"), [(True, "20-99", "3-60"), (False, None, None)])
def test_tiles_are_those_of_the_whole_map(causal: bool, rows: str | None, keys: str | None) -> None:
    model = FreshConfig(heads=4, layers=2, causal=causal)
    whole = av.capture(WORDS, model=model)
    source = av.load(model)
    inputs = source.prepare(av.Prompt(WORDS))
    found, layout = tiled(
        source, inputs, lambda *_: (7, 4), select="0.1, 1.*", rows=rows, keys=keys
    )
    length = len(whole.tokens)
    down = range(20, 100) if rows else range(length)
    across = range(3, 61) if keys else range(length)
    assert [layout.name(head) for head in found.maps] == ["0.1", "1.0", "1.1", "1.2", "1.3"]
    for head, one in found.maps.items():
        weights = whole[head].astype(np.float64)[down.start : down.stop, across.start : across.stop]
        high, wide = one.largest.shape
        assert (high, wide) == (-(-len(down) // 7), -(-len(across) // 7))
        for r in range(high):
            for c in range(wide):
                part = weights[7 * r : 7 * r + 7, 7 * c : 7 * c + 7]
                assert one.largest[r, c] == pytest.approx(part.max(), abs=1e-6)
                assert one.sums[r, c] == pytest.approx(part.sum(), abs=1e-5)
        for row, (places, kept) in enumerate(zip(one.keys, one.weights, strict=True)):
            there = places >= 0
            assert list(places[there]) == sorted(places[there])
            best = np.sort(weights[row][weights[row] > 0])[::-1][:4]
            np.testing.assert_allclose(np.sort(kept[there])[::-1], best, atol=1e-6)
            np.testing.assert_allclose(
                kept[there], weights[row][places[there] - across.start], atol=1e-6
            )


def test_what_is_drawn() -> None:
    source = av.load(FreshConfig(heads=1, causal=True))
    inputs = source.prepare(av.Prompt(WORDS))
    found, _ = tiled(source, inputs, lambda *_: (16, 0))
    head = Head(next(iter(found.allowed)), 0)
    shares = found.shown(head, "sum")
    assert shares.mask[0, 1]
    assert not shares.mask[1, 0]
    np.testing.assert_allclose(shares.filled(0).sum(1), 1, atol=1e-5)
    assert found.shown(head, "max").max() == 1  # the first row has one key


Array = NDArray[np.float64]


def uniform(size: int) -> Array:
    seen = np.tril(np.ones((size, size)))
    return seen / seen.sum(1, keepdims=True)


def test_prefix_matching_by_hand() -> None:
    """[BOS] a b a b: from the second a to the first b, from the second b to the second a."""
    weights = np.array(
        [
            [1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.2, 0.3, 0.5, 0, 0],
            [0.1, 0.1, 0.7, 0.1, 0], [0.3, 0.1, 0.1, 0.4, 0.1],
        ]
    )  # fmt: skip
    found = prefix_matching(weights[None], length=2, copies=2, start=1)
    assert found == pytest.approx([(0.7 + 0.4) / 2])


@pytest.mark.parametrize("back", [(1,), (1, 2, 3), (3,)])
def test_a_perfect_head_gets_a_half(back: tuple[int, ...]) -> None:
    """Whichever of the earlier copies it looks at, as long as a row has one of them."""
    weights = uniform(100)
    for i in range(25, 100):
        targets = [i - b * 25 + 1 for b in back if i - b * 25 >= 0] or [i - 25 + 1]
        weights[i] = 0
        weights[i, targets] = 1 / len(targets)
    assert prefix_matching(weights[None]) == pytest.approx([0.5])


def test_uniform_attention_matches_by_chance() -> None:
    """Rows of the second copy have one entry of 1/(i+1), of the third two, of the fourth three."""
    entries = [1 / (i + 1) for i in range(25, 100) for _ in range(i // 25)]
    assert len(entries) == 150
    assert prefix_matching(np.stack([uniform(100)] * 2)) == pytest.approx([np.mean(entries)] * 2)


def test_the_demo_heads_that_match_prefixes_are_its_induction_heads() -> None:
    source = av.load("demo-gpt2")
    ((*_, half),) = [probe_prompts(source.vocab_size, lengths=[PREFIX_LENGTH])]
    capture = av.capture(Prompt(ids=half[:PREFIX_LENGTH] * 4, special_tokens=False), model=source)
    scores = {site.layer: prefix_matching(maps) for site, maps in capture.maps.items()}
    assert all((score <= 0.5 + 1e-6).all() for score in scores.values())
    best = max(((layer, int(s.argmax())) for layer, s in scores.items()),
               key=lambda head: scores[head[0]][head[1]])  # fmt: skip
    heads = {(h.head.layer, h.head.index): h for h in av.heads(capture).heads}
    assert heads[best].does is not None
    assert heads[best].does.name == "induction"
    assert scores[best[0]][best[1]] > 0.3


def test_prefixes_are_matched_on_seeded_draws() -> None:
    """The mean of whole maps of prompts made here, and an interval over the draws."""
    source = av.load("demo-gpt2")
    found = match_prefixes(source)
    assert found is not None
    assert (found.probes, found.length, found.copies) == (5, 25, 4)
    start = source.prepare(Prompt("a")).sides["decoder"].keys.ids[0]
    scores = []
    for seed in range(5):
        ((*_, last),) = [probe_prompts(source.vocab_size, lengths=[25], seed=seed, bos=start,
                                       avoid={start})]  # fmt: skip
        assert len(set(last[-25:])) == 25
        ids = (start, *last[-25:] * 4)
        capture = av.capture(Prompt(ids=ids, special_tokens=False), model=source)
        scores.append(np.concatenate([prefix_matching(m, start=1) for m in capture.maps.values()]))
    assert found.means == pytest.approx(np.mean(scores, 0), abs=1e-6)
    error = np.std(scores, 0, ddof=1) / np.sqrt(5)
    assert found.halves == pytest.approx(2.7764451 * error, abs=1e-6)
    entries = [1 / (i + 1) for i in range(26, 101) for _ in range((i - 1) // 25)]
    assert found.chance == pytest.approx(np.mean(entries))
    assert match_prefixes(source) == found
    assert match_prefixes(source, seed=9) != found


@pytest.mark.parametrize("model", ["demo-bert", "fresh"])
def test_where_prefix_matching_is_not_defined(model: str) -> None:
    assert match_prefixes(av.load(model)) is None
    if model != "fresh":
        assert av.heads("a b c", model=model, probe=True).matching is None


def test_heads_with_a_probe_match_prefixes() -> None:
    report = av.heads("a b c", probe=True)
    expected = match_prefixes(av.load("demo-gpt2"))  # on torch
    assert report.matching is not None
    assert report.matching.means == pytest.approx(expected.means, abs=1e-6)
    assert report.matching.halves == pytest.approx(expected.halves, abs=1e-6)
    assert av.heads("a b c").matching is None
    assert av.heads("a b c", probe=True, without="1.4").matching != report.matching
