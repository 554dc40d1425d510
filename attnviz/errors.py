"""Everything attnviz raises on purpose, and the sentences in which it says so.

The whole tree::

    AttnvizError           the work cannot be done                    exit code 1
    ├── UsageError         wrong use: options, sizes, a selection     exit code 2
    │   ├── SizeError      layer sizes that do not fit together
    │   └── SelectionError heads that are not there, or junk
    ├── InputError         a text, ids or a recorded file is unusable
    ├── ModelError         a model, its weights or its tokenizer
    │   └── DeviceError    a device that is not there
    ├── OutputError        a file that cannot be written
    └── PackageError       a package that is not installed

    AttnvizWarning         what is done, but may not be meant: a capture of gigabytes

Every message is one line: what was wrong, the value, the remedy. It names parameters as fields, for
everyone calls them differently: Python ``device='cpu'``, the command line ``--device cpu``. Only
``attnviz.cli`` catches these errors; anything else that escapes is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, NamedTuple, Self

_LONGEST = 600  # characters of a message; whatever is repeated in it may have more

Say = Callable[[str, Any], str]
"""Words for a parameter: its name, and its value or ``...`` where the name alone is meant."""


class Setting(NamedTuple):
    """A parameter that a message speaks of, with a value or without."""

    name: str
    value: Any = ...


class Message(str):
    """A sentence that knows of which parameters it speaks; as a string it says them as Python does.

    Args:
        template: as for ``str.format``: named fields are parameters, the others are values. Given
            alone it is the sentence itself, braces and all.
        values: of the fields without a name; a Setting or a Message among them is worded too.
        parameters: each with the value that is spoken of, or with ``...`` for the name alone.

    >>> print(Message("{} GB do not fit; use {device} or lower {seq}", 9, device="cpu", seq=...))
    9 GB do not fit; use device='cpu' or lower seq
    """

    template: str
    values: tuple[object, ...]
    parameters: Mapping[str, object]

    def __new__(cls, template: str, /, *values: object, **parameters: object) -> Self:
        """Word it for Python; raises KeyError for a field that is not given."""
        message = super().__new__(cls, _worded(template, values, parameters, in_python))
        message.template, message.values, message.parameters = template, values, parameters
        return message

    def worded(self, say: Say) -> str:
        """Return the sentence with other words for its parameters."""
        return _worded(self.template, self.values, self.parameters, say)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Message, self.template, *self.values, **self.parameters), ()


def cut(text: str) -> str:
    """Return a text for a message, cut where it is long."""
    return text if len(text) <= 40 else text[:39] + "…"


def encodable(text: str) -> str:
    """Make a text that every file can hold: half a character, of a name not UTF-8, is spelled."""
    return text.encode("utf-8", "backslashreplace").decode()


def in_python(name: str, value: Any = ...) -> str:
    """Return a parameter as Python calls it: ``seq``, ``seq=4``, ``causal=True``."""
    if value is ...:
        return name
    return f"{name}={str(value) if isinstance(value, PurePath) else value!r}"


def _worded(
    template: str, values: tuple[object, ...], parameters: Mapping[str, object], say: Say
) -> str:
    if not values and not parameters:
        return _one_line(template)
    parts = [
        say(*value)
        if isinstance(value, Setting)
        else value.worded(say)
        if isinstance(value, Message)
        else value
        for value in values
    ]
    named = {name: say(name, value) for name, value in parameters.items()}
    return _one_line(template.format(*parts, **named))


def _one_line(text: str) -> str:
    """Return a message as one line, without the middle of one that nobody would read."""
    text = " ".join(text.splitlines())
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - _LONGEST // 3]} … {text[-_LONGEST // 3 :]}"


def install(package: str) -> str:
    """How to get what is missing: ``pip install "attnviz[mcp]"``, in these words everywhere."""
    return f'pip install "{package}"' if "[" in package else f"pip install {package}"


class AttnvizError(Exception):
    """The work cannot be done; the message is one line a user can act on.

    Args:
        what: what was wrong, with the value: a sentence, or a template as for :class:`Message`.
        values: for its fields without a name.
        remedy: what to do about it; a template too.
        parameters: those that the message speaks of.

    Attributes:
        message: all of it, ``what; remedy``, also ``str(error)``.
        what: the first part of it.
    """

    exit_code = 1

    def __init__(
        self, what: str, /, *values: object, remedy: str = "", **parameters: object
    ) -> None:
        if isinstance(what, Message):
            self.what = self.message = what
        else:
            self.what = Message(what, *values, **parameters)
            message = f"{what}; {remedy}" if remedy else what
            self.message = Message(message, *values, **parameters)
        super().__init__(self.message)

    @property
    def remedy(self) -> str:
        """What to do about it; empty where that is not said apart."""
        return self.message[len(self.what) + 2 :]

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters that the message speaks of, ``...`` for those without a value."""
        listed = [value for value in self.message.values if isinstance(value, Setting)]
        return {**dict(listed), **self.message.parameters}


class UsageError(AttnvizError):
    """attnviz was asked for something that makes no sense."""

    exit_code = 2


class SizeError(UsageError):
    """Layer sizes that do not fit together (D not divisible by H, a size of zero, ...)."""


class SelectionError(UsageError):
    """A head selection that cannot be read, or names heads that do not exist."""


class InputError(AttnvizError):
    """A text, a list of token ids or a recorded file that cannot be used."""


class ModelError(AttnvizError):
    """A model, its weights or its tokenizer that cannot be used."""


class DeviceError(ModelError):
    """A device that is not present on this machine."""


class OutputError(AttnvizError):
    """A file that cannot be written."""


class PackageError(AttnvizError):
    """A package that is needed and not installed."""


class AttnvizWarning(UserWarning):
    """Something that is done as asked, but may not be meant, such as a capture of gigabytes."""


class FileNameWarning(AttnvizWarning):
    """A text that is the name of a file; the command line says the same with its options."""


_NOWHERE = (FileNotFoundError, NotADirectoryError)


@contextmanager
def system_errors(kind: type[AttnvizError], what: str) -> Iterator[None]:
    """In the ``with`` block, what the system refuses is our error: ``what: Permission denied``.

    Where a path leads nowhere, or a file cannot be written, the remedy is another one.
    Even asking whether a file is there can be refused: its name is too long, or holds what no name
    can hold, or nobody may search its folder.
    """
    try:
        yield
    except OSError as error:
        if issubclass(kind, OutputError):
            remedy = "choose another place"
        else:
            remedy = "check the path" if isinstance(error, _NOWHERE) else ""
        message = f"{what}: {error.strerror or error}"
        raise kind(f"{message}; {remedy}" if remedy else message) from None
    except ValueError as error:
        if not (isinstance(error, UnicodeEncodeError) or "null byte" in str(error)):
            raise
        raise kind(f"{what}: no file can have this name; check the path") from None


def absent(error: BaseException) -> PackageError | None:
    """Name the package, as pip calls it, that an error says is not there; None for others."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    top = (name or "").partition(".")[0]
    if top in ("", "attnviz") or find_spec(top) is not None:
        return None
    package = {"PIL": "pillow"}.get(top, top.replace("_", "-"))
    return PackageError("this needs {}, which is not installed; {}", package, install(package))


@contextmanager
def named_packages() -> Iterator[None]:
    """In the ``with`` block, or the function, a package that is not installed is our error."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (named := absent(error)) is None:
            raise
        raise named from error


EXTRAS = {"pyarrow": "parquet", "soundfile": "audio", "ray": "ray"}
"""Packages that not everybody has, and the extra of attnviz that each comes with."""


def require(package: str, what: object) -> None:
    """UsageError for ``what``, a file or a :class:`Setting`, if it needs a package of EXTRAS."""
    if find_spec(package) is None:
        raise missing(package, what)


def missing(package: str, what: object) -> UsageError:
    """Return what to raise where a package is not there, or does not work."""
    return UsageError("{} needs {}; {}", what, package, install(f"attnviz[{EXTRAS[package]}]"))
