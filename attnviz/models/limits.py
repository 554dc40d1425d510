"""What every pretrained model checks in a prompt, with the same words on both backends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from attnviz.errors import InputError, Setting, UsageError
from attnviz.records import Prompt

SENSES: Mapping[str, str] = {"image": "pictures", "audio": "sound"}
"""The parameters that name a file to look at or to listen to, and what is in it."""


def check_prompt(prompt: Prompt, *, decoder: bool, reads: Collection[str] = ("text",)) -> None:
    """Refuse what a pretrained model cannot take; that there is anything is checked before.

    Args:
        prompt: the text or ids, a picture or a sound, and what goes with them.
        decoder: whether the model has a decoder beside its encoder.
        reads: what it takes: ``text``, ``image``, ``audio``.

    Raises:
        UsageError: options that do not fit the model or each other.
    """
    named = [SENSES.get(one, one) for one in reads]
    for name in SENSES:
        if getattr(prompt, name) is not None and name not in reads:
            raise UsageError(
                "this model reads {}; {} is for models of {}: name one with {model}",
                " and ".join(named),
                Setting(name),
                SENSES[name],
                model=...,
            )
    if "text" not in reads:
        for name in ("text", "ids", "pair"):
            if getattr(prompt, name) is not None:
                raise UsageError(
                    "this model reads {}, not text; give it a file with {}",
                    " and ".join(named),
                    Setting(next(iter(reads))),
                )
    if prompt.context is not None:
        raise UsageError(
            "{context} is for a fresh cross-attention layer; leave it or {model} out",
            context=...,
            model=...,
        )
    if prompt.ids is not None and prompt.pair is not None:
        raise UsageError(
            "{pair} goes with a text, not with {ids}; give both sentences as ids", pair=..., ids=...
        )
    if prompt.target is not None and not decoder:
        raise UsageError(
            "{target} needs an encoder-decoder model; this one has a single stack", target=...
        )


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Refuse ids that the model has no embedding for.

    Raises:
        InputError: names the first such id and the vocabulary's size.
    """
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InputError(
                f"token id {token_id} is not in the model's vocabulary; ids go from 0 to "
                f"{vocab_size - 1}"
            )


def check_length(length: int, limit: int | None, *, truncate: bool, what: str = "the text") -> str:
    """Refuse a sequence that is too long for the model, or say that it is cut.

    Args:
        length: tokens, special ones included.
        limit: the longest sequence that the model takes; None for no limit.
        truncate: the sequence will be cut.
        what: the subject of the sentence.

    Returns:
        A sentence for the report; empty where nothing is cut.

    Raises:
        InputError: too long, and not to be cut.
    """
    if limit is None or length <= limit:
        return ""
    if not truncate:
        raise InputError(
            "{} has {:,} tokens, the model takes at most {:,}",
            what,
            length,
            limit,
            remedy="shorten it or add {truncate}",
            truncate=True,
        )
    whole = what[0].upper() + what[1:]
    return f"{whole} was cut to the model's {limit:,} tokens; {length - limit:,} were left out."


def cut(ids: Sequence[int], special: Sequence[bool], limit: int) -> tuple[int, ...]:
    """The ids of a sequence that is too long, cut to ``limit``; special ones at the end stay.

    Args:
        ids: more than ``limit`` token ids.
        special: which of them are special tokens.
        limit: how many to keep.
    """
    end = len(ids)
    while len(ids) - end < limit and special[end - 1]:
        end -= 1
    return (*ids[: limit - (len(ids) - end)], *ids[end:])
