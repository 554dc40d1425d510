"""``attnviz.profile``: what the heads of a model do over many texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from attnviz.captures.loading import light
from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.core.heads import Layout
from attnviz.core.interface import interface
from attnviz.core.scores import PrefixMatching
from attnviz.core.source import Source
from attnviz.core.threads import cores, one_thread
from attnviz.corpus import texts as corpus
from attnviz.corpus.texts import sample as drawn
from attnviz.errors import InputError, Setting, UsageError
from attnviz.features.profile import run, saved
from attnviz.features.profile.result import Profile, ProfileOptions
from attnviz.features.profile.sampled.described import with_words
from attnviz.features.profile.sampled.watch import no_effects
from attnviz.features.profile.state import About
from attnviz.features.profile.summary import summarize
from attnviz.features.profile.work import ProfileSettings
from attnviz.features.profile.work import limit as limit_of
from attnviz.features.results import Evidence, notes, read_evidence, with_roles
from attnviz.models.cache import Cache, as_records
from attnviz.models.controls import FreshConfig
from attnviz.models.norm_based import with_quantity
from attnviz.scoring import plugins
from attnviz.scoring.probe import match_prefixes
from attnviz.scoring.select import select

_SEVERAL = 1 << 18
"""Bytes of texts from which on several processes are faster than one: they take time to start."""


@interface
def profile(
    files: str | Path | Sequence[str | Path] | None = None,
    *,
    texts: Sequence[str] | None = None,
    settings: ProfileOptions,
    attaching: Attaching,
    model: ModelSettings,
    state: str | Path | None = None,
    effects: bool = True,
    progress: Callable[[run.Progress], None] = lambda done: None,
) -> Profile:
    """Score every head over many texts, with intervals, examples and where the weight goes.

    Args:
        files: text files (one text per line), JSONL, CSV, TSV or Parquet, patterns, ``-`` for
            standard input; or pictures or sounds, or a folder of them, for models that take these.
        texts: texts in memory, in place of files.
        state: a file. It is written while the run goes on, so that the same call goes on from it
            after an interruption; :func:`attnviz.read` and :func:`merge_profiles` read it.
        effects: whether rows of selected heads are also asked what they do to the loss, by another
            pass with gradients, and to the logits; heads, what their matrices read and write.
        progress: called after every task.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; also where no text can be used.
        ProfileInterrupted: a KeyboardInterrupt, after the state file was written.
    """
    names, records = corpus.given(
        files, texts, column=settings.column, group=settings.group, whole_files=settings.whole,
        media=True,
    )  # fmt: skip
    if settings.limit is not None:
        records = islice(records, min(settings.limit, sys.maxsize))
    if settings.sample is not None:
        records = drawn(records, settings.sample, settings.seed)
    path = None if state is None else Path(state)
    if path is not None:
        saved.check_place(path)
    beside = read_evidence(attaching.evidence)
    sees = any(Path(name).suffix.lower() in corpus.PICTURES for name in names)
    reads: Literal["text", "image"] = "image" if sees else "text"
    loading = partial(_loaded, model, settings.quantity, reads)
    if settings.select is not None and not sees:
        model.expect(partial(selected, settings=settings))
    source = loading()
    work = ProfileSettings(
        settings.special_tokens, settings.stride, settings.quantity,
        limit_of(source, settings.window), selected(source.layout, settings),
    )  # fmt: skip
    about = About(
        dict(model.identity),
        source.info,
        source.layout,
        work,
        version("attnviz"),
        settings.seed,
        settings.interval == "simultaneous",
        settings.group is not None or (not settings.whole and corpus.has_documents(names)),
        _matching(source) if settings.quantity == "weights" else None,
    )
    for evidence in beside:
        evidence.result.check_model(
            evidence.name, about.info, about.layout, about.model
        )  # now, not when all has run
    effects = effects or path is not None  # whoever goes on from a state may want them
    workers = run.executor(
        loading,
        source,
        about,
        _jobs(model.model, settings, names, source.info.device),
        settings.ray,
        lambda share: progress(run.Progress(0, 0, (), 0.0, share)),
        effects=effects,
    )
    finished = run.run(
        records, tuple(names), about, workers, out=path, strict=settings.strict, progress=progress
    )
    if not finished.tally.texts:
        raise InputError(f"no text could be used of {', '.join(names)[:200]}; look at its lines")
    result = summarize(finished, stability=settings.stability)
    rows, sums = result.distribution, finished.tally.rows
    if rows is not None and sums is not None:
        if effects:
            rows = replace(with_words(rows, sums, source), no_effect=no_effects(source))
        else:
            rows = replace(
                rows, no_effect="they were not asked for", no_words="it was not asked for"
            )
        result = replace(result, distribution=rows)
    return with_evidence(result, beside)


def selected(layout: Layout, settings: ProfileOptions) -> tuple[str, ...]:
    """Return the names of the heads that are looked at row by row."""
    if settings.select is None:
        return ()
    if settings.quantity != "weights":
        raise UsageError(
            "{select} looks at weights, not at {quantity}; leave one of them out",
            select=...,
            quantity=settings.quantity,
        )
    heads = select(settings.select, layout)
    kinds = {head.site.kind for head in heads}
    if "cross" in kinds or len(kinds) > 1:
        raise UsageError(
            "{} has heads whose queries and keys are not of one text; take heads of one stack, "
            "such as {}",
            Setting("select", settings.select),
            layout.name(next(head for head in layout if head.site.kind != "cross")),
        )
    return tuple(layout.name(head) for head in heads)


@interface
def merge_profiles(
    files: Sequence[str | Path],
    *,
    state: str | Path | None = None,
    stability: bool = False,
    attaching: Attaching,
) -> Profile:
    """Put the profiles of several parts of a corpus together.

    The result is that of one run over all files in this order, bit by bit.

    Args:
        files: state files of finished runs with the same model and settings.
        state: where to write the state of the whole.
        stability: see :func:`profile`.

    Raises:
        InputError: a file cannot be used, or its run is not finished.
        UsageError: fewer than two files, or files that do not belong together.
    """
    if len(files) < 2:
        raise UsageError("merging takes two profiles or more; name their files")
    if state is not None:
        saved.check_place(Path(state))
    merged = saved.read_finished(files[0])
    for path in files[1:]:
        merged.merge(saved.read_finished(path), str(path))
    if state is not None:
        saved.write(Path(state), merged)
    return with_evidence(summarize(merged, stability=stability), attaching.evidence)


def _loaded(model: ModelSettings, quantity: str, reads: Literal["text", "image"]) -> Source:
    """Return the model, with another quantity in its maps where that is wanted."""
    return with_quantity(light(model.load(reads=reads)), quantity, shares=True)


def _matching(source: Source) -> PrefixMatching | None:
    """As any process would measure it: the last bit depends on the number of threads."""
    kind = as_records(PrefixMatching | None)
    with one_thread():
        matching: PrefixMatching | None = Cache(source).recall(
            "prefix matching", (), partial(match_prefixes, source), *kind
        )
    return matching


def with_evidence(profile: Profile, evidence: Evidence | Sequence[Evidence] | None) -> Profile:
    """Return a profile with the roles and findings of other results."""
    if evidence is None:
        return profile
    several = read_evidence(evidence)
    heads = profile.heads
    for measured in several:
        measured.result.check_model(measured.name, profile.source, profile.layout, profile.identity)
        roles = measured.result.annotated_roles()
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
        profile,
        heads=heads,
        findings=tuple(f for measured in several if (f := measured.finding()) is not None),
        notes=(*profile.notes, *notes(several, profile.identity)),
    )


def count(
    inputs: Sequence[str], *, whole: bool, limit: int | None, sample: int | None
) -> int | None:
    """About how many texts will come, for showing progress; None where nobody knows."""
    names = corpus.resolve(inputs)
    total = len(names) if whole else corpus.count(names)
    bounds = [bound for bound in (total, limit, sample) if bound is not None]
    return min(bounds) if total is not None or limit is not None else None


def _jobs(model: Any, settings: ProfileOptions, names: Sequence[str], device: str) -> int | None:
    """How many processes; one a core where that is faster, None where Ray is to say."""
    jobs, ray = settings.jobs, settings.ray
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
