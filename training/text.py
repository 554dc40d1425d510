"""Plain-text books: read, clean, split into training and held-out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HELD_OUT = ("Burnett_Garden_1911", "Doyle_Hound_1902")
"""Books kept from training and from tokenizer training unless told otherwise."""

_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")
_BROKEN = re.compile(r"\b([A-Za-z]+)- ([a-z]+)\b")


@dataclass(frozen=True, slots=True)
class Books:
    """Cleaned books by name, those to train on apart from those held out."""

    train: Mapping[str, str]
    held_out: Mapping[str, str]


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """How often each word, hyphenated ones included, occurs, lower-cased."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word.lower() for word in _WORD.findall(text))
    return counts


def rejoin(text: str, words: Mapping[str, int]) -> str:
    """Undo hyphens left over from line ends ("law- yer"), where ``words`` supports it.

    The two halves become one word if that word is known, a hyphenated word if that one
    is, and stay as they are otherwise ("two- and three-fold").
    """

    def mend(match: re.Match[str]) -> str:
        left, right = match.groups()
        joined, hyphened = (left + right).lower(), f"{left}-{right}".lower()
        if words.get(joined, 0) > words.get(hyphened, 0):
            return left + right
        return f"{left}-{right}" if words.get(hyphened, 0) else match.group()

    return _BROKEN.sub(mend, text)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs (separated by blank lines), each on one line."""
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = (" ".join(block.split()) for block in blocks)
    return [line for line in lines if line]


def read_books(folder: Path, held_out: Sequence[str] = HELD_OUT) -> Books:
    """Every ``*.txt`` of ``folder``, cleaned: one paragraph a line.

    ``held_out`` names files, with or without the suffix; a name that matches no file is
    an error, because a book meant to be held out would silently be trained on.
    """
    raw = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.txt"))}
    if not raw:
        raise SystemExit(f"no .txt file in {folder}")
    names = {Path(name).stem if name.endswith(".txt") else name for name in held_out}
    if unknown := sorted(names - raw.keys()):
        raise SystemExit(
            f"held-out book not in {folder}: {', '.join(unknown)}; there are: {', '.join(raw)}"
        )
    words = word_counts(text for name, text in raw.items() if name not in names)
    clean = {name: "\n".join(paragraphs(rejoin(text, words))) + "\n" for name, text in raw.items()}
    return Books(
        train={name: text for name, text in clean.items() if name not in names},
        held_out={name: text for name, text in clean.items() if name in names},
    )


def passages(books: Iterable[str], count: int, length: int) -> list[str]:
    """``count`` passages of paragraphs in a row, each of at least ``length`` characters.

    They lie at even distances in the books taken one after another, and do not overlap; fewer are
    given where the books have no more.
    """
    found, passage = [], list[str]()
    for line in (line for book in books for line in book.splitlines()):
        passage.append(line)
        if sum(map(len, passage)) >= length:
            found.append(" ".join(passage))
            passage = []
    every = max(1, len(found) // count)
    return found[::every][:count]
