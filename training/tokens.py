"""The tokenizers of the demo models: trained, saved for transformers, applied to books."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

Ids = NDArray[np.int64]
END = "<|endoftext|>"
STOPS = (".", "?", "!")
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def special_id(tokenizer: Tokenizer, name: str) -> int:
    """The id of a special token, which the tokenizer must have."""
    found = tokenizer.token_to_id(name)
    if found is None:
        raise SystemExit(f"the tokenizer has no {name}")
    return int(found)


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of BERT's special tokens, by name."""
    return {name: special_id(tokenizer, name) for name in BERT_SPECIAL}


def stop_ids(tokenizer: Tokenizer) -> Ids:
    """The ids of the tokens that end a sentence."""
    return np.asarray([special_id(tokenizer, stop) for stop in STOPS], dtype=np.int64)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level BPE as GPT-2's, with ``<|endoftext|>`` (id 0) put before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A $B", special_tokens=[(END, 0)]
    )
    return tokenizer


def train_wordpiece(texts: Iterable[str], size: int) -> Tokenizer:
    """Lower-cased WordPiece as BERT's: ``[CLS] A [SEP] B [SEP]`` with segments 0 and 1."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = WordPieceTrainer(
        vocab_size=size, special_tokens=list(BERT_SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, BERT_SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, positions: int) -> None:
    """tokenizer.json and the tokenizer_config.json by which transformers finds it."""
    causal = tokenizer.token_to_id(END) is not None
    special = (
        {"bos_token": END, "eos_token": END, "unk_token": END}
        if causal
        else {f"{name.strip('[]').lower()}_token": name for name in BERT_SPECIAL}
    )
    inputs = (
        ["input_ids", "attention_mask"]
        if causal
        else [
            "input_ids",
            "token_type_ids",
            "attention_mask",
        ]
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": positions,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        **({} if causal else {"do_lower_case": True}),
        **special,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def encode(tokenizer: Tokenizer, books: Mapping[str, str]) -> dict[str, Ids]:
    """The ids of each book, without special tokens."""
    return {
        name: np.asarray(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        for name, text in books.items()
    }
