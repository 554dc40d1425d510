"""A transformers tokenizer, if the model's folder has one: text in, :class:`Tokens` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, Message, ModelError, UsageError
from attnviz.models.external_errors import muted, provoke, refusing, silenced
from attnviz.models.folder import SmallFiles
from attnviz.models.text import (
    Encoded,
    Offsets,
    TokenReader,
    offsets_in_text,
    owners,
    transformers_reader,
    unnamed_reader,
)

_UNLIMITED = 1_000_000  # a tokenizer's ``model_max_length`` from here on means that nobody set one
_VOCABULARIES = (
    "tokenizer*", "vocab*", "merges*", "*.spm", "*.model", "tekken.json", "*.tiktoken",
)  # fmt: skip


class Texts:
    """Turns text into tokens, and ids into tokens with readable texts."""

    def __init__(
        self, tokenizer: Any, name: str, fault: str = "", folder: Path | None = None
    ) -> None:
        self.files = SmallFiles(folder)  # those of the model beside its weights
        self._tokenizer, self._name, self._fault = tokenizer, name, fault
        self._reader: TokenReader = (
            unnamed_reader() if tokenizer is None else transformers_reader(tokenizer)
        )
        limit = getattr(tokenizer, "model_max_length", None)
        self.max_tokens = int(limit) if limit and limit < _UNLIMITED else None
        # whether its model tells segments apart
        self.segments = "token_type_ids" in getattr(tokenizer, "model_input_names", ())

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        special: bool = True,
        limit: int | None = None,
        words: Sequence[tuple[int, int]] | None = None,
        located: bool = False,
    ) -> tuple[Tokens, Offsets | None]:
        """Tokenize a text.

        ``pair``: the second one.
        """
        located = located or words is not None
        fast = bool(getattr(self._tokenizer, "is_fast", False))
        if located and not getattr(self._tokenizer, "is_fast", True):
            raise ModelError(
                f"the tokenizer of {self._name} does not say which characters its tokens stand "
                "for; take a model with a tokenizer.json"
            )
        read = self._call(
            text,
            pair,
            add_special_tokens=special,
            truncation=limit is not None,
            max_length=limit,
            return_special_tokens_mask=True,
            return_offsets_mapping=located or fast,
        )
        offsets = offsets_in_text(read["offset_mapping"], read.sequence_ids(0)) if located else None
        encoded = None
        if fast:
            encoded = Encoded(
                (text, pair), read["offset_mapping"], read.sequence_ids(0), read.word_ids(0)
            )
        tokens = self._reader.tokens(
            read["input_ids"],
            segments=read.get("token_type_ids", ()),
            added=read["special_tokens_mask"] if special else (),
            owners=None if words is None or offsets is None else owners(text, words, offsets),
            encoded=encoded,
        )
        if not len(tokens):
            raise InputError("the tokenizer makes no tokens of this text; give at least one word")
        inside = tokens.special[1:-1]
        if pair is not None and not any(inside) and len(set(tokens.segments)) == 1:
            raise UsageError(
                "this model does not tell two sentences apart; leave {pair} out", pair=...
            )
        return tokens, offsets

    def render(self, chat: Sequence[Mapping[str, Any]]) -> str:
        """Messages as the chat template writes them, with the beginning of an answer at the end.

        Nothing is begun where the last message is an answer.
        """
        if not getattr(self._tokenizer, "chat_template", None):
            raise ModelError(
                "{} has no chat template; give the text as it is, or another {model}",
                self._name,
                model=...,
            )
        begin = chat[-1].get("role") != "assistant"
        with silenced():
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in chat], tokenize=False, add_generation_prompt=begin
            )
        return str(text)

    def target(
        self, text: str, *, special: bool = True, first: int | None = None
    ) -> tuple[int, ...]:
        """Return the ids of a text on the decoder's side, in the target language's vocabulary."""
        tokenizer = self._tokenizer
        unnamed = special and getattr(tokenizer, "tgt_lang", "") is None
        if unnamed:
            language = "" if first is None else str(tokenizer.convert_ids_to_tokens(first))
            if language not in tokenizer.all_special_tokens:
                raise ModelError(
                    "the tokenizer of {} writes several languages; name that of {target}: tgt_lang "
                    "in tokenizer_config.json, or its token as forced_bos_token_id in "
                    "generation_config.json", self._name, target=...,
                )  # fmt: skip
            tokenizer.tgt_lang = language.removeprefix("__").removesuffix("__")  # M2M100: __fr__
        try:
            return tuple(self._call(text_target=text, add_special_tokens=special)["input_ids"])
        finally:
            if unnamed:
                tokenizer.tgt_lang = None

    def tokens(self, ids: Sequence[int]) -> Tokens:
        """Tokens of ids; ``#id`` where there is no tokenizer to name them."""
        return self._reader.tokens(ids)

    def text(self, token_id: int) -> str:
        """Return what one id stands for."""
        return self._reader.text(token_id)

    def plain(self, ids: Sequence[int]) -> str:
        """Ids as one line of text without special tokens, or the ids themselves."""
        if self._tokenizer is None:
            return " ".join(str(token_id) for token_id in ids)
        with silenced():
            text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return " ".join(str(text).split())

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        if self._tokenizer is None:
            raise ModelError(
                "{}: {}",
                self._name,
                self._fault,
                remedy="add its tokenizer, or give token ids with {ids}",
                ids=...,
            )
        message = f"the tokenizer of {self._name} cannot read this text"
        remedy = Message("give token ids with {ids}", ids=...)
        with silenced(), refusing(message, remedy), muted():
            return self._tokenizer(*args, **kwargs)


def load_texts(folder: Path, name: str) -> Texts:
    """Return the tokenizer in a model's folder; without one, only ids can be used."""
    from transformers import AutoTokenizer

    texts = partial(Texts, name=name, folder=folder)
    try:
        with silenced(), refusing("its tokenizer cannot be loaded"):
            with muted():
                tokenizer = AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
            provoke(tokenizer)
    except ModelError as error:
        if not any(path for pattern in _VOCABULARIES for path in folder.glob(pattern)):
            return texts(None, fault="its folder has no tokenizer")
        return texts(None, fault=str(error))
    # transformers makes up an empty vocabulary where the files are missing
    files = set(getattr(tokenizer, "vocab_files_names", {}).values()) | {"tokenizer.json"}
    if files != {"tokenizer.json"} and not any((folder / file).exists() for file in files):
        return texts(None, fault="its folder has no tokenizer")
    return texts(tokenizer)
