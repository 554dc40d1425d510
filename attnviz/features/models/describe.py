"""From a model's folder to its card: configuration and headers alone, no weights, no download."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attnviz.core.provenance import called
from attnviz.errors import AttnvizError, ModelError
from attnviz.features.models.card import Ability, AlikeLayers, ModelCard
from attnviz.features.models.catalog import has_tokenizer
from attnviz.models.configs.model import read_config as read_attention
from attnviz.models.folder import check_files, find_weights, locate_config, read_config
from attnviz.models.native import Unsupported
from attnviz.models.native import config as native

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_RUN = {"float32": 4, "bfloat16": 2, "float16": 2}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")
_MASKED = "MaskedLM"
_CAUSAL = ("CausalLM", "LMHeadModel", "ConditionalGeneration")


def describe(name: str) -> ModelCard:
    """What a model is.

    Args:
        name: a bundled name, a folder, or a hub id; of the hub only its configuration is fetched,
            if that is not in the cache.

    Raises:
        ModelError: no such model, no readable configuration, or weights that cannot be used.
    """
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
        why = error.what.removeprefix(f"{folder} ")
        notes.append(f"Its weights are not here: it {why}.")
    stored, numbers, tensors = _stored(files)
    backend, reason = _backend(config)
    tokenizer, chat = has_tokenizer(folder), _has_template(folder)
    architectures = tuple(map(str, config.get("architectures") or ()))
    return ModelCard(
        name=called(name),
        family=config["model_type"],
        architectures=architectures,
        groups=groups,
        idle=idle,
        width=width,
        max_tokens=next((n for key in _LENGTHS if isinstance(n := config.get(key), int)), None),
        parameters=numbers,
        tensors=tensors,
        stored=stored,
        memory={dtype: size * numbers for dtype, size in _RUN.items()},
        files=tuple(path.name for path in files),
        backend=backend,
        reason=reason,
        tokenizer=tokenizer,
        chat_template=chat,
        abilities=tuple(_abilities(config, architectures, backend, reason, tokenizer, chat)),
        notes=tuple(notes),
    )


def _layers(
    config: Mapping[str, Any], name: str, notes: list[str]
) -> tuple[tuple[AlikeLayers, ...], int, int | None]:
    """The attention layers of a configuration; none where it does not tell."""
    try:
        model = read_attention(config, called(name))
    except AttnvizError as error:
        notes.append(f"Its layers and heads are told by loading alone: {error.what}.")
        return (), 0, None
    notes += [note for note in (model.partial, *model.notes) if note]
    groups = tuple(
        AlikeLayers(
            group.label,
            group.layers,
            group.spec.heads,
            group.spec.kv_heads,
            group.spec.head_dim,
            group.spec.causal,
            group.spec.window,
            group.spec.sink,
        )
        for group in model.groups
    )
    return groups, model.idle, model.main.spec.d_model


def _stored(files: tuple[Path, ...]) -> tuple[dict[str, int], int, int]:
    """Bytes by precision, and how many numbers and tensors there are, by the files' headers."""
    from safetensors import safe_open

    sizes: Counter[str] = Counter()
    numbers = tensors = 0
    for path in files:
        with safe_open(path, framework="np") as file:
            for key in file.keys():  # noqa: SIM118 (no dict)
                tensor = file.get_slice(key)
                count = 1
                for length in tensor.get_shape():
                    count *= length
                kind = tensor.get_dtype()
                sizes[_NAMES.get(kind, kind)] += count * _BYTES.get(kind, 1)
                numbers += count
                tensors += 1
    return dict(sizes.most_common()), numbers, tensors


def _backend(config: Mapping[str, Any]) -> tuple[str, str]:
    """Which backend will run it, and why; empty and why not."""
    try:
        native.read(config)
        return "native", "attnviz's own forward pass knows its family and its settings"
    except Unsupported as error:
        reason = f"not the native backend: {error}"
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    family = config["model_type"]
    named = MODEL_MAPPING_NAMES.get(family)
    if named is None:
        code = ", and attnviz runs no code that comes with a model" * bool(config.get("auto_map"))
        return "", f"transformers {transformers.__version__} has no {family} models{code}"
    built = getattr(transformers, named if isinstance(named, str) else named[0])
    if "ALL_ATTENTION_FUNCTIONS" not in vars(sys.modules[built.__module__]):
        return "eager", f"{reason}; {family} layers do not ask for an attention function"
    return "hooked", f"{reason}; eager if its weights are not those of the hooks, when it is loaded"


def _has_template(folder: Path) -> bool:
    """Whether the folder has a chat template."""
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(settings, dict) and bool(settings.get("chat_template"))


def _abilities(
    config: Mapping[str, Any],
    architectures: tuple[str, ...],
    backend: str,
    reason: str,
    tokenizer: bool,
    chat: bool,
) -> Iterator[Ability]:
    """What will work and what not."""
    if not backend:
        yield Ability("maps and scores", False, reason)
        return
    yield Ability("maps and scores", True, "heads, heatmap, view, profile, spans, capture, export")
    yield Ability("texts", tokenizer, "" if tokenizer else "no tokenizer: give ids")
    yield Ability("chat", chat and tokenizer, "" if chat else "no chat template")
    causal = any(end in name for name in architectures for end in _CAUSAL)
    masked = any(_MASKED in name for name in architectures)
    head = "" if causal or masked else "its configuration names no LM head"
    yield Ability("predictions", causal or masked or None, head)
    yield Ability("generated text", causal, "" if causal else "it is no decoder with an LM head")
    own = "attention in code of its own cannot be gated"
    gated = backend != "eager"
    yield Ability("ablate, patch", gated, "" if gated else own)
    if backend == "native":
        sums = native.read(config).family.pre_norm
        post = "each layer normalizes the sum of what it gets and what it adds"
        yield Ability("logits by head, circuits", sums, "" if sums else post)
    else:
        yield Ability(
            "logits by head, circuits, norms",
            None if gated else False,
            "proved on the model itself when it is loaded" if gated else own,
        )
