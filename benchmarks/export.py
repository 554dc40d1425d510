"""Pictures a second, side by side in one run: what users write, the floor, and attnviz export."""

from __future__ import annotations

import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.drawing.png import DEFLATE, compress
from benchmarks.startup import minilm
from benchmarks.table import Clock, Row, rounds, seconds

TOKENS = 32
ROUNDS = 5
SENTENCES, HEADS = 200, 12
SENTENCE = "the author of books that critics praised asked a nurse to bring her notes again by sea"
WORDS = SENTENCE.split()
NAIVE = """
import sys, torch
from pathlib import Path
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1], attn_implementation="eager")
for n, line in enumerate(Path(sys.argv[2]).read_text().splitlines()):
    inputs = tokenizer(line, return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions[0][0]
    for head, w in enumerate(weights):
        fig, ax = plt.subplots(figsize=(7, 6))
        fig.colorbar(ax.imshow(w))
        ax.set_xticks(range(len(tokens)), tokens, rotation=90)
        ax.set_yticks(range(len(tokens)), tokens)
        ax.set_title(f"head 0.{head}")
        fig.savefig(Path(sys.argv[3]) / f"{n}-{head}.png", dpi=120)
        plt.close(fig)
"""


def side_by_side(
    works: dict[str, tuple[Callable[[], object], int]], clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Seconds a picture of each road: A B C, A B C, ...; the median of the rounds."""
    for work, _ in works.values():
        work()
    found = [
        {name: seconds(w, clock) / n for name, (w, n) in works.items()}
        for _ in range(rounds(ROUNDS))
    ]
    return {name: statistics.median(took[name] for took in found) for name in works}


def example(count: int, tokens: int = TOKENS) -> tuple[Any, Any]:
    """Tokens and weights [count, T, T] of causal heads."""
    from attnviz.core.tokens import Sides, Tokens

    random = np.random.default_rng(0)
    texts = Tokens(tuple(random.choice(WORDS) for _ in range(tokens)))
    scores = random.normal(size=(count, tokens, tokens)) * 2
    scores[:, *np.triu_indices(tokens, 1)] = -np.inf
    weights = np.exp(scores)
    return Sides(texts, texts), (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def savefig(
    weights: Any,
    labels: tuple[str, ...],
    size: tuple[float, float],
    dpi: float,
    format: str = "png",
) -> bytes:
    """Return what users write."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=size)
    figure.colorbar(axes.imshow(weights), ax=axes)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_title("head 4.11: previous 0.97")
    out = io.BytesIO()
    figure.savefig(out, dpi=dpi, format=format)
    plt.close(figure)
    return out.getvalue()


class Floor:
    """The least that a palette PNG costs: a ready background, cells repeated, deflate."""

    def __init__(self, background: Any, place: tuple[int, int], cell: int) -> None:
        height, width = background.shape
        self.rows = np.zeros((height, width + 1), np.uint8)
        self.rows[:, 1:] = background
        self.place, self.cell = place, cell

    def __call__(self, weights: Any) -> bytes:
        """One picture's compressed pixels."""
        y, x = self.place
        levels = np.rint(weights * (239 / weights.max())).astype(np.uint8)
        cells = levels.repeat(self.cell, 0).repeat(self.cell, 1)
        rows = self.rows.copy()
        rows[y : y + cells.shape[0], x + 1 : x + 1 + cells.shape[1]] = cells
        data = compress(rows, 1)
        zlib.crc32(data)
        return data


def rendering() -> list[Row]:
    """One core, one process, 32 tokens."""
    from attnviz.drawing.raster import Raster
    from attnviz.drawing.style import Style

    sides, weights = example(60)
    raster = Raster(sides)
    title = "head 4.11: previous 0.97"
    picture = raster.pixels([(title, weights[0])])
    size = (picture.shape[1] / Style().dpi, picture.shape[0] / Style().dpi)
    floor = Floor(picture, raster.sheet.corner(0, 1), raster.sheet.rows.cell)
    labels = sides.queries.texts
    took = side_by_side(
        {
            "savefig": (lambda: savefig(weights[0], labels, size, Style().dpi), 1),
            "floor": (lambda: [floor(w) for w in weights], len(weights)),
            "ours": (lambda: [raster.png([(title, w)]) for w in weights], len(weights)),
            "fresh": (lambda: [Raster(sides).png([(title, w)]) for w in weights[:5]], 5),
        }
    )
    theirs, ours = savefig(weights[0], labels, size, Style().dpi), raster.png([(title, weights[0])])
    rate = {name: f"{1 / value:.0f}/s" for name, value in took.items()}
    return [
        Row("a head's picture", "subplots + savefig", took["ours"] / took["savefig"], 1 / 80,
            f"{rate['ours']} to {rate['savefig']}, {took['savefig'] / took['ours']:.0f} times"),
        Row("a head's picture", "floor", took["ours"] / took["floor"], 2.5, rate["floor"]),
        Row("one head a sentence", "subplots + savefig", took["fresh"] / took["savefig"], None,
            rate["fresh"]),
        Row("bytes of a picture", "savefig", len(ours) / len(theirs), 0.5,
            f"{len(ours) / 1000:.0f} to {len(theirs) / 1000:.0f} kB"),
    ]  # fmt: skip


def pdfs() -> list[Row]:
    """Processor time of a PDF with its fonts, drawn by matplotlib either way."""
    import matplotlib as mpl

    from attnviz.drawing.figure import heatmap_figure
    from attnviz.drawing.style import Style

    def theirs(weights: Any, labels: tuple[str, ...]) -> None:
        with mpl.rc_context({"pdf.fonttype": 42}):
            savefig(weights, labels, (6, 5), 120, "pdf")

    rows = []
    for tokens, target in ((16, 1.0), (TOKENS, None)):
        sides, (weights,) = example(1, tokens)
        titled = [("head 4.11: previous 0.97", weights, sides)]
        took = side_by_side(
            {
                "savefig": (partial(theirs, weights, sides.queries.texts), 1),
                "ours": (partial(heatmap_figure, titled, Style(), format="pdf"), 1),
            },
            time.process_time,
        )
        each = f"{1000 * took['ours']:.0f} to {1000 * took['savefig']:.0f} ms"
        rows += [
            Row(f"a PDF of {tokens} tokens", "subplots + savefig",
                took["ours"] / took["savefig"], target, each),
            Row(f"a PDF of {tokens} tokens", "0.15 s", took["ours"] / 0.15, target, each),
        ]  # fmt: skip
    return rows


def processes() -> list[Row]:
    """Two processes that draw and write files, against one that calls savefig."""
    from attnviz.corpus.executors import Processes
    from attnviz.drawing.raster import Raster
    from attnviz.drawing.style import Style
    from attnviz.features.export.pictures import ExportPicture, Job, drawing

    sides, weights = example(HEADS)
    title, style = "head 4.11: previous 0.97", Style()
    height, width = Raster(sides).pixels([(title, weights[0])]).shape
    inches = (width / style.dpi, height / style.dpi)
    pictures = tuple(
        ExportPicture(f"{n}.png", "heads", "", "", sides, ((title, (0, n), w),))
        for n, w in enumerate(weights)
    )
    folder = Path(tempfile.mkdtemp())
    jobs = [Job(f"{folder}/{n}", pictures, style) for n in range(SENTENCES)]

    def theirs() -> bytes:
        return savefig(weights[0], sides.queries.texts, inches, style.dpi)

    try:
        with Processes(drawing, 2) as several:

            def ours() -> None:
                for _ in several.run(jobs):
                    pass

            took = side_by_side({"savefig": (theirs, 1), "ours": (ours, SENTENCES * HEADS)})
    finally:
        shutil.rmtree(folder)
    rate = {name: 1 / value for name, value in took.items()}
    return [
        Row("a head's file, two processes", "subplots + savefig", took["ours"] / took["savefig"],
            1 / 140, f"{rate['ours']:.0f}/s to {rate['savefig']:.1f}/s")
    ]  # fmt: skip


def packing() -> list[Row]:
    """Ways to pack the pixels of a picture, against zlib on the pixels as they are."""
    from attnviz.drawing.raster import Raster

    sides, weights = example(1)
    pixels = Raster(sides).pixels([("head 4.11: previous 0.97", weights[0])])
    rows = np.zeros((pixels.shape[0], pixels.shape[1] + 1), np.uint8)
    rows[:, 1:] = pixels
    above = np.full_like(rows, 2)
    above[0, 1:] = pixels[0]
    above[1:, 1:] = pixels[1:] - pixels[:-1]
    ways: dict[str, Callable[[], bytes]] = {
        "zlib": lambda: zlib.compress(rows.tobytes(), 1),
        "zlib, rows minus the row above": lambda: zlib.compress(above.tobytes(), 1),
        DEFLATE: lambda: compress(rows, 1),
        f"{DEFLATE}, rows minus the row above": lambda: compress(above, 1),
    }
    took = side_by_side({name: (pack, 1) for name, pack in ways.items()})
    return [
        Row(name, "zlib", took[name] / took["zlib"], None,
            f"{1000 * took[name]:.2f} ms, {len(pack()) / 1000:.1f} kB")
        for name, pack in ways.items()
    ]  # fmt: skip


def overview() -> list[Row]:
    """Return a 12 × 12 mosaic."""
    from attnviz.drawing.mosaic import boxed_png
    from attnviz.drawing.style import Style

    _, weights = example(144)
    maps = {divmod(n, 12): w for n, w in enumerate(weights)}

    def imshow() -> bytes:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        figure, grid = plt.subplots(12, 12, figsize=(8, 8))
        for axes, w in zip(grid.flat, weights, strict=True):
            axes.imshow(w)
            axes.axis("off")
        out = io.BytesIO()
        figure.savefig(out, dpi=120)
        plt.close(figure)
        return out.getvalue()

    ours = partial(boxed_png, maps, Style(), "", "")
    took = side_by_side({"imshow": (imshow, 1), "ours": (ours, 1)})
    rate = f"{1000 * took['ours']:.0f} to {1000 * took['imshow']:.0f} ms"
    return [Row("12 × 12 overview", "imshow mosaic", took["ours"] / took["imshow"], 0.1, rate)]


def end_to_end() -> list[Row]:
    """Time the command on 200 sentences × 12 heads; the script on a tenth, start-up left out."""
    random = np.random.default_rng(1)
    model = minilm()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    folder = Path(tempfile.mkdtemp())
    try:
        lines = [" ".join(random.choice(WORDS, random.integers(6, 40))) for _ in range(SENTENCES)]
        (folder / "all.txt").write_text("\n".join(lines))
        (folder / "few.txt").write_text("\n".join(lines[: SENTENCES // 20]))
        (folder / "one.txt").write_text(lines[0])
        (folder / "naive").mkdir()

        def process(*command: str) -> float:
            run = [sys.executable, *command]
            return seconds(
                lambda: subprocess.run(run, check=True, stdout=subprocess.DEVNULL, env=environment)
            )

        def naive(name: str) -> float:
            return process("-c", NAIVE, model, str(folder / name), str(folder / "naive"))

        short, long = naive("one.txt"), naive("few.txt")
        script = (long - short) / (SENTENCES // 20 - 1) / HEADS
        rows = []
        for jobs in (1, 2):
            export = ("-m", "attnviz", "export", str(folder / "all.txt"), "-m", model, "-s", "0.*")
            took = process(*export, "-o", str(folder / f"maps{jobs}"), "--jobs", str(jobs), "-q")
            each = took / SENTENCES / HEADS
            detail = f"{took:.1f} s, {1 / each:.0f}/s to {1 / script:.1f}/s"
            rows.append(
                Row(f"200 sentences, jobs {jobs}", "the script", each / script, 1 / 40, detail)
            )
        return rows
    finally:
        shutil.rmtree(folder)


def measure() -> list[Row]:
    """All of it."""
    return [*rendering(), *pdfs(), *processes(), *packing(), *overview(), *end_to_end()]


if __name__ == "__main__":
    from benchmarks.table import show

    sys.exit(not show("export", measure()))
