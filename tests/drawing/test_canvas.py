"""PDFs: fonts are embedded with less than matplotlib embeds, and every glyph is drawn as before."""

from __future__ import annotations

import contextlib
import gc
import io
import re
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont

from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import canvas
from attnviz.drawing.figure import heatmap_figure

WORDS = ("Thé", "fluffy", "Ǟ", "AVATAR", "ﬁn", "Ελλ", "→", "don't")


def drawn() -> bytes:
    sides = Sides(*[Tokens(WORDS, tuple(range(len(WORDS))))] * 2)
    weights = np.full((len(WORDS),) * 2, 1 / len(WORDS), "f4")
    titled = [("layer 1 head 2", weights, sides)]
    data: bytes = heatmap_figure(titled, format="pdf", caption="of AV")
    return data


def streams(data: bytes) -> dict[int, bytes]:
    """The streams of a PDF by the numbers of their objects."""
    found = {}
    for number, head, body in re.findall(
        rb"(\d+) 0 obj\n(<<[^<>]*>>)\nstream\n(.*?)\nendstream", data, re.DOTALL
    ):
        found[int(number)] = zlib.decompress(body) if b"FlateDecode" in head else body
    return found


def fonts(data: bytes) -> Iterator[tuple[str, dict[int, object], dict[int, int]]]:
    """Of every font its name, and the outline and the advance of each code that it draws."""
    inside = streams(data)
    for descendant in re.findall(rb"<<[^<>]*/CIDFontType2.*?>>\nendobj", data, re.DOTALL):
        gids = inside[int(re.search(rb"/CIDToGIDMap (\d+) 0 R", descendant)[1])]
        name = re.search(rb"/BaseFont /(\S+)", descendant)[1].decode()
        described = int(re.search(rb"/FontDescriptor (\d+) 0 R", descendant)[1])
        file = re.search(rb"\n%d 0 obj.*?/FontFile2 (\d+) 0 R" % described, data, re.DOTALL)
        font = TTFont(io.BytesIO(inside[int(file[1])]))
        outlines, advances = {}, {}
        for code, gid in enumerate(np.frombuffer(gids, ">u2").tolist()):
            if gid:
                pen = DecomposingRecordingPen(font.getGlyphSet())
                glyph = font.getGlyphOrder()[gid]
                font.getGlyphSet()[glyph].draw(pen)
                outlines[code], advances[code] = pen.value, font["hmtx"][glyph][0]
        yield name, outlines, advances


def test_glyphs_and_page_are_those_of_whole_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    small = drawn()
    monkeypatch.setattr(canvas, "drawn_tables_only", contextlib.nullcontext)
    whole = drawn()
    assert len(small) < len(whole)
    pages = [[s for s in streams(data).values() if b" Tf" in s] for data in (small, whole)]
    assert pages[0] == pages[1] != []
    of_small, of_whole = list(fonts(small)), list(fonts(whole))
    assert of_small == of_whole
    assert sum(any(outlines.values()) for _, outlines, _ in of_small) >= 2  # regular and bold
    assert sum(len(outlines) for _, outlines, _ in of_small) > 30


def test_bytes_are_the_same_on_every_run_and_unused_tables_are_left_out() -> None:
    data = drawn()
    assert data == drawn()
    for body in streams(data).values():
        if body.startswith(b"\x00\x01\x00\x00"):
            tables = set(TTFont(io.BytesIO(body)).keys())
            assert {"glyf", "loca", "hmtx", "cvt ", "fpgm", "prep"} <= tables  # hints stay
            assert not tables.intersection(canvas.UNUSED)


def test_readers_of_fonts_and_the_collector_are_put_back_after_an_error() -> None:
    from fontTools import subset

    load = subset.load_font
    with pytest.raises(ZeroDivisionError), canvas.drawn_tables_only():
        raise ZeroDivisionError
    assert subset.load_font is load
    with pytest.raises(ZeroDivisionError):
        canvas.rendered(lambda: 1 / 0, "pdf", 72)  # type: ignore[arg-type, return-value]
    assert gc.isenabled()
    gc.disable()
    try:
        drawn()
        assert not gc.isenabled()
    finally:
        gc.enable()
