"""Pages of captures: every head of some texts, and of two runs of them."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from attnviz.captures.captured import Captured
from attnviz.captures.inputs import (
    LONG,
    Input,
    Ready,
    check_part,
    expected,
    is_long,
    looks_of,
    prepare,
    prompt_of,
    scored,
    source_for,
    tiled,
)
from attnviz.captures.loading import Model, find
from attnviz.captures.settings import Attaching, KeptSettings, ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, SiteKind
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.provenance import Made
from attnviz.core.quantities import check_unsigned
from attnviz.core.result import Finding
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.drawing.labels import counted
from attnviz.errors import InputError, ModelError, SelectionError, Setting, UsageError
from attnviz.features.ablation.result import Ablation
from attnviz.features.ablation.settings import METHODS, AblationSettings
from attnviz.features.profile.result import Alike
from attnviz.features.results import Attached, attach, read_evidence
from attnviz.features.view import document
from attnviz.features.view import page as viewer
from attnviz.features.view.long.page import LARGEST_TEXT, kept_weights, page
from attnviz.features.view.result import Viewer
from attnviz.features.view.settings import ViewSettings
from attnviz.models import recorded
from attnviz.scoring import select as selection
from attnviz.scoring.observe import score_capture
from attnviz.scoring.select import arrange
from attnviz.web import PageSettings


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, loaded if that was needed to see how long a text is; its tokens if it is long."""

    model: ModelSettings
    inputs: Inputs | None = None


def alone(text: Input | Iterable[Input], model: ModelSettings, settings: ViewSettings) -> Loaded:
    """See whether there is a single text, and a long one, or a part of one is wanted.

    The model is loaded where its heads are to be chosen.
    """
    heads = expected(settings.but(select=settings.heads), settings.why)
    part = next((name for name in ("rows", "keys") if getattr(settings, name) is not None), None)
    several = text if isinstance(text, list | tuple) else [text]
    if settings.clearest is not None:
        held = any(isinstance(item, Capture) for item in several)
        model = ModelSettings(model=model.load(heads=None if held else heads))
    prompt = several[0] if len(several) == 1 else None
    prompt = prompt_of(prompt) if isinstance(prompt, str | Prompt) else None
    if prompt is None or prompt.image is not None or prompt.audio is not None:
        if part is not None:
            raise UsageError(
                "{} shows a part of one text that a model runs; give a single text, or draw the "
                "part with attnviz heatmap",
                Setting(part),
            )
        return Loaded(model)
    check_part(settings.rows, settings.keys, prompt)
    size = len(prompt.ids or "".join(prompt.texts))
    continued = prompt.chat is not None or prompt.generate is not None
    if part is None and not continued and size <= LONG:
        return Loaded(model)
    source = source_for(prompt, model, heads)
    inputs = replace(source.prepare(prompt), texts=prompt.texts)
    return Loaded(
        ModelSettings(model=source), inputs if part is not None or is_long(inputs) else None
    )


def check_long(inputs: Inputs, options: Mapping[str, object]) -> None:
    """Refuse what needs whole maps, UsageError; ``options`` are parameters by name."""
    for name, value in options.items():
        if value is not None:
            if not is_long(inputs):
                raise UsageError(
                    "a part of a text is shown as tiles, which go without {}; leave it out",
                    Setting(name),
                )
            raise UsageError(
                "a text of {:,} tokens is shown as tiles, which go without {}; shorten it",
                inputs.length,
                Setting(name),
            )


def strongest(
    texts: Sequence[Input | Inputs], source: Source, count: int, select: str | None
) -> str:
    """Return the heads that do something, the strongest evidence first, as a selection."""
    first = texts[0]
    inputs = first if isinstance(first, Capture | Inputs) else source.prepare(prompt_of(first))
    layout = first.layout if isinstance(first, Capture) else source.layout
    chosen = frozenset(layout if select is None else selection.select(select, layout))
    among = [scores for scores in scored(inputs, source) if scores.head in chosen]
    return ", ".join(scores.head.qualified for scores in best(among, count))


def best(scored: Sequence[HeadScores], count: int) -> tuple[HeadScores, ...]:
    """Return the heads with the strongest evidence, those that only rest last."""
    doing = arrange(scored, sort="score", top=count)
    if len(doing) == count:
        return doing
    return (*doing, *[head for head in scored if head not in doing][: count - len(doing)])


ACROSS = 128
"""Tiles along an axis, at most; of a part of a text more, where the page has room."""
_TILE = 1.6  # about the bytes of a tile in a page: two codes, half of them deflated, in base64
_MB = 20.0  # megabytes of a page, about, unless fewer are allowed


def long_view(
    source: Source,
    inputs: Inputs,
    settings: ViewSettings,
    page_settings: PageSettings,
    made: Callable[[str], Made],
    progress: Progress | None = None,
) -> Viewer:
    """Put the heads of a long text, or of a part of one, into one page."""
    max_mb, select = page_settings.max_mb, settings.heads
    if inputs.length > LARGEST_TEXT:
        raise InputError(
            "a page holds {:,} tokens at most, and the text has {:,}; shorten it",
            LARGEST_TEXT,
            inputs.length,
        )

    cut = settings.rows is not None or settings.keys is not None

    def sizes(heads: int, rows: int, keys: int) -> tuple[int, int]:
        budget, size = min(_MB, max_mb) * 0.9e6, 1

        def room() -> float:
            return budget - heads * -(-rows // size) * -(-keys // size) * _TILE - 12 * rows

        while size * ACROSS < max(rows, keys) and not (cut and room() > budget / 2):
            size *= 2
        if room() < heads * rows:
            raise InputError(
                "the page would take more than {:g} MB; select fewer heads, shorten the text, or "
                "raise {max_mb}",
                max_mb,
                max_mb=...,
            )
        return size, kept_weights(heads, rows, room())

    if settings.clearest is not None:
        select = strongest([inputs], source, settings.clearest, select)
    tiles, layout = tiled(
        source,
        inputs,
        sizes,
        select=select,
        off=settings.without,
        quantity=settings.quantity,
        rows=settings.rows,
        keys=settings.keys,
        progress=progress,
    )
    title = page_settings.title or f"Attention of {tiles.source.model}"
    held = Captured(tiles.source, layout, tiles.inputs, {}, tiles.empty_rows, {}, settings.quantity)
    return Viewer(page(tiles, layout, title=title, made=made(tiles.source.model)), title, (held,))


OtherRun = Model | Capture
"""The other run of a page: a model, or a capture or its file."""

EXACT_PAGE_MB = 8.0
"""Pages up to this size have weights in 16 bits, unless it is said otherwise."""


@interface
def view(
    text: Input | Iterable[Input],
    *,
    settings: ViewSettings,
    attaching: Attaching,
    page: PageSettings,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Viewer:
    """Put every head of one or several texts into one page that explains itself.

    Several texts get a picker in the page. With ``other_model`` every text is followed by its other
    run, and the page opens with both side by side, so that
    ``view(text, without="1.4", other_model="gpt2", model="gpt2")`` has the model without the head
    beside the model as it is. What the runs have not in common, heads or texts, the page says;
    where they have neither, there is no page. With ``quantity="norm"`` the page has the weights as
    well.

    Args:
        text: a capture, or a text or prompt to run, or several.
        progress: with ``ablate`` and of a long text, called again and again with a stage, how much
            is done and how much there is.

    Returns:
        A page with ``save("page.html")``; notebooks show it.

    Raises:
        UsageError: options that make no sense together, or a page larger than ``max_mb``.
        SelectionError: no such heads, or a capture that does not hold any of them.
        InputError: weights that are not finite, or two runs of other texts and other heads.
    """
    other, ablate, max_mb = settings.other_model, settings.ablate, page.max_mb
    evidence, ablated = attaching.evidence, settings.without
    loaded = alone(text, named := model, settings)
    if loaded.inputs is not None:
        options = {"other_model": other, "why": settings.why, "evidence": evidence,
                  "ablate": ablate or None, "mean": settings.mean}  # fmt: skip
        check_long(loaded.inputs, options)
        return long_view(
            loaded.model.load(), loaded.inputs, settings, page,
            partial(Made.now, identity=named.identity), progress,
        )  # fmt: skip
    model, select = loaded.model, settings.heads
    if settings.clearest is not None:
        select = strongest(text := list(looks_of(text)), model.load(), settings.clearest, select)
    if other is not None and evidence is not None:
        raise UsageError("{other_model} shows two runs, and {evidence} is of one model: make a "
                         "page of each", other_model=..., evidence=...)  # fmt: skip
    results, least_bits = read_evidence(evidence), page.bits or 8
    ready, least = [], 0
    maps = _options(settings, select, results)
    source: Source | None = None
    if ablate:
        source = _ablated(text := list(looks_of(text)), model)
    running = model if source is None else model.but(model=source)
    for run in _runs(text, other, running, maps):
        least += viewer.least(run.inputs, run.heads, least_bits)
        _check_page(least, max_mb)
        ready.append(run)
    several = [run.capture() for run in ready]
    looked = [
        run.weights() if run.weights else held for run, held in zip(ready, several, strict=True)
    ]
    heads = [_held(capture, None if settings.mean else select) for capture in several]
    second = [number for number, run in enumerate(ready) if run.weights]
    size = partial(
        viewer.estimate,
        looked + [several[number] for number in second],
        heads + [heads[number] for number in second],
    )
    bits = page.bits or (16 if size(16) <= min(EXACT_PAGE_MB, max_mb) * 1e6 else 8)
    _check_page(size(bits), max_mb)
    scores, notes = [], dict[str, None]()
    if source is not None:
        ablation_result = _effects(source, [run.inputs for run in ready], progress)
        notes |= dict.fromkeys(ablation_result.notes)
        effects = replace(ablation_result, identity=model.identity)
        results = (Attached("these texts", effects), *results)
    findings: tuple[Finding, ...] = ()
    for run, held in zip(ready, looked, strict=True):
        identity = {} if run.held or not results else model.identity
        plain = _scored(held)
        annotated, remarks, findings = attach(results, plain, held.source, held.layout, identity)
        scores.append(annotated)
        notes |= dict.fromkeys(remarks)
    second_scores = [
        (several[number], _scored(several[number])) if number in second else None
        for number in range(len(several))
    ]
    names = [capture.source.model for capture in several]
    if other is not None:
        if ablated is not None:
            names[::2] = [f"{name} without {ablated}" for name in names[::2]]
        notes |= dict.fromkeys(_unlike(several, names, ready[1].held))
    models = dict.fromkeys(names[: 1 if other is None else 2])
    title = page.title or f"Attention of {' and '.join(models)}"
    html = viewer.page(
        *document.document(
            looked,
            scores,
            heads,
            second_scores,
            title=title,
            bits=bits,
            notes=tuple(notes),
            alike=_alike(looked, heads, 1 if other is None else 2),
            findings=findings,
            runs=() if other is None else _told_apart(names),
        ),
        viewer.still_overview(looked[0], scores[0], heads[0], tuple(notes)),
        title=title,
        made=Made.now(*models, identity={} if any(run.held for run in ready) else named.identity),
    )
    return Viewer(html, title, tuple(several), tuple(notes))


def _options(
    settings: ViewSettings, select: str | None, results: Sequence[Attached]
) -> KeptSettings:
    """How texts are looked at; UsageError for results on single heads beside means."""
    if settings.mean is not None and results:
        raise UsageError("{evidence} is of single heads; leave out {mean}", evidence=..., mean=...)
    return KeptSettings(
        select, settings.without, settings.quantity, why=settings.why, mean=settings.mean,
        origins=settings.why is not None,
    )  # fmt: skip


def _scored(capture: Capture) -> Sequence[HeadScores]:
    """Return the scores of a capture's heads; of means, none."""
    if not capture.layout.mean:
        return score_capture(capture).result()
    return [HeadScores(head, {}, ()) for head in capture.layout if capture.holds(head)]


def _alike(
    captures: Sequence[Capture], heads: Sequence[frozenset[Head]], runs: int
) -> list[Mapping[SiteKind, Alike]]:
    """How alike heads are in each of the runs, which take turns."""
    from attnviz.features.profile.likeness import alike

    by_run = [alike(captures[run::runs], heads[run::runs]) for run in range(runs)]
    return [planes for pair in zip(*by_run, strict=True) for planes in pair]


def _runs(
    text: Input | Iterable[Input], other: OtherRun | None, model: ModelSettings, maps: KeptSettings
) -> Iterator[Ready]:
    """Yield what a page shows: every text, and behind it the other run of it, if there is one."""
    check_unsigned(maps.quantity, "the page")
    if other is None:
        yield from prepare(text, model=model, maps=maps)
        return
    texts = list(looks_of(text))
    unablated = maps.but(without=None)
    if isinstance(other, str | Path):
        path = Path(other)
        if path.suffix.lower() in recorded.SUFFIXES:
            other = recorded.load(path)
        elif os.path.isfile(path):
            raise ModelError("{} is a file; {other_model} takes the folder of a model, or a "
                             "capture (.npz, .safetensors)", path, other_model=...)  # fmt: skip
    if isinstance(other, Capture):
        if len(texts) != 1:
            raise UsageError("a capture is compared with a single text or capture, not with {}; "
                             "give {other_model} a model", len(texts), other_model=...)  # fmt: skip
        yield from prepare(texts, model=model, maps=maps)
        yield from prepare(other, model=model, maps=unablated)
        return
    if any(isinstance(text, Capture) for text in texts):
        raise UsageError(
            "only texts can be run through two models; give {other_model} the other capture",
            other_model=...,
        )
    find(model.model, other)
    runs = (
        prepare(texts, model=model, maps=maps),
        prepare(texts, model=model.but(model=other), maps=unablated),
    )
    for pair in zip(*runs, strict=True):
        yield from pair


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Return what tells the two runs of every text apart: their names, or else their order."""
    alike = any(name == second for name, second in zip(names[::2], names[1::2], strict=True))
    return ("first run", "second run") * (len(names) // 2) if alike else tuple(names)


def _unlike(captures: Sequence[Capture], names: Sequence[str], held: bool) -> Iterator[str]:
    """Yield what two runs have not in common, in sentences; InputError where that is everything."""
    for number in range(0, len(captures), 2):
        first, second = captures[number : number + 2]
        texts = held and _other_text(first.inputs, second.inputs)
        layouts = [list(capture.layout.heads.values()) for capture in (first, second)]
        if layouts[0] == layouts[1]:
            if texts:
                yield ("The two runs are of different texts: only what they have in common is "
                       "compared.")  # fmt: skip
            continue
        sizes = [
            f"{name} has {counted(len(capture.layout), 'head')} in "
            f"{counted(sum(map(len, layers)), 'layer')}"
            for name, capture, layers in zip(names[number:], (first, second), layouts, strict=False)
        ]
        text = " and ".join(sizes)
        if texts:
            raise InputError("{}, and their texts differ; give {other_model} a run of the same "
                             "text or of the same heads", text, other_model=...)  # fmt: skip
        yield (f"{text}: heads of the same number stand side by side, which need not do the same, "
               "and those of one run alone have no counterpart.")  # fmt: skip


def _other_text(first: Inputs, second: Inputs) -> bool:
    """Whether two runs are of different texts: as typed, or else as their tokens spell them."""
    if first.texts and second.texts:
        return first.texts != second.texts
    return _spelled(first) != _spelled(second)


def _spelled(inputs: Inputs) -> set[str]:
    """Return the letters and digits of each side, which tokens of any model spell alike."""
    sides = [tokens for pair in inputs.sides.values() for tokens in (pair.queries, pair.keys)]
    texts = (
        "".join(text for text, special in zip(side.texts, side.special, strict=True) if not special)
        for side in sides
    )
    plain = (unicodedata.normalize("NFKD", text).casefold() for text in texts)
    return {"".join(filter(str.isalnum, text)) for text in plain}


def _ablated(texts: Sequence[Input], model: ModelSettings) -> Source:
    """Return the model whose heads are to be ablated."""
    prompts = [text for text in texts if not isinstance(text, Capture)]
    if len(prompts) < len(texts) or not prompts:
        raise UsageError(
            "{ablate} needs the model itself; give texts, not recorded attention", ablate=True
        )
    return source_for(prompt_of(prompts[0]), model)


def _effects(source: Source, texts: Sequence[Inputs], progress: Progress | None) -> Ablation:
    """Return what it costs to take every head of a model away."""
    from attnviz.features.ablation import run as ablation

    single = len(texts) == 1 and (bool(texts[0].features) or not texts[0].texts)  # no sentences fit
    method = "zero" if single else METHODS
    settings = AblationSettings(method=method, estimate=None if source.no_logits else "plain")
    no_progress: Progress = lambda stage, done, all_: None  # noqa: E731
    return ablation.run(ablation.Study(source, texts, settings, progress=progress or no_progress))


def _check_page(size: float, max_mb: float) -> None:
    """Refuse a page of more bytes than are wanted."""
    if size > max_mb * 1e6:
        raise UsageError(
            "the page would take about {:.1f} MB or more, and {:g} MB is the limit",
            size / 1e6,
            max_mb,
            remedy="select fewer heads or layers, shorten the text, or raise {max_mb}",
            max_mb=...,
        )


def _held(capture: Capture, text: str | None) -> frozenset[Head]:
    """Return the selected heads whose maps a capture holds; all that it holds by default."""
    chosen = capture.layout if text is None else selection.select(text, capture.layout)
    held = frozenset(head for head in chosen if capture.holds(head))
    if not held:
        heads = text or "any head"
        raise SelectionError(
            f"the capture holds no map of {heads}; capture it again with a selection that does"
        )
    return held
