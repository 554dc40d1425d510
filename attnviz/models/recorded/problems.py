"""What is wrong with a recording, all of it and where: for who writes them.

Reading stops at the first thing that is wrong; this goes on, and says of each what was expected and
what was found, under its path in the file: ``attentions[2, 0, 5]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.problems import FileProblem
from attnviz.core.quantities import QUANTITIES
from attnviz.errors import AttnvizError, InputError
from attnviz.models.recorded.checks import slack
from attnviz.models.recorded.fields import BY_KIND, FLAGS, PLAIN, Array, meta_of
from attnviz.models.recorded.reading import load


def problems(path: Path, fields: Mapping[str, Array]) -> list[FileProblem]:
    """Everything that is wrong with a recording, by the order of the format's table.

    Args:
        path: of the file, which is read again as any command would read it.
        fields: its arrays, by name.
    """
    listed = list(_problems(fields))
    if listed:
        return listed
    items = next((fields[n].shape[1] for n in (*PLAIN, *BY_KIND)
                  if n in fields and fields[n].ndim == 5), 1)  # fmt: skip
    for item in range(items):
        try:
            load(path, item)
        except AttnvizError as error:
            said = str(error).removeprefix(f"{path}: ").removeprefix(f"cannot read {path}: ")
            where = f"item {item}" if items > 1 else ""
            return [FileProblem(where, "a recording that can be read", said)]
    return []


def _problems(fields: Mapping[str, Array]) -> Iterator[FileProblem]:
    names = [name for name in BY_KIND if name in fields] or [n for n in PLAIN if n in fields][:1]
    yield from _tokens(fields, "")
    crossed = "cross_attentions" in names or ("source_tokens" in fields and names[:1] == ["attn"])
    if crossed or "source_tokens" in fields:
        yield from _tokens(fields, "source_")
    if "meta" in fields:
        yield from _meta(fields["meta"])
    for name in names:
        yield from _maps(fields, name)


def _tokens(fields: Mapping[str, Array], prefix: str) -> Iterator[FileProblem]:
    name = f"{prefix}tokens"
    texts = fields.get(name)
    if texts is None:
        yield FileProblem(name, "the text of each token, [T] or [B, T]", "nothing")
        return
    if texts.dtype.kind != "U":
        yield FileProblem(name, "strings", f"{texts.dtype}")
    if texts.ndim not in (1, 2) or not texts.size:
        yield FileProblem(name, "shape [T] or [B, T], not empty", f"shape {list(texts.shape)}")
    for flag in FLAGS:
        given = fields.get(prefix + flag)
        if given is None:
            continue
        if given.dtype.kind not in "biu":
            yield FileProblem(prefix + flag, "whole numbers or booleans", f"{given.dtype}")
        if given.shape != texts.shape:
            yield FileProblem(
                prefix + flag,
                f"shape {list(texts.shape)}, that of {name}",
                f"shape {list(given.shape)}",
            )


def _meta(given: Array) -> Iterator[FileProblem]:
    try:
        meta = json.loads(str(given))
    except (ValueError, RecursionError) as error:
        yield FileProblem("meta", "a JSON object as one string", f"no JSON ({error})"[:200])
        return
    if not isinstance(meta, dict):
        yield FileProblem("meta", "a JSON object", type(meta).__name__)
        return
    what = meta.get("quantity", "weights")
    if what not in QUANTITIES:
        yield FileProblem("meta.quantity", f"one of {', '.join(QUANTITIES)}", repr(what)[:60])


def _maps(fields: Mapping[str, Array], name: str) -> Iterator[FileProblem]:
    array = fields[name]
    if array.dtype.kind != "f":
        yield FileProblem(name, "floating-point weights", f"{array.dtype}")
        return
    if array.ndim not in (4, 5) or 0 in array.shape:
        yield FileProblem(
            name,
            "shape [layers, heads, queries, keys] or [layers, batch, heads, queries, keys]",
            f"shape {list(array.shape)}",
        )
        return
    yield from _lengths(fields, name, array)
    wrong = ~np.isfinite(array)
    if wrong.any():
        yield _first(name, wrong, "finite weights", array)
        return
    meta = meta_of(dict(fields))
    known = QUANTITIES.get(meta.get("quantity", "weights"))
    if (array < 0).any() and not (known is not None and known.signed):
        yield _first(name, array < 0, "weights after softmax, 0 or more", array)
        return
    if meta.get("quantity", "weights") != "weights":
        return
    sums = array.sum(-1, dtype=np.float64)
    room = slack(meta, array.shape[-1])
    short = _with_sink(meta)
    off = (sums > 1 + room) | (((sums < 1 - room) & array.any(-1)) if not short else False)
    if off.any():
        expected = f"a row that sums to 1 (or 0 where masked) within {room:g}"
        yield _first(name, off, expected, sums)


def _with_sink(meta: Mapping[str, Any]) -> bool:
    """Whether some layer says that a learned sink takes a part; which ones, reading checks."""
    return "sink" in json.dumps(meta.get("reach", ""))


def _lengths(fields: Mapping[str, Array], name: str, array: Array) -> Iterator[FileProblem]:
    own, other = fields.get("tokens"), fields.get("source_tokens")
    cross = name == "cross_attentions" or (name in PLAIN and other is not None)
    queries = other if name == "encoder_attentions" and other is not None else own
    for axis, side, texts in ((-2, "queries", queries), (-1, "keys", other if cross else queries)):
        if texts is not None and texts.ndim and array.shape[axis] != texts.shape[-1]:
            place = ", ".join(side if at == array.ndim + axis else ":" for at in range(array.ndim))
            yield FileProblem(
                f"{name}[{place}]",
                f"{texts.shape[-1]} {side}, one for each token",
                f"{array.shape[axis]}",
            )


def _first(name: str, wrong: Array, expected: str, values: Array) -> FileProblem:
    """The first of many places, with how many there are."""
    place = tuple(int(at) for at in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    more = f", and {count - 1} more" if count > 1 else ""
    where = ", ".join(map(str, place))
    return FileProblem(f"{name}[{where}]", expected, f"{float(values[place]):.6g}{more}")


def damaged(error: InputError, path: Path) -> FileProblem:
    """What stands in the way of reading any field: of JSON, with its path."""
    said = str(error).removeprefix(f"{path} is damaged: ").partition("; make it again")[0]
    what, at, where = said.partition(" - at `")
    if not at:
        return FileProblem("", "a recording", said)
    place = where.rstrip("`").removeprefix("$.")
    expected, _, got = what.partition(", got ")
    return FileProblem(place, expected.removeprefix("Expected ").strip("`"), got.strip("`") or what)
