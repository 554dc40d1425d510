"""Checks of what heads do, for tests: assertions, and a plugin of pytest.

    from attnviz.testing import assert_role, assert_same_heads

See docs/ci.md. Importing this loads neither torch nor pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz.testing.assertions import assert_role, assert_same_heads

__all__ = ["assert_role", "assert_same_heads"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from attnviz.testing import assertions

        return getattr(assertions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
