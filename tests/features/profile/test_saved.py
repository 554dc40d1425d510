"""State files that somebody damaged or made up: refused when they are read, never later."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.errors import InputError

Arrays = dict[str, np.ndarray]
TEXTS = "the cat sat on the mat\na dog ran\nwe like cats and dogs a lot\n" * 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    (folder / "s.txt").write_text(TEXTS)
    av.profile(folder / "s.txt", state=folder / "s.profile", jobs=1)
    return folder / "s.profile"


def changed(path: Path, out: Path, change: Callable[[dict[str, Any], Arrays], object]) -> Path:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(out, "wb") as file:
        np.savez(file, header=text, **arrays)
    return out


def setting(name: str, value: Any) -> Callable[[dict[str, Any], Arrays], object]:
    return lambda header, _: header.update({name: value})


def array(name: str, value: Callable[[np.ndarray], np.ndarray]) -> Callable[..., object]:
    return lambda _, arrays: arrays.update({name: value(arrays[name])})


def first_example(_: dict[str, Any], arrays: Arrays) -> None:
    at = tuple(np.argwhere(arrays["examples.ranks"] >= 0)[0])
    arrays["examples.texts"][at] += 1


DAMAGED = {
    "many heads": (setting("layout", {"decoder": [3_000_000]}), "not of 3000000 heads"),
    "many layers": (setting("layout", {"decoder": [6] * 4 + [0] * 9}), "24 heads in 13 layers"),
    "no such layers": (setting("layout", {"middle": [24]}), "Invalid enum value 'middle'"),
    "a negative layer": (setting("layout", {"decoder": [30, -6]}), "layout"),
    "no list of runs": (setting("runs", {"names": []}), "runs"),
    "a text for a number": (setting("tokens", "9"), "Expected `int`, got `str`"),
    "fewer than none": (setting("bad_count", -1), "bad_count"),
    "a field of another version": (setting("more", 1), "unknown field `more`"),
    "settings of another type": (setting("settings", {"stride": "9"}), "stride"),
    "a backend that is none": (lambda h, _: h["info"].update(backend="guessed"), "guessed"),
    "draws that are not there": (setting("simultaneous", True), "20 draws, not 1000"),
    "an example of no text": (first_example, "an example is of a text that is not there"),
    "no texts of examples": (setting("shown", []), "an example is of a text"),
    "counts below none": (array("sums.b", lambda a: -a - 1), "below 0"),
    "weights of fewer strings": (array("flow.weights", lambda a: a[1:]), "flow.weights is int64"),
    "counted as fractions": (array("counted", lambda a: a / 2), "counted is float64"),
    "pairs of other heads": (array("alike.0.decoder", lambda a: a[:-1]), "alike.0.decoder is"),
    "a score more": (array("sums.count", lambda a: np.pad(a, ((0, 0), (0, 1)))), "sums.count is"),
    "an array less": (lambda _, arrays: arrays.pop("spread"), "spread"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_damage_is_found_when_it_is_read(saved: Path, tmp_path: Path, how: str) -> None:
    change, says = DAMAGED[how]
    path = changed(saved, tmp_path / "x.profile", change)
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"x\.profile is damaged \(.*{re.escape(says)}") as caught:
        av.read(path)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
