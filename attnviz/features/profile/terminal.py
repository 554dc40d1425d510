"""A profile on the terminal: the grid of roles, the table of estimates, a closing line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from attnviz.core.prompt import Inputs
from attnviz.core.scores import SINK, Estimate, HeadScores, HeadsOf, Role, ScoredHeads
from attnviz.drawing.grid import heads_grid
from attnviz.drawing.labels import (
    backend,
    counted,
    model_name,
    number,
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
from attnviz.drawing.renderable import table_of
from attnviz.drawing.terminal import (
    SINKS,
    Line,
    finding_lines,
    matching_line,
    sink_line,
    user_defined_line,
)
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.features.profile.rows_terminal import row_parts
from attnviz.scoring.published import SINK_LENGTH
from attnviz.scoring.roles import ROLES
from attnviz.statistics.clusters import few_groups


def parts(
    result: Profile, rows: Sequence[HeadScores] | None = None, *, more: str = ""
) -> Iterator[RenderableType]:
    """The grid, the table, published measures, what stays, what other results say, one line."""
    listed = [head.scores for head in result.heads if head.scores.roles] if rows is None else rows
    yield profile_grid(result)
    yield profile_table(result, listed)
    if shown := would_show(result):
        yield Line(shown, "dim")
        yield ""
    if more:
        yield Line(more, "dim")
        yield ""
    yield from published_lines(result)
    yield from stability_lines(result, listed)
    yield from row_parts(result)
    if result.findings:
        names = [result.layout.name(head.head) for head in listed]
        yield from finding_lines(result.findings, names)
    if result.user_defined:
        yield Line(user_defined_line(result.user_defined), "dim")
    yield profile_line(result)


def report(profile: Profile) -> ScoredHeads:
    """The means and roles of a profile as those of one long text."""
    heads = tuple(head.scores for head in profile.heads)
    return HeadsOf(profile.source, profile.layout, Inputs({}), heads)


def profile_grid(profile: Profile) -> RenderableType:
    """The layer × head grid of roles."""
    return heads_grid(report(profile))


def profile_table(profile: Profile, heads: Sequence[HeadScores]) -> RenderableType:
    """The estimates that roles rest on, one line a head; ``heads`` in this order."""
    known = {head.head: head for head in profile.heads}
    return _Table(profile, [known[scores.head] for scores in heads])


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
        known = sorted(mean for mean in means if mean is not None)
        if known and role.name != "diffuse":
            from_means.append(f"{role.name} {known[len(known) // 2]:.2f}")
    if not from_means:
        return ""
    return (
        f"{counted(len(silent), 'head')} without a role: from these means on, of the median head, "
        f"it would have shown in four of five such samples: {', '.join(from_means)}"
    )


def published_lines(profile: Profile) -> Iterator[RenderableType]:
    """Measures as papers define them, where they are defined."""
    if profile.sink_rate is not None:
        yield Line(sink_line(profile.sink_rate))
    elif profile.layout.kinds == ("decoder",) and profile.quantity == "weights":
        yield Line(f"{SINKS}: not defined here, for no text has {SINK_LENGTH} tokens")
    if profile.matching is not None:
        heads = {head.head for head in profile.heads}
        yield Line(matching_line(profile.matching, profile.layout, heads))


def stability_lines(profile: Profile, heads: Sequence[HeadScores]) -> Iterator[RenderableType]:
    """How often roles and nearest heads stay when texts are drawn anew; ``heads`` in this order."""
    if not profile.resamples:
        return
    known = {head.head: head for head in profile.heads}
    yield Text(f"of {profile.resamples} draws of the texts, with replacement:")
    table = table_of("head", "roles given", "nearest head", fold=False)
    for scored in heads:
        stays = known[scored.head].stability
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
    what = "all heads and scores at once" if profile.simultaneous else "each score by itself"
    if not few_groups(profile.clusters):
        parts.append(f"95 % intervals, {what}")
    if profile.questions:
        method = "intervals for all at once" if profile.simultaneous else "Holm"
        asked = counted(profile.questions, "question")
        parts.append(f"roles significant at 5 % among {asked} ({method})")
    parts.append(said(profile))
    return Line(" · ".join(part for part in parts if part), "dim")


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
_BETWEEN = 3
"""Cells between two columns."""


class _Table:
    def __init__(self, profile: Profile, heads: Sequence[HeadProfile]) -> None:
        self.profile, self.heads = profile, heads

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console; narrow ones get fewer columns."""
        if not self.heads:
            yield Text(f"{self._none()}\n", style="dim")
            return
        rows = [
            [signs(cell, options.ascii_only) for cell in self._row(head)] for head in self.heads
        ]
        places = _fitting(rows, options.max_width)
        titles = (_COLUMNS[place] for place in places)
        sides = (title if title in _LEFT else f">{title}" for title in titles)
        table = table_of(*sides, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(row[place]) for place in places))
        yield table
        yield Text("")

    def _none(self) -> str:
        """Why no head is listed."""
        if few_groups(self.profile.clusters):
            return (
                "no role is claimed of so few texts: give more, one a line, or see what heads do "
                "on a single text with attnviz heads"
            )
        return "no head shows a role on these texts"

    def _row(self, head: HeadProfile) -> tuple[str, ...]:
        name = self.profile.layout.name(head.head)
        if not head.scores.roles:
            return (name, "·", *[""] * 9, _perhaps(head), _sink(head), _tokens(head))
        role, *others = head.scores.roles
        estimate = head.evidence(role)
        places = role.rests and role.name != "diffuse"
        return (
            name,
            f"sink: {role.name}" if places else role_name(role),
            *_numbers(role, estimate),
            f"{estimate.rows:,}",
            possible(role),
            f"{estimate.texts:,}",
            _macro(estimate),
            _quartiles(estimate),
            ", ".join(
                filter(
                    None,
                    [
                        *(
                            rest_phrase(other) if other.rests else role_phrase(other)
                            for other in others
                        ),
                        _perhaps(head),
                    ],
                )
            ),
            _sink(head),
            _tokens(head),
        )


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The places of the columns that say something and fit, from left to right."""
    wide = {
        title: _BETWEEN + max(map(cell_len, (title, *cells)))
        for title, *cells in zip(_COLUMNS, *rows, strict=True)
        if any(cells)
    }
    titles = {title for title in wide if title not in _IF_ROOM}
    left = width + _BETWEEN - sum(wide[title] for title in titles)
    for title in _IF_ROOM:
        if wide.get(title, left + 1) <= left:
            titles.add(title)
            left -= wide[title]
    return [place for place, title in enumerate(_COLUMNS) if title in titles]


def _numbers(role: Role, estimate: Estimate) -> tuple[str, str, str, str]:
    """Score, interval, chance and lift; of a diffuse head the share of the largest entropy."""
    if estimate.mean is None:
        return "–", "–", "–", "–"
    if role.name == "diffuse":
        return f"{estimate.mean:.{_digits(estimate)}f}", _interval(estimate), "of", "max"
    chance = "–" if estimate.chance is None else number(estimate.chance)
    return (
        f"{estimate.mean:.{_digits(estimate)}f}",
        _interval(estimate),
        chance,
        times(role.evidence),
    )


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


def _macro(estimate: Estimate) -> str:
    """The mean over texts, each counting once."""
    return "" if estimate.macro is None else f"{estimate.macro:.{_digits(estimate)}f}"


def _perhaps(head: HeadProfile) -> str:
    """The roles that the means support, but not surely."""
    if not head.undecided:
        return ""
    said = (f"{role.title}{_enough(head.evidence(role))}" for role in head.undecided)
    return f"undecided: {', '.join(said)}"


def _enough(estimate: Estimate) -> str:
    """`` (0.62 would show)``, the mean that would have decided; empty for none."""
    return "" if estimate.detectable is None else f" ({estimate.detectable:.2f} would show)"


def _quartiles(estimate: Estimate) -> str:
    if estimate.quartiles is None:
        return ""
    return " ".join(f"{value:.2f}" for value in estimate.quartiles)


def _sink(head: HeadProfile) -> str:
    """The weight on the key that has the most of it, text by text."""
    estimate = head.estimates.get(SINK)
    if estimate is None or estimate.mean is None:
        return ""
    interval = "" if estimate.low is None else f" ({_interval(estimate)})"
    return f"{estimate.mean:.{_digits(estimate)}f}{interval}"


def _tokens(head: HeadProfile) -> str:
    """The strings with the most weight, with their shares."""
    shown = []
    for text, share in head.tokens[:2]:
        shown.append(f"{said_alone(shorten(visible(text), 12))} {100 * share.weight:.0f} %")
    return ", ".join(shown)
