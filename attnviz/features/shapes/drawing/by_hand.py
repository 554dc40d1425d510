"""The numeric walk as matrices in the terminal: every number, and how saturated each softmax is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnviz.drawing.labels import visible
from attnviz.drawing.palette import ink, mix
from attnviz.features.shapes.table import (
    CellColumn,
    Column,
    Paint,
    Printed,
    Table,
    ansi,
    cell,
    cells_wide,
    head_colour,
    plural,
    table_of,
)
from attnviz.features.shapes.worked import SHIFT, HeadNumbers, NumericWalk, shifted_row
from attnviz.files import packaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

MAX_NAME = 12
FAR = 1e7  # numbers from there on, such as a fill of -1e9, are written with an exponent


class PrintedMatrix(NamedTuple):
    """A titled matrix with names of its rows and perhaps its columns, as a block of lines."""

    title: str
    matrix: Matrix
    rows: Sequence[str]
    columns: Sequence[str] = ()
    shade: str = ""  # the colour of weights of 1; none where it holds no weights

    def lines(self, precision: int, paint: Paint, name_width: int) -> tuple[list[str], int]:
        """Return the block's lines, all of one width, and that width."""
        texts = [[number(value, precision) for value in row] for row in self.matrix]
        widest = max((len(text) for row in texts for text in row), default=1)
        widths = [max(widest, cells_wide(name)) for name in self.columns] or [widest] * len(
            texts[0]
        )
        inner = name_width + sum(w + 1 for w in widths)
        total = max(inner, cells_wide(self.title))
        out = [paint(self.title, "strong") + " " * (total - cells_wide(self.title))]
        heads = [" " * (w - cells_wide(n)) + n for n, w in zip(self.columns, widths, strict=False)]
        header = " " * name_width + "".join(" " + head for head in heads)
        if self.columns:
            out.append(paint(header, "dim") + " " * (total - cells_wide(header)))
        for name, row, values in zip(self.rows, texts, self.matrix, strict=True):
            label = name + " " * (name_width - cells_wide(name))
            line = paint(label, "dim")
            for text, value, width in zip(row, values, widths, strict=True):
                padded = f"{text:>{width}}"
                line += " " + (self._shaded(padded, value, paint) if self.shade else paint(padded))
            out.append(line + " " * (total - inner))
        return out, total

    def _shaded(self, text: str, value: float, paint: Paint) -> str:
        if not 0 <= value <= 1:  # NaN, or what dropout doubled
            return paint(text, "" if value > 1 else "bad")
        colour = mix("#ffffff", self.shade, float(value))
        code = f"{ansi(colour, background=True)};{ansi(ink(colour))}"
        return paint(text, code)


def number(value: float, precision: int) -> str:
    """Write a number at a fixed precision; ``-∞`` for a blocked score, no negative zero."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if abs(value) >= FAR:
        return f"{value:.3g}"
    return f"{round(value, precision) + 0.0:.{precision}f}"


def beside(
    matrices: Sequence[PrintedMatrix], width: int, precision: int, paint: Paint
) -> list[str]:
    """Matrices side by side as far as they fit, then below each other."""
    blocks = []
    for panel in matrices:
        name_width = max(cells_wide(name) for name in panel.rows)
        blocks.append(panel.lines(precision, paint, name_width))
    out: list[str] = []
    group: list[tuple[list[str], int]] = []
    used = 0
    for lines, block_width in [*blocks, ([], width + 1)]:
        if group and used + 3 + block_width > width:
            height = max(len(block) for block, _ in group)
            for i in range(height):
                pieces = [block[i] if i < len(block) else " " * size for block, size in group]
                out.append("   ".join(pieces).rstrip())
            out.append("")
            group, used = [], 0
        group.append((lines, block_width))
        used += block_width + (3 if len(group) > 1 else 0)
    return out


def _names(tokens: Sequence[str], paint: Paint) -> list[str]:
    out = []
    for token in tokens:
        label = visible(token, ascii_only=paint.ascii_only)
        out.append(label if cells_wide(label) <= MAX_NAME else label[: MAX_NAME - 1] + "…")
    return out


def numbers_printed(walked: NumericWalk, precision: int) -> Printed:
    """Every matrix of the walk, head by head."""
    tiny = walked.tiny
    sizes = f"{len(walked.heads)} heads" if len(walked.heads) > 1 else "one head"
    if tiny.kv_heads != tiny.heads:
        sizes += f" on {tiny.kv_heads} key/value head{'s' * (tiny.kv_heads > 1)}"
    width = f"D = {tiny.x.shape[1]}, " if tiny.x is not None else ""
    d = walked.heads[0].q.shape[1]
    options = "".join([", causal" * tiny.causal, f", window {tiny.window}" if tiny.window else ""])
    title = (
        f"{plural(len(tiny.tokens), 'token')}, {width}{sizes} of d = {d}{options} ({tiny.origin})"
    )

    def draw(columns: int, paint: Paint) -> list[str]:
        return _drawn(walked, columns, precision, paint)

    notes = [
        f"Scores are scaled by {walked.scale:.{max(precision, 4)}g}"
        + (f" = 1/√{d}" if tiny.scale is None else "")
        + "; entropy in bits, 0 for a single key. All numbers are float64, shown to "
        f"{precision} digits."
    ]
    texts = _said(walked)
    if tiny.causal and len(tiny.tokens) == len(tiny.key_tokens) and "changed" not in texts:
        notes.append("The first query sees only itself, so its output is exactly its row of V.")
    if walked.blocked:
        blocked = "1 query" if walked.blocked == 1 else f"{walked.blocked} queries"
        notes.append(f"{blocked} may attend to no key: {texts['without_keys']}")
    if "note" in texts:
        notes.insert(0, texts["note"])
    tables = [_saturation(walked, precision)]
    if walked.variant == "overflow":
        tables.insert(0, _overflow(walked))
    return Printed(title, tuple(notes), tuple(tables), draw)


def _said(walked: NumericWalk) -> Mapping[str, str]:
    """Return what is said of this way of the walk, or else of the plain one."""
    variants = packaged(__file__, "variants.toml")
    return {**variants[""], **variants[walked.variant]}


def _overflow(walked: NumericWalk) -> Table:
    """Lay out a row of scores whose exponentials overflow, and how the maximum mends that."""
    rows = zip(walked.tiny.key_tokens, shifted_row(walked).tolist(), strict=True)

    def column(index: int, key: str, title: str) -> CellColumn:
        return Column(key, title, "right"), lambda row: cell(
            number(row[1][index], 4), "bad" if row[1][index] == math.inf else "", row[1][index]
        )

    table = table_of(
        rows,
        (Column("key", "key"), lambda row: cell(visible(row[0]), "", row[0])),
        column(0, "score", f"score + {SHIFT:g}"),
        column(1, "exp", "exp"),
        column(2, "weight", "exp / sum"),
        column(3, "exp_less_maximum", "exp(score - max)"),
        column(4, "weight_less_maximum", "/ sum"),
    )
    return table._replace(title=f"The row of {walked.tiny.tokens[-1]}, head 0, in float32")


def _saturation(walked: NumericWalk, precision: int) -> Table:
    """Say how peaked each softmax is, without and with the scale."""
    rows = [
        (
            h,
            token,
            head.entropy_bits_unscaled[i],
            head.entropy_bits[i],
            head.raw_top[i],
            head.top[i],
            head.weights[i].sum(),
        )
        for h, head in enumerate(walked.heads)
        for i, token in enumerate(walked.tiny.tokens)
    ]

    def share(index: int, key: str, title: str) -> CellColumn:
        column = Column(key, title, "right")
        return column, lambda row: cell(number(row[index], precision), "", float(row[index]))

    table = table_of(
        rows,
        (Column("head", "head", "right"), lambda row: cell(row[0], "H", row[0])),
        (Column("query", "query"), lambda row: cell(visible(row[1]), "", row[1])),
        share(2, "raw_entropy", "entropy, raw"),
        share(3, "entropy", "scaled"),
        share(4, "raw_top", "top weight, raw"),
        share(5, "top", "scaled"),
        *([share(6, "row_sum", "row sum")] if "changed" in _said(walked) else []),
    )
    return table._replace(title="How saturated each softmax is")


def _drawn(walked: NumericWalk, width: int, precision: int, paint: Paint) -> list[str]:
    tiny = walked.tiny
    queries, keys = _names(tiny.tokens, paint), _names(tiny.key_tokens, paint)
    out: list[str] = []
    if tiny.x is not None:
        matrices = [PrintedMatrix(f"X {_shape(tiny.x)}", tiny.x, queries)]
        if tiny.context is not None:
            matrices.append(PrintedMatrix(f"C {_shape(tiny.context)}", tiny.context, keys))
        for name in ("w_q", "w_k", "w_v", "w_o"):
            matrix = getattr(tiny, name)
            rows = [""] * len(matrix)
            matrices.append(PrintedMatrix(f"{name.upper()} {_shape(matrix)}", matrix, rows))
        out += beside(matrices, width, precision, paint)
    for h, head in enumerate(walked.heads):
        rule = f"── head {h} " + "─" * max(0, min(width, 72) - 10)
        out.append(paint(rule, ansi(head_colour(h))))
        for group in _head_panels(walked, head, queries, keys, h):
            out += beside(group, width, precision, paint)
    out.append(paint("── all heads " + "─" * max(0, min(width, 72) - 13), "strong"))
    matrices = [PrintedMatrix(f"Z = concat {_shape(walked.concat)}", walked.concat, queries)]
    if tiny.w_o is not None:
        matrices.append(PrintedMatrix(f"Y = Z W_O {_shape(walked.output)}", walked.output, queries))
    out += beside(matrices, width, precision, paint)
    return out[:-1]


def _head_panels(
    walked: NumericWalk, head: HeadNumbers, queries: Sequence[str], keys: Sequence[str], h: int
) -> list[list[PrintedMatrix]]:
    """Get what belongs side by side: the inputs, the scores, the weights and what comes of them."""
    changed = _said(walked).get("changed")

    def weights(name: str, matrix: Matrix) -> PrintedMatrix:
        return PrintedMatrix(name, matrix, queries, keys, head_colour(h))

    panels = [
        [
            PrintedMatrix(f"Q {_shape(head.q)}", head.q, queries),
            PrintedMatrix(f"K {_shape(head.k)}", head.k, keys),
            PrintedMatrix(f"V {_shape(head.v)}", head.v, keys),
        ],
        [
            PrintedMatrix(f"scores Q Kᵀ {_shape(head.scores)}", head.scores, queries, keys),
            PrintedMatrix("scaled by 1/√d", head.scaled, queries, keys),
            PrintedMatrix("masked", head.masked, queries, keys),
        ],
        [
            weights("weights A = softmax", head.softmaxed),
            weights(changed, head.weights)
            if changed
            else weights("(softmax unscaled)", head.weights_unscaled),
            PrintedMatrix(f"A V {_shape(head.output)}", head.output, queries),
        ],
    ]
    if math.isnan(head.output.sum()):
        import numpy as np

        mixed = PrintedMatrix(f"A V {_shape(head.output)}", np.nan_to_num(head.output), queries)
        panels.append([weights("robust: 0 where no key", np.nan_to_num(head.weights)), mixed])
    return panels


def _shape(matrix: Matrix) -> str:
    return f"({matrix.shape[0]}, {matrix.shape[1]})"
