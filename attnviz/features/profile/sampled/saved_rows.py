"""The rows of chosen heads in a state file: arrays, and what of them is JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head
from attnviz.features.profile.sampled.sample import COLUMNS, WHOLE, RowSample, WholeRow, WindowText
from attnviz.features.profile.sampled.sums import HeadSums
from attnviz.features.profile.sampled.watch import VECTORS
from attnviz.statistics.exact import Exact
from attnviz.statistics.histogram import Histograms

_NAMES = ("query", "name")
"""Columns of texts."""
_BINS = ("cells", "counts", "masses")
_Key = Annotated[int, msgspec.Meta(ge=0)]

Arrays = Mapping[str, NDArray[Any]]


class RowsHeader(msgspec.Struct, forbid_unknown_fields=True):
    """What of the rows is no number.

    Attributes:
        strings: the tokens that columns name.
        texts: key, number, place, window and tokens of each text with whole rows.
        whole: bits of the whole rows, in their order.
        vectors: names of their vectors.
    """

    strings: list[str]
    texts: list[tuple[_Key, int, str, int, list[str]]]
    whole: list[_Key]
    vectors: list[str]


def header(rows: HeadSums) -> RowsHeader:
    """Of what adds up."""
    sample = rows.sample
    return RowsHeader(
        _strings(sample),
        [
            (key, text.number, text.place, text.window, list(text.tokens))
            for key, text in sorted(sample.texts.items())
        ],
        sorted(sample.whole),
        list(rows.moments),
    )


def arrays(rows: HeadSums) -> dict[str, NDArray[Any]]:
    """By their names in the file."""
    columns: dict[str, NDArray[Any]] = {"rows": rows.rows, "along_rows": rows.along_rows}
    columns |= {f"histograms.{name}": getattr(rows.histograms, name) for name in _BINS}
    columns |= {"pairs.counts": rows.pairs.counts, "pairs.total": rows.pairs.total}
    for name, exact in rows.exact().items():
        columns[f"{name}.whole"], columns[f"{name}.part"] = exact.whole, exact.part
    sample = rows.sample
    places = {text: n for n, text in enumerate(_strings(sample))}
    for name in COLUMNS:
        column = sample[name]
        if name in _NAMES:
            numbers = [places[text] for text in column.ravel()]
            column = np.array(numbers, np.int32).reshape(column.shape)
        columns[f"sample.{name}"] = column
    whole = [sample.whole[bits] for bits in sorted(sample.whole)]
    heads = len(rows.heads)
    columns["whole.lengths"] = np.array([row.weights.shape[1] for row in whole], np.int64)
    columns["whole.weights"] = np.concatenate(
        [row.weights for row in whole] or [np.zeros((heads, 0), np.uint16)], 1
    )
    for name in rows.moments:
        columns[f"whole.{name}"] = np.array([row.vectors[name] for row in whole], np.float32)
    columns["whole.sigma"] = np.array([row.sigma for row in whole], np.float64)
    columns["whole.next"] = np.array([row.next for row in whole], np.int64)
    return {f"rows.{name}": array for name, array in columns.items()}


def read(heads: Sequence[Head], said: RowsHeader | None, arrays: Arrays) -> HeadSums | None:
    """What was written; None where no heads are selected."""
    if said is None or not heads:
        if said is not None or heads:
            raise ValueError("the rows of selected heads are not there")
        return None

    def like(name: str, mine: NDArray[Any]) -> NDArray[Any]:
        array = arrays[f"rows.{name}"]
        if array.shape != mine.shape or array.dtype != mine.dtype:
            raise ValueError(f"rows.{name} is {array.dtype} {array.shape}, not {mine.shape}")
        return array

    rows = HeadSums(heads)
    rows.rows = like("rows", rows.rows)
    rows.along_rows = like("along_rows", rows.along_rows)
    cells = arrays["rows.histograms.cells"]
    rows.histograms = Histograms(
        *(_row(arrays, f"histograms.{name}", len(cells)) for name in _BINS)
    )
    rows.pairs.counts = like("pairs.counts", rows.pairs.counts)
    rows.pairs.total = like("pairs.total", rows.pairs.total)
    if not set(said.vectors) <= set(VECTORS):
        raise ValueError("vectors of other names")
    for name in said.vectors:
        width = arrays[f"rows.moments.{name}.whole"].shape[-1]
        rows.moments[name] = Exact((len(heads), width + 1, width))
    for name, exact in rows.exact().items():
        exact.whole = like(f"{name}.whole", exact.whole)
        exact.part = like(f"{name}.part", exact.part)
    rows.sample = _sample(rows, said, arrays)
    return rows


def _sample(rows: HeadSums, said: RowsHeader, arrays: Arrays) -> RowSample:
    sample = rows.sample
    count = len(arrays["rows.sample.hash"])
    strings = np.array(said.strings, object)
    for name in COLUMNS:
        column, mine = arrays[f"rows.sample.{name}"], sample[name]
        dtype = np.dtype(np.int32) if name in _NAMES else mine.dtype
        if column.shape != (count, *mine.shape[1:]) or column.dtype != dtype:
            raise ValueError(f"rows.sample.{name} is {column.dtype} {column.shape}")
        if name in _NAMES and len(column) and (column.min() < 0 or column.max() >= len(strings)):
            raise ValueError(f"rows.sample.{name} names no string")
        sample.columns[name] = strings[column] if name in _NAMES else column
    bits = sample["hash"]
    if (bits[1:] <= bits[:-1]).any() or said.whole != bits[:WHOLE].tolist():
        raise ValueError("the sampled rows are not in order")
    for key, number, where, window, tokens in said.texts:
        sample.texts[key] = WindowText(number, where, window, tuple(tokens))
    lengths = _row(arrays, "whole.lengths", len(said.whole))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    weights = arrays["rows.whole.weights"]
    if (lengths < 0).any() or weights.shape != (len(rows.heads), ends[-1]):
        raise ValueError("the weights of sampled rows are not there")
    vectors = {name: arrays[f"rows.whole.{name}"] for name in said.vectors}
    for name, array in vectors.items():
        shape = (len(said.whole), len(rows.heads), rows.moments[name].whole.shape[-1])
        if array.shape != shape and len(said.whole):
            raise ValueError(f"rows.whole.{name} is {array.shape}, not {shape}")
    sigma, after = arrays["rows.whole.sigma"], _row(arrays, "whole.next", len(said.whole))
    if sigma.shape != (len(said.whole),):
        raise ValueError("rows.whole.sigma is of another length")
    for place, ((first, last), own) in enumerate(
        zip(pairwise(ends.tolist()), said.whole, strict=True)
    ):
        text, row = int(sample["text"][place]), int(sample["row"][place])
        if (
            text not in sample.texts
            or row >= last - first
            or last - first != len(sample.texts[text].tokens)
        ):
            raise ValueError("a sampled row is of a text that is not there")
        if weights.dtype != np.uint16 or (sample["key"][place] >= last - first).any():
            raise ValueError("a sampled row has keys that are not there")
        sample.whole[own] = WholeRow(
            weights[:, first:last],
            {name: array[place] for name, array in vectors.items()},
            float(sigma[place]),
            int(after[place]),
        )
    return sample


def _row(arrays: Arrays, name: str, length: int) -> NDArray[np.int64]:
    array = arrays[f"rows.{name}"]
    if array.shape != (length,) or array.dtype != np.int64:
        raise ValueError(f"rows.{name} is {array.dtype} {array.shape}")
    return array


def _strings(sample: RowSample) -> list[str]:
    """The texts that columns name, each once."""
    return sorted({str(text) for name in _NAMES for text in sample[name].ravel()})
