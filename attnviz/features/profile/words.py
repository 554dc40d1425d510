"""What sets keys apart and what queries are, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnviz.drawing.labels import percent
from attnviz.features.profile.parts import Behaviours
from attnviz.scoring.block import LOCAL_WINDOW

RELATIONS: Mapping[str, str] = {
    "first": "the first token",
    "self": "the token itself",
    "previous": "the token before",
    "next": "the token after",
    "induction": "the token after an earlier copy of it",
    "duplicate": "an earlier copy of it",
    "before-copy": "the token before an earlier copy of it",
    "same-letters": "the same letters in another token",
    "same-word": "another piece of its word",
    "word-before": "a piece of the word before",
    "sentence-start": "a token that begins a sentence",
    "last-punctuation": "the last punctuation before it",
    "separator": "a separator",
    "special": "one of the tokenizer's own tokens",
    "punctuation": "punctuation",
    "digit": "a number",
    "capital": "a token with a capital letter",
    "continuation": "a later piece of a word",
    "repeated": "a token that was there before",
    "local": f"a token at most {LOCAL_WINDOW} away",
    "governor": "the word that its word depends on",
    "subject": "the subject of its word",
    "object": "the object of its word",
    "dependent": "a word that depends on its word",
}
"""The strongest key, by the relation that it has to the query."""

POSITIONS = frozenset(("first", "self", "local"))
"""Relations of positions that heads of random weights can show."""
ONLY_POSITION = "a matter of position: heads of random weights can show that too"

CLASSES: Mapping[str, str] = {
    "initial": "a word's first piece",
    "continuation": "a later piece of a word",
    "punctuation": "punctuation",
    "digit": "a number",
    "special": "one of the tokenizer's own tokens",
    "first": "the first token",
    "repeated": "a token that was there before",
}
"""Classes of tokens."""

CONDITIONS: Mapping[str, tuple[str, str]] = {
    "repeated": ("was there before", "is new"),
    "punctuation": ("is punctuation", "is no punctuation"),
    "continuation": ("continues a word", "begins a word"),
    "digit": ("is a number", "is no number"),
    "capital": ("has a capital letter", "has none"),
    "opens": ("begins a sentence", "begins none"),
    "after": ("follows punctuation", "follows none"),
    "early": ("is among the first 8 tokens", "comes later"),
    "argument": ("is of a subject or an object", "is of neither subject nor object"),
    "function": ("is of a function word", "is of no function word"),
    "modifier": ("is of a modifier", "is of no modifier"),
}
"""The token that looks, where a condition holds and where it does not."""

CRITERIA: Mapping[str, str] = {
    "weight": "largest weight",
    "norm": "largest α‖f(x)‖",
    "effect": "effect on the loss",
}
"""What deciles are of."""


def relation(name: str) -> str:
    """Return a relation or a class in words; its name where nobody here knows it."""
    return RELATIONS.get(name, CLASSES.get(name, name))


def headline(name: str, behaviours: Behaviours) -> str:
    """Give the rule of a head that holds in most rows, with its interval and what chance gives."""
    rules = [
        (leaf.path, rule, share)
        for leaf in behaviours.tree
        for rule, share in leaf.rules
        if share.value is not None
    ]
    if not rules:
        return f"Head {name}: no rule says which key it looks at most"
    path, rule, share = max(rules, key=lambda r: (r[2].value or 0.0) * r[2].rows)
    ends = ""
    if share.low is not None and share.high is not None:
        ends = f" [{percent(share.low)}, {percent(share.high)}]"
    rows = "rows" if path else "all rows"
    condition = f" where {when(path)}" if path else ""
    chance = "" if share.chance is None else f", by chance {percent(share.chance)}"
    learned = f" ({ONLY_POSITION})" if rule in POSITIONS else ""
    return (
        f"Head {name} looks most at {relation(rule)} in {percent(share.value or 0.0)}{ends} of "
        f"{rows}{condition}{chance}{learned}"
    )


def when(path: Sequence[tuple[str, bool]]) -> str:
    """Return the rows of a leaf, as the end of a sentence; ``every row`` for all."""
    if not path:
        return "every row"
    parts = [CONDITIONS.get(name, (name, f"not {name}"))[0 if holds else 1] for name, holds in path]
    return "its token " + " and ".join(parts)
