"""The tokens of recorded attention: their texts, flags and named parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from attnviz.core.spans import Span, check_apart
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.models.external_errors import one_line
from attnviz.models.recorded.fields import FLAGS, Array
from attnviz.models.text import marked


def tokens_of(path: Path, fields: dict[str, Any], prefix: str, item: int | None) -> Tokens | None:
    """One side's tokens, of an item where there is a batch; None where the file has none."""
    texts = fields.get(f"{prefix}tokens")
    if texts is None:
        return None
    if texts.dtype.kind != "U":
        raise InputError(f"{path}: {prefix}tokens holds {texts.dtype}, not text")
    flags = {flag: fields[prefix + flag] for flag in FLAGS if prefix + flag in fields}
    if texts.ndim == 2:
        short = [prefix + flag for flag, v in flags.items() if v.shape[:2] != texts.shape]
        if short:
            raise InputError(f"{path}: {short[0]} has another shape than {prefix}tokens")
        span = span_of(texts, item)
        texts = texts[item or 0, span]
        flags = {flag: values[item or 0, span] for flag, values in flags.items()}
    if texts.ndim != 1 or not len(texts):
        raise InputError(f"{path}: {prefix}tokens has shape {texts.shape}; it must be one row")
    listed = tuple(str(text) for text in texts)
    for flag, array in flags.items():
        if array.dtype.kind not in "biu":
            raise InputError(f"{path}: {prefix}{flag} holds {array.dtype}, not whole numbers")
    try:
        if flags:
            as_type = {"special": bool, "separators": bool}
            values: dict[str, Any] = {
                f: tuple(as_type.get(f, int)(x) for x in v) for f, v in flags.items()
            }
            tokens = Tokens(listed, **values)
            if "words" in values:
                return tokens
            read = marked(listed, tokens.special)
            return replace(tokens, texts=read.texts, words=read.words)
        return marked(listed)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: {one_line(error)}; record it again") from None


def with_output(tokens: Tokens, meta: dict[str, Any]) -> Tokens:
    """The tokens, the last of them marked as written by the model where the file says so."""
    written = meta.get("written")
    if isinstance(written, bool) or not isinstance(written, int):
        return tokens
    return replace(tokens, written=min(max(written, 0), len(tokens)))


def with_spans(path: Path, tokens: Tokens, meta: dict[str, Any]) -> Tokens:
    """The tokens with the named parts that the file says they have."""
    if "spans" not in meta:
        return tokens
    try:
        spans = msgspec.convert(meta["spans"], tuple[Span, ...])
        check_apart(spans)
        return replace(tokens, spans=spans)
    except (msgspec.ValidationError, ValueError, InputError) as error:
        raise InputError(f"{path}: its spans: {one_line(error)}; record it again") from None


def span_of(texts: Array, item: int | None) -> slice:
    """Where an item's tokens stand in a batch: from the first to the last that is not empty."""
    if texts.ndim != 2:
        return slice(None)
    (real,) = np.nonzero(texts[item or 0] != "")
    return slice(int(real[0]), int(real[-1]) + 1) if len(real) else slice(0, 0)
