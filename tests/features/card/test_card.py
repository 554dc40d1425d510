"""A block in a model card: what it says, that nothing else changes, and when it is stale."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import InputError, OutputError, UsageError
from attnviz.features.card import function
from attnviz.features.card.block import END, CardBlock, find, put
from attnviz.models.folder import locate
from tests import ROOT

SENTENCES = ROOT / "sample_inputs" / "sentences.txt"
CARD = "---\nlicense: mit\n---\n# My model\r\n\nText with `code` and trailing space \n"


@pytest.fixture(scope="module")
def made() -> function.Card:
    return av.card("demo-gpt2", files=SENTENCES, path="README.md")


def test_the_table_is_that_of_the_profile(made: function.Card) -> None:
    profile = av.profile(SENTENCES, model="demo-gpt2")
    text = str(made)
    named = [head for head in profile.heads if head.scores.roles]
    rows = re.findall(r"^\| (\d\.\d) \| (.*) \|$", text, re.MULTILINE)
    assert {name for name, _ in rows} == {head.head.name for head in named}
    for head in named:
        role = head.scores.does or head.scores.roles[0]
        estimate = head.estimates[role.score]
        cells = dict(rows)[head.head.name].split(" | ")
        assert role.name in cells[0]
        assert cells[1] == f"{estimate.mean:.2f}"
        assert cells[2] == f"{estimate.low:.2f}–{estimate.high:.2f}"
        assert cells[5] == f"{estimate.rows:,}"
    assert "16 texts" in text
    call = "attnviz.card('demo-gpt2', files='sentences.txt', path='README.md')"
    assert f"`{call}.save('README.md')`" in text
    assert "](attention-heads.png)" in text


def test_only_the_block_of_a_card_changes(made: function.Card, tmp_path: Path) -> None:
    path, bare = tmp_path / "README.md", replace(made, picture="")
    path.write_bytes(CARD.encode())
    bare.save(path)
    first = path.read_bytes().decode()
    assert first.startswith(CARD.rstrip())
    around = f"Before.\n\n{made.block.text()}\n\nAfter \\1 \\g<0>.\n"
    other = CardBlock({"model": "x"}, "Body \\1 with $ and \\n.")
    changed = put(around, other, "README.md")
    assert changed == f"Before.\n\n{other.text()}\n\nAfter \\1 \\g<0>.\n"
    assert find(changed, "README.md").body == other.body
    bare.save(path)
    assert path.read_bytes().decode() == first
    assert put("", made.block, "x") == f"{made.block.text()}\n"


def test_stale_is_what_would_be_made_otherwise(made: function.Card, tmp_path, monkeypatch) -> None:
    """And no model runs to see it."""
    path, texts = tmp_path / "README.md", tmp_path / "texts.txt"
    shutil.copy(SENTENCES, texts)
    replace(made, picture="").save(path)
    monkeypatch.setattr(function, "profile", None)
    assert av.stale_card(path, "demo-gpt2", files=SENTENCES) == ()
    assert av.stale_card(path, "demo-gpt2", files=texts) == ()  # the same words elsewhere
    assert av.stale_card(path, "demo-gpt2", files=texts, limit=3) == ("texts",)
    assert av.stale_card(path, "demo-gpt2") == ("texts",)
    assert av.stale_card(path, "demo-bert", files=texts) == ("model",)
    model = tmp_path / "tuned"
    shutil.copytree(locate("demo-gpt2").folder, model)
    assert av.stale_card(path, model, files=texts) == ()
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert av.stale_card(path, model, files=texts) == ("model",)
    texts.write_text("Other words.\n")
    assert av.stale_card(path, "demo-gpt2", files=texts) == ("texts",)
    path.write_text(path.read_text().replace("previous", "next", 1))
    assert av.stale_card(path, "demo-gpt2", files=SENTENCES) == ("text",)
    monkeypatch.setattr(function, "version", lambda name: "9.9")
    assert av.stale_card(path, "demo-gpt2", files=SENTENCES) == ("attnviz", "text")
    path.write_text(CARD)
    assert av.stale_card(path, "demo-gpt2") is None


def test_damaged_markers_are_left_as_they_are(made: function.Card, tmp_path: Path) -> None:
    path, block = tmp_path / "README.md", made.block.text()
    for text in (
        block.removesuffix(END),
        block + "\n" + block,
        END,
        block.replace('"model"', '"model', 1),
        block.replace("{", "[{", 1),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match="marker"):
            made.save(path)
        assert path.read_text() == text
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="no UTF-8 text"):
        made.save(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "  ", "{0}", " {0}{0}{0}", "\t{0} {0}"])
def test_no_byte_outside_the_block_changes(
    made: function.Card, tmp_path: Path, newline: str, end: str
) -> None:
    path = tmp_path / "README.md"
    before = f"\ufeff# My model{newline}{newline}Text\u2028\x0b {end.format(newline)}".encode()
    path.write_bytes(before)
    bare = replace(made, picture="")  # each picture is drawn anew, and the same
    bare.save(path)
    first = path.read_bytes()
    assert first.startswith(before)
    lines = first.decode().split("\n")
    ended = newline == "\r\n"
    assert all(line.endswith("\r") == ended for line in lines[:-1])  # one kind of ends
    assert av.stale_card(path, "demo-gpt2", files=SENTENCES) == ()
    after = f" {newline}  after {newline} ".encode()
    path.write_bytes(first.rstrip() + after)
    replace(bare, block=CardBlock({"model": "x"}, "one\ntwo")).save(path)
    renewed = path.read_bytes()
    assert renewed.startswith(before)
    assert renewed.endswith(f"{newline}one{newline}two{newline}{END}".encode() + after)


QUOTED = """A block stands between `<!-- attnviz-card: {} -->` and
`<!-- /attnviz-card -->`, or <!-- attnviz-card: inside a sentence.

```md
<!-- attnviz-card: {"model": "x"} -->
``
~~~
<!-- /attnviz-card -->
`````

   ~~~~ `md`
<!-- attnviz-card: {} -->
~~~
~~~~

    <!-- /attnviz-card -->
"""


def test_markers_that_are_quoted_are_text(made: function.Card) -> None:
    assert find(QUOTED, "README.md") is None
    both = put(QUOTED, made.block, "README.md")
    assert both == f"{QUOTED}\n{made.block.text()}\n"
    other = CardBlock({}, "```\nnever closed")
    again = put(f"{both}{QUOTED}", other, "README.md")
    assert again == f"{QUOTED}\n{other.text()}\n{QUOTED}"
    assert find(again, "README.md").body == other.body
    with pytest.raises(InputError, match="ends inside a block of code"):
        put("```\ncode", made.block, "README.md")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- attnviz-card: {} -->\n" * 40_000,
        "<!-- attnviz-card: " * 55_000,
        '<!-- attnviz-card: {"a": ' + "[" * 100_000 + "]" * 100_000 + "} -->\n" + END,
        "```" * 300_000 + "x`",
        "```\n" * 250_001,
    ],
    ids=["markers", "one line", "deep", "fence", "fences"],
)
def test_what_no_card_has_is_said_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    start = time.process_time()
    if "card" in text:
        with pytest.raises(InputError, match="marker"):
            av.stale_card(path, "demo-gpt2")
    else:
        assert av.stale_card(path, "demo-gpt2") is None
    assert time.process_time() - start < 5  # minutes, where every marker looks for every other


def test_a_picture_replaces_nothing_but_the_picture_of_the_card(
    made: function.Card, tmp_path: Path
) -> None:
    path, picture = tmp_path / "README.md", tmp_path / "attention-heads.png"
    path.write_text(CARD)
    picture.write_bytes(b"mine")
    with pytest.raises(OutputError, match="is there already, and is no picture of this card"):
        made.save(path)
    assert picture.read_bytes() == b"mine"
    assert END not in path.read_text()
    picture.unlink()
    made.save(path)
    drawn = picture.read_bytes()
    assert drawn[:4] == b"\x89PNG"
    facts = json.loads(re.search(r"attnviz-card: (.*) -->", path.read_text())[1])
    assert facts["picture"] == hashlib.sha256(drawn).hexdigest()[:16]
    made.save(path)  # its own one is renewed
    picture.write_bytes(drawn + b"edited")
    with pytest.raises(OutputError, match="no picture of this card"):
        made.save(path)
    assert picture.read_bytes() == drawn + b"edited"


@pytest.mark.parametrize("name", ["../x.png", "sub/x.png", "/x.png", "\udcff.png", "x\0.png"])
def test_a_picture_has_the_name_of_a_file_beside_the_card(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="beside the card"):
        function.check_place(tmp_path / "README.md", name)
    with pytest.raises(UsageError, match="beside the card"):
        av.card("demo-gpt2", picture=name)


def test_a_card_and_its_picture_are_two_files(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(function, "profile", None)  # nothing is measured first
    command = ["card", "demo-gpt2", "-o", str(tmp_path / "same.png"), "--picture", "same.png"]
    assert main(command) == 2
    assert "a card is Markdown; name it README.md, not same.png" in capsys.readouterr().err
    beside = tmp_path / "attention-heads.png"
    beside.write_bytes(b"mine")
    assert main(["card", "demo-gpt2", "-o", str(tmp_path / "README.md")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "delete it, or give --picture another name" in said
    assert main(["card", "demo-gpt2", "-o", str(tmp_path / "c.md"), "--picture", "../x.png"]) == 2
    assert beside.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [beside]


@pytest.mark.skipif(os.name != "posix", reason="names of other bytes are POSIX's")
def test_names_of_files_that_are_no_unicode_do_not_stop_a_card(tmp_path: Path) -> None:
    texts = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")
    shutil.copy(SENTENCES, texts)
    path = tmp_path / "README.md"
    card = av.card("demo-gpt2", files=texts, limit=2, path=path, picture="heads (1).svg")
    replace(card, picture="").save(path)
    assert "](heads%20%281%29.svg)" in path.read_text()
    assert av.stale_card(path, "demo-gpt2", files=texts, limit=2) == ()


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "README.md"
    command = ["card", "demo-gpt2", "--texts", str(SENTENCES), "--limit", "2", "-o", str(path)]
    assert main([*command, "--check"]) == 1
    path.write_text(CARD)
    assert main([*command, "--check"]) == 5
    assert main([*command, "-q"]) == 0
    assert main([*command, "--check"]) == 0
    assert not capsys.readouterr().out
    shown = "`attnviz card demo-gpt2 --texts sentences.txt --limit 2 -o README.md`"
    assert shown in path.read_text()
    path.write_text(path.read_text().replace("attention heads do", "heads may do", 1))
    assert main([*command, "--check"]) == 4
    assert "is stale: its text was changed by hand" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--picture", "none"]) == 0
    assert ".png" not in path.read_text()
    assert main(["card", "demo-gpt2", "--check"]) == 2
    assert main(["card"]) == 2
    assert main(["card", "demo-gpt2", "--picture", "x.txt", "-o", str(path)]) == 2
    capsys.readouterr()
    assert main([*command[:-2]]) == 0
    assert "attention-heads.png" not in capsys.readouterr().out
