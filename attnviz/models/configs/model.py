"""A whole model's attention, read from its config.json or from a preset. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from attnviz.attention.costs import parameters
from attnviz.attention.spec import DTYPE_BYTES
from attnviz.core.heads import Layout, SiteKind
from attnviz.errors import AttnvizError, ModelError, SizeError
from attnviz.files import packaged
from attnviz.models.configs.families import (
    FAMILIES,
    STATE_SPACE,
    LayerGroup,
    StateGroup,
    basic,
    reaches,
    state_of,
)
from attnviz.models.configs.keys import GUESS, Config, Keys, defaults, find, keys_of


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The attention of a whole model."""

    name: str  # what the user called it
    family: str  # ``model_type`` of its config
    groups: tuple[LayerGroup, ...]  # its layers, like ones together
    whole: int | None = None  # parameters of the whole model, None where nobody said
    partial: str = ""  # what is not known, as a sentence; empty for a complete answer
    notes: tuple[str, ...] = ()  # further sentences for the report
    source: str = ""  # where the numbers come from
    dtype: str | None = None  # of its weights, as its config says; None where it does not
    idle: int = 0  # layers without attention, as in a hybrid with a state-space model
    # those of them that keep a state whose size is known, like ones together
    states: tuple[StateGroup, ...] = ()

    @property
    def attention_parameters(self) -> int:
        """Parameters of all attention layers, shared weights counted once."""
        return sum(group_parameters(group) for group in self.groups)

    @property
    def share(self) -> float | None:
        """Attention's share of the model's parameters."""
        return self.attention_parameters / self.whole if self.whole else None

    @property
    def main(self) -> LayerGroup:
        """The group that stands for the model: the largest self-attention group with own keys."""
        groups = [group for group in self.groups if group.spec.kind != "cross"]
        return max(
            groups,
            key=lambda group: (group.spec.causal, not group.spec.borrowed, len(group.layers)),
        )

    @property
    def cached_groups(self) -> tuple[LayerGroup, ...]:
        """The groups that read a cache entry for every decoded token; none in an encoder."""
        return tuple(group for group in self.groups if group.spec.causal)

    @property
    def cross_groups(self) -> tuple[LayerGroup, ...]:
        """The groups that keep keys and values of every source token."""
        return tuple(group for group in self.groups if group.spec.kind == "cross")


def group_parameters(group: LayerGroup) -> int:
    """Parameters of a group: of one layer times its layers, or once where they are shared."""
    layer = parameters(group.spec).total
    return layer if group.shared else layer * len(group.layers)


_PARTS = {
    **dict.fromkeys(("text_config", "thinker_config", "llm_config", "language_config"), "text"),
    "vision_config": "vision",
    "audio_config": "audio",
}
"""Where a model of several towers keeps the config of each, and what it reads; text first."""


def read_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """Read a transformers config."""
    family = str(config.get("model_type") or "")
    if family in STATE_SPACE:
        raise ModelError(
            f"{name} has no attention: {STATE_SPACE[family]} keeps a state of fixed size and "
            "neither keys nor values"
        )
    if family not in FAMILIES:
        for part, inner in _parts(config, family):
            model = read_config(inner, name)
            note = f"only {part} of a {family or 'composed'} model was read"
            dtype = model.dtype or _dtype(config)
            return replace(model, partial=model.partial or note, dtype=dtype)
    try:
        read = _known if family in FAMILIES else _guess
        return read(config, name, family)
    except SizeError as error:
        raise ModelError(f"config.json of {name}: {error}") from error


def read_towers(config: Mapping[str, Any], name: str) -> dict[str, ModelSpec]:
    """Describe the attention of each tower, by what it reads: ``text``, ``vision``, ``audio``.

    Empty for a model of one tower. Towers of families that are not known are left out.
    """
    family = str(config.get("model_type") or "")
    if family in FAMILIES:
        return {}
    towers: dict[str, ModelSpec] = {}
    for part, inner in _parts(config, family):
        inner_towers = read_towers(inner, name) or {_PARTS[part]: read_config(inner, name)}
        towers |= {tower: model for tower, model in inner_towers.items() if tower not in towers}
    return towers


def _parts(config: Config, family: str) -> Iterator[tuple[str, Config]]:
    """Yield the configs inside a config that can be read, their families filled in."""
    for part, tower in _PARTS.items():
        inner = config.get(part)
        if not isinstance(inner, Mapping):
            continue
        kind = str(inner.get("model_type") or "")
        usual = (f"{family}_{tower}", f"{family}_{tower}_model")
        kind = kind or next((part for part in usual if part in FAMILIES), "")
        if kind in FAMILIES or any(_parts(inner, kind)):
            yield part, {**inner, "model_type": kind}


def _known(config: Config, name: str, family: str) -> ModelSpec:
    """Return a family that is described: its reader, with what transformers fills in."""
    usual = defaults().get(family, {})
    filled = {field: value for field, value in usual.items() if field not in config}
    keys, full = keys_of(family), {**config, **filled}
    groups = FAMILIES[family](full, keys)
    notes = []
    sizes = ("num_", "hidden", "head", "attn_layer", "full_attention")
    missing = [field for field in filled if field.startswith(sizes)]
    if missing:
        listed = ", ".join(f"{field} = {filled[field]}" for field in missing)
        notes.append(f"The config leaves out what transformers assumes: {listed}.")
    notes += _notes(family, groups)
    idle = _idle(full, keys, groups)
    states: tuple[StateGroup, ...] = ()
    if idle:
        state = state_of(full, family)
        attending = {number for group in groups for number in group.layers}
        if state is not None:
            numbers = range(idle + len(attending))
            states = (StateGroup(tuple(i for i in numbers if i not in attending), state),)
        left_out = "whose parameters are" if states else "which is"
        notes.append(
            f"{idle} of {idle + len(attending)} layers have no attention: they keep a state of "
            f"fixed size, {left_out} not counted."
        )
    return ModelSpec(
        name, family, groups, notes=tuple(notes), dtype=_dtype(config), idle=idle, states=states
    )


def _idle(config: Config, keys: Keys, groups: tuple[LayerGroup, ...]) -> int:
    """How many layers of a single stack have no attention."""
    if any(group.spec.kind == "cross" for group in groups):
        return 0
    return (find(config, keys, "layers") or 0) - sum(len(group.layers) for group in groups)


def _notes(family: str, groups: tuple[LayerGroup, ...]) -> list[str]:
    """Return what the closed forms leave out, or what is particular."""
    notes = []
    if family == "deberta-v2" and groups[0].spec.scale_dim:
        notes.append(
            "Scores with relative positions (c2p, p2c) come on top; their FLOPs are not counted."
        )
    if family == "smollm3":
        notes.append("The rotary positions of three layers in four are not among the steps.")
    if family == "llama4_text":
        notes.append("The norm of queries and keys after their rotation is not among the steps.")
    if family == "gemma3n_text":
        notes.append("The norm of values, which has no weights, is not among the steps.")
    if any(group.spec.borrowed for group in groups):
        notes.append("Layers with borrowed keys read an earlier layer's cache and keep none.")
    if any(group.spec.sink for group in groups):
        notes.append("Every row of weights sums to less than 1: the rest goes to a learned sink.")
    return notes


def _dtype(config: Config) -> str | None:
    """Get the dtype that a config names for its weights, None where it names none that is known."""
    value = str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")
    return value if value in DTYPE_BYTES else None


def _guess(config: Config, name: str, family: str) -> ModelSpec:
    """Sizes under usual names; biases, masks and norms stay unknown, and that is said."""
    named = f"family {family!r}" if family else "a config without model_type"
    missing = [
        f"{meaning} ({', '.join(getattr(GUESS, size))})"
        for size, meaning in (("d_model", "a model width"), ("heads", "a number of heads"))
        if find(config, GUESS, size) is None
    ]
    if missing:
        raise ModelError(
            f"config.json of {name}: {named} is not known to attnviz, and the config lacks "
            + " and ".join(missing)
        )
    spec = basic(config, GUESS, frozenset(), causal=False)
    layers = find(config, GUESS, "layers")
    partial = (
        f"partial answer: {named} is not known to attnviz; widths and heads are the config's, "
        "biases, norms, masks and windows are not known and not counted"
    )
    if layers is None:
        partial += ", nor is the number of layers (1 assumed)"
    attends = [reach != "none" for reach in reaches(config, layers or 1)]
    attending = tuple(i for i, flag in enumerate(attends) if flag)
    if not attending:
        raise ModelError(f"{name} has no attention: its config lists {len(attends)} layers without")
    group = LayerGroup("self-attention", attending, spec)
    idle = len(attends) - len(attending)
    if idle:
        partial += f"; {idle} of {len(attends)} layers have no attention"
    return ModelSpec(name, family, (group,), partial=partial, dtype=_dtype(config), idle=idle)


def layout_of(config: Mapping[str, Any]) -> Layout | None:
    """Give the heads of a model of one tower and a known family; None where only loading tells."""
    try:
        towers, model = read_towers(config, ""), read_config(config, "")
    except AttnvizError:  # loading says what is wrong with it
        return None
    if towers or model.partial or model.family not in FAMILIES:
        return None
    if any(group.spec.kind == "cross" for group in model.groups) and _one_stack(config):
        return None
    heads: dict[SiteKind, tuple[int, ...]] = {}
    for kind, groups in _by_kind(model.groups).items():
        counts = {layer: group.spec.heads for group in groups for layer in group.layers}
        heads[kind] = tuple(counts.get(layer, 0) for layer in range(max(counts) + 1))
    return Layout(heads)


def _one_stack(config: Mapping[str, Any]) -> bool:
    """Whether a family of two stacks may have one here, as ``BartForCausalLM`` does."""
    named = " ".join(map(str, config.get("architectures") or ()))
    return config.get("is_encoder_decoder") is False or "CausalLM" in named or "Encoder" in named


def _by_kind(groups: tuple[LayerGroup, ...]) -> dict[SiteKind, list[LayerGroup]]:
    """Return the groups of each kind of layers."""
    kinds: dict[SiteKind, list[LayerGroup]] = {}
    for group in groups:
        side: SiteKind = "decoder" if group.spec.causal else "encoder"
        kinds.setdefault("cross" if group.spec.kind == "cross" else side, []).append(group)
    return kinds


@dataclass(frozen=True, slots=True)
class Preset:
    """One published model."""

    name: str  # what to type. title: what it is called. year: of its paper
    title: str
    year: int
    source: str  # where its sizes were published
    parameters: int  # of the whole model
    counted_as: str  # the transformers class that its config builds; empty where there is none
    config: Mapping[str, Any]  # the fields of its config.json that decide its size
    note: str = ""  # what to know about the numbers

    @property
    def model(self) -> ModelSpec:
        """Its attention, layer by layer."""
        model = read_config(self.config, self.title)
        notes = (*model.notes, self.note) if self.note else model.notes
        return replace(model, whole=self.parameters, notes=notes, source=self.source)


@cache
def presets() -> Mapping[str, Preset]:
    """Every preset by its name, in the order of the file."""
    tables = packaged(__file__, "presets.toml")
    return {name: Preset(name=name, **fields) for name, fields in tables.items()}
