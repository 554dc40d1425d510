"""Every number of a profile, recomputed from whole maps in float64 NumPy."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.scores import Estimate
from attnviz.errors import UsageError
from attnviz.features.profile import saved
from attnviz.features.profile.likeness import distances
from attnviz.features.profile.result import Profile
from attnviz.features.profile.run import Progress
from attnviz.features.profile.tally import scores_shown
from attnviz.models.controls import FreshConfig
from attnviz.scoring.axes import KINDS
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from tests import reference_scores
from tests.features.profile.corpus import grouped, lines, sentences

pytestmark = pytest.mark.usefixtures("remembering")
TEXTS = sentences(14)
MODELS = ("demo-gpt2", "demo-bert")


@pytest.fixture(scope="module", params=MODELS)
def both(request, tmp_path_factory) -> tuple[Profile, list[Capture]]:
    """A profile of some texts, and their maps."""
    path = lines(tmp_path_factory.mktemp("texts") / "texts.txt", TEXTS)
    source = av.load(request.param)
    return av.profile(path, model=source), [av.capture(text, model=source) for text in TEXTS]


def rows(capture: Capture, head: Head) -> np.ndarray:
    """The rows that count."""
    special = capture.sides(head).queries.special
    choices = allowed(capture, head).sum(1)
    return np.array([not special[i] and choices[i] >= 2 for i in range(len(special))])


def allowed(capture: Capture, head: Head) -> np.ndarray:
    n = len(capture.sides(head).queries)
    return np.tri(n, dtype=bool) if head.site.kind == "decoder" else np.ones((n, n), bool)


def of_texts(name: str, captures: list[Capture], head: Head) -> tuple[np.ndarray, ...]:
    """Per text: sum, chance and number of rows of one score."""
    found = []
    for capture in captures:
        pair = reference_scores.Pair(capture.sides(head), cross=False)
        keys = allowed(capture, head)
        if name == "sink":
            maps = capture[head][None].astype(float)
            _, weights, uniform = reference_scores.sink(maps, keys[None], 0)
            found.append((math.fsum(weights), math.fsum(uniform), len(weights)))
            continue
        value, chance, count = 0.0, 0.0, 0
        uniform = keys / keys.sum(1, keepdims=True)
        own = reference_scores.values(
            name, capture[head][None].astype(float), keys.sum(1)[None], pair
        )[0]
        even = reference_scores.values(name, uniform[None], keys.sum(1)[None], pair)[0]
        for i in np.flatnonzero(rows(capture, head)):
            fits = not SCORES[name].on_targets or 1e-9 < even[i] < 1 - 1e-6
            if fits and not math.isnan(own[i]) and not math.isnan(even[i]):
                value, chance, count = value + own[i], chance + even[i], count + 1
        found.append((value, chance, count))
    value, chance, count = (np.array(column) for column in zip(*found, strict=True))
    return value, chance, count


T95 = dict(
    zip(
        range(1, 14),
        (12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814,
         2.20099, 2.17881, 2.16037),
        strict=True,
    )
)  # fmt: skip


def check(found: Estimate, a: np.ndarray, chance: np.ndarray, b: np.ndarray, unit: str) -> None:
    """Against the formulas."""
    if not b.sum():
        assert found == Estimate(None, None, None, 0, 0)
        return
    a, chance, b = a[b > 0], chance[b > 0], b[b > 0]
    p, groups = a.sum() / b.sum(), len(b)
    assert (found.rows, found.texts) == (b.sum(), groups)
    assert found.mean == pytest.approx(p, rel=2e-5, abs=2e-6)
    assert found.chance == pytest.approx(chance.sum() / b.sum(), rel=1e-5)
    if found.chance:
        assert found.lift == pytest.approx(a.sum() / chance.sum(), rel=1e-4)
    assert found.quartiles is not None
    exact = np.quantile(a / b, (0.25, 0.5, 0.75), method="inverted_cdf")
    if unit == "tokens":
        np.testing.assert_allclose(found.quartiles, exact, rtol=0.04, atol=0.04)
    else:
        width = 20 / 512 if unit == "bits" else 1 / 512
        np.testing.assert_allclose(found.quartiles, exact, atol=0.51 * width + 1e-6)
    assert found.macro == pytest.approx((a / b).mean(), rel=2e-5, abs=2e-6)
    error = math.sqrt(groups / max(groups - 1, 1) * ((a - p * b) ** 2).sum()) / b.sum()
    if p < 1e-9:
        return  # a rest of rounding
    if groups < 5 or error < 1e-6 * p:
        assert found.low is None
        assert found.high is None
        return
    half = T95[groups - 1] * (a / b).std(ddof=1) / math.sqrt(groups)
    if (a / b).std() > 1e-5:
        assert found.macro_low == pytest.approx(max(0, (a / b).mean() - half), rel=1e-4, abs=1e-5)
    most = 1 if unit == "share" else math.inf
    half = T95[groups - 1] * error
    assert found.low == pytest.approx(max(0, p - half), rel=1e-4, abs=1e-5)
    assert found.high == pytest.approx(min(most, p + half), rel=1e-4, abs=1e-5)


def comes_back(profile: Profile) -> dict[str, Any]:
    """Its document, which follows the schema and gives the same value again."""
    document: dict[str, Any] = json.loads(profile.to_json())
    jsonschema_rs.validate(Profile.json_schema(), document)
    assert Profile.from_dict(document) == Profile.from_json(profile.to_json()) == profile
    return document


def test_estimates_are_those_of_the_formulas(both) -> None:
    profile, captures = both
    for found in profile.heads[:: max(1, len(profile.heads) // 4)]:
        assert tuple(found.estimates) == tuple(SCORES)
        for name, estimate in found.estimates.items():
            check(estimate, *of_texts(name, captures, found.head), SCORES[name].unit)
    assert (profile.texts, profile.windows) == (len(TEXTS), len(TEXTS))
    assert profile.tokens == sum(capture.inputs.length for capture in captures)


def test_groups_are_the_clusters(tmp_path) -> None:
    source = av.load("demo-gpt2")
    path = grouped(tmp_path / "texts.jsonl", TEXTS)
    profile = av.profile(path, model=source, group="doc")
    captures = [av.capture(text, model=source) for text in TEXTS]
    assert (profile.clusters, profile.grouped) == (5, True)
    assert profile.notes[0].startswith("95 % intervals from 5 groups cover less: ")
    for found in profile.heads[::5]:
        for name in ("previous", "induction", "entropy"):
            per_text = of_texts(name, captures, found.head)
            sums = [np.add.reduceat(column, range(0, 14, 3)) for column in per_text]
            check(found.estimates[name], *sums, SCORES[name].unit)


def test_where_the_weight_goes(both) -> None:
    profile, captures = both
    for found in profile.heads[::5]:
        head = found.head
        by_distance, by_kind = np.zeros((2, 67)), np.zeros((2, len(KINDS)))
        by_tenth, by_token = np.zeros((2, 10)), defaultdict(lambda: np.zeros(2))
        for capture in captures:
            keys, tokens = allowed(capture, head), capture.sides(head).keys
            uniform = keys / keys.sum(1, keepdims=True)
            seen: set[str] = set()
            repeated = []
            for text, special in zip(tokens.texts, tokens.special, strict=True):
                repeated.append(text in seen and not special)
                seen.add(text)
            for i in np.flatnonzero(rows(capture, head)):
                for j, text in enumerate(tokens.texts):
                    weights = np.array([capture[head][i, j], uniform[i, j]])
                    by_distance[:, min(max(j - i, -33), 33) + 33] += weights
                    by_tenth[:, 10 * j // len(tokens)] += weights
                    by_token[text] += weights
                    kind = "initial"
                    if tokens.special[j]:
                        kind = "special"
                    elif text.strip().removeprefix("##") in {",", ".", "!"}:
                        kind = "punctuation"
                    elif text.strip().removeprefix("##").isdigit():
                        kind = "digit"
                    elif j and tokens.words[j] == tokens.words[j - 1]:
                        kind = "continuation"
                    by_kind[:, KINDS.index(kind)] += weights
                    by_kind[:, KINDS.index("repeated")] += weights * repeated[j]
        total = by_tenth.sum(1)
        for shares, exact in (
            (found.distances, by_distance),
            (found.tenths, by_tenth),
            (tuple(found.kinds.values()), by_kind),
        ):
            mine = np.array([(share.weight, share.uniform) for share in shares]).T
            np.testing.assert_allclose(mine, exact / total[:, None], rtol=1e-4, atol=1e-6)
        heaviest = sorted((weights[0] / total[0] for weights in by_token.values()), reverse=True)
        mine = [share.weight for _, share in found.tokens]
        assert mine == pytest.approx(heaviest[: len(mine)], rel=1e-4, abs=1e-9)
        assert len(mine) == 20 or heaviest[len(mine)] < 1e-8
        for text, share in found.tokens:
            assert share.weight == pytest.approx(by_token[text][0] / total[0], rel=1e-4, abs=1e-9)
            assert share.uniform == pytest.approx(by_token[text][1] / total[1], rel=1e-4)


def test_examples_are_rows_that_show_the_role(both) -> None:
    profile, captures = both
    for found in profile.heads[::5]:
        for role, examples in found.examples.items():
            score = scores_shown()[list(ROLES).index(role)]
            best: dict[int, float] = {}
            for number, capture in enumerate(captures, start=1):
                pair = reference_scores.Pair(capture.sides(found.head), cross=False)
                keys = allowed(capture, found.head)
                even = reference_scores.values(
                    score, (keys / keys.sum(1, keepdims=True))[None], keys.sum(1)[None], pair
                )[0]
                own = reference_scores.values(
                    score, capture[found.head][None].astype(float), keys.sum(1)[None], pair
                )[0]
                counts = rows(capture, found.head) & ~np.isnan(own)
                if SCORES[score].on_targets:
                    counts &= (even > 1e-9) & (even < 1 - 1e-6)
                if counts.any():
                    best[number] = own[counts].max()
                for example in examples:
                    if example.number == number:
                        assert counts[example.row]
                        assert example.value == pytest.approx(own[example.row], abs=2e-5)
                        tokens = capture.sides(found.head).queries.texts
                        assert example.token == tokens[example.row]
                        assert example.text == TEXTS[number - 1]
            values = [e.value for e in examples if e.sort == "best"]
            assert values == pytest.approx(sorted(best.values(), reverse=True)[:3], abs=2e-4)
            assert len([e for e in examples if e.sort == "random"]) == min(3, len(best))


def test_heads_alike_are_near(both) -> None:
    profile, _ = both
    apart = np.array(*profile.likeness.values())
    n = len(profile.heads)
    assert apart.shape == (n, n)
    assert (np.diag(apart) == 0).all()
    assert (apart == apart.T).all()
    assert profile.alike_texts == len(TEXTS)
    half = np.median(apart[np.triu_indices(n, 1)] ** 2) / 2
    for number, found in enumerate(profile.heads):
        others = np.delete(apart[number], number)
        near = [distance for _, distance in found.nearest]
        assert near == sorted(near)  # those that are surely alike, which need not be the nearest
        assert set(near) <= set(others.tolist())
        for other, distance in found.nearest:
            assert apart[number, [h.head for h in profile.heads].index(other)] == distance
            assert distance**2 < half
    assert any(found.nearest for found in profile.heads)
    assert not all(found.nearest for found in profile.heads)


def test_likeness_by_hand(tmp_path: Path) -> None:
    """One short text, so that every row is compared."""
    source = av.load("demo-gpt2")
    text = "the cat and the dog sat"
    state = tmp_path / "one.profile"
    profile = av.profile(lines(tmp_path / "one.txt", [text]), model=source, state=state)
    apart, _ = distances(saved.read(state).tally.alike, "decoder", len(profile.heads))
    capture = av.capture(text, model=source)
    heads = [found.head for found in profile.heads]
    usable = [i for i, s in enumerate(capture.sides(heads[0]).queries.special) if not s]

    def bits(w: np.ndarray) -> float:
        return float(-(w[w > 0] * np.log2(w[w > 0])).sum())

    for one, other in ((0, 1), (3, 20), (7, 8)):
        total = 0.0
        for i in usable:
            p, q = (capture[heads[h]][i].astype(float) for h in (one, other))
            total += bits((p + q) / 2) - (bits(p) + bits(q)) / 2
        expected = math.sqrt(total / len(usable))
        assert apart[one, other] == pytest.approx(expected, abs=1e-4)
        # of a single text nobody knows more than two digits
        assert profile.likeness["decoder"][one][other] == round(expected, 2)


def test_long_texts_run_in_windows(tmp_path: Path) -> None:
    """One text of several windows is one cluster; its rows are those of its windows."""
    source = av.load("demo-gpt2")
    text = " ".join(" ".join(sentences(40, seed)) for seed in range(2))
    path = lines(tmp_path / "long.txt", [text])
    profile = av.profile(path, model=source, whole=True)
    assert profile.texts == profile.clusters == 1
    assert profile.windows >= 3
    assert profile.sink_rate is not None
    assert profile.sink_rate.half is None
    comes_back(profile)
    assert source.max_tokens is not None
    overlapping = av.profile(path, model=source, whole=True, stride=source.max_tokens // 2)
    assert overlapping.windows >= 1.6 * profile.windows


MODEL = FreshConfig(heads=2, causal=True, d_model=16)
TEXT = " ".join(f"w{n % 211}" for n in range(2300))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.txt"
    path.write_text(TEXT, "utf-8")
    return path


def test_one_window_holds_the_whole_text(file: Path) -> None:
    """Its scores are those of the text in one piece, and its progress is told."""
    told: list[Progress] = []
    found = av.profile(file, model=MODEL, whole=True, window=4000, progress=told.append)
    assert not any("windows" in note for note in found.notes)
    alone = av.heads(TEXT, model=MODEL)
    for head, single in zip(found.heads, alone.heads, strict=True):
        for name in ("previous", "entropy", "distance"):
            assert head.scores.scores[name].mean == pytest.approx(
                single.scores[name].mean, rel=1e-6
            )
    inside = [one.inside for one in told if one.inside is not None]
    assert len(inside) > 5
    assert inside == sorted(inside)
    assert inside[-1] == pytest.approx(1)


def test_shorter_windows_and_strides_are_said(file: Path) -> None:
    found = av.profile(file, model=MODEL, whole=True, window=600, stride=300)
    said = "at most 600 tokens, one about every 300 tokens: successive windows share about 300"
    assert any(said in note for note in found.notes)
    found = av.profile(file, model=MODEL, whole=True, window=600, stride=600)
    assert any("at most 600 tokens, which do not overlap" in note for note in found.notes)
    found = av.profile(file, model=MODEL, whole=True)
    assert any("at most 1,024 tokens, which do not overlap" in note for note in found.notes)


def test_more_than_the_model_takes(file: Path) -> None:
    with pytest.raises(UsageError, match="is no window of this model, which takes 1 to"):
        av.profile(file, model="demo-gpt2", window=99_999)


def test_a_window_no_text_fills_changes_nothing() -> None:
    """Nor does a stride: there is nothing to overlap, and nothing is said of windows."""
    texts = ["The cat sat on the mat.", "the mat and the cat and the mat and the cat"]
    plain, asked = (
        av.profile(texts=texts, model=MODEL, **more) for more in ({}, {"window": 64, "stride": 8})
    )
    assert asked.to_json() == plain.to_json()
    assert not any("window" in note for note in asked.notes)


def test_windows_of_a_short_model_are_as_long_as_it_takes() -> None:
    found = av.profile(texts=[TEXT[:900]], model="demo-gpt2")
    assert any("at most 256 tokens, which do not overlap" in note for note in found.notes)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return lines(tmp_path / "texts.txt", TEXTS[:6])


@pytest.mark.parametrize("quantity", ["norm", "norm-residual"])
def test_means_are_those_of_the_texts(corpus: Path, quantity: str) -> None:
    found = av.profile(corpus, model="demo-gpt2", quantity=quantity)
    assert (found.quantity, found.layout.whole) == (quantity, quantity != "norm")
    reports = [av.heads(text, model="demo-gpt2", quantity=quantity) for text in TEXTS[:6]]
    for number, head in enumerate(found.heads):
        for name in ("previous", "self", "entropy"):
            scores = [report.heads[number].scores[name] for report in reports]
            rows = sum(score.rows for score in scores)
            total = sum((score.mean or 0) * score.rows for score in scores)
            assert head.estimates[name].rows == rows
            assert head.estimates[name].mean == pytest.approx(total / rows, rel=1e-5, abs=1e-7)


def test_processes_and_files_give_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    state = tmp_path / "a.profile"
    settings = {"model": "demo-bert", "quantity": "norm-residual-ln"}
    alone = av.profile(corpus, state=state, **settings)
    document = comes_back(alone)
    assert document["quantity"] == "norm-residual-ln"
    assert document["heads"][0]["scores"]["head"] == "0.*"
    assert av.profile(corpus, jobs=2, **settings).to_json() == alone.to_json()
    assert av.read(state).to_json() == alone.to_json()
    with pytest.raises(UsageError, match=r"quantity norm-residual-ln, not weights"):
        av.profile(corpus, state=state, model="demo-bert")
