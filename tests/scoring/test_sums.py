"""Sums of texts: each its own, and all of them adding up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertweetTokenizer, CTRLTokenizer, PhobertTokenizer

import attnviz as av
from attnviz.attention.layers import attend
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.models.hooked.tokenizer import Texts
from attnviz.scoring.block import Expected, Region
from attnviz.scoring.merged import word_starts
from attnviz.scoring.observe import ScoreObserver, Watch
from attnviz.scoring.scores import SCORES
from attnviz.scoring.totals import Sums, Totals, comparable, fold

MEASURED = tuple(
    name
    for name, score in SCORES.items()
    if score.function is not None and score.means_something(ordered=True, space="text")
)
FIELDS = ("values", "chances", "rows", "shares", "counted")


def text(words: str) -> Inputs:
    side = Tokens(tuple(words.split()))
    return Inputs({"decoder": Sides(side, side)})


TEXTS = [text("a b c a b c , a b"), text("x , y , x"), text("one two three one two three four")]
LAYOUT = Layout({"decoder": (2, 3)})


def observed(
    items: list[Inputs], names: list[str] | None = None, watch: Watch | None = None
) -> ScoreObserver:
    """Random causal attention in two layers, the same for an item whatever it runs with."""
    observer = ScoreObserver(items, LAYOUT, names, watch)
    width = max(item.length for item in items)
    for layer, heads in enumerate(LAYOUT.heads["decoder"]):
        weights = torch.zeros(len(items), heads, width, width, dtype=torch.float64)
        for number, item in enumerate(items):
            n = item.length
            rng = np.random.default_rng([layer, n])
            scores = torch.tensor(rng.normal(size=(heads, n, n)) * 2)
            seen = torch.ones(n, n).tril().bool()
            weights[number, :, :n, :n] = scores.masked_fill(~seen, -np.inf).softmax(-1)
        rows = Rows(Site("decoder", layer), 0, 0, weights, torch.ones(width, width).tril().bool())
        observer.observe(rows)
    return observer


def test_a_text_has_the_same_sums_whatever_it_runs_with() -> None:
    together = observed(TEXTS)
    for number, item in enumerate(TEXTS):
        mine, alone = together.sums(number), observed([item]).sums(0)
        assert mine.names == tuple(SCORES)
        assert mine.values.shape == (5, len(SCORES))
        for field in FIELDS:
            got, wanted = getattr(mine, field), getattr(alone, field)
            assert got == pytest.approx(wanted, rel=1e-12, abs=1e-14), field
        assert mine.rows.any()


def test_whoever_watches_sees_the_rows_that_the_sums_are_made_of() -> None:
    seen: dict[tuple[int, Site], torch.Tensor] = {}

    def watch(item: int, site: Site, start: int, names: object, values: Any) -> None:
        assert (start, names) == (0, MEASURED)
        seen[item, site] = torch.from_numpy(values)

    observer = observed(TEXTS, watch=watch)
    for number, text in enumerate(TEXTS):
        both = torch.cat([seen[number, Site("decoder", layer)] for layer in range(2)], dim=1)
        assert both.shape == (len(MEASURED), len(LAYOUT), text.length)
        sums = observer.sums(number)
        places = [list(SCORES).index(name) for name in MEASURED]
        assert both.nansum(-1).T.numpy() == pytest.approx(sums.values[:, places])
        assert ((~both.isnan()).sum(-1).T.numpy() == sums.rows[:, places]).all()
        others = [p for p, name in enumerate(SCORES) if name not in (*MEASURED, "sink")]
        assert not sums.rows[:, others].any()


def test_texts_add_up_to_the_result() -> None:
    observer = observed(TEXTS)
    parts = [observer.sums(number) for number in range(len(TEXTS))]
    total = fold(parts, Sums.zero(len(LAYOUT)))
    for field in FIELDS:
        assert np.array_equal(getattr(total, field), sum(getattr(part, field) for part in parts))
        assert np.array_equal(getattr(total, field), getattr(observer.total(), field))
    for number, head in enumerate(observer.result()):
        assert head.scores == total.scores(number)


def test_a_score_on_its_own_rows_is_itself() -> None:
    total = observed(TEXTS).total()
    for place, name in enumerate(total.targets):
        score = total.names.index(name)
        assert total.shares[:, score, place] == pytest.approx(total.values[:, score])
        if f"{name}_no_sink" in total.names:
            score = total.names.index(f"{name}_no_sink")
            assert total.shares[:, score, place] == pytest.approx(total.values[:, score])


def test_only_the_scores_that_were_asked_for() -> None:
    names = ["top", "induction_no_sink", "self", "induction"]
    whole, some = observed(TEXTS).total(), observed(TEXTS, names).total()
    assert some.names == tuple(names)
    assert some.targets == comparable(names) == ("self", "induction")
    places = [whole.names.index(name) for name in names]
    assert some.values == pytest.approx(whole.values[:, places])
    kept = [whole.targets.index(name) for name in some.targets]
    assert some.shares == pytest.approx(whole.shares[:, places][:, :, kept])


def test_sums_of_different_things_do_not_add_up() -> None:
    for other in (Sums.zero(6), Sums.zero(5, ["top"])):
        with pytest.raises(ValueError, match=rf"5 heads × {len(SCORES)} scores and of"):
            Sums.zero(5) + other


def test_what_chance_gives_is_worked_out_once_for_each_kind_of_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers with a window between layers without, as in ModernBERT and Gemma."""
    words = text(" ".join(f"w{n % 7}" for n in range(40)))
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 40, 8) for _ in range(3))
    worked, expected = [], Totals._judged

    def counting(self: Totals, region: Region, *uniform: Any) -> Expected:
        worked.append(region.start)
        return expected(self, region, *uniform)

    monkeypatch.setattr(Totals, "_judged", counting)

    def run(windows: list[int | None], layout: Layout) -> ScoreObserver:
        observer = ScoreObserver([words], layout)
        for layer, window in enumerate(windows):
            site = Site("decoder", layer)
            attend(query, key, value, causal=True, window=window, site=site,
                   observers=[observer], block_rows=10)  # fmt: skip
        return observer

    mixed = run([None, 6, 6, None, 6, None], Layout({"decoder": (2,) * 6})).sums(0)
    assert sorted(worked) == sorted(2 * [0, 10, 20, 30])
    for layer, window in ((3, None), (4, 6)):
        alone = run([window], Layout({"decoder": (2,)})).sums(0)
        heads = slice(2 * layer, 2 * layer + 2)
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(mixed, field)[heads], getattr(alone, field))


TEXT = "The keyring was unusable"


def test_bertweet_phobert_and_ctrl_join_what_their_vocabularies_join(tmp_path: Path) -> None:
    """Pieces that go on end in ``@@``; a stop is a word of its own, as in every vocabulary."""
    pieces = ["c@@", "a@@", "t", ".", "t@@", "he", "cat@@"]
    (tmp_path / "vocab.txt").write_text("".join(f"{p} {n}\n" for n, p in enumerate(pieces)))
    (tmp_path / "codes").write_text("h e</w> 1\n")
    (tmp_path / "vocab.json").write_text(
        json.dumps({p: n for n, p in enumerate([*pieces, "<unk>"])})
    )
    (tmp_path / "merges").write_text("#version: 0.2\nh e</w>\n")
    tokenizers = [
        BertweetTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "codes")),
        PhobertTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "codes")),
        CTRLTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges")),
    ]
    for tokenizer in tokenizers:
        tokens, _ = Texts(tokenizer, "x").encode("the cat .", special=False)
        assert tokens.texts == ("t@@", "he", "c@@", "a@@", "t", ".")
        assert word_starts(tokens)[1].texts == ("the", "cat", ".")
        joined = Texts(tokenizer, "x").tokens(tokenizer.convert_tokens_to_ids(["cat@@", "."]))
        assert word_starts(joined)[1].texts == ("cat", ".")


RAW = [
    (["[CLS]", "The", "un", "##happi", "##ness", ".", "[SEP]"], "[CLS] The unhappiness . [SEP]"),
    (["The", "Ġun", "happi", "ness", "."], "The unhappiness ."),
    (["<s>", "▁The", "▁un", "happi", "ness", "."], "<s> The unhappiness ."),
    (["the</w>", "un", "happi", "ness</w>", ".</w>"], "the unhappiness ."),
    (["the", "un@@", "happi@@", "ness", "."], "the unhappiness ."),
    (["Ġna", "Ã¯", "ve", "Ċ"], "naïve \n"),
    (["##", "un", "@@", "▂x"], "## un @@ ▂x"),  # marks alone are text
    (["Ġużeppi", "kiel", "ħobż"], "Ġużeppi kiel ħobż"),  # a letter of Maltese
]


@pytest.mark.parametrize(("pieces", "words"), RAW)
def test_raw_pieces_merge(pieces: list[str], words: str) -> None:
    count = len(pieces)
    weights = np.full((1, 1, count, count), 1 / count, np.float32)
    held = av.from_arrays(weights, pieces, kind="encoder")
    merged = word_starts(held.inputs.sides["encoder"].queries)[1].texts
    assert " ".join(text.strip(" ") for text in merged) == words


def test_recorded_pieces_merge_too(tmp_path: Path) -> None:
    """A file with raw pieces, and one whose flags say nothing of words."""
    weights = np.full((1, 1, 3, 3), 1 / 3, np.float32)
    for more in ({}, {"special": np.array([True, False, False])}):
        np.savez(tmp_path / "x.npz", attentions=weights, tokens=["[CLS]", "un", "##do"], **more)
        sides = av.read(tmp_path / "x.npz").inputs.sides["encoder"]
        assert word_starts(sides.queries)[1].texts == ("[CLS]", "undo")


def test_words_and_means_of_padded_arrays_are_those_of_the_text() -> None:
    """Padding told by a mask is left out before words are merged and means are taken."""
    own = av.capture(TEXT, model="demo-bert")
    arrays = [np.pad(layer, ((0, 0), (0, 2), (0, 2))) for layer in own.maps.values()]
    given = av.from_arrays(
        arrays, [*own.tokens, "[PAD]", "[PAD]"], attention_mask=[1] * len(own.tokens) + [0] * 2
    )
    words = av.capture(given, words=True, mean="heads")
    expected = av.capture(TEXT, model="demo-bert", words=True, mean="heads")
    assert words.tokens == expected.tokens
    for site, layer in expected.maps.items():
        np.testing.assert_allclose(words.maps[site], layer, atol=1e-6)
        assert np.asarray(words.reach[site].allowed(*layer.shape[1:])).all()
