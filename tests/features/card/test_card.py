"""A block in a model card: what it says, that nothing else changes, and when it is stale."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import InputError
from attnviz.features.card import function
from attnviz.features.card.block import END, CardBlock, find, put
from attnviz.models.folder import locate
from tests import ROOT

SENTENCES = ROOT / "sample_inputs" / "sentences.txt"
CARD = "---\nlicense: mit\n---\n# My model\r\n\nText with `code` and trailing space \n"


@pytest.fixture(scope="module")
def made() -> function.Card:
    return av.card("demo-gpt2", texts=SENTENCES, path="README.md")


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
        assert cells[0].endswith(role.name)
        assert cells[1] == f"{estimate.mean:.2f}"
        assert cells[2] == f"{estimate.low:.2f}–{estimate.high:.2f}"
        assert cells[5] == f"{estimate.rows:,}"
    assert "16 texts" in text
    call = "attnviz.card('demo-gpt2', texts='sentences.txt', path='README.md')"
    assert f"`{call}.save('README.md')`" in text
    assert "](attention-heads.png)" in text


def test_only_the_block_of_a_card_changes(made: function.Card, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(CARD.encode())
    made.save(path)
    first = path.read_bytes().decode()
    assert first.startswith(CARD.rstrip())
    assert (tmp_path / "attention-heads.png").read_bytes()[:4] == b"\x89PNG"
    around = f"Before.\n\n{made.block.text()}\n\nAfter \\1 \\g<0>.\n"
    other = CardBlock({"model": "x"}, "Body \\1 with $ and \\n.")
    changed = put(around, other, "README.md")
    assert changed == f"Before.\n\n{other.text()}\n\nAfter \\1 \\g<0>.\n"
    assert find(changed, "README.md").body == other.body
    made.save(path)
    assert path.read_bytes().decode() == first
    assert put("", made.block, "x") == f"{made.block.text()}\n"


def test_stale_is_what_would_be_made_otherwise(
    made: function.Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no model runs to see it."""
    path, texts = tmp_path / "README.md", tmp_path / "texts.txt"
    shutil.copy(SENTENCES, texts)
    made.save(path)
    monkeypatch.setattr(function, "profile", None)
    assert av.stale_card(path, "demo-gpt2", texts=SENTENCES) == ()
    assert av.stale_card(path, "demo-gpt2", texts=texts) == ()  # the same words elsewhere
    assert av.stale_card(path, "demo-gpt2", texts=texts, limit=3) == ("texts",)
    assert av.stale_card(path, "demo-gpt2") == ("texts",)
    assert av.stale_card(path, "demo-bert", texts=texts) == ("model",)
    model = tmp_path / "tuned"
    shutil.copytree(locate("demo-gpt2").folder, model)
    assert av.stale_card(path, model, texts=texts) == ()
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert av.stale_card(path, model, texts=texts) == ("model",)
    texts.write_text("Other words.\n")
    assert av.stale_card(path, "demo-gpt2", texts=texts) == ("texts",)
    path.write_text(path.read_text().replace("previous", "next", 1))
    assert av.stale_card(path, "demo-gpt2", texts=SENTENCES) == ("text",)
    monkeypatch.setattr(function, "version", lambda name: "9.9")
    assert av.stale_card(path, "demo-gpt2", texts=SENTENCES) == ("attnviz", "text")
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


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "README.md"
    command = ["card", "demo-gpt2", "--lines", str(SENTENCES), "--limit", "3", "-o", str(path)]
    assert main([*command, "--check"]) == 1
    path.write_text(CARD)
    assert main([*command, "--check"]) == 5
    assert main([*command, "-q"]) == 0
    assert main([*command, "--check"]) == 0
    assert not capsys.readouterr().out
    shown = "`attnviz card demo-gpt2 --lines sentences.txt --limit 3 -o README.md`"
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
