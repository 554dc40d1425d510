"""Scores, roles, metrics and fills that users, or tests as users, have registered."""

from __future__ import annotations

import sys


def forget() -> None:
    """Only what comes with attnviz is known after it."""
    plugins = sys.modules.get("attnviz.scoring.plugins")
    if plugins is None:
        return
    from attnviz.scoring import roles, scores

    for registry in (scores, roles):
        for name in [one.name for one in registry._REGISTERED.values() if one.user]:
            del registry._REGISTERED[name]
    measures = sys.modules.get("attnviz.scoring.user_measures")
    for kept in () if measures is None else (measures._METRICS, measures._FILLS):
        kept.clear()
    for name in plugins._MODULES:
        if not name.startswith(("tests", "__main__")):
            sys.modules.pop(name, None)
    plugins._MODULES.clear()
