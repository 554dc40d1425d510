"""Circuits from weights: against dense float64 matrices of transformers' own modules."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.patches import Circle, FancyArrowPatch

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source, Start
from attnviz.errors import ModelError, SelectionError, UsageError
from attnviz.features.circuits import compose, copying, description, figure
from attnviz.features.circuits.function import run
from attnviz.features.circuits.result import SIDES, Circuits, CircuitsSettings
from attnviz.models import pretrained
from attnviz.models.controls import FreshConfig
from tests.models.tiny import GAIN, LONG, VOCABULARY, build, hooked_only

transformers = pytest.importorskip("transformers")

BACKENDS = {"gpt2": "native", "llama": "hooked", "bert": "native"}
PREVIOUS, INDUCTION = "1.4", ("2.0", "2.4", "3.0", "3.3")
"""Of demo-gpt2: the previous-token head, and those that look at what followed a token before."""


Matrices = dict[str, np.ndarray]  # of a head, W_Q, W_K, W_V [D, d] and W_O [d, D]


@pytest.fixture(scope="module")
def report() -> Circuits:
    return av.circuits()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function from a family to our source and transformers' model of the same weights."""

    @functools.cache
    def load(name: str, backend: str = "") -> tuple[Source, Any]:
        folder = tmp_path_factory.mktemp(name)
        build(name, folder, 3.0, words=True)
        source = pretrained.load(str(folder), backend=backend or BACKENDS[name])
        auto = "AutoModelForMaskedLM" if name == "bert" else "AutoModelForCausalLM"
        model = getattr(transformers, auto).from_pretrained(folder, attn_implementation="eager")
        return source, model.eval()

    return load


@functools.cache
def read_off(source: Source) -> Circuits:
    """All that can be, once for all tests of a model."""
    return run(source, CircuitsSettings())


def array(tensor: Any) -> np.ndarray:
    return tensor.detach().double().numpy()  # type: ignore[no-any-return]


def slices(matrix: np.ndarray, heads: int) -> list[np.ndarray]:
    """[D, H · d] -> H times [D, d]."""
    return np.split(matrix, heads, axis=1)


def dense(name: str, model: Any) -> list[list[Matrices]]:
    """Of every layer the matrices of its heads, normalizations folded in."""
    found, centre = [], np.eye(16) - 1 / 16
    places = {"gpt2": "transformer.h", "llama": "model.layers", "bert": "bert.encoder.layer"}
    for layer in model.get_submodule(places[name]):
        if name == "gpt2":
            read = centre @ np.diag(array(layer.ln_1.weight)) @ array(layer.attn.c_attn.weight)
            parts = [slices(part, 4) for part in np.split(read, 3, axis=1)]
            out = (array(layer.attn.c_proj.weight) @ centre).T
        elif name == "llama":
            gamma, own = array(layer.input_layernorm.weight)[:, None], layer.self_attn
            parts = [slices(gamma * array(own.q_proj.weight).T, 4)]
            for shared in (own.k_proj, own.v_proj):
                groups = slices(gamma * array(shared.weight).T, 2)
                parts.append([matrix for matrix in groups for _ in range(2)])
            out = array(own.o_proj.weight)
        else:
            own = layer.attention.self
            parts = [slices(array(part.weight).T, 4) for part in (own.query, own.key, own.value)]
            out = array(layer.attention.output.dense.weight)
        parts.append([part.T for part in slices(out, 4)])
        found.append([dict(zip("QKVO", head, strict=True)) for head in zip(*parts, strict=True)])
    return found


def between(name: str, model: Any, layer: int) -> np.ndarray:
    """[D, D], what goes over the stream from a layer's attention to the next layer."""
    width = model.config.hidden_size
    if name != "bert":
        return np.eye(width)
    centre, own = np.eye(width) - 1 / width, model.bert.encoder.layer[layer]
    norms = own.attention.output.LayerNorm, own.output.LayerNorm
    return np.linalg.multi_dot([m for n in norms for m in (centre, np.diag(array(n.weight)))])  # type: ignore[no-any-return]


def check_edges(
    report: Circuits, heads: Mapping[int, list[Matrices]], path: Callable[[int, int], np.ndarray]
) -> None:
    """Each is of products [D, D] of dense matrices; ``path``: what goes over the stream between."""
    edges = {(edge.side, edge.writer, edge.reader): edge for edge in report.edges}
    (kind,), norm, checked = report.layout.kinds, np.linalg.norm, 0
    for first, second in itertools.combinations(heads, 2):
        over = path(first, second)
        for (i, a), (j, b) in itertools.product(enumerate(heads[first]), enumerate(heads[second])):
            ov, qk, ov_2 = a["V"] @ a["O"] @ over, b["Q"] @ b["K"].T, b["V"] @ b["O"]
            ends = Head(Site(kind, first), i), Head(Site(kind, second), j)
            for side, made, read in (
                ("Q", ov @ qk, qk), ("K", ov @ qk.T, qk), ("V", ov @ ov_2, ov_2)
            ):  # fmt: skip
                edge = edges[side, *ends]
                assert edge.ratio == pytest.approx(norm(made) / norm(ov) / norm(read), rel=1e-4)
                mean = report.chance[side].mean
                assert edge.excess == pytest.approx(edge.ratio - mean, abs=1e-9)
                checked += 1
    assert checked == len(edges) >= 48


def copied(x: np.ndarray, head: Matrices, unembed: np.ndarray) -> tuple[float, np.ndarray]:
    """The score of a head that reads x [V, D], and its logits [V, V]."""
    logits = x @ head["V"] @ head["O"] @ unembed.T
    values = np.linalg.eigvals(logits)
    return values.sum().real / np.abs(values).sum(), logits


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_composition_against_dense_matrices(name: str, models: Any) -> None:
    source, model = models(name)

    def path(first: int, second: int) -> np.ndarray:
        steps = [between(name, model, layer) for layer in range(first, second)]
        return functools.reduce(np.matmul, steps)

    report = read_off(source)
    check_edges(report, dict(enumerate(dense(name, model))), path)
    assert len(report.edges) == 48


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_both_backends_find_the_same(name: str, models: Any) -> None:
    (native, _), (hooked, _) = models(name), models(name, "hooked")
    hooked_only(hooked)
    first, second = map(read_off, (native, hooked))
    assert len(first.edges) == len(second.edges) == 48
    for a, b in zip(first.edges, second.edges, strict=True):
        assert (a.side, a.writer, a.reader) == (b.side, b.writer, b.reader)
        assert a.ratio == pytest.approx(b.ratio, rel=1e-4)
    assert first.plain.keys() == second.plain.keys()
    for head in first.plain:
        assert first.copying()[head].score == pytest.approx(second.copying()[head].score, abs=1e-3)
        assert first.by_position[head].first == pytest.approx(
            second.by_position[head].first, abs=1e-5
        )


def test_random_matrices_meet_as_theory_says(report: Circuits) -> None:
    """Under a random rotation the mean square of the ratio is 1 / (D - 1), the mean gone."""
    for side in SIDES:
        chance = report.chance[side]
        assert chance.mean == pytest.approx(191**-0.5, abs=4 * chance.sd / 10)
    assert not report.copies()[Head(Site("decoder", 3), 4)]
    fresh = av.circuits(model=FreshConfig(d_model=64, heads=4, layers=3, causal=True))
    assert not any(description.shown(fresh, side, 10) for side in SIDES)
    assert fresh.reasons.keys() == {"copying", "positions"}


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_copying_against_dense_matrices(name: str, models: Any) -> None:
    source, model = models(name)
    report, heads = read_off(source), dense(name, model)
    assert report.tokens == VOCABULARY
    embedded = array(model.get_input_embeddings().weight)
    last = model.transformer.ln_f if name == "gpt2" else model.model.norm
    ids = torch.arange(VOCABULARY)
    with torch.no_grad():
        x = model.get_input_embeddings()(ids)[:, None]
        if name == "gpt2":  # which adds its first position
            x = x - model.transformer.wpe.weight[0]
        first = array(model(inputs_embeds=x, output_hidden_states=True).hidden_states[1][:, 0])
    centre = np.eye(16) - (1 / 16 if name == "gpt2" else 0)
    unembed = array(model.get_output_embeddings().weight) * array(last.weight) @ centre
    less_mean = unembed - unembed.mean(0)
    for kind, states in (("plain", embedded), ("first", first)):
        eps = 1e-5 if name == "gpt2" else model.config.rms_norm_eps
        x = states @ centre
        x = x / np.sqrt((x**2).mean(1, keepdims=True) + eps)
        for layer, index in itertools.product(range(2), range(4)):
            head = Head(Site("decoder", layer), index)
            if kind == "first" and layer == 0:
                assert head not in report.first
                continue
            found = getattr(report, kind)[head]
            own = heads[layer][index]
            for value, table in ((found.score, unembed), (found.centred, less_mean)):
                score, logits = copied(x, own, table)
                assert value == pytest.approx(score, abs=1e-3)
            spread = np.maximum(logits.std(1), 1e-30)  # padding has no embedding
            assert found.own == pytest.approx((np.diag(logits) / spread).mean(), abs=1e-3)


def test_probabilities_are_those_of_random_rotations() -> None:
    """A share p of ratios under rotations drawn at random has that probability or less."""
    torch.manual_seed(0)
    width, draws = 40, 10_000
    for rank, sizes in ((4, [3.0, 1, 1, 0.2]), (2, [1.0, 0.9]), (8, [2.0, *[1.0] * 7])):
        write = torch.randn(1, rank, width, dtype=torch.float64) * torch.tensor(sizes)[:, None]
        read = torch.randn(1, width, rank, dtype=torch.float64) * torch.tensor(sizes)
        columns = torch.linalg.qr(torch.randn(draws, width, rank, dtype=torch.float64)).Q
        _, values, _ = torch.linalg.svd(read[0])
        readers = columns * values[:rank]  # [draws, D, d], in random directions
        ratios = compose.between(write, readers)[0]
        p = compose.matched(ratios[None], write, readers, width)[0]
        for share in (0.1, 0.01, 0.001):
            assert float((p <= share).mean()) == pytest.approx(share, rel=0.5, abs=2e-4)


def test_positions_against_a_pass_without_tokens(models: Any) -> None:
    """Embeddings of zero leave positions alone in the stream of the first layer."""
    source, model = models("gpt2")
    report = read_off(source)
    length = source.max_tokens
    with torch.no_grad():
        output = model(inputs_embeds=torch.zeros(1, length, 16), output_attentions=True)
    weights = array(output.attentions[0][0])
    rows = np.arange(2, length - 1)
    for index, one in enumerate(weights):
        found = report.by_position[Head(Site("decoder", 0), index)]
        assert found.previous == pytest.approx(one[rows, rows - 1].mean(), abs=1e-5)
        assert found.first == pytest.approx(one[rows, 0].mean(), abs=1e-5)
        assert found.same == pytest.approx(one[rows, rows].mean(), abs=1e-5)
        assert found.next is None
    assert report.positions == length
    assert report.uniform is not None
    assert report.uniform.first == pytest.approx((1 / (rows + 1)).mean())


def test_the_induction_circuit_of_demo_gpt2(report: Circuits) -> None:
    """The previous-token head feeds the keys of the heads that look at what followed."""
    strongest = report.of("K")[:10]
    ratios = {e.reader.name: e.ratio for e in strongest if e.writer.name == PREVIOUS}
    assert set(ratios) == set(INDUCTION)
    assert min(ratios.values()) > 0.105
    assert max(ratios.values()) < 0.17
    later = {head.name: one.score for head, one in report.first.items()}
    assert all(later[name] > 0.9 for name in INDUCTION)
    assert not report.copies()[Head(Site("decoder", 2), 3)]  # 0.33
    assert sum(report.plain[head].score < 0 for head in report.first) == len(report.first) - 1
    sent = {head.name: (place, weight) for head, place, weight, _ in description.sent(report)}
    assert sent["0.5"][0] == "previous"
    assert sent["0.5"][1] > 0.9


def test_first_layer_alone(models: Any) -> None:
    """A pass that ends after the first layer leaves what a whole one does."""
    for name in ("gpt2", "llama"):
        source, _ = models(name)
        inputs = source.prepare(Prompt(ids=LONG))
        whole = source.forward([inputs], request=ForwardRequest(states=True)).states
        ended = source.forward(
            [inputs],
            request=ForwardRequest(states=True, hidden=False, start=Start(0, whole[0], end=1)),
        ).states
        assert len(ended) == 2
        assert torch.equal(ended[1], whole[1])
        with pytest.raises(ModelError, match="ends before one of the layers 1 to 2, not 3"):
            source.forward([inputs], request=ForwardRequest(start=Start(0, whole[0], end=3)))
    table = source.embedding().tokens
    assert table is not None
    assert copying.after_first(source, table[:3]).shape == (3, 16)


def test_rotary_models_say_what_holds(models: Any) -> None:
    source, _ = models("llama")
    report = read_off(source)
    assert report.turned
    assert any("same position" in note for note in report.notes)
    assert "rotate" in report.reasons["positions"]
    assert report.by_position == {}


def test_what_is_not_known_is_not_shown(tmp_path: Path) -> None:
    build("gpt_oss", tmp_path / "q", GAIN.get("gpt_oss", 3.0), words=True)
    source = pretrained.load(str(tmp_path / "q"), backend="hooked")
    hooked_only(source)
    found = run(source, CircuitsSettings())
    assert set(found.spread) == {"V"}
    assert "queries and keys" in found.reasons["Q and K"]
    assert found.plain
    build("t5", tmp_path / "t", 1.0)
    with pytest.raises(ModelError, match=r"nothing can be read off the weights .* no plain list"):
        av.circuits(model=str(tmp_path / "t"))
    with pytest.raises(ModelError, match="nothing can be read"):
        av.circuits(model=FreshConfig(kind="mla", layers=2))
    with pytest.raises(UsageError, match="no edges to draw"):
        replace(found, edges=()).to_bytes("png")


def test_a_model_of_which_nothing_is_known_is_an_error(tmp_path: Path, capsys) -> None:
    build("deepseek_v3", tmp_path, 3.0, words=True)  # latent attention
    capsys.readouterr()
    with pytest.raises(ModelError, match=r"nothing can be read .* one layer"):
        av.circuits(model=FreshConfig())
    assert main(["circuits", "--model", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "its values are not what one matrix makes" in told.err
    assert told.err.count("\n") == 1


def test_selection_and_seed(report: Circuits) -> None:
    chosen = av.circuits(select=PREVIOUS, edges=5, sample=50)
    assert len(chosen.edges) == 15
    assert all(PREVIOUS in (e.writer.name, e.reader.name) for e in chosen.edges)
    assert chosen.spread["K"].edges == 18
    assert [e.ratio for e in chosen.of("K")] == [
        e.ratio for e in report.of("K") if PREVIOUS in (e.writer.name, e.reader.name)
    ][:5]
    some = av.circuits(sample=100, seed=1)
    assert some.tokens == 100
    assert some.edges[0].excess != report.edges[0].excess
    with pytest.raises(SelectionError):
        av.circuits(select="9.9")
    with pytest.raises(UsageError, match="edges must be at least 1, not 0"):
        av.circuits(edges=0)


def test_rows_and_fewer_edges(report: Circuits) -> None:
    lines = report.to_csv().splitlines()
    assert lines[0] == "side,writer,reader,ratio,excess,p"
    assert len(lines) == 1 + 3 * 216
    assert report.to_bytes("svg", top=1) != report.to_bytes("svg")


def test_what_stands_beside_heads(report: Circuits) -> None:
    """Each head's lines and measures are the figures of the result."""
    found = report.finding("weights.json")
    assert found is not None
    measures = {measure.name: measure.values for measure in found.measures}
    assert measures.keys() == {"copying", "previous", "writes"}
    for head in report.layout:
        assert measures["copying"][head.name][0] == report.copying()[head].score
    feeders = [e.excess for e in report.edges if e.writer.name == PREVIOUS]
    assert measures["writes"][PREVIOUS][0] == max(feeders)
    assert "3.5" not in measures["writes"]  # the last layer feeds none
    assert any("keys can be fed by 1.4 (+0.09" in line for line in found.said["2.0"])
    assert any("can feed the keys of" in line and "2.0" in line for line in found.said[PREVIOUS])


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "graph.svg"
    few = ["circuits", "--sample", "50"]
    assert main([*few, "--out", str(plot)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1.4 → 2.0 +0.09" in out
    assert "0.5 the position before" in out
    assert "into keys" in plot.read_text("utf-8")
    assert main([*few, "--csv", "--edges", "20"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 61


def test_no_arrow_passes_behind_a_head_that_is_not_its_own(report: Circuits) -> None:
    axes = figure.draw.__wrapped__(report, 150, 10).axes[0]
    axes.figure.canvas.draw()
    circles = [one for one in axes.patches if isinstance(one, Circle)]
    arrows = [one for one in axes.patches if isinstance(one, FancyArrowPatch)]
    centers = np.array([circle.center for circle in circles])
    assert len(centers) == 24
    assert len(arrows) > 10
    for arrow in arrows:
        pieces = [piece for piece, _ in arrow.get_path().iter_bezier()]
        dense = np.array([piece(at) for piece in pieces for at in np.linspace(0, 1, 50)])
        away = np.linalg.norm(dense[:, None] - centers, axis=-1).min(0)
        assert np.sort(away)[2] > circles[0].radius  # but for the heads at its ends
