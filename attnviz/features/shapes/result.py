"""What the views of ``attnviz shapes`` find, as values that know their JSON both ways.

All are documents of one schema, told apart by their ``view``; :meth:`Answer.from_dict` reads any.
Tables and drawings for people are laid beside what was found and stay out of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, cast

from attnviz.core.result import SCHEMAS, Record, check_schema
from attnviz.errors import InputError
from attnviz.features.shapes.parts import (
    Compared,
    HeadMatrices,
    LayerCosts,
    LayerRun,
    LayerSizes,
    ModelLayers,
    PresetSizes,
    Rows,
    ScalingRow,
    StepCosts,
    SweepCosts,
    VariantCosts,
)
from attnviz.features.shapes.table import Draw, Table


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

    schema: ClassVar[str] = "attnviz.shapes/3"
    command: ClassVar[str] = "shapes"
    draws_first: ClassVar[bool] = False

    view: str
    title: str
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = field(default=(), compare=False, repr=False)
    draw: Draw | None = field(default=None, compare=False, repr=False)

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
        found: Any = VIEWS.get(view) if isinstance(view, str) else None
        if found is None or not issubclass(found, cls):
            own = [key for key, one in VIEWS.items() if issubclass(one, cls)]
            raise InputError(
                f"{name} is damaged: its view is {str(view)[:40]!r}, not {' or '.join(own)} - at "
                f"`$.view`; make it again with attnviz {cls.command}"
            )
        read: Any = super(Answer, found).from_dict(document, name)
        return cast(Self, read)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Of its JSON, from the types; of every view where cls is Answer."""
        if cls is not Answer:
            own = super().json_schema()
            own["required"] = ["schema", "view", *own["required"][1:]]
            return own
        parts: dict[str, Any] = {}
        for one in VIEWS.values():
            own = one.json_schema()
            parts |= own.pop("$defs")
            parts[one.__name__] = {
                key: value for key, value in own.items() if key not in ("$schema", "$id")
            }
        return {
            "$schema": SCHEMAS,
            "$id": cls.schema,
            "title": "What attnviz shapes finds, by view",
            "type": "object",
            "properties": {"schema": {"const": cls.schema}, "view": {"enum": list(VIEWS)}},
            "required": ["schema", "view", "title"],
            "oneOf": [{"$ref": f"#/$defs/{one.__name__}"} for one in VIEWS.values()],
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


@dataclass(frozen=True, kw_only=True)
class ModelAnswer(LayerAnswer):
    """A model's layers, and the walk through its main kind of layer."""

    view: Literal["model"] = "model"
    model: ModelLayers


@dataclass(frozen=True, kw_only=True)
class DiagramAnswer(LayerAnswer):
    """A layer that is drawn, perhaps a model's, perhaps into a file."""

    view: Literal["diagram"] = "diagram"
    model: ModelLayers | None = None
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class CompareAnswer(Answer):
    """Kinds of attention at the same D, H and d.

    Attributes:
        layer: the one in question. run: what goes through it. layers: how many there are.
        tokens: of a sequence in the cache. memory_bytes: what weights and cache may take.
        variants: every kind.
    """

    view: Literal["compare"] = "compare"
    layer: LayerSizes
    run: LayerRun
    layers: int
    tokens: int
    memory_bytes: int | None
    variants: tuple[VariantCosts, ...]


@dataclass(frozen=True, kw_only=True)
class SweepAnswer(Answer):
    """Costs along one size.

    Attributes:
        model: whose layer it is; None for a fresh one.
        layer: the first. run: the first.
        variable: the size.
        crossing_length: T at which attention costs what the projections cost; None when another
            size is swept, or where a window keeps attention the cheaper part.
        points: one a size.
    """

    view: Literal["sweep"] = "sweep"
    model: str | None = None
    layer: LayerSizes
    run: LayerRun
    variable: Literal["seq", "d-model", "heads", "kv-heads", "context-length"]
    crossing_length: float | None
    points: tuple[SweepCosts, ...]


@dataclass(frozen=True, kw_only=True)
class PresetsAnswer(Answer):
    """Published models."""

    view: Literal["presets"] = "presets"
    presets: tuple[PresetSizes, ...]


@dataclass(frozen=True, kw_only=True)
class VerifyAnswer(Answer):
    """The closed forms beside a real layer, or beside a model's parameters.

    Attributes:
        subject: what was run or counted. equal: whether every comparison is.
        checks: the comparisons.
        attention_parameters: counted in a model. whole_parameters: all of its; None for a layer.
    """

    view: Literal["verify"] = "verify"
    subject: str
    equal: bool
    checks: tuple[Compared, ...]
    attention_parameters: int | None = None
    whole_parameters: int | None = None


@dataclass(frozen=True, kw_only=True)
class NumbersAnswer(Answer):
    """A tiny layer in numbers.

    Attributes:
        tokens: names of the T queries. key_tokens: of the S keys.
        scale: of scores. causal: whether a query sees only keys up to its own position.
        blocked_rows: queries that may attend to no key.
        x: [T, D], where heads are projected from it. matrices: ``w_q``, ``w_k``, ``w_v``, ``w_o``.
        heads: every head. concat: [T, H·d_v]. output: [T, D].
    """

    draws_first: ClassVar[bool] = True

    view: Literal["numbers"] = "numbers"
    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    scale: float
    causal: bool
    blocked_rows: int
    x: Rows | None
    matrices: Mapping[str, Rows]
    heads: tuple[HeadMatrices, ...]
    concat: Rows
    output: Rows


@dataclass(frozen=True, kw_only=True)
class ScalingAnswer(Answer):
    """Softmax with and without 1/√d over ``keys`` keys, means over ``samples`` rows."""

    view: Literal["scaling"] = "scaling"
    keys: int
    samples: int
    seed: int
    rows: tuple[ScalingRow, ...]


@dataclass(frozen=True, kw_only=True)
class AnimateAnswer(Answer):
    """The file that holds the film, and its size in bytes."""

    view: Literal["animate"] = "animate"
    file: str
    bytes: int


VIEWS: Mapping[str, type[Answer]] = {
    "walk": WalkAnswer,
    "model": ModelAnswer,
    "diagram": DiagramAnswer,
    "compare": CompareAnswer,
    "sweep": SweepAnswer,
    "presets": PresetsAnswer,
    "verify": VerifyAnswer,
    "numbers": NumbersAnswer,
    "scaling": ScalingAnswer,
    "animate": AnimateAnswer,
}
"""The type of every view, by the name that its JSON holds."""
