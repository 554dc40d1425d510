"""Exports of what heads and layers write."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.errors import UsageError

TEXTS = ("The keys are on the table.", "Mary left.")


@pytest.mark.parametrize("quantity", ["norm", "norm-residual"])
def test_numbers_and_scores_are_those_of_a_capture(quantity: str, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS), encoding="utf-8")
    out = tmp_path / "out"
    av.export(source, out, model="demo-bert", format="png,npz", quantity=quantity, jobs=1)
    lines = [json.loads(line) for line in (out / "manifest.jsonl").read_text("utf-8").splitlines()]
    for text in TEXTS:
        held = av.capture(text, model="demo-bert", quantity=quantity)
        (file,) = out.glob(f"*{text.split()[1].strip('.').lower()}*/{quantity}.npz")
        with np.load(file) as arrays:
            found = [arrays[name] for name in arrays.files if arrays[name].ndim == 2]
        wanted = [one for maps in held.maps.values() for one in maps]
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        scores = {head.head: head for head in av.heads(held).heads}
        mine = [line for line in lines if line.get("text") == text and line["layout"] == "heads"]
        assert len(mine) == len(held.layout)
        for line, head in zip(mine, held.layout, strict=True):
            self = line["scores"]["self"]["mean"]
            assert self == pytest.approx(scores[head].scores["self"].mean, rel=1e-3)


def test_recorded_maps_keep_their_quantity(tmp_path: Path) -> None:
    held = av.capture(TEXTS[0], model="demo-bert", quantity="norm")
    path = av.write_capture(held, tmp_path / "c.npz")
    out = tmp_path / "out"
    av.export(path, out, select="0.0", format="png,npz", jobs=1, recorded=True)
    assert list(out.glob("*/norm.npz"))
    with pytest.raises(UsageError, match="recorded attention shows what it holds"):
        av.export(path, out, quantity="norm", recorded=True)
