"""Why a weight is what it is, as text: the steps, the dimensions that count, the row's softmax."""

from __future__ import annotations

import math

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from attnviz.core.reasons import Reason
from attnviz.drawing.labels import visible

_LISTED = 8  # dimensions and keys that are listed, the largest first


def parts(reason: Reason) -> tuple[Text | Table, ...]:
    """Return what is printed, one below the other."""
    query, key = visible(reason.queries[reason.query]), visible(reason.keys[reason.key])
    title = f"Why {reason.head} has {share(reason.weight)} from {query} ({reason.query})"
    return (
        Text(f"{title} to {key} ({reason.key})", "bold"),
        steps(reason),
        Text("\nLargest products", "bold"),
        dimensions(reason),
        Text("\nThe row's softmax", "bold"),
        softmax(reason),
    )


def steps(reason: Reason) -> Table:
    """From q·k to the weight, and to what is written with it."""
    terms, table = reason.terms, Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    rotated = ", both rotated by position (RoPE)" if terms.turned else ""
    table.add_row("q·k", signed(reason.dot), f"the sum of {len(reason.q)} products{rotated}")
    table.add_row("scaled", signed(reason.scaled), f"times {terms.scale:.4g}")
    if terms.softcap is not None:
        cap = f"{terms.softcap:g}"
        table.add_row("capped", signed(reason.capped), f"{cap} tanh(score / {cap})")
    if terms.bias is not None and reason.allowed[reason.key]:
        table.add_row("bias", signed(reason.added), "added by position bias or mask")
    if not reason.allowed[reason.key]:
        cause = "the query may not attend to this key"
        cause = "the layer's indexer did not select this key" if reason.unselected else cause
        table.add_row("blocked", "-inf", cause)
    table.add_row("score", signed(reason.score), "what enters softmax")
    if terms.sink is not None:
        table.add_row("sink", signed(terms.sink), "the score of a learned sink, which is not a key")
    power = math.exp(reason.score - reason.top) if reason.total else 0.0
    table.add_row("softmax", share(power), f"e^(score - {reason.top:.4f}), of {reason.total:.4f}")
    table.add_row("weight", share(reason.weight), f"{share(reason.shown)} in the capture")
    noun, doubt = terms.noun, "" if terms.written else " (W_O is not known)"
    table.add_row(noun, f"{reason.norm:.4f}", f"of the key's value{doubt}")
    table.add_row(f"α{noun}", share(reason.weight * reason.norm), "what the head writes for it")
    return table


def dimensions(reason: Reason) -> Table:
    """Return the dimensions with the largest products, and the rest together."""
    rows = reason.to_records()
    table = _table("dimension", "q", "k", "q × k")
    for row in rows[:_LISTED]:
        numbers = (signed(row[name]) for name in ("query", "key", "product"))
        table.add_row(str(row["dimension"]), *numbers)
    others = rows[_LISTED:]
    if others:
        table.add_row(
            f"{len(others)} others", "", "", signed(sum(row["product"] for row in others))
        )
    return table


def softmax(reason: Reason) -> Table:
    """Get the keys of the row with the largest weights, this key, a sink, and the rest together."""
    table = _table("key", "score", "e^(score - top)", "weight")
    if not reason.total:
        return table
    powers = np.exp(reason.row - reason.top)
    order = [int(j) for j in np.argsort(-powers, kind="stable") if powers[j] > 0]
    listed = order[:_LISTED]
    if reason.key not in listed:
        listed = [*listed[: _LISTED - 1], reason.key]
    for j in listed:
        name = f"{visible(reason.keys[j])} ({j})" + (" ←" if j == reason.key else "")
        weight = share(float(powers[j]) / reason.total)
        table.add_row(name, signed(float(reason.row[j])), share(float(powers[j])), weight)
    remaining = float(powers.sum() - powers[listed].sum())
    count = len(set(order) - set(listed))
    if count:
        table.add_row(f"{count} others", "", share(remaining), share(remaining / reason.total))
    sink = reason.terms.sink
    if sink is not None:
        power = math.exp(sink - reason.top)
        table.add_row("the sink", signed(sink), share(power), share(power / reason.total))
    table.add_row("sum", "", f"{reason.total:.4f}", "1")
    return table


def signed(value: float) -> str:
    """Return a number with its sign and four decimals."""
    return f"{value:+.4f}"


def share(value: float) -> str:
    """Return a number from 0 to 1 with four decimals, tiny ones with a power of ten."""
    return f"{value:.4f}" if value >= 0.001 or not value else f"{value:.1e}"


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    return table
