"""The words that every form of a lens shares."""

from __future__ import annotations

from attnviz.drawing.labels import model_name, visible
from attnviz.drawing.signed import signed
from attnviz.features.lens.result import HeadWrites, Lens, RowShare, TokenEffect

EMBEDDINGS = "in"
"""The row of what enters the first layer."""


def row_name(layer: int | None) -> str:
    """Of a state: by the layer after which it stands."""
    return EMBEDDINGS if layer is None else str(layer)


def title(report: Lens) -> str:
    """What is read, of which model."""
    if report.heads:
        over = f"the mean over {report.rows:,} rows of {report.texts:,} texts"
        if report.texts == 1:
            over = f"the mean over {report.rows:,} positions"
        if report.rows == 1:
            over = place(report, report.positions[0])
        return f"{model_name(report.source)}: what every head writes, {over}"
    return f"{model_name(report.source)}: the most probable word after every layer"


def place(report: Lens, position: int, *, ascii_only: bool = False) -> str:
    """Where a word is read: ``after ·the (18)``, or at the token in a masked model."""
    token = visible(report.tokens[position], ascii_only=ascii_only)
    return f"{'at' if report.masked else 'after'} {token} ({position})"


def checked(report: Lens) -> str:
    """How the last row compares with the model's own logits."""
    return (
        "every state through the last normalization and the LM head; the last row is the model's "
        f"own prediction (logits differ by {report.difference or 0.0:.1g} at most)"
    )


def share(found: RowShare | None) -> str:
    """A share of rows with its interval: ``41 % [34, 48]``."""
    if found is None:
        return ""
    between = ""
    if found.low is not None and found.high is not None:
        between = f" [{100 * found.low:.0f}, {100 * found.high:.0f}]"
    return f"{100 * found.share:.0f} %{between}"


def how_heads(report: Lens) -> str:
    """How heads were read, in a sentence or two."""
    said = (
        "What a head adds to every logit by itself, z W_O through the last normalization with its "
        "σ and W_U, against the mean of the vocabulary; what it makes later layers write counts as "
        "theirs."
    )
    if report.chance is not None:
        said += (
            " In the text: how often the word that it raises most stands in the text up to there "
            f"(chance {100 * report.chance:.2g} %), with intervals over {report.texts:,} texts."
        )
    return said


def strongest(report: Lens) -> tuple[HeadWrites, ...]:
    """The heads that write most, by the mean norm."""
    return tuple(sorted(report.heads, key=lambda one: -one.norm))


def moved(effects: tuple[TokenEffect, ...], count: int, *, ascii_only: bool = False) -> str:
    """Words and what they are moved by: ``·clock +1.4, ·moon +0.8``."""
    return ", ".join(
        f"{visible(one.token, ascii_only=ascii_only)} {signed(one.value)}"
        for one in effects[:count]
    )


def closing(report: Lens) -> str:
    """The model and how it ran, in one line."""
    info = report.source
    of = f"{len(report.tokens)} tokens" if report.tokens else f"{report.texts:,} texts"
    return f"{model_name(info)} · {info.backend} backend · {of} · {info.device} {info.dtype}"
