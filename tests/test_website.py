"""The site: its sources at every run of the tests, and the whole of it among the slow ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from docs import api, website
from tests import registered
from tests.claims import claims
from tests.viewing import axe, opened

EXAMPLES = [
    pytest.param(code, id=name, marks=[pytest.mark.slow])
    for names in tomllib.loads(api.EXAMPLES.read_text("utf-8")).values()
    for name, code in names.items()
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> website.Sources:
    gathered = website.Sources(tmp_path_factory.mktemp("sources"))
    gathered.gather()
    return gathered


def test_every_link_leads_somewhere(sources: website.Sources) -> None:
    assert sources.missing == []


def test_links_say_titles_and_the_first_page_chooses_a_command(sources: website.Sources) -> None:
    for path in sources.folder.glob("*.md"):
        assert not re.search(r"\[[\w-]+\.md\]\(", path.read_text("utf-8")), path.name
    assert "[Scores and roles: what a head does]" in (sources.folder / "questions.md").read_text(
        "utf-8"
    )
    assert (sources.folder / "questions.md").read_text("utf-8").startswith("# Choose your command")
    assert next(iter(website.PARTS.values())) == ("questions",)
    first = (sources.folder / "index.md").read_text("utf-8").partition("\n![")[0]
    assert 'href="pages/live.html"' in first  # which docs.embedded writes
    assert "live" in {page.name for page in website.embedded.PAGES}


def test_every_page_is_in_the_navigation(sources: website.Sources) -> None:
    listed = {name for names in website.PARTS.values() for name in names}
    written = {
        path.relative_to(sources.folder).with_suffix("").as_posix()
        for path in sources.folder.rglob("*.md")
    }
    pages = {name for name in written if not name.startswith("api/")} | {"api/index"}
    assert pages == listed | {"index"}


def test_every_claim_has_its_tag(sources: website.Sources) -> None:
    for page in {claim.page for claim in claims()}:
        name = "index" if page == "README" else page
        said = {claim.command for claim in claims() if claim.page == page}
        tags = re.findall(r'<p class="tag"><b>(\w+)', (sources.folder / f"{name}.md").read_text())
        assert len(tags) >= len(said), page
        assert set(tags) <= {"measured", "derived", "simulated"}


def test_every_public_name_has_an_entry_and_an_example() -> None:
    grouped = [name for names in api.groups().values() for name in names]
    assert sorted(grouped) == sorted(set(av.__all__) - {"__version__"})
    pages = api.pages()
    for group in api.groups():
        page = pages[group.lower().replace(" ", "-")]
        assert page.count("\n## ") + page.startswith("## ") == len(api.groups()[group])
        assert ":class:" not in page
        assert ":func:" not in page


@pytest.mark.usefixtures("beside_samples")
@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_name_runs(code: str) -> None:
    try:
        exec(code, {"av": av, "__name__": "example"})
    finally:
        registered.forget()


@pytest.mark.slow
def test_the_site_asks_for_nothing_is_small_and_is_the_same_again(tmp_path, browser) -> None:
    pytest.importorskip("furo")
    pages = tmp_path / "pages"
    website.embedded.make(pages)
    one, other = tmp_path / "one", tmp_path / "other"
    website.build(one, pages)
    website.build(other, pages)
    assert website.differing(one, other) == []
    assert website.size(one) < 30e6
    loads = re.compile(
        r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|"""
        r"""<link[^>]*\shref=["']?(?:https?:)?//|@import\s+(?:url\()?["']?(?:https?:)?//|"""
        r"""url\(["']?(?:https?:)?//"""
    )
    for path in one.rglob("*"):
        if path.suffix in (".html", ".css") and "pages" not in path.relative_to(one).parts:
            assert loads.findall(path.read_text("utf-8")) == [], path.name
    assert (one / "searchindex.js").stat().st_size > 10_000
    for width, scheme in ((1440, "light"), (390, "dark")):
        assert list(violations(browser, one, width, scheme)) == []
    assert not re.search("[–—][a-z]", (one / "options.html").read_text("utf-8")), "no dashes"
    with opened(browser, viewport={"width": 390, "height": 900}) as tab:
        tab.open(one / "options.html")
        assert tab.page.evaluate(BARE), "a list, and no boxes with nothing in them"


BARE = """[...document.querySelectorAll("td")].every(cell =>
    getComputedStyle(cell).borderLeftWidth === "0px"
    && (cell.innerText.trim() || !cell.offsetParent))"""


def violations(browser: Any, site: Path, width: int, scheme: str) -> Iterator[tuple[str, ...]]:
    """What axe finds on the pages of a site that Sphinx wrote."""
    size = {"width": width, "height": 900}
    with opened(browser, viewport=size, color_scheme=scheme, bypass_csp=True) as tab:
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            if name.startswith("pages/"):
                continue
            tab.open(path)
            tab.page.evaluate(axe())
            for violation in tab.page.evaluate("axe.run()")["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    yield name, violation["id"], violation["nodes"][0]["html"][:120]


@pytest.mark.slow
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(website.embedded, "section", lambda: "\n[gone](gone.md)\n")
    with pytest.raises(SystemExit, match="Sphinx warned"):
        website.build(tmp_path / "site", tmp_path)


def test_folders_that_differ_are_told(tmp_path: Path) -> None:
    for name, text in (("a/x", "1"), ("a/y", "1"), ("b/x", "1"), ("b/y", "2"), ("b/z", "3")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert website.differing(tmp_path / "a", tmp_path / "b") == ["y", "z"]
