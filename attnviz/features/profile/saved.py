"""State files: everything a run has found out, as NumPy arrays and JSON in one .npz archive."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz import files
from attnviz.corpus.texts import Bad
from attnviz.errors import InputError
from attnviz.measures import PrefixMatching
from attnviz.models.containers import read_archive
from attnviz.profiling.examples import Shown
from attnviz.profiling.likeness import Divergences
from attnviz.profiling.state import About, Cluster, Run, State
from attnviz.profiling.tally import COUNTS
from attnviz.profiling.work import ProfileSettings
from attnviz.records import Layout, SourceInfo
from attnviz.statistics.exact import Exact

SCHEMA = "attnviz.profile-state/2"
_HEADER = "header"
_FLOW = ("distances", "kinds", "tenths")
_EXAMPLES = ("ranks", "texts", "rows", "values")


def write(path: Path, state: State) -> None:
    """Write a state whole or not at all.

    Raises:
        OutputError: with the system's reason.
    """
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **{_HEADER: _text(_header(state))}, **_arrays(state))
    files.place(path, [out.getvalue()])


def read(path: Path) -> State:
    """Read a state.

    Raises:
        InputError: there is none, or it is damaged or of another version.
    """
    try:
        arrays = read_archive(path)
    except InputError:
        if not path.is_file():
            raise
        raise InputError(f"{path} is no profile that attnviz wrote; see attnviz profile") from None
    try:
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (ValueError, KeyError, RecursionError):
        raise InputError(f"{path} is no profile that attnviz wrote; see attnviz profile") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise InputError(f"{path} is no profile of this version of attnviz; make it again")
    try:
        return _state(header, arrays)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path} is damaged ({error}); make it again") from None


def _header(state: State) -> dict[str, Any]:
    about, tally = state.about, state.tally
    return {
        "schema": SCHEMA,
        "model": about.model,
        "info": asdict(about.info),
        "layout": {kind: list(counts) for kind, counts in about.layout.heads.items()},
        "whole": about.layout.whole,
        "settings": asdict(about.settings),
        "version": about.version,
        "seed": about.seed,
        "simultaneous": about.simultaneous,
        "grouped": about.grouped,
        "matching": None if about.matching is None else asdict(about.matching),
        "runs": [asdict(run) for run in state.runs],
        "bad": [asdict(bad) for bad in state.bad],
        "bad_count": state.bad_count,
        "open": None if state.open is None else state.open.name,
        **{name: getattr(tally, name) for name in COUNTS},
        "strings": list(tally.flow.strings),
        "shown": [
            [key, s.number, s.place, s.text, s.window, [[*at, t] for at, t in s.tokens.items()]]
            for key, s in tally.examples.shown.items()
        ],
        "alike": [[text.key, dict(text.rows)] for text in tally.alike],
    }


def _arrays(state: State) -> dict[str, NDArray[Any]]:
    tally, sums = state.tally, state.sums
    found: dict[str, NDArray[Any]] = {"counted": tally.counted, "sinks": tally.sinks}
    for name, exact in _exact(state).items():
        found[f"{name}.whole"], found[f"{name}.part"] = exact.whole, exact.part
    found |= {"sums.b": sums.b, "sums.bb": sums.bb, "sums.count": sums.count}
    found["spread"] = state.spread.counts
    if state.bootstrap is not None:
        found |= {"drawn.a": state.bootstrap.a, "drawn.b": state.bootstrap.b}
    found["groups"] = np.array(sorted(state.groups), np.uint64)
    if state.open is not None:
        found |= {"open.a": state.open.a, "open.b": state.open.b}
    found |= {f"flow.{name}": getattr(tally.flow, name) for name in _FLOW}
    found["flow.weights"] = tally.flow.weights[: len(tally.flow.strings)]
    found |= {f"examples.{name}": getattr(tally.examples, name) for name in _EXAMPLES}
    for number, text in enumerate(tally.alike):
        found |= {f"alike.{number}.{kind}": pairs for kind, pairs in text.sums.items()}
    return found


def _state(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> State:
    about = About(
        header["model"],
        SourceInfo(**header["info"]),
        Layout(
            {kind: tuple(counts) for kind, counts in header["layout"].items()},
            whole=header.get("whole", False),
        ),
        ProfileSettings(**header["settings"]),
        header["version"],
        header["seed"],
        header["simultaneous"],
        header["grouped"],
        _matching(header["matching"]),
    )
    state = State.begin(about, ())
    state.runs = [Run(**{**run, "names": tuple(run["names"])}) for run in header["runs"]]
    state.bad = [Bad(**bad) for bad in header["bad"]]
    state.bad_count = header["bad_count"]
    tally, sums = state.tally, state.sums
    for name in COUNTS:
        setattr(tally, name, int(header[name]))
    tally.counted = arrays["counted"]
    tally.sinks = _like(tally.sinks, arrays["sinks"])
    for name, exact in _exact(state).items():
        exact.whole = _like(exact.whole, arrays[f"{name}.whole"])
        exact.part = _like(exact.part, arrays[f"{name}.part"])
    for name in ("b", "bb", "count"):
        setattr(sums, name, _like(getattr(sums, name), arrays[f"sums.{name}"]))
    state.spread.counts = _like(state.spread.counts, arrays["spread"])
    if state.bootstrap is not None:
        state.bootstrap.a = _like(state.bootstrap.a, arrays["drawn.a"])
        state.bootstrap.b = _like(state.bootstrap.b, arrays["drawn.b"])
    state.groups = set(arrays["groups"].tolist())
    if header["open"] is not None:
        state.open = Cluster(header["open"], arrays["open.a"], arrays["open.b"])
    for name in _FLOW:
        setattr(tally.flow, name, _like(getattr(tally.flow, name), arrays[f"flow.{name}"]))
    tally.flow.strings = {text: row for row, text in enumerate(header["strings"])}
    tally.flow.weights = arrays["flow.weights"]
    for name in _EXAMPLES:
        mine = getattr(tally.examples, name)
        setattr(tally.examples, name, _like(mine, arrays[f"examples.{name}"]))
    for key, number, place, text, window, tokens in header["shown"]:
        named = {(kind, row): token for kind, row, token in tokens}
        tally.examples.shown[key] = Shown(number, place, text, window, named)
    for number, (key, rows) in enumerate(header["alike"]):
        pairs = {kind: arrays[f"alike.{number}.{kind}"] for kind in rows}
        tally.alike.append(Divergences(key, rows, pairs))
    return state


def _matching(given: Mapping[str, Any] | None) -> PrefixMatching | None:
    if given is None:
        return None
    lists = {name: tuple(given[name]) for name in ("means", "halves")}
    return PrefixMatching(**{**given, **lists})


def _exact(state: State) -> dict[str, Exact]:
    """The exact sums of a state, by their names in the file."""
    sums, tally = state.sums, state.tally
    return {
        "sums.a": sums.a,
        "sums.aa": sums.aa,
        "sums.ab": sums.ab,
        "chances": tally.chances,
        "shares": tally.shares,
    }


def _like(mine: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
    """An array that was read, if it can take the place of another."""
    if mine.shape != found.shape or mine.dtype != found.dtype:
        raise ValueError(f"an array of {found.dtype} {found.shape}, not {mine.dtype} {mine.shape}")
    return found


def _text(header: Mapping[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(header).encode(), np.uint8)
