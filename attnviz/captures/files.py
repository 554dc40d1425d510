"""Recorded attention as files: ours as .npz, .safetensors and .json, and those of other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz import files
from attnviz.captures.captured import Captured, captured
from attnviz.captures.in_memory import options_of, tokens_of, with_picture
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.provenance import Made
from attnviz.core.tokens import Tokens
from attnviz.corpus import texts
from attnviz.errors import InputError, Setting, UsageError
from attnviz.models import recorded

if TYPE_CHECKING:
    from attnviz.models.recorded.arrays import ArrayOptions


def read_recorded(
    what: Any,
    tokens: Any = None,
    *,
    source_tokens: Any = None,
    tokenizer: Any = None,
    item: int | None = None,
    picture: Any = None,
    grid: tuple[int, int] | None = None,
    **options: Any,
) -> Captured:
    """Attention that any tool has recorded; arguments and errors as for :func:`attnviz.read`."""
    capture = _recorded(what, tokens, source_tokens, tokenizer, item, options)
    return captured(with_picture(capture, picture, grid))


def _recorded(
    what: Any, tokens: Any, source_tokens: Any, tokenizer: Any, item: int | None, options: Any
) -> Capture:
    """:func:`read_recorded` without a picture."""
    from attnviz.models.recorded import arrays, sources

    if isinstance(what, Capture):
        return what
    own, other = (
        None if t is None else tokens_of(t, tokenizer, item) for t in (tokens, source_tokens)
    )
    how = options_of(tokens, tokenizer, item=item, **options)
    if isinstance(what, str | Path):
        return _read(Path(what), own, other, how)
    if hasattr(what, "sequence_attributions"):
        raise UsageError("attributions are read from files; save them with Inseq's save()")
    if isinstance(what, Mapping) and any(what.get(name) is not None for name in arrays.NAMES):
        if own is None:
            raise UsageError("a model's output does not hold its tokens; add {tokens}", tokens=...)
        return arrays.from_arrays(what, own, other, options=how)
    return sources.imported(what).capture(tokens=own, source_tokens=other, options=how)


def _read(path: Path, own: Tokens | None, other: Tokens | None, how: ArrayOptions) -> Capture:
    from attnviz.models.recorded import sources

    if sources.is_recording(path):
        if own is not None or other is not None or how.kind is not None:
            raise UsageError(
                "{} is a recording, which has its own tokens; leave out {tokens}", path, tokens=...
            )
        for name in ("layout", "mask", "attention_mask", "decoder_attention_mask"):
            if getattr(how, name) is not None:
                raise UsageError(
                    "{} is a recording, whose fields say this (docs/recording.md); leave out {}",
                    path, Setting(name),
                )  # fmt: skip
        return recorded.load(path, how.item, sinks=how.sinks)
    recording = sources.find(path, how.item)
    if path.suffix == recorded.JSON:  # one of its sequences is chosen already
        how = replace(how, item=None)
    return recording.capture(path.name, tokens=own, source_tokens=other, options=how)


def read_items(path: Path) -> Iterator[Capture | InputError]:
    """Every item of recorded attention, ours or another tool's, one at a time."""
    from attnviz.models.recorded import sources

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
    from attnviz.models.recorded import sources

    return sources.read_tokens(path)


@interface
def write_capture(capture: Capture, path: str | Path) -> Path:
    """Write a capture of all layers, for :func:`attnviz.read` and ``--recorded``.

    Args:
        capture: of all layers; of some for a file to read.
        path: an .npz or .safetensors file; or .csv, a row for each weight, or .json.

    Raises:
        OutputError: it cannot be written, or not in that format.
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".json"):
        files.write(path, recorded.dump(capture.finite(), path.suffix))
        return path
    from attnviz.drawing.map_files import maps_bytes

    inputs = capture.inputs
    about = {
        "model": capture.source.model,
        "texts": list(inputs.texts),
        "mean": capture.layout.mean or None,
        "notes": list(inputs.notes),
    }
    written = maps_bytes(
        path.suffix.lower(),
        captured(capture.finite()).named_maps(),
        capture.layout,
        quantity=capture.quantity.removesuffix("s"),
        about=about,
        made=Made.now(capture.source.model),
    )
    files.write(path, written)
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
