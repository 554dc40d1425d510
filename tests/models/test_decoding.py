"""Pictures and sounds that are small as files and large in memory, and pixels of many bits."""

from __future__ import annotations

import resource
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from attnviz.errors import InputError
from attnviz.models import containers
from attnviz.models.containers import read_picture, read_sound

Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")
TOO_MANY = containers.MOST_PIXELS + 1


def png(width: int, height: int) -> bytes:
    """A black picture; millions of its pixels take some kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    packed = zlib.compressobj(1)
    rows = b"".join(packed.compress(bytes(width + 1)) for _ in range(height)) + packed.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(1, TOO_MANY), (TOO_MANY, 1), (20_000, 4_000)])
def test_pictures_of_too_many_pixels_are_refused_before_memory_is_taken(tmp_path, size) -> None:
    (tmp_path / "x.png").write_bytes(png(size[0], 1).replace(
        struct.pack(">II", size[0], 1), struct.pack(">II", *size)
    ))  # fmt: skip
    data = (tmp_path / "x.png").read_bytes()
    crc = struct.pack(">I", zlib.crc32(data[12:29]))
    (tmp_path / "x.png").write_bytes(data[:29] + crc + data[33:])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"x\.png has .* pixels; scale it down"):
        read_picture(tmp_path / "x.png")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < 64 << 20


@pytest.mark.parametrize(("rate", "seconds", "channels"), [(8000, 20, 8), (44100, 15, 2)])
def test_sounds_of_too_many_samples_are_refused(
    tmp_path, monkeypatch, rate, seconds, channels
) -> None:
    assert containers.MOST_SAMPLES == 1 << 26
    monkeypatch.setattr(containers, "MOST_SAMPLES", 1 << 20)  # which are written sooner
    path = tmp_path / "x.flac"
    with soundfile.SoundFile(path, "w", rate, channels) as file:
        for _ in range(seconds):
            file.write(np.zeros((rate, channels), np.int16))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=rf"samples in {channels} channels, more than 1,048,576"):
        read_sound(path, 16000)


def test_a_sound_is_read_in_blocks_as_at_once(tmp_path, monkeypatch) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1000, 3)).astype("f4")
    soundfile.write(tmp_path / "x.wav", noise, 16000, subtype="FLOAT")
    monkeypatch.setattr("attnviz.models.containers._BLOCK", 7)
    np.testing.assert_array_equal(read_sound(tmp_path / "x.wav", 16000), noise.mean(1))


def test_grey_of_sixteen_bits_keeps_its_range(tmp_path: Path) -> None:
    """All above 255 of 65,535 was white."""
    grey = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    for name in ("x.png", "x.tiff"):
        Image.fromarray(grey).save(tmp_path / name)
        found = read_picture(tmp_path / name)
        assert found.shape == (16, 16, 3)
        assert (found == np.arange(256).reshape(16, 16, 1)).all()


@pytest.mark.parametrize("kind", ["i4", "f4"])
def test_pixels_of_an_unknown_range_are_refused(tmp_path: Path, kind: str) -> None:
    Image.fromarray(np.ones((2, 2), kind)).save(tmp_path / "x.tiff")
    with pytest.raises(InputError, match=r"x\.tiff has 32-bit pixels, whose range is unknown"):
        read_picture(tmp_path / "x.tiff")


def test_colours_are_those_of_the_file(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (5, 4, 4), np.uint8)
    Image.fromarray(colours[..., :3]).save(tmp_path / "opaque.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "opaque.png"), colours[..., :3])
    Image.fromarray(colours).save(tmp_path / "clear.png")
    share = colours[..., 3:] / 255
    wanted = colours[..., :3] * share + 255 * (1 - share)
    np.testing.assert_allclose(read_picture(tmp_path / "clear.png"), wanted, atol=1)
