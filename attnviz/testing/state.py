"""What the plugin of pytest tells the assertions: where tests are, and whether to write anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Running:
    """Of this run of pytest; as it is without one.

    Attributes:
        update: whether baselines are written, in place of being compared with.
        folder: of the test that runs; None outside of pytest.
        written: the baselines that were written.
    """

    update: bool = False
    folder: Path | None = None
    written: list[Path] = field(default_factory=list)

    def path(self, name: str | Path) -> Path:
        """A baseline's file: beside the test that names it."""
        return Path(name) if self.folder is None else self.folder / name


RUNNING = Running()
