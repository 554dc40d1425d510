"""Pages of captures: every head of some texts, and of two runs of them."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from attnviz.captures.look import (
    DEFAULT_MODEL,
    Look,
    LookOptions,
    Model,
    Ready,
    find,
    looks_of,
    prepare,
    prompt_of,
    source_for,
)
from attnviz.core.capture import Capture
from attnviz.core.findings import Finding
from attnviz.core.heads import Head, SiteKind
from attnviz.core.progress import Progress
from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.drawing.labels import counted
from attnviz.errors import InputError, ModelError, SelectionError, UsageError
from attnviz.features.ablation import run as ablation
from attnviz.features.ablation.result import Ablation
from attnviz.features.ablation.settings import METHODS, AblationSettings
from attnviz.features.evidence import Attached, Evidence, attach, read_evidence
from attnviz.features.profile.result import Alike
from attnviz.features.view.chosen import alone, check_long, strongest
from attnviz.features.view.long.function import long_view
from attnviz.features.view.result import Viewer
from attnviz.models import recorded
from attnviz.models.identity import identity
from attnviz.models.untrained import FreshConfig
from attnviz.scoring import select as selection
from attnviz.scoring.observe import score_capture

Against = Model | Capture
"""The other run of a page: a model, or a capture or its file."""

EXACT_PAGE_MB = 8.0
"""Pages up to this size have weights in 16 bits, unless it is said otherwise."""

MAX_PAGE_MB = 100.0
"""Larger pages are not made unless asked for."""


def view(
    what: Look | Iterable[Look],
    *,
    model: Model = DEFAULT_MODEL,
    select: str | None = None,
    top: int | None = None,
    without: str | None = None,
    weigh: str = "weights",
    rows: str | None = None,
    keys: str | None = None,
    why: str | None = None,
    against: Against | None = None,
    evidence: Evidence | Sequence[Evidence] | None = None,
    ablate: bool = False,
    exact: bool | None = None,
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
        top: of these the N that do something with the strongest evidence, found by scoring all of
            them in a pass of its own without their maps: for models of very many heads.
        without: heads to ablate first, to see how the others change; with ``against`` from the
            first run alone, so that ``view(text, without="1.4", against="gpt2", model="gpt2")`` has
            the model without the head beside the model as it is.
        weigh: what the maps show, see :func:`capture`; with ``"norm"`` the page has the weights as
            well, and switches between the two.
        rows: only these queries of a single text, ``"4000-4400"`` from 0 and with both ends, or the
            name of a span in one piece; ``keys`` the same of keys. The page is then that of long
            texts, as fine as its size allows, with the positions that tokens have in the text.
        keys: see ``rows``.
        why: heads whose queries and keys go into the page, in 16 bits, so that it can explain each
            of their weights (``"2.4, 3.*"``); those that captures already hold go in as well.
        against: another run, to compare with: a model that the same texts go through too, or for a
            single text or capture another capture or its file. Every text is followed by its other
            run, and the page opens with both side by side. What they have not in common, heads or
            texts, the page says; where they have neither, there is no page.
        evidence: see :func:`heads`; its numbers stand on the cards and can tint the overview.
        ablate: also take every head away on these texts, see :func:`attnviz.ablate`, with gradients
            where the model predicts words; that takes a pass for every head.
        exact: weights in 16 bits (off by at most 0.00002), or in 8 (by at most 0.004) and half the
            size; by default in 16 as long as the page has at most 8 MB.
        title: of the page; by default the model's name.
        max_mb: the largest page to make, in megabytes.
        device: where to run.
        dtype: in which precision.
        progress: with ``ablate`` and of a long text, called again and again with a stage, how much
            is done and how much there is.

    Returns:
        A page with ``save("page.html")``; notebooks show it.

    Raises:
        UsageError: options that make no sense together.
        SelectionError: no such heads, or a capture that does not hold any of them.
        InputError: the page would be larger than ``max_mb``, weights that are not finite, or two
            runs of other texts and other heads.
    """
    from attnviz.features.view import page as viewer

    loaded = alone(what, model, top, device, dtype, {"rows": rows, "keys": keys})
    if loaded.inputs is not None:
        others = {"against": against, "why": why, "evidence": evidence, "ablate": ablate or None}
        check_long(loaded.inputs, others)
        return long_view(
            loaded.model,
            loaded.inputs,
            select=select,
            without=without,
            weigh=weigh,
            title=title,
            max_mb=max_mb,
            top=top,
            rows=rows,
            keys=keys,
            progress=progress,
        )
    if top is not None and not isinstance(loaded.model, str | Path | FreshConfig):
        select = strongest(what := list(looks_of(what)), loaded.model, top, select)
    if against is not None and (ablate or evidence is not None):
        raise UsageError("{against} shows two runs, and evidence is of one model: make a page of "
                         "each", against=...)  # fmt: skip
    given, least_bits = read_evidence(evidence), 16 if exact else 8
    ready, least = [], 0
    options = LookOptions(select, without, weigh, why, origins=why is not None)
    source: Source | None = None
    if ablate and against is None:
        source = _ablated(what := list(looks_of(what)), model, without, device, dtype)
    look = partial(prepare, device=device, dtype=dtype)
    for one in _runs(what, against, source or loaded.model, options, look):
        least += viewer.least(one.inputs, one.heads, least_bits)
        _check_page(least, max_mb)
        ready.append(one)
    several = [one.capture() for one in ready]
    looked = [
        one.weights() if one.weights else held for one, held in zip(ready, several, strict=True)
    ]
    heads = [_held(capture, select) for capture in several]
    second = [number for number, one in enumerate(ready) if one.weights]
    size = partial(
        viewer.estimate,
        looked + [several[number] for number in second],
        heads + [heads[number] for number in second],
    )
    fine = exact if exact is not None else size(16) <= min(EXACT_PAGE_MB, max_mb) * 1e6
    bits = 16 if fine else 8
    _check_page(size(bits), max_mb)
    scores, said = [], dict[str, None]()
    if source is not None:
        report = _effects(source, [one.inputs for one in ready], progress)
        said |= dict.fromkeys(report.notes)
        effects = replace(report, identity=identity(model))
        given = (Attached("these texts", effects), *given)
    findings: tuple[Finding, ...] = ()
    for one, held in zip(ready, looked, strict=True):
        known = {} if one.held or not given else identity(model)
        own = score_capture(held).result()
        both, more, findings = attach(given, own, held.source, held.layout, known)
        scores.append(both)
        said |= dict.fromkeys(more)
    written = [
        (several[number], score_capture(several[number]).result()) if number in second else None
        for number in range(len(several))
    ]
    names = [capture.source.model for capture in several]
    if against is not None:
        names = _run_names(names, without)
        said |= dict.fromkeys(_unlike(several, names, ready[1].held))
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
        runs=() if against is None else _told_apart(names),
    )
    return Viewer(page, title, tuple(several), tuple(said))


def _alike(
    captures: Sequence[Capture], heads: Sequence[frozenset[Head]], runs: int
) -> list[Mapping[SiteKind, Alike]]:
    """How alike heads are in each of the runs, which take turns."""
    from attnviz.features.profile.alike import alike

    found = [alike(captures[run::runs], heads[run::runs]) for run in range(runs)]
    return [one for together in zip(*found, strict=True) for one in together]


def _runs(
    what: Look | Iterable[Look],
    against: Against | None,
    model: Model,
    options: LookOptions,
    look: Callable[..., Iterator[Ready]],
) -> Iterator[Ready]:
    """What a page shows: every text, and behind it the other run of it, if there is one."""
    if against is None:
        yield from look(what, model=model, options=options)
        return
    looks = list(looks_of(what))
    whole = replace(options, without=None)
    if isinstance(against, str | Path):
        path = Path(against)
        if path.suffix.lower() in recorded.SUFFIXES:
            against = recorded.load(path)
        elif os.path.isfile(path):
            raise ModelError("{} is a file; {against} takes the folder of a model, or a capture "
                             "(.npz, .safetensors)", path, against=...)  # fmt: skip
    if isinstance(against, Capture):
        if len(looks) != 1:
            raise UsageError("a capture is compared with a single text or capture, not with {}; "
                             "give {against} a model", len(looks), against=...)  # fmt: skip
        yield from look(looks, model=model, options=options)
        yield from look(against, model=model, options=whole)
        return
    if any(isinstance(one, Capture) for one in looks):
        raise UsageError(
            "only texts can be run through two models; give {against} the other capture",
            against=...,
        )
    find(model, against)
    both = (
        look(looks, model=model, options=options),
        look(looks, model=against, options=whole),
    )
    for pair in zip(*both, strict=True):
        yield from pair


def _run_names(models: Sequence[str], without: str | None) -> list[str]:
    """What the runs of every text are called: the model of each, the first without its heads."""
    if without is None:
        return list(models)
    return [name if n % 2 else f"{name} without {without}" for n, name in enumerate(models)]


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """What tells the two runs of every text apart: their names, or else their order."""
    same = any(one == other for one, other in zip(names[::2], names[1::2], strict=True))
    return ("first run", "second run") * (len(names) // 2) if same else tuple(names)


def _unlike(captures: Sequence[Capture], names: Sequence[str], held: bool) -> Iterator[str]:
    """What two runs have not in common, in sentences; InputError where that is everything.

    Args:
        captures: the runs, which take turns.
        names: of the runs.
        held: whether the other run is a capture; else its texts are those of the first.
    """
    for number in range(0, len(captures), 2):
        one, other = captures[number : number + 2]
        texts = held and _other_text(one.inputs, other.inputs)
        layouts = [list(capture.layout.heads.values()) for capture in (one, other)]
        if layouts[0] == layouts[1]:
            if texts:
                yield ("The two runs are of different texts: only what they have in common is "
                       "compared.")  # fmt: skip
            continue
        sizes = [
            f"{name} has {counted(len(capture.layout), 'head')} in "
            f"{counted(sum(map(len, layers)), 'layer')}"
            for name, capture, layers in zip(names[number:], (one, other), layouts, strict=False)
        ]
        said = " and ".join(sizes)
        if texts:
            raise InputError("{}, and their texts differ; give {against} a run of the same text or "
                             "of the same heads", said, against=...)  # fmt: skip
        yield (f"{said}: heads of the same number stand side by side, which need not do the same, "
               "and those of one run alone have no counterpart.")  # fmt: skip


def _other_text(one: Inputs, other: Inputs) -> bool:
    """Whether two runs are of different texts: as typed, or else as their tokens spell them."""
    if one.texts and other.texts:
        return one.texts != other.texts
    return _spelled(one) != _spelled(other)


def _spelled(inputs: Inputs) -> set[str]:
    """The letters and digits of each side, which tokens of any model spell alike."""
    sides = [tokens for both in inputs.sides.values() for tokens in (both.queries, both.keys)]
    texts = (
        "".join(text for text, special in zip(one.texts, one.special, strict=True) if not special)
        for one in sides
    )
    plain = (unicodedata.normalize("NFKD", text).casefold() for text in texts)
    return {"".join(filter(str.isalnum, text)) for text in plain}


def _ablated(
    what: Sequence[Look], model: Model, without: str | None, device: str, dtype: str
) -> Source:
    """The model whose heads are to be ablated."""
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


def _effects(source: Source, texts: Sequence[Inputs], progress: Progress | None) -> Ablation:
    """What it costs to take every head of a model away."""
    alone = len(texts) == 1 and (bool(texts[0].features) or not texts[0].texts)  # no sentences fit
    method = "zero" if alone else METHODS
    settings = AblationSettings(method=method, gradient=not source.no_logits)
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
    held = frozenset(head for head in chosen if capture.holds(head))
    if not held:
        what = text or "any head"
        raise SelectionError(
            f"the capture holds no map of {what}; capture it again with a selection that does"
        )
    return held
