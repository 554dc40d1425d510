"""All that a run has found out so far: what adds up, and how far it has come."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import PrefixMatching, UserDefined
from attnviz.corpus.texts import InvalidRecord
from attnviz.errors import InputError, UsageError
from attnviz.features.profile.tally import Tally
from attnviz.features.profile.tasks import ProfileTask
from attnviz.features.profile.work import Cluster, Part, ProfileSettings
from attnviz.scoring.plugins import user_defined
from attnviz.scoring.scores import SCORES
from attnviz.scoring.totals import Sums, comparable
from attnviz.statistics.clusters import ClusterSums
from attnviz.statistics.histogram import Spread
from attnviz.statistics.order import per_text
from attnviz.statistics.simultaneous import REPLICATES, Bootstrap

BAD_NAMED = 20  # so many texts that could not be used are kept by name; the others are counted
RESAMPLES = 20
"""How often roles and likeness are found anew, from texts drawn anew, to see whether they stay."""
_TOPS: Mapping[str, float] = {"share": 1.0, "bits": 20.0, "tokens": 20.0}
"""The largest value of a score that its quartiles tell apart; tokens as log₂(1 + tokens)."""


@dataclass(frozen=True)
class About:
    """What results must share to be added up."""

    # what its weights and options are, see :func:`attnviz.models.cache.identity`.
    model: Mapping[str, Any]
    info: SourceInfo  # where they came from, for the report
    layout: Layout  # the heads
    settings: ProfileSettings  # how texts run
    version: str  # of attnviz
    seed: int = 0  # of everything that is drawn; ``simultaneous`` whether intervals are
    simultaneous: bool = False
    grouped: bool = False  # whether the texts name the groups that they belong to
    # prefix matching of the model, which needs texts of its own; None where it is not defined
    matching: PrefixMatching | None = None
    # the scores and roles that are no part of attnviz
    user_defined: tuple[UserDefined, ...] = field(default_factory=user_defined)

    @property
    def replicates(self) -> int:
        """How often texts are drawn anew."""
        return REPLICATES if self.simultaneous else RESAMPLES

    @property
    def selected(self) -> tuple[Head, ...]:
        """The heads that are looked at row by row."""
        return tuple(self.layout.head(name) for name in self.settings.select)

    def comparable(self) -> dict[str, Any]:
        """Return what must be the same, by the names that people know."""
        return {
            "model": {**self.model, "name": self.info.model.rstrip("/").split("/")[-1]},
            "backend": self.info.backend,
            "dtype": self.info.dtype,
            **asdict(self.settings),
            "heads": {kind: list(counts) for kind, counts in self.layout.heads.items()},
            "version": self.version,
            "seed": self.seed,
            "simultaneous": self.simultaneous,
            "group": self.grouped,
            "user-defined": [
                f"{definition.what} {definition.name} ({definition.function})"
                for definition in self.user_defined
            ],
        }


@dataclass(slots=True)
class Run:
    """How far one run over some texts has come; several of them after merging."""

    names: tuple[str, ...]  # of the files
    tasks: int = 0  # how many are done
    digest: str = ""  # a hash of all texts of these tasks, in their order
    read: int = 0  # texts read, good or bad
    finished: bool = False  # whether it came to the end

    def follow(self, task: ProfileTask) -> None:
        """Count a task."""
        self.tasks += 1
        self.digest = hashlib.sha256(self.digest.encode() + task.digest).hexdigest()
        numbers = [piece.text.number for piece in task.pieces] + [bad.number for bad in task.bad]
        self.read = max([self.read, *numbers])


@dataclass
class State:
    """What adds up, and how far it has come."""

    about: About  # what the results are of
    runs: list[Run]  # over which texts
    tally: Tally  # everything but the sums of clusters
    sums: ClusterSums  # of the clusters that are complete, [H, n]
    means: ClusterSums  # the same of their means: every cluster that has a row counts once
    spread: Spread  # how their means spread, [H·n]
    # the clusters drawn anew, for simultaneous intervals or :data:`RESAMPLES` times
    bootstrap: Bootstrap
    # how often every text, or group of texts, is there, by a hash of its words
    copies: Counter[int] = field(default_factory=Counter)
    # hashes of the groups so far, where texts name groups
    groups: set[int] = field(default_factory=set)
    bad: list[InvalidRecord] = field(default_factory=list)
    bad_count: int = 0  # texts that could not be used; ``bad`` names the first of them
    open: Cluster | None = None  # that the next text may still belong to

    @classmethod
    def begin(cls, about: About, names: tuple[str, ...]) -> State:
        """Nothing yet."""
        shape = (len(about.layout), len(SCORES))
        tops = np.array([_TOPS[score.unit] for score in SCORES.values()])
        return cls(
            about,
            [Run(names)],
            Tally(about.layout, about.selected),
            ClusterSums(shape),
            ClusterSums(shape),
            Spread(np.tile(tops, shape[0])),
            Bootstrap(shape, about.seed, about.replicates),
        )

    @property
    def finished(self) -> bool:
        """Whether every run came to its end."""
        return all(run.finished for run in self.runs)

    def add(self, task: ProfileTask, part: Part) -> None:
        """Add what a task found; tasks in their order."""
        clusters = list(part.clusters)
        if self.open is not None and clusters:
            if clusters[0].name == self.open.name:
                clusters[0] += self.open
            else:
                clusters.insert(0, self.open)
        if self.about.grouped:
            self._remember([cluster.name for cluster in clusters])
        (run,) = self.runs
        run.follow(task)
        self.tally.merge(part.tally)
        self.count_bad(part.bad)
        if clusters:
            *complete, self.open = clusters
            self._close(complete)

    def count_bad(self, bad: tuple[InvalidRecord, ...]) -> None:
        """Remember texts that could not be used."""
        self.bad_count += len(bad)
        self.bad += bad[: BAD_NAMED - len(self.bad)]

    def finish(self) -> None:
        """There are no more texts."""
        if self.open is not None:
            self._close([self.open])
            self.open = None
        for run in self.runs:
            run.finished = True

    def merge(self, other: State, name: str) -> None:
        """Add the result of another run; both are finished."""
        mine, theirs = self.about.comparable(), other.about.comparable()
        for key, value in mine.items():
            if value != theirs[key]:
                raise UsageError(
                    f"{name} does not belong to the others: its {key} is "
                    f"{_plain(theirs[key], value)}, theirs {_plain(value, theirs[key])}; run it "
                    "again in the same way"
                )
        digests = {run.digest for run in self.runs}
        for run in other.runs:
            if run.digest in digests:
                raise UsageError(
                    f"{name} has texts that are there already ({', '.join(run.names)[:200]}); "
                    "leave it out"
                )
        if shared := self.groups & other.groups:
            raise UsageError(
                f"{name} has {len(shared)} groups that are there already; run all texts of a group "
                "together"
            )
        offset = sum(run.read for run in self.runs)
        other.tally.examples.renumber(offset)
        if other.tally.rows is not None:
            other.tally.rows.sample.renumber(offset)
        self.runs += other.runs
        self.tally.merge(other.tally)
        self.sums.merge(other.sums)
        self.means.merge(other.means)
        self.spread.merge(other.spread)
        self.bootstrap.merge(other.bootstrap)
        self.copies.update(other.copies)
        self.groups |= other.groups
        self.bad_count += other.bad_count
        numbered = [replace(bad, number=bad.number + offset) for bad in other.bad]
        self.bad = [*self.bad, *numbered][:BAD_NAMED]

    def total(self) -> Sums:
        """Return the sums over all rows."""
        tally = self.tally
        return Sums(
            tuple(SCORES),
            comparable(SCORES),
            self.sums.a.value(),
            tally.chances.value(),
            self.sums.b,
            tally.shares.value(),
            tally.counted,
            tally.empty,
        )

    def _remember(self, names: list[str]) -> None:
        """Note the groups that begin; InputError for one that was complete."""
        current = self.open.name if self.open is not None else None
        for name in names:
            digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8)
            key = int.from_bytes(digest.digest())
            if key in self.groups and name != current:
                raise InputError(
                    f"the texts of the group {name[:40]!r} do not follow each other; sort the "
                    "texts by their groups"
                )
            current = name
            self.groups.add(key)

    def _close(self, clusters: list[Cluster]) -> None:
        """Add clusters that are complete."""
        if not clusters:
            return
        a = np.stack([cluster.a for cluster in clusters])
        b = np.stack([cluster.b for cluster in clusters])
        self.sums.add(a, b)
        self.copies.update(cluster.content for cluster in clusters)
        means = per_text(a, b)
        self.means.add(np.nan_to_num(means), (b > 0).astype(np.int64))
        tokens = [score.unit == "tokens" for score in SCORES.values()]
        means[..., tokens] = np.log2(1 + means[..., tokens])
        self.spread.add(means.reshape(len(clusters), -1))
        self.bootstrap.add([cluster.name for cluster in clusters], a, b)


def _plain(value: object, base: object) -> str:
    """Return a value in words; of a mapping what is not the same in another one."""
    if not isinstance(value, Mapping) or not isinstance(base, Mapping):
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    names = [name for name in value if name not in base or value[name] != base[name]]
    return ", ".join(f"{name} {_plain(value[name], base.get(name))}" for name in names) or "less"
