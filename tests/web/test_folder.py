"""Pages in one folder: an index beside them, and a link back from each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import SpaceCard

import attnviz as av
from attnviz.cli import main
from attnviz.features.live.result import LivePage
from attnviz.web.folder import space
from tests.cli.calling import refused
from tests.features.profile.corpus import lines
from tests.features.profile.corpus import sentences as some
from tests.viewing import opened

TEXT = "The cat and the cat"


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lines(tmp_path_factory.mktemp("texts") / "texts.txt", some(12))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("book")
    (where / "notes.html").write_text("<title>somebody else's</title>")
    for asked in (["lens", TEXT], ["view", TEXT], ["lens", "Another text"], ["lens", TEXT]):
        assert main([*asked, "-q", "-o", str(where)]) == 0
    return where


def test_pages_of_other_texts_get_numbers_and_the_same_one_is_written_again(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["index.html", "lens-2.html", "lens.html", "notes.html", "view.html"]
    assert av.read(folder / "lens-2.html").made.model == "demo-gpt2"


def test_the_index_links_to_each_and_each_links_back(browser: Any, folder: Path) -> None:
    pages = ["lens-2.html", "lens.html", "view.html"]
    with opened(browser) as found:
        found.documents |= {(folder / name).as_uri() for name in [*pages, "index.html"]}
        found.page.goto((folder / "index.html").as_uri())
        links = found.all("main a", "href")
        assert links == [(folder / name).as_uri() for name in pages]
        said = found.page.inner_text("main")
        assert f"attnviz lens '{TEXT}' -q -o ./{folder.name} · " in said
        for link in links:
            found.page.goto(link)
            found.page.click("footer a")
            assert found.page.url == (folder / "index.html").as_uri()


def test_pages_of_a_model_lead_to_the_rows_of_each_head(
    browser: Any, tmp_path: Path, sentences: Path
) -> None:
    """Whatever was made first; not to those of another model."""
    view, profile = ["view", TEXT], ["profile", str(sentences), "--select", "1.4,3.0"]
    for asked in (view, ["view", "a [MASK]", "-m", "demo-bert"], profile, ["lens", TEXT]):
        assert main([*asked, "-q", "-o", str(tmp_path)]) == 0
    with opened(browser) as found:
        found.documents |= {path.as_uri() for path in tmp_path.iterdir()}
        for name, heads in (("view", ["1.4", "3.0"]), ("lens", ["1.4", "3.0"]), ("view-2", [])):
            found.page.goto((tmp_path / f"{name}.html").as_uri())
            links = found.page.locator("#folder a[data-head]").all()
            assert [link.inner_text() for link in links] == heads
        found.page.goto((tmp_path / "view.html").as_uri() + "#view=card&head=3.0")
        found.page.click("#card-body a >> text=3.0 over many texts")
        assert found.page.url == (tmp_path / "profile.html").as_uri() + "#3.0"
        assert found.page.input_value("#head") == "3.0"


def test_the_index_needs_no_script(browser: Any, folder: Path) -> None:
    with opened(browser, java_script_enabled=False) as found:
        found.documents.add((folder / "index.html").as_uri())
        found.page.goto((folder / "index.html").as_uri())
        assert [link.is_visible() for link in found.page.locator("main a").all()] == [True] * 3


def test_a_page_in_a_folder_is_said_to_be_one(tmp_path: Path, capsys: Any) -> None:
    assert main(["lens", TEXT, "-o", str(tmp_path)]) == 0
    assert f"wrote a page into {tmp_path}, and the index" in capsys.readouterr().out


def test_another_index_stays_what_it_is(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>an atlas</title>")
    assert main(["lens", TEXT, "-q", "-o", str(tmp_path)]) == 0
    assert (tmp_path / "index.html").read_text() == "<title>an atlas</title>"
    assert re.search('href="pages.html"', (tmp_path / "lens.html").read_text())
    assert 'href="lens.html"' in (tmp_path / "pages.html").read_text()


def test_a_name_that_is_no_utf_8_is_listed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a?b#.html", "\udcff.html"):
        av.flow("a b").save(name)
    assert main(["flow", "a c", "-q", "-o", "."]) == 0
    listed = (tmp_path / "index.html").read_text("utf-8")
    assert 'href="%FF.html"' in listed
    assert 'href="a%3Fb%23.html"' in listed


def test_what_has_no_page_needs_the_name_of_a_file(tmp_path: Path, capsys: Any) -> None:
    assert "name the file .json" in refused(capsys, "heads", TEXT, "-o", str(tmp_path), code=2)


@pytest.mark.parametrize("command", ["view", "live"])
def test_a_space_is_one_page_and_a_card_and_replaces_only_its_own(
    tmp_path: Path, command: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``live``, which takes seconds, hands over another page here."""
    title = "A: “quoted” <b>title</b> #1"
    folder = tmp_path / "space"
    asked = [command, TEXT, "--title", title, "--select", "1.4", "--space", str(folder)]
    (folder / ".git").mkdir(parents=True)
    instead = LivePage(av.view(TEXT, select="1.4", title=title).page, title, error=0.0)
    monkeypatch.setattr("attnviz.features.live.function.live", lambda *_, **__: instead)
    assert main(asked) == main(asked) == 0
    assert "hf upload" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == [".git", "README.md", "index.html"]
    card = (folder / "README.md").read_text("utf-8").split("---\n")[2]
    found = SpaceCard.load(folder / "README.md").data.to_dict()
    known = {"title": title, "sdk": "static", "app_file": "index.html", "license": "apache-2.0"}
    assert known.items() <= found.items()
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {found["colorFrom"], found["colorTo"]} <= colours
    assert {"emoji", "pinned"} <= found.keys()
    assert len(found["short_description"]) <= 60
    assert f"`attnviz {command}`" in card
    assert "<b>" not in card
    assert TEXT not in card  # texts stand in the page alone
    (folder / "notes.txt").write_text("somebody's")
    before = (folder / "index.html").stat().st_mtime_ns
    assert "holds notes.txt" in refused(capsys, *asked)
    assert (folder / "index.html").stat().st_mtime_ns == before


def test_a_space_of_another_model_claims_no_licence_and_keeps_a_foreign_card(
    tmp_path: Path,
) -> None:
    page, card = av.view(TEXT), tmp_path / "README.md"
    space(tmp_path / "a", "atlas", page.save, {})
    assert "license: unknown\n" in (tmp_path / "a" / "README.md").read_text("utf-8")
    card.write_text("# mine")
    with pytest.raises(av.AttnvizError, match="which no Space of attnviz has"):
        space(tmp_path, "view", page.save, {})
    assert card.read_text() == "# mine"
