"""Numbers as people read them."""

from __future__ import annotations

from attnviz.attention.symbolic import Amount

_SI = ("", " k", " M", " G", " T", " P", " E")
_IEC = (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB")


def _scaled(value: float, base: int, suffixes: tuple[str, ...], exact: int) -> str:
    if value < exact:
        return f"{value:,.0f}{suffixes[0]}"
    power = 0
    while value >= base and power < len(suffixes) - 1:
        value /= base
        power += 1
    if value >= 1000:
        return f"{value:,.0f}{suffixes[power]}"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}{suffixes[power]}"


def count(value: float) -> str:
    """``1,234``, ``12.3 k``, ``1.07 G``: exact below 10,000, then three digits."""
    return _scaled(value, 1000, _SI, 10_000)


def size(value: float) -> str:
    """Bytes: ``512 B``, ``16.0 KiB``, ``1.25 GiB``."""
    return _scaled(value, 1024, _IEC, 1024)


def amount(value: Amount, unit: str = "") -> str:
    """An amount for a narrow column: short where it is a number, else its formula."""
    if value.value is not None:
        return size(value.value) if unit == "B" else count(value.value)
    parts = []
    for key, coefficient in sorted(value.terms.items(), key=lambda item: (len(item[0]), item[0])):
        letters = Amount({key: 1}).written()
        parts.append(f"{count(coefficient)}·{letters}" if key else count(coefficient))
    return " + ".join(parts) + (f" {unit}" if unit else "")


def percent(share: float) -> str:
    """``12.5 %``, with two digits where it is small."""
    value = 100 * share
    return f"{value:.1f} %" if value >= 10 else f"{value:.2f} %"


def plural(number: int, noun: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
