"""``attnviz.film``: what the heads of a model do at every checkpoint of its training.

A film that is there already is read without torch, so most imports wait.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz import files
from attnviz.core.progress import Progress
from attnviz.errors import InputError, Setting, UsageError
from attnviz.features.film.result import Film
from attnviz.features.registry import read

if TYPE_CHECKING:
    from attnviz.corpus.texts import Bad, Text


def film(
    inputs: str | Path | Sequence[str | Path] | None = None,
    *,
    texts: Sequence[str] | None = None,
    model: str | Path | Sequence[str | Path],
    column: str | None = None,
    whole: bool = False,
    special_tokens: bool = True,
    limit: int | None = None,
    scores: Sequence[str] | None = None,
    probe: bool = False,
    ablate: bool = False,
    conllu: str | Path | Sequence[str | Path] | None = None,
    gap: str | Path | Sequence[str | Path] | None = None,
    show: int = 24,
    baselines: Mapping[str, float] | None = None,
    seed: int = 0,
    jobs: int = 1,
    keep: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = lambda stage, done, total: None,
) -> Film:
    """Score every head at every checkpoint of a run, and find when heads formed.

    Args:
        inputs: texts, see :func:`attnviz.profile`, as for ``texts``, ``column``, ``whole``,
            ``special_tokens`` and ``limit``.
        texts: texts in memory, in place of files.
        model: the checkpoints: a pattern of folders (``"runs/step-*"``), several folders, or a hub
            id with its revisions (``"name@step1000,step2000"``). The last number in a name is its
            step. One is in memory at a time, in each process.
        column: of tables and JSONL.
        whole: every file is one text.
        special_tokens: whether the tokenizer adds its own.
        limit: how many texts to take at most.
        scores: those to measure, such as ``("previous", "induction")``; all by default.
        probe: measure the scores of repetition (induction, duplicate) on repeated random tokens,
            and not on the texts.
        ablate: also ablate every head at every step, on the first 64 texts, see
            :func:`attnviz.ablate`.
        conllu: treebanks, for syntactic roles, see :func:`attnviz.syntax`.
        gap: pronouns, for coreference, see :func:`attnviz.coref`.
        show: maps of so many tokens of the first text are kept for the page; 0 for none.
        baselines: losses in nats to compare with, by name, such as ``{"bigram": 1.46}``.
        seed: of the bootstrap.
        jobs: processes, a checkpoint each at a time; the result is the same, bit by bit.
        keep: a folder for what is done, so that the same call goes on from there.
        device: where to run.
        dtype: in which precision.
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
    from attnviz.corpus.texts import Text
    from attnviz.features.film.kept import FilmAsked
    from attnviz.features.film.run import FilmStudy, run
    from attnviz.features.film.series import series
    from attnviz.features.film.summary import summarize

    checkpoints = series(model)
    names, found = _texts(inputs, texts, column, whole=whole)
    for setting in (Setting("limit", limit), Setting("jobs", jobs)):
        if setting.value is not None and setting.value < 1:
            raise UsageError("{} must be 1 or more", setting)
    asked = FilmAsked(
        _scores(scores), special_tokens, probe, ablate, tuple(files.listed(conllu)),
        tuple(files.listed(gap)),
        max(show, 0), seed,
    )  # fmt: skip
    good = tuple(one for one in found if isinstance(one, Text))[:limit]
    if not good:
        raise InputError(f"no text could be used of {', '.join(names)[:200]}; look at its lines")
    study = FilmStudy(good, asked, tuple(names), device, dtype)
    known = _checked(baselines)
    measured = run(
        checkpoints, study, jobs=jobs, keep=None if keep is None else Path(keep), progress=progress
    )
    if len(measured) < min(2, len(checkpoints)):
        raise KeyboardInterrupt
    return summarize(measured, known, partial=len(measured) < len(checkpoints))


def read_film(path: str | Path, baselines: Mapping[str, float] | None = None) -> Film:
    """Read a film: its JSON, or the folder that a run kept its steps in.

    Args:
        path: of what ``attnviz film --json`` printed, or a folder that ``attnviz film --keep``,
            :func:`attnviz.track` or :class:`attnviz.HeadsCallback` wrote.
        baselines: more losses to compare with, by name.

    Raises:
        InputError: it cannot be used.
    """
    path = Path(path)
    if os.path.isdir(path):
        from attnviz.features.film import kept
        from attnviz.features.film.summary import summarize

        return summarize(kept.read_folder(path), _checked(baselines))
    found = read(path)
    if not isinstance(found, Film):
        raise InputError(f"{path} is no film; give what attnviz film wrote")
    return replace(found, baselines={**found.baselines, **_checked(baselines)})


def _texts(
    inputs: str | Path | Sequence[str | Path] | None,
    texts: Sequence[str] | None,
    column: str | None,
    *,
    whole: bool,
) -> tuple[list[str], list[Text | Bad]]:
    from attnviz.corpus import texts as corpus

    if (inputs is None) == (texts is None):
        raise UsageError("give either files or {texts}", texts=...)
    if texts is not None:
        if column is not None or whole:
            raise UsageError(
                "{} is for files; leave it out",
                Setting("column", column) if column is not None else Setting("whole", True),
            )
        return ["texts in memory"], list(corpus.in_memory(texts))
    names = corpus.resolve(files.listed(inputs))
    return names, list(corpus.read(names, column=column, whole_files=whole))


def _scores(names: Sequence[str] | None) -> tuple[str, ...]:
    """In the order of the table; UsageError for one that there is not."""
    from attnviz.scoring.scores import SCORES

    for name in names or ():
        if name not in SCORES:
            raise UsageError("no score is called {!r}; choose {}", name, ", ".join(SCORES))
    return tuple(name for name in SCORES if names is None or name in names)


def _checked(baselines: Mapping[str, float] | None) -> dict[str, float]:
    for name, value in (baselines or {}).items():
        if not math.isfinite(value):
            raise UsageError("the baseline {} is {}; give a loss in nats", name, value)
    return dict(baselines or {})
