"""Files: written whole or not at all, here alone; and read only as far as they are files.

What the user names with ``--out`` is written through symbolic links, keeps its mode, and must be a
regular file with a single name: pipes, devices and hard links are refused. Files that attnviz
names itself replace whatever stands there, never what a link points to. In a :class:`HeldFolder`
nothing is replaced, and no link leads out of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from attnviz.errors import OutputError, UsageError, encodable, system_errors

_UNFINISHED = re.compile(r"\..{1,40}\.[0-9a-f]{12}\.part")
"""Names of files and folders that are not whole yet."""

_WITH_FIELDS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
_OF_TEXTS = (".txt", ".json", ".conllu", *_WITH_FIELDS)
"""Suffixes of files that texts are read from."""

LARGEST = 256 << 20
"""Bytes of a file that is read whole, unless its reader says otherwise."""


@cache
def packaged(module: str, name: str) -> dict[str, Any]:
    """Return what a TOML file holds that lies beside a module of attnviz; it is read once."""
    import tomllib

    return tomllib.loads(Path(module).with_name(name).read_text("utf-8"))


def open_regular(path: str | Path) -> BinaryIO:
    """Return a regular file for reading bytes, also through links."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def handed(path: object) -> bool:
    """Whether a path is what the shell makes of ``<(command)``: a pipe that somebody writes to."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


def check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    """UsageError for a file whose suffix is none of those that can be written."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(
            f"cannot write {path.name or str(path)!r}; name the file {', '.join(suffixes)}"
        )


def like_a_file(text: str) -> bool:
    """Whether a text is the name of a file, or looks like one: one word with a known suffix."""
    return os.path.isfile(text) or (
        text.split() == [text] and Path(text).suffix.lower() in _OF_TEXTS
    )


def has_fields(name: str) -> bool:
    """Whether a file of texts has fields (.jsonl, .csv, ...) and not lines of text."""
    suffix = Path(name).suffix.lower()
    if suffix == ".json":
        raise UsageError(
            f"{name} is JSON, not lines of text; name it .jsonl if every line is an object"
        )
    return suffix in _WITH_FIELDS


def listed(paths: str | Path | Iterable[str | Path] | None) -> list[str]:
    """One path, several or none, as a list of names."""
    if paths is None:
        return []
    return [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def name_of(path: str | Path) -> str:
    """Return what to call a file for people: its name without its folder."""
    return "the pipe" if handed(path) else encodable(Path(path).name)


def human_bytes(count: float) -> str:
    """Return a size for people: ``2.1 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} PB"


def wrote(path: str | Path) -> str:
    """Return what is said of a file, or a folder, once it is written: ``wrote x.png (12.3 kB)``."""
    root = Path(path)
    entries = root.rglob("*") if root.is_dir() else [root]
    sizes = [path.stat().st_size for path in entries if path.is_file()]
    return f"wrote {path} ({human_bytes(sum(sizes))})"


def contents(path: str | Path, limit: int = LARGEST) -> bytes:
    """All bytes of a regular file."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size or limit  # of files that the system makes up, 0
        data = file.read(min(size, limit) + 1)  # asking for more takes its memory
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", str(path))
    return data


def inflated(data: bytes, size: int, limit: int = LARGEST) -> bytes:
    """Return what zlib or gzip packed, which is known to be so many bytes: no more are unpacked."""
    if not 0 <= size <= limit:
        raise ValueError(f"it says that it unpacks to {size:,} bytes, more than {limit:,}")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either header
    try:
        unpacked = unpacking.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(unpacked) != size or not unpacking.eof:
        raise ValueError(f"it does not unpack to the {size:,} bytes that it says")
    return unpacked


def check_writable(path: Path) -> None:
    """Find out that a file cannot be written before any work is done for it."""
    target = _target(path)
    folder = target.parent
    with system_errors(OutputError, f"cannot write {path}"):
        if target.is_dir():
            raise OutputError(f"{path} is a folder; name a file in it")
        if not folder.is_dir():
            raise OutputError(f"the folder {folder} does not exist; create it first")
        status = target.stat() if target.exists() else None
        if not os.access(folder, os.W_OK) or (status and not os.access(target, os.W_OK)):
            raise OutputError(f"cannot write {path}: permission denied; choose another place")
        if status and not stat.S_ISREG(status.st_mode):
            raise OutputError(f"{path} is not a regular file; name another one")
        if status and status.st_nlink > 1:
            raise OutputError(
                f"{path} is one of {status.st_nlink} hard links to one file, which "
                "writing would separate; remove it first or name another one"
            )


def check_folder(folder: Path) -> None:
    """Find out that a folder cannot be made or written into, before any work is done for it."""
    with system_errors(OutputError, f"cannot write into {folder}"):
        full = folder.absolute()
        nearest = next(path for path in (full, *full.parents) if path.exists())
        if not nearest.is_dir():
            raise OutputError(f"cannot write into {folder}: {nearest} is no folder; choose another")
        if not os.access(nearest, os.W_OK):
            raise OutputError(f"cannot write into {folder}: permission denied; choose another")


def write(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole: a temporary file beside it, then a rename.

    A file that is there keeps its mode, and a symbolic link leads to the new one.
    """
    check_writable(path)
    target = _target(path)
    with system_errors(OutputError, f"cannot write {path}"):
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    place(target, (data,), mode=mode)


def _target(path: Path) -> Path:
    """Where a symbolic link leads; any other path as it stands."""
    with system_errors(OutputError, f"cannot write {path}"):
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def place(
    path: Path, chunks: Iterable[bytes], *, sync: bool = False, mode: int | None = None
) -> None:
    """Write a file whole, as :func:`write` does, without looking first."""
    temporary = unfinished(path)
    with system_errors(OutputError, f"cannot write {path}"):
        try:
            with open(temporary, "xb", opener=_private if mode is not None else None) as file:
                if mode is not None:
                    os.chmod(temporary, mode)
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if sync:
                sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink()
            raise


def unfinished(path: Path) -> Path:
    """Return a new hidden name beside a path, for what is not whole yet."""
    # a short one, for a long one may leave no room for the ending
    return path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}.part")


def is_unfinished(path: Path) -> bool:
    """Whether a path has a name that :func:`unfinished` gives."""
    return _UNFINISHED.fullmatch(path.name) is not None


def _private(path: str, flags: int) -> int:
    """Open a new file that nobody else may read until its mode is known."""
    return os.open(path, flags, 0o600)


def sweep(folder: Path) -> None:
    """Remove what a killed process left of unfinished files in a folder."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if is_unfinished(Path(entry.name)):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def remove_empty(folder: Path) -> None:
    """Remove a folder if nothing is in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Wait until the disk has a folder's names; only POSIX systems can open one for that."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_BY_HANDLE = os.scandir in os.supports_fd and {
    os.open, os.mkdir, os.rename, os.stat, os.unlink
} <= os.supports_dir_fd  # fmt: skip
"""Whether names can be relative to a folder that is open; Windows cannot."""
_NO_LINK = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_FOLDER = os.O_RDONLY | _NO_LINK | getattr(os, "O_DIRECTORY", 0)


class HeldFolder:
    """A folder that :func:`held` opened, with files named in the folder itself, not by a path."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self._path, self._handle = path, handle

    def files(self) -> dict[str, os.stat_result]:
        """Its regular files by name; links are none."""
        files: dict[str, os.stat_result] = {}
        with os.scandir(self._path if self._handle is None else self._handle) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if entry.is_file(follow_symlinks=False):
                        files[entry.name] = entry.stat(follow_symlinks=False)
        return files

    def create(self, name: str, data: bytes) -> os.stat_result:
        """Write a new file, whole or not at all, and say what it is."""
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        os.close(self._open(name, new))  # from here on the name is ours, among processes too
        temporary = unfinished(Path(name)).name
        try:
            with os.fdopen(self._open(temporary, new), "wb") as file:
                file.write(data)
            os.replace(
                self._named(temporary), self._named(name),
                src_dir_fd=self._handle, dst_dir_fd=self._handle,
            )  # fmt: skip
        except BaseException:
            self.remove(temporary)
            self.remove(name)
            raise
        return os.stat(self._named(name), dir_fd=self._handle, follow_symlinks=False)

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file, made where there is none; what others append stays whole."""
        with os.fdopen(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab", 0) as file:
            file.write(data)

    def contents(self, name: str) -> bytes:
        """All of a file; no bytes where there is none."""
        try:
            number = self._open(name, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        with os.fdopen(number, "rb") as file:
            return file.read(LARGEST)

    def remove(self, name: str) -> None:
        """Remove a file, where it is there and can be removed."""
        with contextlib.suppress(OSError):
            os.unlink(self._named(name), dir_fd=self._handle)

    def _open(self, name: str, flags: int) -> int:
        return os.open(self._named(name), flags | _NO_LINK, 0o666, dir_fd=self._handle)

    def _named(self, name: str) -> str:
        return name if self._handle is not None else str(self._path / name)


@contextlib.contextmanager
def held(root: Path, inner: Sequence[str] = (), *, make: bool = False) -> Iterator[HeldFolder]:
    """Open a folder inside another one, step by step, following no link.

    On Windows, which opens nothing relative to a folder, the path is looked at once more instead:
    a link that is put there between this look and the writing is followed.
    """
    path = root.joinpath(*inner)
    if not _BY_HANDLE:
        if path.resolve() != path:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if make:
            path.mkdir(parents=True, exist_ok=True)
        yield HeldFolder(path, None)
        return
    with contextlib.ExitStack() as handles:
        handle: int | None = None
        for name in (str(root), *inner):
            if make and handle is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            try:
                handle = os.open(name, _FOLDER, dir_fd=handle)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise NotADirectoryError(errno.ENOTDIR, error.strerror, str(path)) from None
            handles.callback(os.close, handle)
        yield HeldFolder(path, handle)
