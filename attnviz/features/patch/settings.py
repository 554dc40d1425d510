"""What can be asked of patching."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from attnviz.core.settings import POSITIONS, Parallel, like, number_or_text, setting
from attnviz.core.split import EVERYTHING, HALVES, Splitting
from attnviz.errors import Setting, UsageError
from attnviz.features.patch.result import DIRECTIONS, Component, Direction

AUTO, FAITHFUL = "auto", 0.85
"""The fewest heads that keep so much of the gap, or as much over all of it as this is under it."""
_SHARE = re.compile(r"(\d{1,3}(?:\.\d+)?)%")
PAIRS, PATCHED, THROUGH = "Pairs", "What is patched", "Through whom"
CIRCUIT = "The circuit"

MOST_PAIRS = 10_000
"""Pairs of a built-in task: more would be days, and its words make few that differ."""


@dataclass(frozen=True)
class PatchSettings(Splitting):
    """Which pairs, what is patched and where, through whom, and the circuit."""

    task: str | None = setting(
        None,
        "A built-in task, such as induction. Others: induction-swap, ioi, agreement and gender.",
        panel=PAIRS,
        metavar="TASK",
        common=True,
    )
    count: int = setting(60, "Number of pairs of a task.", panel=PAIRS, least=1, most=MOST_PAIRS)
    group: str | None = setting(
        None,
        "The field of a file that names what a pair belongs to; these are then taken as "
        "independent.",
        panel=PAIRS,
        metavar="NAME",
    )
    align: Literal["position", "word"] = setting(
        "position", "How prompts of different lengths are aligned.", panel=PAIRS
    )
    component: Component = setting(
        "z",
        "What is patched. Heads' outputs (z), the gate on them in gated attention, their q, k or v "
        "after rotary positions, the weights alone (pattern), sublayers, or the states that enter "
        "each layer (residual).",
        panel=PATCHED,
        common=True,
    )
    select: str | None = setting(
        None,
        "Heads: 2.0 or 2.* each alone, 2.0+2.4 or layer:2 together. Lists by comma; every head "
        "alone by default; keys and values that several heads share go together.",
        short="s",
        panel=PATCHED,
        metavar="HEADS",
        common=True,
    )
    by: Literal["head", "position"] = setting(
        "head", "Patch all positions at once, or one by one.", panel=PATCHED, common=True
    )
    position: str | int | None = setting(
        None,
        f"Patch these tokens alone, or those that differ (span). {POSITIONS} Texts and spans are "
        "of the clean prompt, with their partners.",
        panel=PATCHED,
        metavar="TOKENS",
        parser=number_or_text,
    )
    direction: Literal["denoise", "noise", "both"] = setting(
        "both",
        "Clean values into the corrupted run (denoise), the other way round (noise), or both.",
        panel=PATCHED,
    )
    metric: Any = setting(
        None,
        "logit-diff, prob, log-prob, kl (to the clean run), loss, or one that a plugin registers "
        "(av.metric). In Python also a function of the logits [V] where the answer belongs, and "
        "the pair.",
        panel=PATCHED,
        metavar="METRIC",
        shown="logit-diff where the answer is held against something, else log-prob",
    )
    fill: Any = setting(
        None,
        "What replaces it: a fill that a plugin registers (av.fill), or in Python a function "
        "of attnviz.Outputs.",
        panel=PATCHED,
        metavar="FILL",
        shown="the other run's values",
    )
    estimate: bool = setting(
        False, "Also estimate every effect from one gradient (attribution patching).", panel=PATCHED
    )
    paths: tuple[str, ...] | str = setting(
        (),
        'Patch paths in place of heads: "1.4 -> *.k". Or "2.0 -> logits"; repeatable.',
        panel=THROUGH,
        metavar="PATH",
        common=True,
    )
    edges: int = setting(
        0,
        "Measure the N strongest paths. Those between all heads are estimated by gradients first.",
        panel=THROUGH,
        least=0,
        shown="",
        common=True,
    )
    steps: int = setting(
        5,
        "Steps of integrated gradients (EAP-IG); 0 for plain gradients (EAP).",
        panel=THROUGH,
        least=0,
        most=1000,
    )
    mlps: Literal["frozen", "free"] = setting(
        "frozen",
        "MLPs between the ends of a path: as in the run that is patched, or run again; heads "
        "between are always held.",
        panel=THROUGH,
    )
    circuit: str | int | None = setting(
        None,
        "Find the heads that do the task. On half of the pairs; they are judged on the others. As "
        "few as keep 85% to 115% of the gap with all other heads corrupted (auto), or such a share "
        "(90% is 90% to 110%), or so many heads: 5.",
        panel=CIRCUIT,
        metavar="auto|SHARE%|N",
        typed=str,
        bare=AUTO,
        common=True,
    )
    split: str = like(Splitting, "split", panel=CIRCUIT, common=False)
    seed: int = setting(0, "Seed of a task's pairs and of resamples.", least=0)
    batch_tokens: int | None = setting(
        None, "Largest number of tokens run at once.", least=1, shown="by memory"
    )
    jobs: int = like(Parallel, "jobs")
    ray: str | None = like(Parallel, "ray")

    @property
    def circuit_size(self) -> int | None:
        """How many heads the circuit has; None for as few as are faithful enough."""
        text = str(self.circuit)
        return int(text) if text.isdecimal() else None

    @property
    def faithful(self) -> float:
        """The share of the gap that the circuit is to keep; as much over 1 is as far off."""
        share = _SHARE.fullmatch(str(self.circuit))
        return FAITHFUL if share is None else float(share[1]) / 100

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Those that were asked for, denoising first."""
        return tuple(direction for direction in DIRECTIONS if self.direction in (direction, "both"))

    @property
    def where(self) -> str:
        """Positions without blanks around them; empty for all."""
        text = "" if self.position is None else str(self.position)
        return ",".join(part.strip() for part in text.split(","))

    @property
    def listed_paths(self) -> tuple[str, ...]:
        """The paths, one or several."""
        return (self.paths,) if isinstance(self.paths, str) else tuple(self.paths or ())

    def check(self) -> None:
        """Raise UsageError for what does not exist or does not go together."""
        super().check()
        if self.split != HALVES and not self.circuit:
            raise UsageError("{split} is of a circuit; add {circuit}", split=self.split,
                             circuit=...)  # fmt: skip
        if self.split == EVERYTHING:
            raise UsageError(
                "a circuit is judged on pairs that it was not found on; leave out {split}, or give "
                "a share such as hash:0.5",
                split=self.split,
            )
        self._check_together()

    def _check_together(self) -> None:
        """Raise UsageError on what does not go together."""
        if self.estimate and (
            self.component in ("attention", "mlp", "residual") or self.by == "position"
        ):
            raise UsageError(
                "{estimate} is of heads at all positions together, not of {component} with {by}",
                estimate=True,
                component=self.component,
                by=self.by,
            )
        if self.paths and self.edges:
            raise UsageError("{edges} estimates all paths; leave out {paths}", edges=self.edges,
                             paths=...)  # fmt: skip
        if self.circuit not in (None, AUTO):
            self._check_circuit(str(self.circuit))
        if self.circuit and self.traced:
            raise UsageError("a circuit measures its own paths; leave out {paths} and {edges}",
                             paths=..., edges=...)  # fmt: skip
        if self.circuit and self.direction != "both":
            raise UsageError("a circuit needs both directions; leave out {direction}",
                             direction=self.direction)  # fmt: skip
        if self.fill is not None and not callable(self.fill):
            self._check_fill(self.fill)
        if not (self.traced or self.circuit):
            return
        for name, value in (("component", "z"), ("by", "head"), ("select", None),
                            ("position", None)):  # fmt: skip
            given = getattr(self, name)
            if given != value:
                raise UsageError(
                    "paths and circuits are of heads' whole outputs; leave out {}",
                    Setting(name, given),
                )

    def _check_circuit(self, text: str) -> None:
        """Raise UsageError for what is neither a number of heads nor a share of the effect."""
        number = self.circuit_size if _SHARE.fullmatch(text) is None else self.faithful
        if number is None or not number or (text.endswith("%") and number > 1):
            raise UsageError(
                "{circuit} takes auto, a share such as 90%, or a number of heads such as 5, not "
                "{!r}",
                text[:20],
                circuit=...,
            )

    def _check_fill(self, name: object) -> None:
        """Raise UsageError where there is no such fill, or no whole output that it could fill."""
        from attnviz.scoring.user_measures import FILLS

        if not isinstance(name, str) or name not in FILLS:
            names = ", ".join(FILLS) or "none is registered"
            raise UsageError("no fill is called {!r} ({})", name, names)
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
