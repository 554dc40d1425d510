"""Pairs of prompts: as they are given, and as a model runs them.

A clean prompt whose answer is known, and a corrupted one that differs from it where the answer
depends on it. Positions of the two are aligned one to one where they have as many tokens, else by
spans or words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from attnviz.captures import trials
from attnviz.captures.trials import near_copy, predicted
from attnviz.core.arguments import check_fields
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.core.tokens import Tokens
from attnviz.corpus import lines
from attnviz.errors import InputError, UsageError

Align = Literal["position", "word"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A clean and a corrupted prompt.

    Attributes:
        clean: a text, or token ids.
        corrupted: likewise.
        answer: the token that should follow the clean prompt (at ``[MASK]``, of masked models), as
            a text or an id.
        against: the token that it is held against, such as the corrupted prompt's answer.
        target: how the decoder's text begins, of encoder-decoder models.
        clean_span: first token and end of what differs, where prompts differ in length.
        corrupted_span: the same in the corrupted prompt; a span's last tokens are aligned.
        group: what it belongs to; pairs of one group count once where certainty is concerned.
        spans: named parts of the clean prompt and how each is found, written as
            :mod:`attnviz.core.spans` says; their partners are those of the corrupted prompt.
        part: which part of the data it is of, for a circuit that is found on one of two.
    """

    clean: str | tuple[int, ...]
    corrupted: str | tuple[int, ...]
    answer: str | int
    against: str | int | None = None
    target: str | None = None
    clean_span: tuple[int, int] | None = None
    corrupted_span: tuple[int, int] | None = None
    group: str | None = None
    spans: Mapping[str, str] | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class PreparedPair:
    """A pair as a model runs it."""

    number: int  # from 0
    pair: Pair  # as it was given
    clean: Inputs  # inputs of the clean prompt
    corrupted: Inputs  # inputs of the corrupted one
    answer: int  # the id that should win
    against: int | None  # the id that it is held against, or None
    at: tuple[int, int]  # the positions that predict it, in the clean and in the corrupted prompt
    # for every position of the clean prompt its place in the corrupted one, -1 for none
    partner: tuple[int, ...]
    span: tuple[int, ...]  # positions of the clean prompt that differ from their partners
    cluster: str  # what it counts with
    # positions of the clean prompt by the names of its parts
    spans: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, int]:
        """Of both prompts: pairs of the same lengths can share a batch."""
        return self.clean.length, self.corrupted.length

    @property
    def aligned(self) -> bool:
        """Whether position i of one is position i of the other, everywhere."""
        return self.partner == tuple(range(len(predicted(self.corrupted))))


def read_pairs(name: str, group: str | None = None, part: str | None = None) -> list[Pair]:
    """Pairs from a JSONL file, an object a line."""
    pairs = []
    for number, line in lines.lines(name):
        place = f"{lines.shown(name)}:{number}"
        text = lines.sound(line, place)
        try:
            values = json.loads(text)
        except ValueError:
            raise InputError(
                f"{place} is no JSON; write an object with clean, corrupted and answer a line"
            ) from None
        pairs.append(pair_of(values, place, group, part))
    if not pairs:
        raise InputError(f"{lines.shown(name)} holds no pairs; write one a line")
    return pairs


_FIELDS = {field.name for field in fields(Pair)} - {"part"}
_IDS: dict[object, Any] = {
    "clean_ids": "clean", "corrupted_ids": "corrupted", "answer_id": "answer",
    "against_id": "against",
}  # fmt: skip


def pair_of(values: object, place: str, group: str | None = None, part: str | None = None) -> Pair:
    """A pair from a dictionary."""
    if isinstance(values, Pair):
        return values
    if not isinstance(values, Mapping):
        raise InputError(f"{place} is no pair; give an object with clean, corrupted and answer")
    named: dict[str, Any] = {
        name: value for key, value in values.items() if (name := _IDS.get(key, key)) in _FIELDS
    }
    if group is not None:
        if group not in values:
            raise UsageError("{} has no field {!r} for {group}", place, group, group=...)
        named["group"] = str(values[group])
    if part is not None:
        if part not in values:
            raise UsageError("{} has no field {!r} for {split}", place, part, split=f"field:{part}")
        named["part"] = str(values[part])
    for wanted in ("clean", "corrupted", "answer"):
        if wanted not in named:
            raise InputError(f"{place} has no {wanted}; a pair needs clean, corrupted and answer")
    for key, value in named.items():
        if isinstance(value, list):
            named[key] = tuple(value)
    try:
        return Pair(**named)
    except UsageError as error:
        raise InputError("{}: {}", place, error.message) from None


def prepare(source: Source, pairs: Iterable[Pair], align: Align = "position") -> list[PreparedPair]:
    """Pairs as a model runs them."""
    mask = trials.mask_id(source) if trials.is_masked(source) else None
    prepared = []
    for number, pair in enumerate(pairs):
        try:
            prepared.append(_ready(source, number, pair, align, mask))
        except InputError as error:
            raise InputError("pair {}: {}", number + 1, error.message) from None
    if not prepared:
        raise InputError("there are no pairs; give at least one")
    return prepared


def _ready(source: Source, number: int, pair: Pair, align: Align, mask: int | None) -> PreparedPair:
    clean = _inputs(source, pair.clean, pair.target, pair.spans)
    corrupted = _inputs(source, pair.corrupted, pair.target)
    if _ids(clean) == _ids(corrupted):
        raise InputError("clean and corrupted are the same tokens; change what the answer needs")
    answer = _token(source, pair.answer)
    against = None if pair.against is None else _token(source, pair.against)
    if answer == against:
        raise InputError(
            f"answer and against are the same token {pair.answer!r}; name two that differ"
        )
    at = tuple(_predicts(source, number, inputs, mask) for inputs in (clean, corrupted))
    partner = _partners(clean, corrupted, pair, align)
    mine, theirs = predicted(clean).ids, predicted(corrupted).ids
    span = tuple(i for i, j in enumerate(partner) if j < 0 or mine[i] != theirs[j])
    cluster = f"group {pair.group}" if pair.group is not None else f"text {near_copy(clean)}"
    named = {part.name: part.positions for part in predicted(clean).spans}
    return PreparedPair(
        number, pair, clean, corrupted, answer, against, (at[0], at[1]), partner, span, cluster,
        named,
    )  # fmt: skip


def _inputs(
    source: Source,
    text: str | tuple[int, ...],
    target: str | None,
    spans: Mapping[str, str] | None = None,
) -> Inputs:
    if "cross" in source.layout.kinds and target is None:
        raise InputError(
            f"{source.info.model} has a decoder; give target, the beginning of its text"
        )
    if isinstance(text, str):
        return source.prepare(Prompt(text, target=target, spans=spans))
    return source.prepare(Prompt(ids=text, target=target, special_tokens=False, spans=spans))


def _ids(inputs: Inputs) -> tuple[tuple[int, ...], ...]:
    """All ids of all sides, which tell prompts apart."""
    return tuple(side.keys.ids + side.queries.ids for side in inputs.sides.values())


def _token(source: Source, word: str | int) -> int:
    if word == "":
        raise InputError("the answer, or what it is held against, is empty; name a token")
    if isinstance(word, str):
        return trials.one_token(source, word)
    labels = trials.labels_of(source)
    if labels is not None:
        return labels.number(f"#{word}")
    if not 0 <= word < (source.vocab_size or 0):
        raise InputError(f"id {word} is not in the vocabulary of {source.vocab_size:,} tokens")
    return word


def _predicts(source: Source, number: int, inputs: Inputs, mask: int | None) -> int:
    """The position whose logits are looked at."""
    if mask is None:
        return trials.answer_place(source, predicted(inputs))
    (trial,) = trials.at_mask(number, inputs, mask)
    return trial.positions[0]


def _partners(clean: Inputs, corrupted: Inputs, pair: Pair, align: Align) -> tuple[int, ...]:
    """For every position of the clean prompt its place in the corrupted one, -1 for none."""
    mine, theirs = predicted(clean), predicted(corrupted)
    spans = (pair.clean_span, pair.corrupted_span)
    if spans != (None, None):
        if None in spans:
            raise InputError("clean_span and corrupted_span go together; give both")
        return _by_spans(len(mine), len(theirs), *spans)  # type: ignore[arg-type]
    if all(
        len(side.keys) == len(corrupted.sides[kind].keys) for kind, side in clean.sides.items()
    ) and len(mine) == len(theirs):
        return tuple(range(len(mine)))
    if align == "word" and len(clean.sides) == 1:
        return _by_words(mine, theirs)
    sides = next(iter(clean.sides.values())).keys, next(iter(corrupted.sides.values())).keys
    shown = " and ".join(f"{len(side)} tokens ({'|'.join(side.texts)[:70]})" for side in sides)
    raise InputError(
        "prompts of {} cannot be aligned by position; give {align}, or clean_span and "
        "corrupted_span in a file of pairs",
        shown,
        align="word",
    )


def _by_spans(
    mine: int, theirs: int, span: tuple[int, int], other: tuple[int, int]
) -> tuple[int, ...]:
    """Outside by position, from both ends; inside by position from the end."""
    for (first, end), length in ((span, mine), (other, theirs)):
        if not 0 <= first < end <= length:
            raise InputError(f"a span [{first}, {end}] is not inside of {length} tokens")
    if span[0] != other[0] or mine - span[1] != theirs - other[1]:
        raise InputError(
            f"what surrounds the spans differs in length: {span[0]} and {other[0]} tokens before, "
            f"{mine - span[1]} and {theirs - other[1]} after; mark all that differs"
        )
    apart = theirs - mine
    inside = [
        place + apart if place + apart >= other[0] else -1 for place in range(span[0], span[1])
    ]
    return (*range(span[0]), *inside, *range(other[1], theirs))


def _by_words(mine: Tokens, theirs: Tokens) -> tuple[int, ...]:
    """Word by word, the last tokens of each; special tokens in their order."""
    own, other = _words(mine), _words(theirs)
    if len(own) != len(other):
        raise InputError(
            f"{len(own)} and {len(other)} words cannot be aligned ({'|'.join(mine.texts)[:60]} and "
            f"{'|'.join(theirs.texts)[:60]}); give clean_span and corrupted_span"
        )
    partner = [-1] * len(mine)
    for a, b in zip(own, other, strict=True):
        for i, j in zip(reversed(a), reversed(b), strict=False):
            partner[i] = j
    return tuple(partner)


def _words(tokens: Tokens) -> list[list[int]]:
    """Positions by word; a token that belongs to none is one of its own."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, word in enumerate(tokens.words):
        key = ("word", word) if word >= 0 else ("special", place)
        places.setdefault(key, []).append(place)
    return list(places.values())
