"""Profiles that were kept: state files, the JSON of a profile, and several put together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnviz.errors import UsageError
from attnviz.features.profile import saved
from attnviz.features.profile.result import Profile
from attnviz.features.profile.state import State
from attnviz.features.profile.summary import summarize


def read_state(path: str | Path, *, stability: bool = False) -> Profile:
    """Read a state file, finished or not."""
    return summarize(saved.read(Path(path)), stability=stability)


def merged(
    paths: Sequence[str | Path], state: str | Path | None = None, *, stability: bool = False
) -> Profile:
    """Merge the profiles of parts of a corpus; see :func:`attnviz.merge_profiles`."""
    if len(paths) < 2:
        raise UsageError("merging takes two profiles or more; name their files")
    if state is not None:
        saved.check_place(Path(state))
    whole = _finished(paths[0])
    for path in paths[1:]:
        whole.merge(_finished(path), str(path))
    if state is not None:
        saved.write(Path(state), whole)
    return summarize(whole, stability=stability)


def _finished(path: str | Path) -> State:
    state = saved.read(Path(path))
    if not state.finished:
        raise UsageError(f"the run of {path} is not finished; run its command again first")
    return state
