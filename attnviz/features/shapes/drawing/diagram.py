"""The layer as boxes and arrows in the terminal, one box a head, coloured by head."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.attention.spec import AttentionSpec
from attnviz.attention.walkthrough import Walk
from attnviz.errors import Message
from attnviz.features.shapes.table import Paint, Printed, Span, ansi, cells_wide, head_colour

MAX_WIDTH = 110


def diagram_printed(walk: Walk) -> Printed:
    """Return the drawing, for a terminal of any width."""

    def draw(width: int, paint: Paint) -> list[str]:
        return _Drawing(walk, min(width, MAX_WIDTH), paint).lines()

    notes: list[str] = [
        Message("{out}, .png or .pdf draws it with widths in proportion.", out="F.svg")
    ]
    if walk.spec.group > 1:
        notes.insert(0, "Query heads under one key head share its colour.")
    return Printed(walk.spec.title, tuple(notes), draw=draw)


class _Drawing:
    """Lines from top to bottom, all centred on the same middle."""

    def __init__(self, walk: Walk, width: int, paint: Paint) -> None:
        self.walk, self.spec, self.width, self.paint = walk, walk.spec, width, paint
        self.out: list[str] = []

    def tone(self, head: int) -> str:
        """Return the colour of a head; of its shared key head in GQA."""
        spec = self.spec
        return ansi(head_colour(head // spec.group if spec.group > 1 else head))

    def lines(self) -> list[str]:
        walk, spec = self.walk, self.spec
        x: list[Span] = [(f"X {walk.step('x').concrete}", "strong")]
        if spec.kind == "cross":
            context: list[Span] = [(f"C {walk.step('context').concrete}", "strong")]
            self.boxes([x, [("queries", "dim")]], [context, [("keys and values", "dim")]])
        else:
            self.boxes([x])
        self.arrow()
        if spec.kind == "mla":
            self.latents()
            self.arrow()
        lines = []
        for letter, key in (("Q", "w_q"), ("K", "w_k"), ("V", "w_v")):
            step = walk.step(key)
            lines.append([(f"{letter} ", "strong"), (f"= {step.operation}  {step.concrete}", "")])
            if letter == "K" and spec.rope_dim:
                rotation = ", rotated" if spec.turned else ""
                lines[-1].append((f", then k_rope{rotation}, in every head", "dim"))
        self.boxes(lines)
        text = f".view, .transpose(1, 2): Q {walk.step('transpose').concrete}"
        if any(step.key == "transpose_kv" for step in walk.steps):
            keys = "rope_k" if spec.kind == "mla" else "transpose_kv"
            text += f", K {walk.step(keys).concrete}"
        self.arrow(text)
        self.heads()
        self.arrow(f".transpose(1, 2).contiguous().view: {walk.step('concat').concrete}")
        self.concat()
        self.arrow("Z · sigmoid(G), G = X W_G" if self.spec.gated else "")
        step = walk.step("w_o")
        mixed = [("Y ", "strong"), (f"= {step.operation}  {step.concrete}", "")]
        self.boxes([mixed, [("W_O mixes the heads", "dim")]])
        return self.out

    def latents(self) -> None:
        """Draw what MLA makes first: the queries' latent, the keys' and values', the rotary key."""
        steps = {step.key: step for step in self.walk.steps}
        lines = []
        for key, name, note in (
            ("w_q_latent", "c_Q", "queries are made from it"),
            ("w_latent", "c", "cached; K and V are rebuilt from it"),
            ("w_k_rope", "k_rope", "cached; one for all heads"),
            ("w_index_k", "k_I", "cached; the indexer's key"),
            ("select", "selected", "by the index, for all heads"),
        ):
            if key in steps:
                step = steps[key]
                formula = f"= {step.operation}  {step.concrete}"
                lines.append([(f"{name} ", "strong"), (formula, ""), ("  " + note, "dim")])
        self.boxes(lines)

    def centred(self, spans: Sequence[Span]) -> None:
        indent = " " * max(0, (self.width - self.wide(spans)) // 2)
        self.out.append(indent + self.paint.line(spans))

    def wide(self, line: Sequence[Span]) -> int:
        """How many cells a line takes as it will be written."""
        plain = Paint(colour=False, ascii_only=self.paint.ascii_only)
        return sum(cells_wide(plain(text)) for text, _ in line)

    def padded(self, line: Sequence[Span], size: int) -> list[Span]:
        """Fill a line up with spaces."""
        return [*line, (" " * (size - self.wide(line)), "")]

    def arrow(self, text: str = "") -> None:
        self.centred([("│", "dim")])
        if text:
            self.centred([(text, "dim")])
        self.centred([("▼", "dim")])

    def boxes(self, *boxes: Sequence[Sequence[Span]]) -> None:
        """Draw boxes next to each other, with as many lines each."""
        sizes = [max(map(self.wide, lines)) for lines in boxes]

        def row(pieces: Sequence[Sequence[Span]]) -> None:
            gap = ("     ", "")
            self.centred([span for piece in pieces for span in (gap, *piece)][1:])

        row([[("┌" + "─" * (size + 2) + "┐", "dim")] for size in sizes])
        for lines in zip(*boxes, strict=True):
            spaced = zip(lines, sizes, strict=True)
            row([[("│ ", "dim"), *self.padded(line, n), (" │", "dim")] for line, n in spaced])
        row([[("└" + "─" * (size + 2) + "┘", "dim")] for size in sizes])

    def heads(self) -> None:
        """Draw a row of boxes, one a head, with the shape of its map and of its output."""
        spec, walk = self.spec, self.walk
        map_shape = "×".join(map(str, walk.step("scores").shape[2:]))
        out_shape = "×".join(map(str, walk.step("heads").shape[2:]))
        texts = ["head {h}", f"A {map_shape}", f"Z {out_shape}"]
        if spec.group > 1:
            texts.insert(1, "K,V {g}")
        rows: list[list[Span]] = [[] for _ in range(len(texts) + 2)]
        longest = [text.format(h=spec.heads - 1, g=spec.kv_heads - 1) for text in texts]
        inner = max(self.wide([(label, "")]) for label in longest)
        for index, head in enumerate(_shown(spec, (self.width + 1) // (inner + 3))):
            if head is None:
                for row in rows:
                    row.append((" … " if row is rows[2] else "   ", "dim"))
                continue
            tone = self.tone(head)
            gap: Span = (" " if index else "", "")
            rows[0] += [gap, ("┌" + "─" * inner + "┐", tone)]
            for row, text in zip(rows[1:-1], texts, strict=True):
                label = text.format(h=head, g=head // spec.group)
                label += " " * (inner - self.wide([(label, "")]))
                row += [gap, ("│", tone), (label, tone), ("│", tone)]
            rows[-1] += [gap, ("└" + "─" * inner + "┘", tone)]
        for row in rows:
            self.centred(row)
        scale = f" · {spec.scale_text}" if spec.scaled else ""
        mask = " + mask" if spec.causal or spec.window else ""
        self.centred([(f"A = softmax(Q Kᵀ{scale}{mask}), Z = A V, in every head", "dim")])

    def concat(self) -> None:
        """Draw the heads side by side in one bar."""
        spec = self.spec
        block_width = max(1, min(8, (self.width - 6) // spec.heads))
        count = min(spec.heads, (self.width - 6) // block_width)
        spans: list[Span] = [("│", "dim")]
        for head in range(count):
            block = "█" * (block_width - 1) + ("▓" if block_width > 1 else "█")
            spans.append((block, self.tone(head)))
        if count < spec.heads:
            spans.append(("…", "dim"))
        self.centred([*spans, ("│", "dim")])


def _shown(spec: AttentionSpec, room: int) -> list[int | None]:
    """Return the heads that get a box, at most ``room``; None stands for those left out."""
    room = max(3, room)
    if spec.heads <= room:
        return list(range(spec.heads))
    return [*range(room - 2), None, spec.heads - 1]
