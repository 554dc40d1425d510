"""How an export runs, as against what it draws."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.arguments import check_fields
from attnviz.corpus.executors import cores
from attnviz.errors import UsageError

SYNC = ("never", "end", "always")
"""When to wait for the disk: not at all, for the manifest and the index, for every file."""

_MOST_A_CORE = 4


@dataclass(frozen=True, slots=True)
class Execution:
    """How an export runs; nothing here changes a picture.

    Attributes:
        jobs: processes that draw; 1 draws in this one, None means all cores.
        force: take over a folder that holds something else.
        strict: stop at the first bad input.
        skip: leave out so many inputs at the start; ``limit`` takes so many of the rest.
        limit: see ``skip``.
        sync: one of :data:`SYNC`.
    """

    jobs: int | None = None
    force: bool = False
    strict: bool = False
    skip: int = 0
    limit: int | None = None
    sync: str = "end"

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise UsageError for what makes no sense here."""
        if self.sync not in SYNC:
            raise UsageError("{sync} takes {}, not {!r}", ", ".join(SYNC), self.sync, sync=...)
        most = _MOST_A_CORE * cores()
        if self.jobs is not None and self.jobs > most:
            raise UsageError(
                "{jobs} is more than {}, which is {} per core here",
                most,
                _MOST_A_CORE,
                remedy="leave it out for one per core",
                jobs=self.jobs,
            )
