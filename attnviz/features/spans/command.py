"""``attnviz spans``: how much every head attends to named parts of a text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import changed, flatten
from attnviz.cli.options import (
    WEIGH_HELP,
    WEIGHTS,
    ModelOptions,
    OutputOptions,
    TextsOptions,
    has_fields,
)
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages
from attnviz.errors import UsageError

FIELDS = ("context", "question", "answer")
COUNTED, RESULT, DOCUMENTS = "What counts", "Result", "Documents (TEXT is a .jsonl file)"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclasses.dataclass(frozen=True)
class SpansInput(TextsOptions):
    """The same, or a file of questions with documents."""

    text: Annotated[
        str | None,
        typer.Argument(help="The text to run, or a .jsonl file of questions.", show_default=False),
    ] = None
    context: Annotated[
        str | None,
        _option(
            "The field with the right document, or a list of them.", DOCUMENTS, metavar="FIELD"
        ),
    ] = None
    question: Annotated[
        str | None, _option("The field with the question.", DOCUMENTS, metavar="FIELD")
    ] = None
    answer: Annotated[
        str | None, _option("The field with its answer.", DOCUMENTS, metavar="FIELD")
    ] = None
    gold: Annotated[
        str | None,
        _option(
            "The field with the number of the right document in the list, from 0.",
            DOCUMENTS,
            metavar="FIELD",
            show_default="the first is right",
        ),
    ] = None
    distractors: Annotated[
        int,
        _option(
            "Number of documents from other lines to put beside a single one.",
            DOCUMENTS,
            metavar="N",
            min=1,
        ),
    ] = 3
    select_on: Annotated[
        str,
        _option(
            "Choose heads on even examples and measure them on odd ones (halves), or both on all.",
            DOCUMENTS,
        ),
    ] = "halves"
    strict: Annotated[
        bool, _option("Stop at the first example that cannot be used.", DOCUMENTS, "--strict")
    ] = False

    def of_documents(self) -> dict[str, Any]:
        """What was said of a file of questions; nothing where there is none.

        Raises:
            UsageError: a field that is missing, or options of a text.
        """
        others = ("gold", "distractors", "select_on", "strict")
        asked = changed(self, but=[f.name for f in dataclasses.fields(TextsOptions)])
        missing = [name for name in FIELDS if getattr(self, name) is None]
        if len(missing) == len(FIELDS) and not asked:
            return {}
        if missing:
            raise UsageError(f"documents need {', '.join(f'--{n} FIELD' for n in missing)} as well")
        extra = changed(self, but=("text", *FIELDS, *others))
        if self.text is None or extra:
            what = f"leave out {', '.join(extra)}" if extra else "name it"
            raise UsageError(f"documents are read from a .jsonl file; {what}")
        return {name: getattr(self, name) for name in (*FIELDS, *others)}


@flatten
def spans(
    prompt: SpansInput,
    model: ModelOptions,
    output: OutputOptions,
    paper: PaperOptions,
    rows: Annotated[
        str | None,
        _option(
            "Whose weight: last (the last token's), all, or the name of a span.",
            COUNTED,
            "--from",
            metavar="ROWS",
            show_default="last; of documents, answer",
        ),
    ] = None,
    weigh: Annotated[str, _option(WEIGH_HELP, COUNTED, metavar="QUANTITY")] = WEIGHTS,
    to: Annotated[
        str | None, _option("Rank heads by this span alone.", RESULT, metavar="NAME")
    ] = None,
    select: Annotated[
        str | None,
        _option(
            "Heads whose matrix from span to span is shown.",
            RESULT,
            "--select",
            "-s",
            metavar="HEADS",
            show_default="the first",
        ),
    ] = None,
    top: Annotated[int, _option("Lines of the table.", RESULT, metavar="N", min=1)] = 10,
    json: Annotated[bool, _option("Print JSON (attnviz.spans/1).", RESULT, "--json")] = False,
    csv: Annotated[
        bool, _option("Print CSV, one line per head and span.", RESULT, "--csv")
    ] = False,
    plot: Annotated[Path | None, _option(ending.WRITTEN, RESULT, metavar="FILE")] = None,
) -> None:
    r"""Measure how much heads attend to named parts of a text: messages, documents, a question.

    [bold]Examples[/]

      attnviz spans "The keys to the cabinet are on the table" --span thing="keys to the cabinet"

      attnviz spans --chat messages.json --span document="regex:Paris.*" --model my-model

      attnviz spans --lines sample_inputs/sentences.txt --span first="regex:\w+" --from all

      attnviz spans sample_inputs/questions.jsonl --context doc --question q --answer a
    """
    drawn = paper.options()
    from attnviz.features.spans import function
    from attnviz.features.spans.result import Spans

    ending.check(Spans, json, csv, plot)
    documents = prompt.of_documents()
    with Stages(output.quiet) as stages:
        if documents:
            found = function.spans(
                Path(prompt.text or ""),
                rows=rows,
                weigh=weigh,
                progress=stages.show,
                **documents,
                **model.settings(),
            )
        else:
            found = function.spans(
                _looks(prompt, model, quiet=output.quiet),
                rows=rows,
                weigh=weigh,
                progress=stages.show,
                **model.settings(writing=prompt.generate is not None),
            )
    if to is not None and to not in found.names:
        raise UsageError(f"no span {to[:40]!r}; choose from {', '.join(found.names)}")
    chosen: tuple[Any, ...] = ()
    if select is not None:
        from attnviz.scoring import select as selection

        chosen = tuple(selection.select(select, found.layout))
    if plot is not None:
        found.save(plot, **drawn)
    ending.show(found, output.quiet, top=top, to=to, heads=chosen, json=json, csv=csv)


def _looks(prompt: SpansInput, model: ModelOptions, *, quiet: bool) -> Any:
    """What to measure: a text, the lines of a file, or its texts where it has fields."""
    if prompt.lines is not None and has_fields(prompt.lines):
        return prompt.fields(model)[0]
    return list(prompt.looks(model, quiet=quiet))
