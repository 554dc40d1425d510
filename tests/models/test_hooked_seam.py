"""What hooked models offer beside attention: logits, W_O, passes that begin at a layer, sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama import modeling_llama

from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Cut, Donor, Gate, Start
from attnviz.errors import ModelError
from attnviz.models import hooked
from attnviz.scoring.observe import Recorder
from tests.models.test_hooked import load
from tests.models.tiny import (
    EAGER,
    FAMILIES,
    LONG,
    SEQ2SEQ,
    SHORT,
    SIZES,
    Blocks,
    Folders,
    hooked_only,
    inputs_of,
    ran,
    transformers,
)

SINGLE = [f for f in FAMILIES if f not in (*EAGER, *SEQ2SEQ, "albert")]


def batch_of(source: hooked.Hooked) -> list[Inputs]:
    return [inputs_of(source, SHORT, (0, *LONG[:8])), inputs_of(source, LONG, SHORT)]


# --- logits ------------------------------------------------------------------------------------


def test_the_head_for_words_runs_only_when_it_is_asked_for(loaded: Any) -> None:
    for family in ("llama", "t5", "bart"):
        source = loaded(family)
        runs: list[object] = []
        head = source._network.model.get_output_embeddings()
        hook = head.register_forward_hook(lambda *args, runs=runs: runs.append(args))
        source.forward(batch_of(source))
        assert not runs
        ran(source, batch_of(source), logits=True)
        assert len(runs) == 1
        hook.remove()


def test_a_head_that_would_be_made_up_is_no_head(
    folders: Folders, loaded: Any, tmp_path: Path
) -> None:
    source = load(folders("llama"))
    missing = "its checkpoint has no LM head (lm_head.weight is not in it)"
    assert source.no_logits == missing
    assert ran(source, batch_of(source), logits=True).logits is None
    assert not any("lm_head" in name for name, _ in source._network.model.named_parameters())
    assert loaded("gpt2").no_logits == "", "tied to the embeddings"
    config = transformers.BertConfig(**SIZES)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "classes")
    assert "(cls.predictions.bias is not in it)" in load(tmp_path / "classes").no_logits
    alone = transformers.T5EncoderModel(transformers.T5Config(**FAMILIES["t5"][1]))
    alone.save_pretrained(tmp_path / "t5")
    assert load(tmp_path / "t5").no_logits == "T5EncoderModel has no LM head"


# --- W_O ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["t5", "bart", "marian", "albert", "gpt_oss"])
def test_every_layer_of_every_kind_has_its_projection(family: str, loaded: Any) -> None:
    source = loaded(family)
    hooked_only(source)
    weights = [source.output(site).weight for site in source.layout.sites]
    assert all(weight is not None for weight in weights)
    different = {weight.data_ptr() for weight in weights}
    assert len(different) == (1 if family == "albert" else len(weights))


def test_no_projection_where_it_does_not_give_what_it_should(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site("decoder", 1)
    forward = torch.nn.Linear.forward

    def louder(self: torch.nn.Linear, x: Tensor) -> Tensor:
        return 1.001 * forward(self, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", louder)
    none = load(folders("llama", words=True)).output(site)
    assert none.weight is None
    assert none.reason == "its output differs from the sum over its heads by 1e-03 of the largest"
    monkeypatch.undo()
    attended = modeling_llama.LlamaAttention.forward

    def normed(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        projection = self.o_proj
        self.o_proj = torch.nn.Sequential(torch.nn.LayerNorm(16), projection)
        try:
            return attended(self, *args, **kwargs)
        finally:
            self.o_proj = projection

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", normed)
    none = load(folders("llama", words=True)).output(site)
    assert (none.weight, none.reason) == (
        None,
        "no linear layer takes its heads' outputs as they are",
    )
    assert (
        load(folders("lfm2", words=True)).output(Site("decoder", 0)).reason
        == "the layer has no attention"
    )


# --- states and starts -------------------------------------------------------------------------


@pytest.mark.parametrize("family", SINGLE)
def test_passes_begin_at_every_layer_of_a_single_stack(family: str, loaded: Any) -> None:
    source = loaded(family)
    hooked_only(source)
    (kind,) = source.layout.kinds
    assert source.start_kind == kind
    batch = batch_of(source)
    whole = ran(source, batch, states=True)
    torch.testing.assert_close(whole.hidden, source.forward(batch).hidden, atol=1e-5, rtol=1e-5)
    assert len(whole.states) == 1 + source.layout.layers(kind)
    for layer, states in enumerate(whole.states[:-1]):
        late = ran(source, batch, states=True, start=Start(layer, states))
        torch.testing.assert_close(late.hidden, whole.hidden, atol=1e-5, rtol=1e-5)
        for one, other in zip(late.states, whole.states[layer:], strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        moved = ran(source, batch, start=Start(layer, states.roll(1, -1)))
        assert not torch.allclose(moved.hidden, whole.hidden, atol=1e-2)


def test_states_are_those_that_transformers_returns(loaded: Any, eager: Any) -> None:
    source = loaded("llama")
    batch = [inputs_of(source, LONG, ())]
    model = eager(source.folder)
    with torch.no_grad():
        output = model(torch.tensor([LONG]), output_hidden_states=True)
    states = ran(source, batch, states=True).states
    for one, other in zip(states[:-1], output.hidden_states[:-1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.norm(states[-1]), output.last_hidden_state)


@pytest.mark.parametrize("family", ["albert", "bart"])
def test_where_a_pass_cannot_begin(family: str, loaded: Any) -> None:
    source = loaded(family)
    assert source.start_kind is None
    if family == "albert":  # one layer that runs several times
        with pytest.raises(ModelError, match="no plain list of layers that run one after the oth"):
            ran(source, batch_of(source), states=True)
    with pytest.raises(ModelError, match="a pass cannot begin at one of them"):
        ran(source, batch_of(source), start=Start(0, torch.zeros(2, 13, 16)))


def test_an_eager_model_begins_at_a_layer_where_nobody_watches(loaded: Any) -> None:
    source = loaded("gpt_neo")
    assert source.start_kind is None
    batch = batch_of(source)
    whole = ran(source, batch, states=True)
    late = ran(source, batch, start=Start(1, whole.states[1]))
    torch.testing.assert_close(late.hidden, whole.hidden)
    moved = ran(source, batch, start=Start(1, 2 * whole.states[1]))
    assert (moved.hidden - whole.hidden).abs().max() > 1e-3
    with pytest.raises(ModelError, match="begins at a layer shows no attention: gpt_neo models"):
        ran(source, batch, [Recorder(batch)], start=Start(1, whole.states[1]))


def test_a_stack_whose_layers_need_more_than_states_has_no_start(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a pass can begin late is tried, not assumed."""
    source = load(folders("llama", words=True))
    forward = modeling_llama.LlamaDecoderLayer.forward
    run: list[object] = []

    def counting(self: torch.nn.Module, *args: object, **kwargs: object) -> Tensor:
        run.append(self)
        return forward(self, *args, **kwargs).roll(len(run) % 2, -1)

    monkeypatch.setattr(modeling_llama.LlamaDecoderLayer, "forward", counting)
    assert source.start_kind is None


# --- gates, gradients, sinks -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gates_get_gradients_in_half_precision(dtype: torch.dtype, loaded: Any) -> None:
    exact = loaded("llama", 3.0)
    source = load(exact.folder, dtype)
    site = Site("decoder", 0)
    found = []
    for one in (source, exact):
        share = torch.ones(4, requires_grad=True)
        hidden = ran(one, batch_of(one)[1:], gates={site: Gate(share)}, grad=True).hidden
        found += torch.autograd.grad(hidden.float().sin().mean(), share)
        assert one.output(site).weight.dtype == hidden.dtype
    torch.testing.assert_close(found[0], found[1], atol=2e-3, rtol=0.1)


def test_gradients_with_checkpointing_and_caches_switched_on(loaded: Any) -> None:
    found = []
    for switched in (False, True):
        source = loaded("llama", 3.0)
        if switched:
            source = load(source.folder)
            source._network.model.config.use_cache = True
            source._network.model.gradient_checkpointing_enable()
        share = torch.ones(4, requires_grad=True)
        gates = {Site("decoder", 0): Gate(share)}
        hidden = ran(source, batch_of(source), gates=gates, grad=True).hidden
        found += torch.autograd.grad(hidden.sin().mean(), share)
        assert not any(p.requires_grad for p in source._network.model.parameters())
    assert torch.equal(*found)


def test_sinks_are_part_of_every_row(loaded: Any) -> None:
    source = loaded("gpt_oss")
    blocks = Blocks()
    source.forward(batch_of(source)[1:], [blocks])
    seen = [rows for several in blocks.by_site.values() for rows in several]
    assert all(rows.sink for rows in seen)
    assert all(0.05 < 1 - float(rows.weights.sum(-1).min()) < 1 for rows in seen)


def test_maps_that_come_back_at_once_must_have_room(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = loaded("gpt_neo")
    batch = batch_of(source)
    longest = max(inputs.length for inputs in batch)
    needed = 4 * len(batch) * longest**2 * len(source.layout)
    monkeypatch.setattr("attnviz.models.limits.physical_memory", lambda: 2 * needed)
    source.forward(batch, [Recorder(batch)])
    monkeypatch.setattr("attnviz.models.limits.physical_memory", lambda: 2 * needed - 1)
    with pytest.raises(ModelError, match=rf"all its maps at once .* for {longest:,} tokens, more"):
        source.forward(batch, [Recorder(batch)])
    source.forward(batch)  # nobody asks for maps


def test_eager_models_give_logits_and_say_what_they_cannot(loaded: Any) -> None:
    source = loaded("gpt_neo")
    reason = "gpt_neo models compute it in code of their own (eager backend)"
    assert source.no_gates == reason
    assert source.output(Site("decoder", 0)).weight is not None
    batch, site = batch_of(source), Site("decoder", 0)
    every = Cut(torch.ones(1, 4) > 0, torch.ones(1, 13) > 0, torch.ones(1, 13) > 0)
    for change in (
        {"gates": {site: Gate(torch.ones(4))}},
        {"donors": {site: [Donor("z", torch.zeros(2, 4, 13, 4), torch.ones(2, 4))]}},
        {"cuts": {site: every}},
    ):
        with pytest.raises(ModelError, match=r"cannot be gated: gpt_neo models compute it"):
            ran(source, batch, **change)
    with pytest.raises(ModelError, match="cannot be cut"), source.cutting({site: every}):
        pass
