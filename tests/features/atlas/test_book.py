"""The atlas as a folder: an index and a page a head, linked by relative addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import OutputError
from attnviz.features.atlas.gather import gather
from attnviz.features.atlas.page import selection, write
from tests.features.profile.corpus import lines, sentences
from tests.web.family import SETTLED

HEADS = [f"{layer}.{head}" for layer in range(4) for head in range(6)]


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("book") / "new" / "book"
    model = av.load("demo-gpt2")
    profile = av.profile(texts=sentences(30), model=model, select=selection(model.layout))
    written = write(gather(profile), profile, folder)
    assert [path.name for path in written] == ["index.html", *(f"{name}.html" for name in HEADS)]
    return folder


@pytest.mark.slow
def test_every_link_leads_somewhere(book: Path) -> None:
    for page in book.iterdir():
        text = page.read_text()
        links = re.search(r'"links":(\{.*?\})', text)
        assert links
        addresses = re.findall(r':"(.*?)"', links[1])
        assert addresses
        for address in addresses:
            assert (book / address.partition("#")[0]).is_file(), address
    assert "1.4.html" in (book / "index.html").read_text()
    assert len((book / "1.4.html").read_bytes()) < 5e6


@pytest.mark.slow
def test_one_click_leads_from_a_card_to_its_rows_and_back(browser: Any, book: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(f"{(book / 'index.html').as_uri()}#2.4")
        page.evaluate(SETTLED)
        page.click("#card a[href='2.4.html']")
        page.wait_for_url("**/2.4.html")
        page.evaluate(SETTLED)
        assert "Head 2.4" in page.inner_text("main h2 >> nth=0")
        page.click("#links a:has-text('all heads')")
        page.wait_for_url("**/index.html#2.4")
        assert page.locator("#card").is_visible()
    finally:
        context.close()


def test_a_folder_that_is_a_file_is_refused(tmp_path) -> None:
    model = av.load("demo-gpt2")
    profile = av.profile(texts=sentences(6), model=model)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write into"):
        write(gather(profile), profile, tmp_path / "file")


@pytest.mark.slow
def test_the_command_writes_it(tmp_path, capsys) -> None:
    path = lines(tmp_path / "a.txt", sentences(8))
    folder = tmp_path / "book"
    assert main(["atlas", "--texts", str(path), "--out-dir", str(folder)]) == 0
    assert "index.html" in capsys.readouterr().out
    assert len(list(folder.iterdir())) == 25
