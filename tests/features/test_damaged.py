"""Files of results with a list that has one entry more or fewer: refused by name, or shown."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

import attnviz as av
from attnviz.errors import InputError

TEXT = "The kettle sang and the candle burned while the kettle sang again."
TEXTS = ("The cat sat on the mat and the cat sat", "A dog ran in the park and a dog ran")
MAKERS: dict[str, Callable[[], Any]] = {
    "sources": lambda: av.sources(TEXT, select="1.4"),
    "lens": lambda: av.lens(TEXT),
    "lens of heads": lambda: av.lens(TEXT, by="head"),
    "spans": lambda: av.spans(av.Prompt(TEXT, spans={"kettle": "all:kettle"})),
    "knockout": lambda: av.knockout(
        av.Prompt(TEXT, spans={"kettle": "all:kettle"}), window=1, draws=1
    ),
    "thoughts": lambda: av.thoughts("It rains. We stay. The sea was dark. It was late.", draws=1),
    "retrieval": lambda: av.retrieval(
        lengths=[40, 60], depths=[0.2, 0.8], count=2, group_size=(0,), control=0
    ),
    "explain": lambda: av.explain(TEXT),
    "logits": lambda: av.logits(TEXT),
    "ablate": lambda: av.ablate(TEXTS, select="0.0, 0.1+0.2"),
    "flow": lambda: av.flow(TEXT),
}
Keys = tuple[str | int, ...]
"""The way to a part of a document."""


@cache
def made(name: str) -> Any:
    """Return a result, which no test changes."""
    return MAKERS[name]()


def lists(part: Any, path: Keys = ()) -> Iterator[Keys]:
    """The places of all lists in a document."""
    if isinstance(part, list):
        yield path
    items = enumerate(part) if isinstance(part, list) else part.items()
    for key, inner in items:
        if isinstance(inner, list | dict):
            yield from lists(inner, (*path, key))


def kind(path: Keys) -> Keys:
    """The same for all lists of one field: no number in a list, no name of a head."""
    return tuple("*" if isinstance(key, int) or key[:1].isdigit() else key for key in path)


def damaged(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with one list longer, shorter or empty, the first and the last of each field."""
    for path in {**{kind(p): p for p in reversed(list(lists(document)))},
                 **{(*kind(p), "last"): p for p in lists(document)}}.values():  # fmt: skip
        for how in ("more", "fewer", "none"):
            changed = copy.deepcopy(document)
            listed = changed
            for key in path:
                listed = listed[key]
            if not listed:
                continue
            if how == "more":
                listed.append(copy.deepcopy(listed[-1]))
            else:
                del listed[-1 if how == "fewer" else 0 :]
            yield f"{how} in {'.'.join(map(str, path))}", changed


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_read_is_shown(name: str) -> None:
    whole = made(name)
    tried = refused = 0
    assert whole.from_dict(whole.to_dict()) == whole
    for how, document in damaged(whole.to_dict()):
        tried += 1
        try:
            found = whole.from_dict(document)
        except InputError:
            refused += 1
            continue
        try:
            assert str(found)
            assert repr(found)
            found.to_records()
        except Exception as error:
            pytest.fail(f"{name} with {how}: {error!r}")
    assert tried > 10
    assert refused


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("sources", lambda d: d["matrix"].append(d["matrix"][0]), "query sources, and query_ori"),
        ("lens", lambda d: d["positions"].append(0), "followed has .* positions, and positions"),
        (
            "spans",
            lambda d: d["spans"].append(d["spans"][0]),
            "shares has 2 spans, and spans has 3",
        ),
        ("retrieval", lambda d: d["cells"][0].update(length=50), "not one for every length and"),
        ("explain", lambda d: d["by_token"]["0.0"].pop(), "tokens, and tokens has"),
    ],
)
def test_a_length_that_does_not_agree_is_named(
    name: str, change: Callable[[Any], Any], said: str
) -> None:
    whole = made(name)
    document = whole.to_dict()
    change(document)
    with pytest.raises(InputError, match=f"the document is damaged: .*{said}"):
        whole.from_dict(document)
