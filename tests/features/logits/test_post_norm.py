"""Logits of layers that normalize the whole stream, against derivatives of the models' own modules.

The reference knows no directions: in float64 the models' own modules run, every normalization with
its σ cut from the graph and everything that a layer computes from the stream too, so that what is
left of the way of a part to the logit is linear; a part is then what autograd finds for a factor on
it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.errors import ModelError
from attnviz.features.logits.result import Logits
from tests import mostly_slow
from tests.families import IDS, built, families

transformers = pytest.importorskip("transformers")

SPLIT = {
    # family: layers, W_O of one, what else it adds
    "marian": ("model.decoder.layers", "self_attn.out_proj", "fc2"),
    "plbart": ("model.decoder.layers", "self_attn.out_proj", "fc2"),
    "blenderbot-small": ("model.decoder.layers", "self_attn.out_proj", "fc2"),
    "trocr": ("model.decoder.layers", "self_attn.out_proj", "fc2"),
    "openai-gpt": ("transformer.h", "attn.c_proj", "mlp"),
    "bert-generation": ("bert.encoder.layer", "attention.output.dense", "output.dense"),
    "minimax": ("model.layers", "self_attn.o_proj", "mlp"),
}
"""Post-norm decoders, and one that normalizes and scales the stream before each part."""
FAMILIES = mostly_slow(SPLIT, "marian", "openai-gpt", "minimax")
PLACES = {**SPLIT, "modernbert-decoder": ("model.layers", "attn.Wo", "mlp")}
"""With it, one whose LM head has a matrix, GELU and a normalization before the last matrix."""
PAIR = av.Pair(IDS, (5, 9, 3, 31, 17, 12, 3, 9, 2, 31, 7), 4, 6)
GATED = tuple(name for name in SPLIT if name not in ("trocr", "openai-gpt"))


@pytest.fixture(scope="module", params=FAMILIES)
def named(request: Any) -> tuple[str, Any, Source, Logits]:
    single = built(dict(families())[request.param])
    model = copy.deepcopy(single).double()
    if request.param == "minimax":  # its eager attention gives no numbers in float64
        model.set_experts_implementation("eager")  # the others know no float64
    source = av.load(single if request.param == "minimax" else model)
    return request.param, model, source, av.logits(Prompt(ids=IDS), model=source)


def modules_of(name: str, model: Any) -> list[tuple[nn.Module, nn.Module]]:
    """Of every layer W_O, or what mixes tokens without, and what else it adds."""
    place, projection, beside = PLACES[name]
    found = []
    for layer in model.get_submodule(place):
        linear = name == "minimax" and layer.block_type == "linear_attention"
        attention = layer.self_attn if linear else layer.get_submodule(projection)
        found.append((attention, layer.get_submodule(beside)))
    return found


def held(module: Any) -> Callable[[Tensor], Tensor]:
    """A normalization whose σ gets no gradient."""
    centred = isinstance(module, nn.LayerNorm)
    eps = module.eps if centred else module.variance_epsilon

    def forward(x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if centred else x
        sigma = (x.square().mean(-1, keepdim=True) + eps).sqrt().detach()
        made = x / sigma * module.weight
        return made if getattr(module, "bias", None) is None else made + module.bias

    return forward


def sloped(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """An activation as a factor on what it gets, which gets no gradient."""
    return lambda y: y * (type(module).forward(module, y) / y).detach()


@contextlib.contextmanager
def linear(name: str, model: Any) -> Iterator[None]:
    """Let only sums and held normalizations pass gradients inside the ``with`` block."""
    norms = [m for m in model.modules() if type(m).__name__.endswith(("LayerNorm", "RMSNorm"))]
    with contextlib.ExitStack() as undo:
        for norm in norms:
            norm.forward = held(norm)
            undo.callback(delattr, norm, "forward")
        if name not in SPLIT:
            act = model.lm_head.act
            act.forward = sloped(act)
            undo.callback(delattr, act, "forward")
        for both in modules_of(name, model):
            for module in both:
                undo.callback(module.register_forward_hook(cut).remove)
        yield


def cut(module: nn.Module, args: Any, out: Any) -> Any:
    """The same without gradients."""
    return (out[0].detach(), *out[1:]) if isinstance(out, tuple) else out.detach()


def weight_of(module: Any) -> Tensor:
    """W_O, [D, H · d_v]."""
    weight: Tensor = module.weight
    return weight if isinstance(module, nn.Linear) else weight.T


def derivative(name: str, model: Any, module: Any, columns: slice | None, logit: Any) -> float:
    """∂logit/∂ε of (1 + ε) times what a module gives, or what it makes of some columns."""
    epsilon = torch.zeros((), dtype=torch.float64, requires_grad=True)

    def more(module: Any, args: Any, out: Any) -> Any:
        first = out[0] if isinstance(out, tuple) else out
        part = first if columns is None else args[0][..., columns] @ weight_of(module)[:, columns].T
        first = first + epsilon * part.detach()
        return (first, *out[1:]) if isinstance(out, tuple) else first

    with linear(name, model):
        around = module.register_forward_hook(more)  # behind the cut of the module itself
        try:
            value = logit(model(torch.tensor([IDS]), use_cache=False).logits[0, -1])
            (slope,) = torch.autograd.grad(value, epsilon)
        finally:
            around.remove()
    return float(slope)


def test_every_part_is_the_derivative_with_the_normalizations_held(
    named: tuple[str, Any, Source, Logits],
) -> None:
    every_part_is_the_derivative(*named)


@pytest.mark.parametrize("biases", [False, True])
def test_a_head_of_several_layers_is_held_too(biases: bool) -> None:
    name = "modernbert-decoder"
    config = built(dict(families())[name]).config
    config.update(dict.fromkeys(("classifier_bias", "norm_bias", "decoder_bias"), biases))
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.4).add_(float(parameter.ndim < 2))
    source = av.load(model)
    model = copy.deepcopy(model).double()
    report = av.logits(Prompt(ids=IDS), model=source)
    every_part_is_the_derivative(name, model, source, report)
    with torch.no_grad():
        own = model(torch.tensor([IDS])).logits[0, -1]
    assert report.sum == pytest.approx(float(own.max()), rel=1e-5)
    assert any("LM head's activation" in told for told in report.notes)
    if not biases:
        return
    the_lens_adds_up(source, report)
    assert len(av.patch([PAIR], model=source).effects) == len(source.layout)
    assert "activation" in " ".join(av.circuits(model=source).reasons.values())


def every_part_is_the_derivative(name: str, model: Any, source: Source, report: Logits) -> None:
    token = report.predictions[0].id
    largest = max(abs(part.value) for part in report.parts)
    near = 1e-6 if name in SPLIT and name != "minimax" else 1e-5
    modules, compared = modules_of(name, model), 0
    for part in report.parts:
        if part.layer is None or part.kind == "bias":
            continue
        columns = slice(4 * part.head, 4 * part.head + 4) if part.head is not None else None
        module = modules[part.layer][part.kind == "mlp"]
        slope = derivative(name, model, module, columns, lambda logits: logits[token])
        assert part.value == pytest.approx(slope, rel=near, abs=near * largest), part
        compared += 1
    assert compared == len(source.layout) + 3 + (name == "minimax")


def test_parts_add_up_to_the_models_own_logit_in_float32(
    named: tuple[str, Any, Source, Logits],
) -> None:
    name, model, _, exact = named
    single = built(dict(families())[name])
    report = av.logits(Prompt(ids=IDS), model=av.load(single))
    with torch.no_grad():
        own = model(torch.tensor([IDS])).logits[0, -1]
    assert report.sum == pytest.approx(float(own.max()), rel=1e-5, abs=1e-5)
    assert exact.sum == pytest.approx(float(own.max()), rel=1e-5 if name == "minimax" else 1e-6)
    note = "The scale of every normalization after a sum (σ at the row that is read) is held"
    assert any(note in told for told in report.notes)
    last = any("the last normalization" in told for told in report.notes)
    assert last == (name == "minimax")  # the others end normalized


def test_the_lens_adds_up_at_every_state_and_reads_what_heads_write(
    named: tuple[str, Any, Source, Logits],
) -> None:
    the_lens_adds_up(*named[2:])


def the_lens_adds_up(source: Source, report: Logits) -> None:
    lens = av.lens(Prompt(ids=IDS), position="all", model=source)
    assert lens.reason == ""
    assert len(lens.cells) == 4 * len(IDS)
    for cell in lens.cells:
        part = cell.added
        assert part is not None
        whole = part.before + sum(part.heads) + part.bias + part.mlp + part.constant + part.mixer
        assert whole == pytest.approx(cell.top[0].logit, rel=1e-5, abs=1e-5)
    heads = av.lens(Prompt(ids=IDS), by="head", predictions=41, model=source).heads
    token = report.predictions[0].id
    added = {
        other: av.logits(Prompt(ids=IDS), answer=f"#{other}", model=source).heads()
        for other in (token, (token + 1) % 41, (token + 20) % 41)
    }
    for writes in heads:
        moved = {word.id: word.value for word in (*writes.raises, *writes.lowers)}
        assert sorted(moved) == list(range(41))
        assert sum(moved.values()) == pytest.approx(0, abs=1e-3)  # against the mean of all words
        for other, values in added.items():
            against = added[token][writes.head] - values[writes.head]
            assert moved[token] - moved[other] == pytest.approx(against, rel=1e-3, abs=1e-4)


def test_what_cannot_be_told_of_such_layers_is_refused_in_one_line(
    named: tuple[str, Any, Source, Logits],
) -> None:
    name, _, source, _ = named
    assert av.sources(Prompt(ids=IDS), select="2.3", model=source).notes
    if name not in GATED:
        with pytest.raises(ModelError, match="code of their own"):
            av.patch([PAIR], model=source)
        return
    assert len(av.patch([PAIR], model=source).effects) == len(source.layout)
    assert av.ablate([Prompt(ids=IDS), Prompt(ids=IDS[:9])], select="2.*", model=source).effects
    with pytest.raises(ModelError, match="its layers normalize the sum") as refused:
        av.patch([PAIR], component="mlp", model=source)
    assert "\n" not in str(refused.value)
    with pytest.raises(ModelError, match="does not reach later layers as it is"):
        av.patch([PAIR], paths="0.1 -> 2.*.q", model=source)


@pytest.mark.parametrize(
    "name", mostly_slow([name for name in SPLIT if name != "minimax"], "marian", "openai-gpt")
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_normalizations_that_change_little_are_seen(name: str, dtype: torch.dtype) -> None:
    """As transformers draws it γ is 1 and what layers add is small: a plain sum is near."""
    config = built(dict(families())[name]).config
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        scale = 5 if parameter.ndim > 1 and dtype == torch.bfloat16 else 1  # above rounding
        parameter.data.mul_(scale)
    source = av.load(model.to(dtype))
    report = av.logits(Prompt(ids=IDS), model=source)
    over = source.readout().over
    assert [(norms.heads, norms.mlp, len(norms.norms)) for norms in over.values()] == [
        (0, 1, 2)
    ] * 3
    allowed = 0.05 if dtype == torch.bfloat16 else 1e-5
    assert report.sum == pytest.approx(report.logit, rel=allowed, abs=allowed)
