"""Files of results with a list that has one entry more or fewer: refused by name, or shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, reduce
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz as av
from attnviz.core.heads import Layout
from attnviz.core.result import Result
from attnviz.errors import InputError
from attnviz.features import results
from attnviz.features.coref.result import Coref, MentionKind
from attnviz.features.syntax.result import Syntax
from tests.corpus.gold import results as gold
from tests.records import record

pytestmark = pytest.mark.usefixtures("few_sentences")

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
    "explain": lambda: av.explain("the cat sat the cat"),
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
    places = list(lists(document))
    ends = {kind(path): path for path in reversed(places)}, {kind(path): path for path in places}
    for path in dict.fromkeys(path for end in ends for path in end.values()):
        *outer, key = path
        part = reduce(lambda inner, key: inner[key], outer, document)
        whole = part[key]
        for length in {len(whole) + 1, len(whole) - 1, 0} if whole else ():
            part[key] = [*whole, whole[-1]][:length]
            yield f"{length} for {len(whole)} in {'.'.join(map(str, path))}", document
        part[key] = whole


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
        ("spans", lambda d: d["spans"].append(d["spans"][0]),
         "shares has 2 spans, and spans has 3"),
        ("retrieval", lambda d: d["cells"][0].update(length=50), "not one for every length and"),
        ("explain", lambda d: d["by_token"]["0.0"].pop(), "tokens, and tokens has"),
    ],
)  # fmt: skip
def test_a_length_that_does_not_agree_is_named(
    name: str, change: Callable[[Any], Any], said: str
) -> None:
    whole = made(name)
    document = whole.to_dict()
    change(document)
    with pytest.raises(InputError, match=f"the document is damaged: .*{said}"):
        whole.from_dict(document)


WRITTEN: dict[str, Callable[[], Result]] = {
    "circuits": lambda: av.circuits(sample=50), "coref": gold.coref,
    "diff": lambda: av.diff("a b", "a b"),
    "flow": lambda: av.flow("The keys to the cabinet are on the table", method="rollout"),
    "logits": lambda: av.logits(TEXT), "profile": lambda: av.profile(texts=TEXTS),
    "syntax": gold.syntax,
}  # fmt: skip


@cache
def written(name: str) -> dict[str, Any]:
    """Return the document of a result, which no test changes."""
    return WRITTEN[name]().to_dict()


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("circuits", {"edges": [{"side": "X"}]},
         r"Invalid enum value 'X' - at `\$.edges\[0\].side`"),
        ("circuits", {"plain": {"7.0": {"score": 0.5, "centred": 0.4, "own": 1.0}}},
         "'7.0' is not a head of this model"),
        ("diff", {"heads": [{"name": "0.0"}]},
         r"missing required field `distance` - at `\$.heads\[0\]`"),
        ("diff", {"align": "line"}, r"Invalid enum value 'line' - at `\$.align`"),
        ("flow", {"total": [[1.0]]}, r"a matrix of \(1, 1\) for 10 tokens"),
        ("flow", {"total": [[1.0, 2.0], [1.0]]}, r"at `\$.total`"),
        ("flow", {"weights": [[None]]}, r"is not a matrix of float64 - at `\$.weights`"),
        ("flow", {"reach": [[1.0]]}, r"is not a matrix of bool - at `\$.reach`"),
        ("flow", {"method": "water"}, r"Invalid enum value 'water' - at `\$.method`"),
        ("flow", {"layers": [{"kind": "decoder", "layer": 0, "shares": "a"}]},
         r"is not a matrix of float32 - at `\$.layers\[0\].shares`"),
        ("logits", {"layout": {"heads": {"decoder": [6, 6]}}}, "is not a head of this model"),
        ("logits", {"votes": [{"head": "9.9"}]}, r"is not a head .* at `\$.votes\[0\].head`"),
        ("logits", {"schema": "attnviz.other/1"}, "is a result of attnviz.other"),
        ("profile", {"likeness": {"middle": []}},
         r"Invalid enum value 'middle' - at `key` in `\$.likeness`"),
        ("profile", {"layout": {"heads": {"encoder": [1]}}}, "is not a head of this model"),
        ("coref", {"examples": None},
         r"Expected `int`, got `null` - at `\$.examples`; make it again"),
        ("coref", {"candidates": "any"}, r"Invalid enum value 'any' - at `\$.candidates`"),
        ("syntax", {"relations": 3}, r"Expected `array`, got `int` - at `\$.relations`"),
        *((name, {"schema": f"attnviz.{name}/2"}, f"version 1; make it again with attnviz {name}")
          for name in WRITTEN),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(name: str, change: dict[str, Any], says: str, tmp_path) -> None:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(written(name) | change))
    with pytest.raises(InputError, match=says) as caught:
        results.read(path)
    assert path.name in str(caught.value)


LAYOUT = Layout({"encoder": (2, 3)})
ANY = {
    Syntax: record(Syntax, LAYOUT),
    Coref: record(Coref, LAYOUT, kinds=st.tuples(record(MentionKind, LAYOUT))),
}
"""Results whose every value is tried."""


@pytest.mark.parametrize("kind", ANY)
@given(st.data())
def test_any_value_comes_back_equal_and_follows_its_schema(kind: Any, data: Any) -> None:
    found = data.draw(ANY[kind])
    assert kind.from_dict(found.to_dict()) == kind.from_json(found.to_json()) == found
    jsonschema_rs.validate(kind.json_schema(), found.to_dict())
