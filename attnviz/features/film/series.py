"""A series of checkpoints: folders in the order of their numbers, or revisions on the hub."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from attnviz import files
from attnviz.errors import InputError, UsageError

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint."""

    step: int  # the last number in its name
    model: str  # a folder, or a hub id with its revision, ``name@step1000``


def series(models: str | Path | Sequence[str | Path]) -> tuple[Checkpoint, ...]:
    """The checkpoints that some names mean, by their steps."""
    names = [name for entry in files.listed(models) for name in _named(entry)]
    checkpoints = sorted(
        (Checkpoint(_step(name), name) for name in dict.fromkeys(names)), key=_by_step
    )
    for before, after in pairwise(checkpoints):
        if before.step == after.step:
            raise UsageError(
                f"{before.model} and {after.model} are both of step {after.step}; name one run"
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


def _by_step(checkpoint: Checkpoint) -> int:
    return checkpoint.step
