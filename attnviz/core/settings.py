"""Settings are declared once, as fields of a record; everything else follows from the declaration.

    @dataclass(frozen=True)
    class FlowSettings(Settings):
        method: Literal["alti", "rollout"] = setting("alti", "How contributions pass through.")
        limit: int | None = setting(None, "Take the first N texts only.", metavar="N", least=1)

From these follow the signature and the ``Args:`` of the function
(:mod:`attnviz.core.interface`), the options of the command (:mod:`attnviz.cli.declared`), the
checks of both, and the page of all options. A sentence of help speaks of another setting as
``{limit}``: Python reads ``limit``, the command line ``--limit``.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin

from attnviz.core.arguments import check, hints
from attnviz.errors import Setting, UsageError, require

_KEY = "declaration"
_PLAIN = (bool, int, float, str, Path)  # what can be typed or sent, by preference
_COUNTABLE = 2**53  # bounds above are those of a type of number, and tell nobody anything
_NAMED = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of a setting beside its name, type and default."""

    help: str  # one sentence; ``{name}`` speaks of another setting
    short: str | None = None  # the letter of its short option
    spelled: tuple[str, ...] = ()  # its long options, where they are not its name with dashes
    panel: str | None = None  # its group of options, if not its record's; empty for the first one
    metavar: str | None = None  # what stands for its value, where its type does not tell
    least: float | None = None  # the smallest number that it takes, or each of several numbers
    most: float | None = None  # the largest
    items: int | None = None  # of several values, how many there may be
    shown: str | None = None  # the default in words, where its value says little
    common: bool = False  # whether the short help lists it
    argument: bool = False  # whether it is given by its place and without a name
    bare: str | None = None  # what the option means without a value
    parser: Callable[[str], Any] | None = None  # makes its value of what was typed
    # what must be installed where a value is given, see :data:`attnviz.errors.EXTRAS`
    package: str | None = None
    typed: Any = None  # what the command line reads, where the annotation does not tell
    command: bool = True  # whether the command line has it; ``python`` whether the function does
    python: bool = True

    def said(self, say: Callable[[str], str]) -> str:
        """Get the sentence of help with the settings that it names called as ``say`` calls them."""
        return _NAMED.sub(lambda name: say(name[1]), self.help)


def setting(default: Any, help: str, **more: Any) -> Any:
    """Return a field of a record of settings; its default is ``...`` where it must be given.

    ``help`` and ``more`` are of its :class:`Declaration`.
    """
    return _field(default, Declaration(help, **more))


def like(record: Any, name: str, *, default: Any = MISSING, **changes: Any) -> Any:
    """Return a field that is declared as one of another record, but for changes of its Declaration.

    Another default is ``...`` for a setting that must be given.
    """
    original, declared = declarations(record)[name]
    return _field(original.default if default is MISSING else default, replace(declared, **changes))


def _field(default: Any, declared: Declaration) -> Any:
    """Return a field with what is declared of it; without a default it must be given."""
    required = default is MISSING or default is ...
    return field(default=MISSING if required else default, metadata={_KEY: declared})


class Settings:
    """A frozen dataclass of declared settings, which is sound once it is made.

    ``class FlowSettings(Settings, panel="Flow")`` puts its own settings into a group of options,
    but for those that name another and those that are given by their place. UsageError for a value
    of another type than its annotation names, out of its bounds, or (from :meth:`check`) one that
    does not go with another.
    """

    def __init_subclass__(cls, panel: str = "") -> None:
        for attribute in vars(cls).values():
            declared = attribute.metadata.get(_KEY) if isinstance(attribute, Field) else None
            if declared is not None and declared.panel is None and not declared.argument:
                attribute.metadata = {_KEY: replace(declared, panel=panel)}

    def __post_init__(self) -> None:
        for name, (option, declared) in declarations(type(self)).items():
            value = getattr(self, name)
            if option.default is MISSING or value is not option.default:
                _check_count(name, value, declared.items)  # before the items are looked at
                check(name, value, hints(type(self))[name])
                _check_bounds(name, value, declared)
                if declared.package is not None and value is not None:
                    require(declared.package, Setting(name))
        self.check()

    def check(self) -> None:
        """Raise UsageError for values that do not go together."""

    def asked(self) -> dict[str, Any]:
        """Every setting of the function by its name."""
        return {
            name: getattr(self, name)
            for name, (_, declared) in declarations(type(self)).items()
            if declared.python
        }

    def changed(self, *, but: Iterable[str] = ()) -> list[str]:
        """Return the names of settings that are not what they are by default."""
        return [
            name
            for name, (option, _) in declarations(type(self)).items()
            if name not in but and getattr(self, name) != option.default
        ]

    def but(self, **changes: Any) -> Self:
        """Return the same with other values; checked again."""
        return replace(self, **changes)  # type: ignore[type-var]


_DECLARED: dict[Any, dict[str, tuple[Field[Any], Declaration]]] = {}


def declarations(record: Any) -> dict[str, tuple[Field[Any], Declaration]]:
    """Return the declared fields of a record, in their order."""
    if record not in _DECLARED:
        _DECLARED[record] = {
            f.name: (f, f.metadata[_KEY]) for f in fields(record) if _KEY in f.metadata
        }
    return _DECLARED[record]


def records_of(annotations: Mapping[str, Any]) -> dict[str, type[Settings]]:
    """Those parameters of a function that are records of settings, by the names that they have."""
    return {
        name: kind
        for name, kind in annotations.items()
        if name != "return" and isinstance(kind, type) and issubclass(kind, Settings)
    }


def plain_type(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """Find what is read for an annotation where a value is typed or sent, and not an object.

    One of bool, int, float, str and Path, or a list of such; and the words that it can be where
    these are few.
    """
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    choices = tuple(
        str(value)
        for alternative in alternatives
        for value in _literals(alternative)
        if isinstance(value, str)
    )
    for alternative in alternatives:
        if get_origin(alternative) in (list, tuple, Sequence, Iterable):
            return list[plain_type(get_args(alternative)[0])[0]], choices  # type: ignore[misc]
    numbers = {type(value) for literal in alternatives for value in _literals(literal)} - {str}
    kinds = alternatives if choices else (*alternatives, *numbers)
    return next((kind for kind in _PLAIN if kind in kinds), str), choices


def _literals(hint: Any) -> tuple[Any, ...]:
    """Return the values of a Literal; none for other annotations."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def _check_count(name: str, value: Any, limit: int | None) -> None:
    """Refuse more than so many values."""
    if limit is not None and isinstance(value, Sequence) and len(value) > limit:
        raise UsageError("{} has {:,} values; take {:,} at most", Setting(name), len(value), limit)


def _check_bounds(name: str, value: Any, declared: Declaration) -> None:
    """Refuse numbers that are too small, too large or infinite; others pass."""
    least, most = declared.least, declared.most
    if least is None and most is None:
        return
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            _check_bounds(name, item, declared)
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if not math.isfinite(value) or not low <= value <= high:
        bounds = (
            f"at least {least:,.15g}" if most is None or most > _COUNTABLE
            else f"at most {most:,.15g}" if least is None
            else f"from {least:,.15g} to {most:,.15g}"
        )  # fmt: skip
        raise UsageError("{} must be {}, not {:,.15g}", Setting(name), bounds, value)


RUN = "Running"


@dataclass(frozen=True)
class Parallel(Settings, panel=RUN):
    """How the work is divided; the result is the same to the bit."""

    jobs: int = setting(1, "Number of processes, one thread each.", short="j", least=1, most=4096)
    ray: str | None = setting(
        None,
        "Run on Ray: on this machine alone (local), or on the cluster at ADDRESS "
        "(ray://host:10001, with ?gpus=0.25 behind it four to a GPU).",
        metavar="ADDRESS",
        bare="local",
        package="ray",
    )


@dataclass(frozen=True)
class Seeded(Settings):
    """What is drawn at random."""

    seed: int = setting(0, "Seed of all that is drawn at random.", least=0)


Progress = Callable[[str, int, int], None]
"""Called again and again with a stage, how much of it is done, and how much there is."""
LOADING: ContextVar[Progress] = ContextVar(
    "attnviz_loading", default=lambda stage, done, all_: None
)
"""Told how far a model is loaded, where somebody shows it."""


POSITIONS = "A number (from 0; -1 is the last), a range (3-8), a token's text, span:NAME; by comma."
"""How tokens are named, in the help of options that take them."""


def number_or(*words: str) -> Callable[[str], int | str]:
    """Make a reader of a whole number or one of these words; it raises UsageError for others."""

    def read(text: str) -> int | str:
        if text in words:
            return text
        try:
            return int(text)
        except ValueError:
            *names, last = ["a whole number", *words]
            listing = f"{', '.join(names)} or {last}"
            raise UsageError(f"{listing} is needed here, not {text[:40]!r}") from None

    return read


def without_clearest(heads: str | None) -> tuple[str | None, int | None]:
    """Give a selection of heads, and the number of its ``clearest:N``: of these the N clearest."""
    number, remaining = None, []
    for item in () if heads is None else heads.split(","):
        name, colon, count = item.strip().partition(":")
        if name != "clearest" or not colon:
            remaining.append(item)
        elif not (count.isascii() and count.isdigit() and int(count[:9]) > 0 and len(count) < 10):
            raise UsageError("clearest:N takes a number of heads such as 3, not {!r}", count[:40])
        else:
            number = int(count)
    return ",".join(remaining) if remaining else None, number


def number_or_text(text: str) -> int | str:
    """Return a whole number where the text is one, and else the text."""
    return int(text) if re.fullmatch("-?[0-9]{1,18}", text) else text


def numbers(kind: type[int] | type[float]) -> Callable[[Any], tuple[float, ...]]:
    """Give what reads numbers with commas between them; it raises UsageError for anything else."""

    def read(text: Any) -> tuple[float, ...]:
        if not isinstance(text, str):  # the default
            return tuple(text)
        try:
            return tuple(kind(part) for part in text.split(",") if part.strip())
        except ValueError:
            raise UsageError(f"numbers such as 1,2,5 are needed here, not {text[:40]!r}") from None

    return read


def named_fields(*names: str) -> Callable[[Any], dict[str, str]]:
    """Return what reads ``name=FIELD,name=FIELD``; it raises UsageError for another name."""

    def read(text: Any) -> dict[str, str]:
        if not isinstance(text, str):  # the default
            return dict(text)
        pairs = [part.partition("=") for part in text.split(",")]
        for name, equals, named in pairs:
            if name.strip() not in names or not equals or not named.strip():
                pattern = ",".join(f"{name}=FIELD" for name in names)
                raise UsageError(f"fields are named as {pattern}, not {text[:60]!r}")
        return {name.strip(): named.strip() for name, _, named in pairs}

    return read
