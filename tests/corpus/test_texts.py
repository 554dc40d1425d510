"""Texts from files, samples of them, and what is wrong with those that cannot be used.

The plan of batches: complete, of like length, within its budget, the same however it is run.
"""

from __future__ import annotations

import datetime
import itertools
import json
import random
import subprocess
import sys
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz as av
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.tokens import Sides, Tokens
from attnviz.corpus.lines import LONGEST_FILE
from attnviz.corpus.texts import (
    InvalidRecord,
    Text,
    Tokenized,
    batches,
    count,
    read,
    resolve,
    sample,
    tokenize,
)
from attnviz.errors import InputError, UsageError
from attnviz.models.controls import FreshConfig


def file(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def found(*names: str, **how) -> list[tuple[int, str | None, str | None, str]]:
    return [(t.number, t.name, t.group, t.text) for t in read(names, **how)]


def test_a_line_is_a_text(tmp_path: Path) -> None:
    names = [file(tmp_path / "a", "\ufeffone\r\n\n  \ntwo"), file(tmp_path / "b.txt", "three\n")]
    texts = list(read(names))
    assert [t.text for t in texts] == ["one", "two", "three"]
    assert [t.number for t in texts] == [1, 2, 3]
    assert [t.place for t in texts] == [f"{names[0]}:1", f"{names[0]}:4", f"{names[1]}:1"]


def test_a_whole_file_is_a_text(tmp_path: Path) -> None:
    names = [file(tmp_path / "Emma.txt", "I\n\nII\n"), file(tmp_path / "t.csv", "a,b\n1,2\n")]
    assert found(*names, whole_files=True) == [
        (1, "Emma", None, "I\n\nII\n"),
        (2, "t", None, "a,b\n1,2\n"),
    ]
    big = tmp_path / "big.txt"
    with open(big, "wb") as out:
        out.write(b"a")
        out.truncate(LONGEST_FILE + 1)
    empty, zeros = read([file(tmp_path / "empty", " \n"), str(big)], whole_files=True)
    assert isinstance(empty, InvalidRecord)
    assert empty.reason == "the text is empty"
    assert isinstance(zeros, InvalidRecord)
    assert "zero bytes" in zeros.reason
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00 of a text")
    assert [bad.reason for bad in read([str(packed)])] == ["compressed by gzip; unpack it"]


def test_fields_of_json_and_tables_by_name(tmp_path: Path) -> None:
    rows = [{"body": "one", "doc": 3, "id": "x"}, {"body": "two", "doc": "d"}]
    rows += [{"body": "three"}, {"doc": "d"}]
    lines = file(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows)))
    table = file(tmp_path / "x.tsv", "doc\tbody\nd\tone\n\ttwo\n")
    texts = list(read([lines, table], column="body", group="doc"))
    assert [(t.text, t.group) for t in texts if isinstance(t, Text)] == [
        ("one", "3"), ("two", "d"), ("one", "d"),
    ]  # fmt: skip
    assert [(b.number, b.reason) for b in texts if isinstance(b, InvalidRecord)] == [
        (3, "'doc' is missing"), (4, "the text is missing"), (6, "'doc' is empty"),
    ]  # fmt: skip


def test_options_that_nothing_can_answer(tmp_path: Path) -> None:
    plain, table = file(tmp_path / "a.txt", "a"), file(tmp_path / "a.csv", "text\na\n")
    with pytest.raises(UsageError, match="group='doc' needs a"):
        read([plain], group="doc")
    with pytest.raises(UsageError, match="column='text' needs a"):
        read([table], column="text", whole_files=True)
    with pytest.raises(UsageError, match=r"no column .doc. in .*: choose group from text"):
        list(read([table], group="doc"))
    with pytest.raises(InputError, match="no file matches"):
        resolve([str(tmp_path / "*.nothing")])
    with pytest.raises(UsageError, match="is JSON, not lines of text"):
        read([table, str(tmp_path / "a.json")])


def test_the_digest_tells_texts_apart() -> None:
    prompts = [Prompt("a"), Prompt("b"), Prompt("a", pair="b"), Prompt("a", target="b")]
    texts = [Text(1, "x", prompt) for prompt in prompts]
    texts += [Text(1, "x", Prompt("a"), name="n"), Text(1, "x", Prompt("a"), group="n")]
    assert len({text.digest for text in texts}) == len(texts)
    assert Text(7, "elsewhere", Prompt("a")).digest == texts[0].digest


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_texts(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        name = file(tmp_path / f"{count}.jsonl", '{"text": "some words here"}\n' * count)
        tracemalloc.start()
        assert sum(1 for _ in read([name])) == count
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    many = min(peak(8_000) for _ in range(3))  # what else the process does may come in between
    assert many < 1.2 * peak(1_000) + 10_000


def numbered(count: int) -> list[Text | InvalidRecord]:
    return [Text(n, f"x:{n}", Prompt(f"text {n}")) for n in range(1, count + 1)]


def test_a_sample_is_fair_ordered_and_repeatable() -> None:
    texts = numbered(200)
    texts[9] = InvalidRecord(10, "x:10", "broken")
    drawn = list(sample(texts, 50, seed=3))
    assert drawn[0] is texts[9]
    numbers = [t.number for t in drawn[1:]]
    assert len(numbers) == 50
    assert numbers == sorted(numbers)
    assert [t.number for t in sample(texts, 50, seed=3)][1:] == numbers
    assert [t.number for t in sample(texts, 50, seed=4)][1:] != numbers
    smaller = {t.number for t in sample(texts, 20, seed=3)} - {10}
    assert smaller < set(numbers)
    assert len(list(sample(texts, 1000))) == 200


def test_every_text_has_the_same_chance() -> None:
    texts = numbered(20)
    times = dict.fromkeys(range(1, 21), 0)
    for seed in range(2000):
        for text in sample(texts, 5, seed):
            times[text.number] += 1
    # binomial with 2000 draws of chance 1/4: mean 500, deviation 19.4
    assert max(abs(count - 500) for count in times.values()) < 4 * 19.4


def test_a_sample_of_an_endless_stream_holds_only_itself() -> None:
    stream = (Text(n, "x", Prompt("y" * 10_000 + str(n))) for n in range(1, 3_001))
    tracemalloc.start()
    assert len(list(sample(stream, 10))) == 10
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert list(itertools.islice(sample(numbered(5), 0), 1)) == []


@pytest.mark.parametrize(
    ("cells", "kind", "said"),
    [
        ([b"bytes", b"\xff"], "binary", "the text is no text (bytes)"),
        ([b"\xff\xfe"], "string", "a cell cannot be read ('utf-8' codec"),
        ([datetime.date(2020, 1, 1)], "date32", "the text is no text (date)"),
        ([Decimal("1.5")], "decimal128", "the text is no text (Decimal)"),
        ([[1] * 100], "list", "a cell is no text (list<"),
        ([{"a": "b"}], "struct", "a cell is no text (struct<"),
        ([None], "string", "the text is missing"),
        ([2.5], "double", "the text is no text (2.5)"),
    ],
)
def test_cells_that_are_no_text_are_bad(tmp_path, cells, kind, said) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    array = arrow.array(cells)
    if kind == "string":
        array = arrow.array(cells, arrow.binary()).view(arrow.string())
    assert str(array.type).startswith(kind)
    path = str(tmp_path / "t.parquet")
    parquet.write_table(arrow.table({"text": array}), path)
    found = list(read([path]))
    assert [type(one) for one in found] == [InvalidRecord] * len(cells)
    assert found[0].reason.startswith(said)


def test_a_cell_of_many_megabytes_is_no_text(tmp_path: Path) -> None:
    """A file of a few kilobytes; as a dictionary, of a string that stands in it a hundred times."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ["a b", "x" * (20 << 20), "c d"]
    places = arrow.array([0] + [1] * 100 + [2], arrow.int32())
    columns = {
        "dictionary": arrow.DictionaryArray.from_arrays(places, arrow.array(words)),
        **{kind: arrow.array(words, getattr(arrow, kind)())
           for kind in ("string", "large_string", "binary")},
    }  # fmt: skip
    whole = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    for kind, column in columns.items():
        path = tmp_path / f"{kind}.parquet"
        parquet.write_table(arrow.table({"text": column}), path, **whole)
        assert path.stat().st_size < 1 << 16
    code = (
        "import resource, sys; from attnviz.corpus.texts import read\n"
        "for path in sys.argv[1:]:\n"
        "    found = [getattr(one, 'reason', '') or one.text for one in read([path])]\n"
        "    print(len(found), *dict.fromkeys(found), sep='|')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)"
    )
    command = [sys.executable, "-c", code, *(tmp_path / f"{kind}.parquet" for kind in columns)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *said, megabytes = done.stdout.splitlines()
    some = "a b|longer than 1 MiB|c d"
    no_text = "the text is no text (bytes)|longer than 1 MiB"
    assert said == [f"102|{some}", f"3|{some}", f"3|{some}", f"3|{no_text}"]
    assert int(megabytes) < 1667, "a hundred of them are two gigabytes"


def test_texts_to_come_are_rows_of_parquet_and_lines_of_others(tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table, lines, bad = (str(tmp_path / name) for name in ("t.parquet", "t.txt", "bad.parquet"))
    parquet.write_table(arrow.table({"text": ["a\n\n\n\n\n\nb", "c\n\n\n\n"]}), table)
    Path(lines).write_text("a\nb\nc\n")
    Path(bad).write_text("x\n")
    assert count([table, lines]) == 5
    assert count([bad]) is None
    assert count(["-"]) is None


def test_parquet_is_a_table_too(tmp_path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "t.parquet")
    table = {"text": ["a b", None, "c"], "doc": [1, 1, 2], "id": ["x", None, "z"], "n": [1.5] * 3}
    parquet.write_table(arrow.table(table), path)
    one, bad, two = read([path], group="doc")
    assert (one.text, one.group, one.name, one.place) == ("a b", "1", "x", f"{path}:1")
    assert (two.text, two.group, two.number) == ("c", "2", 3)
    assert isinstance(bad, InvalidRecord)
    assert bad.reason == "the text is missing"
    with pytest.raises(UsageError, match=r"no column 'words' in .*t\.parquet: choose column from"):
        list(read([path], column="words"))
    (tmp_path / "t.parquet").write_bytes(b"nothing of the sort")
    with pytest.raises(InputError, match=r"cannot read .*t\.parquet"):
        list(read([path]))


def test_a_line_may_be_a_chat_and_name_its_spans(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Where?"}]
    rows = [
        {"messages": chat, "spans": {"q": "Where"}, "id": "x"},
        {"text": "one two", "spans": {"second": "two"}},
        {"messages": "hello"},
        {"messages": chat, "text": "one"},
        {"text": "one", "spans": ["two"]},
    ]
    lines = file(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows)))
    one, two, *bad = read([lines])
    assert isinstance(one, Text)
    assert isinstance(two, Text)
    assert (one.prompt, one.name) == (Prompt(chat=chat, spans={"q": "Where"}), "x")
    assert one.text == "Short.\nWhere?"
    assert two.prompt == Prompt("one two", spans={"second": "two"})
    reasons = [each.reason for each in bad if isinstance(each, InvalidRecord)]
    assert reasons == [
        "its messages are no list of objects with role and content",
        "it has messages and a text; a line is one of them",
        'its spans are no object such as {"document": "regex:Paris.*"}',
    ]
    other = file(tmp_path / "y.jsonl", json.dumps(rows[0] | {"spans": {"q": "here"}}))
    (again,) = read([other])
    assert isinstance(again, Text)
    assert again.digest != one.digest


def test_a_sentence_of_a_treebank_is_a_text(tmp_path: Path) -> None:
    """Its words with spaces between them, where they stand, and what depends on what."""
    rows = "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo\t_\tAUX\t_\t_\t0\troot\t_\t_\n"
    rows += "2\tn't\t_\tPART\t_\t_\t1\tadvmod\t_\t_\n"
    path = tmp_path / "bank.conllu"
    path.write_text(f"# newdoc\n{rows}\n1\tbad\n\n# sent_id = s2\n{rows}\n# newdoc\n{rows}")
    first, bad, second, third = read([str(path)])
    for number, text in ((1, first), (3, second), (4, third)):
        assert isinstance(text, Text)
        assert (text.number, text.prompt.text) == (number, "do n't")
        assert text.prompt.words == ((0, 2), (3, 6))
        assert text.sentence is not None
        assert text.sentence.heads == (-1, 0)
    assert isinstance(bad, InvalidRecord)
    assert (bad.number, bad.place) == (2, f"{path}:6")
    assert second.name == "s2"
    assert first.group == second.group != third.group
    (changed,) = read([file(tmp_path / "other.conllu", rows.replace("advmod", "obj"))])
    assert isinstance(changed, Text)
    assert changed.digest != first.digest


def of_length(number: int, length: int) -> Tokenized:
    tokens = Tokens(("a",) * length)
    inputs = Inputs({"encoder": Sides(tokens, tokens)})
    return Tokenized(Text(number, f"x:{number}", Prompt("a " * length)), inputs)


def squared(inputs: Inputs) -> int:
    return inputs.length**2


@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 20), st.integers(1, 80))
def test_every_text_once_and_within_the_budget(
    lengths: list[int], largest: int, window: int
) -> None:
    texts = [of_length(n, length) for n, length in enumerate(lengths, 1)]
    found = list(batches(texts, squared, 5_000, window=window, largest=largest))
    assert sorted(t.text.number for b in found for t in b) == list(range(1, len(texts) + 1))
    for batch in found:
        sizes = [t.inputs.length for t in batch]
        assert sizes == sorted(sizes)
        assert len(batch) <= largest
        assert len(batch) == 1 or len(batch) * sizes[-1] ** 2 <= 5_000
        firsts = {(t.text.number - 1) // window for t in batch}
        assert len(firsts) == 1


def test_what_cannot_be_used_goes_through_and_changes_no_batch() -> None:
    chooser = random.Random(0)
    texts = [of_length(n, chooser.randint(1, 40)) for n in range(1, 150)]
    plain = list(batches(texts, squared, 5_000))
    bad = InvalidRecord(150, "x:150", "broken")
    mixed = [*texts[:70], bad, *texts[70:]]
    again = list(batches(mixed, squared, 5_000))
    assert again.count(bad) == 1
    assert [b for b in again if b is not bad] == plain


def test_batches_come_as_soon_as_a_window_is_full() -> None:
    taken = 0

    def stream():
        nonlocal taken
        for number in range(1, 10_000):
            taken += 1
            yield of_length(number, 5)

    next(batches(stream(), squared, 5_000, window=64))
    assert taken == 64


def test_tokens_are_those_of_the_model() -> None:
    source = av.load(FreshConfig(d_model=18, heads=3))
    texts = [
        Text(1, "x:1", Prompt("the keys to")),
        InvalidRecord(2, "x:2", "broken"),
        Text(3, "x:3", Prompt("the keys", pair="a pair")),
    ]
    good, broken, refused = tokenize(texts, source)
    assert isinstance(good, Tokenized)
    assert good.inputs == source.prepare(Prompt("the keys to"))
    assert broken is texts[1]
    assert isinstance(refused, InvalidRecord)
    assert (refused.number, refused.place) == (3, "x:3")
    assert "pair makes cross-attention" in refused.reason
