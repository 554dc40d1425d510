"""What is known of a checkpoint that was written without some heads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnviz.drawing.labels import counted
from attnviz.files import wrote


@dataclass(frozen=True)
class Pruned:
    """A checkpoint without some heads, and that it does what it should.

    Attributes:
        folder: where it is; transformers loads it by this path.
        heads: the heads that are removed, by name.
        cut: of these, how many in each layer are taken out of the matrices.
        zeroed: those whose weights are set to zero, since transformers could not load fewer heads.
        parameters: of the checkpoint before and after.
        size: bytes of its weights before and after.
        difference: the largest difference of a logit (or of the last states) from the model whose
            heads are gated, both in float32, on a text.
    """

    folder: Path
    heads: tuple[str, ...]
    cut: int
    zeroed: tuple[str, ...]
    parameters: tuple[int, int]
    size: tuple[int, int]
    difference: float

    def __str__(self) -> str:
        """What was written, and how it was checked."""
        before, after = self.parameters
        small, large = (f"{size / 1e6:,.1f} MB" for size in (self.size[1], self.size[0]))
        lines = [f"{wrote(self.folder)} without {counted(len(self.heads), 'head')}"]
        if self.cut:
            lines.append(
                f"{self.cut} of each layer cut out: {after:,} of {before:,} parameters, "
                f"{small} of {large}"
            )
        if self.zeroed:
            why = (
                "which is more than every layer loses" if self.cut
                else "since transformers loads no fewer heads here"
            )  # fmt: skip
            size = "" if self.cut else f" ({before:,} parameters, {small})"
            lines.append(
                f"{counted(len(self.zeroed), 'head')} set to zero and as large as before{size}, "
                f"{why}"
            )
        lines.append(
            f"checked: differs from the model with these heads at zero by {self.difference:.1e} "
            "at most"
        )
        return "\n".join(lines)
