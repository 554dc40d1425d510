"""``python -m attnviz.schemas``: writes the schema of every result from its type."""

from __future__ import annotations

from attnviz.schemas import write

for path in write():
    print(path)
