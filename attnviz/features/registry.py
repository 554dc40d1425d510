"""Which results there are: the one list by which a file is read again."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from attnviz.core.record import Record, parsed
from attnviz.errors import InputError, system_errors
from attnviz.files import handed, name_of, opened

RESULTS = {
    "attnviz.ablate": "attnviz.features.ablation.result.Ablation",
    "attnviz.atlas": "attnviz.features.atlas.result.Atlas",
    "attnviz.check": "attnviz.features.check.result.FileCheck",
    "attnviz.circuits": "attnviz.features.circuits.result.Circuits",
    "attnviz.diff": "attnviz.features.diff.result.Diff",
    "attnviz.explain": "attnviz.features.explain.result.Explain",
    "attnviz.film": "attnviz.features.film.result.Film",
    "attnviz.flow": "attnviz.features.flow.result.Flow",
    "attnviz.coref": "attnviz.features.coref.result.Coref",
    "attnviz.heads": "attnviz.features.heads.result.Heads",
    "attnviz.lens": "attnviz.features.lens.result.Lens",
    "attnviz.logits": "attnviz.features.logits.result.Logits",
    "attnviz.patch": "attnviz.features.patch.result.Patch",
    "attnviz.profile": "attnviz.features.profile.result.Profile",
    "attnviz.retrieval": "attnviz.features.retrieval.result.Retrieval",
    "attnviz.shapes": "attnviz.features.shapes.function.Answer",
    "attnviz.sinks": "attnviz.features.sinks.result.Sinks",
    "attnviz.source-shares": "attnviz.features.sources.result.SourceShares",
    "attnviz.sources": "attnviz.features.sources.result.Sources",
    "attnviz.spans": "attnviz.features.spans.result.Spans",
    "attnviz.syntax": "attnviz.features.syntax.result.Syntax",
}
"""The class of each schema, without its version."""


def result_class(schema: str) -> type[Record] | None:
    """The class of a schema such as ``attnviz.ablate/2``; None for none that is known."""
    module, _, name = RESULTS.get(schema.partition("/")[0], "").rpartition(".")
    return getattr(import_module(module), name) if module else None


def read_record(document: Any, name: str) -> Record:
    """The record of a JSON document.

    Args:
        document: as JSON holds it.
        name: of its file, for messages.

    Raises:
        InputError: not an attnviz result, one of another version, or a damaged one.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    found = result_class(schema) if isinstance(schema, str) else None
    if found is None:
        holds = f"a result of {str(schema)[:40]}" if schema else "not an attnviz result"
        raise InputError(f"{name} is {holds}; give a JSON file that an attnviz command wrote")
    return found.from_dict(document, name)


def read(path: str | Path) -> Any:
    """The typed result in any file that attnviz wrote.

    Args:
        path: the JSON of a command, what ``attnviz profile`` keeps, or recorded attention
            (.npz, .safetensors), which is a :class:`~attnviz.Capture`. JSON may also come from
            ``<(command)`` of a shell.

    Raises:
        InputError: it cannot be read, or is nothing that attnviz wrote.
    """
    path = Path(path)
    if path.suffix.lower() in (".npz", ".safetensors"):
        from attnviz.captures.files import read_capture

        return read_capture(path)
    name = name_of(path)
    if os.path.isfile(path) and is_zipfile(path):  # a device has no end to look for
        profile = import_module("attnviz.features.profile.function")
        return profile.read_profile(path)
    from attnviz.corpus.lines import text

    if name != "-" and not handed(path):  # another pipe that nobody writes to would be waited for
        with system_errors(InputError, f"cannot read {path}"):
            opened(path).close()
    return read_record(parsed(text(str(path)), name), name)
