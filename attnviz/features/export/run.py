"""One export from beginning to end."""

from __future__ import annotations

import contextlib
import errno
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

from attnviz import __version__, files
from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import Made, SourceInfo, hash_of
from attnviz.core.source import Source
from attnviz.core.threads import cores
from attnviz.corpus.executors import Inline, Processes, Stopping, WorkerFailure
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.drawing.png import DEFLATE
from attnviz.errors import InputError, OutputError, SelectionError, UsageError
from attnviz.features.export import gallery
from attnviz.features.export.manifest import SCHEMA, Manifest
from attnviz.features.export.pictures import Job, Written, drawing, make
from attnviz.features.export.plan import FilePlan, Folder
from attnviz.features.export.scored import (
    Annotation,
    Input,
    RecordedInput,
    Scored,
    run_recorded,
    run_texts,
)
from attnviz.features.export.settings import ExportRun, ExportSettings
from attnviz.scoring import select as selection

_STARVED = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO}


@dataclass(slots=True)
class Exported:
    """What an export did."""

    out: Path  # the folder
    pictures: int = 0  # files that this run made, pictures and weights; ``kept`` were there already
    kept: int = 0
    inputs: int = 0  # how many were finished, with or without a picture
    seconds: float = 0.0  # how long it took
    bad: list[InvalidRecord] = field(default_factory=list)  # inputs that could not be used
    model: str = ""  # what the pictures are of
    notes: tuple[str, ...] = ()  # what to know of the roles that results gave, as sentences


class ExportInterrupted(KeyboardInterrupt):
    """Ctrl-C: the folder is valid, and the same command goes on from here."""

    def __init__(self, result: Exported) -> None:
        super().__init__("interrupted")
        self.result = result  # what was done until then


Progress = Callable[[Exported], None]


@dataclass(eq=False)
class Run:
    """The state of one export."""

    folder: Folder
    settings: ExportSettings
    how: ExportRun
    annotation: Annotation
    result: Exported
    progress: Progress
    stop: Stopping

    def __post_init__(self) -> None:
        self.executor: Inline[Job, list[Written]] | Processes[Job, list[Written]] | None = None
        self.document = self.settings.document() | self.annotation.document()
        self.plans: dict[str, FilePlan] = {}  # by the input's folder
        self.waiting: dict[str, int] = {}  # how many files of each are not there yet
        self.seen: set[int] = set()
        self.made = Made()

    @property
    def manifest(self) -> Manifest:
        """The lines of the folder, once it was opened."""
        assert self.folder.manifest is not None
        return self.folder.manifest

    def go(self, items: Iterable[Input | InvalidRecord], load: Callable[[], Source] | None) -> None:
        """Everything between opening the folder and closing it."""
        jobs = self.how.jobs or cores()
        try:
            self.executor = Processes(drawing, jobs) if jobs > 1 else Inline(make)
            with self.executor:
                with self.stop.at_once():
                    source = load() if load is not None else None
                heads = self._begin(source)
                scored = self._scored(items, source, heads)
                for job, answer in self.executor.run(self._jobs(scored, heads)):
                    self._written(job, answer)
            if not self.stop.asked():
                self._check_end()
        except BaseException as error:
            self._sweep()
            if self.folder.begun():
                with contextlib.suppress(OutputError, OSError):
                    self._finish()
            explained = self._explained(error)
            if explained is error:
                raise
            raise explained from None
        self._sweep()
        self._finish()

    def _begin(self, source: Source | None) -> frozenset[Head]:
        """Open the folder for these settings; the heads selected, none for recorded attention."""
        identity = self.annotation.identity
        heads: frozenset[Head] = frozenset()
        document: dict[str, Any] = {"schema": SCHEMA}
        if source is not None:
            heads = frozenset(self._selected(source.layout))
            info, layout = source.info, source.layout
            self.annotation.check_model(info, layout)
            document |= {"model": info.model, "backend": info.backend}
            document["model_layout"] = {kind: list(layout.heads[kind]) for kind in layout.kinds}
            document["dtype"] = info.dtype
            self._name(info.model)
            self.made = Made(info.model, hash_of(identity))
        with self.stop.at_once():
            self.folder.begin(document | {**identity, **self.document})
        return heads

    def _scored(
        self, items: Iterable[Input | InvalidRecord], source: Source | None, heads: frozenset[Head]
    ) -> Iterator[Scored | InvalidRecord]:
        """Return the inputs after the model, or as they were recorded."""
        inputs = self._read(items)
        if source is None:
            recorded = cast("Iterator[RecordedInput | InvalidRecord]", inputs)
            return run_recorded(recorded, self.settings, self._wanted)
        texts = cast("Iterator[Text | InvalidRecord]", inputs)
        return run_texts(texts, source, self.settings, heads, self._wanted)

    def _read(self, items: Iterable[Input | InvalidRecord]) -> Iterator[Input | InvalidRecord]:
        """Yield the inputs to take, until Ctrl-C, which does not wait for the next one."""
        limit = self.how.limit
        limited = islice(items, None if limit is None else min(limit, sys.maxsize))
        while True:
            with self.stop.at_once():
                item = next(limited, None)
            if item is None or self.stop.asked():
                return
            yield item

    def _check_end(self) -> None:
        """After all inputs: there were some, and with force nothing else stays."""
        if not (self.result.inputs or self.result.bad):
            raise InputError("nothing to export: there is no text")
        if self.how.force and not self.how.limit:
            self.manifest.keep(self.seen | {bad.number for bad in self.result.bad})

    def _sweep(self) -> None:
        """Remove what processes that died left of their files."""
        if self.executor is not None and self.executor.restarted:
            self.folder.sweep()

    def _name(self, model: str) -> None:
        """Keep what the pictures are of; recorded attention may be of several models."""
        self.result.model = model if self.result.model in ("", model) else "several models"

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error for the user: a system that ran out of something is no bug of ours."""
        if isinstance(error, OSError) and error.errno in _STARVED:
            error = OutputError(f"cannot go on: {error.strerror}")
        elif isinstance(error, OSError) and str(error.filename).startswith(str(self.folder.path)):
            error = OutputError(f"cannot change {error.filename}: {error.strerror}")
        count = len(self.manifest) if self.folder.begun() else 0
        if isinstance(error, OutputError) and count:
            return OutputError(
                "{}; {} files are done, and the same command resumes from there",
                error.message,
                count,
            )
        return error

    def _jobs(
        self, scored: Iterator[Scored | InvalidRecord], heads: frozenset[Head]
    ) -> Iterator[Job]:
        """Yield what is missing of each input, until Ctrl-C."""
        for item in scored:
            if self.stop.asked():
                return
            if isinstance(item, InvalidRecord):
                self._skip(item)
                continue
            annotated = self.annotation.given(item)
            mine = [h for h in annotated.capture.layout if h in heads]
            if annotated.capture.layout.mean:
                mine = list(annotated.scores)
                self._name(annotated.capture.source.model)
            elif not heads:  # recorded attention, where every file has a layout of its own
                try:
                    chosen = self._selected(annotated.capture.layout)
                except SelectionError as error:
                    self._skip(
                        InvalidRecord(annotated.input.number, annotated.input.place, error.message)
                    )
                    continue
                mine = [head for head in chosen if annotated.capture.holds(head)]
                self._name(annotated.capture.source.model)
            try:
                plan = FilePlan(annotated, mine, self.settings)
            except (InputError, UsageError) as error:
                self._skip(
                    InvalidRecord(annotated.input.number, annotated.input.place, error.message)
                )
                continue
            digest = annotated.input.digest
            names = [f"{plan.folder}/{name}" for name in plan.files]
            self.manifest.forget(annotated.input.number, names)
            missing = [
                name
                for name, file in zip(plan.files, names, strict=True)
                if not self.manifest.done(file, digest)
            ]
            self.result.kept += len(names) - len(missing)
            path = f"{self.folder.path}/{plan.folder}"
            self.plans[path] = plan
            self.waiting[path] = len(missing)
            for job in plan.jobs(path, missing):
                yield job
                if self.stop.asked():
                    return
            if not missing:
                del self.plans[path], self.waiting[path]
            self.result.inputs += 1
            self.progress(self.result)

    def _skip(self, bad: InvalidRecord) -> None:
        """Leave out an input that cannot be used; InputError where that is not wanted."""
        self.result.bad.append(bad)
        if self.how.strict:
            raise InputError("{}: {}", bad.place, bad.reason)
        self.progress(self.result)

    def _written(self, job: Job, answer: list[Written] | WorkerFailure) -> None:
        """Enter a finished job in the journal."""
        if isinstance(answer, WorkerFailure):
            raise OutputError(
                "cannot draw {}: {}",
                job.folder,
                answer.reason,
                remedy="it may have run out of memory; use fewer {jobs}",
                jobs=...,
            )
        plan = self.plans[job.folder]
        common = self._common(plan.scored.capture.source)
        for file in answer:
            self.manifest.add(plan.line(file, common))
        self.result.pictures += len(answer)
        self.waiting[job.folder] -= len(answer)
        if self.waiting[job.folder] == 0:
            del self.plans[job.folder], self.waiting[job.folder]
        self.progress(self.result)

    def _wanted(self, item: Input) -> bool:
        """Whether something is to be done for an input, which must be the one we know.

        Where nothing is, all its files are there, and it counts as done.
        """
        self.seen.add(item.number)
        digest = self.manifest.digest(item.number)
        if digest is not None and digest != item.digest:
            if not self.folder.force:
                old = json.dumps(self.manifest.text(item.number)[:40], ensure_ascii=False)
                new = json.dumps(item.text[:40], ensure_ascii=False)
                raise UsageError(
                    "{} holds pictures of {} as input {}, which is now {} ({})",
                    self.folder.path,
                    old,
                    item.number,
                    new,
                    item.place,
                    remedy="choose another folder, or {force} to replace what has changed",
                    force=True,
                )
            self.manifest.drop(item.number)
        if not self.manifest.complete(item.digest, item.number):
            return True
        self.result.kept += self.manifest.files_of(item.number)
        self.result.inputs += 1
        self.progress(self.result)
        return False

    def _selected(self, layout: Layout) -> tuple[Head, ...]:
        if self.settings.heads is None:
            return tuple(layout)
        return selection.select(self.settings.heads, layout)

    def _common(self, info: SourceInfo) -> dict[str, Any]:
        """Return what all lines of a model share."""
        return {
            "model": info.model,
            "backend": info.backend,
            "exactness": info.exactness,
            "device": info.device,
            "dtype": info.dtype,
            "settings": self.document,
            "versions": {"attnviz": __version__, **info.versions, "deflate": DEFLATE},
        }

    def _finish(self) -> None:
        """Write the manifest in order, and the gallery; while there is a journal, it goes on."""
        self.manifest.finish()
        index = gallery.page(self.manifest.lines(), self.made, self.settings.style.palette)
        files.place(self.folder.path / gallery.INDEX, index, sync=True)
        self.manifest.forget_journal()
