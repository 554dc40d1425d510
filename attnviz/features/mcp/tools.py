"""What a caller may ask for: at most thirteen tools, each a few lines over the library.

A tool's docstring is what the caller reads of it; its arguments are settings of the functions
behind it, as they are declared. Every tool that runs something keeps its whole result as a file and
answers with the part that fits. :func:`skill` tells an agent of them without a server.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from functools import wraps
from importlib.resources import files as resources
from inspect import Parameter, Signature
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import attnviz as av
from attnviz.attention.spec import RunSizes
from attnviz.captures.settings import MapSettings
from attnviz.core.arguments import hints
from attnviz.core.prompt import Prompt
from attnviz.core.provenance import DEFAULT_MODEL
from attnviz.core.settings import Settings, declarations, plain_type, setting
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.errors import UsageError
from attnviz.features.ablation.settings import AblationSettings
from attnviz.features.circuits.result import CircuitsSettings
from attnviz.features.explain.result import ExplainSettings
from attnviz.features.lens.result import LensSettings
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import Form, KeptResults, ToolAnswer
from attnviz.features.patch.settings import PatchSettings
from attnviz.features.profile.result import ProfileOptions
from attnviz.features.shapes.settings import Layer, Model, ViewSettings
from attnviz.features.spans.result import SpansSettings


@dataclass(frozen=True)
class ToolSettings(Settings):
    """Texts, files and models by name, and what comes back."""

    text: str | None = setting(None, "What the model reads.")
    pair: str | None = setting(None, "A second sentence, for models with segments (BERT).")
    recorded: str | None = setting(None, "A kept .npz in place of {text}.")
    texts: str | None = setting(None, "A file with a text per line, in place of {text}.")
    files: str | None = setting(
        None,
        "A file of texts (one a line, .jsonl, .csv, .tsv or .parquet), or a treebank (CoNLL-U).",
    )
    spans: Mapping[str, str] | None = setting(
        None, 'Name to the words ("the table"), "all:WORDS" or "regex:PATTERN".'
    )
    probe: bool = setting(False, "Repeated random tokens, which tell induction heads.")
    evidence: tuple[str, ...] | None = setting(None, "Kept results whose roles to add.")
    model: str = setting(
        DEFAULT_MODEL,
        "demo-gpt2, demo-bert, an allowed folder, or a hub id that is in the local cache.",
    )
    other_model: str | None = setting(None, "The model to compare with, on {text}.")
    clean: str | None = setting(None, "A prompt, with {corrupted} and {answer}.")
    corrupted: str | None = setting(None, "The prompt without what the answer needs.")
    answer: str | None = setting(None, "The word that should win.")
    against: str | None = setting(None, "The word that {answer} is held against.")
    pairs: str | None = setting(None, "A .jsonl file of pairs.")
    before: str | None = setting(None, "A kept result.")
    after: str | None = setting(None, "Another of its kind.")
    file: str | None = setting(None, "A kept result; without it what there is.")
    select: str | None = setting(None, "Heads: 2.0, or 1.4, 3.*; few, since each is a table.")
    first: int | None = setting(None, "Every column, from this row on (0: all).", least=0)
    limit: int = setting(20, "Take at most the first N texts.", least=1)
    save: Form | None = setting(
        None, "Also save the result in this form; html: of explain, and of patch with circuit."
    )
    picture: bool = setting(False, "Also a PNG.")


Kind = Literal["file", "model", "selection"]

REACHES: Mapping[str, Kind] = {
    **dict.fromkeys(
        ("recorded", "texts", "files", "evidence", "pairs", "before", "after", "file"), "file"
    ),
    **dict.fromkeys(("model", "other_model"), "model"),
    **dict.fromkeys(("select", "without", "paths"), "selection"),
}  # fmt: skip
"""What may lead to a file, by the name of the argument, whichever tool has it."""


Wanted = tuple[type[Settings], str]
"""A record, and the names of some of its settings with blanks between them."""


def takes(*wanted: Wanted, **defaults: Any) -> Callable[[Callable[..., Any]], Any]:
    """Give a method of :class:`~attnviz.features.mcp.tools.Tools` the arguments of some records.

    Files, models and selections are looked up in the allowed folders before the method sees them;
    what it returns is kept as a result and becomes an answer, with a picture where one is wanted.
    """
    parameters = [
        _parameter(record, name, defaults.get(name, MISSING))
        for record, names in wanted
        for name in names.split()
    ]
    default_values = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not Parameter.empty
    }

    def decorated(tool: Callable[..., Any]) -> Callable[..., ToolAnswer]:
        signature = inspect.signature(tool).parameters

        @wraps(tool)
        def call(self: Any, **arguments: Any) -> ToolAnswer:
            values = default_values | {
                name: reached(self.folders, name, value) for name, value in arguments.items()
            }
            picture = False if "picture" in signature else values.pop("picture", False)
            result = tool(self, **values)
            if isinstance(result, ToolAnswer):
                return result
            return self.kept.answer(tool.__name__, result, picture)

        first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        call.__signature__ = Signature([first, *parameters])  # type: ignore[attr-defined]
        return call

    return decorated


def reached(folders: Folders, name: str, value: Any) -> Any:
    """Return an argument with its files and models as they are found in the allowed folders."""
    if value is None or name not in REACHES:
        return value
    if isinstance(value, list | tuple):
        return tuple(reached(folders, name, item) for item in value)
    find: dict[str, Callable[[str], Any]] = {
        "file": folders.file, "model": folders.model, "selection": folders.selection,
    }  # fmt: skip
    return find[REACHES[name]](value)


def _parameter(record: type[Settings], name: str, default: Any) -> Parameter:
    """Return a setting as an argument, with what its schema says of it beside its type."""
    field, declared = declarations(record)[name]
    default = field.default if default is MISSING else default
    required = default is ... or default is MISSING
    description = declared.said(lambda parameter: parameter)
    if default is True:
        description = f"If false: {description[0].lower()}{description[1:]}"
    hint = declared.typed or hints(record)[name]
    kind, choices = plain_type(hint)
    if any(get_origin(part) is Mapping for part in (hint, *get_args(hint))):
        kind = dict[str, str]
    elif choices and int in get_args(hint):
        kind = hint
    elif choices and str not in get_args(hint):
        kind = Literal[choices]
    schema = {"description": description, "ge": declared.least, "le": declared.most}
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if required else default,
        annotation=Annotated[kind | None if default is None else kind, schema],
    )


RUN = ToolSettings, "model picture"

Record = TypeVar("Record", bound=Settings)


class Tools:
    """The tools over some folders.

    Args:
        folders: which files may be read, and where results go.
        checkpoint: called between batches; what it raises ends the call.
    """

    def __init__(self, folders: Folders, checkpoint: Callable[[], object] = lambda: None) -> None:
        self.folders, self.checkpoint = folders, checkpoint
        self.kept = KeptResults(folders)

    def all(self) -> tuple[Callable[..., ToolAnswer], ...]:
        """Every tool, in the order in which a caller meets them."""
        return (
            self.heads, self.look, self.explain, self.lens, self.spans, self.profile, self.syntax,
            self.ablate, self.patch, self.circuits, self.shapes, self.diff, self.read,
        )  # fmt: skip

    @takes((ToolSettings, "text pair recorded probe evidence"), (MapSettings, "without"), RUN)
    def heads(self, text: Any, pair: Any, recorded: Any, **options: Any) -> Any:
        """Say what every attention head does on one text: roles, score, chance, lift, rows."""
        return av.heads(_look(text, pair, recorded), progress=self._progress, **options)

    @takes((ToolSettings, "text select pair recorded"), RUN)
    def look(
        self, text: Any, select: str | None, pair: Any, recorded: Any, model: str, picture: bool
    ) -> ToolAnswer:
        """Where some heads look on one text: for every query token the keys with most weight."""
        if not (select or "").strip():
            raise UsageError("{select} names none; give some, such as 2.0 or 1.4, 3.*", select=...)
        maps = av.capture(_look(text, pair, recorded), model=model)
        return self.kept.capture("look", maps, str(select), picture)

    @takes((ToolSettings, "text"), (ExplainSettings, "answer against"), RUN, text=...)
    def explain(self, text: str, **options: Any) -> Any:
        """Why the model predicts a word after the text: votes of heads, their keys, ablations."""
        return av.explain(Prompt(text), progress=self._progress, **options)

    @takes((ToolSettings, "text"), (LensSettings, "answer position"), RUN, text=...)
    def lens(self, text: str, **options: Any) -> Any:
        """Return what the model would say after every layer, if that were the last (logit lens)."""
        return av.lens(Prompt(text), **options)

    @takes((ToolSettings, "text spans"), (SpansSettings, "rows"), RUN, text=..., spans=...)
    def spans(self, text: str, spans: dict[str, str], **options: Any) -> Any:
        """How much of its weight every head gives to named parts of a text, against chance."""
        return av.spans(Prompt(text, spans=spans), progress=self._progress, **options)

    @takes(
        (ToolSettings, "files"), (ProfileOptions, "limit column group interval"), RUN,
        files=..., limit=200,
    )  # fmt: skip
    def profile(self, files: Any, **options: Any) -> Any:
        """Roles and scores of every head over many texts, with 95 % intervals over texts."""
        return av.profile(files, jobs=1, progress=self._progress, **options)

    @takes((ToolSettings, "files"), (SyntaxSettings, "punct"), RUN, files=..., model="demo-bert")
    def syntax(self, files: Any, **options: Any) -> Any:
        """Which heads follow a treebank's dependencies (Clark et al. 2019), on a held-out half."""
        return av.syntax(files, progress=self._progress, **options)

    @takes(
        (ToolSettings, "text texts limit probe"),
        (AblationSettings, "select method metric answer against"),
        RUN,
    )
    def ablate(self, text: Any, texts: Any, limit: int, probe: bool, **options: Any) -> Any:
        """Which heads are needed: what changes when heads are replaced.

        One of text, texts and probe (what does repetition need?). Every head and role, where none
        is selected, takes minutes.
        """
        if sum((text is not None, texts is not None, probe)) != 1:
            raise UsageError(
                "give one of {text}, {texts} and {probe}", text=..., texts=..., probe=True
            )
        prompts = None if probe else _prompts(text, texts, limit)
        return av.ablate(prompts, probe=probe, progress=self._progress, **options)

    @takes(
        (PatchSettings, "task count"), (ToolSettings, "clean corrupted answer against pairs"),
        (PatchSettings, "select paths component circuit"), RUN,
        count=20,
    )  # fmt: skip
    def patch(
        self, clean: Any, corrupted: Any, answer: Any, against: Any, pairs: Any, **options: Any
    ) -> Any:
        """Which heads carry an answer: values of a clean run put into a corrupted one and back.

        One of task, pairs, and clean with corrupted and answer.
        """
        task, typed = options["task"], (clean, corrupted, answer)
        if sum((task is not None, pairs is not None, typed != (None, None, None))) != 1:
            raise UsageError(
                "give one of {task}, {pairs}, and {clean} with {corrupted} and {answer}",
                task=..., pairs=..., clean=..., corrupted=..., answer=...,
            )  # fmt: skip
        if task is None and pairs is None:
            if None in typed:
                raise UsageError(
                    "a pair needs {clean}, {corrupted} and {answer}; give all three",
                    clean=..., corrupted=..., answer=...,
                )  # fmt: skip
            pairs = av.Pair(clean, corrupted, answer, against)
        return av.patch(pairs, progress=self._progress, **options)

    @takes((CircuitsSettings, "select"), RUN)
    def circuits(self, **options: Any) -> Any:
        """Say what weights alone tell: which heads can feed which, which copy tokens."""
        return av.circuits(progress=self._progress, **options)

    @takes(
        (Model, "model"), (Layer, "d_model heads kv_heads kind"),
        (RunSizes, "batch seq cache dtype"), (ViewSettings, "show"),
    )  # fmt: skip
    def shapes(self, show: str | None, **sizes: Any) -> Any:
        """Shapes, parameters, FLOPs and KV cache of attention, on paper: no weights are read.

        model, or sizes, with kind where heads and kv_heads do not say it.
        """
        from attnviz.features.shapes import function as shapes

        model, layer, run = _made(Model, sizes), _made(Layer, sizes), _made(RunSizes, sizes)
        subject = layer if model == Model() else model
        if subject is model and layer != Layer():
            raise UsageError(
                "{model} fixes the sizes; leave {d_model}, {heads}, {kv_heads} and "
                "{kind} out",
                model=..., d_model=..., heads=..., kv_heads=..., kind=...,
            )  # fmt: skip
        view = ViewSettings(show=show)
        if view.view not in (None, "compare"):
            raise UsageError("{show} takes compare or compare:80GB here", show=...)
        if view.view == "compare":
            return shapes.compare(subject, run, memory=view.detail)
        return shapes.walk(subject, run)

    @takes((ToolSettings, "before after text model other_model picture"))
    def diff(self, before: Any, after: Any, text: Any, model: str, other_model: Any) -> Any:
        """Return what changed between two runs, head by head.

        Two kept results of one kind (before, after), or a text through model and other_model.
        """
        present = [name is not None for name in (before, after, text, other_model)]
        if present == [False, False, True, True]:
            return av.diff([Prompt(text)], model=model, other_model=other_model)
        if present == [True, True, False, False]:
            return av.diff(before, after)
        raise UsageError(
            "give {before} and {after}, two kept results, or {text} and {other_model}",
            before=..., after=..., text=..., other_model=...,
        )  # fmt: skip

    @takes((ToolSettings, "file select first save picture"))
    def read(self, file: Any, select: Any, first: int, save: Any, picture: bool) -> ToolAnswer:
        """Read a kept result again, every figure of some heads, or what there is without a file.

        select: rows of the full table that name one of these heads.
        """
        if file is None:
            return self.kept.listed()
        return self.kept.again(file, select, first, save, picture)

    def _progress(self, *_: object) -> None:
        """Told after every batch how far a call has come."""
        self.checkpoint()


SKILL = "SKILL.md"
_AS = {"look": "`attnviz heatmap`", "read": "`av.read`"}
"""What else a tool is called outside of the server."""


def description_of(tool: Callable[..., ToolAnswer]) -> str:
    """Return what a caller reads of a tool."""
    return " ".join((tool.__doc__ or "").split())


def skill() -> str:
    """Write what an agent should know of the tools, as SKILL.md, from their declarations."""
    rows = [
        f"| `{tool.__name__}` | {description_of(tool)} | "
        f"{_AS.get(tool.__name__, f'`attnviz {tool.__name__}`')} |"
        for tool in Tools.all(Tools)  # type: ignore[arg-type]  # no folders: nothing is called
    ]
    template = resources(__package__).joinpath("skill.md").read_text("utf-8")
    return template.replace("{{tools}}", "\n".join(rows)).replace("{{version}}", av.__version__)


def _made(record: type[Record], values: dict[str, Any]) -> Record:
    """Return a record of those values that it declares."""
    return record(**{name: values[name] for name in values.keys() & declarations(record).keys()})


def _look(text: Any, pair: Any, recorded: Any) -> Any:
    """Return a text to run, or a capture that was kept."""
    if (text is None) == (recorded is None):
        raise UsageError("give {text} or {recorded}", text=..., recorded=...)
    if recorded is not None:
        if pair is not None:
            raise UsageError("{pair} goes with {text}; leave it out", pair=..., text=...)
        return av.read(recorded)
    return Prompt(text, pair=pair)


def _prompts(text: str | None, texts: Any, limit: int) -> list[Prompt]:
    """Return the text, or the first lines of a file."""
    if texts is None:
        return [Prompt(text)]
    from attnviz.corpus.lines import lines, sound

    name = str(texts)
    return [Prompt(sound(line, f"{name}:{number}")) for number, line in islice(lines(name), limit)]
