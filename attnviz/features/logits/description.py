"""A logit described: predictions, the waterfall, the grid of heads, votes, findings.

Of many texts writers and cancellers: two lists, rows, what is found of every head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.result import RAISES, Figures, Finding, Interval, Measure, bare, known
from attnviz.drawing.console import coloured, layers_a_line, renderable, table_of
from attnviz.drawing.description import Column, Listing, estimate_column, interval
from attnviz.drawing.description import percent as percent_of
from attnviz.drawing.grid import BLUE, ORANGE, on_terminal, signed, signed_grid
from attnviz.drawing.labels import closing, counted, percent, quoted, signs, visible
from attnviz.drawing.labels import listing as joined
from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.logits.result import (
    LogitPart,
    Logits,
    Prediction,
    Push,
    Repair,
    Suppression,
    Writers,
)

UP = -1
"""What raises the logit is blue, what lowers it orange: the sign that is orange."""


@dataclass(frozen=True, slots=True)
class WaterfallStep:
    """A step of the waterfall: what some parts add, and where that leads from where."""

    label: str
    value: float
    before: float

    @property
    def after(self) -> float:
        """The sum up to here."""
        return self.before + self.value


def steps(report: Logits) -> tuple[WaterfallStep, ...]:
    """Embeddings, then the heads, the mixer and the MLP of every layer, then all biases.

    Of very many layers several stand together.
    """
    layers = {part.layer for part in report.parts if part.layer is not None}
    group, last = layers_a_line(len(layers)), max(layers, default=0)
    groups: dict[str, float] = {}
    for part in report.parts:
        label = {"embedding": "embeddings", "bias": "biases"}.get(part.kind)
        label = label or _layer_label(part, group, last)
        groups[label] = groups.get(label, 0.0) + part.value
    groups["biases"] = groups.pop("biases", 0.0)
    bars, total = [], 0.0
    for label, value in groups.items():
        bars.append(WaterfallStep(label, value, total))
        total += value
    return tuple(bars)


def _layer_label(part: LogitPart, group: int, last: int) -> str:
    first = (part.layer or 0) // group * group
    end = min(first + group - 1, last)
    if end == first:
        name = {"head": "heads", "mlp": "MLP"}.get(part.kind) or part.name
        return f"layer {first} {name}"
    several = {"head": "heads", "mlp": "MLPs"}.get(part.kind, "mixers without attention")
    return f"layers {first}–{end} {several}"


def subject(report: Logits) -> str:
    """Whose logit it is: ``logit of ·table minus that of ·door``."""
    minus = f" minus that of {visible(report.against)}" if report.against else ""
    return f"logit of {visible(report.token)}{minus}"


def place(report: Logits, position: int, *, ascii_only: bool = False) -> str:
    """Where it is predicted: ``after ·the (18)``, or at the token in a masked model."""
    preposition = "at" if report.layout.kinds == ("encoder",) else "after"
    return f"{preposition} {visible(report.tokens[position], ascii_only=ascii_only)} ({position})"


def checked(report: Logits) -> str:
    """Return the sum beside the model's own logit."""
    assert report.sum is not None
    claim = f"the model says {report.logit:.4f}"
    if report.cap is not None:
        claim = (
            f"the model says {report.whole:.4f} before its cap of {report.cap:g}, and "
            f"{report.logit:.4f} behind it"
        )
    return (
        f"{subject(report)}, {place(report, report.position)}: the parts add up to "
        f"{report.sum:.4f}, {claim} (difference {abs(report.sum - report.whole):.0e})"
    )


def sums_by_token(report: Logits) -> Iterator[tuple[int, float, list[tuple[Head, float]]]]:
    """Yield what all heads add through each token: position, sum, and the heads by size.

    The largest sums first.
    """
    parts: Mapping[Head, tuple[float, ...]] = report.by_token or {}
    sums = [sum(values[n] for values in parts.values()) for n in range(len(report.tokens))]
    for position in sorted(range(len(sums)), key=lambda n: -abs(sums[n])):
        heads = sorted(parts, key=lambda head: -abs(parts[head][position]))
        yield position, sums[position], [(head, parts[head][position]) for head in heads]


_BAR = 32
_THROUGH = 4  # heads that are named for a token
_LISTED = 12  # tokens that are listed by what came through them


def parts(
    result: Logits | Writers,
    *,
    by_token: bool = False,
    top: int | None = None,
    everything: bool = False,
) -> Iterator[RenderableType]:
    """Predictions, the sum in a line, so many heads that add most, or also tokens; or all."""
    if isinstance(result, Writers):
        yield from _lists(result, top, everything)
        return
    yield top_words(result, None if everything else _SHOWN)
    if result.parts:
        yield ""
        yield Line(checked(result), "bold")
        if everything:
            yield ""
            yield waterfall(result)
        else:
            yield Line(largest(result))
        yield ""
        yield head_attributions(result)
        yield votes(result, top or (None if everything else _VOTES), everything)
        if by_token:
            yield ""
            yield token_sums(result)
    if everything:
        yield ""
    yield Line(closing(result.source, counted(len(result.tokens), "token")), "dim")


@renderable
def top_words(
    console: Console, options: ConsoleOptions, report: Logits, count: int | None
) -> RenderResult:
    """So many top words, a line each at one position, a line a position at several."""
    plain = options.ascii_only
    by_place: dict[int, list[Prediction]] = {}
    for prediction in report.predictions:
        by_place.setdefault(prediction.position, []).append(prediction)
    if len(by_place) == 1:
        ((position, words),) = by_place.items()
        yield Text(f"Predictions {place(report, position, ascii_only=plain)}", "bold")
        table = table_of(">rank", "word", ">probability", ">logit", "")
        for word in words:
            if count is not None and word.rank > count and not word.mark:
                continue
            table.add_row(
                f"{word.rank:,}", visible(word.token, ascii_only=plain),
                percent(word.probability), f"{word.logit:.2f}", _MARKS[word.mark],
            )  # fmt: skip
        yield table
        return
    table = table_of(">position", "token", "most probable", "")
    for position, words in by_place.items():
        top = ", ".join(_short(word, plain) for word in words if word.rank <= _SHOWN)
        marked = ", ".join(
            f"{_MARKS[word.mark]}: {_short(word, plain)} (rank {word.rank:,})"
            for word in words
            if word.mark
        )
        token = visible(report.tokens[position], ascii_only=plain)
        table.add_row(str(position), token, top, marked)
    yield table


_MARKS = {"": "", "next": "does follow", "asked": "asked for"}
_SHOWN = 3  # words a position, in short or where there are several positions
_VOTES = 5  # heads that a table lists in short, each with so many words that it moves
_MOVED = 2


@renderable
def head_attributions(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """Yield the grid of heads by what they add."""
    values = report.heads()
    largest = max(map(abs, values.values()), default=0.0)
    yield signed_grid(report.layout, values, largest, UP)
    end = f", full colour at ±{largest:.2g}" if coloured(console) else ""
    yield Line(f"logits that each head adds; blue: raises, orange: lowers{end}", "dim")
    yield Text("")


def largest(report: Logits) -> str:
    """Name the parts of a tenth of the largest and more, and the sum of all others."""
    bars = sorted(steps(report), key=lambda step: -abs(step.value))
    named = [step for step in bars if abs(step.value) >= abs(bars[0].value) / 10]
    listed = [f"{step.label} {signed(step.value, 3)}" for step in named]
    if len(named) < len(bars):
        listed.append(f"all else {signed(sum(step.value for step in bars[len(named) :]), 3)}")
    return ", ".join(listed)


@renderable
def waterfall(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """From nothing to the logit, part by part."""
    bars = steps(report)
    ends = [0.0, *(step.after for step in bars)]
    low, high = min(ends), max(ends)
    unit = (high - low) / _BAR or 1.0
    table = table_of("part", ">adds", ">sum", "")
    for step in bars:
        start, stop = sorted((step.before, step.after))
        first = min(round((start - low) / unit), _BAR - 1)
        length = max(round((stop - low) / unit) - first, 1)
        color = BLUE if step.value > 0 else ORANGE
        bar = ("#" if options.ascii_only else "█") * length
        style = Style(color=color) if coloured(console) else Style()
        text = Text(" " * first).append(bar, style)
        table.add_row(
            signs(step.label, options.ascii_only), signed(step.value, 3), f"{step.after:.2f}", text
        )
    yield table


@renderable
def votes(
    console: Console, options: ConsoleOptions, report: Logits, top: int | None, everything: bool
) -> RenderResult:
    """So many of the strongest heads, through what they vote, and the words that they move."""
    plain, layout = options.ascii_only, report.layout
    table = table_of("head", ">adds", "mostly through, weight", "raises most", "lowers most")
    moved = None if everything else _MOVED
    for vote in report.votes[:top]:
        strongest = vote.seen[0]
        token = visible(strongest.token, ascii_only=plain)
        source = f"{token} ({strongest.position}), {percent(strongest.weight)}"
        table.add_row(
            layout.name(vote.head), signed(vote.value, 3), source,
            _listed(vote.raises[:moved], plain), _listed(vote.lowers[:moved], plain),
        )  # fmt: skip
    yield table
    if top is not None and len(report.votes) > top:
        yield Line(f"{counted(len(report.votes) - top, 'head')} more", "dim")


@renderable
def token_sums(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """Yield the text tinted by what came through each token, and the heads it took."""
    sums, plain = list(sums_by_token(report)), options.ascii_only
    if coloured(console):
        yield tinted(report.tokens, {position: value for position, value, _ in sums}, plain)
    table = table_of("token", ">all heads", "of it")
    for position, value, heads in sums[:_LISTED]:
        token = f"{visible(report.tokens[position], ascii_only=plain)} ({position})"
        named = (f"{report.layout.name(h)} {signed(v)}" for h, v in heads[:_THROUGH])
        table.add_row(token, signed(value, 3), ", ".join(named))
    yield table
    yield Line("heads only: embeddings, MLPs and biases belong to no other token", "dim")
    yield Text("")


def tinted(tokens: Sequence[str], sums: Mapping[int, float], plain: bool) -> Text:
    """Write a text, each token on the colour of what came through it."""
    line, largest = Text(), max(map(abs, sums.values()), default=0.0)
    for position, token in enumerate(tokens):
        style = on_terminal(sums[position], largest, UP)
        line.append(visible(token, ascii_only=plain), style)
    return line


def _short(word: Prediction, plain: bool) -> str:
    return f"{visible(word.token, ascii_only=plain)} {percent(word.probability)}"


def _listed(words: Iterable[str], plain: bool) -> str:
    return " ".join(visible(word, ascii_only=plain) for word in words)


_PARTS = 8  # parts of a list that the terminal shows in short
_LISTS = {
    "writer": "Writers, which push it up",
    "canceller": "Cancellers, which push it down",
    "": "Not told from chance",
}


def measured(result: Writers) -> str:
    """Return what was measured, in a sentence."""
    return (
        f"{result.of}, mean over {counted(result.texts, 'text')}: {signed(result.logit, 3)} = "
        f"heads and MLPs {signed(result.logit - result.rest, 3)}, embeddings and biases "
        f"{signed(result.rest, 3)}"
    )


def _pushes(pushes: Sequence[Push]) -> Listing:
    """Return what is said of each part."""
    columns = [
        Column("", "part", "part", left=True),
        *(Column(name, name) for name in ("kind", "layer")),
        Column("index", "head"),
        Column("head", lambda push: push.part if push.kind == "head" else None),
        estimate_column("mean", "mean", "logits", lambda mean: signed(mean.value, 3), _ends),
        Column("share", "share", "texts with that sign", percent),
        Column("adjusted", "adjusted", "p", "{:.2g}".format),
        Column("verdict", "verdict"),
        Column("suppression", lambda push: push.why and said_of(push.why)),
        *(estimate_column(name, _of("why", name)) for name in _TRIED),
        *(estimate_column(f"without_{name}", _of("repair", name)) for name in _CHANGES),
    ]
    return Listing(columns, pushes)


_TRIED = ("predicted", "predicted_others", "lowered", "lowered_others", "gone", "gone_others")
_CHANGES = {
    "total": "in all", "direct": "of it by itself", "heads": "other heads", "mlps": "MLPs",
    "scales": "scales",
}  # fmt: skip


def _of(part: str, name: str) -> Callable[[Push], Any]:
    """Take an estimate of what was looked into; None where nothing was."""
    return lambda push: (record := getattr(push, part)) and getattr(record, name)


def said_of(test: Suppression) -> str:
    """Whether it is copy suppression, and if not, what fails."""
    return f"no copy suppression ({', '.join(test.fails)})" if test.fails else "copy suppression"


def reasons(suppression: Suppression) -> str:
    """Return the same with its evidence, in a sentence."""

    def beside(share: Interval, null: Interval, of: str) -> str:
        ends = "" if share.low is None else f" [{interval(share)}]"
        return f"{percent_of(share)} %{ends} ({of} {percent_of(null)} %)"

    of = f"of {counted(suppression.texts, 'text')}"
    path = "no other heads below it write or could be compared"
    if suppression.gone.value is not None:
        control = f"{counted(suppression.others, 'other head')} below it"
        without = f"of its push goes without {joined(suppression.writers)}"
        path = f"{beside(suppression.gone, suppression.gone_others, control)} {without}"
    return (
        f"{said_of(suppression)}. The token that it reads is predicted below it in "
        f"{beside(suppression.predicted, suppression.predicted_others, 'other tokens')} {of}, and "
        f"lowered in {beside(suppression.lowered, suppression.lowered_others, 'others')}; {path}"
    )


def repaired(pushes: Sequence[Push]) -> Listing:
    """Return what changes without each writer: all of it, and what adds up to it."""

    def most(push: Push) -> str:
        parts: Repair | Any = push.repair
        ranked = sorted(parts.by_part.items(), key=lambda item: -abs(item[1].value or 0.0))
        return ", ".join(f"{name} {signed(mean.value or 0.0)}" for name, mean in ranked[:_NAMED])

    columns = [Column("", "part", "without", left=True)]
    columns += [
        Column("", _of("repair", name), label, lambda mean: signed(mean.value or 0.0))
        for name, label in _CHANGES.items()
    ]
    return Listing([*columns, Column("", most, "most of all")], pushes)


_NAMED = 2  # parts that change most


def _ends(mean: Interval) -> str:
    if mean.low is None or mean.high is None:
        return "–"
    return f"{signed(mean.low, 3)} to {signed(mean.high, 3)}"


def _lists(result: Writers, top: int | None, everything: bool) -> Iterator[RenderableType]:
    """Both lists, each with so many of its parts; the others as a number, or as a list too."""
    yield Line(measured(result), "bold")
    limit = top or (len(result.pushes) if everything else _PARTS)
    for verdict, heading in _LISTS.items():
        pushes = result.listed(verdict)
        yield ""
        yield Line(f"{heading}: {len(pushes) or 'none'}", "bold" if verdict else "")
        if pushes and (verdict or everything):
            yield _pushes(pushes).table(limit)
            if len(pushes) > limit:
                yield Line(f"{len(pushes) - limit} more", "dim")
            yield from (Line(f"{push.part}: {reasons(push.why)}") for push in pushes if push.why)
        if replaced := [push for push in pushes if push.repair]:
            yield Line(
                "Without each, its mean over the other texts in its place, the logit changes"
            )
            yield repaired(replaced).table(limit)
    yield Line(closing(result.source, counted(result.texts, "text")), "dim")


def _finding_of_writers(result: Writers, name: str) -> Finding:
    """Return what every head adds to the answers' logits, and whether it writes or cancels."""
    sentences = {
        head: [
            f"{signed(push.mean.value or 0.0)} logits ({_ends(push.mean)}), "
            f"{percent(push.share or 0.0)} of texts with that sign: "
            f"{push.verdict or 'not told from chance'}"
        ]
        for head, push in result.heads().items()
    }
    for head, push in result.heads().items():
        if push.why is not None:
            sentences[head].append(reasons(push.why))
        if push.repair is not None:
            means = ((name, _of("repair", name)(push)) for name in _CHANGES)
            adds = [f"{_CHANGES[name]} {signed(mean.value or 0.0)}" for name, mean in means]
            sentences[head].append(f"without it the logit changes {', '.join(adds)}")
    explanation = (
        f"What it adds by itself: {measured(result)}; in brackets a 95 % interval. Signs are "
        "judged over texts, Holm over all parts; what it makes later layers write counts as theirs."
    )
    values = known({head: push.mean for head, push in result.heads().items()})
    measure = Measure("push", f"what it adds to the {result.of}", "logits", UP, values, RAISES)
    return Finding.of("logits", name, "Does it write or cancel?", explanation, sentences, [measure])


COLUMNS = ("kind", *HEAD, "value")


def rows(result: Logits | Writers) -> list[Row]:
    """Return a row for each part; none where a model's logits are no sum."""
    if isinstance(result, Writers):
        return _pushes(result.pushes).rows()
    heads, listed = iter(result.layout), []
    for part in result.parts:
        row: Row = {"kind": part.kind}
        row |= which_head(result.layout, *([next(heads)] if part.kind == "head" else []))
        listed.append(row | {"layer": part.layer, "value": part.value})
    return listed


_SEEN = 3  # tokens that a head is told to vote through
_TAIL = 12  # tokens of a text that say which one it was


def finding(result: Logits | Writers, name: str) -> Finding:
    """Return what every head adds to the logit."""
    if isinstance(result, Writers):
        return _finding_of_writers(result, name)
    of = quoted(result.token) + (
        f" minus that of {quoted(result.against)}" if result.against else ""
    )
    values = {result.layout.name(head): sum(row) for head, row in (result.by_token or {}).items()}
    ranked = sorted(values, key=lambda head: -abs(values[head]))
    sentences = {
        head: [f"{signed(values[head])} logits for {of}, number {rank} of {len(values)} by size"]
        for rank, head in enumerate(ranked, start=1)
    }
    for vote in result.votes:
        tokens = [
            f"{quoted(source.token)} {signed(source.value)} (weight {source.weight:.2f})"
            for source in vote.seen[:_SEEN]
        ]
        raises, lowers = (" ".join(map(quoted, words)) for words in (vote.raises, vote.lowers))
        sentences[result.layout.name(vote.head)] += [
            f"through {', '.join(tokens)}",
            f"raises {raises}; lowers {lowers}",
        ]
    end = result.position + 1
    text = visible("".join(result.tokens[max(0, end - _TAIL) : end]).strip())
    explanation = (
        f"What it adds by itself to the logit of {of} ({result.logit:.3g} in all) at the last "
        f"token of “{'… ' if end > _TAIL else ''}{text}”, token {result.position}; what it makes "
        "later layers write counts as theirs."
    )
    if not values:
        explanation = f"No logit is split by head: {result.reason}."
    title = f"what it adds to the logit of {of}"
    measure = Measure("vote", title, "logits", UP, bare(values), RAISES)
    return Finding.of("logits", name, "What it writes", explanation, sentences, [measure])


def figures(result: Logits | Writers) -> Figures:
    """Logits by head; none where a model's logits are no sum."""
    if isinstance(result, Writers):
        means = {head: {"logits": push.mean.value} for head, push in result.heads().items()}
        return Figures(means, settings={"of": result.of})
    return Figures(
        {result.layout.name(head): {"logits": value} for head, value in result.heads().items()},
        settings={"token": visible(result.token), "against": visible(result.against)},
    )
