"""``attnviz.film``: what the heads of a model do at every checkpoint of its training.

A film that is there already is read without torch, so most imports wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.errors import InputError, UsageError
from attnviz.features.film.result import BaselineSettings, Checkpoints, Film, FilmSettings

_OF_TEXTS = (".txt", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
"""How files of texts are named, which films never are."""


@interface
def film(
    files: str | Path | Sequence[str | Path] | None = None,
    *,
    texts: Sequence[str] | None = None,
    settings: FilmSettings,
    compared: BaselineSettings,
    model: Checkpoints,
    progress: Progress = lambda stage, done, total: None,
) -> Film:
    """Score every head at every checkpoint of a run, and find when heads formed.

    Args:
        files: of texts, see :func:`attnviz.profile`.
        texts: texts in memory, in place of files.
        progress: called after every checkpoint.

    Returns:
        The film; ``partial`` where Ctrl-C stopped it after two checkpoints or more.

    Raises:
        UsageError: options that make no sense, or checkpoints that are no series.
        InputError: texts or folders that cannot be used; ModelError: see :func:`attnviz.load`.
        KeyboardInterrupt: Ctrl-C before that.

    Source:
        Scores as in :func:`attnviz.profile`; the in-context score and the order of events after
        Olsson et al. 2022 (arXiv:2209.11895).
    """
    from attnviz.corpus.texts import Text, given
    from attnviz.features.film.measure import FilmStudy, run
    from attnviz.features.film.steps import series
    from attnviz.features.film.summary import summarize

    if model.model is None:
        raise UsageError("give the checkpoints, such as {model}", model="runs/step-*")
    checkpoints = series(model.model)
    names, records = given(files, texts, column=settings.column, whole_files=settings.whole)
    sound = tuple(text for text in records if isinstance(text, Text))[: settings.limit]
    if not sound:
        raise InputError(f"no text could be used of {', '.join(names)[:200]}; look at its lines")
    measured = run(checkpoints, FilmStudy(sound, settings, tuple(names), model), progress)
    if len(measured) < min(2, len(checkpoints)):
        raise KeyboardInterrupt
    return summarize(measured, compared.losses, partial=len(measured) < len(checkpoints))


@interface
def read_film(path: str | Path, *, compared: BaselineSettings) -> Film:
    """Read a film: its JSON, or the folder that a run kept its steps in."""
    from attnviz.features.results import read

    if Path(path).suffix.lower() in _OF_TEXTS:
        raise InputError(
            "{} is no film, which is a .json file or a folder; give texts as {texts} and "
            "checkpoints as {model}",
            path,
            texts=str(path),
            model="runs/step-*",
        )
    film = read(path)
    if not isinstance(film, Film):
        raise InputError(f"{path} is no film; give what attnviz film wrote")
    return replace(film, baselines={**film.baselines, **compared.losses})
