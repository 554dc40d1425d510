"""Text to ids by ``tokenizers`` alone: from ``tokenizer.json``, or from older vocabulary files.

``tokenizer.json`` says everything; what ``tokenizer_config.json`` says about lower case, accents,
Chinese characters, a leading space or a beginning token has the last word, as it has in
transformers. Models from before that file have ``vocab.txt`` (WordPiece) or ``vocab.json`` with
``merges.txt`` (byte-level BPE), read with the settings of BERT, RoBERTa or GPT-2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from attnviz.errors import ModelError
from attnviz.files import contents
from attnviz.models.configs.keys import shown
from attnviz.models.external_errors import muted, provoke, refusing
from attnviz.models.native.config import Spelling, Unsupported

_CLASSES: Mapping[str, Spelling] = {
    "Bert": "wordpiece",
    "DistilBert": "wordpiece",
    "Roberta": "roberta",
    "GPT2": "gpt2",
}
_ROLES: Mapping[Spelling, Mapping[str, str]] = {
    "wordpiece": {
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    "roberta": {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>",
        "pad_token": "<pad>", "cls_token": "<s>", "mask_token": "<mask>",
    },
    "gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
}  # fmt: skip
"""Special tokens where no file names others."""


def load(folder: Path, usual: Spelling) -> Tokenizer | None:
    """Return the tokenizer in a model's folder; None if there is none."""
    settings = _json(folder / "tokenizer_config.json")
    if settings.get("auto_map"):
        raise Unsupported("its tokenizer asks for code of its own (auto_map)")
    file = folder / "tokenizer.json"
    tokenizer = _read(file, _from_file) if file.is_file() else _build(folder, usual, settings)
    if tokenizer is None:
        return None
    _apply(tokenizer, settings)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    with refusing(f"the tokenizer in {folder} reads no text", "download it again"):
        provoke(tokenizer.encode)
    return tokenizer


def _from_file(path: str) -> Tokenizer:
    with muted():
        return Tokenizer.from_file(path)


def _build(folder: Path, usual: Spelling, settings: Mapping[str, Any]) -> Tokenizer | None:
    """Get a tokenizer from vocabulary files, as the class that the settings name would build it."""
    named = str(settings.get("tokenizer_class") or "")
    spelling = _CLASSES.get(named.removesuffix("Fast").removesuffix("Tokenizer"), usual)
    vocabulary = folder / ("vocab.txt" if spelling == "wordpiece" else "vocab.json")
    merges = folder / "merges.txt"
    complete = vocabulary.is_file() and (spelling == "wordpiece" or merges.is_file())
    files = [p.name for p in folder.glob("*.model")] + [p.name for p in folder.glob("vocab.*")]
    supported = not named or named.removesuffix("Fast").removesuffix("Tokenizer") in _CLASSES
    if not supported and (complete or files):
        raise Unsupported(f"its tokenizer is {named}")
    if not complete:
        if files:
            raise Unsupported(f"its tokenizer has {files[0]} only")
        return None
    special = {
        role: _content(settings.get(role), default) for role, default in _ROLES[spelling].items()
    }
    if spelling == "wordpiece":
        tokenizer = _wordpiece(vocabulary, special)
    else:
        tokenizer = Tokenizer(_read(vocabulary, lambda p: models.BPE.from_file(p, str(merges))))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    _add_special(tokenizer, special, settings)
    if spelling == "gpt2":
        return tokenizer
    cls, sep = (_known(tokenizer, special[role]) for role in ("cls_token", "sep_token"))
    if spelling == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing(sep, cls, add_prefix_space=False)
    else:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls[0]}:0 $A:0 {sep[0]}:0",
            pair=f"{cls[0]}:0 $A:0 {sep[0]}:0 $B:1 {sep[0]}:1",
            special_tokens=[cls, sep],
        )
    return tokenizer


def _known(tokenizer: Tokenizer, token: str) -> tuple[str, int]:
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        raise Unsupported(f"its vocabulary lacks {token}")
    return token, token_id


def _wordpiece(path: Path, special: Mapping[str, str]) -> Tokenizer:
    vocabulary = _read(path, models.WordPiece.read_file)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _add_special(
    tokenizer: Tokenizer, special: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    """Tell the tokenizer which tokens are never split, and add those beyond the vocabulary."""
    tokenizer.add_special_tokens(
        [
            AddedToken(token, lstrip=token == "<mask>", special=True, normalized=False)
            for token in dict.fromkeys(special.values())
            if tokenizer.token_to_id(token) is not None
        ]
    )
    for token_id, token in sorted(_later(settings).items()):
        if tokenizer.token_to_id(token["content"]) is None:
            flags = {k: bool(token[k]) for k in ("lstrip", "rstrip", "normalized") if k in token}
            added = AddedToken(token["content"], special=bool(token.get("special")), **flags)
            tokenizer.add_tokens([added])
        if tokenizer.token_to_id(token["content"]) != token_id:
            raise Unsupported(f"its tokenizer gives {token['content']} the id {token_id}")


def _later(settings: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the tokens that were added to the vocabulary later, by id."""
    later = settings.get("added_tokens_decoder") or {}
    try:
        added = {int(token_id): token for token_id, token in later.items()}
        if all(isinstance(token["content"], str) for token in added.values()):
            return added
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise ModelError(
        f"tokenizer_config.json has added_tokens_decoder {shown(later)}; it must hold ids, each "
        "with a token's content",
        remedy="download it again",
    )


def _apply(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
    """Let ``tokenizer_config.json`` have the last word where it says something."""
    normalizer, splitter = tokenizer.normalizer, tokenizer.pre_tokenizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        for setting, attribute in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if isinstance(settings.get(setting), bool):
                setattr(normalizer, attribute, settings[setting])
        tokenizer.normalizer = normalizer
    if isinstance(splitter, pre_tokenizers.ByteLevel) and "add_prefix_space" in settings:
        splitter.add_prefix_space = bool(settings["add_prefix_space"])
        tokenizer.pre_tokenizer = splitter
    begin = _content(settings.get("bos_token"), "<|endoftext|>")
    begin_id = tokenizer.token_to_id(begin)
    plain = isinstance(tokenizer.post_processor, processors.ByteLevel | None)
    if settings.get("add_bos_token") is True and plain and begin_id is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A $B:1", special_tokens=[(begin, begin_id)]
        )


def _content(token: Any, default: str) -> str:
    """Return a special token's text: older files write a string, newer ones an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) and token else default


def _json(path: Path) -> dict[str, Any]:
    value = _read(path, lambda p: json.loads(contents(p))) if path.is_file() else {}
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object; download it again")
    return value


def _read(path: Path, read: Any) -> Any:
    with refusing(f"cannot read {path}", "download it again"):
        return read(str(path))
