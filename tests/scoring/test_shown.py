"""What a picture shows of a map: without the sink rows sum to 1 again, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Layout, Site
from attnviz.core.media import Picture
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.scoring.merged import merge_words, selected_query, shown_map, shown_sides
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.probe import probe_prompts, run_probe

PAIR = Tokens(
    ("[CLS]", "a", "b", "[SEP]", "c"),
    separators=(False, False, False, True, False),
    special=(True, False, False, True, False),
    segments=(0, 0, 0, 0, 1),
)
EVERYTHING = np.ones((5, 5), bool)


def test_without_the_sink_by_hand() -> None:
    weights = np.full((5, 5), 0.2, np.float32)
    weights[1] = (0.9, 0.02, 0.06, 0.0, 0.02)
    weights[2] = (0.5, 0.0, 0.0, 0.5, 0.0)
    sides = Sides(PAIR, PAIR)
    shown = shown_sides(sides, words=False, hide_sink=True)
    assert shown.queries.texts == shown.keys.texts == ("a", "b", "c")
    assert shown.keys.segments == (0, 0, 1)
    got = shown_map(weights, EVERYTHING, sides, words=False, hide_sink=True)
    assert got.dtype == np.float32
    assert np.allclose(got, [[0.2, 0.6, 0.2], [0, 0, 0], [1 / 3, 1 / 3, 1 / 3]], atol=1e-6)


def test_masked_keys_stay_masked() -> None:
    sides = Sides(PAIR, PAIR)
    allowed = np.tril(EVERYTHING)
    weights = np.where(allowed, 1.0, 0.0) / allowed.sum(1, keepdims=True)
    got = shown_map(weights, allowed, sides, words=False, hide_sink=True)
    assert np.ma.getmaskarray(got).tolist() == np.triu(np.ones((3, 3), bool), 1).tolist()
    assert np.allclose(got.sum(1), 1)


def test_other_queries_than_keys_all_stay() -> None:
    queries = Tokens(("x", "y"))
    weights = np.array([[0.5, 0.25, 0.25, 0.0, 0.0], [0.0, 0.1, 0.0, 0.8, 0.1]])
    sides = Sides(queries, PAIR)
    shown = shown_sides(sides, words=False, hide_sink=True)
    assert (shown.queries, shown.keys.texts) == (queries, ("a", "b", "c"))
    got = shown_map(weights, EVERYTHING[:2], sides, words=False, hide_sink=True)
    assert np.allclose(got, [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])


def test_words_are_merged_before_the_sink_goes() -> None:
    pieces = Tokens(("un", "##do", "it", "now"), words=(0, 0, 1, 2))
    weights = np.array([[0.25] * 4, [0.4, 0.2, 0.3, 0.1], [0.2, 0.2, 0.3, 0.3], [0, 0, 0.2, 0.8]])
    sides = Sides(pieces, pieces)
    shown = shown_sides(sides, words=True, hide_sink=True)
    assert shown.keys.texts == ("it", "now")
    got = shown_map(weights, EVERYTHING[:4, :4], sides, words=True, hide_sink=True)
    assert np.allclose(got, [[0.5, 0.5], [0.2, 0.8]])


def test_a_text_of_sinks_alone_is_refused() -> None:
    alone = Tokens(("[CLS]", "[SEP]"), separators=(False, True))
    with pytest.raises(InputError, match="nothing is left"):
        shown_sides(Sides(alone, alone), words=False, hide_sink=True)


TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."
SPANS = {"first": "The kettle sang", "second": "#2:kettle sang"}


@pytest.fixture(scope="module")
def capture() -> av.Capture:
    return av.capture(av.Prompt(TEXT, spans=SPANS))


def drawn(capture: av.Capture, **options: Any) -> tuple[np.ndarray, Any]:
    ((_, weights, sides),) = av.heatmap(capture, "2.4", **options).maps
    return np.ma.filled(weights, np.nan), sides


def test_ranges_and_names_are_rows_and_keys_of_the_map(capture: av.Capture) -> None:
    weights, sides = drawn(capture, rows="9-12,15", keys="1-3")
    np.testing.assert_array_equal(weights, capture["2.4"][[9, 10, 11, 12, 15], 1:4])
    assert sides.keys.texts == capture.inputs.sides["decoder"].keys.texts[1:4]
    spans = {span.name: span.positions for span in capture.inputs.sides["decoder"].keys.spans}
    weights, sides = drawn(capture, rows="second", keys="first")
    np.testing.assert_array_equal(weights, capture["2.4"][np.ix_(spans["second"], spans["first"])])
    assert [span.ranges for span in sides.keys.spans] == [((0, len(spans["first"])),)]


def test_one_side_leaves_the_other_whole(capture: av.Capture) -> None:
    weights, sides = drawn(capture, rows="5")
    assert weights.shape == (1, len(capture.inputs.sides["decoder"].keys))
    assert len(sides.queries) == 1


def test_words_and_a_hidden_sink_are_cut_by_their_first_tokens(capture: av.Capture) -> None:
    tokens = capture.inputs.sides["decoder"]
    _, words = merge_words(capture["2.4"][None], tokens)
    starts = [n for n, w in enumerate(tokens.keys.words) if n == 0 or w != tokens.keys.words[n - 1]]
    wanted = [n for n, start in enumerate(starts) if 4 <= start <= 10]
    weights, sides = drawn(capture, rows="4-10", words=True)
    whole, _ = drawn(capture, words=True)
    np.testing.assert_array_equal(weights, whole[wanted])
    assert sides.queries.texts == tuple(words.queries.texts[n] for n in wanted)
    hidden, sides = drawn(capture, rows="4-6", keys="0-3", hide="sink")
    assert sides.keys.texts == tokens.keys.texts[1:4], "the sink stays hidden"
    uncut, _ = drawn(capture, hide="sink")
    np.testing.assert_array_equal(hidden, uncut[3:6, :3])


def test_what_there_is_not_is_refused(capture: av.Capture) -> None:
    with pytest.raises(UsageError, match="rows='3-90' ends at token 90; there are"):
        av.heatmap(capture, "2.4", rows="3-90")
    with pytest.raises(UsageError, match="tokens such as 12-40, or a span: first, second"):
        av.heatmap(capture, "2.4", keys="third")
    with pytest.raises(InputError, match="none of the tokens that were asked for"):
        av.heatmap(capture, "2.4", keys="0", hide="sink")


def test_the_command_cuts(capsys: Any, tmp_path: Any) -> None:
    assert main(["heatmap", TEXT, "-s", "2.4", "--rows", "9-12", "--keys", "1-3", "-q"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len([line for line in shown if "│" in line]) == 4
    out = str(tmp_path / "cut.svg")
    assert main(["heatmap", TEXT, "-s", "2.4", "--rows", "9-12", "-o", out, "-q"]) == 0
    assert "queries 9–12 of demo-gpt2" in (tmp_path / "cut.svg").read_text()


PICTURE = Picture(np.zeros((2, 3, 3), np.uint8), 2, 3)
PATCHES = ((0, 0), (0, 1), (1, 0), (1, 1))


def seen(*before: str, after: tuple[str, ...] = ()) -> Tokens:
    """Four patches, between tokens of text; the first of those before is special."""
    texts = (*before, "p", "q", "r", "s", *after)
    places = (*((),) * len(before), *PATCHES, *((),) * len(after))
    special = tuple(text == "[CLS]" for text in texts)
    return Tokens(texts, special=special, places=places)


@pytest.mark.parametrize(
    ("tokens", "query", "rows", "name", "place"),
    [
        (seen("[CLS]"), None, (0,), "from [CLS]", ()),
        (seen(), None, (0, 1, 2, 3), "mean over all patches", ()),
        (Tokens(("a", "cat", "sits")), None, (2,), "from token 2 sits", ()),
        (Tokens(("[CLS]", "cat"), special=(True, False)), None, (0,), "from [CLS]", ()),
        (seen("[CLS]", after=("a", "cat")), None, (6,), "from token 6 cat", ()),
        (seen("[CLS]"), "cls", (0,), "from [CLS]", ()),
        (seen("[CLS]"), "mean", (1, 2, 3, 4), "mean over all patches", ()),
        (seen("[CLS]"), " 1 , 0 ", (3,), "from patch 1,0", (1, 0)),
        (seen("[CLS]"), "4", (4,), "from token 4 s", (1, 1)),
    ],
)  # fmt: skip
def test_from_where(
    tokens: Tokens, query: str | None, rows: tuple[int, ...], name: str, place: Any
) -> None:
    found = selected_query(tokens, PICTURE, query)
    assert (found.rows, found.name, found.place) == (rows, name, place)


@pytest.mark.parametrize(
    ("tokens", "query", "says"),
    [
        (seen(), "cls", "this model has no [CLS]"),
        (seen(), "2,0", "no patch 2,0: rows go from 0 to 1, columns from 0 to 2"),
        (seen(), "4", "no token 4; they go from 0 to 3"),
        (seen(), "left", "no query 'left': write cls, mean"),
        (seen("[CLS]", after=("a", "cat")), "cls", "this model has no [CLS]"),
        (Tokens(("a", "cat")), "mean", "no patches"),
    ],
)
def test_what_is_not_there_is_refused(tokens: Tokens, query: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        selected_query(tokens, PICTURE, query)
    assert says in str(raised.value)


@given(
    vocab=st.integers(2, 60),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    seed=st.integers(0, 9),
    room=st.none() | st.integers(1, 60),
    bos=st.none() | st.integers(0, 70),
    avoid=st.frozensets(st.integers(0, 59), max_size=5),
)
def test_every_prompt_repeats_a_random_half(
    vocab: int,
    lengths: list[int],
    seed: int,
    room: int | None,
    bos: int | None,
    avoid: frozenset[int],
) -> None:
    usable = set(range(vocab)) - avoid - {bos}
    longest = max(lengths) if room is None else min(max(lengths), (room - (bos is not None)) // 2)

    def prompts() -> tuple[tuple[int, ...], ...]:
        return probe_prompts(
            vocab, lengths=lengths, seed=seed, max_tokens=room, bos=bos, avoid=avoid
        )

    if len(usable) < 2 or longest < 3:
        with pytest.raises(UsageError) as caught:
            prompts()
        assert "\n" not in str(caught.value)
        return
    found = prompts()
    assert found == prompts()
    assert found
    halves = []
    for ids in found:
        assert room is None or len(ids) <= room
        if bos is not None:
            assert ids[0] == bos
        body = ids[1:] if bos is not None else ids
        half, again = body[: len(body) // 2], body[len(body) // 2 :]
        assert half == again
        assert set(half) <= usable
        if len(half) <= len(usable):
            assert len(set(half)) == len(half)
        halves.append(len(half))
    wanted = {n if room is None else min(n, longest) for n in lengths}
    assert halves == sorted(n for n in wanted if n >= 3)


WRITTEN = ((10, 40, 28, 10, 40, 28), (81, 42, 66, 15, 81, 42, 66, 15))


def test_the_same_seed_is_the_same_everywhere() -> None:
    """Written down: a change here changes every probe ever reported."""
    assert probe_prompts(100, lengths=[4, 3]) == WRITTEN
    assert probe_prompts(100, lengths=[4, 3], seed=1) != WRITTEN
    assert probe_prompts(range(100), lengths=[4, 3]) == WRITTEN


def test_ids_may_be_any_list() -> None:
    (ids,) = probe_prompts([5, 500, 50_000], lengths=[3])
    assert sorted(ids[:3]) == [5, 500, 50_000]


def test_a_small_vocabulary_repeats_within_a_half() -> None:
    (ids,) = probe_prompts(2, lengths=[10])
    assert len(ids) == 20
    assert set(ids) == {0, 1}


def test_a_long_vocabulary_is_not_copied() -> None:
    """A billion ids cost nothing where none is to be avoided."""
    (ids,) = probe_prompts(10**9, lengths=[16])
    assert len(set(ids)) == 16
    assert max(ids) > 10**6


@pytest.mark.parametrize(
    ("vocab", "options", "message"),
    [
        (1, {}, "at least two different tokens, the vocabulary has 1"),
        (0, {}, "the vocabulary has 0"), (3, {"avoid": [0, 1]}, "the vocabulary has 1"),
        (2, {"bos": 1}, "the vocabulary has 1"),
        (9, {"max_tokens": 5}, r"lengths \(8,\) in a model of 5 tokens leave no room"),
        (9, {"max_tokens": 6, "bos": 0}, "leave no room"), (9, {"lengths": []}, "leave no room"),
        (9, {"lengths": [2]}, "leave no room"),
    ],
)  # fmt: skip
def test_errors(vocab: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        probe_prompts(vocab, **{"lengths": [8], **options})  # type: ignore[arg-type]


def test_a_probe_tells_heads_apart() -> None:
    """Induction looks one place after the copy, duplicate at it; a previous-token head has none."""
    prompts = probe_prompts(1000, lengths=[8, 12], bos=999)
    batch = []
    longest = max(map(len, prompts))
    weights = torch.zeros(len(prompts), 3, longest, longest, dtype=torch.float64)
    for n, ids in enumerate(prompts):
        side = Tokens(tuple(map(str, ids)), ids=ids, special=(True,) + (False,) * (len(ids) - 1))
        batch.append(Inputs({"decoder": Sides(side, side)}))
        half = len(ids) // 2
        for i in range(longest):
            again = i > half
            weights[n, 0, i, i - half + 1 if again else 0] = 1
            weights[n, 1, i, i - half if again else 0] = 1
            weights[n, 2, i, max(i - 1, 0)] = 1
    allowed = torch.ones(longest, longest).tril().bool()[None, None]
    observer = ScoreObserver(batch, Layout({"decoder": (3,)}), ["duplicate", "induction"])
    observer.observe(Rows(Site("decoder", 0), 0, 0, weights, allowed))
    found = [
        (head.scores["induction"].mean, head.scores["duplicate"].mean) for head in observer.result()
    ]
    assert found == [(1, 0), (0, 1), (0, 0)]
    assert [[r.name for r in head.roles] for head in observer.result()] == [
        ["induction"],
        ["duplicate"],
        [],
    ]
    assert observer.result()[0].scores["induction"].rows == 8 + 12


def test_an_encoder_decoder_model_is_probed(tmp_path: Path) -> None:
    """None of the scores of a probe means anything in its encoder or between the two stacks."""
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=60, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    source = av.load(str(tmp_path))
    assert len(run_probe(source)) == len(source.layout)
