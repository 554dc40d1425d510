"""What a page is of: a single long text, or the heads that do something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from attnviz.captures.look import Look, Model, load, prompt_of, source_for
from attnviz.captures.tiled import LONG, is_long
from attnviz.core.capture import Capture
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.scores import HeadScores
from attnviz.core.source import ForwardRequest, Source
from attnviz.errors import Setting, UsageError
from attnviz.scoring import select as selection
from attnviz.scoring.arrange import arrange
from attnviz.scoring.observe import ScoreObserver, score_capture


@dataclass(frozen=True, eq=False, slots=True)
class Loaded:
    """A model, loaded if that was needed to see how long a text is; its tokens if it is long."""

    model: Model
    inputs: Inputs | None = None


def alone(
    what: Look | Iterable[Look],
    model: Model,
    top: int | None,
    device: str,
    dtype: str,
    cut: Mapping[str, str | None],
) -> Loaded:
    """See whether there is a single text, and a long one, or a part of one is wanted.

    Parameters are those of :func:`attnviz.view`, ``cut`` its rows and keys. The model is loaded
    where its heads are to be chosen.

    Raises:
        UsageError: a part of something else than a single text.
    """
    part = next((name for name, value in cut.items() if value is not None), None)
    if top is not None:
        model = load(model, device=device, dtype=dtype)
    several = what if isinstance(what, list | tuple) else [what]
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
    size = len(prompt.ids or "".join(prompt.texts))
    written = prompt.chat is not None or prompt.generate is not None
    if part is None and not written and size <= LONG:
        return Loaded(model)
    source = source_for(prompt, model, device, dtype)
    inputs = replace(source.prepare(prompt), texts=prompt.texts)
    return Loaded(source, inputs if part is not None or is_long(inputs) else None)


def check_long(inputs: Inputs, others: Mapping[str, object]) -> None:
    """Refuse what needs whole maps, UsageError; ``others`` are parameters by name."""
    for name, value in others.items():
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


def strongest(what: Sequence[Look | Inputs], source: Source, top: int, select: str | None) -> str:
    """The heads that do something, the strongest evidence first, as a selection.

    Args:
        what: what is looked at; heads are scored on the first of it.
        source: runs it, unless that is a capture.
        top: how many.
        select: among which heads; all by default.

    Raises:
        UsageError: fewer than one; SelectionError: no such heads.
    """
    if top < 1:
        raise UsageError("{top} must be at least 1, not {}", top, top=...)
    first = what[0]
    if isinstance(first, Capture):
        layout, scored = first.layout, score_capture(first).result()
    else:
        layout = source.layout
        inputs = first if isinstance(first, Inputs) else source.prepare(prompt_of(first))
        observer = ScoreObserver([inputs], layout)
        source.forward([inputs], [observer], ForwardRequest(hidden=False))
        scored = observer.result()
    chosen = frozenset(layout if select is None else selection.select(select, layout))
    among = [scores for scores in scored if scores.head in chosen]
    return ", ".join(scores.head.qualified for scores in best(among, top))


def best(scored: Sequence[HeadScores], top: int) -> tuple[HeadScores, ...]:
    """The heads with the strongest evidence, those that only rest last."""
    doing = arrange(scored, sort="score", top=top)
    if len(doing) == top:
        return doing
    return (*doing, *[one for one in scored if one not in doing][: top - len(doing)])
