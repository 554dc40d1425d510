"""What can be patched: heads, keys and values that heads share, sublayers, residual states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attnviz.captures.trials import Activations
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.source import Part, Source
from attnviz.errors import ModelError, SelectionError, UsageError
from attnviz.features.patch.pairs import PreparedPair
from attnviz.scoring.groups import Group, every_head, read_groups
from attnviz.scoring.passes import observe

Component = Literal["z", "q", "k", "v", "pattern", "gate", "attention", "mlp", "residual"]
WHOLE: tuple[Component, ...] = ("mlp", "residual")
"""What has no heads."""

_WORDS = {"k": "keys", "v": "values"}


@dataclass(frozen=True, slots=True)
class Target:
    """What one run patches.

    Attributes:
        name: as it is shown.
        component: what it is.
        heads: whose values; of ``k`` and ``v`` all query heads that read them.
        rows: by layer, which rows of the part are replaced: query heads, or key heads.
        layer: the first layer that it touches; of residual states the layer that they enter.
    """

    name: str
    component: Component
    heads: tuple[Head, ...]
    rows: Mapping[Site, tuple[int, ...]]
    layer: int

    @property
    def part(self) -> Part | None:
        """What of the layers; None for sublayers and states."""
        if self.component == "attention":
            return "z"
        return None if self.component in WHOLE else self.component  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Patching:
    """One run: a target at one position of the base run, or wherever it is asked for."""

    target: Target
    position: int | None = None


def parts_of(component: Component) -> tuple[Part, ...]:
    """What must be kept of a run to patch that."""
    if component in WHOLE:
        return ()
    return ("z", "gate") if component == "attention" else (component,)  # type: ignore[return-value]


def key_heads(source: Source, pair: PreparedPair) -> dict[Site, int]:
    """G of every layer: heads that have keys and values of their own."""
    activations = Activations(["k"], source.layout.sites)
    observe(source, [pair.clean], activations)
    return {site: keys.shape[1] for site, keys in activations.values["k"].items()}


def targets(
    source: Source, component: Component, heads: str | None, shared: Mapping[Site, int]
) -> tuple[Target, ...]:
    """Everything of a kind, or what was asked for."""
    layout = source.layout
    if component == "gate":
        _check_gates(source)
    if component in ("attention", *WHOLE):
        if heads is not None:
            raise UsageError(
                "{component} is of a whole layer; leave out {select}", component=component,
                select=heads,
            )  # fmt: skip
        return _whole(source, component)
    groups = every_head(layout) if heads is None else read_groups(heads, layout, no_roles)
    made: dict[str, Target] = {}
    for group in groups:
        target = _of_heads(group, component, layout, shared)
        made.setdefault(target.name, target)
    return tuple(made.values())


def _check_gates(source: Source) -> None:
    """Refuse a model without gated attention."""
    for site in source.layout.sites:
        if source.layout.heads[site.kind][site.layer] and "gate" not in source.output(site).held:
            raise ModelError(
                "{} layer {} of {} does not multiply its heads' outputs with a gate; patch "
                "outputs, with {component}",
                site.kind,
                site.layer,
                source.info.model,
                component="z",
            )


def _of_heads(
    group: Group, component: Component, layout: Layout, shared: Mapping[Site, int]
) -> Target:
    """A group of heads; of keys and values with all that read the same."""
    layer = min(head.layer for head in group.heads)
    if component not in ("k", "v"):
        rows = {
            site: tuple(head.index for head in group.heads if head.site == site)
            for site in group.sites
        }
        return Target(group.name, component, group.heads, rows, layer)
    rows, heads = {}, list[Head]()
    for site in group.sites:
        each = layout.heads[site.kind][site.layer] // shared[site]
        mine = dict.fromkeys(head.index // each for head in group.heads if head.site == site)
        rows[site] = tuple(mine)
        heads += [Head(site, key * each + n) for key in mine for n in range(each)]
    name = "+".join(map(layout.name, heads))
    if any(layout.heads[site.kind][site.layer] != shared[site] for site in group.sites):
        name = f"{_WORDS[component]} of {name}"
    return Target(name, component, tuple(heads), rows, layer)


def _whole(source: Source, component: Component) -> tuple[Target, ...]:
    """Sublayers, or the states between them."""
    layout = source.layout
    if component == "attention":
        return tuple(
            Target(
                f"attention {layout.name(Head(site, 0)).rpartition('.')[0]}",
                component,
                heads := tuple(Head(site, n) for n in range(count)),
                {site: tuple(head.index for head in heads)},
                site.layer,
            )
            for site in layout.sites
            if (count := layout.heads[site.kind][site.layer])
        )
    if source.start_kind is None:
        raise ModelError(
            "{} has no plain list of layers that run one after the other; patch heads, with "
            "{component}",
            source.info.model,
            component="z",
        )
    layers = layout.layers(source.start_kind)
    if component == "mlp":
        readout = source.readout()
        over = "its layers normalize the sum of what they get and what their MLPs add"
        if reason := readout.reason or (over if readout.over else ""):
            raise ModelError(
                "what the MLPs of {} add cannot be told: {}", source.info.model, reason
            )
        return tuple(Target(f"MLP {n}", component, (), {}, n) for n in range(layers))
    return tuple(Target(f"residual {n}", component, (), {}, n) for n in range(layers + 1))


def no_roles(name: str) -> tuple[Head, ...]:
    """Raise SelectionError: pairs are no text on which heads show roles."""
    raise SelectionError(
        f"role:{name} is found on texts, and patching runs pairs; name the heads, as attnviz heads "
        "lists them"
    )


def trials(targets: Sequence[Target], by: str, positions: Sequence[int]) -> tuple[Patching, ...]:
    """The runs: every target, at all positions at once or at each by itself."""
    if by == "head":
        return tuple(Patching(target) for target in targets)
    return tuple(Patching(target, place) for target in targets for place in positions)
