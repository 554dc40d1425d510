"""Evidence about heads: what happens without them, what annotation they follow, what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from attnviz import files
from attnviz.ablation.run import Progress, Study, run
from attnviz.ablation.settings import AblationSettings
from attnviz.annotated import SyntaxReport
from attnviz.effects import AblationReport
from attnviz.errors import InputError, UsageError
from attnviz.grammar.cases import SyntaxSettings
from attnviz.grammar.compare import compare
from attnviz.grammar.treebank import sentences as read_sentences
from attnviz.looking import DEFAULT_MODEL, Look, Model, load, loader, prompt_of
from attnviz.models.identity import identity
from attnviz.notebook import Pictured, Tabular, picture_format, printed
from attnviz.passes import Source
from attnviz.records import Capture, Inputs
from attnviz.votes import LogitsReport, Position
from attnviz.writing.run import Question
from attnviz.writing.run import run as answer


class Ablation(Pictured, Tabular, AblationReport):
    """A report as :func:`ablate` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each group of heads: its effect, interval, gradients and roles."""
        from attnviz.render.ablation.tables import ablation_rows

        return ablation_rows(self)

    def __str__(self) -> str:
        """The grid and the effects, as the command line prints them, without colours."""
        from attnviz.render.ablation import terminal

        table = terminal.effects_table(self, self.ranked())
        return printed(terminal.EffectsGrid(self), table, terminal.closing(self))

    def figure(self, format: str = "png") -> bytes:
        """The grid by effect, the largest effects and the curve, in ``png``, ``svg``, ``pdf``."""
        from attnviz.render.ablation.figure import effects_figure

        return effects_figure(self, format)

    def save(self, path: str | Path) -> Path:
        """Write it as .json or .csv, or draw it as .png, .svg or .pdf."""
        from attnviz.render.ablation.tables import ablation_csv, ablation_json

        return _save_or_draw(self, path, ablation_json, ablation_csv)

    def __repr__(self) -> str:
        worst = ", ".join(f"{e.name} {e.change:+.2g}" for e in self.ranked()[:3])
        return f"<Ablation {self.source.model}, {self.metric}, {self.texts} texts: {worst}>"

    def _repr_png_(self) -> bytes:
        return self.figure()


class Logits(Pictured, Tabular, LogitsReport):
    """A report as :func:`logits` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each part of the model: what it adds to the logit; none for no sum."""
        from attnviz.render.logits.tables import part_rows

        return part_rows(self)

    def __str__(self) -> str:
        """Predictions and votes, as the command line prints them, without colours."""
        from attnviz.render.logits import terminal, words

        votes = (terminal.Waterfall(self), terminal.Heads(self), terminal.Votes(self))
        parts = votes if self.parts else ()
        return printed(terminal.Predictions(self), *parts, words.closing(self))

    def figure(self, format: str = "png") -> bytes:
        """The grid of heads, the waterfall and the tokens, in ``png``, ``svg`` or ``pdf``."""
        from attnviz.render.logits.figure import logits_figure

        return logits_figure(self, format)

    def save(self, path: str | Path) -> Path:
        """Write it as .json or .csv, or draw it as .png, .svg or .pdf."""
        from attnviz.render.logits.tables import logits_csv, logits_json

        return _save_or_draw(self, path, logits_json, logits_csv)

    def __repr__(self) -> str:
        votes = ", ".join(f"{self.layout.name(v.head)} {v.value:+.2g}" for v in self.votes[:3])
        minus = f" against {self.against!r}" if self.against else ""
        return f"<Logits {self.source.model}, {self.token!r}{minus} {self.logit:.2f}: {votes}>"

    def _repr_png_(self) -> bytes | None:
        return self.figure() if self.parts else None


def logits(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    token: str | None = None,
    against: str | None = None,
    position: Position = None,
    top: int = 5,
    device: str = "auto",
    dtype: str = "auto",
) -> Logits:
    """Say what a model predicts, and split one logit into what every part of the model adds to it.

    Direct logit attribution, see :mod:`attnviz.writing.split`; only for models whose residual
    stream is normalized before a layer and at the end (GPT-2, Llama and their kind). Others, such
    as BERT, give predictions and the reason.

    Args:
        what: a text or prompt.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        token: the word whose logit is split; by default the most probable.
        against: a word whose logit is taken off.
        position: of the token that the word follows, from 0 or, negative, from the end, or
            ``"all"``; by default the last. In masked models the word stands at it, by default at
            every mask. The last of several positions is the one whose logit is split.
        top: how many predictions for each position.
        device: where to run.
        dtype: in which precision.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where the parts found do not add up.
    """
    if isinstance(what, Capture):
        raise UsageError(
            "recorded attention holds no logits, for those need the model; give a text and {model}",
            model=...,
        )
    question = Question(token, against, position, top)
    question.check()
    source = load(model, device=device, dtype=dtype)
    report = answer(source, source.prepare(prompt_of(what)), question)
    report = replace(report, identity=identity(model))
    return Logits(**{name: getattr(report, name) for name in report.__dataclass_fields__})


def ablate(
    what: Look | Iterable[Look] | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    probe: bool = False,
    reference: Iterable[Look] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    settings: AblationSettings | None = None,
    **options: Any,
) -> Ablation:
    """Take heads away, alone or in groups, and measure what that changes.

    Args:
        what: a text or prompt, or several; nothing with ``probe``.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        probe: repeat random tokens instead, and measure the second half: what the repetition tells.
        reference: for the method ``mean``, other texts to take the means from.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        settings: see :class:`~attnviz.ablation.settings.AblationSettings`.
        options: its fields, in place of ``settings``: ``heads="role:induction"``,
            ``method="mean"``, ``metric="kl"``, ``gradient=True``, ``curve=True``, ...

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    chosen = _settings(AblationSettings, settings, options)
    if (what is None) == (not probe):
        raise UsageError("give texts, or {probe} for repeated random tokens", probe=True)
    source = load(model, device=device, dtype=dtype)
    study = Study(
        source,
        None if what is None else _prepared(source, what),
        chosen,
        None if reference is None else _prepared(source, reference),
        loader(model, source, device=device, dtype=dtype),
        progress or (lambda stage, done, all_: None),
    )
    study.notes.extend(_written(study.texts or ()))
    report = replace(run(study), identity=identity(model))
    return Ablation(**{name: getattr(report, name) for name in report.__dataclass_fields__})


def _written(texts: Sequence[Inputs]) -> tuple[str, ...]:
    """What to say of texts that the model went on with: what it wrote, or how many there are."""
    wrote = [inputs for inputs in texts if inputs.output]
    if len(wrote) > 1:
        return (f"The model went on with {len(wrote):,} texts before they were measured.",)
    return wrote[0].notes if wrote else ()


@dataclass(frozen=True, eq=False)
class Arcs(Pictured):
    """Sentences with the arcs of a treebank above and those of heads below, as a picture."""

    report: SyntaxReport

    def figure(self, format: str = "png") -> bytes:
        """The picture in ``png``, ``svg`` or ``pdf``."""
        from attnviz.render.grammar.arcs_figure import arcs_figure

        return arcs_figure(self.report, format)

    def save(self, path: str | Path) -> Path:
        """Draw into a file; its suffix decides the format."""
        path = Path(path)
        files.write(path, self.figure(picture_format(path)))
        return path

    def _repr_png_(self) -> bytes:
        return self.figure()

    def __repr__(self) -> str:
        names = ", ".join(parse.name for parse in self.report.shown)
        right = [arc.right for parse in self.report.shown for arc in parse.arcs]
        model = self.report.source.model
        return f"<Arcs of {names}; {model}, {sum(right)} of {len(right)} right>"


class Syntax(Pictured, Tabular, SyntaxReport):
    """A report as :func:`syntax` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each relation: the chosen head, its accuracy, and the best offset's."""
        from attnviz.render.grammar.tables import relation_rows

        return relation_rows(self)

    def __str__(self) -> str:
        """The grid and the relations, as the command line prints them, without colours."""
        from attnviz.render.grammar.printed import syntax_parts

        return printed(*syntax_parts(self))

    def figure(self, format: str = "png") -> bytes:
        """Best head against best offset, and the grid, in ``png``, ``svg`` or ``pdf``."""
        from attnviz.render.grammar.figure import syntax_figure

        return syntax_figure(self, format)

    def save(self, path: str | Path) -> Path:
        """Write it as .json, or draw it as .png, .svg or .pdf."""
        path = Path(path)
        if path.suffix.lower() == ".json":
            return _save(self, path)
        files.write(path, self.figure(picture_format(path)))
        return path

    def arcs(self) -> Arcs:
        """The sentences that were asked for, ready to be drawn.

        Raises:
            UsageError: none were.
        """
        if not self.shown:
            raise UsageError("no sentence was kept; ask for some with {show}", show=3)
        return Arcs(self)

    def _repr_png_(self) -> bytes:
        return self.figure()

    def __repr__(self) -> str:
        heads = len({role.head for role in self.roles})
        return (
            f"<Syntax {self.source.model}, {self.sentences} sentences, "
            f"{len(self.relations)} relations: {heads} of {len(self.layout)} heads syntactic>"
        )


def syntax(
    treebank: str | Path | Sequence[str | Path],
    *,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    settings: SyntaxSettings | None = None,
    **options: Any,
) -> Syntax:
    """Compare where every head looks with the dependencies of a treebank (Clark et al. 2019).

    Args:
        treebank: CoNLL-U files, or patterns.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        settings: see :class:`~attnviz.grammar.cases.SyntaxSettings`.
        options: its fields, in place of ``settings``: ``punct=False``, ``subtypes=True``,
            ``select_on="all"``, ``random=True``, ``trees=True``, ``combine=True``, ``jobs=4``,
            ``show=3, relation="obj"``, ...

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    chosen = _settings(SyntaxSettings, settings, options)
    sentences, bad = read_sentences(_paths(treebank), strict=chosen.strict)
    source = load(model, device=device, dtype=dtype)
    report = compare(
        source,
        sentences,
        chosen,
        bad=bad,
        load=loader(model, source, device=device, dtype=dtype),
        untrained=partial(load, model, device=device, dtype=dtype, untrained=chosen.seed),
        progress=progress or (lambda stage, done, all_: None),
    )
    return Syntax(**vars(replace(report, identity=identity(model))))


def _paths(given: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(one) for one in ([given] if isinstance(given, str | Path) else given)]


def _save(report: SyntaxReport, path: str | Path) -> Path:
    from attnviz.render.grammar.tables import annotated_json

    path = Path(path)
    if path.suffix.lower() != ".json":
        raise UsageError("cannot write {}; name the file .json", str(path))
    files.write(path, annotated_json(report).encode())
    return path


def _settings(kind: type[Settings], given: Settings | None, options: dict[str, Any]) -> Settings:
    """Checked settings: those that were given, or their fields."""
    if given is not None and options:
        raise UsageError("give {settings} or their fields, not both", settings=...)
    known = kind.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; there are {', '.join(known)}")
    chosen = given or kind(**options)
    chosen.check()
    return chosen


def _prepared(source: Source, what: Look | Iterable[Look]) -> Sequence[Inputs]:
    listed: Iterable[Look] = [what] if isinstance(what, str) or _is_look(what) else what  # type: ignore[list-item, assignment]
    prepared = []
    for one in listed:
        if isinstance(one, Capture):
            raise UsageError(
                "recorded attention cannot be ablated, for that needs the model; give a text and "
                "{model}",
                model=...,
            )
        prepared.append(source.prepare(prompt_of(one)))
    if not prepared:
        raise InputError("no text to measure; give at least one")
    return prepared


def _is_look(what: object) -> bool:
    from attnviz.records import Prompt

    return isinstance(what, Prompt | Capture)


Settings = TypeVar("Settings", AblationSettings, SyntaxSettings)


class _Drawn(Protocol):
    """A report that can be drawn."""

    def figure(self, format: str = "png") -> bytes:
        """The picture in one of the formats."""


Drawn = TypeVar("Drawn", bound=_Drawn)


def _save_or_draw(
    report: Drawn,
    path: str | Path,
    as_json: Callable[[Drawn], str],
    as_csv: Callable[[Drawn], str],
) -> Path:
    """Write a report as the file's suffix says: .json, .csv, or a picture."""
    path = Path(path)
    written = {".json": as_json, ".csv": as_csv}.get(path.suffix.lower())
    files.write(path, written(report).encode() if written else report.figure(picture_format(path)))
    return path
