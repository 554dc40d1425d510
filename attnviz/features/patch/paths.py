"""Path patching: one head's difference, through one input of another head, or to the logits.

Goldowsky-Dill et al. 2023 (arXiv:2304.05969), Wang et al. 2022 (arXiv:2211.00593). With b the base
run and d the donor, and δ = (z_s(d) - z_s(b)) W_O,s what the sender s would write differently:

1. what enters the receiver's layer is base + δ (MLPs between held), or, with free MLPs, the state
   of the base run with z_s of the donor and every other head's output as in the base;
2. of that, the receiver's layer makes queries, keys and values: those of one input are taken;
3. the base run goes on from the receiver's layer with that input in place of its own, and
   everything behind it free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Activations
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import padded
from attnviz.core.source import Donor, ForwardRequest, Kept, Part, Source, Start
from attnviz.core.threads import one_thread_for, side_by_side
from attnviz.errors import ModelError, SelectionError
from attnviz.features.patch.result import Direction, Side
from attnviz.features.patch.runs import PatchBench, PatchRun, RunPair
from attnviz.interventions.sweep import beside, grouped, pass_tokens
from attnviz.scoring.select import select

Mlps = Literal["frozen", "free"]
KEPT: tuple[Kept, ...] = ("z", "written", "gate")  # what paths take from both runs
ESTIMATED_TOKENS = 512
"""Of a batch at most whose paths are estimated: slopes of every head's inputs are kept for it."""

_ARROW = re.compile(r"\s*(?:->|→)\s*")
_INPUT = re.compile(r"(?P<heads>.+)\.(?P<side>[qkv])")


@dataclass(frozen=True, slots=True)
class Path:
    """A sender and an input of a receiver."""

    sender: Head  # whose difference goes in
    # the head that reads it; of keys and values all heads that share them
    receivers: tuple[Head, ...]
    side: Side  # which input; ``logits`` for no receiver
    row: int = 0  # of the receiver's input: its query head, or its key head

    @property
    def site(self) -> Site | None:
        """The receiver's layer; None for the logits."""
        return self.receivers[0].site if self.receivers else None


def read_paths(
    texts: Iterable[str], layout: Layout, shared: Mapping[Site, int]
) -> tuple[Path, ...]:
    """Read paths such as ``1.4 -> *.k``, ``2.0 -> logits`` and ``1.* -> 2.0``."""
    paths: dict[Path, None] = {}
    for text in texts:
        parts = _ARROW.split(text.strip())
        if len(parts) != 2 or not all(parts):
            raise SelectionError(
                f"cannot read {text[:40]!r} as a path; write 1.4 -> *.k, 1.4 -> 2.0 or 2.0 -> "
                "logits"
            )
        senders = select(_all(parts[0]), layout)
        onward = [path for sender in senders for path in _onward(sender, parts[1], layout, shared)]
        if not onward:
            raise SelectionError(f"{text[:40]!r}: no receiver is in a layer after its sender")
        paths |= dict.fromkeys(onward)
    return tuple(paths)


def every_path(layout: Layout, shared: Mapping[Site, int]) -> tuple[Path, ...]:
    """All edges between heads, and from heads to the logits."""
    return tuple(
        path
        for head in layout
        for receivers in ("*.*", "logits")
        for path in _onward(head, receivers, layout, shared)
    )


def _onward(
    sender: Head, receivers: str, layout: Layout, shared: Mapping[Site, int]
) -> Iterator[Path]:
    if receivers == "logits":
        yield Path(sender, (), "logits")
        return
    match = _INPUT.fullmatch(receivers)
    sides: tuple[Side, ...] = ("q", "k", "v")
    if match is not None:
        receivers, sides = match["heads"], (match["side"],)  # type: ignore[assignment]
    for head in select(_all(receivers), layout):
        if head.layer <= sender.layer:
            continue
        group_size = layout.heads[head.site.kind][head.layer] // shared[head.site]
        for side in sides:
            if side == "q":
                yield Path(sender, (head,), side, head.index)
            else:
                row = head.index // group_size
                heads = tuple(Head(head.site, row * group_size + n) for n in range(group_size))
                yield Path(sender, heads, side, row)


def _all(text: str) -> str:
    """``*`` for every head."""
    return "*.*" if text.strip() == "*" else text


def check(source: Source, mlps: Mlps) -> None:
    """Refuse models whose stream is no sum, or whose layers are no plain list."""
    if source.start_kind is None:
        raise ModelError(
            "paths run from layer to layer, and {} has no plain list of them; patch heads",
            source.info.model,
        )
    if mlps == "free":
        return
    stream = source.readout().summed
    for site in source.layout.sites:
        reason = source.output(site).reason or source.sublayer(site).reason
        if not source.layout.heads[site.kind][site.layer]:  # a mixer without attention is frozen
            reason = stream.reason
        elif source.sublayer(site).order == "post":
            reason = "its layers normalize the sum"
        if not reason and stream.over:
            reason = "its layers normalize the sum"
        if not reason and stream.residual_scales:
            reason = "its layers multiply what enters them"
        if reason:
            raise ModelError(
                "what a head of {} writes does not reach later layers as it is (layer {}): {}; let "
                "what is between run, with {mlps}",
                source.info.model,
                site.layer,
                reason,
                mlps="free",
            )


def outputs(run: PatchRun) -> Mapping[Site, Array]:
    """Give heads' outputs of a run as W_O gets them, which are z where nothing stands between."""
    return run.values.get("written") or run.values["z"]


def written(source: Source, values: Mapping[Site, Array], head: Head) -> Array:
    """Get what a head writes, z W_O: [N, T, D], of outputs [N, H, T, d_v] by layer, before W_O."""
    weight = source.output(head.site).weight
    assert weight is not None
    z = values[head.site][:, head.index]
    matrix: Array = arrays.of(z).cast(arrays.converted(weight[head.index], z), z.dtype)
    with one_thread_for(z):
        return z @ matrix


def sweep(
    bench: PatchBench,
    runs: RunPair,
    paths: Sequence[Path],
    direction: Direction,
    *,
    mlps: Mlps = "frozen",
    tokens: int = 4096,
) -> NDArray[np.float64]:
    """Return the metric of every path's run, float64 [paths, N]."""
    base, source = runs.base(direction), bench.source
    concurrent = 0 if bench.metric.function is not None else source.concurrent
    count = beside(concurrent)
    senders = list(dict.fromkeys(path.sender for path in paths))
    entered = _Entered(source, (base, runs.donor(direction)), mlps, senders, count)
    at_once = max(1, pass_tokens(tokens, concurrent) // padded(base.batch))
    last = len(base.states) - 1

    def measured(group: tuple[tuple[int, Side], list[int]]) -> NDArray[np.float64]:
        """Run the paths of one pass: the metric [n, N]."""
        (layer, _), numbers = group
        ends = _ends(bench, base, [paths[n] for n in numbers], layer, entered)
        return arrays.to_numpy(bench.values(ends, runs)).reshape(len(numbers), -1)

    inputs = [(last if path.site is None else path.site.layer, path.side) for path in paths]
    passes = list(grouped(inputs, at_once))
    changes = np.zeros((len(paths), len(base.batch)))
    for (_, numbers), values in zip(passes, side_by_side(measured, passes, count), strict=True):
        changes[numbers] = values
    return changes


def _ends(
    bench: PatchBench, base: PatchRun, paths: Sequence[Path], layer: int, entered: _Entered
) -> Array:
    """Run n paths to one input of heads in one layer, or all to the logits; see ``forward``."""
    batch, positions = list(base.batch) * len(paths), np.tile(base.at, len(paths))
    site = paths[0].site
    if site is None:
        states = [entered(path.sender, layer) for path in paths]
        start = Start(layer, arrays.of(states[0]).xp.concatenate(states))
        return bench.forward(batch, positions, ForwardRequest(start=start))[1]
    side: Part = paths[0].side  # type: ignore[assignment]
    senders = list(dict.fromkeys(path.sender for path in paths))
    values = _input(bench.source, base, site, side, [entered(sender, layer) for sender in senders])
    lib = arrays.of(values)
    share = lib.zeros((len(paths), len(base.batch), values.shape[2]), values.dtype, values)
    for number, path in enumerate(paths):
        share[number, :, path.row] = 1
    theirs = lib.xp.concatenate([values[senders.index(path.sender)] for path in paths])
    donors = {site: [Donor(side, theirs, share.reshape(-1, share.shape[2]))]}
    start = Start(layer, base.states[layer])
    return bench.forward(batch, positions, ForwardRequest(donors=donors, start=start))[1]


def _input(
    source: Source, base: PatchRun, site: Site, side: Part, states: Sequence[Array]
) -> Array:
    """Give queries, keys or values [senders, N, heads, T, d] that a layer makes of some states."""
    activations = Activations([side], [site])
    entering = arrays.of(states[0]).xp.concatenate(list(states))
    source.forward(
        list(base.batch) * len(states),
        [activations],
        ForwardRequest(hidden=False, start=Start(site.layer, entering, site.layer + 1)),
    )
    values = activations.values[side][site]
    return values.reshape(len(states), -1, *values.shape[1:])


class _Entered:
    """What enters a layer with a sender's difference and all other heads as in the base run."""

    def __init__(
        self, source: Source, runs: tuple[PatchRun, PatchRun], mlps: Mlps, senders: Sequence[Head],
        count: int,
    ) -> None:  # fmt: skip
        """Run what has to run for some senders, ``count`` passes side by side."""
        self.source, (self.base, self.donor), self.mlps = source, runs, mlps
        run = self._free if mlps == "free" else self._difference
        self._states = dict(zip(senders, side_by_side(run, senders, count), strict=True))

    def __call__(self, sender: Head, layer: int) -> Array:
        """[N, T, D]; the number of layers for what leaves the last one."""
        if self.mlps == "frozen":
            return self.base.states[layer] + self._states[sender][0]
        return self._states[sender][layer - sender.layer]

    def _difference(self, sender: Head) -> tuple[Array, ...]:
        """Return what the sender writes differently."""
        theirs, ours = (
            written(self.source, outputs(run), sender) for run in (self.donor, self.base)
        )
        return (theirs - ours,)

    def _free(self, sender: Head) -> tuple[Array, ...]:
        """Return the states from the sender's layer on, MLPs free."""
        donors: dict[Site, list[Donor]] = {}
        parts: tuple[Part, ...] = ("z", "gate")
        for part in parts:
            for site, ours in self.base.values.get(part, {}).items():
                mixed: Array = arrays.of(ours).copied(ours)
                if site == sender.site:
                    mixed[:, sender.index] = self.donor.values[part][site][:, sender.index]
                if site.layer >= sender.layer:
                    donors.setdefault(site, []).append(_whole(part, mixed))
        start = Start(sender.layer, self.base.states[sender.layer])
        request = ForwardRequest(donors=donors, start=start, states=True)
        return self.source.forward(self.base.batch, request=request).states


def _whole(part: Part, values: Array) -> Donor:
    """Values in place of those of every head."""
    lib = arrays.of(values)
    return Donor(part, values, lib.full(tuple(values.shape[:2]), 1, values.dtype, values))
