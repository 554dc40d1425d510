"""Models and files as results and pages name them, which tells nothing else of the machine."""

from __future__ import annotations

import os
import re
from pathlib import PurePath

from attnviz.errors import encodable


def own_name(place: str) -> str:
    """A file, or a line of one, as results and pages name it: of a machine's path the last part."""
    if os.path.isabs(place) or place.startswith((".", "~")):
        place = PurePath(place).name or place
    return encodable(place)


_ANY_MODELS = (
    r"(hf|pytorch|safetensors|weights|models?|(checkpoint|ckpt|epoch|step|iter|run|version|v)s?"
    r"[-_.]?\d*|\d+|final|best|last|latest|out|output|outputs|results|snapshots|[0-9a-f]{40})"
    r"([-_.](model|checkpoint|weights|hf))?"
)
"""Names of folders that could be any model's."""
_MOST_PARTS = 3
_HOMES = ("home", "Users")


def called(name: str) -> str:
    """A model as results and pages name it: of a local path only the last part.

    Where that part could be any model's (``model``, ``checkpoint-500``, a snapshot's hash), the
    part before stands with it, and a snapshot in the hub's cache has its name on the hub. What is
    mailed tells nobody how else the folders of a machine are called, nor whose they are.
    """
    if not (os.path.isabs(name) or name.startswith((".", "~")) or os.path.isdir(name)):
        return encodable(name)
    path = PurePath(os.path.abspath(os.path.expanduser(name)))
    if path.parent.name == "snapshots":
        kind, *hub = re.split("-{2}", path.parts[-3])
        if kind == "models" and hub:
            return "/".join(hub)
    parts, home = [path.name], PurePath(os.path.expanduser("~"))
    for folder in path.parents:
        says = not re.fullmatch(_ANY_MODELS, parts[0], re.IGNORECASE) or len(parts) == _MOST_PARTS
        if says or folder in (home, *home.parents) or folder.parent.name in _HOMES:
            break
        parts.insert(0, folder.name)
    return encodable("/".join(parts) or name)
