"""Every score against float64 NumPy, by hand, under uniform attention, against what flatters."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

from attnviz.attention.layers import attend
from attnviz.core.capture import Capture, seen_keys
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import Score
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.scoring.axes import is_punctuation
from attnviz.scoring.observe import Recorder, ScoreObserver, score_capture
from attnviz.scoring.scores import SCORES
from tests import reference, reference_scores
from tests.attention.test_attend import Whole

Array = NDArray[np.float64]
INFO = SourceInfo("made up", "recorded", "exact")


# -- helpers ---------------------------------------------------------------------------------


def tokens(text: str, *, ids: bool = False) -> Tokens:
    """``[CLS] a b , [SEP]``: what stands in brackets is special, ``[SEP]`` ends a segment."""
    texts = tuple(text.split())
    return Tokens(
        texts,
        ids=tuple(sorted(set(texts)).index(t) for t in texts) if ids else (),
        special=tuple(t.startswith("[") for t in texts),
        separators=tuple(t == "[SEP]" for t in texts),
    )


def inputs(kind: SiteKind, queries: Tokens, keys: Tokens | None = None) -> Inputs:
    return Inputs({kind: Sides(queries, queries if keys is None else keys)})


def observe(
    weights: Any,
    text: str,
    *,
    kind: SiteKind = "encoder",
    keys: str | None = None,
    causal: bool = False,
    allowed: Any = None,
) -> ScoreObserver:
    """Scores of one map [T, S], or several [H, T, S]."""
    w = torch.as_tensor(np.asarray(weights), dtype=torch.float64)
    w = w[(None,) * (4 - w.ndim)]
    if causal:
        allowed = np.tril(np.ones(w.shape[2:], bool))
    mask = None if allowed is None else torch.as_tensor(np.asarray(allowed, bool))[None, None]
    item = inputs(kind, tokens(text), None if keys is None else tokens(keys))
    observer = ScoreObserver([item], Layout({kind: (w.shape[1],)}))
    observer.observe(Rows(Site(kind, 0), 0, 0, w, mask))
    return observer


def one(weights: Any, text: str, **options: Any) -> Mapping[str, Score]:
    """The scores of a single head."""
    (head,) = observe(weights, text, **options).result()
    return head.scores


def shown(score: Score) -> tuple[float, float, int]:
    assert score.mean is not None
    assert score.chance is not None
    return (score.mean, score.chance, score.rows)


def nothing(score: Score) -> bool:
    return score == Score(None, None, None, 0)


# -- every score against the formulas, over everything that attention can be ------------------


@dataclass(frozen=True)
class Case:
    """A batch of attention to compute and to score."""

    kind: SiteKind
    batch: tuple[Inputs, ...]
    heads: int
    groups: int
    causal: bool
    window: int | None
    mask: NDArray[np.bool_] | None
    block_rows: int
    seed: int

    @property
    def sides(self) -> list[Sides]:
        return [item.sides[self.kind] for item in self.batch]

    @property
    def layout(self) -> Layout:
        return Layout({self.kind: (self.heads,)})

    def allowed(self) -> NDArray[np.bool_]:
        """[B, H, T, S], padding not among them."""
        t = max(len(s.queries) for s in self.sides)
        s = max(len(s.keys) for s in self.sides)
        back = np.arange(t)[:, None] - np.arange(s)
        seen = np.ones((len(self.batch), self.heads, t, s), bool)
        if self.causal:
            seen &= back >= 0
        if self.window is not None:
            seen &= abs(back) < self.window
        for number, side in enumerate(self.sides):
            seen[number, :, :, len(side.keys) :] = False
        return seen if self.mask is None else seen & self.mask

    def cut(self, whole: NDArray[Any]) -> list[NDArray[Any]]:
        """[B, H, T, S] to the [H, T, S] of each item's own length."""
        pairs = zip(whole, self.sides, strict=True)
        return [w[:, : len(side.queries), : len(side.keys)] for w, side in pairs]


PIECES = ("a", "b", "c", " the", "##s", ",", ".", " —", "##'", "[X]", "[SEP]", "x.")


@st.composite
def some_tokens(draw: st.DrawFn, longest: int) -> Tokens:
    length = draw(st.integers(1, longest))
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=length, max_size=length))
    with_ids = draw(st.booleans())
    return Tokens(
        tuple(pieces),
        ids=tuple(PIECES.index(p) for p in pieces) if with_ids else (),
        special=tuple(p.startswith("[") for p in pieces),
        separators=tuple(p == "[SEP]" for p in pieces),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind: SiteKind = draw(st.sampled_from(["encoder", "decoder", "cross"]))
    longest = draw(st.integers(1, 9))
    batch = []
    for _ in range(draw(st.integers(1, 3))):
        queries = draw(some_tokens(longest))
        keys = draw(some_tokens(8)) if kind == "cross" else queries
        batch.append(Inputs({kind: Sides(queries, keys)}))
    groups = draw(st.integers(1, 2))
    heads = groups * draw(st.integers(1, 2))
    seed = draw(st.integers(0, 2**16))
    mask = None
    if draw(st.sampled_from([False, False, True])):
        t = max(len(i.sides[kind].queries) for i in batch)
        s = max(len(i.sides[kind].keys) for i in batch)
        own = heads if draw(st.booleans()) else 1
        mask = np.random.default_rng(seed).random((len(batch), own, t, s)) < 0.7
    return Case(
        kind, tuple(batch), heads, groups, causal=kind == "decoder",
        window=draw(st.none() | st.integers(1, 4)) if kind != "cross" else None, mask=mask,
        block_rows=draw(st.integers(1, 10)), seed=seed,
    )  # fmt: skip


def run(case: Case, dtype: torch.dtype, block_rows: int) -> tuple[ScoreObserver, Array]:
    """Scores of a case as they stream out of attend, and its weights by the float64 reference."""
    rng = np.random.default_rng(case.seed)
    allowed = case.allowed()
    b, h, t, s = allowed.shape
    q = rng.normal(size=(b, h, t, 4)) * 1.5
    k = rng.normal(size=(b, case.groups, s, 4))
    q, k = (x.astype(np.float32).astype(np.float64) for x in (q, k))
    padding = np.array([[j < len(side.keys) for j in range(s)] for side in case.sides])
    observer = ScoreObserver(case.batch, case.layout)
    attend(
        torch.tensor(q, dtype=dtype), torch.tensor(k, dtype=dtype),
        torch.zeros(b, case.groups, s, 1, dtype=dtype),
        mask=None if case.mask is None else torch.tensor(case.mask),
        padding=None if padding.all() else torch.tensor(padding), causal=case.causal,
        window=case.window, site=Site(case.kind, 0), observers=[observer], block_rows=block_rows,
    )  # fmt: skip
    return observer, reference.attention(q, k, np.zeros((b, case.groups, s, 1)), allowed)[0]


def compare(
    observer: ScoreObserver,
    maps: list[Any],
    allowed: list[Any],
    sides: list[Sides],
    kind: SiteKind,
    tolerance: float,
) -> None:
    """All scores of all heads against the reference."""
    result = observer.result()
    assert [h.head for h in result] == [Head(Site(kind, 0), n) for n in range(len(maps[0]))]
    for name in SCORES:
        wanted = reference_scores.score(name, maps, allowed, sides, kind == "cross")
        for head, (mean, chance, rows) in zip(result, wanted, strict=True):
            got = head.scores[name]
            assert got.rows == rows, name
            if mean is None or chance is None:
                assert nothing(got), name
                continue
            assert got.mean == pytest.approx(mean, rel=tolerance, abs=tolerance * 1e-2), name
            assert got.chance == pytest.approx(chance, rel=tolerance), name
            assert got.lift == pytest.approx(got.mean / got.chance, rel=1e-12), name


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)], ids=["fp32", "fp64"]
)
@given(case=cases())
def test_streamed_scores_are_the_formulas(dtype: torch.dtype, tolerance: float, case: Case) -> None:
    observer, weights = run(case, dtype, case.block_rows)
    maps, allowed = case.cut(weights), case.cut(case.allowed())
    compare(observer, maps, allowed, case.sides, case.kind, tolerance)
    for item, (own, mask) in enumerate(zip(maps, allowed, strict=True)):
        keys = [reference_scores.sink(own, mask, head)[0] for head in range(len(own))]
        assert observer.sinks(item).tolist() == keys, "the sink is the key with the most weight"
    empty = sum(int((~mask.any(-1)).any(0).sum()) for mask in allowed)
    assert observer.empty_rows == empty


@given(case=cases())
def test_the_weight_on_every_target_over_the_rows_of_every_score(case: Case) -> None:
    """What roles are judged by, for each item of a batch."""
    observer, weights = run(case, torch.float64, case.block_rows)
    cross = case.kind == "cross"
    pairs = zip(case.cut(weights), case.cut(case.allowed()), case.sides, strict=True)
    for item, (own, mask, side) in enumerate(pairs):
        sums, pair = observer.sums(item), reference_scores.Pair(side, cross)
        targets = {other: pair.targets(other, *own.shape[1:]) for other in sums.targets}
        for row, name in enumerate(sums.names):
            if not SCORES[name].on_targets:
                assert not sums.shares[:, row].any()
                continue
            wanted = reference_scores.shares(name, own, mask, pair, targets)
            for column, other in enumerate(sums.targets):
                got = sums.shares[:, row, column]
                if cross and (SCORES[name].ordered or SCORES[other].ordered):
                    assert not got.any()
                else:
                    assert got == pytest.approx(wanted[other], rel=1e-11, abs=1e-13), (name, other)


@pytest.mark.parametrize("size", [1, 60, 1000])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_parts_of_a_batch_never_change_a_score(
    size: int, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some items, some heads at a time: as many as memory for a part has room."""
    whole, _ = run(case, torch.float64, case.block_rows)
    with monkeypatch.context() as patch:
        patch.setattr("attnviz.scoring.observe._PART_ELEMENTS", size)
        parts, _ = run(case, torch.float64, case.block_rows)
    for item in range(len(case.batch)):
        a, b = whole.sums(item), parts.sums(item)
        assert np.array_equal(a.rows, b.rows)
        for field in ("values", "chances", "shares"):
            wanted = pytest.approx(getattr(a, field), rel=1e-12, abs=1e-13)
            assert getattr(b, field) == wanted, field


def test_the_same_batch_gives_the_same_bits() -> None:
    sides = [Sides(*(repeating(length, length),) * 2) for length in (40, 23, 31)]
    batch = tuple(Inputs({"decoder": side}) for side in sides)
    case = Case("decoder", batch, 4, 2, True, None, None, 7, 3)
    (one, _), (two, _) = (run(case, torch.float32, 7) for _ in range(2))
    for item in range(3):
        for field in ("values", "chances", "rows", "shares", "counted"):
            a, b = getattr(one.sums(item), field), getattr(two.sums(item), field)
            assert np.array_equal(a, b), field


def test_the_reference_is_the_registry() -> None:
    targets = {n for n, d in SCORES.items() if d.on_targets}
    assert {n.removesuffix("_no_sink") for n in targets} == set(reference_scores.TARGETS)
    ordered = {n.removesuffix("_no_sink") for n, d in SCORES.items() if d.ordered}
    assert ordered == reference_scores.ORDERED


def repeating(length: int, seed: int) -> Tokens:
    """A long text of few words, with marks and a [SEP] in the middle and at the end."""
    rng = np.random.default_rng(seed)
    words = [str(w) for w in rng.choice(["a", "b", "c", "d", ",", "."], length)]
    words[0] = "[CLS]"
    words[length // 2] = words[-1] = "[SEP]"
    return tokens(" ".join(words), ids=True)


@pytest.mark.parametrize(("kind", "window"), [("encoder", None), ("decoder", 20)])
def test_long_sequences_in_float32(kind: SiteKind, window: int | None) -> None:
    """Sharp and flat heads, many blocks and key slices, more columns than are read one by one."""
    side = Sides(*(repeating(150, 1),) * 2)
    case = Case(kind, (Inputs({kind: side}),), 2, 1, kind == "decoder", window, None, 13, 3)
    observer, weights = run(case, torch.float32, 13)
    compare(observer, list(weights), list(case.allowed()), [side], kind, 1e-5)


# -- blocks of any shape ----------------------------------------------------------------------


@given(cases(), st.data())
def test_blocks_and_key_slices_never_change_a_score(case: Case, data: st.DataObject) -> None:
    """Handmade blocks, each with any slice of the keys that holds all its weight."""
    rng = np.random.default_rng(case.seed)
    allowed = case.allowed()
    weights = reference.softmax_rows(np.where(allowed, rng.normal(size=allowed.shape), -np.inf))
    length, width = weights.shape[2:]
    observer = ScoreObserver(case.batch, case.layout)
    start = 0
    while start < length:
        stop = data.draw(st.integers(start + 1, length))
        used = np.flatnonzero(allowed[:, :, start:stop].any((0, 1, 2)))
        first = data.draw(st.integers(0, used[0] if len(used) else 0))
        last = data.draw(st.integers(used[-1] + 1 if len(used) else 1, width))
        block = (slice(None), slice(None), slice(start, stop), slice(first, last))
        mask = None if allowed[block].all() else torch.tensor(allowed[block])
        observer.observe(Rows(Site(case.kind, 0), start, first, torch.tensor(weights[block]), mask))
        start = stop
    compare(observer, case.cut(weights), case.cut(allowed), case.sides, case.kind, 1e-11)


# -- chance -----------------------------------------------------------------------------------


@given(cases(), st.sampled_from([torch.float32, torch.float64]))
def test_uniform_attention_scores_chance(case: Case, dtype: torch.dtype) -> None:
    allowed = case.allowed()
    uniform = torch.tensor(allowed / np.maximum(allowed.sum(-1, keepdims=True), 1), dtype=dtype)
    observer = ScoreObserver(case.batch, case.layout)
    step = case.block_rows
    for start in range(0, allowed.shape[2], step):
        rows = slice(start, start + step)
        mask = torch.tensor(allowed[:, :, rows])
        observer.observe(Rows(Site(case.kind, 0), start, 0, uniform[:, :, rows], mask))
    close = 2e-6 if dtype == torch.float32 else 1e-13
    for head in observer.result():
        for name, score in head.scores.items():
            if score.rows:
                assert score.mean == pytest.approx(score.chance, rel=close, abs=1e-15), name
                assert score.lift == pytest.approx(1, rel=close), name


# -- by hand ----------------------------------------------------------------------------------

WEIGHTS = [
    [0.50, 0.20, 0.10, 0.10, 0.10],
    [0.10, 0.40, 0.30, 0.10, 0.10],
    [0.30, 0.25, 0.05, 0.20, 0.20],
    [0.10, 0.30, 0.15, 0.05, 0.40],
    [0.05, 0.15, 0.20, 0.35, 0.25],
]


@pytest.mark.parametrize(
    ("name", "text", "total", "chance", "rows"),
    [
        # row 1 would have position 0 as its target: rows 2, 3, 4 are left
        ("previous", "a b c d e", 0.25 + 0.15 + 0.35, 3 / 5, 3),
        ("next", "a b c d e", 0.20 + 0.30 + 0.20 + 0.40, 4 / 5, 4),
        ("self", "a b c d e", 0.40 + 0.05 + 0.05 + 0.25, 4 / 5, 4),
        ("first", "a b c d e", 0.30 + 0.10 + 0.05, 3 / 5, 3),
        # two targets in row 0 (1 and 2), three in row 1, four in rows 2 and 3, three in row 4
        ("local", "a b c d e", 0.30 + 0.80 + 0.70 + 0.90 + 0.80, (2 + 3 + 4 + 4 + 3) / 5, 5),
        # the row of [SEP] is special
        ("separator", "a b [SEP] d e", 0.10 + 0.30 + 0.15 + 0.20, 4 / 5, 4),
        # the rows of , and . are punctuation themselves
        ("punctuation", "a , c . e", 0.30 + 0.45 + 0.50, 3 * 2 / 5, 3),
        # b at 1 and again at 4; the second c follows the first and is too near
        ("duplicate", "a b c c b", 0.15, 1 / 5, 1),
        ("duplicate_no_sink", "a b c c b", 0.15 / 0.95, 1 / 4, 1),
        # c at 2 came after the earlier b; what came after the earlier c is the second c itself
        ("induction", "a b c c b", 0.20, 1 / 5, 1),
        ("induction_no_sink", "a b c c b", 0.20 / 0.95, 1 / 4, 1),
        ("distance", "a b c d e", 1.1 + 0.9 + 1.45 + 1.45 + 1.4, (10 + 7 + 6 + 7 + 10) / 5, 5),
        ("top", "a b c d e", 0.50 + 0.40 + 0.30 + 0.40 + 0.35, 1, 5),
    ],
)
def test_by_hand(name: str, text: str, total: float, chance: float, rows: int) -> None:
    found = shown(one(WEIGHTS, text)[name])
    assert found == pytest.approx((total / rows, chance / rows, rows))


def test_entropy_by_hand() -> None:
    """1/2, 1/4, 1/8, 1/8 has 1.75 bits out of two; a one-hot row none, a flat row all two."""
    weights = [[1 / 2, 1 / 4, 1 / 8, 1 / 8], [0, 0, 1, 0], [1 / 4] * 4, [1 / 2, 0, 0, 1 / 2]]
    scores = one(weights, "a b c d")
    assert shown(scores["entropy"]) == pytest.approx(((1.75 + 0 + 2 + 1) / 4, 2, 4))
    assert shown(scores["entropy_share"]) == pytest.approx(((1.75 + 0 + 2 + 1) / 8, 1, 4))


def test_entropy_of_causal_rows_is_a_share_of_what_they_could_have() -> None:
    """Row i has i + 1 keys: log2(2) = 1 bit in row 1, 2 bits in row 3."""
    weights = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [0.25] * 4]
    scores = one(weights, "a b c d", causal=True)
    assert shown(scores["entropy"]) == pytest.approx((3 / 3, (1 + np.log2(3) + 2) / 3, 3))
    assert shown(scores["entropy_share"]) == pytest.approx((2 / 3, 1, 3))


def test_chance_in_causal_rows_is_one_over_the_keys_seen() -> None:
    """Row 2 sees 3 keys and row 3 sees 4."""
    weights = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    score = one(weights, "a b c d", causal=True)["previous"]
    assert shown(score) == pytest.approx((1, (1 / 3 + 1 / 4) / 2, 2))
    assert score.lift == pytest.approx(2 / (1 / 3 + 1 / 4))


def test_cross_attention_by_hand() -> None:
    weights = [[0.7, 0.2, 0.1], [0.4, 0.1, 0.5]]
    scores = one(weights, "x y", kind="cross", keys="a , [SEP]")
    assert shown(scores["first"]) == pytest.approx((0.55, 1 / 3, 2))
    assert shown(scores["separator"]) == pytest.approx((0.3, 1 / 3, 2))
    assert shown(scores["punctuation"]) == pytest.approx((0.15, 1 / 3, 2))
    assert shown(scores["top"]) == pytest.approx((0.6, 1 / 3, 2))
    for name, score in scores.items():
        if SCORES[name].ordered:
            assert nothing(score), name


MARKS = (",", " .", "##'", "—", "。", "...", "¿", "##")
NO_MARKS = ("a", "a.", "[SEP]", "", " ", "\n", "$", "+", "##s", "'s", "1")


@pytest.mark.parametrize("text", MARKS + NO_MARKS)
def test_what_is_punctuation(text: str) -> None:
    """Unicode's P categories; # is one of them, $ and + (symbols) are not."""
    assert is_punctuation(text) is (text in MARKS)


def test_ids_make_tokens_equal_where_there_are_ids() -> None:
    weights = np.full((4, 4), 0.25)
    texts = ("x", "a", "b", "a")
    for ids, rows in (((), 1), ((9, 1, 2, 1), 1), ((9, 1, 2, 3), 0), ((9, 2, 1, 2), 1)):
        item = inputs("encoder", Tokens(texts, ids=ids))
        observer = ScoreObserver([item], Layout({"encoder": (1,)}))
        w = torch.tensor(weights)[None, None]
        observer.observe(Rows(Site("encoder", 0), 0, 0, w, None))
        assert observer.result()[0].scores["duplicate"].rows == rows


# -- nothing flatters -------------------------------------------------------------------------

EIGHT = "a b c d e f g h"


def on(targets: Sequence[int], width: int | None = None) -> Array:
    """One-hot rows."""
    return np.eye(width or len(targets))[list(targets)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("looks", "found"),
    [
        # on row 0 the first token is the token itself, on row 1 the one before
        ([0] * 8, {"first": (1, 6), "self": (0, 7), "previous": (0, 6), "local": (0, None)}),
        (range(8), {"self": (1, 7), "first": (0, 6)}),
        ([0, *range(7)], {"previous": (1, 6), "first": (0, 6)}),
    ],
)
def test_a_head_of_one_place_is_none_of_another(looks: Any, found: Any, causal: bool) -> None:
    scores = one(on(looks), EIGHT, causal=causal)
    for name, (mean, rows) in found.items():
        assert scores[name].mean == mean, name
        assert rows in (None, scores[name].rows), name


def test_a_sink_does_not_hide_an_induction_head() -> None:
    """80 % of the weight rests on the first token; the rest does nothing but induction."""
    text = "[BOS] a b c d a b c d"
    weights = np.zeros((9, 9))
    weights[:, 0] = 1.0
    for i in range(5, 9):
        weights[i, 0], weights[i, i - 3] = 0.8, 0.2
    scores = one(weights, text, causal=True)
    chance = sum(1 / (i + 1) for i in (5, 6, 7, 8)) / 4
    assert shown(scores["induction"]) == pytest.approx((0.2, chance, 4))
    without = sum(1 / i for i in (5, 6, 7, 8)) / 4
    assert shown(scores["induction_no_sink"]) == pytest.approx((1, without, 4))
    assert shown(scores["first"])[0] == pytest.approx((1 + 1 + 1 + 0.8 * 4) / 7)
    duplicate = one(np.roll(weights, -1, 1), text)["duplicate_no_sink"]
    assert duplicate.mean is not None


def test_without_the_sink_needs_weight_off_the_sink() -> None:
    """A row that leaves less than a tenth off the sink says nothing about the rest."""
    text = "[BOS] a b c a a"
    weights = on([0] * 6)
    weights[4, [0, 2]] = 0.95, 0.05
    weights[5, [0, 2]] = 0.88, 0.12
    scores = one(weights, text)
    assert scores["induction"].rows == 2
    assert scores["induction"].mean == pytest.approx((0.05 + 0.12) / 2)
    assert scores["induction_no_sink"].rows == 1
    assert scores["induction_no_sink"].mean == pytest.approx(1)


def test_separator_and_punctuation_are_two_things() -> None:
    text = "[CLS] a b , c d . [SEP]"
    on_separator, on_marks = on([7] * 8), on([3, 3, 3, 6, 3, 6, 3, 3])
    scores = one(on_separator, text)
    assert shown(scores["separator"])[::2] == (1, 6)
    assert shown(scores["punctuation"])[::2] == (0, 4)
    scores = one(on_marks, text)
    assert shown(scores["separator"])[::2] == (0, 6)
    assert shown(scores["punctuation"])[::2] == (1, 4)


def test_without_a_mark_no_punctuation_and_without_a_separator_no_separator() -> None:
    scores = one(on([7] * 8), "[CLS] a b c d e f [SEP]")
    assert nothing(scores["punctuation"])
    assert scores["separator"].mean == 1
    scores = one(on([6] * 7), "a b , c d e .")
    assert nothing(scores["separator"])
    assert scores["punctuation"].mean == 1
    assert nothing(one(np.eye(4), "a b c d")["duplicate"])
    assert nothing(one(np.eye(4), "a b c d")["induction"])


def test_a_mark_at_position_0_is_a_sink_and_not_a_target() -> None:
    scores = one(on([0] * 5), ". a b c .")
    assert scores["punctuation"].mean == 0
    assert scores["first"].mean == 1


def test_special_tokens_neither_count_nor_serve() -> None:
    """Specials looking at each other, and at themselves, make no head self, next or duplicate."""
    text = "[CLS] a b [SEP] c d [SEP]"
    weights = on([0, 3, 3, 3, 3, 6, 3])
    scores = one(weights, text)
    for name in ("previous", "next", "self", "local", "duplicate"):
        assert scores[name].mean in (0, None), name
    assert nothing(scores["duplicate"])
    assert scores["top"].rows == 4
    assert scores["next"].rows == 2  # b and d would have [SEP] as the token after
    assert shown(scores["separator"])[::2] == (1, 4)


def test_rows_with_a_single_key_do_not_count() -> None:
    """Window 1 leaves every token itself alone: no choice, no evidence."""
    scores = one(np.eye(6), "a b c d e f", allowed=np.eye(6, dtype=bool))
    sink = scores.pop("sink")  # which asks for no choice: its chance says that there was none
    assert (sink.mean, sink.chance, sink.rows) == (1, 1, 1)
    assert all(nothing(score) for score in scores.values())
    scores = one(on([0, 1, 2]), "a b c", causal=True)
    assert scores["top"].rows == 2
    assert scores["entropy"].mean == 0


def test_rows_whose_keys_are_all_targets_do_not_count() -> None:
    """With a window of 2 after a causal mask, every key is local."""
    back = np.subtract.outer(np.arange(8), np.arange(8))
    near = (back >= 0) & (back < 2)
    scores = one(np.eye(8), EIGHT, allowed=near)
    assert scores["local"].rows == 1  # row 1, which also sees position 0
    assert scores["self"].rows == 7


def test_empty_rows_are_counted_and_score_nothing() -> None:
    weights = np.full((2, 6, 6), 1 / 6)
    weights[:, 2] = 0
    weights[0, 4] = 0  # one head only: still a row without weight
    observer = observe(weights, "a b c d e f")
    assert observer.empty_rows == 2
    assert [h.scores["top"].rows for h in observer.result()] == [4, 5]
    masked = np.ones((6, 6), bool)
    masked[2] = False
    observer = observe(weights[1], "a b c d e f", allowed=masked)
    assert observer.empty_rows == 1
    (head,) = observer.result()
    assert head.scores["top"].mean == pytest.approx(1 / 6)
    assert all(s.mean is None or np.isfinite(s.mean) for s in head.scores.values())


def test_sharp_heads_have_exact_entropies() -> None:
    """Nearly one-hot float32 rows, by logarithms of the weights and by logits, with masks."""

    torch.manual_seed(0)
    q, k = torch.randn(1, 3, 40, 8), torch.randn(1, 3, 40, 8)
    q = q * torch.tensor([3.0, 12.0, 60.0])[:, None, None]
    item, layout = inputs("decoder", tokens(" ".join("abcdefgh" * 5))), Layout({"decoder": (3,)})
    streamed, stored, keep = ScoreObserver([item], layout), ScoreObserver([item], layout), Whole(40)
    site = Site("decoder", 0)
    attend(q, k, k, causal=True, site=site, observers=[streamed, keep], block_rows=40)
    w = keep.weights.double()
    stored.observe(Rows(site, 0, 0, w.float(), torch.ones(40, 40).tril().bool()[None, None]))
    bits = -(w * torch.where(w > 0, w, 1).log2()).sum(-1)[0, :, 1:].mean(-1)
    assert bits[2] < 0.1 < bits[0]
    for observer in (streamed, stored):
        for head, wanted in zip(observer.result(), bits.tolist(), strict=True):
            assert head.scores["entropy"].mean == pytest.approx(wanted, rel=1e-5)


# -- memory -----------------------------------------------------------------------------------


class Sizes(TorchFunctionMode):
    """The largest tensor that any operation gives."""

    largest = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(value, torch.Tensor) and value.untyped_storage().size():
                own = value.untyped_storage().nbytes() // value.element_size()
                Sizes.largest = max(Sizes.largest, own)
        return out


def test_no_weights_are_kept_and_no_map_is_made() -> None:
    length, heads, rows = 128, 2, 8
    side = repeating(length, 0)
    observer = ScoreObserver([inputs("decoder", side)], Layout({"decoder": (heads,)}))
    died: list[Any] = []
    seen = torch.ones(length, length).tril().bool()[None, None]
    Sizes.largest = 0
    for start in range(0, length, rows):
        block = torch.softmax(torch.randn(1, heads, rows, length), -1)
        died.append(weakref.ref(block))
        given_rows = Rows(
            Site("decoder", 0), start, 0, block, seen[:, :, start : start + rows].clone()
        )
        with Sizes():
            observer.observe(given_rows)
    del block, given_rows
    gc.collect()
    assert all(ref() is None for ref in died)
    marks = 80 * length  # of tokens, all kinds in one piece
    assert 0 < Sizes.largest <= max(2 * heads * rows * length, marks) < length * length
    # memory for one block, used again, or the marks of tokens
    assert max(kept(observer)) <= max(heads * rows * length, 30 * length)


def kept(root: object) -> list[int]:
    """Elements of every tensor and array that can be reached from an object's attributes."""
    sizes, todo, known = [0], [root], set()
    while todo:
        thing = todo.pop()
        if id(thing) in known or isinstance(thing, type):
            continue
        known.add(id(thing))
        if isinstance(thing, torch.Tensor):
            sizes.append(thing.untyped_storage().nbytes() // thing.element_size())
        elif isinstance(thing, np.ndarray):
            sizes.append(thing.size)
        elif isinstance(thing, dict):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple, set, frozenset)):
            todo += list(thing)
        elif type(thing).__module__.startswith("attnviz"):
            todo += [r for r in gc.get_referents(thing) if not isinstance(r, type)]
    return sizes


def test_the_memory_test_can_fail() -> None:
    """A recorder does keep whole maps."""
    recorder = Recorder([inputs("encoder", tokens("a b c"))])
    recorder.observe(Rows(Site("encoder", 0), 0, 0, torch.full((1, 2, 3, 3), 1 / 3), None))
    assert 2 * 3 * 3 in kept(recorder)


def test_an_observer_changes_nothing_in_a_block() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 2, 8, 8)
    weights = torch.softmax(logits, -1)
    seen = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    before = [x.clone() for x in (weights, logits, seen)]
    item = inputs("encoder", tokens("a , c a [SEP] a c ."))
    ScoreObserver([item], Layout({"encoder": (2,)})).observe(
        Rows(Site("encoder", 0), 0, 0, weights, seen, logits)
    )
    for now, then in zip((weights, logits, seen), before, strict=True):
        assert torch.equal(now, then)


# -- stored maps ------------------------------------------------------------------------------


@given(cases())
def test_recorded_maps_are_the_weights_cut_to_length(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    allowed = case.allowed()
    weights = reference.softmax_rows(np.where(allowed, rng.normal(size=allowed.shape), -np.inf))
    recorder = Recorder(case.batch)
    nobody = Recorder(case.batch, [Site(case.kind, 1), Head(Site(case.kind, 2), 0)])
    only = Recorder(case.batch, [Head(Site(case.kind, 0), 0)])
    for start in range(0, weights.shape[2], case.block_rows):
        part = torch.tensor(weights[:, :, start : start + case.block_rows])
        for observer in (recorder, nobody, only):
            observer.observe(Rows(Site(case.kind, 0), start, 0, part, None))
    for number, wanted in enumerate(case.cut(weights)):
        (site, found), *others = recorder.maps(number).items()
        assert site == Site(case.kind, 0)
        assert not others
        assert np.array_equal(found, wanted)
        assert found.dtype == np.float64
        assert nobody.maps(number) == {}
        assert list(only.maps(number)) == [site]
        assert recorder.empty_rows(number) == int((~wanted.any(-1)).any(0).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("kind", "window"),
    [("encoder", None), ("encoder", 3), ("decoder", None), ("decoder", 4), ("cross", None)],
)
def test_stored_maps_score_as_they_streamed(
    kind: SiteKind, window: int | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    queries = repeating(20, 2)
    item = inputs(kind, queries, repeating(14, 3) if kind == "cross" else None)
    width = len(item.sides[kind].keys)
    layout = Layout({kind: (4, 4)})
    streamed, recorder = ScoreObserver([item], layout), Recorder([item])
    for layer in range(2):
        q = torch.randn(1, 4, 20, 8, dtype=dtype)
        k = torch.randn(1, 2, width, 8, dtype=dtype)
        attend(
            q, k, k, causal=kind == "decoder", window=window, site=Site(kind, layer),
            observers=[streamed, recorder], block_rows=7,
        )  # fmt: skip
    capture = Capture(INFO, layout, item, recorder.maps())
    close = 1e-5 if dtype == torch.float32 else 1e-11
    result = score_capture(capture).result()
    assert len(result) == 8
    for a, b in zip(streamed.result(), result, strict=True):
        assert a.head == b.head
        assert [r.name for r in a.roles] == [r.name for r in b.roles]
        for name in SCORES:
            x, y = a.scores[name], b.scores[name]
            assert x.rows == y.rows, name
            for field in ("mean", "chance", "lift"):
                v = getattr(x, field)
                assert getattr(y, field) == (None if v is None else pytest.approx(v, rel=close))


def test_some_layers_stored_some_layers_scored() -> None:
    item = inputs("encoder", tokens("a b c d"))
    layout = Layout({"encoder": (2, 2, 2)})
    maps = {Site("encoder", 1): np.full((2, 4, 4), 0.25, np.float16)}
    observer = score_capture(Capture(INFO, layout, item, maps), ["top", "entropy"])
    assert [h.head.name for h in observer.result()] == ["1.0", "1.1"]
    assert all(h.scores["top"].mean == 0.25 for h in observer.result())
    assert all(list(h.scores) == ["top", "entropy"] for h in observer.result())


def test_masks_are_read_off_the_maps() -> None:
    """What no head gives weight to is forbidden, wherever it is."""
    full = np.full((1, 4, 4), 0.25)
    assert seen_keys(full).all()
    assert np.array_equal(seen_keys(np.tril(full)), np.tril(np.ones((4, 4), bool)))
    back = np.subtract.outer(np.arange(6), np.arange(6))
    for inside in ((back >= 0) & (back < 3), abs(back) < 2):
        assert np.array_equal(seen_keys(1.0 * inside[None]), inside)
    padded = full.copy()
    padded[:, :, 3] = 0
    assert np.array_equal(seen_keys(padded), padded[0] > 0)
    hole = full.copy()
    hole[:, 3, 1] = 0
    assert np.array_equal(seen_keys(hole), hole[0] > 0)
    both = np.concatenate([hole, full])
    assert seen_keys(both).all()
    assert np.array_equal(seen_keys(np.maximum(hole, 1e-40)), hole[0] > 0)
    gone = full.copy()
    gone[:, 2] = 0
    assert not seen_keys(gone)[2].any()
    assert not seen_keys(np.zeros((1, 4, 4))).any()
