"""Differences as Markdown: the figures of the JSON, and text that stays text."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import attnviz as av
from attnviz.cli import main
from attnviz.drawing.html import code, plain, table
from attnviz.drawing.labels import visible

READER = MarkdownIt("commonmark").enable("table")
HARD = st.text(alphabet="ab_*`<>&@#[]()!|\\~-=+ .:1/", min_size=1, max_size=12)


@given(HARD)
def test_text_of_others_stays_text(text: str) -> None:
    """A reader of Markdown gives back what was written, in a sentence and in a cell."""
    for made in (f"x {plain(text)} x", table(["head"], [[f"x {plain(text)} x"]])):
        shown = READER.render(made)
        cells = re.findall(r"<(?:p|td)>(.*?)</(?:p|td)>", shown, re.DOTALL)
        assert " ".join(html.unescape(cells[-1]).split()) == " ".join(
            f"x {visible(text)} x".split()
        )
    assert "@" not in plain(text)


@given(HARD)
def test_code_stays_code(text: str) -> None:
    found = re.search(r"<code>(.*?)</code>", READER.render(f"x {code('a' + text)} x"), re.DOTALL)
    assert found is not None
    assert html.unescape(found[1]).strip() == " ".join(f"a{text}".split())


def test_figures_are_those_of_the_result(tmp_path: Path) -> None:
    found = av.diff("it was too tired", "it was too wide", align="position")
    shown = READER.render(found.to_markdown(top=5, limit=0.05))
    rows = [
        re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", shown, re.S)
    ]
    rows = [row for row in rows if row]
    assert [row[0] for row in rows] == [head.name for head in found.heads[:5]]
    for row, head in zip(rows, found.heads, strict=False):
        assert float(row[1]) == pytest.approx(head.distance.mean, rel=0.05)
        assert float(row[2]) == pytest.approx(head.distance.largest, rel=0.05)
    over = sum(head.distance.mean > 0.05 for head in found.heads)
    assert f"❌ <strong>{over} of 24 heads differ by more than 0.05</strong>" in shown
    assert "✅ <strong>No head differs by more than 0.9" in READER.render(
        found.to_markdown(limit=0.9)
    )
    found.save(tmp_path / "comment.md")
    assert (tmp_path / "comment.md").read_text().startswith(found.to_markdown())


def test_the_command_prints_it_and_still_fails(tmp_path: Path, capsys) -> None:
    for name, without in (("one", ()), ("other", ("--without", "1.4"))):
        assert main(["heads", "The cat sat on the cat", *without, "--json"]) == 0
        (tmp_path / f"{name}.json").write_text(capsys.readouterr().out)
    files = [str(tmp_path / f"{name}.json") for name in ("one", "other")]
    assert main(["diff", *files, "--markdown", "--fail-over", "0.01"]) == 4
    shown = capsys.readouterr().out
    assert shown.startswith("### Attention heads: demo-gpt2 (one.json) → demo-gpt2 (other.json)\n")
    assert "❌ **" in shown
    assert main(["diff", *files, "--markdown", "--json"]) == 2
    assert main(["diff", files[0], files[0], "--markdown", "--fail-over", "0"]) == 0
    assert "| head |" not in capsys.readouterr().out
