"""Token texts made fit to be shown: nothing raw, nothing invisible, nothing out of line.

A token may hold anything: a newline, an escape sequence, a bidirectional override, half a
grapheme. :func:`visible` turns every character that would act on the screen instead of appearing
on it into a printable stand-in; the other functions cut, pad and isolate what is left, measured
in terminal cells.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, overload

from rich.cells import cell_len

from attnviz.core.quantities import QUANTITIES
from attnviz.drawing import paper

if TYPE_CHECKING:
    from attnviz.core.capture import Capture
    from attnviz.core.provenance import SourceInfo
    from attnviz.core.scores import Role, Score, ScoredHeads
    from attnviz.core.tokens import Tokens

ELLIPSIS = "…"
TITLE_LINES = 2  # a title above a small map takes no more
_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"
_STAND_INS = {"\n": "↵", "\t": "⇥"}
_TYPED = (
    dict.fromkeys("“”„‟«»″", '"') | dict.fromkeys("‘’‚‛‹›′", "'") | dict.fromkeys("‐‑‒–—―−", "-")
)
"""Quotes and dashes, and what a keyboard has for them."""
_ASCII_STAND_INS = str.maketrans(
    {"↵": "\\n", "⇥": "\\t", "·": "_", "…": "~", "◌": "", "∅": "<>"} | _TYPED
)
_ASCII_SIGNS = str.maketrans(
    {"·": ".", "×": "x", "→": "->", "←": "<-", "↓": "v", "↑": "^", "…": "~", "✓": "ok", "✗": "x"}
    | {"‖": "|", "α": "a", "Σ": "sum ", "±": "+-", "≥": ">=", "≤": "<=", "≈": "~", "√": "sqrt "}
    | _TYPED
)
_NEARLY_ALL = 0.9  # above this share of the rows, what a head does is simply what it does
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
"""Categories of characters that act, or have no shape that all fonts agree on."""
_VARIATION_SELECTORS = range(0xFE00, 0xFE10)
_CAPTION = 160  # cells of a text below a picture
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})


def _shown(char: str) -> str:
    """One character, or what stands for it when it would not be seen as itself."""
    if char in _STAND_INS:
        return _STAND_INS[char]
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if char != " " and unicodedata.category(char) in _UNSEEN:
        return f"<U+{code:04X}>"
    return char


def quoted(token: str) -> str:
    """Return a token in quotes, with nothing raw or invisible in it."""
    return f"“{visible(token)}”"


def visible(text: str, *, ascii_only: bool = False) -> str:
    """``text`` with nothing in it that acts on a screen or cannot be seen.

    Newlines become ``↵``, tabs ``⇥``, other C0 controls their control pictures (``␛``), leading
    and trailing spaces ``·``; format characters (bidirectional overrides, zero-width joiners),
    exotic spaces, private-use and unassigned characters ``<U+202E>``. A combining mark without a
    base gets a dotted circle, and an empty text reads ``∅``. A variation selector that follows a
    character is left out: terminals do not agree on its width.
    """
    core = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    trail = len(text) - lead - len(core) if core else 0
    out: list[str] = ["·" * lead]
    for index, char in enumerate(core):
        if ord(char) in _VARIATION_SELECTORS:
            if index == 0:
                out.append(f"<U+{ord(char):04X}>")
            continue
        if index == 0 and unicodedata.category(char) in {"Mn", "Mc", "Me"}:
            out.append("◌")
        out.append(_shown(char))
    out.append("·" * trail)
    joined = "".join(out) or "∅"
    if not ascii_only:
        return joined
    joined = joined.translate(_ASCII_STAND_INS)
    return "".join(char if char.isascii() else f"<U+{ord(char):04X}>" for char in joined)


def signs(text: str, ascii_only: bool) -> str:
    """Our own words with their few typographic signs, or with plain ones where they must be."""
    return text.translate(_ASCII_SIGNS) if ascii_only else text


def token_labels(tokens: Tokens, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the visible text of each token."""
    return tuple(visible(text, ascii_only=ascii_only) for text in tokens.texts)


def row_labels(tokens: Tokens, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Label query rows: one that chose the next token, which the model wrote, says so."""
    labels = token_labels(tokens, ascii_only=ascii_only)
    first = len(tokens) - tokens.written - 1
    return tuple(
        f"{label} {signs('→', ascii_only)} {labels[index + 1]}"
        if tokens.written and first <= index < len(labels) - 1
        else label
        for index, label in enumerate(labels)
    )


def clusters(text: str) -> list[str]:
    """``text`` in pieces that must not be torn apart: a character and the marks on it."""
    out: list[str] = []
    for char in text:
        if out and unicodedata.category(char) in {"Mn", "Mc", "Me"}:
            out[-1] += char
        else:
            out.append(char)
    return out


@overload
def rounded(value: float, digits: int = 6) -> float: ...
@overload
def rounded(value: float | None, digits: int = 6) -> float | None: ...
def rounded(value: float | None, digits: int = 6) -> float | None:
    """Return a number of so many significant digits, more than a page shows; None for None."""
    return None if value is None else float(f"{value:.{digits}g}")


def shorten(text: str, cells: int, *, ascii_only: bool = False) -> str:
    """``text`` cut to at most ``cells`` terminal cells, with an ellipsis where it was cut."""
    if cell_len(text) <= cells:
        return text
    mark = _ASCII_STAND_INS[ord(ELLIPSIS)] if ascii_only else ELLIPSIS
    if cells < 1:
        return ""
    out, width = "", 0
    for piece in clusters(text):
        size = cell_len(piece)
        if width + size > cells - 1:
            break
        out, width = out + piece, width + size
    return out + mark


def title_lines(lines: Sequence[str]) -> list[str]:
    """At most :data:`TITLE_LINES` lines of a wrapped title, with an ellipsis where it goes on."""
    first = list(lines[:TITLE_LINES])
    if len(lines) > TITLE_LINES:
        first[-1] = first[-1].rstrip(",") + ELLIPSIS
    return first


def isolate(text: str) -> str:
    """Put right-to-left script in isolates, so that its neighbours in a row keep their order."""
    if any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text):
        return f"{_FIRST_STRONG_ISOLATE}{text}{_POP_ISOLATE}"
    return text


def fit(
    text: str,
    cells: int,
    align: Literal["left", "right", "center"] = "left",
    *,
    ascii_only: bool = False,
) -> str:
    """``text`` cut or padded to exactly ``cells`` terminal cells, isolated if right-to-left."""
    cut = shorten(text, cells, ascii_only=ascii_only)
    spare = cells - cell_len(cut)
    left = {"left": 0, "right": spare, "center": spare // 2}[align]
    return " " * left + isolate(cut) + " " * (spare - left)


def upright(labels: Iterable[str], height: int, *, ascii_only: bool = False) -> list[list[str]]:
    """Labels written downwards, one character a line, ending on the last line."""
    columns = []
    for label in labels:
        pieces = clusters(label)
        if len(pieces) > height:
            mark = _ASCII_STAND_INS[ord(ELLIPSIS)] if ascii_only else ELLIPSIS
            pieces = [*pieces[: height - 1], mark]
        columns.append(pieces)
    lines = max((len(pieces) for pieces in columns), default=0)
    padded = [[""] * (lines - len(pieces)) + pieces for pieces in columns]
    return [[column[line] for column in padded] for line in range(lines)]


def counted(number: int, noun: str) -> str:
    """How many of something there are: ``1 text``, ``1,024 texts``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listing(names: Sequence[str]) -> str:
    """Names within a sentence: ``0.5``, ``0.5 and 1.4``, ``0.5, 1.4 and 2.0``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def number(value: float) -> str:
    """Return a score for people: two decimals, three below 0.1, ``<0.001`` instead of nothing."""
    if value != 0 and abs(value) < 0.001:
        return "<0.001" if value > 0 else ">-0.001"
    return f"{value:.3f}" if abs(value) < 0.0995 else f"{value:.2f}"


def cell_number(value: float) -> str:
    """Write a weight or norm in four cells, five below 0: ``.97``, ``1.0``; a dot for nearly 0."""
    if value <= -0.005:
        return f"−{cell_number(-value)}"
    if value < 0:
        return "."
    if value < 0.005:
        return "." if value > 0 else " "
    if value < 0.995:
        return f"{value:.2f}"[1:]
    if value < 9999.5:
        return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
    return f"{value:.0e}".replace("e+0", "e")


def times(score: Score) -> str:
    """Return the lift of a score over chance, as ``12×``, or a dash where it means nothing."""
    if score.lift is None:
        return "–"
    return f"{score.lift:.0f}×" if score.lift >= 9.95 else f"{score.lift:.1f}×"


def known_decimals(low: float, high: float, least: int = 0) -> int:
    """How many decimals of a number its interval leaves known, up to four."""
    half = (high - low) / 2
    return max(least, min(4, 1 - math.floor(math.log10(half)))) if half > 0 else 4


def percent(share: float) -> str:
    """Return a share for people: ``12 %``, ``<1 %`` of more than nothing, ``-3 %`` of less."""
    if abs(share) >= 0.005:
        return f"{100 * share:.0f} %"
    return "<1 %" if share > 0 else "0 %"


class _Counted(Protocol):
    """In how many texts something is, at least, as a share."""

    @property
    def least(self) -> float: ...


_TOLD = 0.005  # a share that is not 0 % when it is written


def in_part(ways: Iterable[tuple[str, _Counted | None]]) -> str:
    """``worse in 34 % or more``: of the texts, surely; empty where it may be in none."""
    return ", ".join(
        f"{way} in {percent(count.least)} or more"
        for way, count in ways
        if count is not None and count.least >= _TOLD
    )


def role_phrase(role: Role) -> str:
    """Return a role with its score: ``previous 0.97``, ``diffuse 93 % of the maximum``."""
    mean = role.evidence.mean
    if mean is None:
        return role.title
    if role.score == "entropy_share":
        return f"{role.name} {percent(mean)} of the maximum"
    return f"{role.title} {number(mean)}{_off_sink(role)}"


def role_name(role: Role) -> str:
    """Return a role as it stands beside its score: ``induction``, ``induction off the sink``."""
    return f"{role.title}{_off_sink(role)}"


def _off_sink(role: Role) -> str:
    return " off the sink" if role.score.endswith("_no_sink") else ""


def possible(role: Role) -> str:
    """On how many of its rows a head could show a role, where that is not nearly all of them."""
    return "" if role.possible is None or role.possible >= _NEARLY_ALL else percent(role.possible)


def head_phrase(roles: Sequence[Role]) -> str:
    """Say what a head does and where it rests: ``does induction 0.61 ..., sink: first``."""
    acts = ", ".join(_where_possible(role) for role in roles if not role.rests)
    rests = [role for role in roles if role.rests]
    if acts:
        return ", ".join(
            [
                f"does {acts}",
                *(f"sink: {role.name}" if role.name != "diffuse" else role.name for role in rests),
            ]
        )
    return ", ".join(map(rest_phrase, rests))


def rest_phrase(role: Role) -> str:
    """Where a head rests, with its score: ``sink: first 0.65``."""
    return role_phrase(role) if role.name == "diffuse" else f"sink: {role_phrase(role)}"


def _where_possible(role: Role) -> str:
    rows = possible(role)
    return role_phrase(role) + (f" where possible ({rows} of rows)" if rows else "")


def head_title(name: str, roles: Sequence[Role]) -> str:
    """Title a picture: ``head 4.11: does previous 0.97``, ``perhaps`` of few rows, ``layer 4``."""
    named = f"head {name}"
    if name.endswith(".*"):
        named = "all heads" if name.endswith("*.*") else f"layer {name.removesuffix('.*')}"
    elif name.rpartition(":")[2].startswith("*."):
        named = f"head {name.rpartition('.')[2]} of the layers"
    few = [role.few_rows for role in roles if not role.rests]
    hedge = "perhaps " if few and all(few) else ""
    return named + (f": {hedge}{head_phrase(roles)}" if roles else "")


def mean_warning(mean: str) -> str:
    """Return what stands below a picture of means."""
    over = {"heads": "the heads of a layer", "layers": "layers"}.get(mean, "all heads")
    return f"mean over {over}, which hides what single heads do"


def said_alone(text: str) -> str:
    """Return a token among numbers and commas: in quotes where it is nothing but marks."""
    return text if any(char.isalnum() for char in text) else f"“{text}”"


def model_name(info: SourceInfo) -> str:
    """Return the model as the user named it, a long path by its last two folders."""
    name = visible(paper.current().name or info.model)
    parts = name.split("/")
    return name if len(name) <= 40 or len(parts) < 3 else "…/" + "/".join(parts[-2:])


def caption(info: SourceInfo, texts: Sequence[str]) -> str:
    """Return the model and what it read, to stand below a picture."""
    read = shorten(visible(" / ".join(texts)), _CAPTION) if texts else ""
    return f"{model_name(info)}: {read}" if read else model_name(info)


class _Quantified(Protocol):
    """What is of some quantity."""

    @property
    def quantity(self) -> str:
        """A name of :data:`attnviz.core.quantities.QUANTITIES`."""


def said(result: _Quantified) -> str:
    """Say what was measured in place of attention weights; empty where it was those."""
    if result.quantity == "weights":
        return ""
    quantity = QUANTITIES[result.quantity]
    scored = hasattr(result, "heads")
    formula = f"|{quantity.formula}|" if scored and quantity.states else quantity.formula
    return f"of {formula}" + (", rows divided by their sums" if scored else "")


def origin(result: ScoredHeads | Capture, *captures: Capture) -> str:
    """Where weights come from, in one line: model, backend, exactness, tokens, device."""
    info = result.source
    lengths = {
        (len(sides.queries), len(sides.keys)): None for sides in result.inputs.sides.values()
    }
    tokens = ", ".join(str(t) if t == s else f"{t}×{s}" for t, s in lengths)
    if captures:
        total = sum(_tokens(capture) for capture in (result, *captures))
        tokens = f"{1 + len(captures):,} texts, {total:,}"
    parts = [
        model_name(info),
        backend(info),
        f"{tokens} token{'s' * (tokens != '1')}" if tokens else "",
        f"{info.device} {info.dtype}",
        said(result),
    ]
    return " · ".join(part for part in parts if part)


def backend(info: SourceInfo) -> str:
    """Say which backend ran and how far it can be trusted; of the hooks, that they were checked."""
    if info.backend == "hooked":
        parts = [
            re.sub("^hooked, (outputs )?.*", r"\1checked against eager", part)
            for part in info.exactness.split("; ")
        ]
        return f"hooked backend · {visible('; '.join(parts))}"
    named = f"{info.backend} backend" + (f" ({visible(info.reason)})" if info.reason else "")
    return " · ".join(filter(None, [named, info.exactness and visible(info.exactness)]))


def _tokens(result: ScoredHeads | Capture) -> int:
    """How many tokens a model read: those of every sequence once."""
    sides = result.inputs.sides.values()
    return sum(map(len, {tokens for side in sides for tokens in (side.queries, side.keys)}))


def tick_step(least: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, ... that is at least ``least``."""
    decade = 1
    while True:
        for digit in (1, 2, 5):
            if digit * decade >= least:
                return digit * decade
        decade *= 10


def ran_on(info: SourceInfo) -> str:
    """Return the model and what ran it, as a part of a line."""
    return f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}"


def closing(info: SourceInfo, *between: str) -> str:
    """Return the model and how it ran, in one line."""
    ran = (f"{info.backend} backend", *between, f"{info.device} {info.dtype}")
    return " · ".join((model_name(info), *ran))


def ranges(numbers: Sequence[int]) -> str:
    """All of some layers: ``0-11``, ``1, 3, 5``, ``0-4, 6-10``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
