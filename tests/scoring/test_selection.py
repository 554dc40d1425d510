"""Head selections: the whole grammar, every error, and whatever hypothesis can write."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attnviz.core.heads import SITE_KINDS, SITE_PREFIX, Head, Layout, Site, SiteKind
from attnviz.errors import SelectionError
from attnviz.scoring.select import describe, select

BERT = Layout({"encoder": (12,) * 12})
GPT = Layout({"decoder": (4, 4, 2)})
T5 = Layout({"encoder": (3, 3), "decoder": (2, 2, 2), "cross": (2, 2, 2)})


def names(text: str, layout: Layout = BERT) -> str:
    return " ".join(layout.name(head) for head in select(text, layout))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4.11", "4.11"), ("L4H11", "4.11"), ("l4h11", "4.11"), ("L4h11", "4.11"),
        ("  4 . 11\t\n", "4.11"), ("0.0", "0.0"), ("004.0011", "4.11"), ("3-5.2", "3.2 4.2 5.2"),
        ("3\u20135.2", "3.2 4.2 5.2"), ("2.9-11", "2.9 2.10 2.11"), ("1-2.0-1", "1.0 1.1 2.0 2.1"),
        ("3-3.2-2", "3.2"), ("L1-2H0-1", "1.0 1.1 2.0 2.1"),
        ("10.*", " ".join(f"10.{h}" for h in range(12))),
        ("L10H*", " ".join(f"10.{h}" for h in range(12))),
        ("*.3", " ".join(f"{layer}.3" for layer in range(12))),
        ("L*H3", " ".join(f"{layer}.3" for layer in range(12))),
        ("*.*", " ".join(f"{layer}.{h}" for layer in range(12) for h in range(12))),
        ("5.1,4.11", "4.11 5.1"), (" 5.1 , L4H11 ,5.1", "4.11 5.1"),
        ("4.0-3,4.2-4", "4.0 4.1 4.2 4.3 4.4"), ("enc:4.11", "4.11"), ("ENC:4.11", "4.11"),
        ("Encoder : 4.11", "4.11"),
    ],
)  # fmt: skip
def test_grammar(text: str, wanted: str) -> None:
    assert names(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0.1", "enc:0.1 dec:0.1 cross:0.1"), ("0.2", "enc:0.2"), ("2.0", "dec:2.0 cross:2.0"),
        ("cross:2.0", "cross:2.0"), ("dec:0-1.1", "dec:0.1 dec:1.1"),
        ("cross:0.0,dec:0.0,encoder:0.0", "enc:0.0 dec:0.0 cross:0.0"),
        ("dec:0.0,1.1", "enc:1.1 dec:0.0 dec:1.1 cross:1.1"), ("*.2", "enc:0.2 enc:1.2"),
        ("cross:L2H*", "cross:2.0 cross:2.1"), ("decoder:2.1", "dec:2.1"),
    ],
)  # fmt: skip
def test_kinds_of_site(text: str, wanted: str) -> None:
    """Without a kind an item means every kind that has it; a kind is for its own item only."""
    assert names(text, T5) == wanted


def test_star_takes_what_there_is() -> None:
    assert names("*.3", GPT) == "0.3 1.3"
    assert names("*.0-3", GPT) == "0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3"
    assert names("2.*", GPT) == "2.0 2.1"
    assert names("1-2.*", GPT) == "1.0 1.1 1.2 1.3 2.0 2.1"


@pytest.mark.parametrize(
    ("text", "layout", "message"),
    [
        ("", BERT, "the selection of heads is empty; write 4.11"),
        (" \t\n", BERT, "the selection of heads is empty; write 4.11"),
        ("12.0", BERT, "no head 12.0; this model has layers 0-11 with heads 0-11"),
        ("0.12", BERT, "no head 0.12; this model has layers 0-11 with heads 0-11"),
        ("4.11,99.0", BERT, "no head 99.0;"), ("10-12.0", BERT, "no head 10-12.0;"),
        ("0.10-12", BERT, "no head 0.10-12;"), ("*.12", BERT, "no head *.12;"),
        ("L12H0", BERT, "no head l12h0;"),
        ("2.3", GPT, "no head 2.3; this model has layers 0-1 with heads 0-3, layer 2 with"),
        ("1-2.3", GPT, "no head 1-2.3;"),
        ("5.0", T5, "no head 5.0; this model has enc: layers 0-1 with heads 0-2; dec: layers 0-2 "),
        ("cross:0.2", T5, "no head cross:0.2;"),
        ("dec:0.0", BERT, "no dec: heads in this model; it has enc:"),
        ("foo:0.0", T5, "no foo: heads in this model; it has enc:, dec:, cross:"),
        ("5-3.0", BERT, "'5-3.0' counts layers backwards; write 3-5"),
        ("0.5-3", BERT, "'0.5-3' counts heads backwards; write 3-5"),
        ("every", BERT, "cannot read 'every' as heads; write 4.11, L4H11, 5.*"),
        ("4", BERT, "cannot read '4' as heads"), ("4.", BERT, "cannot read '4.' as heads"),
        (".4", BERT, "cannot read '.4' as heads"), ("4.11,", BERT, "cannot read '' as heads"),
        (",", BERT, "cannot read '' as heads"), ("4;11", BERT, "cannot read '4;11' as heads"),
        ("-1.0", BERT, "cannot read '-1.0' as heads"),
        ("1.-1", BERT, "cannot read '1.-1' as heads"),
        ("1--2.0", BERT, "cannot read '1--2.0' as heads"),
        ("1.2.3", BERT, "cannot read '1.2.3' as heads"),
        ("1.0-*", BERT, "cannot read '1.0-*' as heads"),
        ("**.1", BERT, "cannot read '**.1' as heads"), ("L4", BERT, "cannot read 'l4' as heads"),
        ("H4", BERT, "cannot read 'h4' as heads"),
        ("L4.H11", BERT, "cannot read 'l4.h11' as heads"),
        (":4.11", BERT, "cannot read ':4.11' as heads"),
        ("enc:", BERT, "cannot read 'enc:' as heads"),
        ("enc:enc:4.11", BERT, "cannot read 'enc:enc:4.11' as heads"),
        ("٤.1", BERT, "cannot read '٤.1' as heads"),
        ("1e1.0", BERT, "cannot read '1e1.0' as heads"),
        ("0x1.0", BERT, "cannot read '0x1.0' as heads"),
        ("9999999999.0", BERT, "cannot read '9999999999.0' as heads"),
        ("999999999.0", BERT, "no head 999999999.0;"),
        ("0-999999999.*", BERT, "no head 0-999999999.*;"),
        ("*.0-999999999", BERT, "no head *.0-999999999;"),
        ("0.0", Layout({}), "no head 0.0; this model has no heads"),
    ],
)  # fmt: skip
def test_errors_say_what_exists(text: str, layout: Layout, message: str) -> None:
    with pytest.raises(SelectionError, match=re.escape(message)) as caught:
        select(text, layout)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_errors_repeat_little_of_a_long_selection() -> None:
    for junk in ("junk" * 10_000, "junk" * 10_000 + ":0.0", "0" * 10_000 + ".0"):
        with pytest.raises(SelectionError) as caught:
            select(junk, BERT)
        assert len(str(caught.value)) < 200
    with pytest.raises(SelectionError) as caught:
        select("\x1b[31m", BERT)
    assert "\x1b" not in str(caught.value)


# hypothesis: layouts of a few kinds, with layers of different sizes
layouts = st.dictionaries(
    st.sampled_from(SITE_KINDS),
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    min_size=1,
).map(Layout)
kinds = st.none() | st.sampled_from(SITE_KINDS)
spans = st.none() | st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda s: tuple(sorted(s)))
items = st.lists(st.tuples(kinds, spans, spans), min_size=1, max_size=3)
Span = tuple[int, int] | None


@given(items, layouts, st.data())
def test_whatever_can_be_written_means_the_same(
    wanted: list[tuple[SiteKind | None, Span, Span]], layout: Layout, data: st.DataObject
) -> None:
    """Written in any of the ways, against membership of every head one by one."""

    def written(span: Span) -> str:
        if span is None:
            return "*"
        low, high = span
        return str(low) if low == high and data.draw(st.booleans()) else f"{low}-{high}"

    texts, sets = [], []
    for kind, layers, heads in wanted:
        text = data.draw(st.sampled_from(["{}.{}", "L{}H{}", "l{} h{}", " {} . {}"]))
        text = text.format(written(layers), written(heads))
        if kind is not None:
            prefix = data.draw(st.sampled_from([SITE_PREFIX[kind], kind.upper(), kind]))
            text = f"{prefix}:{text}"
        texts.append(text)
        found = set()
        for one in layout.kinds if kind is None else (kind,):
            counts = layout.heads.get(one, ())
            chosen = range(len(counts)) if layers is None else range(layers[0], layers[1] + 1)
            if not set(chosen) <= set(range(len(counts))):
                continue
            reach = [layer for layer in chosen if heads is None or heads[1] < counts[layer]]
            if layers is not None and len(reach) < len(chosen):
                continue
            for layer in reach:
                span = range(counts[layer]) if heads is None else range(heads[0], heads[1] + 1)
                found |= {Head(Site(one, layer), index) for index in span}
        sets.append(found)
    text = ",".join(texts)
    if all(sets):
        union = set().union(*sets)
        assert select(text, layout) == tuple(head for head in layout if head in union)
    else:
        with pytest.raises(SelectionError):
            select(text, layout)


@given(layouts, st.data())
def test_names_of_heads_are_selections(layout: Layout, data: st.DataObject) -> None:
    head = data.draw(st.sampled_from(list(layout)))
    assert select(layout.name(head), layout) == (head,)
    assert select(head.qualified, layout) == (head,)
    some = data.draw(st.lists(st.sampled_from(list(layout)), min_size=1, max_size=6))
    found = select(", ".join(layout.name(h) for h in some), layout)
    assert found == tuple(h for h in layout if h in some)


@given(st.text(max_size=12) | st.text("0123456789.*-:,LHlhenc dross", max_size=14), layouts)
@example("\u0130.1", Layout({"encoder": (1,)}))
@example("0.0\x00", Layout({"encoder": (1,)}))
def test_junk_is_heads_or_one_clear_line(text: str, layout: Layout) -> None:
    found: tuple[Head, ...] = ()
    message = ""
    try:
        found = select(text, layout)
    except SelectionError as error:
        message = str(error)
    assert bool(found) != bool(message)
    assert found == tuple(head for head in layout if head in found)
    assert message.isprintable()  # a line, without anything raw
    assert len(message) < 200


def test_describe() -> None:
    assert describe(BERT) == "layers 0-11 with heads 0-11"
    assert describe(Layout({"encoder": (1,)})) == "layer 0 with head 0"
    assert describe(GPT) == "layers 0-1 with heads 0-3, layer 2 with heads 0-1"
    assert describe(T5) == (
        "enc: layers 0-1 with heads 0-2; dec: layers 0-2 with heads 0-1; "
        "cross: layers 0-2 with heads 0-1"
    )
    assert describe(Layout({})) == "no heads"


def test_layers_without_attention_are_said_to_have_none() -> None:
    hybrid = Layout({"decoder": (0, 0, 0, 2, 0)})
    with pytest.raises(SelectionError) as caught:
        select("0.0", hybrid)
    said = "layers 0-2: no attention, layer 3 with heads 0-1, layer 4: no attention"
    assert str(caught.value).endswith(said)
    assert select("*.0", hybrid) == (Head(Site("decoder", 3), 0),)
