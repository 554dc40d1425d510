"""What papers ask of figures: width, fonts, words, matplotlib's own objects."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
import warnings
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import attnviz as av
from attnviz.cli import main
from attnviz.errors import AttnvizWarning
from attnviz.features.explain.result import Explain

TEXT = "The keys to the cabinet are on the table"


@pytest.fixture(scope="module")
def one() -> av.Heatmap:
    return av.heatmap(TEXT, "2.0")


@pytest.fixture(scope="module")
def heads() -> av.Heads:
    return av.heads(TEXT)


def pixels(png: bytes) -> tuple[int, int]:
    return struct.unpack(">II", png[16:24])


def texts(svg: bytes) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.decode())


@pytest.mark.parametrize(
    "width", [3.3, *(pytest.param(width, marks=pytest.mark.slow) for width in (2.5, 6.75))]
)
def test_width_is_that_of_the_file(one, heads, width: float) -> None:
    for picture in (one, heads, av.heatmap(TEXT, "1.4, 2.*")):
        assert pixels(picture.to_bytes("png", width=width))[0] == pytest.approx(150 * width, abs=1)
    svg = one.to_bytes("svg", width=width).decode()
    assert float(re.search(r'width="([\d.]+)pt"', svg)[1]) == pytest.approx(72 * width, abs=0.1)
    assert f"{heads.figure(width=width).get_size_inches()[0]:.3f}" == f"{width:.3f}"


def test_a_map_keeps_its_size_of_text_at_any_width(one) -> None:
    for width in (4.0, 6.0):
        labels = one.figure(width=width).axes[0].yaxis.label
        assert labels.get_fontsize() == pytest.approx(8, rel=0.01)
    labels = one.figure(width=4.0, font="6pt").axes[0].yaxis.label
    assert labels.get_fontsize() == pytest.approx(6, rel=0.01)


def test_a_long_title_wraps_and_leaves_a_narrow_map_of_many_tokens_its_room() -> None:
    title = "A title that is much too long for a column, which is three inches wide"
    figure = av.heatmap("word " * 120, "2.0").figure(width=3.3, title=title)
    axes = figure.axes[0]
    assert " ".join(axes.get_title(loc="left").split()) == title
    assert axes.get_position().width * figure.get_size_inches()[0] > 1
    assert figure.get_size_inches()[0] == pytest.approx(3.3)


def test_a_scaled_figure_is_the_same_picture(heads) -> None:
    """Twice the page at half the resolution: all pixels but the edges of letters."""

    def drawn(width: float, dpi: float) -> np.ndarray:
        figure = heads.figure(width=width)
        out = io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(out, dpi=dpi)
        return np.asarray(Image.open(out).convert("L"), float)

    small, large = drawn(4, 200), drawn(8, 100)
    assert small.shape == large.shape
    assert (abs(small - large) > 64).mean() < 0.01


def test_titles_captions_and_names_are_the_papers(one, heads) -> None:
    said = texts(heads.to_bytes("svg", name="MiniLM", title="Roles"))
    assert "Roles" in said
    assert any("MiniLM" in text for text in said)
    assert not any("demo-gpt2" in text for text in said)
    bare = texts(one.to_bytes("svg", title="", caption=False))
    assert not any("head 2.0" in text or "demo-gpt2" in text for text in bare)
    assert "query" in bare
    several = av.heatmap(TEXT, "0.0, 2.0")
    assert {"head 0.0", "head 2.0"} <= set(texts(several.to_bytes("svg", title="")))
    with pytest.raises(av.UsageError, match="title is for a picture of one map, not of 2"):
        several.to_bytes("png", title="x")


def test_all_heads_stand_a_layer_a_line_and_their_titles_lose_scores_and_no_words() -> None:
    figure = av.heatmap(TEXT, "*.*").figure()
    axes = [one for one in figure.axes if one.get_title(loc="left")]
    rows = [round(one.get_position().y1, 4) for one in axes]
    assert [rows.count(row) for row in dict.fromkeys(rows)] == [6] * 4
    said = [words.get_text() for words in figure.findobj(Text)]
    assert not any("…" in text for text in said)
    assert sum(text.startswith("head ") for text in said) == 24


def test_fonts_are_asked_for_or_those_of_the_users_style(one, tmp_path: Path) -> None:
    assert "DejaVu Serif" in one.to_bytes("svg", font="DejaVu Serif").decode()
    with pytest.raises(av.UsageError, match="no font 'Nope' is installed; name a family such"):
        one.to_bytes("svg", font="Nope")
    plain = one.to_bytes("svg").decode()
    assert "DejaVu Sans" in plain
    with mpl.rc_context({"font.family": "DejaVu Sans Mono", "svg.hashsalt": "mine"}):
        assert "DejaVu Sans Mono" in one.to_bytes("svg").decode()
    with mpl.rc_context({"savefig.bbox": "tight", "axes.grid": True}):
        drawn = one.to_bytes("png", width=3)
        assert drawn == one.to_bytes("png", width=3)
        assert pixels(drawn)[0] == 450
    assert one.to_bytes("svg").decode() == plain


def test_a_map_is_drawn_into_axes_of_ones_own(one) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    one.draw(right)
    assert not left.images
    shown = right.images[0].get_array()
    assert shown.shape == one.maps[0][1].shape
    assert right.get_yticklabels()[0].get_text() == "<|endoftext|>"
    with pytest.raises(av.SelectionError, match=r"no map of '9\.9' here; there are 2\.0"):
        one.draw(right, "9.9")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"width": 0.1}, "width must be from 0.5 to 50, not 0.1"),
        ({"font": "900pt"}, "font has a size from 2pt to 72pt, not 900pt"),
        ({"width": 3, "font": "9pt"}, "cannot both be chosen"),
    ],
)
def test_what_cannot_be_is_refused(heads, asked: dict, says: str) -> None:
    with pytest.raises(av.UsageError, match=says):
        heads.to_bytes("png", **asked)


def test_options_of_papers(tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    line = ["heatmap", TEXT, "-s", "2.0", "-o", str(file), "-q", "--width", "3.3"]
    assert main([*line, "--title", "A sink", "--no-caption", "--name", "GPT"]) == 0
    assert "A sink" in texts(file.read_bytes())
    assert main([*line, "--title", ""]) == 0
    assert "A sink" not in texts(file.read_bytes())


@pytest.mark.parametrize(
    "width",
    [
        "3.3",
        "83.82mm",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("3.3in", "8.382cm", "237.6pt")),
    ],
)
def test_a_width_has_a_unit(tmp_path: Path, width: str) -> None:
    file = tmp_path / "x.pdf"
    line = ["heatmap", "a b", "-s", "2.0", "-o", str(file), "-q", "--font", "8pt"]
    assert main([*line, "--width", width]) == 0
    pdf = file.read_bytes()
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", pdf)
    assert float(box) == pytest.approx(237.6, abs=0.1)
    assert b"/FontFile2" in pdf  # embedded, as TrueType


def test_an_explanation_is_drawn_for_a_paper_and_labels_too_small_are_said(
    tmp_path: Path, capsys
) -> None:
    file = tmp_path / "x.png"
    line = ["explain", "the cat the", "-o", str(file), "--json", "--width", "2in"]
    assert main(line) == 0
    assert pixels(file.read_bytes())[0] == 2 * 150
    said = capsys.readouterr()
    assert "note: at a width of 2 inches" in said.err
    result = Explain.from_json(said.out)
    with pytest.warns(AttnvizWarning, match=r"at a width of 2 inches .* labels have 1\.\d points"):
        result.figure(width=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.figure(width=5)


@pytest.mark.parametrize(
    ("text", "select", "width"), [("The cat sat on the mat", "1.4", 1.0), ("a b " * 19, "1.4", 0.5)]
)
def test_nothing_of_a_narrow_map_overlaps(text: str, select: str, width: float) -> None:
    figure = av.heatmap(text, select).figure(width=width)
    FigureCanvasAgg(figure).draw()
    shown = [words for words in figure.findobj(Text) if words.get_visible() and words.get_text()]
    places = {
        (words.get_text(), *(words.get_window_extent().bounds)): words.get_window_extent()
        for words in shown
    }
    for (left, one), (right, other) in combinations(places.items(), 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        down = min(one.y1, other.y1) - max(one.y0, other.y0)
        side = min(one.width, other.width)
        line = min(one.height, other.height)
        assert across < 0.3 * side or down < 0.3 * line, (left, right)
    assert figure.get_size_inches()[0] == pytest.approx(width)


def test_a_map_whose_labels_nobody_could_read_says_so() -> None:
    with pytest.warns(AttnvizWarning, match=r"width of 0.5 inches .* have 1\.\d points"):
        av.heatmap("a b c", "1.*").figure(width=0.5)


def test_a_map_fills_a_column() -> None:
    text = "The keys to the cabinet are on the table"
    figure = av.heatmap(text, "1.4").figure(width=3.3)
    axes, bar = figure.axes
    assert axes.get_title(loc="left") == ""
    assert axes.get_position().width > 0.45
    assert bar.get_position().width * 3.3 < 0.08
    assert any("head 1.4: does previous" in text.get_text() for text in figure.texts)
    wide = av.heatmap(text, "1.4").figure(width=6)
    assert wide.axes[0].get_title(loc="left").startswith("head 1.4")


def test_a_style_of_matplotlibs(one, tmp_path: Path) -> None:
    style = tmp_path / "own.mplstyle"
    style.write_text("font.family: DejaVu Sans Mono\n")
    assert "DejaVu Sans Mono" in one.to_bytes("svg", mplstyle=str(style)).decode()
    assert one.to_bytes("svg", mplstyle="attnviz.drawing.column").startswith(b"<?xml")
    with pytest.raises(av.UsageError, match="matplotlib has no style 'nope'"):
        one.to_bytes("svg", mplstyle="nope")


@pytest.mark.slow
def test_a_figure_needs_no_pyplot() -> None:
    code = (
        "import attnviz, sys; attnviz.heads('a b').figure(); assert 'matplotlib.pyplot' "
        "not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
