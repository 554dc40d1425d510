"""Texts as an ablation runs them: with masks where a masked model is to guess, and what counts.

Causal models predict the next token everywhere. A masked model predicts what is hidden from it: a
seeded share of the tokens at once (15 %, as in training: Devlin et al. 2018, arXiv:1810.04805), or
each token in turn. Texts that are there more than once say the same thing, and count once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from attnviz.attention.interventions import mixed, written
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout, Site
from attnviz.core.labels import Labels
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Kept, Rows, Source
from attnviz.core.spans import no_span
from attnviz.core.split import same_text
from attnviz.core.tokens import Sides, Tokens, named_items
from attnviz.drawing.labels import counted
from attnviz.errors import InputError, ModelError, UsageError, cut
from attnviz.scoring.probe import probe_prompts, starts_with

MASKED_SHARE = 0.15
MASKS = ("[MASK]", "<mask>")
_NUMBERED = re.compile(r"#[0-9]{1,9}")
"""A token by its id."""
_WORD = re.compile(r"[ \u2581\u0120]?[A-Za-z]{3,}")

PROBE_HALVES = (16, 32, 48)
PROBE_SEEDS = 20
"""So many texts of each length are repeated for a probe."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a text."""

    text: int  # the number of the text it belongs to
    inputs: Inputs  # what runs, perhaps with masks in it
    positions: tuple[int, ...]  # where in the sequence that is predicted a value is taken
    targets: tuple[int, ...] = ()  # the ids that belong there; empty where a metric needs none

    @property
    def tokens(self) -> Tokens:
        """The sequence whose hidden states and predictions are looked at."""
        return predicted(self.inputs)


def predicted(inputs: Inputs) -> Tokens:
    """Get the sequence whose states and predictions are looked at: a decoder's, if there is one."""
    return list(inputs.sides.values())[-1].queries


def labels_of(source: Source) -> Labels | None:
    """Return the labels that a classifier predicts; None for a model that predicts words."""
    return getattr(source, "labels", None)


def check_choice(source: Source, metric: str) -> None:
    """UsageError for a metric of one choice among labels that are not chosen among."""
    labels = labels_of(source)
    if labels is None or labels.shares == "softmax" or metric in ("logit-diff", "hidden"):
        return
    reason = "has one output" if len(labels.names) == 1 else "scores each label on its own"
    raise UsageError(
        "{metric} takes labels for one choice among several, and {} {}; take logit-diff, by "
        "{answer} and, where two are compared, {against}",
        source.info.model,
        reason,
        metric=metric,
        answer=...,
        against=...,
    )


def check_single_stack(model: str, layout: Layout, task: str) -> None:
    """Refuse models whose attention is not of one text alone."""
    if len(layout.kinds) > 1 or "cross" in layout.kinds:
        raise UsageError(
            "{} attends between two texts; {} need a {model} with a single stack",
            model, task, model=...,
        )  # fmt: skip


def is_masked(source: Source) -> bool:
    """Whether its predictions are those of a masked model; labels are none."""
    return source.layout.kinds == ("encoder",) and labels_of(source) is None


def read_positions(
    source: Source, tokens: Tokens, position: str | int | None, *, whole_text: bool
) -> list[int]:
    """List the positions that are read, at least one; ``whole_text``: all where none is named."""
    length, labels = len(tokens), labels_of(source)
    places = None if position in (None, "all") else tokens.locate(str(position))
    if labels is not None and (labels.place != "each" or (position is None and not whole_text)):
        return [labels.position(tokens, place) for place in places or (None,)][-1:]
    if places is not None:
        return list(places)
    if position == "all" or not is_masked(source):
        return list(range(length)) if whole_text or position == "all" else [length - 1]
    masks = [n for n, text in enumerate(tokens.texts) if text in MASKS]
    if not masks:
        raise InputError(
            "the text has no mask ({}) where a word belongs",
            " or ".join(MASKS),
            remedy="write one, or read every token with {position}"
            if whole_text
            else "write one, or choose a token with {position}",
            position="all" if whole_text else ...,
        )
    return masks


def answer_texts(source: Source, ids: Sequence[int]) -> tuple[str, ...]:
    """Return what a model's predictions are called: the labels, or the tokens of these ids."""
    labels = labels_of(source)
    return source.tokens(ids).texts if labels is None else labels.texts(ids)


def answer_place(source: Source, tokens: Tokens) -> int:
    """Where the prediction of a text is looked at, of a model that fills no masks."""
    labels = labels_of(source)
    if labels is not None and labels.place == "each":
        raise UsageError(
            "{} labels each token; attnviz logits, lens and ablate read such labels, and this "
            "needs the label of a text",
            source.info.model,
        )
    return len(tokens) - 1 if labels is None else labels.position(tokens)


def next_tokens(text: int, inputs: Inputs) -> list[Trial]:
    """One trial: every token after the first is predicted."""
    ids = predicted(inputs).ids
    if len(ids) < 2:
        return []
    return [Trial(text, inputs, tuple(range(len(ids) - 1)), ids[1:])]


def within(
    trials: Iterable[Trial], selection: str, texts: Sequence[Inputs], ahead: int
) -> Iterator[Trial]:
    """Trials at the tokens that are asked for alone; texts without any are left out."""
    sides = [predicted(inputs) for inputs in texts]  # without their masks
    for item in named_items(selection, [(tokens, range(len(tokens))) for tokens in sides]):
        if not any(tokens.locate(item, some=True) for tokens in sides):
            names = dict.fromkeys(span.name for tokens in sides for span in tokens.spans)
            if item.strip().startswith("span:"):
                raise no_span(item.strip().removeprefix("span:"), names)
            sides[-1].locate(item)
    places, empty = [frozenset(tokens.locate(selection, some=True)) for tokens in sides], True
    for trial in trials:
        inside = [n for n, p in enumerate(trial.positions) if p + ahead in places[trial.text]]
        if inside:
            yield replace(
                trial,
                positions=tuple(trial.positions[n] for n in inside),
                targets=tuple(trial.targets[n] for n in inside) if trial.targets else (),
            )
            empty = False
    if empty:
        reason = "the first token is not" if ahead else "special tokens are not"
        raise UsageError("nothing is predicted at {}: {}", cut(selection), reason)


def everywhere(text: int, inputs: Inputs) -> list[Trial]:
    """One trial: every token that is not special counts, or all where there are no others."""
    plain = _plain(inputs) or range(len(predicted(inputs)))
    return [Trial(text, inputs, tuple(plain))]


def last(text: int, inputs: Inputs, source: Source) -> list[Trial]:
    """One trial: the prediction that follows the last token, or the label of the text."""
    return [Trial(text, inputs, (answer_place(source, predicted(inputs)),))]


def at_mask(text: int, inputs: Inputs, mask: int) -> list[Trial]:
    """One trial: the prediction at the mask that stands in the text."""
    places = [i for i, token in enumerate(predicted(inputs).ids) if token == mask]
    if len(places) != 1:
        raise InputError(
            f"the text has {len(places)} masks; write exactly one {' or '.join(MASKS)} where the "
            "answer belongs"
        )
    return [Trial(text, inputs, tuple(places))]


def masked(text: int, inputs: Inputs, mask: int, *, seed: int) -> list[Trial]:
    """One trial with 15 % of the tokens masked, at least one."""
    plain = _plain(inputs)
    if not plain:
        return []
    draw = random.Random(f"{seed}/{text}")
    chosen = sorted(draw.sample(plain, max(1, round(MASKED_SHARE * len(plain)))))
    return [_hidden(text, inputs, mask, chosen)]


def each_masked(text: int, inputs: Inputs, mask: int) -> list[Trial]:
    """Return a trial for each token, with that one masked."""
    return [_hidden(text, inputs, mask, [position]) for position in _plain(inputs)]


def mask_id(source: Source) -> int:
    """Return the id that hides a token."""
    for name in MASKS:
        tokens = predicted(source.prepare(Prompt(name, special_tokens=False)))
        if tokens.texts == (name,):
            return tokens.ids[0]
    raise ModelError(
        "{} has no mask token ({}), so its loss cannot be measured",
        source.info.model,
        " or ".join(MASKS),
        remedy="use {metric}",
        metric="hidden",
    )


def one_token(source: Source, word: str) -> int:
    """Give the id of a word that is one token, with a space in front where the vocabulary has that.

    What has no letter or digit is taken as it is written first: "." ends a sentence more often
    than " ." does.
    """
    labels = labels_of(source)
    if labels is not None:
        return labels.number(word)
    if _NUMBERED.fullmatch(word) and int(word[1:]) < (source.vocab_size or 0):
        return int(word[1:])
    if not word.strip():
        raise InputError(f"{word!r} is no word; name one")
    options = [word] if is_masked(source) else [f" {word.strip()}", word]
    if not any(map(str.isalnum, word)):
        options.reverse()
    read = {o: predicted(source.prepare(Prompt(o, special_tokens=False))) for o in options}
    single = [tokens.ids[0] for tokens in read.values() if len(tokens) == 1]
    if not single:
        pieces = " | ".join(read[word].texts)
        raise InputError(
            f"{word!r} is {len(read[word])} tokens ({pieces}), and only one token can be compared; "
            "choose another word"
        )
    return single[0]


def word_ids(source: Source, avoid: Collection[int], enough: int) -> Sequence[int]:
    """Ids of words to draw from; all but those to avoid where the vocabulary has few of them."""
    size = source.vocab_size
    if size is None:
        raise ModelError("a repeated sequence needs a vocabulary; {model} has none", model=...)
    ids = [number for number in range(size) if number not in avoid]
    texts = source.tokens(ids).texts
    blank = any(text.startswith(" ") for text in texts)
    words = [
        number
        for number, text in zip(ids, texts, strict=True)
        if _WORD.fullmatch(text) and (text[0] == " " or not blank)
    ]
    return words if len(words) > enough else ids


def probe(source: Source, first: int = 0) -> Iterator[Trial]:
    """Repeated random tokens: what the repetition predicts, the second half but its first token."""
    if source.vocab_size is None:
        raise ModelError(f"a probe needs a vocabulary, and {source.info.model} has none")
    start, added = starts_with(source)
    number = 0
    for seed in range(first, first + PROBE_SEEDS):
        prompts = probe_prompts(
            source.vocab_size,
            lengths=PROBE_HALVES,
            seed=seed,
            max_tokens=source.max_tokens,
            bos=start,
            avoid=added,
        )
        for ids in prompts:
            inputs = source.prepare(Prompt(ids=ids, special_tokens=False))
            half = len(ids) // 2
            repeat = len(ids) - half  # where the second half begins
            places = range(repeat, len(ids) - 1)
            yield Trial(number, inputs, tuple(places), ids[repeat + 1 :])
            number += 1


def unrepeated(source: Source, tested: Sequence[Trial]) -> list[Trial]:
    """Give trials of a probe with the first half of another one: nothing is told by repetition."""
    spare = list(probe(source, PROBE_SEEDS))
    unique = []
    for trial, donor in zip(tested, spare, strict=True):
        repeat = trial.positions[0]
        ids = (*predicted(donor.inputs).ids[:repeat], *predicted(trial.inputs).ids[repeat:])
        inputs = source.prepare(Prompt(ids=ids, special_tokens=False))
        unique.append(replace(trial, inputs=inputs))
    return unique


def _plain(inputs: Inputs) -> list[int]:
    return [i for i, special in enumerate(predicted(inputs).special) if not special]


def _hidden(text: int, inputs: Inputs, mask: int, places: Sequence[int]) -> Trial:
    tokens = predicted(inputs)
    ids = tuple(mask if i in places else token for i, token in enumerate(tokens.ids))
    masked = replace(tokens, ids=ids)
    (kind,) = inputs.sides
    hidden = replace(inputs, sides={kind: Sides(masked, masked)})
    return Trial(text, hidden, tuple(places), tuple(tokens.ids[i] for i in places))


class Activations:
    """An observer of queries, keys, values, weights and heads' outputs, as donors take them.

    Attributes:
        values: by part and layer: q [B, H, T, d], k [B, G, S, d], v [B, G, S, d_v],
            pattern [B, H, T, S], z, gate and ``written`` [B, H, T, d_v], the last being z as W_O
            gets it; a gate of layers that have one. Of the pass itself, gradients and all, but for
            pattern, z and what is written, which are made of what observers see.
    """

    def __init__(self, parts: Collection[Kept], sites: Collection[Site]) -> None:
        self._parts, self._sites = frozenset(parts), frozenset(sites)
        self._blocks: dict[tuple[Kept, Site], list[Array]] = {}
        self._terms: dict[Kept, dict[Site, Array]] = {"q": {}, "k": {}, "v": {}}

    def observe(self, rows: Rows) -> None:
        """Keep a block."""
        if rows.site not in self._sites:
            return
        for part in self._parts & self._terms.keys():
            assert rows.terms is not None, "every backend that takes donors hands its terms out"
            terms = {"q": rows.terms.query, "k": rows.terms.key, "v": rows.terms.value}
            self._terms[part][rows.site] = terms[part]
        if self._parts & {"z", "written"}:
            z = mixed(rows)
            outputs: dict[Kept, Array] = {"z": z, "written": written(rows, z)}
            for part in self._parts & outputs.keys():
                self._blocks.setdefault((part, rows.site), []).append(outputs[part])
        if "gate" in self._parts and rows.opened is not None:
            gate = arrays.of(rows.opened).cast(rows.opened, rows.weights.dtype)
            self._blocks.setdefault(("gate", rows.site), []).append(gate)
        if "pattern" in self._parts:
            assert rows.terms is not None
            keys = rows.terms.key.shape[2]
            shape = (*rows.weights.shape[:3], keys)
            complete = arrays.of(rows.weights).zeros(shape, rows.weights.dtype, rows.weights)
            complete[..., rows.key_start : rows.key_start + rows.weights.shape[3]] = rows.weights
            self._blocks.setdefault(("pattern", rows.site), []).append(complete)

    @property
    def values(self) -> Mapping[Kept, Mapping[Site, Array]]:
        """See the class."""
        tensors: dict[Kept, dict[Site, Array]] = {
            part: {site: arrays.of(x).outside(x) for site, x in of.items()}
            for part, of in self._terms.items()
            if part in self._parts
        }  # what was made in inference mode cannot stand beside gradients
        for (part, site), blocks in self._blocks.items():
            tensors.setdefault(part, {})[site] = arrays.of(blocks[0]).xp.concatenate(blocks, 2)
        return tensors


T = TypeVar("T")


def same_as(inputs: Inputs) -> Hashable:
    """Return what texts that are the same have in common; None for pictures and sounds."""
    if inputs.features:
        return None
    return tuple(
        (kind, axes.queries.identity, axes.keys.identity) for kind, axes in inputs.sides.items()
    )


def near_copy(inputs: Inputs) -> Hashable:
    """Give what a text has in common with its copies, whatever their case and white space."""
    words = tuple(map(same_text, inputs.texts))
    return same_as(inputs) if inputs.features or not any(words) else words


def distinct(items: Sequence[T], names: Sequence[Hashable]) -> tuple[list[T], tuple[str, ...]]:
    """Return the first of the items of each name, and what to say of the others."""
    first: dict[Hashable, T] = {}
    for number, (item, name) in enumerate(zip(items, names, strict=True)):
        first.setdefault((number,) if name is None else (name,), item)
    return list(first.values()), repeated(len(items) - len(first))


def repeated(count: int) -> tuple[str, ...]:
    """Return the note on so many copies; none for none."""
    if not count:
        return ()
    verb = "repeats" if count == 1 else "repeat"
    return (f"{counted(count, 'text')} {verb} another one word for word: copies count once.",)
