"""Characters of Braille: fields of dots, four high and two wide, in one character of a terminal."""

from __future__ import annotations

HIGH, WIDE = 4, 2  # dots of a character, downwards and across

_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def bit(row: int, column: int) -> int:
    """Return that of a dot of the whole field, in the character that it falls into."""
    return _BITS[row % HIGH][column % WIDE]


def character(bits: int) -> str:
    """Return the character with these dots."""
    return chr(0x2800 + bits)
