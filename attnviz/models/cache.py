"""What was measured of a model before and is the same again, in files that nobody has to think of.

An entry belongs to the numbers of a model and the files beside them, to what was asked, to the
versions of attnviz and the libraries, and to the machine: its name is a hash of all of them, so
that what is kept is what would be computed, to the last bit. Entries are files in the user's cache
folder, written whole, read only if their hash holds and nobody else could write them, and no more
than :data:`MOST` bytes in all: the ones used longest ago go first.
``$ATTNVIZ_CACHE`` names another folder, or says ``off``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from attnviz import files
from attnviz.core.arrays import Array
from attnviz.core.heads import Head, Site
from attnviz.core.provenance import CacheEntry
from attnviz.core.threads import threads
from attnviz.errors import AttnvizError, AttnvizWarning, ModelError, OutputError, system_errors
from attnviz.files import open_regular
from attnviz.models.controls import FreshConfig
from attnviz.models.folder import locate

VARIABLE = "ATTNVIZ_CACHE"
OFF = "off"
MOST, LARGEST = 512 << 20, 64 << 20
"""Bytes of all entries, and of one."""
LEAST = 0.5
"""Seconds that making something takes, at least, to be kept."""

_SUFFIX = ".kept"
_DIGEST = hashlib.sha256
_LIBRARIES = ("numpy", "torch", "transformers", "tokenizers", "safetensors")
_ABANDONED = 3600.0
"""Seconds after which a file that is not whole was left by a process that is gone."""


T = TypeVar("T")


def folder() -> Path | None:
    """Where entries are; None where nothing is kept."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named.strip().lower() in ("", OFF, "0") else Path(named).expanduser()
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # no home
        return None
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path(home) / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path(home) / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path(home) / ".cache")
    return root / "attnviz"


def entries() -> tuple[CacheEntry, ...]:
    """Give what is kept, what was used last first; damaged files are among them, without a name."""
    return tuple(_entry(path, status) for path, status in reversed(_listed(folder())))


def shrink(limit: int) -> int:
    """Remove what was used longest ago until the rest takes no more than so many bytes.

    Returns: how many bytes were freed.
    """
    listed = _listed(folder())
    over, freed = sum(status.st_size for _, status in listed) - limit, 0
    for path, status in listed:
        if freed >= over:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            freed += status.st_size
    return freed


class Cache:
    """What is kept of one model; nothing where its numbers are not known or nothing may be kept."""

    def __init__(self, source: Any) -> None:
        self._model, self._source = str(source.info.model), source
        directory = folder()
        contents = None if directory is None else getattr(source, "contents", None)
        info = source.info
        self._about = contents and (contents, info.backend, info.device, info.dtype)

    def recall(
        self,
        label: str,
        about: tuple[object, ...],
        make: Callable[..., T],
        pack: Callable[[T], bytes],
        unpack: Callable[[bytes], T],
        *,
        keep: bool = True,
    ) -> T:
        """Return what was made before, or what is made now.

        ``pack``: it as bytes; ``unpack``: bytes as it, equal to what was packed; raises ValueError,
        KeyError or our own errors for bytes of anything else.
        """
        directory = folder() if keep else None
        if directory is not None and not _is_own(directory):
            directory = None
        key = None if directory is None else self._key(label, about)
        if directory is None or key is None:
            return make(*about)
        path = directory / (key[:40] + _SUFFIX)
        entry = _read(path)
        if entry is not None:
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, AttnvizError):
                head, data = json.loads(entry[0]), entry[1]
                result = unpack(data)
                with contextlib.suppress(OSError):
                    os.utime(path)
                if head["ran"]:
                    self._source.add_versions(dict.fromkeys(head["ran"], ""))
                return result
        start = time.perf_counter()
        # a model of one library does not tell what its passes ran on
        running = getattr(self._source, "running_on", contextlib.nullcontext)
        with running() as ran:
            result = make(*about)
        if time.perf_counter() - start >= LEAST:
            self._write(path, label, pack(result), sorted(ran or ()))
        return result

    def _key(self, label: str, about: tuple[object, ...]) -> str | None:
        """Hash all that an entry depends on; None where some of it is not data, or not known."""
        import msgspec

        if self._about is None:
            return None
        hook = partial(_written, values=_as_bytes)
        try:
            data = msgspec.msgpack.encode(
                (label, about, self._about, (*_version(), threads())),
                enc_hook=hook,
                order="deterministic",
            )
        except (NotImplementedError, TypeError, ValueError, OverflowError, RecursionError):
            return None
        return _DIGEST(data).hexdigest()

    def _write(self, path: Path, label: str, data: bytes, ran: list[str]) -> None:
        """Keep something; a disk that is full or read-only is no reason to stop."""
        if len(data) > LARGEST:
            return
        head = json.dumps({"what": label, "model": self._model, "ran": ran}).encode() + b"\n"
        with contextlib.suppress(OSError, OutputError):
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            files.place(path, (_DIGEST(head + data).digest(), head, data), mode=0o600)
            _sweep(path.parent)
            shrink(MOST)


@cache
def _version() -> tuple[object, ...]:
    """Of attnviz, by the files that it is made of too, and of the libraries that compute."""
    package = Path(__file__).parents[1]
    made_of = [
        (str(path.relative_to(package)), status.st_size, status.st_mtime_ns)
        for path in sorted(package.rglob("*.py"))
        if (status := path.stat())
    ]
    versions = []
    for name in _LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):
            versions.append((name, version(name)))
    code = _DIGEST(repr(made_of).encode()).hexdigest()
    return (version("attnviz"), code, *versions, _processor())


def _processor() -> str:
    """Return the processor's name and abilities, by which libraries choose their kernels."""
    info = [platform.system(), platform.machine(), platform.processor()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:
        lines = file.read(1 << 13).split(b"\n\n")[0].splitlines()
        info += [str(line) for line in lines if line.startswith((b"model name", b"flags", b"Feat"))]
    return "; ".join(info)


def _is_own(path: Path) -> bool:
    """Whether the folder of entries is the user's alone, or not there yet; warn if it is not."""
    try:
        fault = _fault(path.stat())
    except OSError:
        return True
    if fault and path not in _REFUSED:
        _REFUSED.add(path)
        warnings.warn(
            f"the cache {path} is not used: it {fault}; make it yours alone (chmod 700), or name "
            f"another folder in {VARIABLE}",
            AttnvizWarning,
            stacklevel=2,
        )
    return not fault


_REFUSED: set[Path] = set()  # folders that were warned of


def _fault(status: os.stat_result) -> str:
    """Say why entries of a folder or file are not believed; empty where only the user writes it."""
    if os.name != "posix":
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be written by others" if status.st_mode & 0o022 else ""


def _read(path: Path) -> tuple[bytes, bytes] | None:
    """Return what stands before an entry, and what it holds; None for none, or a damaged one."""
    try:
        with files.open_regular(path) as file:
            if _fault(os.fstat(file.fileno())):
                return None
            data = file.read(LARGEST + (1 << 16))
    except OSError:
        return None
    size = _DIGEST().digest_size
    if _DIGEST(data[size:]).digest() != data[:size]:
        return None
    head, _, held = data[size:].partition(b"\n")
    return head, held


def _listed(directory: Path | None) -> list[tuple[Path, os.stat_result]]:
    """All entries, what was used longest ago first."""
    listed: list[tuple[Path, os.stat_result]] = []
    if directory is not None:
        with contextlib.suppress(OSError):
            for path in directory.glob(f"*{_SUFFIX}"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    listed.append((path, path.stat()))
    return sorted(listed, key=lambda item: (item[1].st_mtime, item[0].name))


def _entry(path: Path, status: os.stat_result) -> CacheEntry:
    label = model = ""
    with contextlib.suppress(OSError, ValueError, AttributeError), files.open_regular(path) as file:
        head = json.loads(file.read(1 << 12)[_DIGEST().digest_size :].partition(b"\n")[0])
        label, model = str(head.get("what", "")), str(head.get("model", ""))
    return CacheEntry(label, model, status.st_size, status.st_mtime)


def _sweep(directory: Path) -> None:
    """Remove what a killed process left unfinished, and not what another one writes now."""
    for path in directory.iterdir():
        if files.is_unfinished(path):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()


def as_records(kind: Any) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """How values of a type are packed and unpacked: dataclasses, tuples, numbers, names, heads."""
    import msgspec

    def read(expected: Any, value: Any) -> Any:
        if expected is Head:
            kind, layer, index = value
            return Head(Site(kind, layer), index)
        raise NotImplementedError(f"{expected} cannot be kept")

    def unpack(data: bytes) -> Any:
        try:
            return msgspec.msgpack.decode(data, type=kind, dec_hook=read)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None

    return partial(msgspec.msgpack.encode, enc_hook=_written), unpack


def _written(value: Any, values: Callable[[Any], Any] = lambda array: array.item()) -> Any:
    """Turn a head, or an array or number of NumPy or torch, into what msgspec can write."""
    if isinstance(value, Head):
        return [value.site.kind, value.layer, value.index]
    if hasattr(value, "item") and hasattr(value, "dtype"):
        return values(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be kept")


def _as_bytes(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return an array's type, shape and every bit."""
    import numpy as np

    from attnviz.core import arrays

    plain = arrays.to_numpy(array)
    if plain.dtype.hasobject:
        raise NotImplementedError("an array of objects cannot be kept")
    return str(array.dtype), plain.shape, np.ascontiguousarray(plain).tobytes()


def pack_arrays(arrays_of: Mapping[str, Array]) -> bytes:
    """Arrays by name as bytes, each known to be NumPy's or torch's."""
    import numpy as np
    from safetensors.numpy import save

    from attnviz.core import arrays

    plain = {name: np.ascontiguousarray(arrays.to_numpy(x)) for name, x in arrays_of.items()}
    kinds = [[name, not isinstance(x, np.ndarray)] for name, x in arrays_of.items()]
    return save(plain, {"kinds": json.dumps(kinds)})


def unpack_arrays(data: bytes) -> dict[str, Array]:
    """Return what :func:`pack_arrays` packed: the same numbers, of the same libraries."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    from attnviz.core import arrays

    try:
        size = int.from_bytes(data[:8], "little")
        kinds = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["kinds"])
        plain = load(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return {
        name: arrays.to_torch(arrays.array(plain[name])) if torchs else arrays.array(plain[name])
        for name, torchs in kinds
    }


_WHOLE = 1 << 20
_PIECES = 64
_SUFFIXES = (".json", ".safetensors", ".txt", ".model")


def identity(model: object) -> Mapping[str, Any]:
    """Return the options of a fresh layer, or a hash of a checkpoint's files."""
    if model == "fresh":
        model = FreshConfig()
    if is_dataclass(model) and not isinstance(model, type):
        return {"fresh": asdict(model)}
    if isinstance(model, str | Path):
        located = locate(str(model))
        added = {} if located.adapter is None else {"adapter": _hash(located.adapter)}
        return {"checkpoint": _hash(located.folder)} | added
    return {}


def _hash(folder: Path) -> str:
    """Hash a model's files: small ones whole, large ones by their size and pieces of them."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES):
        with system_errors(ModelError, f"cannot read {path}"), open_regular(path) as file:
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            if size <= _WHOLE:
                digest.update(file.read())
                continue
            for piece in range(_PIECES):
                file.seek(piece * (size - (1 << 14)) // (_PIECES - 1))
                digest.update(file.read(1 << 14))
    return digest.hexdigest()[:32]
