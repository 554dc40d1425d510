"""Assertions about heads, whose messages say which head moved, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnviz.captures.inputs import prompt_of
from attnviz.captures.loading import Model, load
from attnviz.core.heads import Head
from attnviz.core.scores import HeadScores, Role, Score
from attnviz.core.source import Source
from attnviz.corpus.lines import sentences
from attnviz.errors import InputError, UsageError
from attnviz.features.diff.function import diff
from attnviz.features.diff.result import OTHER_UNITS, Diff, HeadChange
from attnviz.features.heads.function import heads
from attnviz.features.heads.result import Heads
from attnviz.features.results import read
from attnviz.scoring.observe import score_batch
from attnviz.scoring.probe import MEASURED, run_probe
from attnviz.scoring.roles import ROLES, role_name
from attnviz.scoring.select import select
from attnviz.scoring.totals import Sums
from attnviz.testing.plugin import RUNNING

TEXT = (
    "The keys to the cabinet are on the table, because the keys to the cabinet were lost, and the "
    "old man who found the keys put the keys on the table."
)
"""What heads are compared on unless a test says otherwise."""

_NAMED = 6  # heads that a message names


def assert_role(
    model: Model,
    head: str,
    role: str,
    *,
    at_least: float | None = None,
    texts: str | Sequence[str] | None = None,
) -> None:
    """Fail where a head does not show a role."""
    __tracebackhide__ = True
    name = role_name(role)
    if name not in ROLES:
        raise UsageError(f"unknown role {role!r}; choose one of {', '.join(ROLES)}")
    source = load(model)
    chosen = select(head, source.layout)
    if len(chosen) != 1:
        raise UsageError(f"{head} is {len(chosen)} heads; assert the role of one")
    scored, origin = _scored(source, name, texts)
    (tested,) = (scores for scores in scored if scores.head == chosen[0])
    head_role = next((role for role in tested.roles if role.name == name), None)
    if head_role is not None and (at_least is None or (head_role.evidence.mean or 0.0) >= at_least):
        return
    ranked = [(_best(scores, name), scores.head) for scores in scored if scores.head != tested.head]
    reach = sorted((entry for entry in ranked if entry[0] is not None), reverse=True)
    instead = tested.roles
    if not instead and texts is None:  # what it does may show on text alone
        on_text, _ = _scored(source, name, sentences())
        instead = next(scores.roles for scores in on_text if scores.head == tested.head)
    raise AssertionError(_no_role(source, tested, name, at_least, origin, reach, instead))


def _scored(
    source: Source, role: str, texts: str | Sequence[str] | None
) -> tuple[Sequence[HeadScores], str]:
    """Every head on some texts, and what these are."""
    if texts is None and all(part.score in MEASURED for part in ROLES[role].evidence):
        return run_probe(source), "repeated random tokens"
    several = sentences() if texts is None else (texts,) if isinstance(texts, str) else texts
    total = Sums.zero(len(source.layout))
    for text in several:
        inputs = source.prepare(prompt_of(text))
        total = total + score_batch(source, [inputs]).total()
    origin = "English sentences of attnviz" if texts is None else "given texts"
    return total.of(source.layout), f"{len(several)} {origin}"


def _best(scores: HeadScores, role: str) -> float | None:
    """Return the mean of a role that a head shows."""
    return next((r.evidence.mean for r in scores.roles if r.name == role), None)


def _no_role(
    source: Source,
    scores: HeadScores,
    role: str,
    at_least: float | None,
    origin: str,
    reach: Sequence[tuple[float | None, Head]],
    instead: Sequence[Role],
) -> str:
    """Return what is said of a head without a role."""
    name = source.layout.name
    measured = [_said(part.score, scores.scores.get(part.score)) for part in ROLES[role].evidence]
    needs = [f"{e.score} of {e.mean:g} and {e.lift:g} times chance" for e in ROLES[role].evidence]
    requirement = f"{' or '.join(needs)}, and no other role's targets with as much"
    if at_least is not None:
        requirement += f"; and a score of {at_least:g}"
    active = ", ".join(f"{role.title} {role.evidence.mean or 0:.2f}" for role in instead)
    showing = ", ".join(f"{name(head)} {mean:.2f}" for mean, head in reach[:_NAMED])
    verb = "shows too little" if any(r.name == role for r in scores.roles) else "does not show"
    return "\n".join(
        [
            f"head {name(scores.head)} of {source.info.model} {verb} {role} on {origin}:",
            f"  measured: {'; '.join(measured)}",
            f"  asked for: {requirement}",
            f"  it shows: {active or 'no role'}",
            f"  heads that show {role}: {showing or 'none'}",
        ]
    )


def _said(name: str, score: Score | None) -> str:
    if score is None or score.mean is None:
        return f"{name} on no row"
    chance = "" if score.chance is None else f", chance {score.chance:.2g}"
    return f"{name} {score.mean:.2f}{chance}, {score.rows:,} rows"


def assert_same_heads(
    model: Model, baseline: str | Path, *, within: float = 0.01, text: str = TEXT
) -> None:
    """Fail where what heads do has moved away from a baseline.

    Every score of every head on one text, as :func:`attnviz.heads` measures it, is compared with
    that of a file; ``pytest --attnviz-update`` writes the file. Scores in bits and tokens are in it
    but do not decide.
    """
    __tracebackhide__ = True
    path = RUNNING.path(baseline)
    result = heads(text, model=model)
    if RUNNING.update:
        result.save(path)
        RUNNING.written.append(path)
        return
    if not path.exists():
        raise AssertionError(
            f"there is no baseline {path}; pytest --attnviz-update writes it from this model"
        )
    expected = read(path)
    if not isinstance(expected, Heads):
        raise InputError(f"{path} is no result of heads; write it with pytest --attnviz-update")
    if tokens := _other_tokens(expected, result):
        raise AssertionError(f"{path} is of {tokens}: the text or the tokenizer is another one")
    changed = diff(expected, result)
    moved = [head for head in changed.heads if head.largest() > within]
    if moved:
        raise AssertionError(_moved(changed, moved, within, path))


def _other_tokens(baseline: Heads, current: Heads) -> str:
    """Return the tokens of the baseline where they are others; empty where they are the same."""
    if dict(baseline.tokens) == dict(current.tokens):
        return ""
    texts = [sides.queries.texts for sides in baseline.tokens.values()][-1]
    return f"{len(texts)} tokens ({'|'.join(texts)[:60]}…)"


def _moved(changed: Diff, moved: Sequence[HeadChange], within: float, path: Path) -> str:
    """Return what is said of heads that moved."""
    count = f"{len(moved)} of {len(changed.heads)} heads"
    lines = [f"{count} of {changed.other.model} moved by more than {within:g} from {path}:"]
    for head in moved[:_NAMED]:
        shares = [figure for figure in head.changes if figure.name not in OTHER_UNITS]
        top = max(shares, key=lambda figure: abs(figure.change))
        roles = [f"loses {role}" for role in head.lost] + [f"gains {role}" for role in head.gained]
        text = f"  {head.name}  {top.name} {top.before:.3f} → {top.after:.3f} ({top.change:+.3f})"
        lines.append("; ".join([text, *roles]))
    if len(moved) > _NAMED:
        lines.append(f"  and {len(moved) - _NAMED} more, the largest first")
    lines.append("where that is meant: pytest --attnviz-update")
    return "\n".join(lines)
