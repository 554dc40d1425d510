"""Writes what transformers fills in where a config.json is silent: ``python -m docs.defaults``.

Which families and fields are asked for stands in the file itself; a new one is added there with any
value. A field that the installed transformers does not keep under that name (a period that it turns
into a list of layers) stays as it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers

FILE = Path(__file__).parents[1] / "attnviz" / "models" / "configs" / "defaults.json"


def refresh(table: dict[str, dict[str, Any]]) -> str:
    """Give the file's text with the values of transformers' own configs, a line a family."""
    lines = []
    for family, fields in table.items():
        config = transformers.AutoConfig.for_model(family)
        values = {name: getattr(config, name, value) for name, value in fields.items()}
        lines.append(f"  {json.dumps(family)}: {json.dumps(values)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(refresh(json.loads(FILE.read_text(encoding="utf-8"))), encoding="utf-8")
