"""The JSON Schema of every result, and of a recording, for programs that read or write them.

They follow from the types, so that no file can be out of date: ``python -m attnviz.schemas FOLDER``
writes a file for each, and :func:`schema` gives one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from attnviz.core.record import Record
from attnviz.features.results import RESULTS, result_class
from attnviz.files import write as write_file
from attnviz.models.recorded.format import Recording

RECORDING = "attnviz.capture"
"""What other programs write for attnviz to read: docs/recording.md."""
NAMES = (*RESULTS, RECORDING)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a result such as ``attnviz.heads``, one of :data:`NAMES`."""
    kind: type[Record] | None = Recording if name == RECORDING else result_class(name)
    assert kind is not None
    return kind.json_schema()


def write(folder: Path) -> list[Path]:
    """Write every schema into a folder, made where there is none; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name.removeprefix('attnviz.')}.schema.json": name for name in NAMES}
    for path, name in files.items():
        text = json.dumps(schema(name), ensure_ascii=False, indent=2)
        write_file(path, f"{text}\n".encode())
    return list(files)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("name the folder to write the schemas into: python -m attnviz.schemas FOLDER")
    print(*write(Path(sys.argv[1])), sep="\n")
