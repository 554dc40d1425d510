"""Which model runs where a command names none: the environment's, the project's or the bundled."""

from __future__ import annotations

import os
from pathlib import Path

from attnviz.core.provenance import DEFAULT_MODEL
from attnviz.errors import InputError, UsageError, system_errors

VARIABLE = "ATTNVIZ_MODEL"
SAID = f"By default ${VARIABLE}, model in \\[tool.attnviz] of pyproject.toml, or {DEFAULT_MODEL}."
_FILE = "pyproject.toml"


def default_model() -> str:
    """``$ATTNVIZ_MODEL``, else ``model`` in ``[tool.attnviz]`` of the nearest pyproject.toml.

    The nearest is the first one from the working directory upwards; a folder of a model in it is
    relative to it. Else the bundled model.
    """
    if named := os.environ.get(VARIABLE):
        return named
    here = Path.cwd()
    file = next((at / _FILE for at in (here, *here.parents) if (at / _FILE).is_file()), None)
    return DEFAULT_MODEL if file is None else _of_project(file)


def teaching(model: str) -> list[str]:
    """What to know of the bundled model where nobody named one, and others can be fetched."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    if model != DEFAULT_MODEL or offline:
        return []
    return [
        f"{model} is a small model trained for teaching. For a well-known one: "
        "--model bert-base-uncased, or --model gpt2."
    ]


def _of_project(file: Path) -> str:
    """The model that a project names; the bundled one where it names none."""
    import tomllib

    with system_errors(InputError, f"cannot read {file}"):
        text = file.read_bytes()
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            "{} is not readable TOML: {}; mend it, or name a {model}", file, error, model=...
        ) from None
    table = document.get("tool", {})
    table = table.get("attnviz", {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict) or table.keys() - {"model"}:
        raise UsageError(f"[tool.attnviz] of {file} takes model alone, not {str(table)[:60]}")
    model = table.get("model", DEFAULT_MODEL)
    if not isinstance(model, str) or not model:
        raise UsageError(f"model in [tool.attnviz] of {file} is a name, not {str(model)[:40]!r}")
    beside = file.parent / model
    return str(beside) if os.path.isdir(beside) else model  # False for what no path can be
