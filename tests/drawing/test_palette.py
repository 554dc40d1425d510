"""Colours: distinct for every kind of colour vision, even in lightness, legible."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import attnviz
from attnviz.drawing import palette
from attnviz.errors import UsageError
from attnviz.scoring.roles import SHOWN

# Machado, Oliveira & Fernandes 2009, table 1, severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]),
    "tritanopia": np.array([
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip
TO_LMS = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
TO_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip


def oklab(color: str, vision: str = "normal") -> np.ndarray:
    part = np.array(palette.rgb(color)) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    seen = np.clip(VISION[vision] @ linear, 0, 1)
    return TO_LAB @ np.cbrt(TO_LMS @ seen)


@pytest.mark.parametrize("vision", VISION)
def test_role_colours_stay_apart(vision: str) -> None:
    seen = {style.name: oklab(style.color, vision) for style in SHOWN.values()}
    distances = {
        pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in combinations(seen, 2)
    }
    assert min(distances.values()) > 0.085, min(distances, key=distances.__getitem__)


def test_role_codes_are_unique_and_short() -> None:
    styles = SHOWN.values()
    assert len({style.code for style in styles}) == len({style.short for style in styles}) == 14
    assert all(2 <= len(style.code) <= 4 and len(style.short) == 2 for style in styles)


def test_how_a_role_looks_stands_in_one_place() -> None:
    """No file but the table of roles names a role's colour: the renderers and the page take it."""
    package = Path(attnviz.__file__).parent
    colors = {role.color for role in SHOWN.values()}
    found = {
        str(path.relative_to(package))
        for suffix in ("py", "js", "css", "html")
        for path in package.rglob(f"*.{suffix}")
        if any(color in path.read_text("utf-8").lower() for color in colors)
    }
    assert found == {"scoring/roles.py"}


@pytest.mark.parametrize("name", ["viridis", "magma", "cividis"])
def test_sampled_palettes_follow_the_published_ones(name: str) -> None:
    ours = np.array([palette.rgb(color) for color in palette.ramp(name, 256)]) / 255
    published = mpl.colormaps[name](np.arange(256))[:, :3]
    assert np.abs(ours - published).max() < 0.045
    assert np.abs(ours - published).mean() < 0.005


@pytest.mark.parametrize("name", palette.PALETTES)
def test_lightness_is_even(name: str) -> None:
    lightness = np.array([oklab(color)[0] for color in palette.ramp(name, 33)])
    steps = np.diff(lightness) * np.sign(lightness[-1] - lightness[0])
    assert (steps > 0).all()
    assert steps[2:].max() < 3 * steps[2:].mean()  # magma leaves black faster than it goes on


def test_ink_reads_on_everything() -> None:
    for color in [*palette.ramp("viridis", 64), *palette.ramp("blues", 64)]:
        light = sorted([palette.luminance(color), palette.luminance(palette.ink(color))])
        assert (light[1] + 0.05) / (light[0] + 0.05) >= 4.5


def test_unknown_palette() -> None:
    with pytest.raises(UsageError, match="unknown palette 'jet': choose one of viridis, magma"):
        palette.ramp("jet")
