"""What can be asked of patching, with its defaults; the parameters of ``attnviz.patch``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from attnviz.core.arguments import check_fields
from attnviz.errors import Setting, UsageError
from attnviz.features.patch.pairs import Align
from attnviz.features.patch.paths import Mlps
from attnviz.features.patch.result import DIRECTIONS, Direction
from attnviz.features.patch.targets import WHOLE, Component
from attnviz.scoring.user_measures import FILLS

By = Literal["head", "position"]
Directions = Literal["denoise", "noise", "both"]

_AT = re.compile(r"-?[0-9]{1,6}|span|span:[^,]+")
"""One of the positions."""
MOST_PAIRS = 10_000
"""Pairs of a built-in task: more would be days, and its words make few that differ."""
_LEAST = {"size": 1, "edges": 0, "steps": 0, "count": 1, "seed": 0, "batch_tokens": 1, "jobs": 1}


@dataclass(frozen=True, slots=True)
class PatchSettings:
    """What is patched, and where.

    Attributes:
        component: heads' outputs ``z``, ``q``, ``k``, ``v``, the ``pattern`` alone, ``attention``
            and ``mlp`` sublayers, ``residual`` states.
        by: ``head`` for all positions at once, ``position`` for each by itself.
        heads: groups of heads; every head alone by default.
        at: positions by comma: numbers, negative ones from the end, ``span`` for those that
            differ between the prompts, ``span:NAME`` for a named part; all by default.
        direction: ``denoise``, ``noise`` or both.
        align: positions of prompts of different lengths: not at all, or by ``word``.
        estimate: also estimate each effect by gradients (attribution patching).
        paths: in place of all that, paths such as ``1.4 -> *.k``.
        edges: estimate all paths by gradients, and measure so many of the strongest.
        steps: of the gradients' mean; 0 for the corrupted run alone.
        mlps: between the ends of a path, ``frozen`` or ``free``.
        circuit: look for the heads that do the task, on one half of the pairs, and judge them on
            the other.
        size: of the circuit.
        faithful: without a size, the smallest circuit that is so faithful where it is found.
        fill: the name of a user's function of what takes the place of a head's output, in place of
            the other run's output itself.
        count: pairs of a built-in task.
        seed: of a task's draws and of the bootstrap.
        batch_tokens: tokens that run at once at most; found by itself if None.
        jobs: processes, or actors on Ray.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
    """

    component: Component = "z"
    by: By = "head"
    heads: str | None = None
    at: str | None = None
    direction: Directions = "both"
    align: Align = "position"
    estimate: bool = False
    paths: tuple[str, ...] = ()
    edges: int = 0
    steps: int = 5
    mlps: Mlps = "frozen"
    circuit: bool = False
    size: int | None = None
    faithful: float = 0.85
    fill: str | None = None
    count: int = 60
    seed: int = 0
    batch_tokens: int | None = None
    jobs: int = 1
    ray: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Those that were asked for, denoising first."""
        return tuple(one for one in DIRECTIONS if self.direction in (one, "both"))

    @property
    def where(self) -> str:
        """Positions without blanks around them; empty for all."""
        return ",".join(one.strip() for one in (self.at or "").split(","))

    def asked(self) -> dict[str, Any]:
        """All of it as parameters."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check(self) -> None:
        """Raise UsageError on what does not exist or does not go together."""
        choices = {"component": Component, "by": By, "direction": Directions, "align": Align,
                   "mlps": Mlps}  # fmt: skip
        for name, kind in choices.items():
            value, known = getattr(self, name), get_args(kind)
            if value not in known:
                raise UsageError(f"unknown {name} {value!r}; choose one of {', '.join(known)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError("{} must be a whole number from {}", Setting(name, value), least)
        if self.count > MOST_PAIRS:
            raise UsageError("{} is more than {:,} pairs", Setting("count", self.count), MOST_PAIRS)
        if self.where and not all(_AT.fullmatch(one) for one in self.where.split(",")):
            raise UsageError(
                "{at} takes positions such as 3 or -1,-2, span for those that differ, or span:NAME "
                "for a part of the clean prompt",
                at=self.at,
            )
        self._check_together()

    def _check_together(self) -> None:
        """Raise UsageError on what does not go together."""
        if self.estimate and (self.component in (*WHOLE, "attention") or self.by == "position"):
            raise UsageError(
                "{estimate} is of heads at all positions together, not of {component} with {by}",
                estimate=True,
                component=self.component,
                by=self.by,
            )
        if self.paths and self.edges:
            raise UsageError("{edges} estimates all paths; leave out {paths}", edges=self.edges,
                             paths=...)  # fmt: skip
        if self.size is not None and not self.circuit:
            raise UsageError("{size} is of a circuit; add {circuit}", size=self.size, circuit=True)
        if not 0 < self.faithful <= 1:
            raise UsageError("{faithful} must be above 0 and at most 1", faithful=self.faithful)
        if self.circuit and self.traced:
            raise UsageError("a circuit measures its own paths; leave out {paths} and {edges}",
                             paths=..., edges=...)  # fmt: skip
        if self.circuit and self.direction != "both":
            raise UsageError("a circuit needs both directions; leave out {direction}",
                             direction=self.direction)  # fmt: skip
        if self.fill is not None:
            self._check_fill(self.fill)
        if not (self.traced or self.circuit):
            return
        for name, value in (("component", "z"), ("by", "head"), ("heads", None), ("at", None)):
            given = getattr(self, name)
            if given != value:
                raise UsageError(
                    "paths and circuits are of heads' whole outputs; leave out {}",
                    Setting(name, given),
                )

    def _check_fill(self, name: str) -> None:
        """Raise UsageError where there is no such fill, or no whole output that it could fill."""
        if name not in FILLS:
            known = ", ".join(FILLS) or "none is registered"
            raise UsageError("no fill is called {!r} ({})", name, known)
        if self.component != "z" or self.estimate or self.traced or self.circuit:
            raise UsageError(
                "{fill} is of heads' outputs that are patched exactly; leave out {component}, "
                "{estimate}, {paths}, {edges} and {circuit}",
                fill=name, component=..., estimate=..., paths=..., edges=..., circuit=...,
            )  # fmt: skip

    @property
    def traced(self) -> bool:
        """Whether paths are asked for, in place of heads or sublayers."""
        return bool(self.paths or self.edges)
