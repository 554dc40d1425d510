"""``attnviz.profile``: what the heads of a model do over many texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Literal
from zipfile import is_zipfile

from attnviz import files
from attnviz.captures.look import DEFAULT_MODEL, Model, load
from attnviz.core.measures import PrefixMatching
from attnviz.core.source import Source
from attnviz.corpus import lines
from attnviz.corpus import texts as corpus
from attnviz.corpus.executors import cores, one_thread
from attnviz.corpus.sample import sample as drawn
from attnviz.corpus.texts import Bad, Text
from attnviz.errors import InputError, Setting, UsageError
from attnviz.features.evidence import Evidence, notes, read_evidence, with_roles
from attnviz.features.profile import run, saved
from attnviz.features.profile.result import Profile
from attnviz.features.profile.state import About, State
from attnviz.features.profile.summary import summarize
from attnviz.features.profile.windows import limit as limit_of
from attnviz.features.profile.work import ProfileSettings
from attnviz.features.registry import read
from attnviz.models.identity import identity
from attnviz.models.untrained import FreshConfig
from attnviz.models.weighed import weighed
from attnviz.scoring import plugins
from attnviz.scoring.probe import match_prefixes

INTERVALS = ("each", "simultaneous")
"""An interval for each head and score by itself, or intervals that hold for all at once."""
_SEVERAL = 1 << 18
"""Bytes of texts from which on several processes are faster than one: they take time to start."""


def profile(
    inputs: str | Path | Sequence[str | Path] | None = None,
    *,
    texts: Sequence[str] | None = None,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    column: str | None = None,
    group: str | None = None,
    whole: bool = False,
    stride: int | None = None,
    window: int | None = None,
    special_tokens: bool = True,
    weigh: str = "weights",
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    interval: str = "each",
    jobs: int | None = None,
    ray: str | None = None,
    strict: bool = False,
    evidence: Evidence | Sequence[Evidence] | None = None,
    stability: bool = False,
    out: str | Path | None = None,
    progress: Callable[[run.Progress], None] = lambda found: None,
) -> Profile:
    """Score every head over many texts, with intervals, examples and where the weight goes.

    Args:
        inputs: text files (one text per line), JSONL, CSV, TSV or Parquet, patterns, ``-`` for
            standard input; or pictures or sounds, or a folder of them, for models that take these.
        texts: texts in memory, in place of files.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.
        column: the column or field with the text.
        group: the column or field that names what a text belongs to, such as its document; groups
            are then the independent units of the intervals. Their texts must follow each other.
        whole: every file is one text. Texts longer than a window are cut between words.
        stride: about how many tokens lie between the beginnings of two windows of a text; by
            default they do not overlap. Rows in an overlap count in both windows.
        window: tokens of a window, as many as the model takes; by default 1,024, or the model's
            own length where that is less. Memory grows in proportion, time with its square.
        special_tokens: whether the tokenizer adds its own.
        weigh: what is scored, as for :func:`attnviz.heads`.
        limit: how many texts to take at most, from the first on.
        sample: how many texts to draw at random; after ``limit``.
        seed: of the sample and of the bootstrap.
        interval: one of :data:`INTERVALS`.
        jobs: how many processes; by default one a core where there is enough to do. The result is
            the same, bit by bit.
        ray: run on Ray instead (the extra attnviz[ray]): ``"local"``, or the address of a cluster;
            ``jobs`` is then the number of actors, by default all that there is room for.
        strict: raise for the first text that cannot be used, which is left out otherwise.
        evidence: see :func:`attnviz.heads`.
        stability: also say how often roles and the heads most alike stay when texts are drawn anew.
        out: a state file. It is written while the run goes on, so that the same call goes on from
            it after an interruption; :func:`read_profile` and :func:`merge_profiles` read it.
        progress: called after every task.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; also where no text can be used.
        ProfileInterrupted: a KeyboardInterrupt, after the state file was written.
    """
    if interval not in INTERVALS:
        raise UsageError(
            "no {interval}; choose {}", " or ".join(map(repr, INTERVALS)), interval=interval
        )
    for name, value in (
        ("stride", stride),
        ("window", window),
        ("limit", limit),
        ("sample", sample),
        ("jobs", jobs),
    ):
        if value is not None and value < 1:
            raise UsageError("{} must be 1 or more", Setting(name, value))
    names, found = _read(inputs, texts, column, group, whole=whole)
    if limit is not None:
        found = islice(found, min(limit, sys.maxsize))
    if sample is not None:
        found = drawn(found, sample, seed)
    path = None if out is None else Path(out)
    if path is not None:
        files.check_writable(path)
    sees = any(Path(name).suffix.lower() in corpus.PICTURES for name in names)
    reads: Literal["text", "image"] = "image" if sees else "text"
    loading = partial(_loaded, model, weigh, device=device, dtype=dtype, reads=reads)
    source = loading()
    settings = ProfileSettings(special_tokens, stride, weigh, limit_of(source, window))
    about = About(
        dict(identity(model)),
        source.info,
        source.layout,
        settings,
        version("attnviz"),
        seed,
        interval == "simultaneous",
        group is not None,
        _matching(source) if weigh == "weights" else None,
    )
    for one in read_evidence(evidence):
        one.result.check_model(
            one.name, about.info, about.layout, about.model
        )  # now, not when all has run
    workers = run.executor(
        loading,
        source,
        about,
        _jobs(model, jobs, ray, names, source.info.device),
        ray,
        lambda share: progress(run.Progress(0, 0, (), 0.0, share)),
    )
    state = run.run(found, tuple(names), about, workers, out=path, strict=strict, progress=progress)
    if not state.tally.texts:
        raise InputError(f"no text could be used of {', '.join(names)[:200]}; look at its lines")
    return _with_evidence(summarize(state, stability=stability), evidence)


def _read(
    inputs: str | Path | Sequence[str | Path] | None,
    texts: Sequence[str] | None,
    column: str | None,
    group: str | None,
    *,
    whole: bool,
) -> tuple[list[str], Iterator[Text | Bad]]:
    """The names of what is read, and the texts in it; parameters of :func:`profile`."""
    if (inputs is None) == (texts is None):
        raise UsageError("give either files or {texts}", texts=...)
    if texts is None:
        names = corpus.resolve(files.listed(inputs), senses=True)
        found = corpus.read(names, column=column, group=group, whole_files=whole, senses=True)
        return names, found
    for name, value in (("column", column), ("group", group), ("whole", whole or None)):
        if value is not None:
            raise UsageError("{} is for files; leave it out", Setting(name, value))
    return ["texts in memory"], corpus.in_memory(texts)


def read_profile(
    path: str | Path,
    evidence: Evidence | Sequence[Evidence] | None = None,
    *,
    stability: bool = False,
) -> Profile:
    """Read a state file, finished or not, or the JSON of a profile.

    Args:
        path: of the file; a state, or ``.json`` with what ``attnviz profile --json`` printed.
        evidence: see :func:`attnviz.heads`.
        stability: see :func:`profile`.

    Raises:
        InputError: a file cannot be used.
        UsageError: evidence about another model, or stability of a JSON profile without it, which
            has no single texts to draw again.
    """
    path = Path(path)
    zipped = path.is_file() and is_zipfile(path)  # a device has no end to look for
    if path.suffix.lower() != ".json" or zipped:
        return _with_evidence(summarize(saved.read(path), stability=stability), evidence)
    found = read(path)
    if not isinstance(found, Profile):
        raise InputError(f"{path} is no profile; give what attnviz profile wrote")
    if stability and not found.resamples:
        raise UsageError(
            "{} has no single texts to draw again for {stability}; give the state that attnviz "
            "profile kept",
            path,
            stability=...,
        )
    return _with_evidence(found, evidence)


def merge_profiles(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    evidence: Evidence | Sequence[Evidence] | None = None,
    *,
    stability: bool = False,
) -> Profile:
    """Put the profiles of several parts of a corpus together.

    The result is that of one run over all files in this order, bit by bit.

    Args:
        paths: state files of finished runs with the same model and settings.
        out: where to write the state of the whole.
        evidence: see :func:`attnviz.heads`.
        stability: see :func:`profile`.

    Raises:
        InputError: a file cannot be used, or its run is not finished.
        UsageError: fewer than two files, or files that do not belong together.
    """
    if len(paths) < 2:
        raise UsageError("merging takes two profiles or more; name their files")
    if out is not None:
        files.check_writable(Path(out))
    state = _finished(paths[0])
    for path in paths[1:]:
        state.merge(_finished(path), str(path))
    if out is not None:
        saved.write(Path(out), state)
    return _with_evidence(summarize(state, stability=stability), evidence)


def _loaded(
    model: Model, weigh: str, *, device: str, dtype: str, reads: Literal["text", "image"]
) -> Source:
    """The model, with another quantity in its maps where that is wanted."""
    return weighed(load(model, device=device, dtype=dtype, reads=reads), weigh, shares=True)


def _matching(source: Source) -> PrefixMatching | None:
    """As any process would measure it: the last bit depends on the number of threads."""
    with one_thread():
        return match_prefixes(source)


def _finished(path: str | Path) -> State:
    state = saved.read(Path(path))
    if not state.finished:
        raise UsageError(f"the run of {path} is not finished; run its command again first")
    return state


def _with_evidence(found: Profile, evidence: Evidence | Sequence[Evidence] | None) -> Profile:
    """A profile with the roles and findings of other results."""
    if evidence is None:
        return found
    several = read_evidence(evidence)
    heads = found.heads
    for one in several:
        one.result.check_model(one.name, found.source, found.layout, found.identity)
        roles = one.result.annotated_roles()
        scored = with_roles([head.scores for head in heads], roles)
        heads = tuple(
            replace(
                head,
                scores=scores,
                estimates={
                    **head.estimates,
                    **{role.title: estimate for role, estimate in roles.get(head.head, ())},
                },
            )
            for head, scores in zip(heads, scored, strict=True)
        )
    return replace(
        found,
        heads=heads,
        findings=tuple(said for one in several if (said := one.finding()) is not None),
        notes=(*found.notes, *notes(several, found.identity)),
    )


def count(
    inputs: Sequence[str], *, whole: bool, limit: int | None, sample: int | None
) -> int | None:
    """About how many texts will come, for showing progress; None where nobody knows."""
    names = corpus.resolve(inputs)
    known = len(names) if whole else lines.count(names)
    bounds = [bound for bound in (known, limit, sample) if bound is not None]
    return min(bounds) if known is not None or limit is not None else None


def _jobs(
    model: Model, jobs: int | None, ray: str | None, names: Sequence[str], device: str
) -> int | None:
    """How many processes; one a core where that is faster, None where Ray is to say."""
    if not isinstance(model, str | Path | FreshConfig):
        if (jobs or 1) > 1 or ray is not None:
            raise UsageError(
                "a loaded model cannot go to other processes; give its name or folder, or leave "
                "out {jobs} and {ray}",
                jobs=...,
                ray=...,
            )
        return 1
    if jobs is not None or ray is not None:
        return jobs
    if plugins.here_alone():
        return 1
    sizes = [Path(name).stat().st_size if Path(name).is_file() else 0 for name in names]
    return cores() if device == "cpu" and sum(sizes) >= _SEVERAL else 1
