"""``attnviz.check``: is this attention right, a recorded file's or a module's?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from attnviz.captures.files import read_recorded
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.result import FileProblem
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.features.check.result import FileCheck, ModuleCheck
from attnviz.models.recorded.arrays import ArrayOptions
from attnviz.models.recorded.format import JSON
from attnviz.models.recorded.other_tools import open_recording
from attnviz.models.recorded.reading import Stored, read_item
from attnviz.models.recorded.validator import damaged, find_in_weights

D_MODEL, HEADS = 24, 4
"""Sizes of a module that is made from its class: d = 6, and no two sizes of a call are alike."""


@interface
def check(
    path: Any,
    x: Any = None,
    *,
    heads: int | None = None,
    causal: bool | None = None,
    mask: Any = None,
    context: Any = None,
    step: Callable[..., Any] | None = None,
    d_model: int = D_MODEL,
    kv_heads: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> FileCheck | ModuleCheck:
    """Say what is wrong with recorded attention, or which bug an attention module has.

    A file is checked before it is used: every problem, with its path in the file. A module is
    called on a few tokens, in float64 and without dropout, and every operation of the call is
    followed (docs/check.md): which tokens meet in a map, the scale, the mask, the axis of softmax,
    what becomes of the heads' outputs.

    Args:
        path: a recording (docs/recording.md), or a file or folder that :func:`attnviz.read` takes;
            or a torch module; or ``file.py:Class``, whose file is run.
        x: of a module, its input [B, T, D], or all arguments of its ``forward``, a tuple.
        heads: how many heads the module is to have; of a class, 4 unless given.
        causal: whether its queries must not see later tokens; by default where its name, its
            settings or a buffer of it say so.
        mask: what it is given as its mask; by default a causal and a padding mask in every form.
        context: the other sequence [B, S, D] of cross-attention.
        step: decodes one token at a time, ``step(x [B, 1, D], position)``, with a cache of its own.
        d_model: D, of a class.
        kv_heads: G key/value heads, of a class that has them.
        settings: further arguments of a class's constructor, by name.

    Raises:
        InputError: a file that is not there, is none at all or cannot be opened safely; a module
            that cannot be made or called.
        UsageError: an argument of the module that is not known.
    """
    if hasattr(path, "named_parameters"):
        return _module(path, x, context, heads, causal, mask, step)
    if isinstance(path, str) and ".py:" in path:
        from attnviz.features.check.module import build, load_class, takes_heads

        n_heads = heads or HEADS
        if d_model % n_heads:
            raise UsageError("{d_model} cannot be cut into {} heads", n_heads, d_model=d_model)
        with _silence():
            cls = load_class(path)
            module = build(cls, d_model, n_heads, kv_heads, settings or {})
        several = heads or (n_heads if takes_heads(cls) else None)
        return _module(module, x, context, several, causal, mask, step, d_model)
    if str(path).endswith(".py"):
        raise UsageError("{path} is Python: name the class as well, {}:Class", path, path=...)
    if not isinstance(path, str | Path):
        raise UsageError(
            "{path} is a file, a torch module or file.py:Class, not {}", type(path).__name__,
            path=...,
        )  # fmt: skip
    return _file(Path(path))


def _module(
    module: Any, x: Any, context: Any, heads: int | None, causal: bool | None, mask: Any,
    step: Any, width: int | None = None,
) -> ModuleCheck:  # fmt: skip
    from attnviz.features.check.examine import examine
    from attnviz.features.check.module import subject_of

    with _silence():
        subject = subject_of(module, x, context, width)
        return examine(subject, heads=heads, causal=causal, mask=mask, step=step)


@contextmanager
def _silence() -> Iterator[None]:
    """Drop what the module's own code prints: it runs many times, and a record may follow."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def _file(path: Path) -> FileCheck:
    source = open_recording(path)
    if not isinstance(source, Stored):  # another tool's: whether its first item can be read
        items = source.items
        single = ArrayOptions(item=0 if items > 1 else None)
        sequence = source.sequence(single.item)
        try:
            return _made(path, sequence.format, [], read_recorded(sequence, options=single), items)
        except InputError as error:
            wrong = [FileProblem("", "attention weights that can be read", str(error))]
        return _made(path, sequence.format, wrong, None, items)
    try:
        fields = source.fields
    except InputError as error:
        if path.suffix.lower() != JSON or "is damaged" not in str(error):
            raise
        return _made(path, source.format, [damaged(error, str(path))], None, 1)
    wrong = list(source.problems)
    wrong += find_in_weights(fields) if wrong else ()
    captures: list[Capture] = []
    for item in range(0 if wrong else source.items):
        try:
            read = read_item(path, fields, item)
        except AttnvizError as error:
            line = str(error).removeprefix(f"{path}: ")
            location = f"item {item}" if source.items > 1 else ""
            read = [FileProblem(location, "a recording that can be read", line)]
        if isinstance(read, Capture):
            captures.append(read)
        else:
            wrong += read
    return _made(path, source.format, wrong, None if wrong else captures[0], source.items)


def _made(
    path: Path, format: str, wrong: list[FileProblem], capture: Capture | None, items: int
) -> FileCheck:
    shapes: dict[str, tuple[int, ...]] = {}
    for site, maps in capture.maps.items() if capture is not None else ():
        shapes[site.kind] = (shapes.get(site.kind, (0,))[0] + 1, *maps.shape)
    return FileCheck(
        file=path.name,
        format=format,
        problems=tuple(wrong),
        shapes=shapes,
        items=items,
        notes=capture.inputs.notes if capture is not None else (),
    )
