"""Records come back equal, and what is damaged is refused in one line that says where."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any, ClassVar, Literal

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnviz.core.heads import SITE_KINDS, Head, Layout, Site
from attnviz.core.provenance import SourceInfo
from attnviz.core.record import Record, check_schema
from attnviz.core.result import Result
from attnviz.errors import InputError, Message, Setting, UsageError


@dataclass(frozen=True, slots=True)
class Inner:
    """A record in a record, with a head of its own."""

    head: Head
    value: float
    word: str = ""
    more: tuple[Inner, ...] = ()
    numbers: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sample(Result):
    """Everything that a result may hold."""

    schema: ClassVar[str] = "attnviz.sample/3"
    command: ClassVar[str] = "sample"

    share: float
    count: int
    word: str
    kind: Literal["one", "two"] = "one"
    pair: tuple[float, str] | None = None
    inner: tuple[Inner, ...] = ()
    by_head: Mapping[Head, Inner] = field(default_factory=dict)
    maybe: Mapping[Head, tuple[float, ...]] | None = None
    kept: Any = field(default=None, compare=False)


FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
TEXTS = st.text(st.characters(), max_size=8)  # half characters of file names too
LAYOUTS = st.builds(
    Layout,
    st.dictionaries(
        st.sampled_from(SITE_KINDS),
        st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
        min_size=1,
    ).filter(lambda heads: any(map(sum, heads.values()))),
)
WHOLE = st.builds(
    Layout, st.dictionaries(st.sampled_from(SITE_KINDS), st.just((1, 1)), min_size=1), st.just(True)
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FLOATS | TEXTS,
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(TEXTS, inside, max_size=2),
    max_leaves=4,
)


def inners(heads: st.SearchStrategy[Head]) -> st.SearchStrategy[Inner]:
    def one(more: st.SearchStrategy[tuple[Inner, ...]]) -> st.SearchStrategy[Inner]:
        numbers = st.dictionaries(TEXTS, st.none() | FLOATS, max_size=2)
        return st.builds(Inner, heads, FLOATS, TEXTS, more, numbers)

    return one(st.lists(one(st.just(())), max_size=2).map(tuple))


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    layout = draw(LAYOUTS | WHOLE)
    inner = inners(st.sampled_from(list(layout)))
    heads = st.sampled_from(list(layout))
    return Sample(
        source=draw(st.builds(SourceInfo, TEXTS, st.just("native"), TEXTS, TEXTS,
                              versions=st.dictionaries(TEXTS, TEXTS, max_size=2))),
        layout=layout,
        identity=draw(st.dictionaries(TEXTS, PLAIN, max_size=2)),
        texts=draw(st.integers(0, 2**53)),
        seed=draw(st.none() | st.integers(0, 2**63)),
        partial=draw(st.booleans()),
        notes=tuple(draw(st.lists(TEXTS, max_size=2))),
        share=draw(FLOATS),
        count=draw(st.integers(-(2**63), 2**63)),
        word=draw(TEXTS),
        kind=draw(st.sampled_from(("one", "two"))),
        pair=draw(st.none() | st.tuples(FLOATS, TEXTS)),
        inner=tuple(draw(st.lists(inner, max_size=3))),
        by_head=draw(st.dictionaries(heads, inner, max_size=3)),
        maybe=draw(st.none() | st.dictionaries(heads, st.lists(FLOATS, max_size=3).map(tuple),
                                               max_size=3)),
        kept=object(),
    )  # fmt: skip


LAYOUT = Layout({"decoder": (2, 2)})
FIRST, LAST = Head(Site("decoder", 0), 0), Head(Site("decoder", 1), 1)


def sample(**changes: Any) -> Sample:
    inner = Inner(LAST, 0.1, "é", (Inner(FIRST, 5e-324),), {"a": None, "b": 1.5})
    whole = Sample(
        source=SourceInfo("m", "native", "exact"), layout=LAYOUT, share=1 / 3, count=2, word="w",
        pair=(0.5, "p"), inner=(inner,), by_head={FIRST: inner}, maybe={LAST: (1.0, -0.0)},
    )  # fmt: skip
    return replace(whole, **changes)


# ------------------------------------------------------------------ what is written comes back


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(samples())
def test_every_record_comes_back_equal(one: Sample) -> None:
    document = one.to_dict()
    assert [inner["head"] for inner in document["inner"]] == [
        one.layout.name(inner.head) for inner in one.inner
    ]
    assert set(document["by_head"]) == {one.layout.name(head) for head in one.by_head}
    assert Sample.from_dict(document) == one
    text = one.to_json()
    assert Sample.from_json(text) == Sample.from_json(text.encode()) == one
    assert json.loads(text) == document
    assert "kept" not in document
    assert json.loads(json.dumps(document)) == document, "more than JSON holds"
    jsonschema_rs.validate(Sample.json_schema(), document)


def test_what_is_written_word_for_word() -> None:
    assert sample().to_dict() == {
        "schema": "attnviz.sample/3",
        "source": {"model": "m", "backend": "native", "exactness": "exact", "device": "cpu",
                   "dtype": "float32", "reason": "", "versions": {}},
        "layout": {"heads": {"decoder": [2, 2]}, "whole": False, "mixers": [], "mean": ""},
        "identity": {}, "corpus": "", "texts": 0, "seed": None, "partial": False, "notes": [],
        "share": 1 / 3, "count": 2, "word": "w", "kind": "one", "pair": [0.5, "p"],
        "inner": [{"head": "1.1", "value": 0.1, "word": "é",
                   "more": [{"head": "0.0", "value": 5e-324, "word": "", "more": [],
                             "numbers": {}}],
                   "numbers": {"a": None, "b": 1.5}}],
        "by_head": {"0.0": {"head": "1.1", "value": 0.1, "word": "é",
                            "more": [{"head": "0.0", "value": 5e-324, "word": "", "more": [],
                                      "numbers": {}}],
                            "numbers": {"a": None, "b": 1.5}}},
        "maybe": {"1.1": [1.0, -0.0]},
    }  # fmt: skip
    assert "é" in sample().to_json(), "text that a person can read"


@pytest.mark.parametrize("value", [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0,
                                   0.1 + 0.2, 1e22])  # fmt: skip
def test_numbers_keep_every_bit(value: float) -> None:
    back = Sample.from_json(sample(share=value).to_json()).share
    assert back.hex() == value.hex()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_written(value: float) -> None:
    """As null it would be another value, or a file that cannot be read."""
    for one in (sample(share=value), sample(maybe={FIRST: (value,)})):
        with pytest.raises(ValueError, match="not JSON compliant"):
            one.to_json()


def test_numbers_of_numpy_and_messages_become_plain() -> None:
    note = Message("see {}", Setting("model", "gpt2"))
    found = sample(share=np.float64(0.5), count=np.int64(3), notes=(note,)).to_dict()
    assert (found["share"], found["count"], found["notes"]) == (0.5, 3, ["see model='gpt2'"])
    assert {type(found[key]) for key in ("share", "count")} == {float, int}
    assert type(found["notes"][0]) is str


def test_what_has_a_default_may_be_left_out_and_what_is_unknown_is_passed_over() -> None:
    document = sample(notes=("n",)).to_dict()
    del document["pair"], document["notes"]
    assert Sample.from_dict({**document, "later": 1}) == sample(pair=None)


def test_arrays_and_attached_results_are_not_compared() -> None:
    assert sample(kept=1) == sample(kept=2)
    assert Sample.from_dict(sample(kept=1).to_dict()).kept is None


# ------------------------------------------------------------------ what is damaged is refused


def refusal(document: Any, name: str = "f.json") -> str:
    with pytest.raises(InputError) as caught:
        Sample.from_dict(document, name)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(name)
    assert len(said) < 400
    return said


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def changed(path: tuple[Any, ...], change: Any) -> dict[str, Any]:
    """The document of :func:`sample` with one change at a place."""
    document = copy.deepcopy(sample().to_dict())
    inside: Any = document
    for key in path[:-1]:
        inside = inside[key]
    change(inside, path[-1])
    return document


DOCUMENT = sample().to_dict()
REQUIRED = [("source",), ("layout",), ("share",), ("count",), ("word",), ("source", "model"),
            ("source", "backend"), ("source", "exactness"), ("layout", "heads"),
            ("inner", 0, "head"), ("inner", 0, "value"), ("inner", 0, "more", 0, "head"),
            ("by_head", "0.0", "head")]  # fmt: skip


@pytest.mark.parametrize("path", REQUIRED, ids=str)
def test_a_missing_field_is_named_with_its_place(path: tuple[Any, ...]) -> None:
    said = refusal(changed(path, lambda inside, key: inside.pop(key)))
    assert "f.json is damaged: " in said
    assert f"missing required field `{path[-1]}`" in said
    assert said.endswith("; make it again with attnviz sample")
    if len(path) > 1:
        assert f"`$.{path[0]}" in said


WRONG = [w for w in places(DOCUMENT) if w[0] not in ("schema", "identity")]


@pytest.mark.parametrize("path", WRONG, ids=str)
def test_a_wrong_type_anywhere_is_named_with_its_place(path: tuple[Any, ...]) -> None:
    """True is of no field's type but of those that are flags; those get a list."""
    wrong: Any = [] if path[-1] in ("partial", "whole") else True
    said = refusal(changed(path, lambda inside, key: inside.__setitem__(key, wrong)))
    assert "Expected" in said or "Invalid enum value" in said
    assert ("got `array`" if wrong == [] else "`bool`") in said
    assert f"`$.{path[0]}" in said


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("share",), "0.5", "Expected `float`, got `str` - at `$.share`"),
        (("count",), 0.5, "Expected `int`, got `float` - at `$.count`"),
        (("kind",), "three", "Invalid enum value 'three' - at `$.kind`"),
        (("pair",), [1.0], "Expected `array` of length 2, got 1 - at `$.pair`"),
        (("inner", 0, "more", 0, "word"), 3, "Expected `str`, got `int` - at `$.inner[0].more[0]"),
        (("layout",), None, "Expected `object`, got `null` - at `$.layout`"),
        (("layout", "heads"), {"middle": [1]}, "'middle' - at `key` in `$.layout.heads`"),
        (("layout", "heads"), {"decoder": "x"}, "got `str` - at `$.layout.heads[...]`"),
    ],
)  # fmt: skip
def test_a_wrong_value_says_what_was_expected(path: Any, value: Any, says: str) -> None:
    assert says in refusal(changed(path, lambda inside, key: inside.__setitem__(key, value)))


NO_HEADS = ["2.0", "0.2", "-1.0", "0", "", "0.*", "00.0", "0.00", "٠.٠", " 0.0", "0.0 ",
            "0.0.0", "enc:0.0", "dec:0.0", "cross:0.0", "x", "9" * 5000 + ".0", "\x1b[2J\n",
            "1e0.0", "+0.0", "0_0.0"]  # fmt: skip


@pytest.mark.parametrize("name", NO_HEADS, ids=lambda name: repr(name)[:20])
def test_a_head_that_does_not_exist_is_refused_where_it_stands(name: str) -> None:
    quoted = f"{name[:40]!r} is not a head of this model - at "
    said = refusal(changed(("inner", 0, "head"), lambda i, key: i.__setitem__(key, name)))
    assert quoted + "`$.inner[0].head`" in said
    for key in ("by_head", "maybe"):
        document = copy.deepcopy(DOCUMENT)
        document[key][name] = next(iter(document[key].values()))
        assert quoted + f"`key` in `$.{key}`" in refusal(document)


def test_a_head_that_is_no_name_says_what_it_is() -> None:
    said = refusal(changed(("inner", 0, "head"), lambda i, key: i.__setitem__(key, [0, 0])))
    assert "Expected the name of a head, got `list` - at `$.inner[0].head`" in said


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def test_what_is_nested_without_end_is_refused() -> None:
    deep = nested(100_000)
    for path in (("inner",), ("inner", 0, "head"), ("share",), ("layout",), ("by_head",)):
        refusal(changed(path, lambda inside, key: inside.__setitem__(key, deep)))
    inner = {"head": "0.0", "value": 1.0, "more": []}
    for _ in range(100_000):
        inner = {"head": "0.0", "value": 1.0, "more": [inner]}
    assert "it is nested too deeply" in refusal({**DOCUMENT, "inner": [inner]})
    with pytest.raises(
        InputError, match=r"^f is not readable JSON: it is nested too deeply; check"
    ):
        Sample.from_json("[" * 100_000 + "]" * 100_000, "f")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("attnviz.sample/2", "f.json is attnviz.sample/2, and this attnviz reads version 3; make "
                             "it again with attnviz sample"),
        ("attnviz.sample/4", "is attnviz.sample/4, and this attnviz reads version 3; make it"),
        ("attnviz.sample", "is attnviz.sample, and this attnviz reads version 3; make it"),
        ("attnviz.heads/1", "f.json is attnviz.heads/1, not attnviz.sample/3"),
        ("attnviz.\nsample\n/3" + "x" * 99, "is attnviz. sample /3xx"),
        ("other/1", "f.json is not an attnviz result; give a JSON file that an attnviz command"),
        (None, "is not an attnviz result"),
        (3, "is not an attnviz result"),
        ([], "is not an attnviz result"),
    ],
)  # fmt: skip
def test_other_schemas_and_versions(schema: Any, says: str) -> None:
    assert says in refusal({**DOCUMENT, "schema": schema})


@pytest.mark.parametrize("document", [None, 3, "x", [], [DOCUMENT], {}, {"Schema": "x"}])
def test_what_is_no_result(document: Any) -> None:
    assert "is not an attnviz result; give a JSON" in refusal(document)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1 column 1"), ("{", "line 1 column 2"), (sample().to_json()[:-9], "line "),
        (b"\xff\xfe\xfa", "codec can't decode"), ('{"schema": NaN}', "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"), ("9" * 5000, "Exceeds the limit"),
        ("a\nb", "line 1 column 1"),
    ],
)  # fmt: skip
def test_what_is_no_json(text: str | bytes, says: str) -> None:
    with pytest.raises(InputError) as caught:
        Sample.from_json(text, "f.json")
    said = str(caught.value)
    assert re.fullmatch(r"f\.json is not readable JSON: .*; check the file", said)
    assert says in said


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_an_input_error_or_no_damage(data: st.DataObject) -> None:
    """Whatever stands wherever: never another error, and never a record that is not its JSON."""
    path = data.draw(st.sampled_from(list(places(DOCUMENT))))
    value = data.draw(PLAIN)
    document = changed(path, lambda inside, key: inside.__setitem__(key, value))
    found, said = None, ""
    try:
        found = Sample.from_dict(document, "f.json")
    except InputError as error:
        said = str(error)
    if found is None:
        assert re.fullmatch(r"f\.json is .*; .*", said)  # and no line ends
        return
    assert Sample.from_dict(found.to_dict()) == found
    jsonschema_rs.validate(Sample.json_schema(), found.to_dict())


def test_a_type_refuses_values_too() -> None:
    """What a field's own type finds wrong is damage as well, not an error of Python's."""
    with pytest.raises(InputError, match=r"pairs are 2 long - at `\$\.box`"):
        Boxed.from_dict({"schema": "attnviz.box/1", "box": {"of": [1]}})


@dataclass(frozen=True)
class Box:
    of: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.of) != 2:
            raise ValueError("pairs are 2 long")


@dataclass(frozen=True)
class Boxed(Record):
    """A record of no model."""

    schema: ClassVar[str] = "attnviz.box/1"
    command: ClassVar[str] = "box"
    box: Box
    head: Head | None = None


def test_a_record_without_a_layout_has_no_heads_to_read() -> None:
    boxed = Boxed(Box((1, 2)))
    assert Boxed.from_json(boxed.to_json()) == boxed
    with pytest.raises(InputError, match=r"'dec:0\.0' is a head of no layout - at `\$\.head`"):
        Boxed.from_dict(Boxed(Box((1, 2)), FIRST).to_dict())


@dataclass(frozen=True)
class Grid(Record):
    """A record with matrices."""

    schema: ClassVar[str] = "attnviz.grid/1"
    command: ClassVar[str] = "grid"

    numbers: NDArray[np.float32]
    flags: NDArray[np.bool_]


def test_matrices_come_back_with_every_bit() -> None:
    whole = Grid(np.array([[0.1, 1e-30], [3, -2]], np.float32), np.array([[True], [False]]))
    back = Grid.from_json(whole.to_json())
    assert back.numbers.dtype == np.float32
    assert back.numbers.tobytes() == whole.numbers.tobytes()
    assert back.flags.tolist() == [[True], [False]]


@pytest.mark.parametrize("bad", [[1.0, 2.0], [[[1.0]]], [["a"]], [[True]], 3.0])
def test_what_is_no_matrix_is_refused(bad: Any) -> None:
    document = {"schema": Grid.schema, "numbers": bad, "flags": [[True]]}
    with pytest.raises(InputError, match="is not a matrix of float32"):
        Grid.from_dict(document)


def test_check_schema_passes_its_own() -> None:
    check_schema(Sample, {"schema": "attnviz.sample/3"}, "f")


# ------------------------------------------------------------------ the header


def test_results_of_other_models_are_refused_by_name() -> None:
    one = sample(identity={"sha": "a"})
    other = SourceInfo("n", "native", "exact")
    one.check_model("f.json", one.source, LAYOUT, {"sha": "a"})
    one.check_model("f.json", other, LAYOUT, {})  # nobody knows: the heads are the same
    with pytest.raises(UsageError, match=r"^f\.json is of m, and this is n; what was measured"):
        one.check_model("f.json", other, LAYOUT, {"sha": "b"})
    with pytest.raises(UsageError, match="is of other weights under the name m"):
        one.check_model("f.json", one.source, LAYOUT, {"sha": "b"})
    with pytest.raises(UsageError, match="is of other heads under the name m"):
        one.check_model("f.json", one.source, Layout({"decoder": (2,)}), {"sha": "a"})


def test_a_record_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        sample().count = 3  # type: ignore[misc]


# ------------------------------------------------------------------ heads and their names

HEADS = st.builds(
    Head, st.builds(Site, st.sampled_from(SITE_KINDS), st.integers(0, 200)), st.integers(0, 200)
)


@given(HEADS)
def test_a_head_is_a_frozen_value(head: Head) -> None:
    for name in ("site", "index", "other"):
        with pytest.raises(AttributeError):
            setattr(head, name, 0)
    same = Head(Site(head.site.kind, head.layer), head.index)
    assert same == head
    assert hash(same) == hash(head)
    assert head not in (Head(head.site, head.index + 1), head.name, (head.site, head.index), None)
    assert eval(repr(head), {"Head": Head, "Site": Site}) == head
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(head, protocol)) == head
    assert copy.deepcopy(head) == copy.copy(head) == head


@given(HEADS, HEADS)
def test_heads_are_in_the_order_of_sites_and_places(one: Head, other: Head) -> None:
    def key(head: Head) -> tuple[str, int, int]:
        return head.site.kind, head.layer, head.index

    assert (one < other) == (key(one) < key(other))
    assert (one <= other) == (key(one) <= key(other))
    assert (one > other) == (key(one) > key(other))
    assert (one == other) == (key(one) == key(other))


@given(LAYOUTS | WHOLE)
def test_a_layout_finds_every_head_by_its_name_and_no_other(layout: Layout) -> None:
    heads = list(layout)
    assert len(heads) == len(layout)
    names = [layout.name(head) for head in heads]
    assert len(set(names)) == len(heads)
    assert [layout.head(name) for name in names] == heads
    for name in (*names, *(head.name for head in heads), *(head.qualified for head in heads)):
        if name not in names:
            with pytest.raises(ValueError, match="is not a head of this model"):
                layout.head(name)


@given(LAYOUTS, st.text("0123456789.:*encdroxs ٣", max_size=8))
def test_a_layout_knows_no_other_names(layout: Layout, name: str) -> None:
    if name in map(layout.name, layout):
        assert layout.name(layout.head(name)) == name
        return
    with pytest.raises(ValueError, match=re.escape(f"{name[:40]!r} is not a head of this model")):
        layout.head(name)


def test_names_of_heads() -> None:
    both = Layout({"encoder": (1,), "cross": (2,)})
    assert both.head("cross:0.1") == Head(Site("cross", 0), 1)
    assert both.name(Head(Site("encoder", 0), 0)) == "enc:0.0"
    assert Layout({"encoder": (1, 1)}, whole=True).head("1.*") == Head(Site("encoder", 1), 0)
    for name in ("0.1", "dec:0.0", "enc:0.1"):
        with pytest.raises(ValueError, match="is not a head of this model"):
            both.head(name)
