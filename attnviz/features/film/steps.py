"""What was measured at one checkpoint, as a file: NumPy arrays and JSON in one .npz archive.

A film that keeps its steps, ``av.track`` and ``av.HeadsCallback`` write them, one for each step;
``attnviz film FOLDER`` puts them together.

A series of checkpoints: folders in the order of their numbers, or revisions on the hub.
"""

from __future__ import annotations

import glob
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz import files
from attnviz.core.heads import Layout, SiteKind
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import Role
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.models.containers import read_archive
from attnviz.models.external_errors import one_line
from attnviz.scoring.scores import SCORES
from attnviz.scoring.totals import Sums, comparable

SCHEMA = "attnviz.film-state/1"
SUFFIX = ".film.npz"
_NAME = re.compile(r"step-(\d+)" + re.escape(SUFFIX))


class FilmHeader(msgspec.Struct, forbid_unknown_fields=True):
    """All of a step but its arrays.

    Attributes:
        texts: a hash of the tokens of every text; equal ones are one text. The last ``probes`` are
            repeated random tokens.
        roles: what annotated text gives, by the heads' names: title, and mean and interval.
    """

    schema: str
    step: int  # of training; ``name`` what the checkpoint is called
    name: str
    info: SourceInfo  # where its weights came from; ``identity`` what no other model shares
    identity: dict[str, Any]
    layout: dict[SiteKind, list[int]]  # its heads
    whole: bool
    scores: list[str]  # that were measured, in the order of the arrays
    asked: dict[str, Any]  # what results of one film share, see :meth:`FilmSettings.document`
    texts: list[str]
    probes: int
    files: list[str]  # what was read
    tokens: int  # in all; ``shown`` those of the text of which maps are kept
    shown: list[str]
    roles: dict[str, list[Role]]
    metric: str  # that was measured of ablated models
    bad: int  # texts that could not be used; ``notes`` full sentences
    notes: list[str]


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """What was measured at one checkpoint of G texts; H heads, n scores."""

    header: FilmHeader  # what it is of
    # float64 [G, H, n], the sums of every score over the rows of a text; ``rows`` int64, how many
    # rows
    values: NDArray[np.float64]
    rows: NDArray[np.int64]
    # float64 [H, n], of uniform attention; ``shares`` [H, n, m] and ``counted`` [H] as in
    # :class:`~attnviz.scoring.totals.Sums`.
    chances: NDArray[np.float64]
    shares: NDArray[np.float64]
    counted: NDArray[np.int64]
    # float64 [G], summed over the int64 [G] ``predicted`` tokens of a text
    loss: NDArray[np.float64]
    predicted: NDArray[np.int64]
    # float64 [G], the in-context scores of its ``windows`` long enough, summed
    contexts: NDArray[np.float64]
    windows: NDArray[np.int64]
    # float64 [H, 2], what ablating a head changed, and half of its interval; no rows where that was
    # not measured
    changes: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))
    # uint8 [H, T, T], of one text in 255ths; no heads where none is kept
    maps: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 0, 0), np.uint8))

    @property
    def layout(self) -> Layout:
        """The heads."""
        counts = {kind: tuple(heads) for kind, heads in self.header.layout.items()}
        return Layout(counts, whole=self.header.whole)

    def total(self) -> Sums:
        """Return the sums over all texts."""
        names = tuple(self.header.scores)
        return Sums(
            names, comparable(names), self.values.sum(0), self.chances, self.rows.sum(0),
            self.shares, self.counted,
        )  # fmt: skip


_ARRAYS = tuple(field.name for field in fields(MeasuredStep) if field.name != "header")


def path_of(folder: Path, step: int) -> Path:
    """Return the file of a step."""
    return folder / f"step-{step:08}{SUFFIX}"


def write(folder: Path, measured: MeasuredStep) -> Path:
    """Write a step whole or not at all."""
    out = io.BytesIO()
    header = msgspec.json.encode(msgspec.to_builtins(measured.header, enc_hook=str))
    arrays = {name: getattr(measured, name) for name in _ARRAYS}
    np.savez_compressed(out, allow_pickle=False, header=np.frombuffer(header, np.uint8), **arrays)
    path = path_of(folder, measured.header.step)
    files.write(path, out.getvalue())
    return path


def read(path: Path) -> MeasuredStep:
    """Read a step."""
    try:
        arrays = read_archive(path)
        document = json.loads(arrays.pop("header").tobytes())
    except (ValueError, KeyError, RecursionError, InputError):
        if not os.path.isfile(path):
            raise InputError(f"there is no file {path}; check the path") from None
        raise InputError(f"{path} is no step of a film; measure it again") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is of another version of attnviz; measure it again")
    try:
        step = MeasuredStep(
            msgspec.convert(document, FilmHeader), **{name: arrays[name] for name in _ARRAYS}
        )
        _check(step, path)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({one_line(error)}); measure it again") from None
    return step


def read_folder(folder: Path) -> tuple[MeasuredStep, ...]:
    """All steps in a folder, in order."""
    with system_errors(InputError, f"cannot read {folder}"):
        named = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    steps = sorted((int(name[1]), path) for name, path in named if name is not None)
    if not steps:
        raise InputError(
            f"{folder} holds no steps of a film; give a folder that attnviz film, av.track or "
            "av.HeadsCallback kept them in"
        )
    return tuple(read(path) for _, path in steps)


def _check(measured: MeasuredStep, path: Path) -> None:
    """ValueError where the arrays are not those of the header, or the name is of another step."""
    header, heads = measured.header, len(measured.layout)
    if path.name != path_of(path.parent, header.step).name:
        raise ValueError(f"it is of step {header.step}, which is not that of its name")
    if unknown := [name for name in header.scores if name not in SCORES]:
        raise ValueError(f"no score is called {unknown[0]!r}")
    g, n, m = len(header.texts), len(header.scores), len(comparable(header.scores))
    t = len(header.shown)
    shapes: Mapping[str, tuple[tuple[int, ...], str]] = {
        "values": ((g, heads, n), "float64"),
        "rows": ((g, heads, n), "int64"),
        "chances": ((heads, n), "float64"),
        "shares": ((heads, n, m), "float64"),
        "counted": ((heads,), "int64"),
        "loss": ((g,), "float64"),
        "predicted": ((g,), "int64"),
        "contexts": ((g,), "float64"),
        "windows": ((g,), "int64"),
        "changes": ((len(measured.changes) and heads, 2), "float64"),
        "maps": ((heads, t, t) if t else (0, 0, 0), "uint8"),
    }
    for name, (shape, dtype) in shapes.items():
        array = getattr(measured, name)
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {dtype} {shape}")


_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint."""

    step: int  # the last number in its name
    model: str  # a folder, or a hub id with its revision, ``name@step1000``

    @property
    def name(self) -> str:
        """As films name it: of a path its last part."""
        return self.model if "@" in self.model else Path(self.model).name


def series(models: str | Path | Sequence[str | Path]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that some names mean, by their steps."""
    names = [name for entry in files.listed(models) for name in _named(entry)]
    checkpoints = sorted(
        (Checkpoint(_step(name), name) for name in dict.fromkeys(names)), key=lambda step: step.step
    )
    for first, second in pairwise(checkpoints):
        if first.step == second.step:
            raise UsageError(
                f"{first.model} and {second.model} are both of step {second.step}; name one run"
            )
    if len(checkpoints) < 2:
        raise UsageError(
            "a film needs two checkpoints or more, and {model} names {}; give a pattern such as "
            "'runs/step-*', or name@step1000,step2000",
            len(checkpoints),
            model=...,
        )
    return tuple(checkpoints)


def _named(name: str) -> list[str]:
    if os.path.isdir(name):  # False for what no file can be called
        return [name]
    if glob.has_magic(name):
        folders = [folder for folder in glob.glob(name) if os.path.isdir(folder)]
        if not folders:
            raise InputError(f"no folder matches {name}; check the path")
        return folders
    repository, sign, revisions = name.partition("@")
    if not sign:
        raise InputError(f"there is no folder {name}; check the path")
    return [
        f"{repository}@{revision.strip()}" for revision in revisions.split(",") if revision.strip()
    ]


def _step(name: str) -> int:
    last = name.rpartition("@")[2] if "@" in name else Path(name).name
    numbers = _NUMBER.findall(last)
    if not numbers:
        raise UsageError(f"{name} has no number to take as its step; rename it, such as step-100")
    return int(numbers[-1])
