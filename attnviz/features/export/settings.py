"""What an export draws and how it runs: everything that changes a picture, and apart the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from attnviz.captures.settings import INPUT, KeptSettings, MapSettings, PartSettings
from attnviz.core.heads import Layout, Mean
from attnviz.core.quantities import quantity_named
from attnviz.core.settings import RUN, Parallel, Settings, like, setting, without_clearest
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.features.export.paths import LAYOUTS

PICTURES = "Pictures"
DRAWN, STORED = ("png", "svg", "pdf"), ("npz", "safetensors")
"""Suffixes of pictures, and of files of weights."""

_MOST_A_CORE = 4  # processes for each core, at most


@dataclass(frozen=True)
class ExportSettings(Settings, panel=PICTURES):
    """Which heads of every input are drawn, and as which pictures.

    Attributes:
        style: how they look.
    """

    select: str | None = like(
        MapSettings,
        "select",
        help="Heads: 4.11, L4H11, 5.*, *.3, 0-3.*, or a comma-separated list; enc:, dec: or cross: "
        "goes in front; clearest:3 takes those with the largest lift on each input. All by "
        "default.",
        panel=PICTURES,
    )
    role: str | None = setting(
        None,
        "Only heads with this role: induction, obj. On the input, or given by {evidence}.",
        metavar="ROLE",
        common=True,
    )
    layout: str = setting(
        "heads",
        "heads, layers, grid or overview. A head in each picture, a layer's in a grid, all chosen "
        "in a grid or in a mosaic; several with commas.",
        metavar="LAYOUT",
        common=True,
    )
    rows: str | None = like(PartSettings, "rows", panel=PICTURES, common=False)
    keys: str | None = like(PartSettings, "keys", panel=PICTURES, common=False)
    style: Style = Style()  # noqa: RUF009 - frozen
    format: str = setting(
        "png",
        "png, svg or pdf; with a comma also npz or safetensors, for the weights: png,npz.",
        metavar="FORMAT",
    )
    quantity: str = like(MapSettings, "quantity", panel=PICTURES)
    mean: Mean | None = like(KeptSettings, "mean", panel=PICTURES)
    special_tokens: bool = setting(
        True, "Leave out the tokens that the tokenizer adds.", panel=INPUT, shown=""
    )
    truncate: bool = setting(False, "Truncate texts that are too long for the model.", panel=INPUT)

    @property
    def heads(self) -> str | None:
        """The heads that are selected, without how many of them."""
        return without_clearest(self.select)[0]

    def check_heads(self, layout: Layout) -> None:
        """Raise SelectionError for heads that a model does not have."""
        from attnviz.scoring.select import select

        if self.heads is not None and not quantity_named(self.quantity).layers:
            select(self.heads, layout)

    @property
    def clearest(self) -> int | None:
        """How many of these, the clearest of them; None for all."""
        return without_clearest(self.select)[1]

    def check(self) -> None:
        """Raise UsageError for a kind of picture that there is not, or none."""
        for name in self.layouts:
            if name not in LAYOUTS:
                raise UsageError("{layout} takes {}, not {!r}", ", ".join(LAYOUTS), name,
                                 layout=...)  # fmt: skip
        for name in self._formats:
            if name not in (*DRAWN, *STORED):
                raise UsageError("{format} takes {}, not {!r}", ", ".join((*DRAWN, *STORED)), name,
                                 format=...)  # fmt: skip
        for kinds in (DRAWN, STORED):
            if len(set(kinds) & set(self._formats)) > 1:
                raise UsageError("{format} takes one of {}", ", ".join(kinds), format=...)
        if self.mean is not None and (self.role is not None or self.clearest is not None):
            raise UsageError(
                "{mean} has no roles and no clearest heads; leave them out", mean=self.mean
            )
        if not self.layouts:
            raise UsageError("{layout} takes {}, and at least one of them", ", ".join(LAYOUTS),
                             layout=...)  # fmt: skip

    @property
    def layouts(self) -> tuple[str, ...]:
        """The kinds of pictures, each once."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.layout.split(",")))))

    @property
    def drawn(self) -> str:
        """The suffix of pictures."""
        return next((name for name in self._formats if name in DRAWN), DRAWN[0])

    @property
    def stored(self) -> str | None:
        """The suffix of the file of weights; None for none."""
        return next((name for name in self._formats if name in STORED), None)

    @property
    def _formats(self) -> list[str]:
        return [name.strip() for name in self.format.split(",")]

    def document(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return document | {"layout": [name for name in LAYOUTS if name in self.layouts]}


@dataclass(frozen=True)
class ExportRun(Settings, panel=INPUT):
    """How an export runs; nothing here changes a picture."""

    column: str | None = setting(
        None, "The column or field that holds the text.", metavar="NAME", common=True
    )
    recorded: bool = setting(False, "The files are recorded attention (.npz, .safetensors).")
    limit: int | None = setting(None, "Take at most the first N inputs.", least=1, common=True)
    strict: bool = setting(False, "Stop at the first input that cannot be used.")
    jobs: int | None = like(
        Parallel,
        "jobs",
        default=None,
        help="Number of processes that draw.",
        shown="all cores",
        most=None,
        common=True,
    )
    force: bool = setting(
        False,
        "Take over a folder that holds something else. Pictures made with other settings "
        "are removed; files that are not ours stay.",
        panel=RUN,
        common=True,
    )

    def check(self) -> None:
        """Raise UsageError for more processes than this machine can use."""
        if self.jobs is None:
            return
        from attnviz.core.threads import cores

        limit = _MOST_A_CORE * cores()
        if self.jobs > limit:
            raise UsageError(
                "{jobs} is more than {}, which is {} per core here",
                limit,
                _MOST_A_CORE,
                remedy="leave it out for one per core",
                jobs=self.jobs,
            )


def difference(first: Mapping[str, Any], second: Mapping[str, Any], path: str = "") -> str | None:
    """Return what differs first between two documents, in words, or None."""
    for name in dict.fromkeys([*first, *second]):
        old, new = first.get(name), second.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            inside = difference(old, new, f"{path}{name} ")
            if inside:
                return inside
        elif old != new:
            return f"{path}{name} was {_shown(old)} and is now {_shown(new)}"
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
