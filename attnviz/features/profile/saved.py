"""State files: everything a run has found out, as NumPy arrays and JSON in one .npz archive.

Nothing is allocated for what a header claims before the arrays of the file have that size.
"""

from __future__ import annotations

import io
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz import files
from attnviz.core.heads import Layout, SiteKind
from attnviz.core.json_types import plain
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import PrefixMatching, UserDefined
from attnviz.corpus.texts import InvalidRecord
from attnviz.drawing.renderable import FORMS
from attnviz.errors import InputError, UsageError
from attnviz.features.profile.likeness import Divergences
from attnviz.features.profile.parts import SampledText
from attnviz.features.profile.result import Profile
from attnviz.features.profile.sampled.sample import COLUMNS, WHOLE, RowSample, WholeRow
from attnviz.features.profile.sampled.sums import HeadSums
from attnviz.features.profile.sampled.watch import VECTORS
from attnviz.features.profile.state import About, Run, State
from attnviz.features.profile.summary import summarize
from attnviz.features.profile.tally import COUNTS, ShownText
from attnviz.features.profile.work import Cluster, ProfileSettings
from attnviz.models.containers import read_archive
from attnviz.models.external_errors import one_line
from attnviz.scoring.plugins import user_defined
from attnviz.statistics.histogram import Exact, Histograms

SCHEMA = "attnviz.profile-state/1"
_HEADER = "header"
_ABOUT = tuple(field.name for field in fields(About) if field.name != "layout")
"""What a header has of :class:`About`, beside the layout."""
_TOKENS = ("query", "name")
"""Columns of sampled rows that hold texts: a file has them as numbers of ``strings``."""
_BINS = ("cells", "counts", "masses")

Arrays = Mapping[str, NDArray[Any]]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Key = Annotated[int, msgspec.Meta(ge=0)]  # a hash of 64 bits
_Shown = tuple[Key, Count, str, str, Count, list[tuple[SiteKind, Count, str]]]


class RowsHeader(msgspec.Struct, forbid_unknown_fields=True):
    """What of the rows of chosen heads is no number.

    Attributes:
        texts: key, number, place, window and tokens of each text with whole rows.
    """

    strings: list[str]  # the tokens that columns name
    texts: list[tuple[Key, int, str, int, list[str]]]
    whole: list[Key]  # bits of the whole rows, in their order
    vectors: list[str]  # names of their vectors


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """All of a state but its arrays."""

    schema: str
    model: dict[str, Any]
    info: SourceInfo
    layout: dict[SiteKind, list[Count]]
    settings: ProfileSettings
    version: str
    seed: Count
    simultaneous: bool
    grouped: bool
    matching: PrefixMatching | None
    runs: list[Run]
    bad: list[InvalidRecord]
    bad_count: Count
    open: tuple[str, Key] | None
    texts: Count
    windows: Count
    tokens: Count
    empty: Count
    sink_texts: Count
    sink_squares: Count
    strings: list[str]
    shown: list[_Shown]
    alike: list[tuple[Key, dict[SiteKind, Count]]]
    whole: bool = False
    user_defined: tuple[UserDefined, ...] = ()
    rows: RowsHeader | None = None


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
    header = json.dumps(msgspec.to_builtins(_header(state), enc_hook=plain)).encode()
    arrays = {name: getattr(owner, part) for name, (owner, part) in _fixed(state).items()}
    arrays |= {_HEADER: np.frombuffer(header, np.uint8)} | dict(_growing(state))
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **arrays)
    files.write(path, out.getvalue())


def read(path: Path) -> State:
    """Read a state."""
    refusal = InputError(f"{path} is not a profile that attnviz wrote; see attnviz profile")
    try:
        arrays = read_archive(path)
    except InputError:
        if not os.path.isfile(path):
            raise
        raise refusal from None
    try:
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except (ValueError, KeyError, RecursionError):
        raise refusal from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise InputError(
            f"{path} is not a profile of this version of attnviz; make it "
            f"again{_command(header, path)}"
        )
    try:
        fields = _fields(header, arrays)
        _check_scores(fields, path)
        return _state(fields, arrays)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path} is damaged ({one_line(error)}); make it again") from None


def read_state(path: str | Path) -> Profile:
    """Read a state file, finished or not."""
    return summarize(read(Path(path)))


def read_finished(path: str | Path) -> State:
    """Read the state of a run that has come to its end."""
    state = read(Path(path))
    if not state.finished:
        raise UsageError(f"the run of {path} is not finished; run its command again first")
    return state


def _check_scores(header: Header, path: Path) -> None:
    """UsageError where the file has scores or roles of a user that are not registered here."""
    registered = user_defined()
    if header.user_defined == registered:
        return
    lacking = [definition for definition in header.user_defined if definition not in registered]
    if lacking:
        named = ", ".join(
            f"the {definition.what} {definition.name} ({definition.function})"
            for definition in lacking
        )
        raise UsageError(
            "{} has {}, which is not registered here as it was; load the file that does, see "
            "{plugin}", path, named, plugin="FILE",
        )  # fmt: skip
    extra = [definition for definition in registered if definition not in header.user_defined]
    named = ", ".join(f"the {definition.what} {definition.name}" for definition in extra)
    raise UsageError(
        "{} was made without {}; read it without that plugin, or make it again", path, named
    )


def _command(header: Any, path: Path) -> str:
    """Return the command that made an older profile, as far as it says."""
    try:
        names = [name for run in header["runs"] for name in run["names"]]
        model = header["info"]["model"]
    except (KeyError, TypeError):
        return ", see attnviz profile"
    words = ["attnviz", "profile", *names, "-m", model, "-o", str(path)]
    return f" with its options: {shlex.join(words)[:500]}"


def _header(state: State) -> Header:
    about, tally, rows = state.about, state.tally, state.tally.rows
    return Header(
        SCHEMA,
        layout={kind: list(counts) for kind, counts in about.layout.heads.items()},
        whole=about.layout.whole,
        **{name: getattr(about, name) for name in _ABOUT},
        runs=state.runs,
        bad=state.bad,
        bad_count=state.bad_count,
        open=None if state.open is None else (state.open.name, state.open.content),
        **{name: getattr(tally, name) for name in COUNTS},
        strings=list(tally.flow.strings),
        shown=[
            (key, s.number, s.place, s.text, s.window, [(*row, t) for row, t in s.tokens.items()])
            for key, s in tally.examples.shown.items()
        ],
        alike=[(text.key, dict(text.rows)) for text in tally.alike],
        rows=None if rows is None else _rows_header(rows),
    )


def _rows_header(rows: HeadSums) -> RowsHeader:
    sample = rows.sample
    texts = [
        (key, text.number, text.place, text.window, list(text.tokens))
        for key, text in sorted(sample.texts.items())
    ]
    return RowsHeader(_strings(sample), texts, sorted(sample.whole), list(rows.moments))


def _fixed(state: State) -> dict[str, tuple[Any, str]]:
    """Name every array whose shape a state begins with: whose it is, and which attribute."""
    tally, rows = state.tally, state.tally.rows
    sums = {"sums": state.sums, "means": state.means, "drawn": state.bootstrap}
    exact: dict[str, Any] = {"chances": tally.chances, "shares": tally.shares}
    for title, of in sums.items():
        exact |= {f"{title}.{name}": getattr(of, name) for name in ("a", "aa", "ab")}
    parts: list[tuple[str, Any, tuple[str, ...]]] = [
        ("", tally, ("counted", "sinks")),
        ("sums.", state.sums, ("b", "bb", "count")),
        ("means.", state.means, ("b", "bb", "count")),
        ("drawn.", state.bootstrap, ("b", "bb")),
        ("flow.", tally.flow, ("distances", "kinds", "tenths")),
        ("examples.", tally.examples, ("ranks", "texts", "rows", "values")),
    ]
    if rows is not None:
        exact |= {f"rows.{name}": of for name, of in rows.exact().items()}
        parts += [("rows.", rows, ("rows", "along_rows"))]
        parts += [("rows.pairs.", rows.pairs, ("counts", "total"))]
    parts += [(f"{name}.", of, ("whole", "part")) for name, of in exact.items()]
    named = {f"{title}{name}": (owner, name) for title, owner, names in parts for name in names}
    return named | {"spread": (state.spread, "counts")}


def _growing(state: State) -> Iterator[tuple[str, NDArray[Any]]]:
    """Name the arrays whose length depends on the texts."""
    tally, keys = state.tally, sorted(state.copies)
    yield "copies", np.array(keys, np.uint64)
    yield "copies.count", np.array([state.copies[key] for key in keys], np.int64)
    yield "groups", np.array(sorted(state.groups), np.uint64)
    if state.open is not None:
        yield "open.a", state.open.a
        yield "open.b", state.open.b
    yield "flow.weights", tally.flow.weights[: len(tally.flow.strings)]
    for number, text in enumerate(tally.alike):
        for kind, pairs in text.sums.items():
            yield f"alike.{number}.{kind}", pairs
    if tally.rows is not None:
        yield from _growing_rows(tally.rows)


def _growing_rows(rows: HeadSums) -> Iterator[tuple[str, NDArray[Any]]]:
    sample = rows.sample
    for name in _BINS:
        yield f"rows.histograms.{name}", getattr(rows.histograms, name)
    places = {text: n for n, text in enumerate(_strings(sample))}
    for name in COLUMNS:
        column = sample[name]
        if name in _TOKENS:
            numbers = [places[text] for text in column.ravel()]
            column = np.array(numbers, np.int32).reshape(column.shape)
        yield f"rows.sample.{name}", column
    full = [sample.whole[bits] for bits in sorted(sample.whole)]
    weights = [row.weights for row in full] or [np.zeros((len(rows.heads), 0), np.uint16)]
    yield "rows.whole.weights", np.concatenate(weights, 1)
    yield "rows.whole.lengths", np.array([row.weights.shape[1] for row in full], np.int64)
    for name in rows.moments:
        yield f"rows.whole.{name}", np.array([row.vectors[name] for row in full], np.float32)
    yield "rows.whole.sigma", np.array([row.sigma for row in full], np.float64)
    yield "rows.whole.next", np.array([row.next for row in full], np.int64)


def _strings(sample: RowSample) -> list[str]:
    """List the texts that columns name, each once."""
    return sorted({str(text) for name in _TOKENS for text in sample[name].ravel()})


def _fields(header: Any, arrays: Arrays) -> Header:
    """Take the header, if its layout is that of the arrays."""
    fields: Header = msgspec.convert(header, Header)
    heads = sum(sum(counts) for counts in fields.layout.values())
    layers = sum(map(len, fields.layout.values()))
    for name, rows in (("counted", heads), ("sinks", heads), ("flow.tenths", heads + layers)):
        if arrays[name].shape[:1] != (rows,):
            raise ValueError(f"{name} is not of {heads} heads in {layers} layers")
    matching = fields.matching
    if matching is not None and not len(matching.means) == len(matching.halves) == heads:
        raise ValueError(f"prefix matching is not of {heads} heads")
    return fields


def _state(header: Header, arrays: Arrays) -> State:
    """Put a state together; ValueError for one that nobody could have saved."""
    heads = {kind: tuple(counts) for kind, counts in header.layout.items()}
    about = About(
        layout=Layout(heads, whole=header.whole), **{name: getattr(header, name) for name in _ABOUT}
    )
    draws = len(arrays["drawn.b"])  # a thousand times the size of others, so looked at first
    if draws != about.replicates:
        raise ValueError(f"drawn.b has {draws} draws, not {about.replicates}")
    state = State.begin(about, ())
    state.runs, state.bad, state.bad_count = header.runs, header.bad, header.bad_count
    tally, layout = state.tally, about.layout
    for name in COUNTS:
        setattr(tally, name, getattr(header, name))
    if (header.rows is None) != (tally.rows is None):
        raise ValueError("the rows of selected heads are not there")
    if tally.rows is not None and header.rows is not None:
        _read_rows(tally.rows, header.rows, arrays)
    for name, (owner, part) in _fixed(state).items():
        begun = getattr(owner, part)
        setattr(owner, part, _array(arrays, name, begun.shape, begun.dtype))
    keys = _array(arrays, "copies", (-1,), np.uint64).tolist()
    counts = _array(arrays, "copies.count", (-1,), np.int64).tolist()
    state.copies = Counter(dict(zip(keys, counts, strict=True)))
    state.groups = set(_array(arrays, "groups", (-1,), np.uint64).tolist())
    if header.open is not None:
        shape = state.sums.b.shape
        a, b = _array(arrays, "open.a", shape, float), _array(arrays, "open.b", shape, np.int64)
        state.open = Cluster(*header.open, a, b)
    tally.flow.strings = {text: row for row, text in enumerate(header.strings)}
    columns = len(layout) + len(layout.sites)
    tally.flow.weights = _array(
        arrays, "flow.weights", (len(tally.flow.strings), columns), np.int64
    )
    for key, number, source, text, window, tokens in header.shown:
        named = {(kind, row): token for kind, row, token in tokens}
        tally.examples.shown[key] = ShownText(number, source, text, window, named)
    for number, (key, rows) in enumerate(header.alike):
        if set(rows) != set(layout.kinds):
            raise ValueError("heads are compared of other layers than there are")
        pairs = {
            kind: _array(arrays, f"alike.{number}.{kind}", (n * (n - 1) // 2,), np.float32)
            for kind in rows
            for n in (sum(layout.heads[kind]),)
        }
        tally.alike.append(Divergences(key, rows, pairs))
    _check_counts(state)
    return state


def _check_counts(state: State) -> None:
    """Refuse counts below 0, and examples of texts that are not there."""
    tally, sums = state.tally, state.sums
    flow, examples = tally.flow, tally.examples
    counts: tuple[NDArray[Any], ...] = (
        tally.counted, tally.sinks, flow.weights, flow.tenths, flow.kinds, flow.distances, sums.b,
        sums.count, state.spread.counts,
    )  # fmt: skip
    if any((array < 0).any() for array in counts):
        raise ValueError("a number of things is below 0")
    kinds = [head.site.kind for head in state.about.layout]
    for index in np.argwhere(examples.ranks >= 0).tolist():
        key, row = int(examples.texts[*index]), int(examples.rows[*index])
        if key not in examples.shown or (kinds[index[2]], row) not in examples.shown[key].tokens:
            raise ValueError("an example is of a text that is not there")


def _read_rows(rows: HeadSums, header: RowsHeader, arrays: Arrays) -> None:
    """Read of the rows of chosen heads what has no shape of its own."""
    count = len(arrays["rows.histograms.cells"])
    rows.histograms = Histograms(
        *(_array(arrays, f"rows.histograms.{name}", (count,), np.int64) for name in _BINS)
    )
    if not set(header.vectors) <= set(VECTORS):
        raise ValueError("vectors of other names")
    for name in header.vectors:
        width = arrays[f"rows.moments.{name}.whole"].shape[-1]
        rows.moments[name] = Exact((len(rows.heads), width + 1, width))
    _read_sample(rows, header, arrays)


def _read_sample(rows: HeadSums, header: RowsHeader, arrays: Arrays) -> None:
    sample = rows.sample
    count = len(arrays["rows.sample.hash"])
    strings = np.array(header.strings, object)
    for name in COLUMNS:
        begun, tokens = sample[name], name in _TOKENS
        shape = (count, *begun.shape[1:])
        column = _array(arrays, f"rows.sample.{name}", shape, np.int32 if tokens else begun.dtype)
        if tokens and len(column) and (column.min() < 0 or column.max() >= len(strings)):
            raise ValueError(f"rows.sample.{name} names no string")
        sample.columns[name] = strings[column] if tokens else column
    bits = sample["hash"]
    if (bits[1:] <= bits[:-1]).any() or header.whole != bits[:WHOLE].tolist():
        raise ValueError("the sampled rows are not in order")
    for key, number, source, window, tokens_of in header.texts:
        sample.texts[key] = SampledText(number, source, window, 0, tuple(tokens_of))
    n, heads = len(header.whole), len(rows.heads)
    lengths = _array(arrays, "rows.whole.lengths", (n,), np.int64)
    if (lengths < 0).any():
        raise ValueError("the weights of sampled rows are not there")
    ends = np.concatenate([[0], np.cumsum(lengths)])
    weights = _array(arrays, "rows.whole.weights", (heads, int(ends[-1])), np.uint16)
    vectors = {name: arrays[f"rows.whole.{name}"] for name in header.vectors}
    for name, array in vectors.items():
        shape = (n, heads, rows.moments[name].whole.shape[-1])
        if array.shape != shape and n:
            raise ValueError(f"rows.whole.{name} is {array.shape}, not {shape}")
    sigma = _array(arrays, "rows.whole.sigma", (n,), np.float64)
    following = _array(arrays, "rows.whole.next", (n,), np.int64)
    for index, ((first, last), bit) in enumerate(
        zip(pairwise(ends.tolist()), header.whole, strict=True)
    ):
        text, row = int(sample["text"][index]), int(sample["row"][index])
        if (
            text not in sample.texts
            or row >= last - first
            or last - first != len(sample.texts[text].tokens)
        ):
            raise ValueError("a sampled row is of a text that is not there")
        if (sample["key"][index] >= last - first).any():
            raise ValueError("a sampled row has keys that are not there")
        sample.whole[bit] = WholeRow(
            weights[:, first:last],
            {name: array[index] for name, array in vectors.items()},
            float(sigma[index]),
            int(following[index]),
        )


def _array(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Take an array of the file, of any length for -1; ValueError for another shape or kind."""
    array = arrays[name]
    shape = shape if shape != (-1,) else (array.size,)
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} is {array.dtype} {array.shape}, not {np.dtype(dtype)} {shape}")
    return array
