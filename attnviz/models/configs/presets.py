"""Published models by name, from ``presets.toml``. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from attnviz.models.configs.model import ModelSpec, read_config


@dataclass(frozen=True, slots=True)
class Preset:
    """One published model.

    Attributes:
        name: what to type. title: what it is called. year: of its paper.
        source: where its sizes were published.
        parameters: of the whole model.
        counted_as: the transformers class that its config builds; empty where there is none.
        config: the fields of its config.json that decide its size.
        note: what to know about the numbers.
    """

    name: str
    title: str
    year: int
    source: str
    parameters: int
    counted_as: str
    config: Mapping[str, Any]
    note: str = ""

    @property
    def model(self) -> ModelSpec:
        """Its attention, layer by layer."""
        model = read_config(self.config, self.title)
        notes = (*model.notes, self.note) if self.note else model.notes
        return replace(model, whole=self.parameters, notes=notes, source=self.source)


@cache
def presets() -> Mapping[str, Preset]:
    """Every preset by its name, in the order of the file."""
    import tomllib
    from importlib.resources import files

    text = files(__package__).joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: Preset(name=name, **fields) for name, fields in tomllib.loads(text).items()}
