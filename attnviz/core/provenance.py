"""Where weights and files come from: the model, what made them, and how both are named."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import PurePath
from typing import Any, Literal

from attnviz.core.threads import holding
from attnviz.errors import encodable


@lru_cache(1 << 10)  # a profile names the same texts in a thousand rows
def own_name(path: str) -> str:
    """Name a file, or a line of one, as results and pages do: of a machine's path the last part."""
    if os.path.isabs(path) or path.startswith((".", "~")):
        path = PurePath(path).name or path
    return encodable(path)


_ANY_MODELS = (
    r"(hf|pytorch|safetensors|weights|models?|(checkpoint|ckpt|epoch|step|iter|run|version|v)s?"
    r"[-_.]?\d*|\d+|final|best|last|latest|out|output|outputs|results|snapshots|[0-9a-f]{40})"
    r"([-_.](model|checkpoint|weights|hf))?"
)
"""Names of folders that could be any model's."""
_MOST_PARTS = 3
_HOMES = ("home", "Users")


def called(name: str) -> str:
    """Return a model as results and pages name it: of a local path only the last part.

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


Backend = Literal["untrained", "native", "hooked", "eager", "recorded"]
"""How the weights were obtained; see docs/models.md."""


RANDOM = "random weights, nothing learned"
"""How the exactness of a control begins: a model of the same configuration that was not trained."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where weights came from, for the report.

    Attributes:
        model: the name the user gave, or what stands for it (``fresh mha, seed 0``).
        backend: how the weights were obtained.
        exactness: one phrase on how far they can be trusted, with the measured difference if any.
        device: where it ran; ``dtype``: in which precision.
        reason: why this backend was taken, when another was tried or usual.
        versions: package versions that took part.
    """

    model: str
    backend: Backend
    exactness: str
    device: str = "cpu"
    dtype: str = "float32"
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def untrained(self) -> bool:
        """Whether its weights were drawn at random."""
        return self.backend == "untrained" or self.exactness.startswith(RANDOM)


_LONGEST = 200
"""Characters of an argument; texts that are longer are cut."""
_MOST = 4
"""Elements of a list that are written out."""
_HASH = 8
"""Digits of a model's hash on a line."""


def hash_of(identity: Mapping[str, Any]) -> str:
    """Name a model's weights by digits: its files', and with those of an adapter if it has one."""
    checkpoint, adapter = (str(identity.get(part, "")) for part in ("checkpoint", "adapter"))
    if not adapter:
        return checkpoint
    return hashlib.sha256(f"{checkpoint} {adapter}".encode()).hexdigest()[: len(checkpoint)]


def _version() -> str:
    """Of attnviz; its package is above this one, and is not imported by name."""
    return str(import_module("attnviz").__version__)


@dataclass(frozen=True)
class Made:
    """What made a file."""

    model: str = ""  # its name, or the names of two
    hash: str = ""  # of the model's files; empty where it was handed over loaded
    version: str = field(default_factory=_version)  # of attnviz
    command: str = ""  # as typed in a shell, or the call in Python, without the machine's folders
    date: str = ""  # ``2026-11-26``

    @classmethod
    def now(
        cls, *models: str, identity: Mapping[str, Any] | None = None, command: str = ""
    ) -> Made:
        """Return what is made now."""
        names, digits = " and ".join(dict.fromkeys(models)), hash_of(identity or {})
        return cls(names, digits, command=_COMMAND.get() or command, date=f"{day():%Y-%m-%d}")

    def line(self) -> str:
        """On one line: ``demo-gpt2 91c2aa01 · attnviz 0.1.0 · attnviz lens "A b" · 2026-11-26``."""
        model = " ".join(part for part in (self.model, self.hash[:_HASH]) if part)
        parts = (model, f"attnviz {self.version}", self.command, self.date)
        return " · ".join(part for part in parts if part)

    @property
    def model_typed(self) -> str:
        """The model as the command names it, which runs where the command does; else its name."""
        typed = _MODEL_TYPED.search(self.command)
        return typed[1].strip("\"'") if typed and typed[1].strip("\"'")[:2] == "./" else self.model

    def to_dict(self) -> dict[str, str]:
        """As JSON holds it."""
        return asdict(self)


def day() -> datetime:
    """When files are made: now, or at ``SOURCE_DATE_EPOCH`` (seconds since 1970)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)


_MODEL_TYPED = re.compile(r"""(?<=[ (])(?:-{2}model|-m|model)[= ]("[^"]*"|'[^']*'|[^\s,)]+)""")
_READ = re.compile(r"@([^\s,@]*/[^\s,@]*)")
"""A file that an argument is read from, as ``@circuit.json``, in a folder."""
_COMMAND: ContextVar[str] = ContextVar("command", default="")
_CURRENT: ContextVar[Made | None] = ContextVar("made", default=None)


def running(command: str) -> AbstractContextManager[object]:
    """In the ``with`` block, files are made by this command; the outermost one counts."""
    return holding(_COMMAND, _COMMAND.get() or command)


def saying(made: Made) -> AbstractContextManager[object]:
    """In the ``with`` block, pictures say that this made them."""
    return holding(_CURRENT, made)


def current() -> Made | None:
    """Return what makes the picture that is drawn now, where that is known."""
    return _CURRENT.get()


def command_line(arguments: Sequence[str]) -> str:
    """Return what was typed in a shell, without folders of the machine."""
    return " ".join(["attnviz", *(shlex.quote(_argument(value)) for value in arguments)])


def call(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return a call in Python: ``av.lens("The cat", by="head")``."""
    texts = [*map(_value, arguments), *(f"{key}={_value(value)}" for key, value in named.items())]
    return f"av.{name}({', '.join(texts)})"


def of_call(value: Any, made_by: str) -> None:
    """Keep with a result which call it is from, for the files that it is saved in later.

    What is read from a file is from the call that the file names, and stays so.
    """
    makes_files = hasattr(type(value), "made") and hasattr(value, "__dict__")
    if made_by and makes_files and not called_by(value):
        object.__setattr__(value, "_call", made_by)


def called_by(value: Any) -> str:
    """Return the call that a result is from; empty where it is not known."""
    return str(getattr(value, "__dict__", {}).get("_call", ""))


def _argument(text: str) -> str:
    """Strip an argument of the machine's folders: ``--out=/home/me/x.png`` is ``--out=x.png``."""
    name, equals, value = text.rpartition("=")
    if os.sep in value and (os.path.exists(value) or not any(map(str.isspace, value))):
        value = _from_here(value)
    value = _READ.sub(lambda file: f"@{_from_here(file[1])}", value)
    text = f"{name}{equals}{value}".encode("utf-8", "replace").decode()  # names may be no Unicode
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _from_here(path: str) -> str:
    """Write a path as it is found from the working directory, if it lies there.

    Of one that lies elsewhere the last part, as :func:`called` has it. A folder begins with
    ``./``, so that none is taken for a model of the hub.
    """
    name, expanded = called(path), os.path.expanduser(path)
    if PurePath(expanded).parent.name == "snapshots" and not name.endswith(PurePath(expanded).name):
        return name
    try:
        inside = PurePath(os.path.relpath(expanded)).as_posix()
        if inside.startswith(os.pardir):  # or the working directory has two names
            inside = PurePath(os.path.relpath(os.path.realpath(expanded))).as_posix()
    except (OSError, ValueError):  # no working directory, another drive
        inside = os.pardir
    if inside.startswith(os.pardir):
        inside = name
    return f"./{inside}" if os.path.isdir(expanded) and inside != os.curdir else encodable(inside)


def _value(value: Any) -> str:
    """Return an argument as Python writes it, where it is short."""
    if isinstance(value, str):
        return json.dumps(_argument(value), ensure_ascii=False)
    if isinstance(value, os.PathLike):
        return json.dumps(_argument(str(value)), ensure_ascii=False)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        items = [*map(_value, value[:_MOST]), *["…"] * (len(value) > _MOST)]
        return f"[{', '.join(items)}]"
    return f"{type(value).__name__}(…)"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is on this machine.

    Attributes:
        name: under which it is loaded.
        place: ``bundled``, ``built in`` or ``hub cache``.
        family: ``model_type`` of its configuration.
        shape: layers × heads, for every kind of layer.
        size: bytes on disk.
        usable: whether attnviz can run it; ``note`` says why not, or what to know.
    """

    name: str
    place: str
    family: str = ""
    shape: str = ""
    size: int = 0
    usable: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Something that was measured of a model, and is used again.

    Attributes:
        what: it is, such as ``means of heads``; empty for a damaged file.
        model: the name of the model.
        size: bytes on disk.
        used: when it was last used, in seconds since 1970.
    """

    what: str
    model: str
    size: int
    used: float


DEFAULT_MODEL = "demo-gpt2"
"""A small GPT-2 that comes with attnviz; see its MODEL_CARD.md."""
