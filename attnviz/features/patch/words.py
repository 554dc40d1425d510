"""The words and figures that every picture of patching shares, and what must not be missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnviz.drawing.grid import signed
from attnviz.drawing.labels import counted, in_part, known_decimals, model_name, visible
from attnviz.errors import UsageError
from attnviz.features.patch import result as records
from attnviz.features.patch.pairs import TASKS
from attnviz.statistics.clusters import FEW, LEAST
from attnviz.statistics.coverage import holds
from attnviz.statistics.order import too_few


def no_page() -> UsageError:
    """Of a result without a circuit."""
    return UsageError("only a circuit has a page; add {circuit}, or draw a picture", circuit=...)


def no_graph() -> UsageError:
    """Of a result without a circuit and without paths."""
    return UsageError(
        "only a circuit or paths make a graph; add {circuit} or {edges}", circuit="auto", edges=20
    )


COMPONENTS = {
    "z": "output",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "pattern": "attention pattern",
    "gate": "gate",
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


def metric(result: records.Patch) -> str:
    """Return what was measured, in words."""
    return METRICS.get(result.metric, result.metric)


SIDES = {"q": "queries", "k": "keys", "v": "values"}
TOWARDS: dict[records.Direction, str] = {
    "denoise": "clean values into the corrupted run",
    "noise": "corrupted values into the clean run",
}
MINUS = "−"
_PLURAL = ("q", "k", "v")  # components that are several of a head: its queries, keys and values


def title(result: records.Patch) -> str:
    """Return what a picture shows."""
    of = "pairs" if result.task == "pairs" else result.task
    if result.circuit is not None:
        return f"{result.source.model}: a circuit of {len(result.circuit.members)} heads ({of})"
    if result.edges:
        return f"{result.source.model}: through whom the answer goes ({of})"
    return f"{result.source.model}: which {nouns(result)} carry the answer ({of})"


def nouns(result: records.Patch) -> str:
    """Return what was patched, as the plural of a name."""
    names = {"attention": "attention sublayers", "mlp": "MLPs", "residual": "residual states"}
    return names.get(result.component, "heads")


def share(measured: records.PatchShare | None) -> str:
    """``+0.231``, with the digits that its interval leaves known; empty for none."""
    if measured is None:
        return ""
    low, high = measured.low, measured.high
    if low is None or high is None or high <= low:
        return signed(measured.share, 3, 3)
    text = f"{measured.share:+.{known_decimals(low, high, 1)}f}"
    return "0" if float(text) == 0 else text.replace("-", MINUS)


def interval(share: records.PatchShare | None, *, joint: bool = True) -> str:
    """``+0.196 to +0.266``; empty where there is none."""
    ends = (None, None) if share is None else (share.low, share.high)
    if share is not None and joint:
        ends = (share.joint_low, share.joint_high)
    low, high = ends
    if low is None or high is None:
        return ""
    decimals = known_decimals(low, high, 1)
    return f"{low:+.{decimals}f} to {high:+.{decimals}f}".replace("-", MINUS)


def often(share: records.PatchShare | None) -> str:
    """``up in 34 % or more``: of the pairs, by 1 % of the gap or more; empty for no."""
    return "" if share is None else in_part(
        (("up", share.often_above), ("down", share.often_below))
    )  # fmt: skip


def percent(value: float) -> str:
    """Return a share of 1 in percent."""
    return f"{round(100 * value):d} %".replace("-", MINUS)


def model_does(result: records.Patch) -> str:
    """Return the first line: whether the model does the task at all."""
    clean, corrupted = (_side(result, side) for side in (result.clean, result.corrupted))
    title = f" ({TASKS[result.task].title})" if result.task in TASKS else ""
    of = "" if result.task == "pairs" else f"{result.task}{title}, "
    sentence = (
        "the answer wins"
        if result.clean.wins is not None
        else "the answer is the most probable token"
    )
    return (
        f"{of}{counted(result.pairs, 'pair')}: {sentence} in {percent(result.clean.accuracy)} of "
        f"the clean prompts ({clean}) and in {percent(result.corrupted.accuracy)} of the corrupted "
        f"ones ({corrupted})"
    )


def _side(result: records.Patch, score: records.TaskScore) -> str:
    ends = ""
    if score.low is not None and score.high is not None:
        ends = f" [{score.low:.3g}, {score.high:.3g}]"
    return f"{metric(result)} {score.mean:.3g}{ends}".replace("-", MINUS).replace(
        f"log{MINUS}prob", "log-prob"
    )


def quote(result: records.Patch) -> str:
    """Return the sentence that one would quote."""
    if result.circuit is not None:
        return _quote_circuit(result, result.circuit)
    if result.edges:
        return _quote_edge(result)
    if result.by == "position":
        return _quote_position(result)
    first = result.ranked()[0]
    sure = [effect for effect in result.effects if effect.first.sure]
    of = "" if result.task == "pairs" else f" of {result.task}"
    sentence = f"On {counted(result.pairs, 'pair')}{of}, {_does(result, first)}"
    if result.family > 1 and first.first.joint_low is not None:
        direction = "restores" if first.denoise else "removes"
        sentence += (
            f"; of {len(result.effects)} {nouns(result)}, {len(sure)} "
            f"{direction if len(sure) == 1 else direction[:-1]} a share that differs from 0"
        )
        unsure = [effect.first for effect in result.effects if not effect.first.sure]
        sizes = [share.detectable for share in unsure if share.detectable is not None]
        if sizes:
            sentence += f", and of the others {percent(max(sizes))} would have shown"
    return f"{sentence}."


def _does(result: records.Patch, first: records.PatchEffect) -> str:
    """Say what patching does in each direction, as the end of a sentence."""
    several = _many(result, first)
    clauses: list[str] = []
    for direction, share in first.shares.items():
        run, verb = ("clean", "restore") if direction == "denoise" else ("corrupted", "remove")
        amount = f"{verb if several else f'{verb}s'} {percent(share.share)}"
        clause = f"{subject(result, first)} of the {run} run alone {amount} of the {metric(result)}"
        if clauses:
            clause = f"{'those' if several else 'that'} of the {run} run {amount}"
        clauses.append(f"{clause}{interval_percent(share)}")
    return ", and ".join(clauses)


def subject(result: records.Patch, effect: records.PatchEffect) -> str:
    """Return ``the output of 2.0``; ``MLP 2`` for what has no heads."""
    if _whole(result, effect):
        return effect.name
    several = _many(result, effect) and result.component not in _PLURAL
    return f"the {COMPONENTS[result.component]}{'s' if several else ''} of {effect.name}"


def _whole(result: records.Patch, effect: records.PatchEffect) -> bool:
    """Whether it is no part of heads, and its name says it all."""
    return result.component in ("attention", "mlp", "residual") or " of " in effect.name


def _many(result: records.Patch, effect: records.PatchEffect) -> bool:
    """Whether several things are patched: outputs of heads, or the queries of one."""
    several = len(effect.heads) > 1 or result.component in _PLURAL
    return several and not _whole(result, effect)


def interval_percent(share: records.PatchShare) -> str:
    """`` (in the typical pair 20 to 27 %, joint 95 %)``; empty where there is none."""
    low, high, joint = share.joint_low, share.joint_high, True
    if low is None or high is None:
        low, high, joint = share.low, share.high, False
    if low is None or high is None:
        return ""
    ends = f"{100 * low:.0f} to {100 * high:.0f} %".replace("-", MINUS)
    return f" (in the typical pair {ends}, joint 95 %)" if joint else f" (95 % interval {ends})"


def headline(result: records.Patch) -> str:
    """Return what a circuit keeps, and what as many heads drawn at random keep."""
    circuit = result.circuit
    assert circuit is not None
    size, heads, share = len(circuit.members), len(result.layout), circuit.faithful
    keep = "keeps" if size == 1 else "keep"
    return (
        f"{size} of {heads} heads of {model_name(result.source)} {keep} {percent(share.share)}"
        f"{interval_percent(share)} of the gap in {metric(result)}; {size} drawn at random keep "
        f"{percent(mean(circuit.random))}"
    )


def _quote_circuit(result: records.Patch, circuit: records.Circuit) -> str:
    share = circuit.faithful
    names = ", ".join(result.layout.name(member.head) for member in circuit.members)
    of = "" if result.task == "pairs" else f" of {result.task}"
    keep = "keeps" if len(circuit.members) == 1 else "keep"
    return (
        f"With all other heads corrupted, {names} {keep} {percent(share.share)} of the "
        f"gap in {metric(result)} between clean and corrupted prompts{interval_percent(share)} on "
        f"{circuit.judged_on} pairs{of} that they were not found on: {itself(result, circuit)}. "
        f"{null(result, circuit)}, and all heads but these {percent(circuit.complete.share)}. "
        f"{greedy(result, circuit)}"
    )


def itself(result: records.Patch, circuit: records.Circuit) -> str:
    """``14.6 of 19.0 logits, and −14.1 with all heads corrupted``: the metric, beside its share."""
    unit = f" {result.unit}" if result.unit else ""
    share, full, empty = (
        f"{value:.3g}".replace("-", MINUS) for value in (circuit.kept, circuit.full, circuit.empty)
    )
    return f"{share} of {full}{unit}, and {empty} with all heads corrupted"


def null(result: records.Patch, circuit: records.Circuit) -> str:
    """Return what random circuits keep, and what they are drawn from."""
    size, heads = len(circuit.members), len(result.layout)
    sentence = (
        f"{len(circuit.random)} circuits of {counted(size, 'head')} drawn alike from all {heads} "
        f"keep {percent(mean(circuit.random))} (at most {percent(max(circuit.random))})"
    )
    if circuit.random_outside:
        outside = circuit.random_outside
        sentence += (
            f", {len(outside)} drawn from the {heads - size} others {percent(mean(outside))} (at "
            f"most {percent(max(outside))})"
        )
    return sentence


def greedy(result: records.Patch, circuit: records.Circuit) -> str:
    """Return what the other way of choosing heads gives."""
    alternative = circuit.greedy
    if set(alternative.heads) == {member.head for member in circuit.members}:
        return "Chosen greedily, by what heads do together, they are the same."
    names = ", ".join(map(result.layout.name, alternative.heads))
    keep = "keeps" if len(alternative.heads) == 1 else "keep"
    return (
        f"Chosen greedily, by what heads do together, {names} {keep} "
        f"{percent(alternative.faithful.share)}."
    )


def mean(values: Sequence[float]) -> float:
    """Of at least one."""
    return sum(values) / len(values)


def circuit_measure(result: records.Patch) -> str:
    """How a circuit was found and judged, in one line."""
    circuit = result.circuit
    assert circuit is not None
    by_mean = circuit.faithful_mean
    parts = [
        f"found on {circuit.found_on} pairs, judged on the other {circuit.judged_on}",
        f"faithfulness {score(circuit.faithful)} with all else corrupted, "
        f"{'unknown' if by_mean is None else score(by_mean)} with all else at its mean over "
        f"{circuit.means}",
        f"edges: path patching with free MLPs, shares from {circuit.least:g}",
        f"mean Jaccard overlap with {circuit.resamples} resamples {circuit.overlap:.2f}",
    ]
    return " · ".join(parts)


def score(share: records.PatchShare) -> str:
    """``0.86 [0.79, 0.93]``."""
    ends = ""
    if share.low is not None and share.high is not None:
        ends = f" [{share.low:.2f}, {share.high:.2f}]"
    return f"{share.share:.2f}{ends}".replace("-", MINUS)


def _quote_edge(result: records.Patch) -> str:
    first = result.strongest()[0]
    share, verb = first.first, "restores" if first.denoise else "removes"
    run = "clean" if first.denoise else "corrupted"
    through = "the logits" if first.side == "logits" else (
        f"the {SIDES[first.side]} of {'+'.join(map(result.layout.name, first.receivers))}"
    )  # fmt: skip
    of = f" of {result.estimated:,} that were estimated" if result.estimated else ""
    return (
        f"On {counted(result.pairs, 'pair')}, what {result.layout.name(first.sender)} writes in "
        f"the {run} run, entering {through} alone, {verb} {percent(share.share)} of the "
        f"{metric(result)}{interval_percent(share)}, the most of {len(result.edges):,} paths{of}."
    )


def _quote_position(result: records.Patch) -> str:
    first = result.ranked()[0]
    share = first.first
    verb = ("restore" if first.denoise else "remove") + ("" if _many(result, first) else "s")
    return (
        f"On {counted(result.pairs, 'pair')}, {subject(result, first)} at "
        f"{place(result, first.position or 0)} "
        f"alone {verb} {percent(share.share)} of the {metric(result)}"
        f"{interval_percent(share)}, the most of all {len(result.effects):,} cells."
    )


def place(result: records.Patch, position: int) -> str:
    """``position 6 ( mot)``: its token is that of the first pair."""
    return f"position {position} ({visible(tokens(result)[position].strip())})"


def tokens(result: records.Patch, direction: records.Direction | None = None) -> Sequence[str]:
    """Of the first pair's run that is patched, in the first direction unless one is named."""
    example = result.example
    first = direction or result.directions[0]
    return example.corrupted if first == "denoise" else example.clean


def measure(result: records.Patch) -> str:
    """Return what was measured, on what and how, in one line."""
    values = " and ".join(TOWARDS[direction] for direction in result.directions)
    position = f" at {result.position}" if result.position else ""
    action = f"patching the {COMPONENTS[result.component]}{position}"
    if result.edges:
        action = f"a head's difference along one path (MLPs between {result.mlps})"
    parts = [
        f"share of the {metric(result)}, clean {MINUS} corrupted, that {action} moves",
        values,
        counted(result.pairs, "pair"),
    ]
    if result.steps is not None:
        method = f"EAP-IG, {result.steps} steps" if result.steps else "EAP"
        parts.append(f"{result.estimated:,} paths estimated by {method}")
    firsts = [effect.first for effect in result.effects] + [edge.first for edge in result.edges]
    joint = any(share.joint_low is not None for share in firsts)
    if result.family > 1 and joint and holds("patch: all at once", result.clusters):
        parts.append(f"95 % intervals of the typical pair, for all {result.family:,} at once")
    if result.correlation is not None:
        parts.append(f"rank correlation of estimates and effects {result.correlation:.2f}")
    return " · ".join(parts)


def most(result: records.Patch, direction: records.Direction) -> float:
    """Return the end of the colours: the largest share of a single target."""
    sizes = [abs(share.share) for effect in result.effects if (share := effect.of(direction))]
    return max(sizes, default=0.0)


CHANCE = 0.5  # of an answer that is held against one other token

MEANS_DIFFER = 0.1  # a difference of two faithfulnesses that deserves a word

BOTH_WAYS = (
    "Denoising shows what is enough to restore the answer, noising what the answer needs: they "
    "differ where heads back each other up (Heimersheim & Nanda 2024, arXiv:2404.15255)."
)


def not_done(score: records.TaskScore, metric: str) -> str:
    """Why a model does not do a task, as the end of a sentence; empty where it does."""
    if score.wins is not None and score.wins <= CHANCE:
        return (
            f"the answer wins in {percent(score.wins)} of the clean prompts, and a coin would in "
            "50 %"
        )
    if score.wins is None and score.top == 0:
        return "the answer is never its most probable token"
    if metric == "logit-diff" and score.low is not None and score.low <= 0:
        return "the interval of the clean prompts' mean logit difference holds 0"
    return ""


def notes(result: records.Patch) -> Iterator[str]:
    """Yield what to say of a result."""
    yield from _task(result)
    if result.clusters < result.pairs:
        yield (
            f"{result.pairs:,} pairs count as {result.clusters:,}: those of one group and those "
            "with the same clean prompt are not independent."
        )
    if result.clusters < LEAST:
        yield (
            f"From {result.clusters} independent pair{'s' * (result.clusters != 1)} there is no "
            f"interval, and nothing is known about others; give {FEW} or more."
        )
    elif note := too_few(result.clusters, result.family, "shares", "pairs"):
        yield note
    if result.metric == "kl":
        yield "KL to the clean run does not add up: shares of heads need not sum to a group's."
    if result.circuit is not None:
        if not result.circuit.enough:
            yield (
                f"No size up to {result.circuit.curve[-1].heads} came within the distance from all "
                "of the gap that was asked for, where heads were chosen: this is the largest."
            )
        yield (
            "Heads are in the circuit where single patches show them: those that back each other "
            "up can be missing, which completeness would show."
        )
        share, by_mean = result.circuit.faithful, result.circuit.faithful_mean
        if by_mean is not None and abs(share.share - by_mean.share) > MEANS_DIFFER:
            yield (
                "Corrupted runs and means disagree: what both prompts share stays with corrupted "
                "values and goes with means, and this circuit needs it."
                if by_mean.share < share.share
                else "Corrupted runs and means disagree: with corrupted values the heads outside "
                "pull towards the other answer, with means they do not."
            )
    if result.estimated:
        yield (
            f"The {len(result.edges)} paths were chosen by estimates on the pairs that they are "
            "measured on."
        )
    if result.mlps == "frozen":
        yield (
            "MLPs between the ends of a path are held: what they make of a head's output on the "
            "way is not in its share."
        )
    if len(result.directions) == 2:
        yield BOTH_WAYS


def _task(result: records.Patch) -> Iterator[str]:
    """Whether the model does the task at all."""
    if reason := not_done(result.clean, result.metric):
        yield f"The model does not do this task: {reason}."
    wins = result.corrupted.wins
    if wins is not None and wins > CHANCE:
        yield (
            f"In {percent(wins)} of the corrupted prompts the answer wins too: there, patching "
            "moves how far it leads, and not whether it does. Other corrupted prompts tell more."
        )
