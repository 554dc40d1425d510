"""Settings of a measurement: given whole, or as their fields."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from attnviz.errors import UsageError


class Checked(Protocol):
    """A dataclass of settings that knows what makes no sense."""

    def check(self) -> None:
        """UsageError for what makes no sense."""


Settings = TypeVar("Settings", bound=Checked)


def settings_of(kind: type[Settings], given: Settings | None, options: dict[str, Any]) -> Settings:
    """Checked settings: those that were given, or their fields.

    Args:
        kind: a dataclass.
        given: a value of it.
        options: its fields, in place of ``given``.

    Raises:
        UsageError: both, an unknown field, or a value that makes no sense.
    """
    if given is not None and options:
        raise UsageError("give {settings} or their fields, not both", settings=...)
    known: dict[str, Any] = kind.__dataclass_fields__  # type: ignore[attr-defined]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; choose from {', '.join(known)}")
    chosen = given or kind(**options)
    chosen.check()
    return chosen
