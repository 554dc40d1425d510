"""What modules did in a pass, and what they compute: the ground that every finder stands on.

Modules of a hooked model are not known by name. Whoever finds something out about them runs a few
tokens through it, takes in the calls of some modules as they end, and asks what gave what. Layer
and RMS normalization are known by their numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.core.weights import Normalization

TOLERANCE = 1e-5
"""Largest difference of a sum, relative to its largest number, that counts as none."""

TOLERANCE_LOW = 2e-2
"""The same for float16 and bfloat16, in which the model rounds every sum."""

_EPSILONS = ("eps", "variance_epsilon", "epsilon")
"""Where normalizations keep their ε."""

_UNNAMED = (1e-5, 1e-6, 1e-8, 0.0)
"""What ε may be where a normalization without weights does not name it (OLMo)."""


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """A module that has run."""

    module: nn.Module  # it
    args: tuple[Any, ...]  # its arguments
    kwargs: Mapping[str, Any]  # those with names
    output: Any  # what it gave, the first of several; a tensor of most

    @property
    def entered(self) -> Any:
        """What it got."""
        return self.args[0] if self.args else self.kwargs.get("hidden_states")


@contextmanager
def listening(
    modules: Iterable[nn.Module],
    pre_hook: Callable[..., Any] | None = None,
    hook: Callable[..., Any] | None = None,
) -> Iterator[None]:
    """Call hooks of some modules inside the ``with`` block, with their named arguments too."""
    with ExitStack() as undo:
        for module in modules:
            if pre_hook is not None:
                undo.callback(module.register_forward_pre_hook(pre_hook, with_kwargs=True).remove)
            if hook is not None:
                undo.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        yield


def calls_of(
    modules: Iterable[nn.Module], ended: Callable[[ModuleCall], Any]
) -> AbstractContextManager[None]:
    """Tell of every call of some modules inside the ``with`` block, when it ends."""

    def after(module: nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any) -> None:
        ended(ModuleCall(module, args, kwargs, first_of(output)))

    return listening(modules, hook=after)


def first_of(output: Any) -> Any:
    """Return what a module gives, without what stands beside it (a router's scores)."""
    return output[0] if isinstance(output, tuple | list) and output else output


def is_low(dtype: torch.dtype) -> bool:
    """Whether eager attention rounds its weights to half precision."""
    return dtype in (torch.float16, torch.bfloat16)


def normalization(module: nn.Module, entered: Tensor, output: Tensor) -> Normalization | None:
    """γ, β, ε and whether the mean goes, if the module makes the output of what entered.

    Returns None if it computes anything else.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    named = [float(getattr(module, name)) for name in _EPSILONS if hasattr(module, name)][:1]
    if weight is None and bias is None and entered.shape == output.shape:
        scales, epsilons = [entered.new_ones(entered.shape[-1])], named or list(_UNNAMED)
    elif isinstance(weight, Tensor) and weight.shape == entered.shape[-1:]:
        scales = [weight.detach(), 1 + weight.detach()]  # Gemma keeps γ - 1
        epsilons = named or [0.0]
    else:
        return None
    for scale in scales:
        for centred in (True, False):
            x = entered.to(scale.device).float()
            x = x - x.mean(-1, keepdim=True) if centred else x
            for eps in epsilons:
                result = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * scale.float()
                if close(result if bias is None else result + bias.float(), output):
                    shift = None if bias is None else bias.detach()
                    return Normalization(scale, eps, shift, centred)
    return None


def close(computed: Tensor, expected: Tensor) -> bool:
    """Whether two results are the same up to rounding."""
    tolerance = TOLERANCE_LOW if is_low(expected.dtype) else TOLERANCE
    largest = expected.float().abs().max().clamp_min(1e-30)
    computed = computed.float().to(expected.device)
    return bool((computed - expected.float()).abs().max() <= tolerance * largest)
