"""What a page is of: a single long text, or the heads that do something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from attnviz.captures.inputs import Input, MapOptions, prompt_of, source_for
from attnviz.captures.named import check_part, scored
from attnviz.captures.settings import ModelSettings
from attnviz.captures.tiled import LONG, is_long
from attnviz.core.capture import Capture
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.scores import HeadScores
from attnviz.core.source import Source
from attnviz.errors import Setting, UsageError
from attnviz.features.view.settings import ViewSettings
from attnviz.scoring import select as selection
from attnviz.scoring.arrange import arrange


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model, loaded if that was needed to see how long a text is; its tokens if it is long."""

    model: ModelSettings
    inputs: Inputs | None = None


def alone(text: Input | Iterable[Input], model: ModelSettings, settings: ViewSettings) -> Loaded:
    """See whether there is a single text, and a long one, or a part of one is wanted.

    The model is loaded where its heads are to be chosen.
    """
    asked = MapOptions(settings.heads, settings.without, settings.quantity, settings.why).expected()
    part = next((name for name in ("rows", "keys") if getattr(settings, name) is not None), None)
    several = text if isinstance(text, list | tuple) else [text]
    if settings.clearest is not None:
        held = any(isinstance(item, Capture) for item in several)
        model = ModelSettings(model=model.load(heads=None if held else asked))
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
    written = prompt.chat is not None or prompt.generate is not None
    if part is None and not written and size <= LONG:
        return Loaded(model)
    source = source_for(prompt, model, asked)
    inputs = replace(source.prepare(prompt), texts=prompt.texts)
    return Loaded(
        ModelSettings(model=source), inputs if part is not None or is_long(inputs) else None
    )


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


def strongest(
    texts: Sequence[Input | Inputs], source: Source, count: int, select: str | None
) -> str:
    """The heads that do something, the strongest evidence first, as a selection."""
    first = texts[0]
    known = first if isinstance(first, Capture | Inputs) else source.prepare(prompt_of(first))
    layout = first.layout if isinstance(first, Capture) else source.layout
    chosen = frozenset(layout if select is None else selection.select(select, layout))
    among = [scores for scores in scored(known, source) if scores.head in chosen]
    return ", ".join(scores.head.qualified for scores in best(among, count))


def best(scored: Sequence[HeadScores], count: int) -> tuple[HeadScores, ...]:
    """The heads with the strongest evidence, those that only rest last."""
    doing = arrange(scored, sort="score", top=count)
    if len(doing) == count:
        return doing
    return (*doing, *[head for head in scored if head not in doing][: count - len(doing)])
