"""A profile described: the grid of roles, the table of estimates, heads row by row, findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.core.prompt import Inputs
from attnviz.core.provenance import called
from attnviz.core.result import Figures, Finding, Interval, Measure
from attnviz.core.scores import SINK, Estimate, HeadScores, HeadsOf, Role, ScoredHeads
from attnviz.drawing import terminal
from attnviz.drawing.console import renderable, table_of
from attnviz.drawing.description import estimate
from attnviz.drawing.grid import heads_grid
from attnviz.drawing.labels import (
    backend,
    counted,
    model_name,
    number,
    percent,
    possible,
    rest_phrase,
    role_name,
    role_phrase,
    said,
    said_alone,
    shorten,
    signs,
    times,
    visible,
)
from attnviz.drawing.tables import Row, head_cells, which_head
from attnviz.features.profile.parts import Behaviours, Distribution, HeadDistribution, RowShare
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.features.profile.words import ONLY_POSITION, POSITIONS, RELATIONS, relation, when
from attnviz.scoring.roles import ROLES, SINK_LENGTH
from attnviz.scoring.scores import SCORES
from attnviz.statistics.clusters import few_groups

_PAIRS = 4
_TOKENS = 6


def row_parts(profile: Profile) -> Iterator[RenderableType]:
    """Of every head that was selected; nothing where none was."""
    distribution = profile.distribution
    if distribution is None:
        return
    for head in distribution.heads:
        yield from _head(profile.layout.name(head.head), head, distribution)


def _head(
    name: str, head: HeadDistribution, distribution: Distribution
) -> Iterator[RenderableType]:
    sampled = f"{distribution.sampled:,} of them looked at one by one"
    rows = f"{counted(distribution.rows, 'row')}, {sampled}"
    yield terminal.Line(f"{name}: what sets its strongest key apart, in {rows}", "bold")
    yield _rules(head.behaviours)
    if places := [relation(rule) for rule in head.behaviours.shares if rule in POSITIONS]:
        yield terminal.Line(f"{' and '.join(places)}: {ONLY_POSITION}", "")
    for calibration in head.calibrations:
        if calibration.holds.value is None:
            continue
        residue = ", ".join(
            f"{relation(group.name)} {_percent(group.share)}" for group in calibration.residue[:3]
        )
        yield terminal.Line(
            f"as its role {calibration.role} says in {_share(calibration.holds)} of the "
            f"{_percent(calibration.possible)} of rows where it could"
            + (f"; in the others {residue}" if residue else ""),
            "",
        )
    if head.pairs:
        pairs = ", ".join(
            f"{_token(pair.query)} → {_token(pair.key)} {pair.lift:.1f}×"
            for pair in head.pairs[:_PAIRS]
        )
        yield terminal.Line(f"tokens that meet more often than by chance: {pairs}", "")
    if head.specific:
        tokens = ", ".join(_token(token.text) for token in head.specific[:_TOKENS])
        yield terminal.Line(f"most weight for their frequency: {tokens}", "")
    top = head.deciles.get("norm", head.deciles.get("weight", ()))
    if top and top[-1].written is not None:
        yield terminal.Line(
            f"the tenth of rows with the largest α‖f(x)‖ has {_percent(top[-1].written)} of all "
            f"that it wrote, the lowest {_percent(top[0].written or 0.0)}",
            "",
        )
    yield Text("")


def _rules(behaviours: Behaviours) -> RenderableType:
    table = table_of("where", "strongest key", ">share", ">precision", ">chance")
    for leaf in behaviours.tree:
        for name, share in leaf.rules or ((None, None),):
            if name is None or share is None:
                cells = (when(leaf.path), "no rule", _percent(leaf.share), "", "")
            else:
                cells = (
                    when(leaf.path),
                    relation(name),
                    _percent(leaf.share * _of(share, behaviours, leaf.share)),
                    _share(share),
                    "" if share.chance is None else _percent(share.chance),
                )
            table.add_row(*(Text(cell) for cell in cells))
    unexplained = _share(behaviours.unexplained)
    table.add_row(Text("by none of these"), Text(""), Text(unexplained), Text(""), Text(""))
    return table


def _of(share: RowShare, behaviours: Behaviours, leaf: float) -> float:
    """Return the share of a leaf's rows in which a rule is the one that holds."""
    rows = leaf * behaviours.measured_on
    return (share.value or 0.0) * share.rows / rows if rows else 0.0


def _share(share: RowShare) -> str:
    if share.value is None:
        return "–"
    if share.low is None or share.high is None:
        return _percent(share.value)
    return f"{_percent(share.value)} ({100 * share.low:.0f}–{100 * share.high:.0f})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _token(text: str) -> str:
    return said_alone(shorten(visible(text), 14))


def parts(
    result: Profile,
    rows: Sequence[HeadScores] | None = None,
    *,
    more: str = "",
    everything: bool = False,
) -> Iterator[RenderableType]:
    """Get the grid, the table, published measures, what stays, what other results say, one line."""
    listed = [head.scores for head in result.heads if head.scores.roles] if rows is None else rows
    yield heads_grid(report(result))
    yield profile_table(result, listed)
    if detectable := would_show(result):
        yield terminal.Line(detectable if everything else detectable.partition(":")[0], "dim")
        yield ""
    if more:
        yield terminal.Line(more, "dim")
        yield ""
    yield from published_lines(result)
    yield from stability_lines(result, listed)
    yield from row_parts(result)
    if result.findings:
        names = [result.layout.name(head.head) for head in listed]
        yield from terminal.finding_lines(result.findings, names)
    if result.user_defined:
        yield terminal.Line(terminal.user_defined_line(result.user_defined), "dim")
    yield profile_line(result)


def report(profile: Profile) -> ScoredHeads:
    """Return the means and roles of a profile as those of one long text."""
    heads = tuple(head.scores for head in profile.heads)
    return HeadsOf(profile.source, profile.layout, Inputs({}), heads)


def would_show(profile: Profile) -> str:
    """From which means on roles would have shown, of heads of which nothing is said."""
    silent = [head for head in profile.heads if not head.scores.roles]
    from_means = []
    for role in ROLES.values():
        means = [
            head.estimates[evidence.score].detectable
            for head in silent
            for evidence in role.evidence
            if evidence.score in head.estimates
        ]
        ordered = sorted(mean for mean in means if mean is not None)
        if ordered and role.name != "diffuse":
            from_means.append(f"{role.name} {ordered[len(ordered) // 2]:.2f}")
    if not from_means:
        return ""
    return (
        f"{counted(len(silent), 'head')} without a role: from these means on, of the median head, "
        f"it would have shown in four of five such samples: {', '.join(from_means)}"
    )


def published_lines(profile: Profile) -> Iterator[RenderableType]:
    """Measures as papers define them, where they are defined."""
    if profile.sink_rate is not None:
        yield terminal.Line(terminal.sink_line(profile.sink_rate))
    elif profile.layout.kinds == ("decoder",) and profile.quantity == "weights":
        yield terminal.Line(
            f"{terminal.SINKS}: not defined here, for no text has {SINK_LENGTH} tokens"
        )
    if profile.matching is not None:
        heads = {head.head for head in profile.heads}
        yield terminal.Line(terminal.matching_line(profile.matching, profile.layout, heads))


def stability_lines(profile: Profile, heads: Sequence[HeadScores]) -> Iterator[RenderableType]:
    """How often roles and nearest heads stay when texts are drawn anew; ``heads`` in this order."""
    if not profile.resamples:
        return
    by_head = {head.head: head for head in profile.heads}
    yield Text(f"of {profile.resamples} draws of the texts, with replacement:")
    table = table_of("head", "roles given", "nearest head", fold=False)
    for scored in heads:
        stays = by_head[scored.head].stability
        if stays is not None:
            name = profile.layout.name
            near = [(name(head), times) for head, times in stays.nearest]
            cells = (name(scored.head), _often(stays.roles.items()), _often(near[:3]))
            table.add_row(*(Text(cell) for cell in cells))
    yield table
    yield Text("")


def _often(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {times}" for name, times in counts) or "none"


def profile_line(profile: Profile) -> RenderableType:
    """Model, backend, and how much was read, in one line."""
    info = profile.source
    parts = [model_name(info), backend(info)]
    parts += [counted(profile.texts, "text"), counted(profile.tokens, "token")]
    if profile.grouped:
        parts.append(counted(profile.clusters, "group"))
    coverage = "all heads and scores at once" if profile.simultaneous else "each score by itself"
    if not few_groups(profile.clusters):
        parts.append(f"95 % intervals, {coverage}")
    if profile.questions:
        method = "intervals for all at once" if profile.simultaneous else "Holm"
        questions = counted(profile.questions, "question")
        parts.append(f"roles significant at 5 % among {questions} ({method})")
    parts.append(said(profile))
    return terminal.Line(" · ".join(part for part in parts if part), "dim")


_COLUMNS = (
    "head",
    "role",
    "score",
    "95 %",
    "chance",
    "lift",
    "rows",
    "possible",
    "texts",
    "by text",
    "quartiles",
    "also",
    "sink",
    "most weight on",
)
_LEFT = ("head", "role", "also", "most weight on")
_IF_ROOM = (
    "lift",
    "chance",
    "rows",
    "most weight on",
    "by text",
    "sink",
    "quartiles",
    "texts",
    "possible",
    "also",
)
"""What a narrow console does without: each is there if it fits beside those before it."""
_BETWEEN = 3  # cells between two columns


@renderable
def profile_table(
    console: Console, options: ConsoleOptions, profile: Profile, heads: Sequence[HeadScores]
) -> RenderResult:
    """Show the estimates that roles rest on, one line a head; narrow consoles get fewer columns."""
    if not heads:
        none = (
            "no role is claimed of so few texts: give more, one a line, or see what heads do on a "
            "single text with attnviz heads"
            if few_groups(profile.clusters)
            else "no head shows a role on these texts"
        )
        yield Text(f"{none}\n", style="dim")
        return
    by_head = {head.head: head for head in profile.heads}
    rows = [
        [signs(cell, options.ascii_only) for cell in _cells(profile, by_head[scores.head])]
        for scores in heads
    ]
    columns = _fitting(rows, options.max_width)
    titles = (_COLUMNS[column] for column in columns)
    table = table_of(*(t if t in _LEFT else f">{t}" for t in titles), no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    yield table
    yield Text("")


def _cells(profile: Profile, head: HeadProfile) -> tuple[str, ...]:
    """One head in all of the columns."""
    name = profile.layout.name(head.head)
    if not head.scores.roles:
        return (name, "·", *[""] * 9, _perhaps(head), _sink(head), _tokens(head))
    role, *remaining = head.scores.roles
    estimate = head.evidence(role)
    at_rest = role.rests and role.name != "diffuse"
    also = [rest_phrase(extra) if extra.rests else role_phrase(extra) for extra in remaining]
    return (
        name,
        f"sink: {role.name}" if at_rest else role_name(role),
        *_numbers(role, estimate),
        f"{estimate.rows:,}",
        possible(role),
        f"{estimate.texts:,}",
        # the mean over texts, each counting once
        "" if estimate.macro is None else f"{estimate.macro:.{_digits(estimate)}f}",
        " ".join(f"{value:.2f}" for value in estimate.quartiles or ()),
        ", ".join(filter(None, [*also, _perhaps(head)])),
        _sink(head),
        _tokens(head),
    )


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the places of the columns that say something and fit, from left to right."""
    widths = {
        title: _BETWEEN + max(map(cell_len, (title, *cells)))
        for title, *cells in zip(_COLUMNS, *rows, strict=True)
        if any(cells)
    }
    titles = {title for title in widths if title not in _IF_ROOM}
    room = width + _BETWEEN - sum(widths[title] for title in titles)
    for title in _IF_ROOM:
        if widths.get(title, room + 1) <= room:
            titles.add(title)
            room -= widths[title]
    return [column for column, title in enumerate(_COLUMNS) if title in titles]


def _numbers(role: Role, estimate: Estimate) -> tuple[str, str, str, str]:
    """Score, interval, chance and lift; of a diffuse head the share of the largest entropy."""
    if estimate.mean is None:
        return "–", "–", "–", "–"
    score = f"{estimate.mean:.{_digits(estimate)}f}"
    if role.name == "diffuse":
        return score, _interval(estimate), "of", "max"
    chance = "–" if estimate.chance is None else number(estimate.chance)
    return score, _interval(estimate), chance, times(role.evidence)


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "–"
    digits = _digits(estimate)
    return f"{estimate.low:.{digits}f}–{estimate.high:.{digits}f}"


def _digits(estimate: Estimate) -> int:
    """How many digits of a mean are known; two where nothing says more."""
    if estimate.low is None or estimate.high is None:
        return 2
    return 3 if estimate.high - estimate.low < 0.02 else 2


def _perhaps(head: HeadProfile) -> str:
    """Return the roles that the means support, but not surely."""
    if not head.undecided:
        return ""
    roles = (f"{role.title}{_enough(head.evidence(role))}" for role in head.undecided)
    return f"undecided: {', '.join(roles)}"


def _enough(estimate: Estimate) -> str:
    """`` (0.62 would show)``, the mean that would have decided; empty for none."""
    return "" if estimate.detectable is None else f" ({estimate.detectable:.2f} would show)"


def _sink(head: HeadProfile) -> str:
    """Return the weight on the key that has the most of it, text by text."""
    estimate = head.estimates.get(SINK)
    if estimate is None or estimate.mean is None:
        return ""
    interval = "" if estimate.low is None else f" ({_interval(estimate)})"
    return f"{estimate.mean:.{_digits(estimate)}f}{interval}"


def _tokens(head: HeadProfile) -> str:
    """Return the strings with the most weight, with their shares."""
    return ", ".join(
        f"{said_alone(shorten(visible(text), 12))} {100 * share.weight:.0f} %"
        for text, share in head.tokens[:2]
    )


_STRINGS = 3  # token strings that a head is told of


def finding(result: Profile, name: str) -> Finding:
    """Return what every head does over many texts."""
    heads = {result.layout.name(head.head): head for head in result.heads}
    unit = "group" if result.grouped else "text"
    at_once = " for all heads and scores at once" * result.simultaneous
    norms = "" if result.quantity == "weights" else f" Not weights: {result.quantity}."
    method = (
        f"{counted(result.texts, 'text')} ({counted(result.tokens, 'token')}) from "
        f"{', '.join(map(called, result.files))}; "
        f"95 % intervals over {counted(result.clusters, unit)}{at_once}.{norms}"
    )
    sentences = {head: _habits(profile) for head, profile in heads.items()}
    return Finding.of("profile", name, "Over many texts", method, sentences, _measures(heads))


def _measures(heads: dict[str, HeadProfile]) -> Iterator[Measure]:
    """Every score."""
    for score, kind in SCORES.items():
        values = {
            head: (estimate.mean, estimate.low, estimate.high)
            for head, profile in heads.items()
            if (estimate := profile.estimates.get(score)) and estimate.mean is not None
        }
        title = f"{score.replace('_', ' ')} over texts"
        yield Measure(score, title, "" if kind.unit == "share" else kind.unit, 0, values)


def _explained(behaviours: Behaviours) -> dict[str, float | None]:
    """Give the share of rows that each rule explains, none of those that no rule was found for."""
    shares = {name: share.value for name, share in behaviours.shares.items()}
    explained = {f"rule {name}": shares.get(name, 0.0) for name in RELATIONS}
    return explained | {"no rule": behaviours.unexplained.value}


def _habits(head: HeadProfile) -> Iterator[str]:
    """Yield what a head does, where it rests, and the strings with most of its weight."""
    scores = head.scores
    for verb, role in (("does", scores.does), ("sink:", scores.rests)):
        if role is not None:
            yield _habit(head, verb, role)
    if scores.does is None and scores.rests is None:
        yield "no role"
    strings = [
        f"{said_alone(visible(text))} {percent(share.weight)} (uniform {percent(share.uniform)})"
        for text, share in head.tokens[:_STRINGS]
    ]
    if strings:
        yield f"most weight on {', '.join(strings)}"


def _habit(head: HeadProfile, verb: str, role: Role) -> str:
    evidence = head.evidence(role)
    kind = f"is {role.title}" if role.name == "diffuse" else f"{verb} {role_name(role)}"
    score = estimate(Interval(evidence.mean or 0.0, evidence.low, evidence.high))
    limits = "" if role.possible is None else f" where possible ({percent(role.possible)} of rows)"
    chance = "" if evidence.chance is None else f", chance {evidence.chance:.2g}"
    return (
        f"{kind} {score}{limits}: {counted(evidence.rows, 'row')} of "
        f"{counted(evidence.texts, 'text')}{chance}"
    )


def figures(result: Profile) -> Figures:
    """Return the mean of every score, and the roles; of selected heads the rows by rule."""
    heads = {result.layout.name(head.head): head for head in result.heads}
    ruled = {
        result.layout.name(selected.head): _explained(selected.behaviours)
        for selected in ([] if result.distribution is None else result.distribution.heads)
    }
    return Figures(
        {
            name: {key: e.mean for key, e in head.estimates.items()} | ruled.get(name, {})
            for name, head in heads.items()
        },
        {name: frozenset(role.name for role in head.scores.roles) for name, head in heads.items()},
        {"quantity": result.quantity},
    )


_PARTS = ("mean", "low", "high", "chance", "lift", "rows", "texts", "detectable")
_MACRO = ("macro", "macro_low", "macro_high")
_QUARTILES = ("q1", "median", "q3")
_OF_ROWS = ("key", "key_token", "weight", "norm", "written", "effect")


def rows(result: Profile) -> list[Row]:
    """List a row for each head and score, or each row that was drawn; None where not known."""
    if result.distribution is not None:
        return list(_drawn(result, result.distribution))
    return [
        {
            **head_cells(head.scores, result.layout),
            "score": name,
            **{part: getattr(estimate, part) for part in _PARTS},
            **dict(zip(_QUARTILES, estimate.quartiles or (None,) * 3, strict=True)),
            **{part: getattr(estimate, part) for part in _MACRO},
        }
        for head in result.heads
        for name, estimate in head.estimates.items()
    ]


def _drawn(result: Profile, distribution: Distribution) -> Iterator[Row]:
    """Yield the rows of the deciles, with the decile by each criterion, from 1."""
    for head in distribution.heads:
        deciles: dict[str, dict[int, int]] = {
            name: {row: n for n, decile in enumerate(several, 1) for row in decile.examples}
            for name, several in head.deciles.items()
        }
        for index, row in enumerate(head.rows):
            text = distribution.texts[row.text]
            yield {
                **which_head(result.layout, head.head),
                "place": text.place,
                "window": text.window,
                "row": row.row,
                "query": text.tokens[row.row - text.first],
                **{part: getattr(row, part) for part in _OF_ROWS},
                **{
                    f"{name}_decile": deciles.get(name, {}).get(index)
                    for name in ("weight", "norm", "effect")
                },
                "relations": " ".join(row.relations),
                "raises": "|".join(row.raises),
                "lowers": "|".join(row.lowers),
                "next": row.next,
                "added": row.added,
            }
