"""What ``import attnviz`` offers: load a model, capture its attention, score and draw its heads.

Everything here is a few lines over the floors below, and the command line is a few lines over this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.ablation.closed import closed
from attnviz.errors import Message, SelectionError, Setting, UsageError
from attnviz.given import Evidence, laid
from attnviz.looking import (
    DEFAULT_MODEL,
    Look,
    Model,
    capture,
    captures,
    check_quantity,
    check_whole,
    load,
    prompt_of,
    source_for,
)
from attnviz.models import recorded
from attnviz.models.demo import DEMOS
from attnviz.models.identity import identity
from attnviz.models.mixing import MixingObserver
from attnviz.models.untrained import FreshConfig
from attnviz.models.weighed import weighed
from attnviz.notebook import Captured, Heatmap, Report, captured
from attnviz.passes import Source
from attnviz.quantities import quantity
from attnviz.records import Capture, Head, HeadScores, HeadsReport, ModelEntry, Prompt
from attnviz.render.style import Style, styled
from attnviz.scoring import select as selection
from attnviz.scoring.observe import ScoreObserver, score_capture
from attnviz.scoring.probe import match_prefixes, run_probe
from attnviz.scoring.shown import shown_map, shown_sides
from attnviz.scoring.stored import allowed_in

__all__ = [
    "DEFAULT_MODEL",
    "Look",
    "Model",
    "capture",
    "captures",
    "heads",
    "heatmap",
    "load",
    "models",
    "notes",
    "read_capture",
    "select",
    "write_capture",
]


def heads(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    probe: bool = False,
    select: str | None = None,
    without: str | None = None,
    weigh: str = "weights",
    evidence: Evidence | Sequence[Evidence] | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Report:
    """Score what every head does, and name its roles.

    Args:
        what: a capture, or a text or prompt to run; a text's maps are scored on the way and never
            kept, so that long texts need little memory.
        model: for a text or prompt, see :func:`load`, as for ``device`` and ``dtype``.
        probe: also run the model on repeated random tokens (Olsson et al. 2022,
            arXiv:2209.11895), which tells induction and duplicate-token heads from chance, and
            match prefixes as they do.
        select: heads to report; all by default.
        without: heads to take away first (``"2.4, role:first"``), to see how the others change.
        weigh: what is scored, see :func:`capture`: all but weights with rows divided by their sums,
            since scores compare with chance.
        evidence: what :func:`attnviz.syntax` and :func:`attnviz.coref` found out about the same
            model, or files with its JSON; their roles stand before those of the text.
        device: where to run.
        dtype: in which precision.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    if isinstance(what, Capture):
        check_whole(without)
        check_quantity(what, weigh)
        weigh = what.quantity
        if probe:
            raise UsageError("a probe needs the model itself; a recorded capture has only its maps")
        observer = score_capture(what)
        report = HeadsReport(
            what.source, what.layout, what.inputs, observer.result(), (), what.empty_rows
        )
    else:
        prompt = prompt_of(what)
        source = source_for(prompt, model, device, dtype)
        inputs = source.prepare(prompt)
        mixing = MixingObserver(source, quantity(weigh), [inputs])
        shown = weighed(source, weigh, shares=True, beside=[mixing])
        observer = ScoreObserver([inputs], shown.layout)
        with closed(source, without, inputs) as inputs:
            shown.forward([inputs], [observer], hidden=False)
            probed = run_probe(weighed(source, weigh, shares=True)) if probe else ()
            matching = match_prefixes(source) if probe and weigh == "weights" else None
        report = HeadsReport(
            source.info, shown.layout, inputs, observer.result(), probed, observer.empty_rows,
            mixing=mixing.result(), matching=matching,
        )  # fmt: skip
    chosen = None if select is None else frozenset(selection.select(select, report.layout))
    known = {} if isinstance(what, Capture) or evidence is None else identity(model)
    scored, more, findings = laid(evidence, report.heads, report.source, report.layout, known)
    return Report(
        report.source,
        report.layout,
        report.inputs,
        _only(scored, chosen),
        _only(report.probe, chosen),
        report.empty_rows,
        (*notes(report), *more),
        weigh,
        report.mixing,
        report.matching,
        findings,
    )


def heatmap(
    what: Look,
    select: str | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    weigh: str = "weights",
    style: Style | None = None,
    device: str = "auto",
    dtype: str = "auto",
    **changes: Any,
) -> Heatmap:
    """Draw the maps of some heads.

    Args:
        what: a capture from :func:`capture` or :func:`read_capture`, or a text or prompt to run.
        select: which heads, ``"4.11"`` or ``"0-3.*"``; by default the first there is.
        model: for a text or prompt, see :func:`load`, as for ``device`` and ``dtype``.
        weigh: what is drawn, see :func:`capture`: norms as they are, which the colour bar says.
        style: how they look.
        device: where to run.
        dtype: in which precision.
        changes: fields of :class:`attnviz.render.style.Style` to change in it, such as
            ``scale="log"``, ``words=True`` (sum over a word's keys, mean over its queries) or
            ``hide_sink=True``.

    Returns:
        A picture with ``save("x.png")``; notebooks show it.

    Raises:
        UsageError: no such field or value of a style.
        AttnvizError: as :func:`capture`.
    """
    looks = styled(style, changes)
    if select is None:
        if not isinstance(what, Capture):
            what = prompt_of(what)
            model = source_for(what, model, device, dtype)
        select = _first(what, model)
    held = capture(what, model=model, select=select, weigh=weigh, device=device, dtype=dtype)
    looks = replace(looks, quantity=held.quantity)
    chosen = selection.select(select, held.layout)
    missing = [head for head in chosen if head.site not in held.maps]
    if missing:
        raise SelectionError(
            f"the capture does not hold {held.layout.name(missing[0])}; capture it again "
            "with a selection that does"
        )
    maps = []
    for head in chosen:
        layer, sides = held.maps[head.site], held.sides(head)
        reach = allowed_in(layer, head.site.kind, held.reach.get(head.site))
        allowed = reach[head.index if len(reach) > 1 else 0]
        shown = shown_sides(sides, words=looks.words, hide_sink=looks.hide_sink)
        weights = shown_map(
            layer[head.index], allowed, sides, words=looks.words, hide_sink=looks.hide_sink
        )
        maps.append((head, weights, shown))
    roles = {scores.head: scores.roles for scores in score_capture(held).result()}
    return Heatmap(held, tuple(maps), roles, looks)


def _first(what: Capture | Prompt, model: Model) -> str:
    """The first head that there is: of a capture, or else of a loaded model."""
    if isinstance(what, Capture):
        return next(head.qualified for head in what.layout if head.site in what.maps)
    assert not isinstance(model, str | Path | FreshConfig)
    return next(iter(model.layout)).qualified


def select(text: str, where: Capture | HeadsReport | Source) -> tuple[Head, ...]:
    """The heads that a selection such as ``"4.11, 5.*"`` means; SelectionError if it is junk."""
    if not hasattr(where, "layout"):
        raise UsageError("{where} takes a capture, a report or a model, not {!r}", where, where=...)
    return selection.select(text, where.layout)


def notes(result: Capture | HeadsReport) -> tuple[str, ...]:
    """What a reader must know beside a result, as full sentences."""
    found = list(result.inputs.notes)
    if result.empty_rows:
        rows = "row has" if result.empty_rows == 1 else "rows have"
        found.append(
            f"{result.empty_rows} query {rows} no key to attend to: their weights are all zero."
        )
    if result.source.model in DEMOS and result.source.backend != "recorded":
        found.append(
            Message(
                "{} is a small model trained for teaching. For a well-known one: {}, or {}.",
                result.source.model,
                Setting("model", "bert-base-uncased"),
                Setting("model", "gpt2"),
            )
        )
    return tuple(found)


def read_capture(path: str | Path, *, item: int | None = None) -> Captured:
    """Read recorded attention from .npz or .safetensors; see :mod:`attnviz.models.recorded`."""
    return captured(recorded.load(Path(path), item))


def write_capture(capture: Capture, path: str | Path) -> Path:
    """Write a capture of all layers as .npz or .safetensors; OutputError if that cannot be done."""
    path = Path(path)
    files.write(path, recorded.dump(capture, path.suffix))
    return path


def models() -> tuple[ModelEntry, ...]:
    """The models on this machine: bundled ones, the hub's cache, the fresh layer."""
    from attnviz.models.catalog import available

    return available()


def _only(scores: Sequence[HeadScores], chosen: frozenset[Head] | None) -> tuple[HeadScores, ...]:
    return tuple(s for s in scores if chosen is None or s.head in chosen)
