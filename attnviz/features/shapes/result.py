"""What the views of ``attnviz shapes`` find, as values that know their JSON both ways.

All are documents of one schema, told apart by their ``view``; :meth:`Answer.from_dict` reads any.
Tables and drawings for people are laid beside what was found and stay out of files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, cast

from attnviz.core.record import SCHEMAS, Record, check_schema
from attnviz.errors import InputError
from attnviz.features.shapes.parts import LayerCosts, LayerRun, LayerSizes, StepCosts
from attnviz.features.shapes.table import Draw, Table

VIEWS: dict[str, type[Answer]] = {}
"""The type of every view that is imported, by the name that its JSON holds; all of them once
:mod:`attnviz.features.shapes.function` is, and the walk alone before, which must appear at once."""


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """One view.

    Attributes:
        view: ``walk``, ``compare``, ...
        title: the first line.
        notes: sentences below.
        tables: for people, the first of them for CSV; none in an answer that was read from JSON.
        draw: a plot or diagram for the terminal, as for ``tables``.
        draws_first: whether the terminal shows the drawing above the tables.
    """

    schema: ClassVar[str] = "attnviz.shapes/1"
    command: ClassVar[str] = "shapes"
    draws_first: ClassVar[bool] = False

    view: str
    title: str
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = field(default=(), compare=False, repr=False)
    draw: Draw | None = field(default=None, compare=False, repr=False)

    def __init_subclass__(cls) -> None:
        """Keep the type under the name of its view."""
        if "view" in vars(cls):
            VIEWS[vars(cls)["view"]] = cls

    @classmethod
    def from_dict(cls, document: Any, name: str = "the document") -> Self:
        """The answer that :meth:`to_dict` wrote, equal to it; of any view where cls is Answer.

        Args:
            document: of one file.
            name: of it, for messages.

        Raises:
            InputError: another schema, version or view, or a part that is missing or of another
                type; the message says which.
        """
        check_schema(cls, document, name)
        view = document.get("view")
        kind: Any = VIEWS.get(view) if isinstance(view, str) else None
        if kind is None or not issubclass(kind, cls):
            own = [key for key, answer in VIEWS.items() if issubclass(answer, cls)]
            raise InputError(
                f"{name} is damaged: its view is {str(view)[:40]!r}, not {' or '.join(own)} - at "
                f"`$.view`; make it again with attnviz {cls.command}"
            )
        read: Any = super(Answer, kind).from_dict(document, name)
        return cast(Self, read)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Of its JSON, from the types; of every view where cls is Answer."""
        if cls is not Answer:
            own = super().json_schema()
            own["required"] = ["schema", "view", *own["required"][1:]]
            return own
        parts: dict[str, Any] = {}
        for answer in VIEWS.values():
            own = answer.json_schema()
            parts |= own.pop("$defs")
            parts[answer.__name__] = {
                key: value for key, value in own.items() if key not in ("$schema", "$id")
            }
        return {
            "$schema": SCHEMAS,
            "$id": cls.schema,
            "title": "What attnviz shapes finds, by view",
            "type": "object",
            "properties": {"schema": {"const": cls.schema}, "view": {"enum": list(VIEWS)}},
            "required": ["schema", "view", "title"],
            "oneOf": [{"$ref": f"#/$defs/{answer.__name__}"} for answer in VIEWS.values()],
            "$defs": parts,
        }


@dataclass(frozen=True, kw_only=True)
class LayerAnswer(Answer):
    """A walk through one layer: the layer, its run, how many such layers, every step, costs."""

    layer: LayerSizes
    run: LayerRun
    layers: int
    steps: tuple[StepCosts, ...]
    costs: LayerCosts


@dataclass(frozen=True, kw_only=True)
class WalkAnswer(LayerAnswer):
    """A fresh layer, step by step."""

    view: Literal["walk"] = "walk"
