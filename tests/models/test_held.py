"""What stands between heads and W_O: gates, normalizations and scales, on tiny random models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.attention.contributions import Writes, distances, parts, remainder
from attnviz.attention.interventions import mixed, written
from attnviz.captures.trials import Activations
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import Donor, ForwardRequest, Gate, Rows, Source
from attnviz.errors import ModelError, UsageError
from attnviz.features.patch.sweep import targets
from attnviz.models.hooked.trace import ModuleCall, calls_of
from tests.models.tiny import LONG, NARROW, SHORT, Blocks, ran, transformers

SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
          "shared_expert_intermediate_size": 8}  # fmt: skip
GATED = {
    "qwen3_next": ("Qwen3Next", {**SPARSE, "layer_types": ["full_attention"] * 2,
                                 "mlp_only_layers": [0, 1]}),
    "laguna": ("Laguna", {}),
}  # fmt: skip
"""Element-wise by a sigmoid, and by head with a softplus."""
HELD = {**GATED, "bitnet": ("BitNet", {})}
KINDS = {"qwen3_next": ("gate",), "laguna": ("gate",), "bitnet": ("norm",)}


def made(name: str) -> Any:
    """A tiny random model with an LM head, all of its vectors random too."""
    kind, sizes = HELD[name]
    config = getattr(transformers, f"{kind}Config", None)
    if config is None:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config(**{**NARROW, **sizes})).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data *= 8
        else:
            parameter.data += torch.randn_like(parameter) / 4
    return model.requires_grad_(False)


@cache
def loaded(name: str) -> tuple[Any, Source]:
    """A model that nobody changes, and what attnviz makes of it."""
    model = made(name)
    return model, av.load(model)


@pytest.fixture(params=HELD)
def named(request: Any) -> tuple[str, Any, Source]:
    return request.param, *loaded(request.param)


@pytest.fixture(params=GATED)
def gated(request: Any) -> tuple[Any, Source]:
    return loaded(request.param)


def projections(model: Any) -> list[nn.Linear]:
    """Every layer's W_O, by the name that these families have for it."""
    return [layer.self_attn.o_proj for layer in model.model.layers]


@contextlib.contextmanager
def changing(module: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let a linear layer take something else."""
    hook = module.register_forward_pre_hook(lambda _, args: (change(args[0]),))
    try:
        yield
    finally:
        hook.remove()


def read_and_given(model: Any, ids: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """What every W_O takes and gives in transformers' own pass, [1, T, H · d_v] and [1, T, D]."""
    calls: list[ModuleCall] = []
    with torch.no_grad(), calls_of(projections(model), calls.append):
        model(torch.tensor([ids]))
    return [(call.entered, call.output) for call in calls]


def kept(source: Source, ids: tuple[int, ...], **request: Any) -> dict[Site, list[Rows]]:
    blocks = Blocks()
    ran(source, [source.prepare(Prompt(ids=ids))], [blocks], **request)
    return blocks.by_site


def test_heads_times_what_is_held_and_w_o_are_what_the_layer_gives(
    named: tuple[str, Any, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, model, source = named
    monkeypatch.setattr("attnviz.attention.blocks.BLOCK_ROWS", 5)
    monkeypatch.setattr("attnviz.attention.blocks.BLOCK_ELEMENTS", 1)
    blocks = kept(source, LONG)
    for (took, gave), site in zip(read_and_given(model, LONG), source.layout.sites, strict=True):
        assert len(blocks[site]) == 3
        out = source.output(site)
        assert (out.held, out.reason) == (KINDS[name], "")
        z = torch.cat([written(rows) for rows in blocks[site]], 2)
        torch.testing.assert_close(z.transpose(1, 2).flatten(2), took, rtol=1e-5, atol=1e-6)
        total = torch.einsum("bhtv,hvd->btd", z, out.weight)
        total = total if out.bias is None else total + out.bias
        torch.testing.assert_close(total, gave, rtol=1e-5, atol=1e-6)
        plain = torch.cat([mixed(rows) for rows in blocks[site]], 2)
        assert not torch.allclose(plain, z, rtol=1e-2)


def test_openness_is_the_mean_of_the_gate_over_channels() -> None:
    model, source = loaded("qwen3_next")
    calls: list[ModuleCall] = []
    modules = [layer.self_attn.q_proj for layer in model.model.layers]
    with torch.no_grad(), calls_of(modules, calls.append):
        model(torch.tensor([LONG]))
    scores = av.heads(Prompt(ids=LONG), model=source).heads
    heads = iter(scores)
    for (site, rows), call in zip(kept(source, LONG).items(), calls, strict=True):
        truth = call.output.view(1, len(LONG), 4, 8)[..., 4:].sigmoid().mean(-1).transpose(1, 2)
        openness = torch.cat([block.openness for block in rows], 2)
        torch.testing.assert_close(openness, truth)
        for index in range(4):
            head = next(heads)
            assert head.head == Head(site, index)
            score = head.scores["gate"]
            assert score.rows == len(LONG) - 1  # the first has one key
            assert score.chance == pytest.approx(0.5)
            assert score.mean == pytest.approx(float(truth[0, index, 1:].mean()), rel=1e-5)


def test_a_softplus_gate_is_held_and_has_no_openness() -> None:
    _, source = loaded("laguna")
    for rows in kept(source, LONG).values():
        assert rows[0].opened is not None
        assert rows[0].openness is None


def test_logits_are_split_over_heads_and_tokens(named: tuple[str, Any, Source]) -> None:
    name, model, source = named
    report = av.logits(Prompt(ids=LONG), model=source)
    assert report.sum == pytest.approx(report.logit, rel=1e-4)
    assert any("W_O" in note and "held" in note for note in report.notes)
    with torch.no_grad():
        last = model.model(torch.tensor([LONG]), output_hidden_states=True)
        states = kept_states(source)
        assert last.last_hidden_state.shape == states.shape
    norm, head = model.model.norm, model.lm_head.weight
    token = int(model(torch.tensor([LONG])).logits[0, -1].argmax())
    x = states[0, -1].double()
    deviation = (x.square().mean() + norm.variance_epsilon if hasattr(norm, "variance_epsilon")
                 else x.square().mean() + norm.eps).sqrt()  # fmt: skip
    shift = 1.0 if name == "qwen3_next" else 0.0
    toward = (norm.weight.double() + shift) * head[token].double() / deviation
    for layer, (took, _) in enumerate(read_and_given(model, LONG)):
        weight = projections(model)[layer].weight.double()
        for index in range(4):
            columns = slice(4 * index, 4 * index + 4)
            adds = float(weight[:, columns] @ took[0, -1, columns].double() @ toward)
            part = next(p for p in report.parts if (p.kind, p.layer, p.head) ==
                        ("head", layer, index))  # fmt: skip
            assert part.value == pytest.approx(adds, rel=1e-4, abs=1e-5)
            row = report.by_token[Head(Site("decoder", layer), index)]
            assert sum(row) == pytest.approx(adds, rel=1e-4, abs=1e-5)


def kept_states(source: Source) -> Tensor:
    """What leaves the last layer."""
    batch = [source.prepare(Prompt(ids=LONG))]
    return source.forward(batch, (), ForwardRequest(states=True)).states[-1]


def test_ablating_a_head_is_zero_in_what_w_o_takes(named: tuple[str, Any, Source]) -> None:
    name, model, source = named
    if name == "bitnet":
        pytest.skip("the normalization behind the heads sees an ablated one too")
    site = source.layout.sites[1]
    share = torch.ones(4)
    share[2] = 0
    request = ForwardRequest(gates={site: Gate(share)}, logits=True)
    batch = [source.prepare(Prompt(ids=LONG))]
    ours = source.forward(batch, (), request).logits

    def without(x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 1, 0, 1]).repeat_interleave(4)

    with torch.no_grad(), changing(projections(model)[1], without):
        theirs = model(torch.tensor([LONG])).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_another_runs_gate_in_the_place_of_a_layers_own(gated: tuple[Any, Source]) -> None:
    model, source = gated
    other = tuple(reversed(LONG))
    site = source.layout.sites[0]
    activations = Activations(["gate", "z", "written"], [site])
    source.forward([source.prepare(Prompt(ids=other))], [activations])
    gate = activations.values["gate"][site]
    torch.testing.assert_close(
        gate * activations.values["z"][site], activations.values["written"][site]
    )
    share = torch.zeros(1, 4)
    share[0, 1] = 1
    request = ForwardRequest(donors={site: [Donor("gate", gate, share)]}, logits=True)
    ours = source.forward([source.prepare(Prompt(ids=LONG))], (), request).logits
    own = Activations(["gate"], [site])
    source.forward([source.prepare(Prompt(ids=LONG))], [own])
    ratio = torch.ones_like(gate)
    ratio[:, 1] = (gate / own.values["gate"][site])[:, 1]
    with torch.no_grad():
        change = lambda x: x * ratio.transpose(1, 2).flatten(2)  # noqa: E731
        plain = model(torch.tensor([LONG])).logits
        with changing(projections(model)[0], change):
            theirs = model(torch.tensor([LONG])).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours, plain, atol=1e-3)
    itself = ForwardRequest(donors={site: [Donor("gate", own.values["gate"][site],
                                                 torch.ones(1, 4))]}, logits=True)  # fmt: skip
    same = source.forward([source.prepare(Prompt(ids=LONG))], (), itself).logits
    torch.testing.assert_close(same, plain, rtol=1e-5, atol=1e-5)


def test_gates_are_patched_by_name_and_refused_where_there_are_none() -> None:
    _, source = loaded("qwen3_next")
    shared = dict.fromkeys(source.layout.sites, 2)
    assert [t.part for t in targets(source, "gate", "1.2", shared)] == ["gate"]
    with pytest.raises(ModelError, match="does not multiply its heads' outputs with a gate"):
        targets(av.load("demo-gpt2"), "gate", None, {})


def test_parts_of_all_tokens_add_up_to_what_a_layer_makes(named: tuple[str, Any, Source]) -> None:
    _, _, source = named
    for site, (rows,) in kept(source, LONG, residuals=True).items():
        writes = Writes.of(rows, source.output(site), residual=True)
        alpha, v, m = rows.weights.double(), rows.values.double(), rows.passes.double()
        v = v.repeat_interleave(2, 1)
        each = alpha[..., None] * v[:, :, None] * m[:, :, :, None]  # [B, H, T, S, d_v]
        truth = torch.einsum("bhtsv,hvd->bhtsd", each, writes.matrix.double())
        whole = torch.zeros_like(truth[:, 0])
        for some, keys, made_ in parts(writes):
            whole[:, some, keys] = made_.double()
        own = torch.arange(len(LONG))
        past = truth.sum(1)
        past[:, own, own] += rows.residual.double()
        torch.testing.assert_close(whole, past, rtol=1e-4, atol=1e-5)
        total = whole.sum(2) + remainder(writes).double()
        torch.testing.assert_close(total, writes.output.double(), rtol=1e-4, atol=1e-5)
        apart = (writes.output.double()[:, :, None] - past).abs().sum(-1)
        torch.testing.assert_close(distances(writes).double(), apart, rtol=1e-4, atol=1e-4)
        layer = av.capture(Prompt(ids=LONG), model=source, quantity="norm-residual")
        heads = av.capture(Prompt(ids=LONG), model=source, quantity="norm")
        maps = torch.stack([torch.as_tensor(heads[Head(site, n)]) for n in range(4)])
        norms = truth.norm(dim=-1)[0]
        torch.testing.assert_close(maps.double(), norms, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            torch.as_tensor(layer[Head(site, 0)]).double(), past.norm(dim=-1)[0],
            rtol=1e-4, atol=1e-4,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["qwen3_next", "bitnet"])
def test_sources_of_a_score_add_up(name: str) -> None:
    _, source = loaded(name)
    result = av.sources(Prompt(ids=LONG), model=source, select="1.2")
    assert result.sum == pytest.approx(result.score, rel=1e-4)
    assert any(origin.head is not None for origin in result.key_origins)
    assert any("before W_O" in note or "and W_O" in note for note in result.notes)


def test_flow_lens_circuits_and_sinks_take_gated_models() -> None:
    _, source = loaded("qwen3_next")
    prompt = Prompt(ids=LONG)
    assert av.flow(prompt, model=source, method="alti").source.model == source.info.model
    lens = av.lens(prompt, model=source, by="head")
    report = av.logits(prompt, model=source)
    assert report.position == lens.positions[0]
    notes = av.circuits(model=source).notes
    assert any("open gates" in note for note in notes)
    sinks = av.sinks(prompt, model=source)
    scores = {head.head: head.scores["gate"] for head in av.heads(prompt, model=source).heads}
    for head in sinks.heads:
        assert abs(head.gate.value - (scores[head.head].mean or 0)) < 0.2
    assert all(head.gate.value is None for head in av.sinks("a b c").heads)


def test_a_product_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("qwen3_next")
    for module in projections(model):
        module.register_forward_pre_hook(lambda _, args: (args[0].add_(0.1),))
    source = av.load(model)
    with pytest.raises((ModelError, UsageError), match="is no product of the heads' outputs"):
        av.capture(Prompt(ids=SHORT), model=source, quantity="norm")
    report = av.logits(Prompt(ids=SHORT), model=source)
    assert "is no product of the heads' outputs" in report.reason
