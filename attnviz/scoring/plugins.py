"""Where users' scores come from: a Python file that is named, or packages that are installed.

A plugin runs its author's code, so nothing is loaded that was not named or installed on purpose.
Other processes import the same modules again, and so know the same scores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnviz.core.interface import interface
from attnviz.core.scores import UserDefined
from attnviz.errors import AttnvizError, InputError, Message, UsageError

GROUP = "attnviz.scores"
"""The group of entry points that packages name their modules in."""

_MODULES: dict[str, str] = {}
"""Modules that have registered something, and the folders that they are imported from."""


def qualified_name(function: Callable[..., Any]) -> str:
    """Where a function is defined, ``my_scores.numbers``."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{name}"


@contextmanager
def running(subject: str, remedy: str = "") -> Iterator[None]:
    """In the ``with`` block a user's code runs, which can neither end nor spoil what it is part of.

    What it prints goes to standard error, since standard output may be JSON.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except AttnvizError:
        raise
    except (Exception, SystemExit) as error:
        message = Message("{} failed: {}", subject, _said(error))
        if remedy:
            raise UsageError("{}; {}", message, remedy) from error
        raise UsageError(message) from error


@dataclass(frozen=True, slots=True)
class Guarded:
    """A user's function with what messages call it: ``score 'numbers' (my_scores.numbers)``."""

    function: Callable[..., Any]
    named: str

    def __call__(
        self, argument: Any, *, context: str = "", read: Callable[[Any], Any] = lambda value: value
    ) -> Any:
        """Call the function and read its value; an error in either is a UsageError that names it.

        ``context``: what it was called with, for the message.
        """
        with running(f"the {self.named}{context}"):
            return read(self.function(argument))

    def holds(self, argument: Any) -> bool:
        """Call a function that answers yes or no."""
        return bool(self(argument, read=bool))


def remember(function: Any) -> None:
    """Note that a function was registered; other processes find it in its module, if anywhere."""
    importable = "<" not in getattr(function, "__qualname__", "<")  # no lambda, and in no function
    name = function.__module__ if importable else "__main__"
    file = getattr(sys.modules.get(name), "__file__", None)
    above = name.count(".") + (file is not None and Path(file).name == "__init__.py")
    _MODULES[name] = "" if file is None else str(Path(file).resolve().parents[above])


def here_alone() -> bool:
    """Whether something is registered that other processes cannot import."""
    return "__main__" in _MODULES


def modules() -> tuple[tuple[str, str], ...]:
    """Give the modules that have registered something, with their folders, for another process."""
    if here_alone():
        raise UsageError(
            "functions that are defined in a notebook, in the script itself or in another function "
            "are not known to other processes; put them into a file and import it, or use {jobs}",
            jobs=1,
        )
    return tuple(_MODULES.items())


def restore(modules: Sequence[tuple[str, str]]) -> None:
    """Import what another process has registered; see :func:`modules`."""
    for name, folder in modules:
        if find_spec(name.partition(".")[0]) is None:
            sys.path.append(folder)
        with running(f"the plugin {name}"):
            import_module(name)


@interface
def load_plugins(*files: str | Path) -> tuple[str, ...]:
    """Run Python files that register scores and roles; without any, those of installed packages.

    The command line does both: ``--plugin my_scores.py`` runs that file, and packages that are
    installed with entry points in the group ``attnviz.scores`` are found by themselves. A file is
    imported as a module of its own name, once; its folder is appended to ``sys.path``, so that
    worker processes find it too.

    Args:
        files: as ``my_scores.py``.

    Returns:
        The names of the modules.

    Raises:
        InputError: no such file, or it is none of Python's.
        UsageError: a name that a module has already, or an error in the plugin, which is named.
    """
    if not files:
        return _installed()
    return tuple(_load(Path(name)) for name in files)


@cache
def _installed() -> tuple[str, ...]:
    if not _declared():
        return ()
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    for point in points:
        package = "a package" if point.dist is None else f"the package {point.dist.name}"
        with running(
            f"{package} names {point.value} in the entry points {GROUP}, and that",
            Message(
                "mend or uninstall it, or leave out all installed ones by {plugin}", plugin="none"
            ),
        ):
            point.load()
    return tuple(point.module for point in points)


def _declared() -> bool:
    """Whether any installed package names the group; reading all their metadata takes longer."""
    files = (
        file for folder in sys.path for file in Path(folder or ".").glob("*-info/entry_points.txt")
    )
    return any(f"[{GROUP}]" in file.read_text("utf-8", "replace") for file in files)


def _load(path: Path) -> str:
    """Import one file."""
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise InputError(
            f"{path} is no Python file that can be imported; name it like my_scores.py"
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist; give the Python file that registers your scores")
    name, folder = path.stem, str(path.resolve().parent)
    if folder not in map(os.path.abspath, sys.path):
        sys.path.append(folder)
    other = sys.modules.get(name)
    origin = getattr(other, "__file__", None) if other else getattr(find_spec(name), "origin", None)
    if origin is None or Path(origin).resolve() != path.resolve():
        raise UsageError(
            f"{path} has the name of a module that is there already, {name} ({origin}); give the "
            "file another name"
        )
    with running(f"the plugin {path}"):
        import_module(name)
    return name


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it calls sys.exit"
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def user_defined() -> tuple[UserDefined, ...]:
    """Return the scores and roles that users have registered."""
    from attnviz.scoring.roles import ROLES
    from attnviz.scoring.scores import SCORES

    listed = [UserDefined("score", s.name, s.user, s.formula) for s in SCORES.values() if s.user]
    for role in ROLES.values():
        if role.user:
            (evidence,) = role.evidence
            needs = f"{evidence.score} ≥ {evidence.mean:g} and ≥ {evidence.lift:g} × chance"
            listed.append(UserDefined("role", role.name, role.user, needs))
    return tuple(listed)
