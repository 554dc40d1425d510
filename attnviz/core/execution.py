"""How work is divided and what is drawn at random: settings of whatever has many texts."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.settings import Settings, setting

RUN = "Running"


@dataclass(frozen=True)
class Parallel(Settings, panel=RUN):
    """How the work is divided; the result is the same to the bit."""

    jobs: int = setting(1, "Number of processes, one thread each.", short="j", least=1, most=4096)
    ray: str | None = setting(
        None,
        "Run on Ray: on this machine alone (local), or on the cluster at ADDRESS "
        "(ray://host:10001).",
        metavar="ADDRESS",
        bare="local",
        package="ray",
    )


@dataclass(frozen=True)
class Seeded(Settings):
    """What is drawn at random."""

    seed: int = setting(0, "Seed of all that is drawn at random.", least=0)
