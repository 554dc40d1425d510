"""From a model's folder to a network in memory: no code, no pickles, no made-up weights."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import safe_open

from attnviz.core.settings import LOADING
from attnviz.errors import ModelError
from attnviz.files import human_bytes
from attnviz.models import adapters
from attnviz.models.controls import Control, shuffle
from attnviz.models.device import PLAIN, Placement
from attnviz.models.external_errors import one_line, silenced
from attnviz.models.folder import read_object
from attnviz.models.hooked.network import HookedModel, Limit

_BESIDES = ("pooler", "logits_bias")
"""Weights that no attention depends on; a checkpoint may lack them."""
_NOTHING_LEARNED = "its weights are untrained"
_FEW_PARAMETERS = 1 << 28
"""So many are built whatever the files hold: what is wrong with them is said more exactly then."""


def load_network(
    folder: Path,
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    control: Control | None = None,
    reads: str = "text",
    placement: Placement = PLAIN,
    adapter: Path | None = None,
) -> HookedModel:
    """Load a model, with its LM head if it has one, and with eager attention switched on."""
    with silenced():
        import transformers

        config, tower_class, builder, no_logits, longest = _planned(folder, name, reads)
        _refuse_much_larger(builder, config, folder, name)
        try:
            if control is not None and control.scale == "default":
                model = _drawn(builder, config, control.seed).to(dtype)
                return _network(model, body_of(model), device, _NOTHING_LEARNED)
            renames = {} if tower_class is None else _renamed(tower_class, config, folder)
            options, converted = _placed(placement, device, dtype), None
            if placement.device_map:  # for what does not fit in memory, nor is stored as it is used
                converted = TemporaryDirectory(prefix="attnviz", ignore_cleanup_errors=True)
                options["offload_folder"] = converted.name
            model, report = _read(builder, folder, config, dtype, **renames, **options)
        except Exception as error:  # transformers raises whatever its parts raise
            raise ModelError(
                f"{name}: transformers {transformers.__version__} cannot load this "
                f"{config.model_type} model: {one_line(error)}"
            ) from error
        body = model if no_logits else body_of(model)
        if adapter is not None:
            adapters.add(model, adapter, read_object(adapter / adapters.CONFIG), name)
        if absent := _made_up(report, model, body, name):
            no_logits = f"its checkpoint has no LM head ({absent} is not in it)"
        if control is not None:
            shuffle(model.parameters(), control.seed)
            no_logits = _NOTHING_LEARNED
        try:
            if not placement.plain:  # its parts are where they belong
                device = first_device(model)
            network = _network(model, body, device, no_logits, on_device=not placement.plain)
            network.full_up_to, network.converted = longest, converted
            return network
        except (RuntimeError, torch.OutOfMemoryError) as error:
            raise ModelError(f"{name} does not fit on {device}: {one_line(error)}") from error


def _network(
    model: Any, body: Any, device: torch.device, no_logits: str, *, on_device: bool = False
) -> HookedModel:
    """Return a model with its head; without it where it has none, or one that was made up."""
    seq2seq = has_decoder(model)
    outer = body if no_logits and not seq2seq else model
    return HookedModel(
        outer, body, device, seq2seq=seq2seq, no_logits=no_logits, on_device=on_device
    )


def first_device(model: Any) -> torch.device:
    """Where a model's inputs go, and weights that are in memory only while their module runs."""
    stored: torch.device = next(model.parameters()).device
    if stored.type != "meta":
        return stored
    devices = getattr(model, "hf_device_map", {}).values()
    loaded = [device for device in devices if str(device) not in ("cpu", "disk")]
    return torch.device(loaded[0] if loaded else "cpu")


def load_classifier(
    folder: Path, name: str, device: torch.device, dtype: torch.dtype, adapter: Path | None = None
) -> Any:
    """Load the classifier that a checkpoint names, with every weight of its head."""
    with silenced():
        import transformers

        config = _config(folder, name)
        named = (getattr(config, "architectures", None) or [""])[0]
        builder = getattr(transformers, named, None)
        if builder is None or getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"{name}: labels of {named or config.model_type} are not read")
        try:
            model, report = _read(builder, folder, config, dtype)
        except Exception as error:  # transformers raises whatever its parts raise
            raise ModelError(
                f"{name}: transformers cannot load {named}: {one_line(error)}"
            ) from error
        _made_up(report, model, body_of(model), name)
        if adapter is not None:
            adapters.add(model, adapter, read_object(adapter / adapters.CONFIG), name)
        wrong = [*report["missing_keys"], *map(str, report["mismatched_keys"])]
        if wrong:
            raise ModelError(
                f"{name}: its label head is not in its weights ({sorted(wrong)[0]} is missing or "
                "of another shape)"
            )
        return model.to(device)


def load_shapes(folder: Path, name: str, *, random: bool = False) -> HookedModel:
    """Return the network that :func:`load_network` loads, without its weights.

    It is on the device ``meta``, or has ``random`` numbers.
    """
    device = torch.device("cpu" if random else "meta")
    with silenced():
        config, _, builder, no_logits, longest = _planned(folder, name, "text")
        try:
            with device:
                model = _drawn(builder, config, 0)
                body = model if no_logits else body_of(model)
        except Exception as error:  # as above
            raise ModelError(f"{name}: transformers cannot build it: {one_line(error)}") from error
        network = _network(model, body, device, no_logits)
        network.full_up_to = longest
        return network


def _planned(folder: Path, name: str, reads: str) -> tuple[Any, Any, Any, str, Limit | None]:
    """Choose what is loaded, and how."""
    config, tower_class = tower(_config(folder, name), reads)
    builder, no_logits = _architecture(config)
    if tower_class is not None:
        builder, no_logits = tower_class, f"{tower_class.__name__} has no LM head"
    longest = full_up_to(config, encoder_only=str(builder.__name__).endswith("EncoderModel"))
    if longest is not None and hasattr(config, "attention_type"):
        config.attention_type = "original_full"
    return config, tower_class, builder, no_logits, longest


def _read(builder: Any, folder: Path, config: Any, dtype: Any, **options: Any) -> tuple[Any, Any]:
    """Return a model of a folder's safetensors in eager attention, and what its loading reports."""
    with _telling():
        model, report = builder.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    return model, report


@contextmanager
def _telling() -> Iterator[None]:
    """Tell of each weight that is read inside the block, where transformers' bars can be asked."""
    from transformers.utils import logging

    tell, ask = LOADING.get(), getattr(logging, "set_tqdm_hook", lambda hook: None)

    def counted(weights: Any) -> Iterator[Any]:
        for number, weight in enumerate(weights):
            tell("weights", number + 1, len(weights))
            yield weight

    def bar(make: Any, args: Any, named: Any) -> Any:
        return counted(*args) if named.get("desc") == "Loading weights" else make(*args, **named)

    previous = ask(bar)
    try:
        yield
    finally:
        ask(previous)


def full_up_to(config: Any, *, encoder_only: bool) -> Limit | None:
    """Tell up to where attention goes to tokens alone.

    BigBird's goes to blocks of keys beyond, that of LongT5's encoder, in a model that is
    ``encoder_only``, to sums of blocks too; None of any other model.
    """
    if getattr(config, "attention_type", None) == "block_sparse":
        limit = (5 + 2 * config.num_random_blocks) * config.block_size
        return (
            int(limit),
            "blocks of keys (attention_type 'block_sparse')",
            'set attention_type="original_full" in its config.json',
        )
    kind = getattr(config, "encoder_attention_type", None)
    if kind == "transient-global" and encoder_only:
        size = int(config.global_block_size)
        return (
            size - 1,
            f"sums of {size} tokens too (encoder_attention_type 'transient-global'), for which no "
            "token stands",
            "give a shorter text",
        )
    return None


def _placed(placement: Placement, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Return what ``from_pretrained`` takes for it."""
    options: dict[str, Any] = {}
    if placement.plain:
        return options
    options["device_map"] = placement.device_map or {"": device}
    if placement.load_in is not None:
        from transformers import BitsAndBytesConfig

        four = placement.load_in == "4bit"
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=four, load_in_8bit=not four, bnb_4bit_compute_dtype=dtype
        )
    return options


def _fresh(builder: Any, config: Any) -> Any:
    """Return a model with the weights that transformers draws; on the device of the context."""
    make = getattr(builder, "_from_config", None) or builder.from_config
    return make(config, attn_implementation="eager")


def _drawn(builder: Any, config: Any, seed: int) -> Any:
    """Return the same for a seed; numbers that are drawn later stay as they would be."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _fresh(builder, config)


def _refuse_much_larger(builder: Any, config: Any, folder: Path, name: str) -> None:
    """Refuse a model of many times what its files hold, before transformers fills memory with it.

    A configuration of another family than the weights leaves every size to that family's defaults.
    A parameter takes two bytes or more, a quarter of one where it is quantized; an LM head may be
    missing, which is smaller than the rest. So a model that fits its files has at most half of
    this limit.
    """
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    limit = max(size * (16 if getattr(config, "quantization_config", None) else 2), _FEW_PARAMETERS)
    try:
        parameters = _parameters(builder, config)
    except Exception:  # loading it says what is wrong with it
        return
    if parameters > limit:
        raise ModelError(
            f"{name}: a {config.model_type} model of this config.json has {parameters:,} "
            f"parameters, its weights take {human_bytes(size)}; the two files belong to "
            "different models"
        )


def _parameters(builder: Any, config: Any) -> int:
    """Count the parameters of a model of this configuration, once for all that share it."""
    alike = builder, config.to_json_string()
    if alike not in _COUNTED:
        with torch.device("meta"):
            _COUNTED[alike] = sum(p.numel() for p in _fresh(builder, config).parameters())
    return _COUNTED[alike]


_COUNTED: dict[tuple[Any, str], int] = {}


def _config(folder: Path, name: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # as above
        raise ModelError(
            f"{name}: transformers does not know this model: {one_line(error)}"
        ) from error


def tower(config: Any, reads: str) -> tuple[Any, Any]:
    """One tower of a model that has one for text and one for pictures or sound, which never meet.

    Returns:
        Its configuration and its class; the configuration as it is and None of any other model.
    """
    from transformers import MODEL_MAPPING, PreTrainedModel

    mapping: Any = MODEL_MAPPING
    model_class = mapping.get(type(config), None)
    if not hasattr(model_class, "get_text_features"):
        return config, None
    part = getattr(config, "vision_config" if reads == "image" else "text_config", None)
    if part is None or type(part) in mapping:
        return (config, None) if part is None else (part, None)
    alike = [
        kind
        for kind in vars(sys.modules[model_class.__module__]).values()
        if isinstance(kind, type)
        and issubclass(kind, PreTrainedModel)
        and getattr(kind, "config_class", None) is type(part)
    ]
    named = [kind for kind in alike if kind.__name__.endswith(("TextModel", "VisionModel"))]
    return (part, min(named, key=lambda kind: len(kind.__name__))) if named else (config, None)


def _renamed(builder: Any, config: Any, folder: Path) -> dict[str, Any]:
    """How a tower's weights are found in the file of both: what stands before their names."""
    with torch.device("meta"):
        keys = list(_fresh(builder, config).state_dict())
    stored = set[str]()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="np") as file:
            stored |= set(file.keys())
    prefixes = {key.removesuffix(keys[0]) for key in stored if f".{key}".endswith(f".{keys[0]}")}
    prefix = max(prefixes, key=lambda start: sum(start + key in stored for key in keys), default="")
    return {"key_mapping": {f"^{re.escape(prefix)}": ""}} if prefix else {}


def _architecture(config: Any) -> tuple[Any, str]:
    """Return the class to load it with, and why that has no LM head (empty where it has).

    The one that the checkpoint names, if that has such a head; else the family's own: whether the
    checkpoint has weights for it shows when they are loaded.
    """
    import transformers

    named = (getattr(config, "architectures", None) or [""])[0]
    model_class = getattr(transformers, named, None) if named else None
    heads = _with_words(config)
    if named.endswith("EncoderModel") and model_class is not None:  # T5's encoder alone
        return model_class, f"{named} has no LM head"
    if not heads:
        family = named or config.model_type
        return transformers.AutoModel, f"transformers has no LM head for {family}"
    return model_class if model_class in heads else heads[0], ""


def _with_words(config: Any) -> list[Any]:
    """Return the classes of a family that have an LM head."""
    from transformers.models.auto import modeling_auto as auto

    mappings = [
        auto.MODEL_FOR_MASKED_LM_MAPPING,
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    ]
    if getattr(config, "is_encoder_decoder", False):
        mappings = [
            auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
            auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
        ]
    return [mapping[type(config)] for mapping in mappings if type(config) in mapping]


def has_decoder(model: Any) -> bool:
    """Whether a model has an encoder and a decoder: an encoder alone has the config of both."""
    if not getattr(model.config, "is_encoder_decoder", False):
        return False
    try:
        return model.get_decoder() is not model
    except (AttributeError, NotImplementedError):  # older versions of transformers
        return "decoder_input_ids" in inspect.signature(model.forward).parameters


def has_words(model: Any) -> bool:
    """Whether a loaded model has an LM head."""
    if isinstance(model, tuple(_with_words(model.config))):
        return True  # and the language model alone of one that sees, whose part its config is
    named = type(model).__name__.endswith("CausalLM") and model.base_model is not model
    return named and model.get_output_embeddings() is not None


def body_of(model: Any) -> Any:
    """Take a model without its head; where that is no module of its own (T5), one of its parts."""
    import transformers

    kinds: Any = transformers.MODEL_MAPPING
    if model.base_model is not model or type(model.config) not in kinds:
        return model.base_model
    for part in model.children():  # Llama 4 keeps it under another name than it says
        if isinstance(part, kinds[type(model.config)]):
            return part
    auto: Any = transformers.AutoModel
    with torch.device("meta"):
        body = auto.from_config(model.config, attn_implementation="eager")
    parts = dict(model.named_children())
    for name in [name for name, _ in body.named_children() if name in parts]:
        setattr(body, name, parts[name])
    missing = any(tensor.is_meta for tensor in (*body.parameters(), *body.buffers()))
    return model if missing else body.eval()


def _made_up(report: Mapping[str, Any], model: Any, body: Any, name: str) -> str:
    """Return the first weight of the LM head that transformers had to make up, if there is one."""
    inside = [name for name, module in model.named_modules() if module is body and name]
    prefix = f"{inside[0]}." if inside else ""
    body_keys = frozenset(body.state_dict())
    head: list[str] = []
    for entry in report["mismatched_keys"]:
        key, *shapes = [entry] if isinstance(entry, str) else entry
        if key.removeprefix(prefix) in body_keys:
            _refuse_shape(name, key.removeprefix(prefix), shapes)
        head.append(key)
    absent = [key for key in report["missing_keys"] if not any(b in key for b in _BESIDES)]
    names = {key: key.removeprefix(prefix) for key in sorted(absent)}
    missing = sorted(name for name in names.values() if name in body_keys)
    if missing:
        suffix = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{name}: its weights lack {missing[0]}{suffix}; the checkpoint is incomplete or of "
            "another architecture"
        )
    return next(iter((*head, *names)), "")


def _refuse_shape(name: str, key: str, shapes: Sequence[Any]) -> None:
    if not shapes:  # transformers 4 names the weight only
        raise ModelError(f"{name}: weight {key} has another shape than its config.json says")
    stored, expected = map(tuple, shapes)
    raise ModelError(
        f"{name}: weight {key} has shape {stored}, its config.json says {expected}; the two files "
        "belong to different models"
    )
