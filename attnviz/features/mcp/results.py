"""Results become answers of a few tokens, and stay as files that a later call can name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.provenance import hash_of
from attnviz.core.result import Result
from attnviz.drawing.labels import token_labels
from attnviz.drawing.renderable import Renderable
from attnviz.errors import SelectionError, UsageError
from attnviz.features.mcp.folders import Folders
from attnviz.files import HeldFolder
from attnviz.models import recorded
from attnviz.models.demo import DEMOS
from attnviz.scoring.select import select

MOST = 2000
"""Tokens of an answer."""
_TAIL = 600  # of these, tokens that are kept for what follows the last table
_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,2}|\n+| {2,16}|[^\sA-Za-z0-9]")
_RULE = re.compile(r"[\s─━═-]+")


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool gives back."""

    text: str  # figures, how they were measured, and where the whole result is kept
    picture: bytes | None = None  # PNG, where one was asked for


def tokens(text: str) -> int:
    """At most how many tokens a text is, whatever the tokenizer.

    A token for four letters, two digits or a run of spaces, and one for every other character,
    with one more where that is not ASCII: more than byte-pair encodings of 30,000 tokens and up
    need for such text.
    """
    return sum(1 + (not piece.isascii()) for piece in _PIECE.findall(text))


def fitted(figures: str, notes: Sequence[str], hint: str) -> str:
    """Figures and what is told of them, within :data:`MOST` tokens."""
    below = "\n".join(notes)
    room = MOST - tokens(below) - tokens(hint) - 20
    lines = _plain(figures)
    end = len(lines)
    while end and lines[end - 1].strip() and _sum(lines[end - 1 :]) < min(_TAIL, room // 2):
        end -= 1
    tail = lines[end:]
    room -= _sum(tail)
    fitting: list[str] = []
    for line in lines[:end]:
        room -= tokens(line + "\n")
        if room < 0:
            break
        fitting.append(line)
    omitted = end - len(fitting)
    cut = [f"({omitted} lines left out: {hint})", ""] if omitted else []
    return "\n".join([*fitting, *cut, *tail, "", below]).strip()


def _sum(lines: Sequence[str]) -> int:
    return sum(tokens(line + "\n") for line in lines)


def _plain(text: str) -> list[str]:
    """Lines without rules and without more than one empty line in a row."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and _RULE.fullmatch(line):
            continue
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return lines


MOST_FILES = 1000
MOST_BYTES = 2 << 30
_JOURNAL = ".written"  # what servers wrote into the folder, a line each: name, bytes and time
_LINE = re.compile(r"(\S+) ([0-9]+) ([0-9]+)")


class ResultStore:
    """The folder of results, which several servers may share."""

    def __init__(
        self, folders: Folders, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._folders = folders
        self._most_files, self._most_bytes = most_files, most_bytes

    def keep(self, tool: str, suffix: str, data: bytes) -> Path:
        """Write a new file, numbered after the last of its tool; then remove the oldest."""
        with self._folders.held_results(make=True) as folder:
            numbered = re.compile(rf"{tool}-([0-9]{{1,9}})\.")
            names = (*folder.files(), *_written(folder))
            number = max(
                (int(numbers[1]) for name in names if (numbers := numbered.match(name))), default=0
            )
            while True:
                number += 1
                name = f"{tool}-{number}{suffix}"
                try:
                    status = folder.create(name, data)
                    break
                except FileExistsError:  # another server was quicker
                    continue
            try:
                folder.append(_JOURNAL, f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
            except OSError:
                folder.remove(name)
                raise
            self._remove_oldest(folder)
        return self._folders.results / name

    def names(self) -> list[str]:
        """Return the names of results, newest first."""
        if not self._folders.results.exists():
            return []
        with self._folders.held_results() as folder:
            entries = folder.files()
        names = [name for name in entries if fnmatchcase(name, "[!.]*-*.*")]
        return sorted(names, key=lambda name: entries[name].st_mtime, reverse=True)

    def _remove_oldest(self, folder: HeldFolder) -> None:
        """Of what servers wrote and nobody wrote again; files of others are never touched."""
        entries, journal = folder.files(), _written(folder)
        sizes = {
            name: stamp[0]
            for name, stamp in journal.items()
            if name in entries and stamp == (entries[name].st_size, entries[name].st_mtime_ns)
        }
        count, total = len(sizes), sum(sizes.values())
        for name in list(sizes)[:-1]:
            if count <= self._most_files and total <= self._most_bytes:
                break
            folder.remove(name)
            count, total = count - 1, total - sizes[name]
        if len(journal) > 4 * self._most_files:
            recent = list(journal.items())[-2 * self._most_files :]
            folder.remove(_JOURNAL)
            lines = (f"{name} {size} {time}\n" for name, (size, time) in recent)
            folder.append(_JOURNAL, "".join(lines).encode())


def _written(folder: HeldFolder) -> dict[str, tuple[int, int]]:
    """Bytes and time of every file that servers wrote, by name, oldest first."""
    lines = folder.contents(_JOURNAL).decode("utf-8", "replace").splitlines()
    matches = (_LINE.fullmatch(line) for line in lines)
    return {match[1]: (int(match[2]), int(match[3])) for match in matches if match}


HOW = {
    "heads": "score: mean weight on a role's keys over the rows that have one; chance: the same "
    "for uniform attention under the same mask; lift: their ratio. Of one text it says no more "
    "than of that text.",
    "look": "weights after softmax; a row sums to 1. A weight says where a head looks, not that it "
    "matters.",
    "explain": "votes are direct logit attribution; ablations replace a head's output by its mean, "
    "or by that on another text. One text describes this text alone.",
    "lens": "the state after each layer, through the last normalization and the LM head as if it "
    "were the last: what is readable there, not what later layers use. Entropy and KL in nats.",
    "spans": "share of a row's weight on the part; chance: its share of the keys that the row may "
    "see.",
    "profile": "score over the rows of all texts that define it; intervals over texts (Student's "
    "t, or max-T where simultaneous).",
    "syntax": "a word's prediction is the word with most weight; heads are chosen on one half of "
    "the documents and measured on the other; baseline: the best fixed offset.",
    "ablate": "change of the metric in the typical text (median) with the heads' outputs replaced; "
    "joint 95 % intervals hold for all groups and methods at once. Other heads can make up for "
    "one: 'not needed' is never said.",
    "patch": "share of the difference between clean and corrupted runs that comes with the patched "
    "values; 95 % intervals over pairs.",
    "circuits": "from weights alone: it could be used, not that it is. Composition is above random "
    "matrices of the same shapes.",
    "shapes": "formulas over the sizes of the configuration; FLOPs count matrix products, 2 per "
    "multiply-add.",
    "diff": "Jensen-Shannon distance of matched rows (captures), or differences of figures with "
    "paired intervals where texts are the same.",
}
"""How the figures of each tool are measured, in a sentence or two."""

Form = Literal["csv", "png", "svg", "pdf", "html"]
"""What a kept result can be written as."""
_ROWS = 200
_LISTED = 40
_KEYS = 2  # keys that are shown of every query


class KeptResults:
    """The results of a server."""

    def __init__(self, folders: Folders) -> None:
        self._folders, self._store = folders, ResultStore(folders)

    def answer(self, tool: str, result: Any, picture: bool = False) -> ToolAnswer:
        """Keep a result, and say what fits."""
        path = self._store.keep(tool, ".json", result.to_json().encode())
        png = result.to_bytes("png") if picture else None
        return ToolAnswer(self._said(tool, result, path), png)

    def capture(self, tool: str, maps: Capture, heads: str, picture: bool = False) -> ToolAnswer:
        """Return the same of maps."""
        path = self._store.keep(tool, ".npz", recorded.dump(maps, ".npz"))
        return self._looked(tool, maps, heads, path, picture)

    def again(
        self, path: Path, heads: str | None, first: int | None, save: str | None, picture: bool
    ) -> ToolAnswer:
        """Return a file once more; of some heads every row and column of its table."""
        result = av.read(path)
        tool = path.name.partition("-")[0]
        if isinstance(result, Capture):
            if save is not None:
                raise UsageError("{save} writes results; draw recorded maps as a picture", save=...)
            selection = ", ".join(
                result.layout.name(head) for head in result.layout if result.holds(head)
            )
            return self._looked("look", result, heads or selection, path, picture)
        tool = result.schema.partition("/")[0].removeprefix("attnviz.")
        if picture and not isinstance(result, Renderable):
            raise UsageError("{picture} is for what heads do; read it without", picture=...)
        png = result.to_bytes("png") if picture else None
        remarks: tuple[str, ...] = ()
        if save is not None:
            if not isinstance(result, Renderable):
                raise UsageError("{save} is for what heads do; its JSON is kept", save=...)
            _check_form(result, tool, save)
            wrote = self._store.keep(tool, f".{save}", result.to_bytes(save))
            remarks = (f"Wrote: {self._folders.shown(wrote)}",)
        if heads is None and first is None:
            return ToolAnswer(self._said(tool, result, path, remarks), png)
        if not isinstance(result, Renderable):
            raise UsageError("{select} is for what heads do; read it without", select=...)
        table = _table(result.to_records(), heads, first or 0)
        return ToolAnswer(fitted(table, (*self._of(result, path), *remarks), "raise first"), png)

    def listed(self) -> ToolAnswer:
        """Which models, folders and results there are."""
        kept = self._store.names()
        names = kept[:_LISTED]
        older = len(kept) - len(names)
        lines = [
            f"Models that come with attnviz: {', '.join(DEMOS)}, fresh (random weights)",
            f"Folders that may be read: {self._folders.said}",
            f"Results, newest first, in {self._folders.results} (the last {MOST_FILES:,} that were "
            f"written, at most {MOST_BYTES >> 30} GiB, stay):",
            *(names or ["none yet"]),
            *([f"and {older} older ones"] if older else []),
        ]
        return ToolAnswer("\n".join(lines))

    def _said(self, tool: str, result: Any, path: Path, remarks: Sequence[str] = ()) -> str:
        notes = [f"Note: {note}" for note in result.notes] if isinstance(result, Result) else []
        below = (*notes[:5], *([f"How: {HOW[tool]}"] if tool in HOW else []))
        name = self._folders.shown(path)
        hint = f"read {name} with select or first for every row"
        return fitted(_shown(result), (*below, *self._of(result, path), *remarks), hint)

    def _of(self, result: Any, path: Path) -> tuple[str, ...]:
        """Return what it is of, and where all of it is kept."""
        file = f"File: {self._folders.shown(path)} ({result.schema}, attnviz {av.__version__})"
        if not isinstance(result, Result):
            return (file,)
        digest = hash_of(result.identity)[:12]
        of = f"Of: {result.source.model}{f' (files {digest})' if digest else ''}"
        seed = "" if result.seed is None else f"; seed {result.seed}"
        texts = f"; {result.texts:,} text{'s' * (result.texts != 1)}" if result.texts else ""
        return (f"{of}{texts}{seed}{'; interrupted' * result.partial}", file)

    def _looked(
        self, tool: str, capture: Capture, heads: str, path: Path, picture: bool
    ) -> ToolAnswer:
        chosen = [head for head in select(heads, capture.layout) if capture.holds(head)]
        if not chosen:
            raise SelectionError("{select} are not in this capture; look again", select=heads)
        lines = []
        for head in chosen:
            sides, weights = capture.sides(head), capture[head]
            lines.append(f"head {capture.layout.name(head)}: query, its keys with most weight")
            names = token_labels(sides.keys)
            for row, query in enumerate(token_labels(sides.queries)):
                best = weights[row].argsort()[::-1][:_KEYS]
                keys = [f"{names[key]} ({key}) {weights[row, key]:.2f}" for key in best]
                lines.append(f"{query} ({row}): {', '.join(keys)}")
        source = capture.source
        name = self._folders.shown(path)
        notes = (
            f"How: {HOW[tool]}",
            f"Of: {source.model}, {source.backend} backend, {source.device} {source.dtype}",
            f"File: {name} (recorded maps, attnviz {av.__version__})",
        )
        png = None
        if picture:
            png = av.heatmap(capture, heads).to_bytes("png")
        return ToolAnswer(fitted("\n".join(lines), notes, f"read {name} with fewer heads"), png)


def _check_form(result: Renderable, tool: str, save: str) -> None:
    """UsageError for a form that results of this kind do not have."""
    forms = [suffix.removeprefix(".") for suffix in result.suffixes()]
    if save not in forms:
        choices = ", ".join(form for form in get_args(Form) if form in forms)
        raise UsageError(
            "a result of {} has no {}; {save} writes it as {}", tool, save, choices, save=...
        )


def _shown(result: Any) -> str:
    """Return a result as a terminal shows it."""
    if isinstance(result, Renderable):
        return str(result)
    from attnviz.features.shapes.table import Paint, as_text

    return as_text(result, 200, Paint(colour=False)) if result.tables else result.title


def _table(records: Sequence[dict[str, Any]], heads: str | None, first: int) -> str:
    """Rows of a table that name some heads, as CSV of four digits."""
    names = {name.strip() for name in (heads or "").split(",")} - {""}
    rows = [row for row in records if not names or names & _named(row)]
    if not rows[first:]:
        raise SelectionError(
            "{select} and {first} leave none of {} rows; read the file without them",
            len(records), select=..., first=...,
        )  # fmt: skip
    page = rows[first : first + _ROWS]
    columns = [name for name in page[0] if any(row.get(name) is not None for row in page)]
    lines = [",".join(columns)]
    lines += [",".join(_cell(row.get(name)) for name in columns) for row in page]
    room = 1200
    for count, line in enumerate(lines):
        room -= tokens(line)
        if room < 0 and count > 1:
            tail = len(rows) - first - count + 1
            return "\n".join([*lines[:count], "", f"{tail} more rows: first={first + count - 1}"])
    return "\n".join(lines)


def _named(row: dict[str, Any]) -> set[str]:
    """Return the words in a row's cells that hold names."""
    return {word for cell in row.values() if isinstance(cell, str) for word in cell.split()}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "" if value is None else str(value)
    return f'"{text}"' if "," in text else text
