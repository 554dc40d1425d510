"""The tokenizers of the demo models: trained, saved for transformers, applied to books."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

Ids = NDArray[np.int64]
END = "<|endoftext|>"
ROLES = ("system", "user", "assistant")
CAUSAL_SPECIAL = (END, *(f"<|{role}|>" for role in ROLES))
"""The causal model's special tokens, ids 0 to 3: the begin and end of a text, and who speaks."""
CHAT = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('roles are system, user and assistant') }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The causal model's chat template: who speaks is a token, and an answer ends as a text does."""
STOPS = (".", "?", "!")
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

WHOLE, BOOKS = 5000, 8
"""How many of the commonest words are kept whole, and in how many books they have to be."""
BEGIN = 2000
"""Of so many words those with a capital are kept whole at the beginning of a text as well."""
EXAMPLES = ("Document", "Question", "Answer", "cabinet")
"""Rarer words that are kept whole as well: of prompts with documents, and of the first text."""
FLOOR = 4000
"""Occurrences that every word to be kept whole counts as, at least."""

_WORD = re.compile(r"(?<!['’\w])[A-Za-z]+")
_SPACED = re.compile(r"(?<= )[A-Za-z]+")
_BARE = re.compile(r"(?<![^\n\"“‘'—-])[A-Z][a-z]+")


def special_id(tokenizer: Tokenizer, name: str) -> int:
    """Return the id of a special token, which the tokenizer must have."""
    found = tokenizer.token_to_id(name)
    if found is None:
        raise SystemExit(f"the tokenizer has no {name}")
    return int(found)


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of BERT's special tokens, by name."""
    return {name: special_id(tokenizer, name) for name in BERT_SPECIAL}


def stop_ids(tokenizer: Tokenizer) -> Ids:
    """Return the ids of the tokens that end a sentence."""
    return np.asarray([special_id(tokenizer, stop) for stop in STOPS], dtype=np.int64)


def common_words(texts: Sequence[str], count: int = WHOLE, books: int = BOOKS) -> list[str]:
    """Return the commonest words as they are written, of those in at least ``books`` of the texts.

    Names of a single novel are common there and nowhere else. The commonest come first.
    """
    words, spread = Counter[str](), Counter[str]()
    for text in texts:
        here = Counter(_WORD.findall(text))
        words.update(here)
        spread.update(here.keys())
    least = min(books, len(texts))
    return [word for word, _ in words.most_common() if spread[word] >= least][:count]


def _floors(texts: Sequence[str], words: Iterable[str]) -> Iterable[str]:
    """Yield what brings each of ``words`` to :data:`FLOOR` occurrences.

    A word after a space is another sequence of bytes than the same word at the beginning of a
    text, where common capitalized words alone are wanted whole.
    """
    spaced, bare = Counter[str](), Counter[str]()
    for text in texts:
        spaced.update(_SPACED.findall(text))
        bare.update(_BARE.findall(text))
    for place, word in enumerate(words):
        yield f" {word}" * (FLOOR - spaced[word])
        if place < BEGIN and word[0].isupper():
            yield f"{word}\n" * (FLOOR - bare[word])


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level BPE as GPT-2's, with ``<|endoftext|>`` (id 0) put before every text.

    Common words count as at least :data:`FLOOR` occurrences, so that their merges come before those
    of fragments: with 8,192 tokens the commonest 5,000 words stay whole after a space.
    """
    books = list(texts)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(
        vocab_size=size,
        special_tokens=list(CAUSAL_SPECIAL),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    words = dict.fromkeys([*EXAMPLES, *common_words(books)])
    tokenizer.train_from_iterator(chain(books, _floors(books, words)), trainer)
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
        {
            "bos_token": END,
            "eos_token": END,
            "unk_token": END,
            "additional_special_tokens": list(CAUSAL_SPECIAL[1:]),
        }
        if causal
        else {f"{name.strip('[]').lower()}_token": name for name in BERT_SPECIAL}
    )
    inputs = (
        ["input_ids", "attention_mask"]
        if causal
        else ["input_ids", "token_type_ids", "attention_mask"]
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": positions,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        **({"chat_template": CHAT} if causal else {"do_lower_case": True}),
        **special,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def encode(tokenizer: Tokenizer, books: Mapping[str, str]) -> dict[str, Ids]:
    """Return the ids of each book, without special tokens."""
    return {
        name: np.asarray(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        for name, text in books.items()
    }
