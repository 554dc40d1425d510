"""Rollout, max-flow, what is followed, and what a report says of itself."""

from __future__ import annotations

import csv
import dataclasses
import io
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from threadpoolctl import threadpool_limits

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import AttnvizWarning, InputError, UsageError
from attnviz.features.flow import stack
from attnviz.features.flow.function import follow, run, run_recorded
from attnviz.features.flow.result import Flow, LayerFlow, Method
from attnviz.features.flow.stack import peak, product
from tests.viewing import encoder_decoder

SCHEMA = Flow.json_schema()
TEXT = "The keys to the cabinet are on the table"


def capture_of(maps: dict[Site, np.ndarray]) -> Capture:
    """Recorded attention of some layers [H, T, S]."""
    sides, heads = {}, {}
    for site, layer in maps.items():
        queries, keys = (Tokens(tuple(f"t{n}" for n in range(size))) for size in layer.shape[1:])
        sides[site.kind] = Sides(queries, queries if site.kind != "cross" else keys)
        heads[site.kind] = (*heads.get(site.kind, ()), layer.shape[0])
    info = SourceInfo("file", "recorded", "as recorded")
    return Capture(info, Layout(heads), Inputs(sides), maps)


def random_maps(layers: int, heads: int, length: int, *, causal: bool, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    found = {}
    for layer in range(layers):
        weights = random.dirichlet(np.full(length, 0.4), (heads, length))
        if causal:
            weights = np.tril(weights) + 1e-9 * np.eye(length)
            weights /= weights.sum(-1, keepdims=True)
        found[Site("decoder" if causal else "encoder", layer)] = weights
    return found


@pytest.mark.parametrize("causal", [True, False])
def test_rollout_equals_three_lines_of_numpy(causal: bool) -> None:
    maps = random_maps(3, 4, 7, causal=causal)
    rollout = np.eye(7)
    for layer in maps.values():
        mixed = layer.mean(0) + np.eye(7)
        rollout = mixed / mixed.sum(1, keepdims=True) @ rollout
    report = run_recorded(capture_of(maps))
    assert report.method == "rollout"
    np.testing.assert_allclose(report.total, rollout, atol=1e-6)
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(
        report.weights, np.mean([m.mean(0) for m in maps.values()], 0), atol=1e-6
    )
    assert report.reach.all() == (not causal)
    assert (report.total[~report.reach] == 0).all()


def test_a_model_and_its_capture_agree() -> None:
    ran = av.flow(TEXT, method="rollout")
    recorded = av.flow(av.capture(TEXT), method="rollout")
    np.testing.assert_allclose(recorded.total, ran.total, atol=1e-7)
    np.testing.assert_allclose(recorded.weights, ran.weights, atol=1e-7)
    np.testing.assert_array_equal(recorded.reach, ran.reach)


def test_a_source_and_a_target_by_hand() -> None:
    """One layer each: encoder 2 tokens, decoder 2, cross-attention."""
    encoder = np.array([[0.5, 0.5], [0.0, 1.0]])
    decoder = np.array([[1.0, 0.0], [0.4, 0.6]])
    cross = np.array([[0.2, 0.8], [1.0, 0.0]])
    maps = {Site("encoder", 0): encoder[None], Site("decoder", 0): decoder[None],
            Site("cross", 0): cross[None]}  # fmt: skip
    report = run_recorded(capture_of(maps))
    source = np.array([[0.75, 0.25], [0.0, 1.0]])
    prefix = np.array([[1.0, 0.0], [0.2, 0.8]])
    expected = np.block([[source, np.zeros((2, 2))], [cross / 2 @ source, prefix / 2]])
    assert report.targets == 2
    assert report.tokens.segments == (0, 0, 1, 1)
    np.testing.assert_allclose(report.total, expected, atol=1e-7)
    np.testing.assert_allclose(
        report.weights, np.block([[encoder, np.zeros((2, 2))], [cross / 2, decoder / 2]]), atol=1e-7
    )
    assert not report.reach[2, 3]
    assert report.reach[2:, :2].all()
    assert [(step.kind, step.layer) for step in report.layers] == [("encoder", 0), ("decoder", 0)]


def test_a_learned_sink_leaves_more_to_the_residual_path() -> None:
    maps = {Site("decoder", 0): np.array([[[0.5, 0.0], [0.25, 0.25]]])}
    report = run_recorded(capture_of(maps))
    np.testing.assert_allclose(report.total, [[1, 0], [0.25 / 1.5, 1.25 / 1.5]], atol=1e-7)


def test_max_flow_is_the_smallest_cut() -> None:
    """Against every cut of a graph small enough to try all of them."""
    report = run_recorded(capture_of(random_maps(2, 2, 3, causal=False, seed=5)), "max-flow")
    steps = [step.shares.astype(float) for step in report.layers]
    flows = stack.flows(report.layers)
    for end in range(3):
        for token in range(3):
            cuts = []
            for sides in range(1 << 3):  # which middle nodes stand on the token's side
                left = [bool(sides >> n & 1) for n in range(3)]
                cut = sum(steps[0][n, token] for n in range(3) if not left[n])
                cuts.append(cut + sum(steps[1][end, n] for n in range(3) if left[n]))
            assert flows[end, token] == pytest.approx(min(cuts), abs=1e-6)
    np.testing.assert_allclose(report.total, flows / flows.sum(1, keepdims=True))


@pytest.mark.parametrize("causal", [True, False])
def test_max_flow_is_that_of_another_library(causal: bool) -> None:
    networkx = pytest.importorskip("networkx")
    capture = capture_of(random_maps(3, 2, 6, causal=causal, seed=7))
    steps = run_recorded(capture, "rollout").layers
    graph = networkx.DiGraph()
    for layer, step in enumerate(steps):
        for i, j in np.argwhere(step.shares):
            graph.add_edge((layer, j), (layer + 1, i), capacity=float(step.shares[i, j]))
    expected = np.zeros((6, 6))
    for end, token in np.ndindex(6, 6):
        if networkx.has_path(graph, (0, token), (3, end)):
            expected[end, token] = networkx.maximum_flow_value(graph, (0, token), (3, end))
    np.testing.assert_allclose(stack.flows(steps), expected, atol=1e-7)


def test_max_flow_has_a_limit() -> None:
    long = capture_of(random_maps(1, 1, 129, causal=True))
    with pytest.raises(
        InputError, match="129 tokens are too many for max-flow, which takes up to 128"
    ):
        run_recorded(long, "max-flow")


@pytest.mark.parametrize("method", get_args(Method))
def test_shares_of_every_method_sum_to_one(method: str) -> None:
    report = av.flow("the cat sat on the mat", method=method)
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-6)
    assert report.total.min() >= 0
    for step in report.layers:
        np.testing.assert_allclose(step.shares.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("method", ["alti", "rollout"])
def test_a_followed_token_goes_through_every_layer(method: str) -> None:
    report = av.flow(TEXT, method=method, position="table")
    place = report.tokens.texts.index(" table")
    assert report.followed is not None
    assert report.followed.positions == (place,)
    edges = list(report.edges(report.followed))
    for table in edges:
        assert table.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(edges[0].sum(0), report.total[place], atol=1e-6)
    for before, after in pairwise(edges):  # what arrives goes on
        np.testing.assert_allclose(before.sum(1), after.sum(0), atol=1e-6)
    onward = av.flow(TEXT, method=method, key=place)
    found = list(onward.edges(onward.followed))
    np.testing.assert_allclose(found[-1].sum(1), report.total[:, place], atol=1e-6)


def test_the_product_of_layers_has_the_same_bits_with_any_number_of_threads() -> None:
    tables = np.tril(np.random.default_rng(0).random((3, 501, 501), np.float32)) / 501
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            found.append(product([LayerFlow("decoder", n, x) for n, x in enumerate(tables)]))
    assert np.array_equal(*found)
    np.testing.assert_allclose(found[0], np.linalg.multi_dot(tables[::-1].astype(float)))


def test_a_word_of_several_pieces_is_followed_as_one() -> None:
    text = "The critics of the owl are on the table"  # no common words: cut in pieces
    report = av.flow(text, key="critics")
    assert report.followed is not None
    pieces = list(report.followed.positions)
    assert len(pieces) > 1
    np.testing.assert_allclose(report.shares(report.followed), report.total[:, pieces].sum(1))
    back = follow(report, "to", "critics")
    assert back.followed is not None
    np.testing.assert_allclose(back.shares(back.followed), report.total[pieces].mean(0))


def two_texts() -> Flow:
    maps = {Site("encoder", 0): np.full((1, 3, 3), 1 / 3), Site("decoder", 0): np.eye(2)[None],
            Site("cross", 0): np.full((1, 2, 3), 1 / 3)}  # fmt: skip
    return run_recorded(capture_of(maps))


@pytest.mark.parametrize(
    ("direction", "asked", "node"),
    [("to", "0", 3), ("to", "-1", 4), ("from", "0", 0), ("to", "enc:1", 1), ("from", "dec:1", 4),
     ("to", "t2", 2), ("to", "dec:t1", 4), ("from", "t1", 1)],
)  # fmt: skip
def test_tokens_of_two_texts_are_named(direction: Any, asked: str, node: int) -> None:
    followed = follow(two_texts(), direction, asked).followed
    assert followed is not None
    assert followed.positions == (node,)


def test_a_token_that_is_not_there_or_not_alone_is_refused() -> None:
    report = av.flow(TEXT)
    with pytest.raises(UsageError, match="'the' occurs at positions 4, 8; give one of them"):
        follow(report, "to", "the")
    with pytest.raises(UsageError, match="no token 'sofa'; there are "):
        follow(report, "to", "sofa")
    with pytest.raises(UsageError, match=r"no position 99: the text has 10 tokens"):
        follow(report, "from", "99")
    with pytest.raises(UsageError, match="position and key exclude each other"):
        av.flow(TEXT, position=1, key=2)


def test_recorded_attention_says_what_it_lacks() -> None:
    capture = dataclasses.replace(av.capture(TEXT), asked=None)
    with pytest.raises(
        UsageError, match="ALTI needs the vectors that attention moves, but recorded"
    ):
        av.flow(capture, method="alti")
    with pytest.raises(UsageError, match=r"take method='rollout' or method='max-flow'"):
        av.flow(capture)
    with pytest.raises(InputError, match=r"does not hold 1\.0; flow goes through every"):
        av.flow(av.capture(TEXT, select="0.*"), method="rollout")
    with pytest.raises(
        UsageError, match="begins with attention weights, and the capture holds norm"
    ):
        av.flow(av.capture(TEXT, quantity="norm"), method="max-flow")
    odd = capture_of({Site("decoder", 0): np.full((1, 2, 2), 0.5)})
    keys = Tokens(("a", "b", "c"))
    maps = {Site("decoder", 0): np.full((1, 2, 3), 1 / 3)}
    odd = Capture(
        odd.source, odd.layout, Inputs({"decoder": Sides(Tokens(("a", "b")), keys)}), maps
    )
    with pytest.raises(InputError, match="2 queries and 3 keys are no self-attention"):
        run_recorded(odd)


@given(
    seed=st.integers(0, 1 << 30), n=st.integers(1, 5), layers=st.integers(1, 3),
    causal=st.booleans(),
)  # fmt: skip
def test_any_flow_comes_back_equal(seed: int, n: int, layers: int, causal: bool) -> None:
    maps = random_maps(layers, 2, n, causal=causal, seed=seed)
    found = run_recorded(capture_of(maps), "max-flow" if seed % 2 else "rollout")
    found = follow(found, "from", "-1") if seed % 3 else found
    again = Flow.from_json(found.to_json())
    assert again == found
    np.testing.assert_array_equal(again.total, found.total)
    jsonschema_rs.validate(SCHEMA, found.to_dict())


def test_two_texts_come_back_equal() -> None:
    for one in (two_texts(), run_recorded(encoder_decoder())):
        jsonschema_rs.validate(SCHEMA, one.to_dict())
        assert Flow.from_json(one.to_json()) == one


def test_what_stands_beside_heads() -> None:
    """What a layer moves from other positions, by hand from its shares."""
    report = av.flow(TEXT)
    found = report.finding("flow.json")
    assert found is not None
    (measure,) = found.measures
    for head in report.layout:
        shares = report.layers[head.layer].shares
        assert measure.values[head.name][0] == pytest.approx(
            1 - np.mean(np.diagonal(shares)), abs=1e-6
        )
    followed = follow(report, "to", "table").finding("flow.json")
    assert followed is not None
    edges = list(report.edges(follow(report, "to", "table").followed))
    moved = edges[1].sum() - np.trace(edges[1])
    assert followed.measures[0].values["1.0"][0] == pytest.approx(moved)
    assert all("its layer moves most from" in line for (line,) in followed.said.values())
    both = run_recorded(encoder_decoder()).finding("flow.json")
    assert both is not None
    assert both.said["cross:1.0"] == both.said["dec:1.0"]
    assert both.said["enc:1.0"] != both.said["dec:1.0"]


def test_csv_has_a_line_a_pair_that_can_meet() -> None:
    report = av.flow(TEXT, method="rollout")
    lines = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(lines) == report.reach.sum()
    sums: dict[str, float] = {}
    for line in lines:
        sums[line["position"]] = sums.get(line["position"], 0.0) + float(line["share"])
    assert all(total == pytest.approx(1, abs=1e-4) for total in sums.values())
    followed = follow(report, "to", "-1")
    assert len(list(csv.DictReader(io.StringIO(followed.to_csv())))) == len(report.tokens)
    sides = {line["position_side"] for line in csv.DictReader(io.StringIO(two_texts().to_csv()))}
    assert sides == {"source", "target"}


def test_flow_and_weights_disagree_about_the_sink() -> None:
    """What the docs' picture shows: demo-bert rests on [CLS], and next to nothing comes from it."""
    source = av.load("demo-bert")
    report = run(source, source.prepare(Prompt(TEXT)))
    inner = slice(1, len(report.tokens) - 1)
    assert report.weights[inner, 0].mean() > 3 * report.total[inner, 0].mean()


@pytest.fixture(scope="module")
def long_model(folder: Path) -> Any:
    """A model with room for long texts, and so little else that tables are what memory goes to."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=2048, n_embd=8, n_layer=3, n_head=1, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return av.load(str(folder))


@pytest.mark.parametrize(("method", "count"), [("alti", 600), ("rollout", 900)])
def test_a_flow_takes_as_much_memory_as_is_said(method: str, count: int, long_model: Any) -> None:
    def ran(count: int) -> int:
        """Bytes at the peak of a run that is printed."""
        ids = tuple(number * number % 61 for number in range(count))
        tracemalloc.start()
        try:
            report = av.flow(Prompt(ids=ids), model=long_model, method=method)
            console = Console(file=io.StringIO(), width=100)
            for part in report.for_terminal():
                console.print(part)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert ran(count) - ran(16) == pytest.approx(peak(count, 3), rel=0.2)


def test_a_flow_that_is_too_large_is_refused_before_any_pass(long_model: Any, monkeypatch) -> None:
    monkeypatch.setattr("attnviz.models.limits.physical_memory", lambda: 2 * peak(400, 3))
    monkeypatch.setattr("attnviz.features.flow.function.LARGE", peak(300, 3))
    with pytest.warns(AttnvizWarning, match=r"300 tokens through 3 layers takes 4\.3 MB"):
        av.flow(Prompt(ids=(1,) * 300), model=long_model)
    monkeypatch.setattr(type(long_model), "forward", None)
    with pytest.raises(InputError, match=r"401 tokens through 3 layers takes .* more than half"):
        av.flow(Prompt(ids=(1,) * 401), model=long_model)
