"""Logits of families whose layers are not attention and one MLP, against the models' own modules.

The reference knows no sums: in float64, with everything that a layer computes from the stream held
at its values, one head's columns of W_O become zero, or one module's output does, and the change of
what the last normalization gets is multiplied with that normalization as it is.
"""

from __future__ import annotations

import copy
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.features.logits.description import checked
from attnviz.features.logits.result import Logits
from tests.families import IDS, built, families

pytest.importorskip("transformers")

DATA = tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))
SPLIT, SUMMED, REFUSED = DATA["split"], DATA["summed"], DATA["refused"]


@cache
def load(name: str) -> tuple[Source, Any]:
    model = built(dict(families())[name])
    exact = copy.deepcopy(model).double()
    if hasattr(exact, "set_experts_implementation"):  # the others know no float64
        exact.set_experts_implementation("eager")
    return av.load(model), exact


def part_of(report: Logits, kind: str, layer: int, head: int | None = None) -> float:
    (value,) = [part.value for part in report.parts
                if (part.kind, part.layer, part.head) == (kind, layer, head)]  # fmt: skip
    return value


class Frozen:
    """A model in float64 in which only what is chosen changes what reaches the last normalization.

    Attributes:
        norm: the last normalization.
        entered: what it got in the last pass, [D].
    """

    def __init__(self, model: Any) -> None:
        self.model, self.body = model, model.base_model
        passing = (nn.Dropout, nn.Identity)
        leaves = [m for m in self.body.modules()
                  if not list(m.children()) and not isinstance(m, passing)]  # fmt: skip
        self.kept: dict[nn.Module, list[Any]] = {m: [] for m in leaves}
        self.entered = self.left = torch.zeros(0)
        hooks = [m.register_forward_hook(self._keep) for m in leaves]
        self.logits = self._run()
        for hook in hooks:
            hook.remove()
        every = [m for m in leaves if self.kept[m] and "orm" in type(m).__name__]
        self.norm = every[-1]
        (got,), gave = self.kept[self.norm][-1]
        self.x, self.y = got[0, -1], gave[0, -1]

    def _keep(self, module: nn.Module, args: Any, out: Any) -> None:
        kept = tuple(a.clone() if isinstance(a, Tensor) else a for a in args[:1])
        self.kept[module].append((kept, out.clone() if isinstance(out, Tensor) else out))

    def _run(self) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.model(torch.tensor([IDS]), use_cache=False).logits[0, -1]
        return logits

    def without(self, *, zeros: nn.Module, rest: Any) -> float:
        """What the top logit loses with another output of a module, all else held."""
        hooks = []
        for module, calls in self.kept.items():
            if calls and module is not zeros:
                answers = iter([out for _, out in calls])
                hooks.append(module.register_forward_hook(
                    lambda m, a, out, answers=answers: _like(next(answers), out)))  # fmt: skip
        hooks.append(zeros.register_forward_hook(lambda m, a, out: rest(a, out)))
        hooks.append(self.norm.register_forward_pre_hook(
            lambda m, a: setattr(self, "entered", a[0][0, -1].clone())))  # fmt: skip
        self._run()
        for hook in hooks:
            hook.remove()
        change = self.x - self.entered
        bias = getattr(self.norm, "bias", None)
        held = self.y if bias is None else self.y - bias
        centred = "LayerNorm" in type(self.norm).__name__
        x = self.x - self.x.mean() if centred else self.x
        change = change - change.mean() if centred else change
        head = self.model.get_output_embeddings().weight
        return float(head[int(self.logits.argmax())] @ (change * held / x))


def _like(kept: Any, out: Any) -> Any:
    return kept.to(out.dtype, copy=True) if isinstance(kept, Tensor) else kept


def module_of(model: Any, name: str) -> nn.Module:
    (found,) = [module for path, module in model.named_modules() if path.endswith("." + name)]
    return found


def nothing(args: Any, out: Any) -> Any:
    return (out[0] * 0, *out[1:]) if isinstance(out, tuple) else out * 0


@pytest.mark.parametrize("name", SPLIT)
def test_parts_are_what_is_lost_without_them(name: str) -> None:
    projection, beside, called = SPLIT[name]
    source, model = load(name)
    report = av.logits(Prompt(ids=IDS), model=source)
    assert report.sum == pytest.approx(report.whole, rel=1e-5, abs=1e-5)
    frozen = Frozen(model)
    layer = int(projection.split(".")[1])
    w_o: Any = module_of(model, projection)
    for head in range(heads := source.layout.heads["decoder"][layer]):
        width = w_o.weight.shape[1] // heads

        def less(args: Any, out: Tensor, at: int = head, width: int = width) -> Tensor:
            columns = slice(at * width, (at + 1) * width)
            return frozen.kept[w_o][0][1] - args[0][..., columns] @ w_o.weight[:, columns].T

        lost = frozen.without(zeros=w_o, rest=less)
        assert part_of(report, "head", layer, head) == pytest.approx(lost, rel=1e-4, abs=1e-5)
    number = int(beside.split(".")[1])
    lost = frozen.without(zeros=module_of(model, beside), rest=nothing)
    kind = "mixer" if called else "mlp"
    assert part_of(report, kind, number) == pytest.approx(lost, rel=1e-4, abs=1e-5)
    assert called in {part.name for part in report.parts if part.layer == number}


@pytest.mark.parametrize("name", SUMMED)
def test_parts_add_up_to_the_models_own_logit(name: str) -> None:
    source, model = load(name)
    report = av.logits(Prompt(ids=IDS), model=source)
    with torch.no_grad():
        own = model(torch.tensor([IDS])).logits[0, -1].max()
    assert report.logit == pytest.approx(float(own), rel=1e-4, abs=1e-5)
    whole = report.whole
    if name in ("beam", "gemma2", "recurrent_gemma"):
        cap = 30.0
        assert report.cap == cap
        assert cap * torch.tensor(whole / cap).tanh() == pytest.approx(report.logit, abs=1e-4)
        assert f"before its cap of {cap:g}" in checked(report)
    else:
        assert report.cap is None
        assert whole == report.logit
    assert report.sum == pytest.approx(whole, rel=1e-5, abs=1e-5)
    assert len(report.heads()) == len(source.layout)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_sum_is_refused_with_its_reason(name: str) -> None:
    report = av.logits(Prompt(ids=IDS), position=-1, model=load(name)[0])
    assert report.sum is None
    assert REFUSED[name] in report.reason


@pytest.mark.parametrize("name", ["qwen3_next", "doge"])
def test_half_precision_has_the_same_parts(name: str) -> None:
    """Sums are found to the rounding of bfloat16, and factors of 1 are 1 there too."""
    whole = av.logits(Prompt(ids=IDS), model=load(name)[0])
    source = av.load(built(dict(families())[name]).bfloat16())
    half = av.logits(Prompt(ids=IDS), model=source, answer=f"#{whole.predictions[0].id}")
    kinds = [[(part.kind, part.layer, part.head, part.name) for part in one.parts]
             for one in (whole, half)]  # fmt: skip
    assert kinds[0] == kinds[1]
    assert half.sum == pytest.approx(half.logit, rel=0.05, abs=0.05)
    readout = source.readout().summed
    if name != "doge":
        assert readout.shares == readout.residual_scales == ()
