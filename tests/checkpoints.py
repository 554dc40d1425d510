"""Tiny random checkpoints of the native backend's families, written by transformers itself."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

needs_transformers_5 = pytest.mark.skipif(
    version("transformers").startswith("4."),
    reason="transformers 4 has no way into BERT's attention, and ignores add_bos_token",
)

SIZES = {"vocab_size": 293, "layers": 2, "heads": 3, "width": 21, "inner": 29, "positions": 47}
"""Odd and different from each other, so that no two axes can be mixed up."""

_KEYS = {
    "bert": ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size"),
    "distilbert": ("n_layers", "n_heads", "dim", "hidden_dim"),
    "gpt2": ("n_layer", "n_head", "n_embd", "n_inner"),
}
_KEYS["roberta"] = _KEYS["bert"]
_POSITIONS = {"gpt2": "n_positions"}
_ODD = {"roberta": {"pad_token_id": 4, "type_vocab_size": 1}, "gpt2": {"eos_token_id": 0}}
TEXTS = (
    "The keys are on the table.", "Keys, tables & CAFÉS: naïve ones!",
    "on  the\ttable\nthe the 42", "键 table ⚙️ 🗝", "",
)  # fmt: skip


def write(folder: Path, family: str, wrapper: str = "", **settings: object) -> Path:
    """Save to ``folder`` a model of a family (or of a class) with every parameter random."""
    import transformers

    sizes = dict(zip(_KEYS[family], list(SIZES.values())[1:5], strict=True))
    sizes[_POSITIONS.get(family, "max_position_embeddings")] = SIZES["positions"]
    odd = _ODD.get(family, {})
    config = transformers.AutoConfig.for_model(
        family, vocab_size=SIZES["vocab_size"], **(sizes | odd | settings)
    )
    if wrapper:
        model = getattr(transformers, wrapper)(config)
    else:
        model = transformers.AutoModel.from_config(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scale = 1.5 / math.sqrt(SIZES["width"]) if parameter.ndim > 1 else 0.3
            parameter.copy_(noise * scale + (parameter == 1))  # normalizations stay around 1
    model.save_pretrained(folder)
    (wordpiece if family in ("bert", "distilbert") else byte_pairs)(folder, family)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    """Change ``config.json``; None removes a key."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def edit_weights(folder: Path, change) -> None:
    """Rewrite the state dict in ``model.safetensors``."""
    path = folder / "model.safetensors"
    state = {k: v.clone() for k, v in load_file(path).items()}
    save_file({k: v.contiguous() for k, v in change(state).items()}, path)


def wordpiece(folder: Path, family: str = "bert", **settings: object) -> None:
    """``vocab.txt``: letters, a few words and endings."""
    letters = [chr(c) for c in range(33, 127)]
    words = ["the", "The", "keys", "are", "on", "table", "key", "caf", "##es", "é", "键"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words]
    pieces += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyzé"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    name = {"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer"}[family]
    _settings(folder, **({"tokenizer_class": name} | settings))


def byte_pairs(folder: Path, family: str = "gpt2", **settings: object) -> None:
    """``vocab.json`` and ``merges.txt``: all 256 bytes and a few merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    special = ["<|endoftext|>"] if family == "gpt2" else ["<s>", "</s>", "<unk>", "<mask>", "<pad>"]
    merges = ["t h", "th e", "Ġ the", "Ġ t", "k e", "y s", "ke ys", "Ġ keys", "T h", "Th e"]
    pieces = [*special, *sorted(ByteLevel.alphabet()), *(m.replace(" ", "") for m in merges)]
    (folder / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    name = {"gpt2": "GPT2Tokenizer", "roberta": "RobertaTokenizer"}[family]
    _settings(folder, **({"tokenizer_class": name} | settings))


def _settings(folder: Path, **settings: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
