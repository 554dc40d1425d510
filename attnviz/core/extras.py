"""Packages that not everybody has: what needs one says so before anything runs."""

from __future__ import annotations

from importlib.util import find_spec

from attnviz.errors import UsageError, install

EXTRAS = {"pyarrow": "parquet", "soundfile": "audio", "ray": "ray"}
"""The extra of attnviz that each comes with."""


def require(package: str, what: object) -> None:
    """Refuse what needs a package that is not installed.

    Args:
        package: as it is imported.
        what: a file, or a :class:`~attnviz.errors.Setting`.

    Raises:
        UsageError: it is not installed.
    """
    if find_spec(package) is None:
        raise missing(package, what)


def missing(package: str, what: object) -> UsageError:
    """What to raise where a package is not there, or does not work."""
    return UsageError("{} needs {}; {}", what, package, install(f"attnviz[{EXTRAS[package]}]"))
