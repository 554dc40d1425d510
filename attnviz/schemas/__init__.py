"""The JSON Schema of every result, and of a recording, for programs that read or write them.

``python -m attnviz.schemas`` writes them anew from the types, into this folder.
"""

from __future__ import annotations

import json
from pathlib import Path

from attnviz.core.record import Record
from attnviz.features.registry import RESULTS, result_class
from attnviz.models.recorded.document import Recording

FOLDER = Path(__file__).parent
RECORDING = "attnviz.capture"
"""What other programs write for attnviz to read: docs/recording.md."""
NAMES = (*RESULTS, RECORDING)


def schema_path(name: str) -> Path:
    """The file with the schema of results such as ``attnviz.heads``."""
    return FOLDER / f"{name.removeprefix('attnviz.')}.schema.json"


def schema_text(name: str) -> str:
    """What is in that file, from the type."""
    kind: type[Record] | None = Recording if name == RECORDING else result_class(name)
    assert kind is not None
    return json.dumps(kind.json_schema(), ensure_ascii=False, indent=2) + "\n"


def write() -> list[Path]:
    """Every file anew, and those of results that are gone deleted; returns what was written."""
    wanted = {schema_path(name): schema_text(name) for name in NAMES}
    for path in set(FOLDER.glob("*.json")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return list(wanted)
