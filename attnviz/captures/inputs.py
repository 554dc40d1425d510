"""From what a caller has, a text, a prompt or attention, and a model's name, to captures.

A long text becomes maps as tiles, in one pass and without a whole map in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from warnings import warn

from attnviz.captures.captured import Asked, Captured, asked, captured, check_terms, only
from attnviz.captures.loading import light, observed
from attnviz.captures.settings import HeadsCheck, KeptSettings, MapSettings, ModelSettings
from attnviz.core.capture import Capture, Tiled
from attnviz.core.heads import Head, Layout
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.quantities import quantity_named
from attnviz.core.result import Result
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import Observer, Source
from attnviz.core.spans import (
    Span,
    box_of,
    found_in,
    no_picture,
    no_span,
    places,
    ranges_of,
    span_query,
)
from attnviz.core.tokens import Tokens
from attnviz.errors import AttnvizWarning, FileNameWarning, InputError, Setting, UsageError
from attnviz.files import human_bytes, like_a_file
from attnviz.models.controls import FreshConfig
from attnviz.models.limits import beyond
from attnviz.models.norm_based import with_quantity
from attnviz.scoring import select as selection
from attnviz.scoring.observe import Recorder, ScoreObserver, score_batch, score_capture
from attnviz.scoring.select import check_groups, leading

_ANY = sys.maxsize  # more tokens than a text has


def check_spans(prompt: Prompt) -> None:
    """Look whether the named parts of a text are in it, before a model cuts it into tokens."""
    for name, text in (prompt.spans or {}).items():
        query = span_query(name, text)
        if query.kind == "box":
            box_of(query)
            if prompt.image is None:
                raise no_picture(name)
        elif query.kind in ("tokens", "chars"):
            ranges_of(query)
        elif prompt.text is not None and prompt.generate is None:
            found_in(query, prompt.text)


def known_spans(inputs: Iterable[str | Prompt | Capture]) -> tuple[str, ...] | None:
    """List the spans' names of some texts; None where a model tells them, or attention holds them.

    The messages of a chat and what a model writes are spans too.
    """
    names: dict[str, None] = {}
    for item in inputs:
        if isinstance(item, str):
            continue
        if isinstance(item, Capture) or item.text is None or item.generate is not None:
            return None
        names |= dict.fromkeys(item.spans or ())
    return tuple(names)


def check_part(rows: str | None, keys: str | None, prompt: Prompt) -> None:
    """Look whether the rows and keys of a part can be meant, before a model cuts a text."""
    names = known_spans([prompt])
    if names is not None:
        spans = [Span(name, ()) for name in names]
        for axis, request in (("rows", rows), ("keys", keys)):
            if request is not None:
                places(request, spans, _ANY, axis)


def check_span(name: str, prompts: Iterable[Prompt]) -> None:
    """Look whether any of some texts has a span of that name, where their spans are all known."""
    existing = known_spans(prompts)
    if existing is not None and name not in existing:
        raise no_span(name, existing)


@interface
def select(text: str, where: Capture | Result | Source) -> tuple[Head, ...]:
    """Return the heads that a selection means.

    Args:
        text: such as ``"4.11, 5.*"``.
        where: whose heads.

    Raises:
        SelectionError: it is junk, or names heads that are not there.
    """
    if not hasattr(where, "layout"):
        raise UsageError("{where} takes a capture, a report or a model, not {!r}", where, where=...)
    return selection.select(text, where.layout)


def scored(text: Capture | Inputs, source: Source | None = None) -> tuple[HeadScores, ...]:
    """Return what every head does with a text, or every one that a capture holds."""
    if isinstance(text, Capture):
        return tuple(score_capture(text).result())
    assert source is not None, "tokens are run by a model"
    observer = score_batch(light(source), [text])
    return tuple(observer.result())


def clearest(text: Capture | Inputs, source: Source | None = None) -> str:
    """Select the head with the clearest evidence for what it does; see :func:`scored`."""
    return min(scored(text, source), key=leading).head.qualified


LARGE = 2 << 30
"""Bytes of maps from which a capture is preceded by a warning."""

NO_MODEL = "cannot be ablated, since that needs the model"
"""What is said of recorded attention that is to be ablated."""

Input = str | Prompt | Capture
"""What can be looked at: a text or a prompt to run, or attention that is there already."""


def source_for(prompt: Prompt, model: ModelSettings, heads: HeadsCheck | None = None) -> Source:
    """Return the loaded model; two sentences get a fresh layer cross-attention."""
    if prompt.pair is not None and model.model == "fresh":
        model = model.but(model=FreshConfig(kind="cross"))
    return model.load(heads=heads, reads="text" if prompt.image is None else "image")


def _own(text: str) -> str:
    """Return a text; one that is the name of a file is warned of."""
    if like_a_file(text):
        exists = os.path.isfile(text)
        ways = "to analyze that file, pass what it holds" if exists else "there is no such file"
        warn(f"{text} is taken as the text itself; {ways}", FileNameWarning, stacklevel=3)
    return text


def looks_of(inputs: Input | Iterable[Input]) -> Iterable[Input]:
    """One look, or several, as they come."""
    return [inputs] if isinstance(inputs, Input) or not isinstance(inputs, Iterable) else inputs


def prompt_of(text: str | Prompt) -> Prompt:
    """Return what a model is to run; a text that is the name of a file is warned of."""
    if not isinstance(text, str | Prompt):
        raise UsageError(
            "a text, a Prompt or a Capture is needed here, not {}; pass several one at a time",
            _kind(text),
        )
    prompt = Prompt(_own(text)) if isinstance(text, str) else text
    if prompt.image is not None and prompt.audio is not None:
        raise UsageError("give either {image} or {audio}", image=..., audio=...)
    typed = sum(field is not None for field in (prompt.text, prompt.ids, prompt.chat))
    if typed > 1 or not (typed or prompt.files):
        raise UsageError("give either a text, token ids or the messages of a chat")
    for name in ("text", "pair", "target"):
        value = getattr(prompt, name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise UsageError("the {} must be a string, not {}", name, _kind(value))
        if not value.strip():
            raise InputError(f"the {name} is empty; give at least one word")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"the {name} is not valid UTF-8; save it as UTF-8") from None
    if prompt.ids is not None and not prompt.ids:
        raise InputError("the list of ids is empty; give at least one")
    for file in prompt.files:
        from attnviz.models.containers import check_file

        check_file(file)
    check_spans(prompt)
    return prompt


@interface
def capture(
    text: Input,
    *,
    tokenizer: Any = None,
    pair: str | None = None,
    target: str | None = None,
    truncate: bool = False,
    maps: KeptSettings,
    model: ModelSettings,
) -> Capture:
    """Run a text through a model and keep its attention maps.

    Args:
        text: the text, or a whole :class:`Prompt`; a capture is given back as it is.
        tokenizer: of a transformers model in memory.
        pair: a second sentence, for models with segments.
        target: the decoder's text, for encoder-decoder models.
        truncate: cut a text that is too long for the model; what was cut is noted.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    why = maps.why
    if why is not None and maps.quantity != "weights":
        raise UsageError(
            "{why} is about weights; leave out {quantity}", why=..., quantity=maps.quantity
        )
    if isinstance(text, str):
        text = Prompt(_own(text), pair=pair, target=target, truncate=truncate)
    if tokenizer is not None:
        model = ModelSettings(model=model.load(tokenizer=tokenizer))
    if why is not None and (maps.words or maps.mean):
        raise UsageError("{why} is about weights of single tokens; leave out {}",
                         Setting("words" if maps.words else "mean"), why=...)  # fmt: skip
    (held,) = captures([text], model=model, maps=maps)
    return held


def expected(
    maps: MapSettings, why: str | None = None, *, annotated: bool = False
) -> HeadsCheck | None:
    """Check heads of a layout that is known before a model is; None where none is named."""
    quantity_named(maps.quantity)
    if maps.select is maps.without is why is None:
        return None
    return partial(_check_heads, maps, why, annotated=annotated)


def _check_heads(maps: MapSettings, why: str | None, layout: Layout, *, annotated: bool) -> None:
    """Refuse, before anything runs, heads that a model does not have."""
    if maps.without is not None:
        check_groups(maps.without, layout, annotated=annotated)
    quantity = quantity_named(maps.quantity)
    if quantity.layers or quantity.states:  # whose heads are of other layers
        return
    chosen = layout if maps.select is None else selection.select(maps.select, layout)
    asked(why, frozenset(chosen), layout)


def captures(
    inputs: Input | Iterable[Input],
    *,
    model: ModelSettings = ModelSettings(),
    maps: KeptSettings | None = None,
    beside: Sequence[Observer] = (),
) -> tuple[Capture, ...]:
    """Capture one text or several, with the model loaded once; arguments as for :func:`capture`.

    ``beside`` watches the same passes.
    """
    ready = prepare(inputs, model=model, maps=maps, beside=beside)
    return tuple(prepared.capture() for prepared in list(ready))


@dataclass(frozen=True, eq=False, slots=True)
class Ready:
    """What can be captured at once: a prompt that a model has prepared, or a capture itself."""

    inputs: Inputs  # the tokens
    layout: Layout  # the heads there are; ``heads`` those to keep
    heads: frozenset[Head]
    capture: Callable[[], Capture]  # runs the model, or gives the capture
    # runs the model for the weights of the same heads, where the capture has what these write; None
    # elsewhere
    weights: Callable[[], Capture] | None = None
    held: bool = False  # whether it is a capture that was given


def prepare(
    inputs: Input | Iterable[Input],
    *,
    model: ModelSettings = ModelSettings(),
    maps: KeptSettings | None = None,
    beside: Sequence[Observer] = (),
) -> Iterator[Ready]:
    """Everything but the work of :func:`captures`, one by one; arguments as there."""
    maps = maps or KeptSettings()
    source: Source | None = None
    number = needed = 0
    for number, item in enumerate(looks_of(inputs), 1):
        if isinstance(item, Capture):
            check_whole(maps.without)
            check_quantity(item, maps.quantity)
            check_terms(item, maps.why)
            yield _derived(_captured(item, maps.select), maps)
            continue
        prompt = prompt_of(item)
        if source is None:
            source = light(source_for(prompt, model, expected(maps, maps.why)))
        ready = _prepared(prompt, source, maps, Asked(prompt, model, maps.without), beside)
        previous, needed = needed, needed + sum(_bytes(ready, head) for head in ready.heads)
        of = f"{ready.inputs.length:,} tokens" if number == 1 else f"{number} texts or more"
        what_for = f"the maps of {len(ready.heads)} heads on {of} take {human_bytes(needed)}"
        if over := beyond(needed):
            raise InputError(
                f"{what_for}, {over}; select fewer heads, or score them without keeping maps "
                "(attnviz heads)"
            )
        if previous < LARGE <= needed:
            warn(f"{what_for}; select fewer heads to need less", AttnvizWarning, stacklevel=2)
        yield _derived(ready, maps)
    if not number:
        raise UsageError("there is nothing to look at; give at least one text or capture")


def _derived(ready: Ready, maps: KeptSettings) -> Ready:
    """Return the same with words in place of tokens, and means in place of heads, as asked."""
    words, mean = maps.words, maps.mean
    if not words and mean is None:
        return ready
    from attnviz.scoring.merged import capture_in_words, mean_capture, mean_layout

    def change(run: Callable[[], Capture]) -> Capture:
        held = run()
        if ready.held and maps.select is not None:
            held = only(held, ready.heads)
        held = captured(capture_in_words(held) if words else held)
        return held if mean is None else captured(mean_capture(held, mean))

    layout, heads = ready.layout, ready.heads
    if mean is not None:
        layout, heads = mean_layout(layout, heads, mean)
    weights = None if ready.weights is None else partial(change, ready.weights)
    return replace(
        ready, layout=layout, heads=heads, capture=partial(change, ready.capture), weights=weights
    )


def _captured(capture: Capture, select: str | None) -> Ready:
    chosen = capture.layout if select is None else selection.select(select, capture.layout)
    heads = frozenset(head for head in chosen if capture.holds(head))
    return Ready(capture.inputs, capture.layout, heads, capture.finite, held=True)


def _prepared(
    prompt: Prompt,
    source: Source,
    maps: KeptSettings,
    made_of: Asked,
    beside: Sequence[Observer] = (),
) -> Ready:
    select, quantity = maps.select, maps.quantity
    viewed = with_quantity(source, quantity, shares=False)
    layout = viewed.layout
    heads = frozenset(layout if select is None else selection.select(select, layout))
    explained = asked(maps.why, heads, layout)
    inputs = source.prepare(prompt)
    texts = prompt.texts
    if inputs.output:
        texts = (*texts[:-1], f"{''.join(texts[-1:])} | {inputs.output.strip()}")
    inputs = replace(inputs, texts=texts)

    def run(viewed: Source, quantity: str) -> Capture:
        recorder = Recorder([inputs], heads)
        traced = explained if quantity == "weights" else ()
        opening: list[QKRecorder] = []
        if traced:
            from attnviz.models.decomposition import QKRecorder

            opening = [QKRecorder(source, inputs, traced)]
        noted = observed(
            source, inputs, recorder, *opening, *beside, off=maps.without, viewed=viewed,
            terms=bool(opening),
        )  # fmt: skip
        held, empty, reach = recorder.maps(), recorder.empty_rows(), recorder.reach()
        terms = opening[0].result() if opening else {}
        if maps.origins and opening and maps.without is None:
            from attnviz.models.decomposition import with_origins

            terms = with_origins(source, noted, terms)
        return Captured(
            source.info, layout, noted, held, empty, reach, quantity, terms, recorder.listed,
            asked=None if getattr(source, "standing", False) else made_of,
        )  # fmt: skip

    normed = quantity != "weights" and not layout.whole and not quantity_named(quantity).signed
    weights = None if not normed else partial(run, source, "weights")
    return Ready(inputs, layout, heads, partial(run, viewed, quantity), weights)


def _bytes(ready: Ready, head: Head) -> int:
    """Return what the map of a head takes, in float32."""
    sides = ready.inputs.sides[head.site.kind]
    return 4 * len(sides.queries) * len(sides.keys)


def check_whole(ablated: str | None) -> None:
    """UsageError where heads should be ablated in attention that is recorded."""
    if ablated is not None:
        raise UsageError(
            "{without} needs the model itself; a recorded capture has only its maps", without=...
        )


def check_quantity(capture: Capture, quantity: str) -> None:
    """UsageError where a capture's maps are not of the quantity that is wanted."""
    quantity_named(quantity)
    if quantity not in ("weights", capture.quantity):
        raise UsageError(
            "{quantity} needs the values that attention mixes, but a recorded capture has "
            "only its maps: run the model itself",
            quantity=quantity,
        )


def _kind(value: object) -> str:
    """Return a value's type, as messages name it."""
    return type(value).__name__


def prompts_of(
    inputs: Input | Iterable[Input], lacks: str, model: ModelSettings = ModelSettings()
) -> tuple[list[Prompt], ModelSettings]:
    """Return the prompts of one text or several, for what needs the model itself, and that model.

    ``lacks``: what is missing in recorded attention, such as ``holds no logits``.
    """
    prompts = []
    for item in looks_of(inputs):
        if not isinstance(item, Capture):
            prompts.append(prompt_of(item))
            continue
        origin = getattr(item, "asked", None)
        if origin is None:
            raise UsageError("recorded attention {}; give a text and {model}", lacks, model=...)
        if origin.without is not None:
            raise UsageError(
                "a capture of {} without {} {}; give the text",
                item.source.model, origin.without, lacks,
            )  # fmt: skip
        if model not in (ModelSettings(), origin.model):
            raise UsageError(
                "the capture is of {}; leave {model} out, or give the text",
                item.source.model,
                model=...,
            )
        model = origin.model
        prompts.append(origin.prompt)
    if not prompts:
        raise InputError("no text to measure; give at least one")
    return prompts, model


def prepare_each(source: Source, prompts: Sequence[Prompt]) -> list[Inputs]:
    """``source.prepare`` of every prompt; a model that writes may do so side by side, sooner."""
    batched = getattr(source, "prepare_all", None)
    return [source.prepare(prompt) for prompt in prompts] if batched is None else batched(prompts)


LONG = 2048
"""Texts of more tokens are shown as tiles."""


Sizes = Callable[[int, int, int], tuple[int, int]]
"""From the number of heads, rows and keys: tokens along a tile, and weights of a row to keep."""


def is_long(inputs: Inputs) -> bool:
    """Whether a text is shown as tiles."""
    return inputs.length > LONG


def tiled(
    source: Source,
    inputs: Inputs,
    sizes: Sizes,
    *,
    select: str | None = None,
    off: str | None = None,
    quantity: str = "weights",
    rows: str | None = None,
    keys: str | None = None,
    progress: Progress | None = None,
) -> tuple[Tiled, Layout]:
    """Run a text, and fill the tiles of some heads on the way."""
    from attnviz.scoring.tiled import TileObserver

    viewed = with_quantity(source, quantity, shares=False)
    heads = tuple(viewed.layout if select is None else selection.select(select, viewed.layout))
    kinds = {head.site.kind for head in heads}
    if len(kinds) > 1:
        raise UsageError(
            "a long text is shown as tiles of one kind of layers; select heads of {} alone",
            " or ".join(sorted(kinds)),
        )
    sides = inputs.sides[heads[0].site.kind]
    row_range, key_range = _asked(rows, sides.queries, "rows"), _asked(keys, sides.keys, "keys")
    size, keep = sizes(len(heads), len(row_range), len(key_range))
    tiles = TileObserver(heads, size, row_range, key_range, keep)
    scores = [ScoreObserver([inputs], viewed.layout)] if quantity == "weights" else []
    noted = observed(source, inputs, tiles, *scores, off=off, viewed=viewed, progress=progress)
    scored = [head_scores for observer in scores for head_scores in observer.result()]
    chosen: frozenset[Head] = frozenset(heads)
    return (
        Tiled(
            source.info,
            noted,
            size,
            row_range,
            key_range,
            tiles.maps(),
            tiles.allowed(),
            tuple(head_scores for head_scores in scored if head_scores.head in chosen),
            sum(observer.empty_rows for observer in scores),
            tiles.unselected(),
        ),
        viewed.layout,
    )


def _asked(text: str | None, tokens: Tokens, axis: str) -> range:
    """Return the positions that were asked for, in one piece; all where nothing was asked."""
    if text is None:
        return range(len(tokens))
    positions = list(places(text, tokens.spans, len(tokens), axis))
    if positions != list(range(positions[0], positions[-1] + 1)):
        raise UsageError(
            "{} is in several pieces, and tiles need one; give it as 100-200", Setting(axis, text)
        )
    return range(positions[0], positions[-1] + 1)
