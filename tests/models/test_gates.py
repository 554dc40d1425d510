"""Gates, gradients, logits and starts: the identities that head ablation rests on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Gate, Gates, Output, Source, Start
from attnviz.errors import ModelError
from attnviz.models.controls import FreshConfig
from attnviz.models.running import merged
from attnviz.scoring.observe import Recorder
from tests import mostly_slow
from tests.models.tiny import Blocks, inputs_of, ran, tiny

FRESH = {
    "mha": FreshConfig(64, 4, layers=3),
    "gqa": FreshConfig(64, 4, kv_heads=2, layers=2, kind="gqa", causal=True),
    "mla": FreshConfig(64, 4, layers=2, kind="mla"),
    "cross": FreshConfig(64, 4, layers=2, kind="cross"),
}
TEXTS = ("the keys to the cabinet are on the table", "one two three one two")


TINY = (
    *("gpt2", "bert", "modernbert", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gpt_neox"),
    *("opt", "phi", "cohere", "granite", "deepseek_v3", "gpt_oss", "t5", "bart", "marian"),
)
FAMILIES = mostly_slow(
    [*FRESH, "demo-gpt2", "demo-bert", "minilm", *TINY],
    *("gqa", "mla", "cross", "demo-gpt2", "demo-bert", "llama", "gemma2", "deepseek_v3"),
    *("gpt_oss", "t5", "bart"),
)
IDS = ((7, 21, 30, 4, 18, 11, 5, 27, 33, 14), (5, 9, 2, 31, 17, 12))
TARGETS = ((2, 14, 8, 39, 26, 5, 7), (2, 9, 31, 30, 12))


@pytest.fixture(params=FAMILIES, scope="module")
def source(request: pytest.FixtureRequest, minilm: str, loaded: Any) -> Source:
    name = request.param
    if name in TINY:
        return tiny(name, loaded)
    return av.load(FRESH.get(name, minilm if name == "minilm" else name))


def batch_of(source: Source, items: int = 2) -> list[Inputs]:
    """One text or two, of different lengths."""
    if source.info.backend == "hooked":
        both = zip(IDS, TARGETS, strict=True)
        return [inputs_of(source, *one) for one in both][:items]
    context = "ein anderer Satz" if source.layout.kinds == ("cross",) else None
    return [source.prepare(Prompt(text, pair=context)) for text in TEXTS[:items]]


def heads_of(source: Source, site: Site) -> int:
    return source.layout.heads[site.kind][site.layer]


def real(states: Tensor, batch: list[Inputs]) -> list[Tensor]:
    """Each item's states without padding; the decoder's in an encoder-decoder model."""
    lengths = [len(list(item.sides.values())[-1].queries) for item in batch]
    return [one[:length] for one, length in zip(states, lengths, strict=True)]


def loss(output: Output, batch: list[Inputs]) -> Tensor:
    """Some smooth function of every real state that treats no two alike."""
    total = output.hidden.new_zeros(())
    for one in real(output.hidden, batch):
        total = total + (one * torch.linspace(-1, 2, one.numel()).view_as(one)).sin().mean()
    return total


def test_a_watched_pass_is_gated_like_a_fused_one(source: Source) -> None:
    batch = batch_of(source)
    site = source.layout.sites[-1]
    gates = {site: Gate(torch.linspace(0, 1.5, heads_of(source, site)))}
    fused = ran(source, batch, gates=gates)
    watched = ran(source, batch, [Recorder(batch)], gates=gates)
    for one, two in zip(real(fused.hidden, batch), real(watched.hidden, batch), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.fixture
def written(source: Source, request: pytest.FixtureRequest) -> Source:
    """The source, whose matrices a test writes to."""
    if request.node.callspec.params["source"] == "minilm":
        pytest.skip("its matrices are the file's, which cannot be written")
    return source


def test_masking_heads_is_cutting_their_rows_out_of_the_output_projection(written: Source) -> None:
    """Each head of the last layer, and all of the first, which leaves the projection's bias."""
    source, batch = written, batch_of(written)
    first, last = source.layout.sites[0], source.layout.sites[-1]
    plain = source.forward(batch).hidden
    whole = list(range(heads_of(source, first)))
    for site, gone in [(first, whole), *((last, [n]) for n in range(heads_of(source, last)))]:
        share = torch.ones(heads_of(source, site))
        share[gone] = 0
        gated = ran(source, batch, gates={site: Gate(share)})
        weight = source.output(site).weight
        kept = weight.clone()
        weight[gone] = 0  # a view of the model's own matrix
        try:
            cut = source.forward(batch)
        finally:
            weight.copy_(kept)
        torch.testing.assert_close(gated.hidden, cut.hidden, atol=1e-6, rtol=1e-5)
        assert gone != whole or not torch.allclose(gated.hidden, plain, atol=1e-3)


def test_what_observers_see_makes_the_heads_outputs(source: Source) -> None:
    """Putting z_h = Σ_j α v_j, from weights and values that went by, in the heads' place."""
    batch = batch_of(source, 1)
    site = source.layout.sites[-1]
    blocks = Blocks()
    plain = source.forward(batch, [blocks])
    z = blocks.outputs(site).transpose(1, 2)  # [B, T, H, d_v]
    replaced = ran(source, batch, gates={site: Gate(torch.zeros(z.shape[2]), z)})
    torch.testing.assert_close(replaced.hidden, plain.hidden, atol=1e-5, rtol=1e-4)


def test_a_fill_takes_the_heads_place(source: Source) -> None:
    """[H, d_v] is the same at every position; ξ = 0.25 mixes a quarter of z with it."""
    batch = batch_of(source, 1)
    site = source.layout.sites[-1]
    blocks = Blocks()
    source.forward(batch, [blocks])
    z = blocks.outputs(site)
    fill = torch.randn(z.shape[1], z.shape[3], generator=torch.Generator().manual_seed(0))
    by_hand = 0.25 * z + 0.75 * fill[:, None]
    quarter = torch.full((z.shape[1],), 0.25)
    mixed = ran(source, batch, gates={site: Gate(quarter, fill)})
    whole = {site: Gate(torch.zeros(z.shape[1]), by_hand.transpose(1, 2))}
    torch.testing.assert_close(
        mixed.hidden, ran(source, batch, gates=whole).hidden, atol=1e-5, rtol=1e-4
    )


def test_a_gate_for_each_item_is_the_same_as_one_after_the_other(source: Source) -> None:
    one = batch_of(source, 1)
    site = source.layout.sites[0]
    heads = heads_of(source, site)
    together = ran(source, one * heads, gates={site: Gate(1 - torch.eye(heads))})
    for head in range(heads):
        alone = ran(source, one, gates={site: Gate(1 - torch.eye(heads)[head])})
        torch.testing.assert_close(together.hidden[head], alone.hidden[0], atol=5e-6, rtol=1e-5)


def test_a_pass_begins_where_another_one_was(source: Source) -> None:
    if source.start_kind is None:
        pytest.skip("two stacks")
    batch = batch_of(source)
    whole = ran(source, batch, states=True)
    assert len(whole.states) == 1 + len(source.layout.sites)
    for layer, states in enumerate(whole.states[:-1]):
        rest = ran(source, batch, start=Start(layer, states), states=True)
        for a, b in zip(real(rest.hidden, batch), real(whole.hidden, batch), strict=True):
            assert torch.equal(a, b)
        assert len(rest.states) == len(whole.states) - layer


@pytest.mark.parametrize("layer", [-1, 99])
def test_a_start_that_is_not_there(layer: int) -> None:
    source = av.load("demo-gpt2")
    batch = batch_of(source)
    states = ran(source, batch, states=True).states[0]
    with pytest.raises(ModelError, match=f"layers 0 to 3; a pass cannot begin at {layer}"):
        ran(source, batch, start=Start(layer, states))
    with pytest.raises(ModelError, match=r"begins with states \[3, T, D\] or of a part .* \[2, "):
        ran(source, [*batch, batch[0]], start=Start(0, states))


@pytest.mark.parametrize("watched", [pytest.param(False, marks=pytest.mark.slow), True])
def test_states_of_a_batch_serve_for_every_repetition(source: Source, watched: bool) -> None:
    """Every head gated in a run of its own, from the states of one run."""
    if source.start_kind is None:
        pytest.skip("two stacks")
    batch = batch_of(source)
    states = ran(source, batch, states=True).states
    for site in source.layout.sites:
        heads, entering = heads_of(source, site), states[site.layer]
        every = batch * heads
        share = (1 - torch.eye(heads)).repeat_interleave(len(batch), 0)
        width = source.output(site).weight.shape[1]
        fill = torch.randn(1, entering.shape[1], heads, width)
        for gate in (Gate(share), Gate(share, fill)):
            seen = [Recorder(every)] if watched else []
            once = ran(source, every, seen, gates={site: gate}, start=Start(site.layer, entering))
            repeated = Start(site.layer, entering.repeat(heads, 1, 1))
            whole = ran(source, every, gates={site: gate}, start=repeated)
            tolerance = {"atol": 1e-5, "rtol": 1e-4} if watched else {"atol": 1e-6, "rtol": 1e-6}
            torch.testing.assert_close(once.hidden, whole.hidden, **tolerance)
            if seen:
                maps = [seen[0].maps(item)[site] for item in range(len(every))]
                assert (maps[0] == maps[2]).all()
                assert (maps[1] == maps[-1]).all()


def test_states_that_run_once_where_no_gate_tells_the_runs_apart() -> None:
    source = av.load("demo-gpt2")
    batch = batch_of(source)
    whole = ran(source, batch, states=True)
    for gates in (None, {Site("decoder", 2): Gate(torch.ones(6))}):
        late = ran(source, batch * 3, gates=gates, start=Start(2, whole.states[2]))
        torch.testing.assert_close(late.hidden, whole.hidden.repeat(3, 1, 1), atol=1e-6, rtol=1e-6)


# --- gradients ---------------------------------------------------------------------------------


def gradients(source: Source, batch: list[Inputs]) -> tuple[dict[Site, Tensor], Tensor]:
    shares = {
        site: torch.ones(heads_of(source, site), requires_grad=True) for site in source.layout.sites
    }
    gates: Gates = {site: Gate(share) for site, share in shares.items()}
    value = loss(ran(source, batch, gates=gates, grad=True), batch)
    found = torch.autograd.grad(value, list(shares.values()))
    return dict(zip(shares, found, strict=True)), value


def test_gradients_agree_with_finite_differences(source: Source) -> None:
    batch = batch_of(source)
    found, _ = gradients(source, batch)
    step = 1e-2
    for site in source.layout.sites:
        heads = heads_of(source, site)
        head = (0, heads - 1)[site.layer % 2]
        sides = [
            loss(ran(source, batch, gates={site: Gate(1 + sign * torch.eye(heads)[head])}), batch)
            for sign in (step, -step)
        ]
        slope = float(sides[0] - sides[1]) / (2 * step)
        assert slope == pytest.approx(float(found[site][head]), abs=2e-3, rel=2e-2)


def test_nothing_is_tracked_unless_asked_for(source: Source) -> None:
    batch = batch_of(source)
    site = source.layout.sites[0]
    share = torch.ones(heads_of(source, site), requires_grad=True)
    assert not ran(source, batch, gates={site: Gate(share)}).hidden.requires_grad
    weight = source.output(site).weight
    assert not weight.requires_grad


def test_gradients_go_through_passes_that_are_watched_and_begin_late(source: Source) -> None:
    if source.start_kind is None:
        pytest.skip("two stacks")
    batch = batch_of(source)
    states = ran(source, batch, states=True).states
    site = source.layout.sites[-1]
    plain, _ = gradients(source, batch)
    share = torch.ones(heads_of(source, site), requires_grad=True)
    output = ran(
        source,
        batch,
        [Recorder(batch)],
        gates={site: Gate(share)},
        grad=True,
        start=Start(site.layer, states[site.layer]),
    )
    (found,) = torch.autograd.grad(loss(output, batch), share)
    torch.testing.assert_close(found, plain[site], atol=1e-5, rtol=1e-3)


BATCH, TOKENS, HEADS, WIDTH = 2, 3, 4, 5
SITE, OTHER = Site("decoder", 0), Site("decoder", 1)


def passed(z: Tensor, gate: Gate) -> Tensor:
    """ξ z + (1 - ξ) fill, of outputs [B, T, H, d]."""
    share = (gate.share if gate.share.ndim == 1 else gate.share[:, None])[..., None]
    return share * z + (0 if gate.fill is None else (1 - share) * gate.fill)


@pytest.mark.parametrize("shares", [(HEADS,), (BATCH, HEADS)])
@pytest.mark.parametrize("fills", [None, (HEADS, WIDTH), (BATCH, TOKENS, HEADS, WIDTH)])
def test_merged_gates_do_what_one_does_after_the_other(
    shares: tuple[int, ...], fills: tuple[int, ...] | None
) -> None:
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(BATCH, TOKENS, HEADS, WIDTH, dtype=torch.float64, generator=draw)
    inner = Gate(torch.tensor([1.0, 0.5, 0.0, 1.0], dtype=torch.float64))
    share = torch.rand(shares, dtype=torch.float64, generator=draw)
    share[..., 0] = 1  # with the first head's 1 of the inner gate nothing is left to fill
    share[..., 3] = 0  # a head that is taken away
    fill = None if fills is None else torch.randn(fills, dtype=torch.float64, generator=draw)
    outer = Gate(share, fill)
    found = merged({SITE: inner, OTHER: inner}, {SITE: outer}, z)
    torch.testing.assert_close(passed(z, found[SITE]), passed(passed(z, inner), outer))
    assert found[OTHER].share is inner.share
