"""Pages of captures: every head of some texts, and of two runs of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.ablation import run as ablation
from attnviz.ablation.run import Progress
from attnviz.ablation.settings import AblationSettings
from attnviz.effects import AblationReport
from attnviz.errors import InputError, SelectionError, UsageError
from attnviz.estimates import Alike
from attnviz.findings import Finding
from attnviz.given import Evidence, laid, read_given
from attnviz.looking import DEFAULT_MODEL, Look, Model, Ready, prepare, prompt_of, source_for
from attnviz.models import recorded
from attnviz.models.identity import identity
from attnviz.notebook import Viewer
from attnviz.passes import Source
from attnviz.records import Capture, Head, Inputs, SiteKind
from attnviz.scoring import select as selection
from attnviz.scoring.observe import score_capture

Against = Model | Capture
"""The other run of a page: a model, or a capture or its file."""

MAX_PAGE_MB = 100.0
"""Larger pages are not made unless asked for."""


def view(
    what: Look | Iterable[Look],
    *,
    model: Model = DEFAULT_MODEL,
    select: str | None = None,
    without: str | None = None,
    weigh: str = "weights",
    why: str | None = None,
    against: Against | None = None,
    evidence: Evidence | Sequence[Evidence] | None = None,
    ablate: bool = False,
    exact: bool = False,
    title: str | None = None,
    max_mb: float = MAX_PAGE_MB,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Viewer:
    """Put every head of one or several texts into one page that explains itself.

    Args:
        what: a capture from :func:`capture` or :func:`read_capture`, or a text or prompt to run;
            several of them get a picker in the page.
        model: for texts and prompts, see :func:`load`, as for ``device`` and ``dtype``.
        select: heads to show; by default all that the captures hold.
        without: heads to take away first, to see how the others change.
        weigh: what the maps show, see :func:`capture`; with ``"norm"`` the page has the weights as
            well, and switches between the two.
        why: heads whose queries and keys go into the page, in 16 bits, so that it can explain each
            of their weights (``"2.4, 3.*"``); those that captures already hold go in as well.
        against: another run, to compare with: a model that the same texts go through too, or for a
            single text or capture another capture or its file. Every text is followed by its other
            run, and the page opens with both side by side.
        evidence: see :func:`heads`; its numbers stand on the cards and can tint the overview.
        ablate: also take every head away on these texts, see :func:`attnviz.ablate`, with gradients
            where the model predicts words; that takes a pass for every head.
        exact: weights in 16 bits instead of 8 (off by at most 0.00002 instead of 0.004).
        title: of the page; by default the model's name.
        max_mb: the largest page to make, in megabytes.
        device: where to run.
        dtype: in which precision.
        progress: with ``ablate``, called again and again with a stage, how much is done and how
            much there is.

    Returns:
        A page with ``save("page.html")``; notebooks show it.

    Raises:
        UsageError: options that make no sense together.
        SelectionError: no such heads, or a capture that does not hold any of them.
        InputError: the page would be larger than ``max_mb``, or weights that are not finite.
    """
    from attnviz.render import viewer
    from attnviz.render.viewer.document import short_name

    bits = 16 if exact else 8
    given = read_given(evidence)
    ready, least = [], 0
    options: dict[str, Any] = {"select": select, "without": without, "weigh": weigh, "why": why}
    source: Source | None = None
    if against is not None and (ablate or evidence is not None):
        raise UsageError("{against} shows two runs, and evidence is of one model: make a page of "
                         "each", against=...)  # fmt: skip
    if ablate:
        what = _listed(what)
        source = _ablated(what, model, without, device, dtype)
    options |= {"device": device, "dtype": dtype}
    for one in _runs(what, against, source or model, options):
        least += viewer.least(one.inputs, one.heads, bits)
        _check_page(least, max_mb)
        ready.append(one)
    several = [one.capture() for one in ready]
    looked = [
        one.weights() if one.weights else held for one, held in zip(ready, several, strict=True)
    ]
    heads = [_held(capture, select) for capture in several]
    second = [number for number, one in enumerate(ready) if one.weights]
    size = viewer.estimate(
        looked + [several[number] for number in second],
        heads + [heads[number] for number in second],
        bits,
    )
    _check_page(size, max_mb)
    scores, said = [], dict[str, None]()
    if source is not None:
        report = _effects(source, [one.inputs for one in ready], progress)
        said |= dict.fromkeys(report.notes)
        (effects,) = read_given(replace(report, identity=identity(model)))
        given = (effects.called("these texts"), *given)
    findings: tuple[Finding, ...] = ()
    for one, held in zip(ready, looked, strict=True):
        known = {} if one.held or not given else identity(model)
        own = score_capture(held).result()
        both, more, findings = laid(given, own, held.source, held.layout, known)
        scores.append(both)
        said |= dict.fromkeys(more)
    written = [
        (several[number], score_capture(several[number]).result()) if number in second else None
        for number in range(len(several))
    ]
    names = [short_name(capture.source.model) for capture in several]
    if title is None:
        title = f"Attention of {' and '.join(dict.fromkeys(names[: 1 if against is None else 2]))}"
    page = viewer.page(
        looked,
        scores,
        heads,
        written,
        title=title,
        bits=bits,
        notes=tuple(said),
        alike=_alike(looked, heads, 1 if against is None else 2),
        findings=findings,
        runs=() if against is None else _run_names(names),
    )
    return Viewer(page, title, tuple(several))


def _alike(
    captures: Sequence[Capture], heads: Sequence[frozenset[Head]], runs: int
) -> list[Mapping[SiteKind, Alike]]:
    """How alike heads are in each of the runs, which take turns."""
    from attnviz.profiling.alike import alike

    found = [alike(captures[run::runs], heads[run::runs]) for run in range(runs)]
    return [one for together in zip(*found, strict=True) for one in together]


def _listed(what: Look | Iterable[Look]) -> list[Look]:
    return [what] if isinstance(what, Look) or not isinstance(what, Iterable) else list(what)


def _runs(
    what: Look | Iterable[Look], against: Against | None, model: Model, options: dict[str, Any]
) -> Iterator[Ready]:
    """What a page shows: every text, and behind it the other run of it, if there is one."""
    if against is None:
        yield from prepare(what, model=model, **options)
        return
    looks = _listed(what)
    if isinstance(against, str | Path) and Path(against).suffix.lower() in recorded.SUFFIXES:
        against = recorded.load(Path(against))
    if isinstance(against, Capture):
        if len(looks) != 1:
            raise UsageError("a capture is compared with a single text or capture, not with {}; "
                             "give {against} a model", len(looks), against=...)  # fmt: skip
        yield from prepare([*looks, against], model=model, **options)
        return
    if any(isinstance(one, Capture) for one in looks):
        raise UsageError("only texts go through two models; give {against} the other capture",
                         against=...)  # fmt: skip
    both = (prepare(looks, model=one, **options) for one in (model, against))
    for pair in zip(*both, strict=True):
        yield from pair


def _run_names(models: Sequence[str]) -> tuple[str, ...]:
    """What tells the two runs of every text apart: their models, or else their order."""
    same = any(one == other for one, other in zip(models[::2], models[1::2], strict=True))
    return ("first run", "second run") * (len(models) // 2) if same else tuple(models)


def _ablated(
    what: Sequence[Look], model: Model, without: str | None, device: str, dtype: str
) -> Source:
    """The model whose heads are to be taken away."""
    if without is not None:
        raise UsageError(
            "{ablate} measures the whole model; leave out {without}", ablate=True, without=...
        )
    prompts = [one for one in what if not isinstance(one, Capture)]
    if len(prompts) < len(what) or not prompts:
        raise UsageError(
            "{ablate} needs the model itself; give texts, not recorded attention", ablate=True
        )
    return source_for(prompt_of(prompts[0]), model, device, dtype)


def _effects(source: Source, texts: Sequence[Inputs], progress: Progress | None) -> AblationReport:
    """What it costs to take every head of a model away."""
    settings = AblationSettings(gradient=not source.no_logits)
    quiet: Progress = lambda stage, done, all_: None  # noqa: E731
    return ablation.run(ablation.Study(source, texts, settings, progress=progress or quiet))


def _check_page(size: float, max_mb: float) -> None:
    """Refuse a page of more bytes than are wanted."""
    if not max_mb > 0:
        raise UsageError("{max_mb} must be a number above 0", max_mb=max_mb)
    if size > max_mb * 1e6:
        raise InputError(
            "the page would take about {:.1f} MB or more, and {:g} MB is the limit",
            size / 1e6,
            max_mb,
            remedy="select fewer heads or layers, shorten the text, or raise {max_mb}",
            max_mb=...,
        )


def _held(capture: Capture, text: str | None) -> frozenset[Head]:
    """The selected heads whose maps a capture holds; all that it holds by default."""
    chosen = capture.layout if text is None else selection.select(text, capture.layout)
    held = frozenset(head for head in chosen if head.site in capture.maps)
    if not held:
        what = text or "any head"
        raise SelectionError(
            f"the capture holds no map of {what}; capture it again with a selection that does"
        )
    return held
