"""State files: everything a run has found out, as NumPy arrays and JSON in one .npz archive."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz import files
from attnviz.core.heads import Layout
from attnviz.drawing.forms import FORMS
from attnviz.errors import InputError, UsageError
from attnviz.features.profile import header as typed
from attnviz.features.profile.examples import ShownText
from attnviz.features.profile.header import Header
from attnviz.features.profile.likeness import Divergences
from attnviz.features.profile.sampled import saved_rows
from attnviz.features.profile.state import About, Cluster, State
from attnviz.features.profile.tally import COUNTS
from attnviz.models.containers import read_archive
from attnviz.models.external_errors import one_line
from attnviz.scoring.plugins import user_defined
from attnviz.statistics.exact import Exact
from attnviz.statistics.simultaneous import DrawnSums

SCHEMA = "attnviz.profile-state/1"
_HEADER = "header"
_SUMMED, _COUNTED, _ROWS = ("a", "aa", "ab"), ("b", "bb", "count"), ("b", "bb")
"""Exact sums and counts of clusters; counts of draws."""
_FLOW = ("distances", "kinds", "tenths")
_EXAMPLES = ("ranks", "texts", "rows", "values")


def check_place(path: Path) -> None:
    """Find out before anything is measured that a state could not be written."""
    if path.suffix.lower() in FORMS:
        raise UsageError(
            "{state} keeps the state that a profile goes on from; name it {}, not {}",
            path.with_suffix(".profile").name,
            path.name,
            state=...,
        )
    files.check_writable(path)


def write(path: Path, state: State) -> None:
    """Write a state whole or not at all."""
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **{_HEADER: _text(_header(state))}, **_arrays(state))
    files.write(path, out.getvalue())


def read(path: Path) -> State:
    """Read a state."""
    try:
        arrays = read_archive(path)
    except InputError:
        if not os.path.isfile(path):
            raise
        raise InputError(
            f"{path} is not a profile that attnviz wrote; see attnviz profile"
        ) from None
    try:
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (ValueError, KeyError, RecursionError):
        raise InputError(
            f"{path} is not a profile that attnviz wrote; see attnviz profile"
        ) from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise InputError(
            f"{path} is not a profile of this version of attnviz; make it "
            f"again{_command(header, path)}"
        )
    try:
        typed_header = typed.read(header, arrays)
        _check_scores(typed_header, path)
        state = _state(typed_header, arrays)
        typed.check(state)
        return state
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path} is damaged ({one_line(error)}); make it again") from None


def _check_scores(header: Header, path: Path) -> None:
    """UsageError where the file has scores or roles of a user that are not registered here."""
    known = user_defined()
    if header.user_defined == known:
        return
    lacking = [definition for definition in header.user_defined if definition not in known]
    if lacking:
        named = ", ".join(
            f"the {definition.what} {definition.name} ({definition.function})"
            for definition in lacking
        )
        raise UsageError(
            "{} has {}, which is not registered here as it was; load the file that does, see "
            "{plugin}", path, named, plugin="FILE",
        )  # fmt: skip
    more = [definition for definition in known if definition not in header.user_defined]
    named = ", ".join(f"the {definition.what} {definition.name}" for definition in more)
    raise UsageError(
        "{} was made without {}; read it without that plugin, or make it again", path, named
    )


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
        "user_defined": [asdict(definition) for definition in about.user_defined],
        "matching": None if about.matching is None else asdict(about.matching),
        "runs": [asdict(run) for run in state.runs],
        "bad": [asdict(bad) for bad in state.bad],
        "bad_count": state.bad_count,
        "open": None if state.open is None else [state.open.name, state.open.content],
        **{name: getattr(tally, name) for name in COUNTS},
        "strings": list(tally.flow.strings),
        "shown": [
            [key, s.number, s.place, s.text, s.window, [[*at, t] for at, t in s.tokens.items()]]
            for key, s in tally.examples.shown.items()
        ],
        "alike": [[text.key, dict(text.rows)] for text in tally.alike],
        "rows": None if tally.rows is None else msgspec.to_builtins(saved_rows.header(tally.rows)),
    }


def _arrays(state: State) -> dict[str, NDArray[Any]]:
    tally = state.tally
    arrays: dict[str, NDArray[Any]] = {"counted": tally.counted, "sinks": tally.sinks}
    for name, exact in _exact(state).items():
        arrays[f"{name}.whole"], arrays[f"{name}.part"] = exact.whole, exact.part
    for title, sums in (("sums", state.sums), ("means", state.means)):
        arrays |= {f"{title}.{name}": getattr(sums, name) for name in _COUNTED}
    arrays["spread"] = state.spread.counts
    arrays |= {f"drawn.{name}": getattr(state.bootstrap, name) for name in _ROWS}
    arrays["copies"] = np.array(sorted(state.copies), np.uint64)
    arrays["copies.count"] = np.array([state.copies[key] for key in sorted(state.copies)], np.int64)
    arrays["groups"] = np.array(sorted(state.groups), np.uint64)
    if state.open is not None:
        arrays |= {"open.a": state.open.a, "open.b": state.open.b}
    arrays |= {f"flow.{name}": getattr(tally.flow, name) for name in _FLOW}
    arrays["flow.weights"] = tally.flow.weights[: len(tally.flow.strings)]
    arrays |= {f"examples.{name}": getattr(tally.examples, name) for name in _EXAMPLES}
    for number, text in enumerate(tally.alike):
        arrays |= {f"alike.{number}.{kind}": pairs for kind, pairs in text.sums.items()}
    if tally.rows is not None:
        arrays |= saved_rows.arrays(tally.rows)
    return arrays


def _state(header: Header, arrays: Mapping[str, NDArray[Any]]) -> State:
    about = About(
        header.model,
        header.info,
        Layout({kind: tuple(counts) for kind, counts in header.layout.items()}, whole=header.whole),
        header.settings,
        header.version,
        header.seed,
        header.simultaneous,
        header.grouped,
        header.matching,
        header.user_defined,
    )
    draws = len(arrays["drawn.b"])  # a thousand times the size of others, so looked at first
    if draws != about.replicates:
        raise ValueError(f"drawn.b has {draws} draws, not {about.replicates}")
    state = State.begin(about, ())
    state.runs, state.bad, state.bad_count = header.runs, header.bad, header.bad_count
    tally = state.tally
    for name in COUNTS:
        setattr(tally, name, getattr(header, name))
    tally.counted = _like(tally.counted, arrays["counted"])
    tally.sinks = _like(tally.sinks, arrays["sinks"])
    for name, exact in _exact(state).items():
        exact.whole = _like(exact.whole, arrays[f"{name}.whole"])
        exact.part = _like(exact.part, arrays[f"{name}.part"])
    for title, sums in (("sums", state.sums), ("means", state.means)):
        for name in _COUNTED:
            setattr(sums, name, _like(getattr(sums, name), arrays[f"{title}.{name}"]))
    state.spread.counts = _like(state.spread.counts, arrays["spread"])
    for name in _ROWS:
        mine = getattr(state.bootstrap, name)
        setattr(state.bootstrap, name, _like(mine, arrays[f"drawn.{name}"]))
    keys, counts = _row(arrays["copies"], "u8"), _row(arrays["copies.count"], "i8")
    state.copies = Counter(dict(zip(keys.tolist(), counts.tolist(), strict=True)))
    state.groups = set(_row(arrays["groups"], "u8").tolist())
    if header.open is not None:
        state.open = Cluster(*header.open, arrays["open.a"], arrays["open.b"])
    for name in _FLOW:
        setattr(tally.flow, name, _like(getattr(tally.flow, name), arrays[f"flow.{name}"]))
    tally.flow.strings = {text: row for row, text in enumerate(header.strings)}
    tally.flow.weights = arrays["flow.weights"]
    for name in _EXAMPLES:
        mine = getattr(tally.examples, name)
        setattr(tally.examples, name, _like(mine, arrays[f"examples.{name}"]))
    for key, number, place, text, window, tokens in header.shown:
        named = {(kind, row): token for kind, row, token in tokens}
        tally.examples.shown[key] = ShownText(number, place, text, window, named)
    for number, (key, rows) in enumerate(header.alike):
        pairs = {kind: arrays[f"alike.{number}.{kind}"] for kind in rows}
        tally.alike.append(Divergences(key, rows, pairs))
    tally.rows = saved_rows.read(about.selected, header.rows, arrays)
    return state


def _command(header: Any, path: Path) -> str:
    """The command that made an older profile, as far as it says."""
    try:
        names = [name for run in header["runs"] for name in run["names"]]
        model = header["info"]["model"]
    except (KeyError, TypeError):
        return ", see attnviz profile"
    words = ["attnviz", "profile", *names, "-m", model, "-o", str(path)]
    return f" with its options: {shlex.join(words)[:500]}"


def _exact(state: State) -> dict[str, Exact | DrawnSums]:
    """The exact sums of a state, by their names in the file."""
    tally = state.tally
    of = {"sums": state.sums, "means": state.means, "drawn": state.bootstrap}
    return {
        **{f"{title}.{name}": getattr(of[title], name) for title in of for name in _SUMMED},
        "chances": tally.chances,
        "shares": tally.shares,
    }


def _like(mine: NDArray[Any], array: NDArray[Any]) -> NDArray[Any]:
    """An array that was read, if it can take the place of another."""
    if mine.shape != array.shape or mine.dtype != array.dtype:
        raise ValueError(f"an array of {array.dtype} {array.shape}, not {mine.dtype} {mine.shape}")
    return array


def _row(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """An array of any length that was read, if it has one axis and holds these numbers."""
    if array.ndim != 1 or array.dtype != kind:
        raise ValueError(f"an array of {array.dtype} {array.shape}, not a row of {kind}")
    return array


def _text(header: Mapping[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(header).encode(), np.uint8)
