"""From a model's folder to its card: configuration and headers alone, no weights, no download."""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from attnviz.attention.layers import build_layer
from attnviz.core.provenance import called
from attnviz.errors import AttnvizError, ModelError
from attnviz.features.models.catalog import has_tokenizer
from attnviz.features.models.result import Ability, AlikeLayers, ModelCard
from attnviz.models import pretrained
from attnviz.models.configs.families import FAMILIES
from attnviz.models.configs.model import read_config as read_attention
from attnviz.models.controls import FreshConfig
from attnviz.models.folder import Located, check_files, find_weights, locate_config, read_config
from attnviz.models.native import config as native
from attnviz.models.native.config import FAMILIES as NATIVE

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_RUN = {"float32": 4, "bfloat16": 2, "float16": 2}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")
_MASKED = "MaskedLM"
_CAUSAL = ("CausalLM", "LMHeadModel", "ConditionalGeneration")


def describe(name: str) -> ModelCard:
    """Return what a model is."""
    if name == "fresh":
        return _fresh()
    _, folder = locate_config(name)
    check_files(folder)
    config = read_config(folder)
    notes: list[str] = []
    groups, idle, width = _layers(config, name, notes)
    files: tuple[Path, ...] = ()
    try:
        files, _ = find_weights(folder, config)
    except ModelError as error:
        if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
            raise
        problem = error.what.removeprefix(f"{folder} ")
        notes.append(f"Its weights are not here: it {problem}.")
    precisions, numbers, tensors = _stored(files)
    backend, reason, sure = _backend(Located(name, folder, config, files, tensors))
    card = ModelCard(
        name=called(name),
        family=config["model_type"],
        architectures=tuple(map(str, config.get("architectures") or ())),
        groups=groups,
        idle=idle,
        width=width,
        max_tokens=next((n for key in _LENGTHS if isinstance(n := config.get(key), int)), None),
        parameters=numbers,
        tensors=tensors,
        stored=precisions,
        memory={dtype: size * numbers for dtype, size in _RUN.items()},
        files=tuple(path.name for path in files),
        backend=backend,
        reason=reason,
        tokenizer=has_tokenizer(folder),
        chat_template=_has_template(folder),
        notes=tuple(notes),
    )
    return replace(card, abilities=tuple(_abilities(card, config, sure=sure)))


def _fresh() -> ModelCard:
    """Return the fresh layer with the sizes that it has where none is said."""
    config = FreshConfig()
    sizes = config.check()
    layer = build_layer(config.kind, config.d_model, config.heads, seed=config.seed)
    numbers = [tensor.numel() for tensor in layer.parameters()] * config.layers
    label = "decoder self-attention" if config.causal else "encoder self-attention"
    group = AlikeLayers(
        label, tuple(range(config.layers)), config.heads, sizes.kv_heads, sizes.head_dim,
        config.causal,
    )  # fmt: skip
    only = "an untrained layer has no vocabulary"
    return ModelCard(
        name="fresh",
        family=config.kind,
        architectures=(),
        groups=(group,),
        idle=0,
        width=config.d_model,
        max_tokens=None,
        parameters=sum(numbers),
        tensors=len(numbers),
        stored={},
        memory={dtype: size * sum(numbers) for dtype, size in _RUN.items()},
        files=(),
        backend="untrained",
        reason="random weights, nothing learned; it can have any size",
        tokenizer=False,
        chat_template=False,
        abilities=(
            Ability("maps and scores", True, "heads, heatmap, view, profile, spans, capture"),
            Ability("texts", True, "they are split into words"),
            Ability("predictions", False, only),
            Ability("generated text", False, only),
            Ability("ablate", True, "by how far the last states move"),
            Ability("patch, logits by head, circuits", False, only),
        ),
    )


def _layers(
    config: Mapping[str, Any], name: str, notes: list[str]
) -> tuple[tuple[AlikeLayers, ...], int, int | None]:
    """Return the attention layers of a configuration; none where it does not tell."""
    try:
        model = read_attention(config, called(name))
    except AttnvizError as error:
        notes.append(f"Its layers and heads are told by loading alone: {error.what}.")
        return (), 0, None
    notes += [note for note in (model.partial, *model.notes) if note]
    certain = model.family in FAMILIES
    guessed = True if _is_causal(config) else None
    groups = []
    for group in model.groups:
        spec, causal = group.spec, group.spec.causal if certain else guessed
        sizes = spec.heads, spec.kv_heads, spec.head_dim
        alike = AlikeLayers(group.label, group.layers, *sizes, causal, spec.window, spec.sink)
        groups.append(alike)
    return tuple(groups), model.idle, model.main.spec.d_model


def _is_causal(config: Mapping[str, Any]) -> bool:
    """Whether a configuration names a class that goes on with a text."""
    return any(end in str(name) for name in config.get("architectures") or () for end in _CAUSAL)


def _stored(files: tuple[Path, ...]) -> tuple[dict[str, int], int, int]:
    """Bytes by precision, and how many numbers and tensors there are, by the files' headers."""
    sizes: Counter[str] = Counter()
    numbers = tensors = 0
    for path in files:
        with safe_open(path, framework="np") as file:
            for key in file.keys():  # noqa: SIM118 (no dict)
                tensor = file.get_slice(key)
                count = math.prod(tensor.get_shape())
                kind = tensor.get_dtype()
                sizes[_NAMES.get(kind, kind)] += count * _BYTES.get(kind, 1)
                numbers += count
                tensors += 1
    return dict(sizes.most_common()), numbers, tensors


def _backend(located: Located) -> tuple[str, str, bool]:
    """Which backend will run it, and why; empty and why not; whether that is certain."""
    config, family = located.config, located.config["model_type"]
    if family not in NATIVE:
        import transformers

        code = ", and attnviz runs no code that comes with a model" * bool(config.get("auto_map"))
        if family not in transformers.CONFIG_MAPPING:
            return "", f"transformers {transformers.__version__} has no {family} models{code}", True
    try:
        backend, reason = pretrained.foresee(located)
    except ModelError as error:
        return "", str(error).removeprefix(f"{located.name}: "), True
    return backend or "hooked", reason, backend is not None


def _class(family: str) -> Any:
    """Return the class of transformers that runs a family; None where it has none."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    named = MODEL_MAPPING_NAMES.get(family)
    return named and getattr(transformers, named if isinstance(named, str) else named[0])


def _file(family: str) -> str:
    """Return what a model reads that reads no text; empty where it does."""
    built = _class(family)  # TrOCR's decoder has none without an LM head
    parameters = {} if built is None else inspect.signature(built.forward).parameters
    if not parameters or "input_ids" in parameters:
        return ""
    sound = "sound" if parameters.keys() & {"input_values", "input_features"} else ""
    return "pictures" if "pixel_values" in parameters else sound


def _has_template(folder: Path) -> bool:
    """Whether the folder has a chat template."""
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(settings, dict) and bool(settings.get("chat_template"))


def _abilities(card: ModelCard, config: Mapping[str, Any], *, sure: bool) -> Iterator[Ability]:
    """Yield what will work and what not."""
    if not card.backend:
        yield Ability("maps and scores", False, card.reason)
        return
    commands = "heads, heatmap, view, profile, spans, capture, export" if sure else card.reason
    yield Ability("maps and scores", True if sure else None, commands)
    causal = _is_causal(config)
    masked = any(_MASKED in name for name in card.architectures)
    words = causal or masked
    if card.backend != "native" and (file := _file(config["model_type"])):
        yield Ability("texts", False, f"it reads {file}")
        yield Ability("predictions", words, "" if words else f"it reads {file} and writes no words")
    else:
        chat = card.chat_template
        yield Ability("texts", card.tokenizer, "" if card.tokenizer else "no tokenizer: give ids")
        yield Ability("chat", chat and card.tokenizer, "" if chat else "no chat template")
        head = "" if words else "its configuration names no LM head"
        yield Ability("predictions", words or None, head)
    yield Ability("generated text", causal, "" if causal else "it is no decoder with an LM head")
    eager = "attention in code of its own cannot be gated"
    gated = card.backend != "eager"
    yield Ability("ablate, patch", gated, "" if gated else eager)
    if card.backend == "native":
        sums = native.read(config).family.pre_norm
        post = "each layer normalizes the sum of what it gets and what it adds"
        yield Ability("logits by head, circuits", sums, "" if sums else post)
    else:
        condition = "proved on the model itself when it is loaded" if gated else eager
        works = None if gated else False
        obstacle = "some of its layers have no attention" if card.idle else ""
        if config.get("is_encoder_decoder"):
            obstacle = "they are of a single stack"
        if obstacle:
            yield Ability("logits by head, circuits", False, obstacle)
        yield Ability("norms" if obstacle else "logits by head, circuits, norms", works, condition)
