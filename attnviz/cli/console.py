"""Where commands print: results to standard output, all else to standard error; exit codes."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from unicodedata import category

from attnviz import files
from attnviz.cli import declared
from attnviz.errors import AttnvizError, AttnvizWarning, FileNameWarning

if TYPE_CHECKING:
    from rich.console import Console


EVERY = 30.0
"""Seconds between two lines."""


class Log:
    """Says how far some work is: done, rate, and the time that is left.

    ``clock``: seconds, for tests.
    """

    def __init__(self, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._on, self._clock = not quiet and not sys.stderr.isatty(), clock
        self._unit = ""
        self._start = self._last = clock()
        self._first = 0

    def tell(self, unit: str, count: int, total: int | None) -> None:
        """So much is done; printed if the last line is old enough."""
        moment = self._clock()
        if unit != self._unit:
            self._unit, self._first, self._start = unit, count, moment
        if not self._on or moment - self._last < EVERY:
            return
        self._last = moment
        rate = (count - self._first) / max(moment - self._start, 1e-9)
        noun = unit.removesuffix("s") if count == 1 and total is None else unit
        parts = [f"{count:,} {noun}" if total is None else f"{count:,} of {total:,} {unit}"]
        parts += [pace(rate)] if rate > 0 else []
        if total is not None and rate > 0:
            minutes, seconds = divmod(round(max(total - count, 0) / rate), 60)
            parts.append(f"{minutes:,}:{seconds:02d} left")
        sys.stderr.write(f"attnviz: {', '.join(parts)}\n")
        sys.stderr.flush()


def pace(rate: float) -> str:
    """So many a second, or of slower work a minute, an hour or a day."""
    for unit, seconds, least in (("second", 1, 1.0), ("minute", 60, 0.1), ("hour", 3600, 0.1)):
        if rate * seconds >= least:
            return f"{rate * seconds:,.1f} {'an' if unit == 'hour' else 'a'} {unit}"
    return f"{rate * 86400:,.1g} a day"


_SPINNING: list[Callable[[], None]] = []
"""Stops the spinner that turns now, or is about to."""

_ENDLESS = re.compile(r"[^\s/\\]{256,}")
"""A word longer than any file's name."""
_NO_ASCII = re.compile(r"[^ -~\n\r\t]")
"""What may act on a terminal: all else is printed as it is, at once."""

PIPE_WIDTH = 100
"""Columns where there is no terminal to ask."""


def plain(text: str, keep: str = "") -> str:
    """Write what in a text would act on a terminal as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or category(c) not in _ACTING else repr(c)[1:-1] for c in text)


_ACTING = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that act on a terminal, cannot be encoded, or are no characters."""


class _Filter:
    """Passes on all that a console prints, plain but for the console's own styles and codes."""

    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        """See :class:`rich.console.RenderHook`."""
        return [_Plain(part) for part in renderables]


class _Plain:
    """A renderable whose text is plain."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        for text, style, control in console.render(self._part, options):
            yield Segment(text if control else plain(text, "\n"), style, control)


def _console(**options: Any) -> Console:
    """Return a console that prints nothing but plain text and its own styles."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False, **options)
    console.push_render_hook(_Filter())  # type: ignore[arg-type]  # only its method is called
    return console


def stdout() -> Console:
    """Return the console for results; plain and of a fixed width in a pipe."""
    console = _console(color_system=_colors())
    if not console.is_terminal and "COLUMNS" not in console._environ:
        console.width = PIPE_WIDTH
    return console


def _colors() -> Literal["auto", "256"]:
    """256 where the terminal shows as many, whatever rich makes of its name, else what rich says.

    Rich goes by ``$COLORTERM`` and by names that end in ``-256color``, which alacritty's does not,
    and nor does that of an xterm without an ending, as containers and ssh hand it on.
    """
    from rich.console import Console

    if Console().color_system != "standard":
        return "auto"
    if os.environ.get("TERM", "").startswith(_COLOURFUL):
        return "256"
    try:
        import curses

        curses.setupterm()
        return "256" if curses.tigetnum("colors") >= 256 else "auto"
    except (ImportError, OSError, ValueError, curses.error):
        return "auto"


_COLOURFUL = ("xterm", "screen", "tmux", "rxvt", "putty", "linux")
"""Names of terminals that take 256 colours in every version in use, though terminfo says 8."""


def stderr() -> Console:
    """Return the console for notes and progress."""
    return _console(stderr=True)


def note(lines: Iterable[str], quiet: bool) -> None:
    """Say what the user should know beside the result."""
    if not quiet:
        for line in lines:
            stderr().print(f"note: {declared.words(line)}", style="dim")


def growing() -> Callable[[str], None] | None:
    """Return what shows a text on standard error as it grows; None where nobody watches.

    What acts on a terminal is spelled; an empty piece ends the text.
    """
    if not sys.stderr.isatty():
        return None

    def tell(piece: str) -> None:
        for spinner in _SPINNING:
            spinner()
        text = plain(piece, "\n")
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(text.encode(encoding, _ESCAPE).decode(encoding) or "\n")
        sys.stderr.flush()

    return tell


def one_line(text: str) -> str:
    """Put a message on one line, with nothing that acts on a terminal, and no endless word."""
    line = _ENDLESS.sub(lambda word: word[0][:40] + "…", " ".join(text.split()))
    return plain(line)


def wrote(path: Path) -> None:
    """Say that a file was written and how large it is, on one line however long."""
    stdout().print(one_line(files.wrote(path)), soft_wrap=True)


def wrote_page(folder: Path) -> None:
    """Say that a page was written into a folder."""
    line = one_line(f"wrote a page into {folder}, and the index of its pages")
    stdout().print(line, soft_wrap=True)


def put(text: str) -> None:
    r"""Print machine-readable text to standard output.

    What acts on a terminal or cannot be encoded is written as JSON does it, ``\u2192``.
    """
    text = _NO_ASCII.sub(lambda c: c[0] if c[0].isprintable() else _escaped(c[0]), text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = text.encode(encoding, _ESCAPE).decode(encoding)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(*[iter(units)] * 2, strict=True))


_ESCAPE = "attnviz.escape"
codecs.register_error(
    _ESCAPE,
    lambda error: (
        (_escaped(error.object[error.start : error.end]), error.end)
        if isinstance(error, UnicodeEncodeError)
        else ("", 0)
    ),
)


@contextlib.contextmanager
def noting(quiet: bool) -> Iterator[None]:
    """Print the library's warnings as notes, at once; those of others stay what they are."""
    original = warnings.showwarning

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *options: Any
    ) -> None:
        if issubclass(category, FileNameWarning):
            return
        if issubclass(category, AttnvizWarning):
            note([str(message)], quiet)
        else:
            original(message, category, filename, lineno, *options)

    with warnings.catch_warnings():
        warnings.simplefilter("always", AttnvizWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextlib.contextmanager
def waiting(
    message: str, quiet: bool, delay: float = 1.0
) -> Iterator[Callable[[str, int, int], None]]:
    """Show a spinner on standard error once something takes longer than ``delay`` seconds.

    What the library warns of meanwhile is printed as a note. Gives what may be told how far it has
    come: what is counted, how many are done, and of how many; in a log that is a line now and then.
    """
    if quiet or not sys.stderr.isatty():
        with noting(quiet):
            yield Log(quiet).tell
        return
    status = stderr().status(message)
    timer = threading.Timer(delay, status.start)
    timer.daemon = True
    timer.start()

    def stop() -> None:
        timer.cancel()
        timer.join()
        status.stop()

    def tell(unit: str, count: int, total: int) -> None:
        status.update(message if count >= total else f"{message}: {count:,} of {total:,} {unit}")

    _SPINNING.append(stop)
    try:
        with noting(quiet), _loading(tell):
            yield tell
    finally:
        _SPINNING.remove(stop)
        stop()


@contextlib.contextmanager
def _loading(tell: Callable[[str, int, int], None], delay: float = 1.0) -> Iterator[None]:
    """Tell how far a model is loaded inside the block, once it takes ``delay`` seconds."""
    from attnviz.core.settings import LOADING
    from attnviz.core.threads import holding

    begun = time.monotonic()

    def report(unit: str, count: int, total: int) -> None:
        if time.monotonic() - begun > delay:
            tell(unit, count, total)

    with holding(LOADING, report):
        yield


IN_PART = 3
"""Some texts could not be used and the rest is done."""
DIFFERS = 4
"""A check does not hold: of ``diff --fail-over``, ``shapes --show verify``, ``card --check``."""
NOTHING_COMPARED = 5
"""What a check is about is not there."""
BUG = 70
INTERRUPTED = 130

CODES = {
    0: "done; a check that was asked for holds",
    1: "the work cannot be done: a text, a model, a file",
    2: "wrong use: options, sizes, a selection of heads or tokens",
    IN_PART: "done, but for some texts that could not be used (export, profile)",
    DIFFERS: "a check does not hold (check, card --check, diff --fail-over, shapes --show verify)",
    NOTHING_COMPARED: "there was nothing to check (card --check, diff --fail-over)",
    BUG: "a bug",
    INTERRUPTED: "interrupted",
}
"""What each says, of every command."""


class Interrupted(AttnvizError):
    """Ctrl-C, with what is left to say."""

    exit_code = INTERRUPTED


class TextsBar:
    """A bar over many texts, which says what cannot be used; in a log a line now and then.

    ``columns``: of the bar, behind how many texts are done; ``fields`` of them at the start;
    ``count`` says about how many texts will come; ``cap`` that cannot be used are named.
    """

    def __init__(
        self, unit: str, columns: Sequence[str], count: Callable[[], int | None], *, quiet: bool,
        cap: int = sys.maxsize, **fields: Any,
    ) -> None:  # fmt: skip
        self._columns, self._fields, self._total = (unit, *columns), fields, None
        self._cap, self._told = cap, 0
        with suppress(AttnvizError):  # the run itself says what is wrong
            self._total = None if quiet else count()
        self._shown, self._log = not quiet and sys.stderr.isatty(), Log(quiet)
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            unit, rate, *columns = map(TextColumn, self._columns)
            self._progress = Progress(
                unit, BarColumn(), rate, TimeRemainingColumn(), *columns,
                console=stderr(), transient=True,
            )  # fmt: skip
            self._task = self._progress.add_task("", total=self._total, **self._fields)
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def skipped(self, bad: Iterable[Any]) -> None:
        """Name what else cannot be used, by its place and reason."""
        for record in bad:
            self._told += 1
            if self._told <= self._cap:
                self._say(f"{record.place}: {declared.words(record.reason)}; skipped")
            elif self._told == self._cap + 1:
                self._say("more texts cannot be used; they are counted")

    def step(self, unit: str, count: int, **fields: Any) -> None:
        """So many are done."""
        self._log.tell(unit, count, self._total)
        self._draw(completed=count, **fields)

    def _draw(self, **fields: Any) -> None:
        if self._progress is not None:
            self._progress.update(self._task, **fields)

    def _say(self, message: str) -> None:
        text = one_line(message)
        if self._progress is not None:
            self._progress.console.print(f"attnviz: {text}", soft_wrap=True)
        else:
            sys.stderr.write(f"attnviz: {text}\n")


class Stages:
    """A bar for each stage, one at a time; in a log a line now and then."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._log = Log(quiet)
        self._around = contextlib.ExitStack()
        self._quiet = quiet
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Stages:
        self._around.enter_context(noting(self._quiet))
        if self._shown:
            self._around.enter_context(_loading(self.show))
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            self._progress = Progress(
                "{task.description}",
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=stderr(),
                transient=True,
            )
        return self

    def __exit__(self, *error: Any) -> None:
        self._around.close()
        if self._progress is not None:
            self._progress.stop()

    def show(self, stage: str, count: int, total: int) -> None:
        """So much of a stage is done."""
        self._log.tell(f"({stage})", count, total)
        if self._progress is None:
            return
        self._progress.start()  # only now: until then a text may grow; again it does nothing
        if stage not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=count, total=total)
