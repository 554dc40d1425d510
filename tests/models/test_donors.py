"""Donors: another run's values inside a pass, against plain hooks on transformers' own models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.captures.trials import Activations
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import PARTS, Donor, ForwardRequest, Gate, Part, Source, Start
from attnviz.models.demo import DEMOS
from tests import mostly_slow
from tests.models.tiny import inputs_of, ran, tiny

transformers = pytest.importorskip("transformers")

UNGATED = tuple(part for part in PARTS if part != "gate")
"""What each of these models has; gates of models that have them are in test_held."""

TINY = ("gpt2", "bert", "llama", "gemma2", "gpt_oss", "t5", "bart")
FAMILIES = mostly_slow(
    ["demo-gpt2", "demo-bert", *TINY], "demo-gpt2", "demo-bert", "llama", "gpt_oss", "bart"
)
CLEAN = ((7, 21, 30, 4, 18, 11, 5), (5, 9, 2, 31, 17, 12, 3))
OTHER = ((7, 20, 30, 9, 18, 12, 5), (5, 9, 8, 31, 16, 12, 3))
TARGET = (2, 14, 8, 39, 26)


@pytest.fixture(params=FAMILIES, scope="module")
def source(request: pytest.FixtureRequest, loaded: Any) -> Source:
    name = request.param
    if name in TINY:
        return tiny(name, loaded)
    return av.load(name)


def batch_of(source: Source, ids: tuple[tuple[int, ...], ...]) -> list[Inputs]:
    if source.info.backend == "hooked":
        return [inputs_of(source, one, TARGET) for one in ids]
    return [source.prepare(Prompt(ids=one, special_tokens=False)) for one in ids]


def kept_of(source: Source, batch: list[Inputs]) -> tuple[Activations, Any]:
    kept = Activations(UNGATED, source.layout.sites)
    return kept, source.forward(batch, [kept])


@pytest.fixture(scope="module")
def clean(source: Source) -> list[Inputs]:
    return batch_of(source, CLEAN)


@pytest.fixture(scope="module")
def theirs(source: Source) -> dict[Part, dict[Site, Tensor]]:
    """What another run computes."""
    return kept_of(source, batch_of(source, OTHER))[0].values


@pytest.fixture(scope="module")
def own(source: Source, clean: list[Inputs]) -> tuple[Activations, Any]:
    """What the run itself computes, and its output."""
    return kept_of(source, clean)


def heads_of(source: Source, site: Site, part: Part, values: Tensor) -> int:
    return values.shape[1] if part in ("k", "v") else source.layout.heads[site.kind][site.layer]


@pytest.mark.parametrize("part", UNGATED)
def test_a_runs_own_values_change_nothing(
    source: Source, clean: list[Inputs], own: tuple[Activations, Any], part: Part
) -> None:
    kept, plain = own
    donors = {
        site: [Donor(part, values, torch.ones(2, heads_of(source, site, part, values)))]
        for site, values in kept.values[part].items()
    }
    assert set(donors) == set(source.layout.sites)
    same = ran(source, clean, donors=donors)
    torch.testing.assert_close(same.hidden, plain.hidden, atol=1e-5, rtol=1e-4)


def test_all_that_attention_reads_is_all_that_it_gives(
    source: Source, clean: list[Inputs], theirs: Any
) -> None:
    """q, k and v of another run make its pattern and outputs, layer by layer."""
    site = source.layout.sites[-1]

    def run(*parts: Part) -> Tensor:
        donors = [
            Donor(one, theirs[one][site], torch.ones(2, theirs[one][site].shape[1]))
            for one in parts
        ]
        return ran(source, clean, donors={site: donors}).hidden

    torch.testing.assert_close(run("q", "k", "v"), run("z"), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(run("pattern", "v"), run("z"), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(run("q", "k"), run("pattern"), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(run("z"), run("pattern"), atol=1e-4)


def test_positions_and_heads_that_are_not_marked_stay(
    source: Source, clean: list[Inputs], own: tuple[Activations, Any], theirs: Any
) -> None:
    site = source.layout.sites[-1]
    mine, other = own[0].values["z"][site], theirs["z"][site]
    share = torch.zeros(2, mine.shape[1], mine.shape[2])
    share[:, 1, -1] = 1
    by_hand = mine.clone()
    by_hand[:, 1, -1] = other[:, 1, -1]
    some = Donor("z", other, share)
    whole = Donor("z", by_hand, torch.ones(2, mine.shape[1]))
    runs = [ran(source, clean, donors={site: [one]}).hidden for one in (some, whole)]
    torch.testing.assert_close(*runs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("part", UNGATED)
def test_runs_of_one_batch_are_those_one_by_one(
    source: Source, clean: list[Inputs], theirs: Any, part: Part
) -> None:
    """Each head in a run of its own, begun at its layer where the model can."""
    states = source.start_kind is not None
    plain = ran(source, clean, states=states)
    site = source.layout.sites[-1]
    values = theirs[part][site]
    heads = values.shape[1]
    start = Start(site.layer, plain.states[site.layer]) if states else None
    donor = Donor(part, values, torch.eye(heads).repeat_interleave(2, 0))
    many = ran(source, clean * heads, donors={site: [donor]}, start=start)
    for head in range(heads):
        alone = Donor(part, values, torch.eye(heads)[[head, head]])
        one = ran(source, clean, donors={site: [alone]})
        mine = slice(2 * head, 2 * head + 2)
        torch.testing.assert_close(many.hidden[mine], one.hidden, atol=1e-5, rtol=1e-4)


def test_a_gate_acts_on_what_the_donor_gives(
    source: Source, clean: list[Inputs], theirs: Any
) -> None:
    site = source.layout.sites[-1]
    values = theirs["z"][site]
    heads = values.shape[1]
    donor, half = Donor("z", values, torch.ones(2, heads)), Gate(torch.full((heads,), 0.5))
    both = ForwardRequest(donors={site: [donor]}, gates={site: half})
    by_hand = Donor("z", values / 2, torch.ones(2, heads))
    torch.testing.assert_close(
        source.forward(clean, request=both).hidden,
        ran(source, clean, donors={site: [by_hand]}).hidden,
        atol=1e-5,
        rtol=1e-4,
    )


def test_the_slope_of_a_share_is_what_a_small_share_changes(
    source: Source, clean: list[Inputs], theirs: Any
) -> None:
    def value(shares: dict[tuple[Site, Part], Tensor], *, grad: bool) -> Tensor:
        donors: dict[Site, list[Donor]] = {}
        for (site, part), share in shares.items():
            donors.setdefault(site, []).append(Donor(part, theirs[part][site], share))
        hidden = ran(source, clean, donors=donors, grad=grad).hidden
        weights = torch.linspace(-1, 2, hidden.numel()).view_as(hidden)
        return (hidden.double() * weights).sin().sum()

    for part in UNGATED:
        places = [(site, part) for site in source.layout.sites]
        none = {
            at: torch.zeros(2, theirs[part][at[0]].shape[1], requires_grad=True) for at in places
        }
        slopes = torch.autograd.grad(value(none, grad=True), list(none.values()))
        both = list(zip(none, slopes, strict=True))
        for at, slope in (both[0], both[-1]):
            step = torch.zeros_like(slope)
            step[0, 1] = 2e-3
            sides = [float(value({at: sign * step}, grad=False)) for sign in (1, -1)]
            found = (sides[0] - sides[1]) / 4e-3
            assert found == pytest.approx(float(slope[0, 1]), abs=2e-2, rel=3e-2)


def test_a_pass_can_begin_behind_the_last_layer(source: Source, clean: list[Inputs]) -> None:
    if source.start_kind is None:
        pytest.skip("two stacks")
    whole = ran(source, clean, states=True)
    last = source.layout.layers(source.start_kind)
    rest = ran(source, clean, start=Start(last, whole.states[last]))
    torch.testing.assert_close(rest.hidden, whole.hidden, atol=1e-6, rtol=1e-6)


def test_outputs_are_those_that_a_plain_hook_puts_in() -> None:
    """transformers' own GPT-2, with a hook before ``c_proj`` that swaps one head's columns."""
    model = transformers.GPT2LMHeadModel.from_pretrained(
        DEMOS["demo-gpt2"], dtype=torch.float64
    ).eval()
    layer = 1
    source, site = av.load("demo-gpt2"), Site("decoder", layer)
    clean, other = batch_of(source, CLEAN), batch_of(source, OTHER)
    theirs = kept_of(source, clean)[0].values["z"][site]
    inside: list[Tensor] = []
    projection = model.transformer.h[layer].attn.c_proj
    watch = projection.register_forward_pre_hook(lambda _, args: inside.append(args[0]))
    with torch.no_grad():
        model(torch.tensor(CLEAN))
    watch.remove()
    width = inside[0].shape[-1] // 6
    for head in range(6):
        columns = slice(head * width, (head + 1) * width)

        def swap(_: Any, args: tuple[Tensor], columns: slice = columns) -> tuple[Tensor]:
            changed = args[0].clone()
            changed[:, 2:, columns] = inside[0][:, 2:, columns]
            return (changed,)

        hook = projection.register_forward_pre_hook(swap)
        with torch.no_grad():
            expected = model(torch.tensor(OTHER)).logits
        hook.remove()
        share = torch.zeros(2, 6, 7)
        share[:, head, 2:] = 1
        found = ran(source, other, donors={site: [Donor("z", theirs, share)]}, logits=True).logits
        torch.testing.assert_close(found.double(), expected, atol=2e-4, rtol=1e-5)


def test_donors_that_do_not_fit_are_named() -> None:
    source = av.load("demo-gpt2")
    batch = batch_of(source, CLEAN)
    wrong = Donor("z", torch.zeros(2, 6, 3, 4), torch.ones(2, 6))
    with pytest.raises(ValueError, match=r"donor of z does not fit: values \(2, 6, 3, 4\)"):
        ran(source, batch, donors={Site("decoder", 0): [wrong]})
