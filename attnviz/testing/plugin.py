"""The plugin of pytest: a model for tests, and ``--attnviz-update``.

pytest loads it in every project where attnviz is installed, so it imports nothing heavy.

What the plugin of pytest tells the assertions: where tests are, and whether to write anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Running:
    """Of this run of pytest; as it is without one."""

    update: bool = False  # whether baselines are written, in place of being compared with
    folder: Path | None = None  # of the test that runs; None outside of pytest
    written: list[Path] = field(default_factory=list)  # the baselines that were written

    def path(self, name: str | Path) -> Path:
        """Return a baseline's file: beside the test that names it."""
        return Path(name) if self.folder is None else self.folder / name


RUNNING = Running()


_HELP = "name or folder of the model that the fixture attnviz_model loads"


def pytest_addoption(parser: Any) -> None:
    """Add the options, and the line of a configuration file."""
    group = parser.getgroup("attnviz", "attention heads (attnviz)")
    group.addoption("--attnviz-model", metavar="MODEL", help=_HELP)
    group.addoption(
        "--attnviz-update",
        action="store_true",
        help="write the baselines of assert_same_heads anew",
    )
    parser.addini("attnviz_model", _HELP, default="")


def pytest_configure(config: Any) -> None:
    """Begin a run."""
    RUNNING.update = bool(config.getoption("attnviz_update"))
    RUNNING.written.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Baselines are beside the test that names them."""
    RUNNING.folder = item.path.parent


def pytest_runtest_teardown() -> None:
    """No test runs any more."""
    RUNNING.folder = None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which baselines were written."""
    for path in dict.fromkeys(RUNNING.written):
        terminalreporter.write_line(f"attnviz: wrote {path}")


@pytest.fixture(scope="session")
def attnviz_model(pytestconfig: pytest.Config) -> Any:
    """Return the model that ``--attnviz-model`` or ``attnviz_model`` in the configuration names.

    Tests that have a model of their own override it: a fixture of that name that returns
    ``av.load(...)``, or a transformers model with ``av.load(model, tokenizer=tokenizer)``.
    """
    name = pytestconfig.getoption("attnviz_model") or pytestconfig.getini("attnviz_model")
    if not name:
        pytest.fail(
            "attnviz_model has no model; name it by pytest --attnviz-model MODEL, by attnviz_model "
            "in the configuration of pytest, or in a fixture of that name",
            pytrace=False,
        )
    import attnviz as av

    return av.load(name)
