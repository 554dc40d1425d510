"""Metrics of users, and what users put in a head's place: functions for ablate and patch.

    import attnviz as av

    @av.metric("accuracy", unit="share", worse=-1)
    def accuracy(seen):
        return (seen.logits.argmax(-1) == seen.targets).double()

    @av.fill("halved")
    def halved(seen):
        return seen.outputs / 2

What a metric gives is summed over the positions of a text, so a position's value may depend on that
position alone. See docs/plugins.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from attnviz.core.arrays import exact
from attnviz.core.heads import Site
from attnviz.core.interface import interface
from attnviz.core.scores import UserDefined
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.scoring import plugins
from attnviz.scoring.plugins import Guarded, qualified_name

if TYPE_CHECKING:
    from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])
Of = Literal["texts", "pairs"]

OWN_METRICS = ("loss", "kl", "logit-diff", "hidden", "prob", "log-prob", "custom")
OWN_FILLS = ("zero", "mean", "resample", "custom")


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a user's metric sees of one text, whole or without some heads.

    Attributes:
        logits: [n, V], float32 or float64, at the n positions that count.
        targets: int64 [n], the tokens that belong there: those that follow, or those masked.
        positions: of these, in the text.
        tokens: of the text.
        full: [n, V], those of the whole model, for a distance; else None.
    """

    logits: Tensor
    targets: Tensor
    positions: tuple[int, ...]
    tokens: Tokens
    full: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a user's fill sees of one text and layer: what its heads hand to W_O, before it.

    Attributes:
        outputs: [T, H, d_v], what the heads give on this text.
        other: [T, H, d_v], what would take their place: for ``ablate`` the mean over other texts,
            for ``patch`` the other run's.
        site: the layer.
        tokens: of the text.
        weights: [H, T, S], with which ``outputs`` mix ``values``; None in ``patch``.
        values: [G, S, d_v], of G key/value heads; query head h reads h // (H / G). None in
            ``patch``.
    """

    outputs: Tensor
    other: Tensor
    site: Site
    tokens: Tokens
    weights: Tensor | None = None
    values: Tensor | None = None


@dataclass(frozen=True, slots=True)
class UserMeasure:
    """A function of the user that is registered under a name."""

    name: str
    function: Callable[..., Any]
    what: ClassVar[Literal["metric", "fill"]]

    @property
    def named(self) -> str:
        """As messages call it."""
        return f"{self.what} {self.name!r} ({qualified_name(self.function)})"

    @property
    def mark(self) -> UserDefined:
        """As results say that it is no part of attnviz."""
        return UserDefined(self.what, self.name, qualified_name(self.function))

    def call(self, argument: object) -> Tensor:
        """Give what the function gives, as a tensor; UsageError where it raises an error."""
        import torch

        return Guarded(self.function, self.named)(argument, read=torch.as_tensor)


@dataclass(frozen=True, slots=True)
class UserMetric(UserMeasure):
    """A metric that is registered; see :func:`metric`."""

    what = "metric"
    unit: str = ""
    worse: int = 1
    distance: bool = False
    of: Of = "texts"

    def at(self, text: Predictions) -> Tensor:
        """Measure the n positions, [n] in float64; UsageError for another shape, NaN or ∞."""
        value = self.call(text)
        if value.shape != text.targets.shape or not value.isfinite().all():
            error = (
                f"shape {list(value.shape)}" if value.shape != text.targets.shape else "NaN or ∞"
            )
            raise UsageError(
                f"the {self.named} gives {error} for {len(text.targets)} positions; it must give a "
                f"finite number for each, [{len(text.targets)}]"
            )
        return exact(value)


@dataclass(frozen=True, slots=True)
class UserFill(UserMeasure):
    """What is put in a head's place; see :func:`fill`."""

    what = "fill"

    def at(self, layer: Outputs) -> Tensor:
        """Give what stands there, [T, H, d_v]; UsageError for another shape, NaN or ∞."""
        shape = layer.outputs.shape
        fill = self.call(layer).to(layer.outputs.dtype)
        try:
            fill = fill.expand(shape)
        except RuntimeError:
            raise UsageError(
                f"the {self.named} gives {list(fill.shape)} for outputs {list(shape)}; it must "
                "give as many, or what broadcasts to them"
            ) from None
        if not fill.isfinite().all():
            raise UsageError(f"the {self.named} gives NaN or ∞ in layer {layer.site.layer}")
        return fill


_METRICS: dict[str, UserMetric] = {}
_FILLS: dict[str, UserFill] = {}
METRICS: Mapping[str, UserMetric] = MappingProxyType(_METRICS)
FILLS: Mapping[str, UserFill] = MappingProxyType(_FILLS)


@interface
def metric(
    name: str,
    *,
    unit: str = "",
    worse: Literal[1, -1] = 1,
    distance: bool = False,
    of: Of = "texts",
) -> Callable[[Function], Function]:
    """Register a metric of one's own for ``ablate`` or ``patch``; a decorator.

    Of texts (``ablate``) the function gets :class:`Predictions` and gives [n], a finite number for
    every position. Of pairs (``patch``) it gets the logits [V] where the answer belongs and the
    :class:`attnviz.Pair`, and gives one finite number.

    Args:
        name: as ``metric=`` and ``--metric`` take it, and results call it.
        unit: for tables and pictures.
        worse: 1 where more of it is worse, -1 where less is.
        distance: whether it compares with the whole model, is 0 there, and never below.
        of: ``"texts"`` or ``"pairs"``.

    Raises:
        UsageError: a name that is taken, or a function that fails on random logits.
    """

    def registered(function: Function) -> Function:
        measure = UserMetric(name, function, unit, worse, distance, of)
        _check_name("metric", name, function, OWN_METRICS, _METRICS)
        if of == "texts":
            import torch

            logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0))
            targets, tokens = torch.arange(5), Tokens(tuple("abcdef"), tuple(range(6)))
            full = logits[1] if distance else None
            measure.at(Predictions(logits[0], targets, tuple(range(5)), tokens, full))
        _METRICS[name] = measure
        plugins.remember(function)
        return function

    return registered


@interface
def fill(name: str) -> Callable[[Function], Function]:
    """Register what takes a head's place, for ``ablate`` and ``patch``; a decorator.

    The function gets the :class:`Outputs` of a layer's heads on one text and gives what stands in
    their place, [T, H, d_v] or what broadcasts to it. Ablated and patched heads take theirs of it.

    Args:
        name: as ``method=`` and ``--method`` of ``ablate`` and ``fill=`` of ``patch`` take it.

    Raises:
        UsageError: a name that is taken, or a function that fails on random outputs.
    """

    def registered(function: Function) -> Function:
        import torch

        measure = UserFill(name, function)
        _check_name("fill", name, function, OWN_FILLS, _FILLS)
        outputs = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0))
        tokens = Tokens(tuple("abcdef"), tuple(range(6)))
        measure.at(Outputs(outputs[0], outputs[1], Site("decoder", 0), tokens))
        _FILLS[name] = measure
        plugins.remember(function)
        return function

    return registered


def given_metric(function: Callable[..., Any], of: Of = "texts") -> UserMetric:
    """Return a function as a metric: as it is registered, or called ``custom``."""
    for metric in _METRICS.values():
        if metric.function is function and metric.of == of:
            return metric
    plugins.remember(function)
    return UserMetric("custom", function, of=of)


def given_fill(function: Callable[[Outputs], Any]) -> UserFill:
    """Return a function as a fill: as it is registered, or called ``custom`` from now on."""
    for fill in _FILLS.values():
        if fill.function is function and fill.name != "custom":
            return fill
    plugins.remember(function)
    _FILLS["custom"] = UserFill("custom", function)
    return _FILLS["custom"]


def _check_name(
    kind: str,
    name: str,
    function: Callable[..., Any],
    reserved: tuple[str, ...],
    registered: Mapping[str, UserMetric | UserFill],
) -> None:
    qualified = qualified_name(function)
    if name in reserved or not name.replace("-", "_").isidentifier():
        fault = "that of attnviz's own" if name in reserved else "no name"
        raise UsageError(f"{name[:40]!r} is {fault}; call the {kind} {qualified} otherwise")
    existing = registered.get(name)
    if existing is not None and qualified_name(existing.function) != qualified:
        owner = qualified_name(existing.function)
        raise UsageError(f"there is a {kind} {name!r} by {owner} already; "
                         f"call that of {qualified} otherwise")  # fmt: skip
