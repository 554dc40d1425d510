"""Shares of cases and their intervals, as tables and figures word them."""

from __future__ import annotations

from attnviz.core.interval import Interval


def percent(share: Interval) -> str:
    """A share in percent, with a decimal where the interval knows it; a dash for none."""
    if share.value is None:
        return "–"
    return f"{100 * share.value:.{_digits(share)}f}"


def points(share: Interval) -> str:
    """A difference of shares in points, with its sign."""
    if share.value is None:
        return "–"
    return f"{100 * share.value:+.{_digits(share)}f}"


def interval(share: Interval) -> str:
    """Its 95 % interval in percent."""
    if share.low is None or share.high is None:
        return "–"
    digits = _digits(share)
    ends = (f"{100 * end:z.{digits}f}" for end in (share.low, share.high))
    return " to ".join(ends)


def plain_percent(value: float | None) -> str:
    """A share without an interval in percent; a dash for none."""
    return "–" if value is None else f"{100 * value:.0f}"


def estimate(share: Interval) -> str:
    """A share from 0 to 1 with its interval: ``0.61 [0.58, 0.64]``."""
    if share.value is None:
        return "–"
    ends = (
        "" if share.low is None or share.high is None else f" [{share.low:.2f}, {share.high:.2f}]"
    )
    return f"{share.value:.2f}{ends}"


def plain_share(value: float | None) -> str:
    """A share from 0 to 1 without an interval; a dash for none."""
    return "–" if value is None else f"{value:.2f}"


def _digits(share: Interval) -> int:
    if share.low is None or share.high is None:
        return 0
    return 1 if 0 < share.high - share.low < 0.02 else 0
