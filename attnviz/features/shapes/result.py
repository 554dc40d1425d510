"""What the views of ``attnviz shapes`` find, as values that know their JSON both ways.

All are documents of one schema, told apart by their ``view``; :meth:`Answer.from_dict` reads any.
Tables and drawings for people are laid beside what was found and stay out of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from html import escape
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

from attnviz.attention.spec import Amount, AttentionSpec, Kind, RunSizes
from attnviz.core.record import SCHEMAS, Record, check_schema
from attnviz.errors import InputError
from attnviz.features.shapes.table import Draw, Paint, Table, as_text

PAGE_WIDTH = 100  # columns of an answer that is printed by Python

Number = Literal["float64", "float32", "bfloat16", "float16"]
CachedNumber = Literal["float64", "float32", "bfloat16", "float16", "float8", "int8"]
Rows = tuple[tuple[float, ...], ...]
MaskedRows = tuple[tuple[float | None, ...], ...]
"""Rows of a matrix where None is a blocked score, minus infinity, or NaN."""

R = TypeVar("R")


def record_of(cls: type[R], source: Any, /, **changed: Any) -> R:
    """Take the fields of a record from what it describes, by their names, but for some."""
    named = [f.name for f in fields(cast(Any, cls)) if hasattr(source, f.name)]
    return cls(**{name: getattr(source, name) for name in named if name not in changed}, **changed)


VIEWS: dict[str, type[Answer]] = {}  # the type of every view, by the name that its JSON holds


@dataclass(frozen=True)
class Formula:
    """An amount.

    Attributes:
        value: None while a size is unset.
        formula: a sum of products of letters and numbers.
    """

    value: int | None
    formula: str

    @classmethod
    def of(cls, amount: Amount) -> Self:
        """Write an amount, and how it comes about."""
        return cls(amount.value, amount.written("d"))


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """One layer as :class:`~attnviz.attention.spec.AttentionSpec` has it; None for what it lacks.

    Attributes:
        sliding_window: how many positions a query sees, its own included; None for all.
        rotary_dim: how many of a head's numbers are rotated by position, without a latent.
        position_buckets: rows of T5's table of position biases.
        selected_keys: how many keys an indexer of index_heads heads leaves to each query.
        index_dim: their width, and that of its key, which is cached.
    """

    kind: Kind
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    latent: int | None
    rope_dim: int | None
    query_latent: int | None
    biases: tuple[str, ...]
    causal: bool
    sliding_window: int | None
    chunked: bool
    sink: bool
    gated: bool
    rotary_dim: int | None = None
    qk_norm: Literal["RMSNorm", "LayerNorm"] | None = None
    position_buckets: int | None = None
    selected_keys: int | None = None
    index_heads: int | None = None
    index_dim: int | None = None
    borrowed: bool = False

    @classmethod
    def of(cls, spec: AttentionSpec) -> Self:
        """Write a layer; None for what its kind has not."""
        return record_of(
            cls,
            spec,
            latent=spec.latent or None,
            rope_dim=spec.rope_dim if spec.kind == "mla" else None,
            query_latent=spec.query_latent or None,
            biases=tuple(sorted(spec.biases)),
            sliding_window=spec.window,
            rotary_dim=spec.rotary.width if spec.rotary else None,
            qk_norm=spec.qk_norm.kind if spec.qk_norm else None,
            position_buckets=spec.buckets.count if spec.buckets else None,
            selected_keys=spec.indexer.keep if spec.indexer else None,
            index_heads=spec.indexer.heads if spec.indexer else None,
            index_dim=spec.indexer.width if spec.indexer else None,
        )


@dataclass(frozen=True, kw_only=True)
class LayerRun:
    """What goes through the layer: B, T, S of cross-attention, keys kept; None stays a letter."""

    batch: int | None
    seq: int | None
    context_length: int | None
    cache: int | None
    dtype: Number
    cache_dtype: CachedNumber

    @classmethod
    def of(cls, run: RunSizes) -> Self:
        """Write a run, with the dtypes that it is in."""
        return record_of(cls, run, dtype=run.number, cache_dtype=run.cached)


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """A step of the walk, :class:`~attnviz.attention.walkthrough.Step`; ``why`` where asked for.

    ``symbols`` is its shape in letters, ``shape`` in numbers, None where a size is unset.
    """

    key: str
    name: str
    symbols: tuple[str, ...]
    shape: tuple[int | None, ...]
    operation: str
    parameters: int
    flops: Formula
    bytes: Formula | None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class ParameterCosts:
    """Learned numbers of a layer: matrices, biases, whatever else lives in it, and all."""

    weights: int
    biases: int
    extras: int
    total: int


@dataclass(frozen=True, kw_only=True)
class FlopCosts:
    """FLOPs of a layer: the projections, attention itself, and both."""

    projections: Formula
    attention: Formula
    total: Formula


@dataclass(frozen=True, kw_only=True)
class LayerCosts:
    """What one layer costs.

    Attributes:
        weights_bytes: of all attention weights, B·H·T·S of them.
        crossing_length: T at which attention costs what the projections do; None where a window
            keeps it the cheaper part.
    """

    parameters: ParameterCosts
    flops: FlopCosts
    weights_bytes: Formula
    cache_elements_per_token: int
    cache_bytes_per_token: int
    crossing_length: float | None


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

    def __str__(self) -> str:
        """Write it as ``attnviz shapes`` prints it, without colours."""
        return as_text(self, PAGE_WIDTH, Paint(colour=False))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __init_subclass__(cls) -> None:
        """Keep the type under the name of its view."""
        if "view" in vars(cls):
            VIEWS[vars(cls)["view"]] = cls

    @classmethod
    def from_dict(cls, document: Any, name: str = "the document") -> Self:
        """Read what :meth:`to_dict` wrote, equal to it; of any view where cls is Answer."""
        check_schema(cls, document, name)
        view = document.get("view")
        kind: Any = VIEWS.get(view) if isinstance(view, str) else None
        if kind is None or not issubclass(kind, cls):
            views = [key for key, answer in VIEWS.items() if issubclass(answer, cls)]
            raise InputError(
                f"{name} is damaged: its view is {str(view)[:40]!r}, not {' or '.join(views)} - at "
                f"`$.view`; make it again with attnviz {cls.command}"
            )
        read: Any = super(Answer, kind).from_dict(document, name)
        return cast(Self, read)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Of its JSON, from the types; of every view where cls is Answer."""
        if cls is not Answer:
            schema = super().json_schema()
            schema["required"] = ["schema", "view", *schema["required"][1:]]
            return schema
        parts: dict[str, Any] = {}
        for answer in VIEWS.values():
            schema = answer.json_schema()
            parts |= schema.pop("$defs")
            parts[answer.__name__] = {
                key: value for key, value in schema.items() if key not in ("$schema", "$id")
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


@dataclass(frozen=True, kw_only=True)
class LikeLayers:
    """Layers of a model that are alike, by their numbers; weights that they share counted once.

    ``cache_elements_per_token``: numbers kept per token and layer; None in an encoder.
    """

    label: str
    layers: tuple[int, ...]
    shared: bool
    layer: LayerSizes
    parameters_per_layer: int
    parameters: int
    cache_elements_per_token: int | None


@dataclass(frozen=True, kw_only=True)
class StateLayers:
    """Linear layers that are alike, by how their state is updated: as large at any length.

    Attributes:
        state_elements: numbers of all heads' states, which transformers keeps in float32.
        convolution_elements: numbers of the short convolution's last inputs.
    """

    label: str
    layers: tuple[int, ...]
    heads: int
    key_dim: int
    value_dim: int
    state_elements: int
    convolution_elements: int


@dataclass(frozen=True, kw_only=True)
class ModelLayers:
    """A model's attention, :class:`~attnviz.models.configs.model.ModelSpec`; None if not known.

    ``share`` is that of attention in its parameters, ``idle_layers`` have no attention.
    """

    name: str
    family: str
    partial: str | None
    source: str | None
    attention_parameters: int
    whole_parameters: int | None
    share: float | None
    dtype: str | None
    idle_layers: int
    groups: tuple[LikeLayers, ...]
    states: tuple[StateLayers, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelCache:
    """The KV cache of all layers; with windows a lower bound, since engines may reserve more.

    Attributes:
        tokens: of each sequence, in the cache. sequences: in the batch.
        bytes_per_token: and per sequence, and of the batch.
        cross_bytes_per_token: of cross-attention, for each token of the source; None without.
    """

    tokens: int
    sequences: int
    bytes_per_token: int
    bytes_per_sequence: int
    bytes_per_batch: int
    cross_bytes_per_token: int | None


@dataclass(frozen=True, kw_only=True)
class ModelAnswer(LayerAnswer):
    """A model's layers, what their cache takes, None in an encoder, and its main layer's walk."""

    view: Literal["model"] = "model"
    model: ModelLayers
    cache: ModelCache | None = None


@dataclass(frozen=True, kw_only=True)
class DiagramAnswer(LayerAnswer):
    """A layer that is drawn, perhaps a model's, perhaps into files."""

    view: Literal["diagram"] = "diagram"
    model: ModelLayers | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VariantCosts:
    """One kind of attention at the sizes in question.

    Attributes:
        name: ``GQA, G = 8``.
        parameters: of one layer. flops: of one layer, for the run; MLA's keys and values rebuilt.
        cache_elements_per_token: numbers per token and layer.
        cache_bytes_per_token: of all layers; also per sequence, and per batch.
        ratio_to_mha: its cache against MHA's with the same heads.
        read_bytes_per_decoded_token: its own cache, and a share of these layers' weights.
        flops_per_byte: that decoding computes with what it reads, of ``decoding_flops``.
        decoding_flops: to decode one token of a sequence in these layers; MLA with W_K and W_V
            absorbed. decoding_flops_rebuilt: where MLA makes keys and values of all latents anew.
        weights_bytes: all weights that are known.
        fits_tokens: the longest sequence that fits; -1 where any does, None where nobody asked.
        used_by: published models with as many key heads.
        own: whether it is the one asked about.
    """

    name: str
    layer: LayerSizes
    parameters: int
    flops: Formula
    cache_elements_per_token: int
    cache_bytes_per_token: int
    cache_bytes_per_sequence: int
    cache_bytes_per_batch: int
    ratio_to_mha: float
    read_bytes_per_decoded_token: float
    flops_per_byte: float
    decoding_flops: int
    decoding_flops_rebuilt: int
    weights_bytes: int
    fits_tokens: int | None
    fits_sequences: int | None
    used_by: tuple[str, ...]
    own: bool


@dataclass(frozen=True, kw_only=True)
class SweepCosts:
    """Costs at one size: of a run, or of decoding where key heads are swept; the others are None.

    Attributes:
        value: the size. parameters: of the layer.
        weights_bytes: of all attention weights of the run; of the layer's parameters in decoding.
        projection_flops: O(T·D²). attention_flops: O(T·S·D). attention_share: of the two.
        streamed_bytes: of attention weights held at once when they are handed out in blocks.
        cache_bytes_per_token: kept. cache_bytes: of the batch.
        read_bytes_per_decoded_token: a share of the weights, and a sequence's own cache.
        decoding_flops: of the step. flops_per_byte: that it reads.
    """

    value: int
    parameters: int
    weights_bytes: int
    projection_flops: int | None = None
    attention_flops: int | None = None
    attention_share: float | None = None
    streamed_bytes: int | None = None
    cache_bytes_per_token: int | None = None
    cache_bytes: int | None = None
    read_bytes_per_decoded_token: float | None = None
    decoding_flops: int | None = None
    flops_per_byte: float | None = None


@dataclass(frozen=True, kw_only=True)
class PresetSizes:
    """A published model: its main layer, how many attend, and its parameters."""

    name: str
    title: str
    year: int
    source: str
    layer: LayerSizes
    layers: int
    attention_parameters: int
    whole_parameters: int
    share: float | None


@dataclass(frozen=True, kw_only=True)
class CompareAnswer(Answer):
    """Kinds of attention at the same D, H and d.

    Attributes:
        tokens: of a sequence in the cache, in ``layers`` layers.
        memory_bytes: what weights and cache may take.
        variants: every kind.
        spec: the layer in question, with its run's ``sizes`` and every kind's FLOPs, ``totals``.
        subject: the model or the layer. whole: whether the weights are those of a whole model.
    """

    view: Literal["compare"] = "compare"
    layer: LayerSizes
    run: LayerRun
    layers: int
    tokens: int
    memory_bytes: int | None
    variants: tuple[VariantCosts, ...]
    spec: Any = field(default=None, compare=False, repr=False)
    sizes: Any = field(default=None, compare=False, repr=False)
    totals: Any = field(default=None, compare=False, repr=False)
    subject: Any = field(default=None, compare=False, repr=False)
    whole: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class SweepAnswer(Answer):
    """Costs along one size, by the layer at each and the first run.

    Attributes:
        model: whose layer it is; None for a fresh one.
        crossing_length: T at which attention costs what the projections cost; None when another
            size is swept, or where a window keeps attention the cheaper part.
        points: one a size.
    """

    view: Literal["sweep"] = "sweep"
    model: str | None = None
    layer: LayerSizes
    run: LayerRun
    variable: Literal["seq", "d-model", "heads", "kv-heads", "context-length", "tp"]
    crossing_length: float | None
    points: tuple[SweepCosts, ...]
    specs: Any = field(default=None, compare=False, repr=False)
    subject_spec: Any = field(default=None, compare=False, repr=False)
    sizes: Any = field(default=None, compare=False, repr=False)

    @property
    def subject(self) -> str:
        """The layer at the first size, after its model's name: ``Llama 3 8B: GQA, ...``."""
        spec = self.subject_spec if self.variable == "tp" else self.specs[0]
        text = spec.title
        if self.variable == "kv-heads":
            text = f"D = {spec.d_model:,}, {spec.heads} heads of {spec.head_dim}"
        return f"{self.model}: {text}" if self.model else text


@dataclass(frozen=True, kw_only=True)
class PresetsAnswer(Answer):
    """Published models."""

    view: Literal["presets"] = "presets"
    presets: tuple[PresetSizes, ...]


@dataclass(frozen=True, kw_only=True)
class HeadMatrices:
    """One head, matrix by matrix.

    Attributes:
        q: [T, d]. k: [S, d]. v: [S, d_v].
        scores: Q Kᵀ [T, S]. scaled: times the scale. masked: None where blocked.
        weights: their softmax, as they meet values. weights_unscaled: that of the scores without
            the scale. None for NaN, as softmax gives it where every key is blocked.
        output: weights times V, [T, d_v].
        entropy_bits: of each row of weights. entropy_bits_unscaled: without the scale.
    """

    q: Rows
    k: Rows
    v: Rows
    scores: Rows
    scaled: Rows
    masked: MaskedRows
    weights: MaskedRows
    weights_unscaled: MaskedRows
    output: MaskedRows
    entropy_bits: tuple[float | None, ...]
    entropy_bits_unscaled: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class NumbersAnswer(Answer):
    """A tiny layer in numbers.

    Attributes:
        tokens: names of the T queries. key_tokens: of the S keys.
        scale: of scores. causal: whether a query sees only keys up to its own position.
        blocked_rows: queries that may attend to no key.
        x: [T, D], where heads are projected from it. matrices: ``w_q``, ``w_k``, ``w_v``, ``w_o``.
        heads: every head. concat: [T, H·d_v]. output: [T, D].
        variant: what is done otherwise: ``-1e9``, ``after``, ``dropout``, ``overflow``.
        worked_row: of ``overflow``, a row of five numbers for each key, None where not finite.
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
    concat: MaskedRows
    output: MaskedRows
    variant: Literal["", "-1e9", "after", "dropout", "overflow"] = ""
    worked_row: MaskedRows = ()


@dataclass(frozen=True)
class Softened:
    """Means over many rows of softmax weights.

    Attributes:
        entropy_bits: ``log2(keys)`` for uniform weights, 0 for a single one.
        top_weight: the largest weight of a row.
        gradient_norm: Frobenius norm of the Jacobian of the weights by the scores that enter
            softmax, ``diag(a) - a aᵀ``; 0 where softmax is saturated and nothing can be learned.
    """

    entropy_bits: float
    top_weight: float
    gradient_norm: float


@dataclass(frozen=True)
class ScalingRow:
    """One head width d: softmax of the raw scores, and of the scores times 1/√d."""

    d: int
    raw: Softened
    scaled: Softened


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
    """The files that hold the animation."""

    view: Literal["animation"] = "animation"
    files: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One comparison: what the closed forms said, and what the real layer or model has."""

    step: str
    what: str
    said: str
    found: str
    equal: bool

    @classmethod
    def of(cls, step: str, what: str, said: str, found: str) -> Compared:
        """Return the comparison of two texts."""
        return cls(step=step, what=what, said=said, found=found, equal=said == found)


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

    @classmethod
    def of(cls, checks: Iterable[Compared], subject: str) -> VerifyAnswer:
        """Return the answer of some comparisons."""
        comparisons = tuple(checks)
        equal = all(check.equal for check in comparisons)
        return cls(title="", subject=subject, equal=equal, checks=comparisons)

    @property
    def failures(self) -> tuple[Compared, ...]:
        """The comparisons that came out different."""
        return tuple(check for check in self.checks if not check.equal)
