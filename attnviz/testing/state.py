"""What the plugin of pytest tells the assertions: where tests are, and whether to write anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Running:
    """Of this run of pytest; as it is without one."""

    update: bool = False  # whether baselines are written, in place of being compared with
    folder: Path | None = None  # of the test that runs; None outside of pytest
    written: list[Path] = field(default_factory=list)  # the baselines that were written

    def path(self, name: str | Path) -> Path:
        """A baseline's file: beside the test that names it."""
        return Path(name) if self.folder is None else self.folder / name


RUNNING = Running()
