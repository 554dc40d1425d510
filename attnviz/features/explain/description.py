"""An explanation described: its sentences, votes, heads one by one, rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.drawing.console import coloured, renderable, table_of
from attnviz.drawing.grid import signed, signed_grid
from attnviz.drawing.labels import (
    closing,
    counted,
    listing,
    model_name,
    percent,
    quoted,
    signs,
    visible,
)
from attnviz.drawing.tables import Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.ablation.result import Change, Effect
from attnviz.features.explain.result import Explain, ExplainedHead, MlpShare
from attnviz.features.logits.description import UP, tinted

_NAMED = 0.1  # shares of keys below that are not named
_BARS = 12  # parts of the lead in a chart

LIMITS = (
    "Votes are direct: what a head adds to the lead itself, with the last normalization's scale "
    "as it is. What it makes later heads and MLPs do counts as theirs.",
    "A weight says where a head looks, not that what stands there matters.",
    "Where keys come from is algebra on this text, with the scales of all normalizations held; it "
    "says what a score is made of, not what the score would be without it.",
    "An ablation says what happens without a head as the others are; others can make up for one "
    "that is missing, so a small effect does not show that it does nothing.",
    "This is one text. Whether heads do the same elsewhere, attnviz profile, patch and ablate "
    "measure over many.",
)
"""What none of it proves."""


def title(result: Explain) -> str:
    """Return the question that its heads answer: why the word is said, or what there is for it."""
    model, answer = model_name(result.source), quoted(result.answer)
    if result.lead <= 0:
        return f"What in {model} votes for {answer}, though {quoted(result.against)} leads?"
    if result.prediction(result.answer).rank > 1:
        return f"Why does {model} rank {answer} before {quoted(result.against)}?"
    return f"Why does {model} say {answer}?"


def headline(result: Explain) -> str:
    """Where its lead comes from, and what is left of it without the heads that count most."""
    first = result.prediction(result.answer)
    chance = percent(first.probability)
    of = f"lead of {result.lead:.2f} logits of {quoted(result.answer)} ({chance})"
    names = _names(result, [head.head for head in result.heads])
    without = f"without {listing(names)} it changes by {changes(result.together)}"
    if not result.parts:
        if result.idle:
            return f"The heads hardly matter here: {without}, of the {of}"
        return f"The {of}: {without}"
    if result.idle:
        return f"The heads hardly matter here: of the {of} {_sum(result)}; {without}"
    if abs(result.by_heads or 0.0) < abs(result.lead) / 10:
        sentence = f"By themselves the heads hardly matter here: of the {of} {_sum(result)}"
        return f"{sentence}; yet {without}"
    return f"The {of}: {_sum(result)}; {without}"


def account(result: Explain) -> str:
    """Everything that adds up to the lead: parts of a tenth of it and more, then the rest."""
    parts = [item for item in result.account() if item[0] != "heads"]
    large = [item for item in parts if abs(item[1]) >= abs(result.lead) / 10]
    remainder = sum(value for item in parts if item not in large for value in item[1:])
    several = [(f"{_part(name)} {logits(result, value)}", value) for name, value in large]
    several.append((_heads(result), result.by_heads or 0.0))
    several.sort(key=lambda item: -abs(item[1]))
    words = [text for text, _ in several]
    if len(large) < len(parts) and logits(result, remainder) != "0":
        words.append(f"all else {logits(result, remainder)}")
    total = sum(value for _, value in result.account())
    lead = f"lead of {logits(result, total).lstrip('+')}"
    if abs(total - result.lead) > 0.01 * max(1.0, abs(result.lead)):
        lead += " before the cap"
    return f"What adds up to the {lead}: {'; '.join(words)}."


def logits(result: Explain, value: float) -> str:
    """Write a part of the lead with its sign, to as many decimals as the lead has two digits in."""
    lead = abs(result.lead)
    decimals = 2 if lead >= 0.1 else min(4, 1 - math.floor(math.log10(max(lead, 1e-3))))
    text = f"{value:+.{decimals}f}"
    return "0" if not float(text) else text


def _sum(result: Explain) -> str:
    """Return the largest part beside the heads, and the heads."""
    parts = [item for item in result.account() if item[0] not in ("heads", "bias")]
    name, value = max(parts, key=lambda item: abs(item[1]))
    part = f"{_part(name)} {{}}{logits(result, value)}"
    if abs(result.by_heads or 0.0) > abs(value):
        return f"{_heads(result, adds=' add')}; {part.format('')}"
    return f"{part.format('adds ')}, {_heads(result)}"


def _heads(result: Explain, adds: str = "") -> str:
    """Return what the heads add together, and whose votes most of it is."""
    total = result.by_heads or 0.0
    total_text = f"the heads{adds} {logits(result, total)} together"
    if total < abs(result.lead) / 10 or not result.voters:
        return total_text
    return f"{total_text}, most of it {listing(_names(result, result.voters))}"


def _part(name: str) -> str:
    """Return a part of the account within a sentence."""
    return f"the {name}" if name in ("embedding", "bias") else name


def _names(result: Explain, heads: Sequence[Head]) -> list[str]:
    return [result.layout.name(head) for head in heads]


def said(result: Explain) -> str:
    """Return the prediction and the runner-up."""
    first, second = result.prediction(result.answer), result.prediction(result.against)
    position = f"{'at' if result.masked else 'after'} {visible(result.tokens[result.position])}"
    return (
        f"{position} ({result.position}): {quoted(first.token)} {percent(first.probability)} (rank "
        f"{first.rank:,}), {quoted(second.token)} {percent(second.probability)} "
        f"(rank {second.rank:,}); the first {_ahead(result.lead)}"
    )


def _ahead(lead: float) -> str:
    if abs(lead) < 0.005:
        return "is level with the second"
    return f"leads by {lead:.2f} logits" if lead > 0 else f"lies {-lead:.2f} logits behind"


def token(record: Explain | ExplainedHead, position: int, plain: bool = False) -> str:
    """Write a token of the text, or of a head's keys, with its position."""
    return f"{visible(record.tokens[position], ascii_only=plain)} ({position})"


def most(head: ExplainedHead, plain: bool = False) -> str:
    """Write the key that a head looks at most, with its weight."""
    scope = " in the mean" if head.query is None else ""
    return f"{token(head, head.position, plain)} {percent(head.weights[head.position])}{scope}"


def in_short(result: Explain) -> Iterator[str]:
    """Say what was found in a sentence, and what comes through the first MLP."""
    yield f"{headline(result)}."
    if result.mlps:
        yield through_mlp(result, result.mlps[0])


def summary(result: Explain) -> Iterator[str]:
    """Yield what was found, in full sentences."""
    if result.parts:
        yield account(result)
        yield from _votes(result)
    else:
        yield f"Logits of {model_name(result.source)} are no sum over its parts: {result.reason}."
    yield _counting(result)
    if result.mlps:
        yield through_mlp(result, result.mlps[0])
    yield " ".join(_looks(result))
    yield " ".join(_without(result))


def _votes(result: Explain) -> Iterator[str]:
    """Yield the largest votes, for and against, and the token through which most comes."""
    votes = result.votes()
    pair = f"{quoted(result.answer)} over {quoted(result.against)}"
    if result.voters:
        listed = [f"{result.layout.name(head)} ({signed(votes[head])})" for head in result.voters]
        title = "largest votes of heads" if len(listed) > 1 else "largest vote of a head"
        sentence = f"The {title} for {pair}: {listing(listed)}"
    else:
        sentence = f"No head votes for {pair}"
    if result.negative is not None:
        name = result.layout.name(result.negative.head)
        sentence += f"; {name} votes most against it ({signed(result.negative.vote or 0.0)})"
    yield f"{sentence}."
    position, value = max(result.through_tokens(), key=lambda item: item[1])
    if value > 0:
        key = token(result, position)
        yield f"Token by token, all heads' votes add most through {key}, {signed(value)}."
    else:
        yield "Through no token do the votes of all heads add to it."


def _counting(result: Explain) -> str:
    """Which of the heads that were ablated one by one cost most."""
    tried, layout = len(result.candidates), len(result.layout)
    which = f"each of its {counted(tried, 'head')} ablated alone"
    if tried < layout:
        which = f"the {tried} of {layout} heads with the largest votes and gradients ablated alone"
        if not result.parts:
            which = which.replace("votes and gradients", "gradients")
    listed = [
        f"{result.layout.name(head.head)} ({signed(head.effect.change)})" for head in result.heads
    ]
    if result.heads[0].effect.change >= 0:
        return f"With {which}, by its mean, the lead falls without none of them."
    little = "no head counts for much: " if result.idle else ""
    return f"With {which}, by its mean, {little}the lead falls most without {listing(listed)}."


def through_mlp(result: Explain, share: MlpShare) -> str:
    """How much of an MLP's share comes through heads, by ablating the edges into it."""
    sentence = f"Of MLP {share.layer}'s {logits(result, share.value)}, "
    earlier = {edge.head for edge in share.by_head}
    voters = [head for head in result.voters if head in earlier]
    feeders = [f"{result.layout.name(e.head)} ({signed(e.value)})" for e in share.feeders()]
    edges = "(edges into it ablated by the heads' means, all else that it reads as it is)"
    if not feeders and (not voters or abs(share.together) < abs(share.value) / 10):
        return f"{sentence}less than a tenth comes through any of these heads {edges}."
    parts = []
    if voters:
        named = listing(_names(result, voters)) + " together" * (len(voters) > 1)
        parts.append(f"{logits(result, share.together)} comes through {named}")
    if feeders:
        parts.append(f"alone most through {listing(feeders)}")
    return f"{sentence}{'; '.join(parts)} {edges}."


def _looks(result: Explain) -> Iterator[str]:
    """Where the heads that count and the voters look, and which earlier head wrote their keys."""
    looking = [*result.heads, *result.beside]
    places: dict[str, list[str]] = {}
    for head in looking:
        mean = "" if head.query is not None else " in the mean over the encoder's queries"
        places.setdefault(token(head, head.position) + mean, []).append(
            f"{result.layout.name(head.head)} ({percent(head.weights[head.position])})"
        )
    looks = "; ".join(f"{listing(heads)} at {position}" for position, heads in places.items())
    subject = "They look" if len(looking) > 1 else "It looks"
    yield f"{subject} most at: {looks}."
    if result.feeder is None:
        return
    shares = [
        f"{100 * share:.0f} % for {result.layout.name(head.head)}"
        for head in looking
        if (share := share_of(head, result.feeder)) is not None and share >= _NAMED
    ]
    if shares:
        keys = "that key" if len(shares) == 1 else "these keys"
        feeder = result.layout.name(result.feeder.heads[0])
        yield (
            f"Of what sets {keys} apart from the other keys, head {feeder} wrote {listing(shares)}."
        )


def bars(result: Explain) -> tuple[tuple[str, float], ...]:
    """Give what adds up to the lead, for a chart: the largest first, and the rest of very many."""
    ranked = sorted(result.account(), key=lambda item: -abs(item[1]))
    if len(ranked) <= _BARS:
        return tuple(ranked)
    return (*ranked[: _BARS - 1], ("all else", sum(v for _, v in ranked[_BARS - 1 :])))


def heading(result: Explain) -> str:
    """Return what stands over the heads that are told about one by one."""
    continuation = ", then other votes" if len(result.shown_heads) > len(result.heads) else ""
    if result.idle:
        return f"Heads that are needed most, and hardly{continuation}"
    return f"The heads that count most{continuation}"


def share_of(head: ExplainedHead, feeder: Effect) -> float | None:
    """How much of a head's key the feeder wrote; None where sources nearly cancel."""
    return next((key.share for key in head.keys if key.origin.head == feeder.heads[0]), None)


def _without(result: Explain) -> Iterator[str]:
    names = _names(result, [head.head for head in result.heads])
    lead = f"the lead of {result.lead:.2f} changes by {changes(result.together)}"
    feeder = result.feeder
    if feeder is None or feeder.name in names:
        yield f"Without {listing(names)} {lead}."
    else:
        yield f"Without {listing(names)} {lead}; without {feeder.name} alone by {changes(feeder)}."


def changes(effect: Effect) -> str:
    """Return what happens to the lead, by each method."""
    return ", ".join(f"{signed(change.change)} ({change.method})" for change in effect.by)


def measured(result: Explain) -> str:
    """How the last part was measured."""
    return (
        f"Change of the lead of {quoted(result.answer)} over {quoted(result.against)} in logits, "
        f"with the head's mean output or its output on another text in its place, from "
        f"{result.reference}."
    )


def rows(result: Explain) -> list[Row]:
    """Give a row for each head that is told about, groups of heads, and every part of the lead."""
    listed: list[Row] = []
    for head in result.shown_heads:
        through = head.through
        listed.append(
            {
                "part": "head",
                "heads": head.effect.name,
                **which_head(result.layout, *head.effect.heads),
                "adds": head.vote,
                "through_voters": None,
                "counts": head in result.heads,
                "position": head.position,
                "token": head.tokens[head.position],
                "weight": head.weights[head.position],
                "key_from": through and through.origin.name(result.layout),
                "key_share": through and through.share,
                **_changes(head.effect.by),
            }
        )
    empty: Row = dict.fromkeys(listed[0])
    listed += [
        empty | {"part": "group", "heads": effect.name} | _changes(effect.by)
        for effect in result.groups
    ]
    traced = {f"MLP {share.layer}": share for share in result.mlps}
    for name, value in result.account():
        share = traced.get(name)
        listed.append(
            empty
            | {"part": name, "adds": value, "through_voters": share.together if share else None}
        )
    return listed


def _changes(changes: tuple[Change, ...]) -> Row:
    return {f"without_{change.method}": change.change for change in changes}


def parts(
    result: Explain, *, top: int | None = None, everything: bool = False
) -> Iterator[RenderableType]:
    """Yield the answer, votes, so many heads one by one, the origin; or all there is to say."""
    yield Line(title(result), "bold")
    yield Line(said(result))
    if everything:
        yield ""
    for sentence in summary(result) if everything else in_short(result):
        yield Line(sentence)
    votes = result.votes()
    if votes:
        yield ""
        yield Line(
            "Votes of heads for the lead, by head and by token, in logits (blue: for the answer)",
            "bold",
        )
        yield signed_grid(result.layout, votes, max(map(abs, votes.values())), UP)
        yield token_votes(result, _TOKENS if everything else _TOKENS_IN_SHORT)
    yield ""
    yield Line(heading(result), "bold")
    yield heads_explained(result, top, everything)
    yield Line(measured(result), "dim")
    if everything:
        yield ""
        yield Line("What none of it proves", "bold")
        for limit in LIMITS:
            yield Line(f"· {limit}", "dim")
        yield ""
    yield Line(closing(result.source), "dim")


_TOKENS, _TOKENS_IN_SHORT = 6, 3  # tokens through which most comes
_KEYS_IN_SHORT = 2  # sources of a key


@renderable
def token_votes(
    console: Console, options: ConsoleOptions, result: Explain, count: int = _TOKENS
) -> RenderResult:
    """Show the text, tinted by what all heads add through each token, some of them in words."""
    sums, plain = result.through_tokens(), options.ascii_only
    if coloured(console):
        yield tinted(result.tokens, dict(sums), plain)
    named = (f"{token(result, position, plain)} {signed(v)}" for position, v in sums[:count])
    yield Text(f"through {', '.join(named)}")


@renderable
def heads_explained(
    console: Console,
    options: ConsoleOptions,
    result: Explain,
    top: int | None = None,
    everything: bool = True,
) -> RenderResult:
    """Draw a line for each head that is told about, and each group that was ablated."""
    plain, name = options.ascii_only, result.layout.name
    table = table_of("head", ">votes", "looks at", "its key is from", "without it")
    for head in result.shown_heads[:top]:
        sources = [
            f"{key.origin.name(result.layout)} {100 * key.share:.0f} %"
            for key in head.keys
            if key.share is not None and abs(key.share) >= 0.1
        ]
        written = ", ".join(sources if everything else sources[:_KEYS_IN_SHORT])
        unknown = "cannot be told" if head.reason else ""
        vote = "" if head.vote is None else signed(head.vote, 3)
        ablated = changes(head.effect)
        table.add_row(name(head.head), vote, most(head, plain), written or unknown, ablated)
    for effect in result.groups:
        table.add_row(signs(effect.name, plain), "", "", "", changes(effect))
    yield table
