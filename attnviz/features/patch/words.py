"""The words and figures that every picture of patching shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnviz.drawing.labels import counted, visible
from attnviz.drawing.signed import signed
from attnviz.features.patch.result import (
    Circuit,
    Direction,
    Patch,
    PatchEffect,
    PatchShare,
    TaskScore,
)
from attnviz.features.patch.tasks import TASKS

COMPONENTS = {
    "z": "output",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "pattern": "attention pattern",
    "attention": "attention sublayer",
    "mlp": "MLP",
    "residual": "residual state",
}
METRICS = {
    "logit-diff": "logit difference",
    "prob": "probability of the answer",
    "log-prob": "log-probability of the answer",
    "kl": "KL divergence from the clean run",
    "loss": "loss",
    "custom": "metric",
}


def metric(found: Patch) -> str:
    """What was measured, in words."""
    return METRICS.get(found.metric, found.metric)


SIDES = {"q": "queries", "k": "keys", "v": "values"}
TOWARDS: dict[Direction, str] = {
    "denoise": "clean values into the corrupted run",
    "noise": "corrupted values into the clean run",
}
MINUS = "−"
_PLURAL = ("q", "k", "v")
"""Components that are several of a head: its queries, keys and values."""


def title(found: Patch) -> str:
    """What a picture shows."""
    of = "pairs" if found.task == "pairs" else found.task
    if found.circuit is not None:
        return f"{found.source.model}: a circuit of {len(found.circuit.members)} heads ({of})"
    if found.edges:
        return f"{found.source.model}: through whom the answer goes ({of})"
    return f"{found.source.model}: which {nouns(found)} carry the answer ({of})"


def nouns(found: Patch) -> str:
    """What was patched, as the plural of a name."""
    whole = {"attention": "attention sublayers", "mlp": "MLPs", "residual": "residual states"}
    return whole.get(found.component, "heads")


def share(one: PatchShare | None) -> str:
    """``+0.231``, with the digits that its interval leaves known; empty for none."""
    if one is None:
        return ""
    low, high = one.low, one.high
    if low is None or high is None or high <= low:
        return signed(one.share, 3, 3)
    decimals = max(1, min(4, 1 - math.floor(math.log10((high - low) / 2))))
    text = f"{one.share:+.{decimals}f}"
    return "0" if float(text) == 0 else text.replace("-", MINUS)


def interval(one: PatchShare | None, *, joint: bool = True) -> str:
    """``+0.196 to +0.266``; empty where there is none."""
    ends = (None, None) if one is None else (one.low, one.high)
    if one is not None and joint:
        ends = (one.joint_low, one.joint_high)
    low, high = ends
    if low is None or high is None:
        return ""
    half = max((high - low) / 2, 1e-12)
    decimals = max(1, min(4, 1 - math.floor(math.log10(half))))
    return f"{low:+.{decimals}f} to {high:+.{decimals}f}".replace("-", MINUS)


def percent(value: float) -> str:
    """A share of 1 in percent."""
    return f"{round(100 * value):d} %".replace("-", MINUS)


def model_does(found: Patch) -> str:
    """The first line: whether the model does the task at all."""
    clean, corrupted = (_side(found, one) for one in (found.clean, found.corrupted))
    what = f" ({TASKS[found.task].title})" if found.task in TASKS else ""
    of = "" if found.task == "pairs" else f"{found.task}{what}, "
    said = (
        "the answer wins"
        if found.clean.wins is not None
        else "the answer is the most probable token"
    )
    clean_share, corrupted_share = (percent(one.accuracy) for one in (found.clean, found.corrupted))
    return (
        f"{of}{counted(found.pairs, 'pair')}: {said} in {clean_share} of the clean prompts "
        f"({clean}) and in {corrupted_share} of the corrupted ones ({corrupted})"
    )


def _side(found: Patch, one: TaskScore) -> str:
    known = ""
    if one.low is not None and one.high is not None:
        known = f" [{one.low:.3g}, {one.high:.3g}]"
    return f"{metric(found)} {one.mean:.3g}{known}".replace("-", MINUS).replace(
        f"log{MINUS}prob", "log-prob"
    )


def quote(found: Patch) -> str:
    """The sentence that one would quote."""
    if found.circuit is not None:
        return _quote_circuit(found, found.circuit)
    if found.edges:
        return _quote_edge(found)
    if found.by == "position":
        return _quote_position(found)
    first = found.ranked()[0]
    sure = [effect for effect in found.effects if effect.first.sure]
    of = "" if found.task == "pairs" else f" of {found.task}"
    pairs = f"On {counted(found.pairs, 'pair')}{of}"
    what = metric(found)
    parts = [part for part in (_restores(found, first, what), _removes(found, first)) if part]
    said = f"{pairs}, {', and '.join(parts)}"
    if found.family > 1 and first.first.joint_low is not None:
        direction = "restores" if first.denoise else "removes"
        said += (
            f"; of {len(found.effects)} {nouns(found)}, {len(sure)} "
            f"{direction if len(sure) == 1 else direction[:-1]} a share that differs from 0."
        )
        return said
    return said + "."


def _restores(found: Patch, first: PatchEffect, what: str) -> str:
    one = first.denoise
    if one is None:
        return ""
    known = interval_percent(one)
    verb = "restore" if _many(found, first) else "restores"
    return (
        f"{subject(found, first)} of the clean run alone {verb} {percent(one.share)} of the "
        f"{what}{known}"
    )


def _removes(found: Patch, first: PatchEffect) -> str:
    one = first.noise
    if one is None:
        return ""
    known = interval_percent(one)
    that, verb = ("those", "remove") if _many(found, first) else ("that", "removes")
    if first.denoise is not None:
        return f"{that} of the corrupted run {verb} {percent(one.share)}{known}"
    return (
        f"{subject(found, first)} of the corrupted run alone {verb} {percent(one.share)} of the "
        f"{metric(found)}{known}"
    )


def subject(found: Patch, effect: PatchEffect) -> str:
    """``the output of 2.0``; ``MLP 2`` for what has no heads."""
    if _whole(found, effect):
        return effect.name
    several = _many(found, effect) and found.component not in _PLURAL
    return f"the {COMPONENTS[found.component]}{'s' if several else ''} of {effect.name}"


def _whole(found: Patch, effect: PatchEffect) -> bool:
    """Whether it is no part of heads, and its name says it all."""
    return found.component in ("attention", "mlp", "residual") or " of " in effect.name


def _many(found: Patch, effect: PatchEffect) -> bool:
    """Whether several things are patched: outputs of heads, or the queries of one."""
    several = len(effect.heads) > 1 or found.component in _PLURAL
    return several and not _whole(found, effect)


def interval_percent(one: PatchShare) -> str:
    """`` (joint 95 % interval 20 to 27 %)``; empty where there is none."""
    if one.joint_low is None or one.joint_high is None:
        if one.low is None or one.high is None:
            return ""
        return f" (95 % interval {100 * one.low:.0f} to {100 * one.high:.0f} %)".replace("-", MINUS)
    return (
        f" (joint 95 % interval {100 * one.joint_low:.0f} to {100 * one.joint_high:.0f} %)"
    ).replace("-", MINUS)


def _quote_circuit(found: Patch, circuit: Circuit) -> str:
    one = circuit.faithful
    known = ""
    if one.low is not None and one.high is not None:
        known = f" (95 % interval {100 * one.low:.0f} to {100 * one.high:.0f} %)"
    names = ", ".join(found.layout.name(member.head) for member in circuit.members)
    of = "" if found.task == "pairs" else f" of {found.task}"
    return (
        f"With all other heads corrupted, {names} keep {percent(one.share)} of the "
        f"{metric(found)}{known} on {circuit.judged_on} pairs{of} that they were not found "
        f"on; random circuits of {len(circuit.members)} heads keep {percent(mean(circuit.random))} "
        f"(at most {percent(max(circuit.random))}), and all heads but these "
        f"{percent(circuit.complete.share)}."
    )


def mean(values: Sequence[float]) -> float:
    """Of at least one."""
    return sum(values) / len(values)


def circuit_measure(found: Patch) -> str:
    """How a circuit was found and judged, in one line."""
    circuit = found.circuit
    assert circuit is not None
    parts = [
        f"found on {circuit.found_on} pairs, judged on the other {circuit.judged_on}",
        f"faithfulness {score(circuit.faithful)} with all else corrupted, "
        f"{score(circuit.faithful_mean)} with all else at its mean over {circuit.means}",
        f"edges: path patching with free MLPs, shares from {circuit.least:g}",
        f"mean Jaccard overlap with {circuit.resamples} resamples {circuit.overlap:.2f}",
    ]
    return " · ".join(parts)


def score(one: PatchShare) -> str:
    """``0.86 [0.79, 0.93]``."""
    known = ""
    if one.low is not None and one.high is not None:
        known = f" [{one.low:.2f}, {one.high:.2f}]"
    return f"{one.share:.2f}{known}".replace("-", MINUS)


def _quote_edge(found: Patch) -> str:
    first = found.strongest()[0]
    one, verb = first.first, "restores" if first.denoise else "removes"
    run = "clean" if first.denoise else "corrupted"
    through = "the logits" if first.side == "logits" else (
        f"the {SIDES[first.side]} of {'+'.join(map(found.layout.name, first.receivers))}"
    )  # fmt: skip
    of = f" of {found.estimated:,} that were estimated" if found.estimated else ""
    return (
        f"On {counted(found.pairs, 'pair')}, what {found.layout.name(first.sender)} writes in the "
        f"{run} run, entering {through} alone, {verb} {percent(one.share)} of the {metric(found)}"
        f"{interval_percent(one)}, the most of {len(found.edges):,} paths{of}."
    )


def _quote_position(found: Patch) -> str:
    first = found.ranked()[0]
    one = first.first
    verb = ("restore" if first.denoise else "remove") + ("" if _many(found, first) else "s")
    return (
        f"On {counted(found.pairs, 'pair')}, {subject(found, first)} at "
        f"{place(found, first.position or 0)} "
        f"alone {verb} {percent(one.share)} of the {metric(found)}"
        f"{interval_percent(one)}, the most of all {len(found.effects):,} cells."
    )


def place(found: Patch, position: int) -> str:
    """``position 6 ( mot)``: its token is that of the first pair."""
    return f"position {position} ({visible(tokens(found)[position].strip())})"


def tokens(found: Patch, direction: Direction | None = None) -> Sequence[str]:
    """Of the first pair's run that is patched, in the first direction unless one is named."""
    example = found.example
    first = direction or found.directions[0]
    return example.corrupted if first == "denoise" else example.clean


def measure(found: Patch) -> str:
    """What was measured, on what and how, in one line."""
    values = " and ".join(TOWARDS[one] for one in found.directions)
    where = f" at {found.positions}" if found.positions else ""
    what = f"patching the {COMPONENTS[found.component]}{where}"
    if found.edges:
        what = f"a head's difference along one path (MLPs between {found.mlps})"
    parts = [
        f"share of the {metric(found)}, clean {MINUS} corrupted, that {what} moves",
        values,
        counted(found.pairs, "pair"),
    ]
    if found.steps is not None:
        how = f"EAP-IG, {found.steps} steps" if found.steps else "EAP"
        parts.append(f"{found.estimated:,} paths estimated by {how}")
    firsts = [one.first for one in found.effects] + [one.first for one in found.edges]
    if found.family > 1 and any(one.joint_low is not None for one in firsts):
        parts.append(f"95 % intervals that hold for all {found.family:,} at once")
    if found.correlation is not None:
        parts.append(f"rank correlation of estimates and effects {found.correlation:.2f}")
    return " · ".join(parts)


def most(found: Patch, direction: Direction) -> float:
    """The end of the colours: the largest share of a single target."""
    alone = [abs(one.share) for effect in found.effects if (one := effect.of(direction))]
    return max(alone, default=0.0)
