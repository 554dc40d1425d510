"""Recorded attention as files: ours as .npz, .safetensors and .json, and those of other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.captures.captured import Captured, captured
from attnviz.captures.in_memory import tokens_of
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.tokens import Tokens
from attnviz.corpus import texts
from attnviz.errors import InputError, UsageError
from attnviz.models import recorded


def read_recorded(
    what: Any,
    tokens: Any = None,
    *,
    source_tokens: Any = None,
    tokenizer: Any = None,
    item: int | None = None,
    kind: str | None = None,
    sinks: bool = False,
) -> Captured:
    """Attention that any tool has recorded; arguments and errors as for :func:`attnviz.read`."""
    from attnviz.models import arrays
    from attnviz.models.imported import sources

    if isinstance(what, Capture):
        return captured(what)
    own, other = (
        None if t is None else tokens_of(t, tokenizer, item) for t in (tokens, source_tokens)
    )
    more: dict[str, Any] = {"item": item, "kind": kind, "sinks": sinks}
    if isinstance(what, str | Path):
        return _read(Path(what), own, other, more)
    if hasattr(what, "sequence_attributions"):
        raise UsageError("attributions are read from files; save them with Inseq's save()")
    if isinstance(what, Mapping) and any(what.get(name) is not None for name in arrays.NAMES):
        if own is None:
            raise UsageError("a model's output does not hold its tokens; add {tokens}", tokens=...)
        return captured(arrays.from_arrays(what, own, other, **more))
    return captured(sources.imported(what).capture(tokens=own, source_tokens=other, **more))


def _read(path: Path, own: Tokens | None, other: Tokens | None, more: dict[str, Any]) -> Captured:
    from attnviz.models.imported import sources

    item = more["item"]
    if sources.is_recording(path):
        if own is not None or other is not None or more["kind"] is not None:
            raise UsageError(
                "{} is a recording, which has its own tokens; leave out {tokens}", path, tokens=...
            )
        return captured(recorded.load(path, item))
    recording = sources.find(path, item)
    if path.suffix == recorded.JSON:  # one of its sequences is chosen already
        more = {**more, "item": None}
    return captured(recording.capture(path.name, tokens=own, source_tokens=other, **more))


def read_items(path: Path) -> Iterator[Capture | InputError]:
    """Every item of recorded attention, ours or another tool's, one at a time.

    Args:
        path: see :func:`attnviz.read`.

    Yields:
        Items, and in place of one that cannot be read what is wrong with it.
    """
    from attnviz.models.imported import sources

    try:
        if sources.is_recording(path):
            yield from recorded.load_all(path)
            return
        count = sources.items(path)
    except InputError as error:
        yield error
        return
    for item in range(count):
        try:
            yield read_recorded(path, item=item if count > 1 else None)
        except InputError as error:
            yield error


def read_tokens(path: Path) -> Tokens:
    """The texts of tokens in a file, a JSON list or one a line; InputError for what is none."""
    from attnviz.models.imported import sources

    return sources.read_tokens(path)


@interface
def write_capture(capture: Capture, path: str | Path) -> Path:
    """Write a capture of all layers, for :func:`attnviz.read` and ``--recorded``.

    Args:
        capture: of all layers.
        path: an .npz or .safetensors file.

    Raises:
        OutputError: it cannot be written, or not in that format.
    """
    path = Path(path)
    files.write(path, recorded.dump(capture.finite(), path.suffix))
    return path


@interface
def read_texts(
    paths: str | Path | Sequence[str | Path], *, column: str | None = None, limit: int | None = None
) -> list[str]:
    """The texts in files, for every function that takes several texts: one per line, or a column.

    Args:
        paths: files or patterns (``data/*.txt``); .jsonl, .csv, .tsv, .parquet have fields.
        column: the field that holds the text.
        limit: how many to take at most, from the first on.

    Raises:
        InputError: no such file, or one that holds something else; UsageError: no such column.
    """
    names = texts.resolve(files.listed(paths))
    listed, _ = texts.separated(texts.read(names, column=column), strict=True)
    return [text.prompt.texts[0] for text in listed[:limit]]
