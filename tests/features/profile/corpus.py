"""Small corpora for the tests of profiles."""

from __future__ import annotations

import json
from pathlib import Path

TEXT = (
    "the cat sat on a mat and the dog , which had 42 old bones , slept near the door while rain "
    "fell over Paris . nobody knew why unbelievable things kept happening there again and again !"
)
WORDS = TEXT.split()


def sentences(count: int, seed: int = 0) -> list[str]:
    """Texts of 2 to 25 words that repeat words as texts do."""
    found = []
    for number in range(count):
        n = 7 * number + 13 * seed
        size = 2 + (n * n + 3 * number) % 24
        found.append(" ".join(WORDS[(n + k * (1 + number % 3)) % len(WORDS)] for k in range(size)))
    return found


def lines(path: Path, texts: list[str]) -> Path:
    """A text a line."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def grouped(path: Path, texts: list[str], size: int = 3) -> Path:
    """JSONL whose ``doc`` names groups of a few texts."""
    rows = [{"text": text, "doc": f"{path.stem} {n // size}"} for n, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
