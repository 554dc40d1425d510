"""Reading arrays from files that somebody else made: sizes are checked before anything is read.

Nothing here runs code from a file: pickles are refused, and a small file that claims to be large
(a zip bomb, a false header) is refused before memory is asked for.

Picture and sound files as arrays; the libraries that read them are extras.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, missing, system_errors
from attnviz.files import human_bytes, open_regular
from attnviz.models.external_errors import one_line
from attnviz.models.limits import beyond

if TYPE_CHECKING:
    from torch import Tensor


_HEADER = 1 << 16  # bytes of an array's header


def read_arrays(path: Path, names: set[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz or .safetensors file that have one of ``names``.

    Strings in a safetensors file's metadata count as JSON arrays (``meta`` as one string).
    """
    check_file(path)
    read = _read_npz if path.suffix.lower() == ".npz" else _read_safetensors
    with _refusing(path):
        return read(path, names)


def read_tensors(path: Path, names: set[str]) -> dict[str, Tensor]:
    """Tensors of a .safetensors file, in their own precision; raises as :func:`read_arrays`."""
    from safetensors import safe_open

    check_file(path)
    with _refusing(path):
        _limit(path.stat().st_size)
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in sorted(names & set(file.keys()))}


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of a .npz archive, whatever its suffix; raises as :func:`read_arrays`."""
    check_file(path)
    with _refusing(path):
        return _read_npz(path, None)


def check_file(path: Path) -> None:
    """Raise InputError for a file that is not there, or is none."""
    with system_errors(InputError, f"cannot read {path}"):
        if not path.is_file():
            fault = "not a regular file" if path.exists() else "missing"
            raise InputError(f"{path} is {'a folder' if path.is_dir() else fault}; give a file")


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of a .npy file; raises as :func:`read_arrays`."""
    check_file(path)
    with _refusing(path), open_regular(path) as stream:
        shape, dtype, start = _header(stream)
        _check_size(path.name, shape, dtype, os.fstat(stream.fileno()).st_size - start)
        _limit(math.prod(shape) * dtype.itemsize)
        stream.seek(0)
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        _check_text(path.name, array)
        return array


def check_packed(path: Path) -> None:
    """Refuse a .pt file whose parts unpack to more than they may; raises as :func:`read_arrays`.

    One that is no archive packs nothing.
    """
    if zipfile.is_zipfile(path):
        with _refusing(path), zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                _check_packing(info)
            _limit(sum(info.file_size for info in archive.infolist()))


def list_arrays(path: Path) -> list[str]:
    """List what a file holds, ``name [2, 3]`` for every array; raises as :func:`read_arrays`."""
    with _refusing(path):
        return _listing(path)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Whatever readers raise on what somebody damaged or made up is an InputError."""
    try:
        yield
    except Exception as error:
        raise InputError(f"cannot read {path}: {one_line(error)}; record it again") from None


def _listing(path: Path) -> list[str]:
    if path.suffix.lower() == ".npz":
        with zipfile.ZipFile(path) as archive:
            listed = []
            for name, info in _members(archive).items():
                _check_packing(info)
                with archive.open(info) as stream:
                    listed.append(_listed(name, _header(stream)[0]))
            return listed
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return [_listed(name, file.get_slice(name).get_shape()) for name in sorted(file.keys())]


def _listed(name: str, shape: Sequence[int]) -> str:
    return f"{name} [{', '.join(map(str, shape))}]"


def _limit(size: int) -> None:
    if over := beyond(size, 4):
        raise ValueError(f"its arrays take {human_bytes(size)}, {over}")


def _read_npz(path: Path, names: set[str] | None) -> dict[str, NDArray[Any]]:
    """Every array of these names, or all; their headers are checked against their sizes first."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        members = _members(archive)
        selected = sorted(members.keys() if names is None else names & members.keys())
        for name in selected:
            _check_packing(members[name])
            with archive.open(members[name]) as stream:
                shape, dtype, start = _header(stream)
            _check_size(name, shape, dtype, members[name].file_size - start)
            total += members[name].file_size
        _limit(total)
        arrays = {}
        for name in selected:
            with archive.open(members[name]) as stream:
                arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
                _check_text(name, arrays[name])
        return arrays


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of an archive by their names, of which each has its own."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise ValueError(f"it has two arrays called {name!r}")
        members[name] = info
    return members


def _check_packing(member: zipfile.ZipInfo) -> None:
    """Refuse packing that unpacks without a bound: Python bounds deflate alone."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{member.filename!r} is packed as NumPy and torch pack nothing")


def _check_size(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    """Refuse an array of another size than its header says, and one that is a pickle."""
    if dtype.hasobject:
        raise ValueError(f"{name!r} holds a pickle, which can run code")
    if math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{name!r} says it has shape {shape} but is another size")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape and dtype of a saved array, and where its data start; long headers are not read."""
    start = stream.read(12)
    is_long = start[6:7] > b"\1"
    length = int.from_bytes(start[8:12] if is_long else start[8:10], "little")
    if length > _HEADER:
        raise ValueError(f"it has a header of {length:,} bytes, which no array has")
    header = io.BytesIO(start + stream.read(length))
    version = np.lib.format.read_magic(header)
    read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(header)
    return shape, dtype, header.tell()


def _check_text(name: str, array: NDArray[Any]) -> None:
    """NumPy takes any 32 bits for a character, and Python panics at the first that is none."""
    if array.dtype.kind == "U" and array.size:
        codes = np.frombuffer(
            array.tobytes(), np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        )
        if codes.max() > sys.maxunicode:
            raise ValueError(f"{name!r} holds invalid characters")


def _read_safetensors(path: Path, names: set[str]) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        _limit(path.stat().st_size)
        with safe_open(path, framework="pt") as file:
            keys = names & set(file.keys())
            fields = {name: _array(file.get_tensor(name)) for name in keys}
            texts = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(one_line(error)) from None
    for name in (names & texts.keys()) - fields.keys():
        value = texts[name] if name == "meta" else json.loads(texts[name])
        fields[name] = np.array(value)
    return fields


def _array(tensor: Tensor) -> NDArray[Any]:
    """As NumPy; what NumPy has no type for in float32."""
    import torch

    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.numpy()


MOST_PIXELS = 1 << 26
"""A larger picture is refused before it is unpacked."""

MOST_SECONDS = 3600
"""So is a longer sound, and one of more samples in all its channels."""
MOST_SAMPLES = 1 << 26
_BLOCK = 1 << 18  # samples of a channel to read at a time
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")  # pillow's modes of grey pictures of 16 bits


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Read a picture file, upright, as uint8 [height, width, 3] in RGB; a film's first frame."""
    from PIL import Image, ImageOps

    check_file(path)
    try:
        with Image.open(path) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise InputError(
                    f"{path} has {width:,} × {height:,} pixels; scale it down, models see a few "
                    "hundred a side"
                )
            upright = ImageOps.exif_transpose(image)
            if upright.mode in _SIXTEEN_BITS:  # Pillow would cut off what is above 255
                grey = (np.asarray(upright, np.uint16) >> 8).astype(np.uint8)
                return np.stack([grey] * 3, axis=-1)
            if upright.mode in ("I", "F"):
                raise InputError(
                    f"{path} has 32-bit pixels, whose range is unknown; save it with 8 or 16 bits"
                )
            if not upright.has_transparency_data:
                return np.array(upright.convert("RGB"), np.uint8)
            upright = upright.convert("RGBA")
    except InputError:
        raise
    except Exception as error:  # Pillow raises whatever its readers raise
        raise InputError(f"cannot read {path} as a picture: {one_line(error)}") from None
    ground = Image.new("RGBA", upright.size, "white")  # what is transparent is white
    return np.array(Image.alpha_composite(ground, upright).convert("RGB"), np.uint8)


def read_sound(path: Path, rate: int) -> NDArray[np.float32]:
    """Return a sound file as float32 [n] at a rate of samples a second; channels are averaged."""
    try:
        import soundfile
    except (ImportError, OSError):  # it is there, but not the library that it calls
        raise missing("soundfile", path) from None
    check_file(path)
    try:
        with soundfile.SoundFile(path) as file:
            if len(file) > MOST_SECONDS * file.samplerate:
                raise InputError(f"{path} is longer than an hour; cut it")
            if len(file) * file.channels > MOST_SAMPLES:
                raise InputError(
                    f"{path} has {len(file) * file.channels:,} samples in {file.channels} "
                    f"channels, more than {MOST_SAMPLES:,}; cut it or leave channels out"
                )
            blocks = file.blocks(_BLOCK, dtype="float32", always_2d=True)
            samples = np.concatenate([np.zeros(0, np.float32), *(b.mean(1) for b in blocks)])
            source_rate = int(file.samplerate)
    except InputError:
        raise
    except Exception as error:  # libsndfile's errors are of several kinds
        raise InputError(f"cannot read {path} as a sound: {one_line(error)}") from None
    if not len(samples) or not np.isfinite(samples).all():
        raise InputError(f"{path} holds no sound")
    return resampled(samples, source_rate, rate)


def resampled(samples: NDArray[np.float32], source_rate: int, rate: int) -> NDArray[np.float32]:
    """Return a sound at another rate, by cutting or lengthening its spectrum.

    ``samples``: float32 [n] at ``source_rate`` samples a second; ``rate``: those of the result.
    """
    if source_rate == rate:
        return samples
    count = max(1, round(len(samples) * rate / source_rate))
    spectrum = np.fft.rfft(samples)
    low = spectrum[: count // 2 + 1]
    result = np.fft.irfft(low, count) * (count / len(samples))
    return result.astype(np.float32)
