"""Builds the site: ``python -m docs.website FOLDER``.

README, docs/ and the docstrings become one static site with search, which asks for nothing on the
network and needs no server. Sources are gathered in a folder of their own first: links into the
repository lead to copies, figures get the tag of the command that prints them
(``tests/claims/*.toml``), and the API's pages are written. Sphinx with MyST and furo does the rest:
it builds offline and to the same bytes, its search is a file, and it is the best kept of its kind.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import posixpath
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

from docs import api, embedded

ROOT = Path(__file__).absolute().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
BLOCK = re.compile(r"^```.*?^```$|(?:^(?!```)[^\n]*\S[^\n]*\n?)+", re.DOTALL | re.MULTILINE)

PARTS = {
    "Start": ("questions",),
    "Learn": ("tutorials", "courses"),
    "How to": ("overview", "roles", "explain", "ablate", "patch", "knockout",
               "thoughts", "circuits", "logits", "lens", "sources", "flow", "weigh", "spans",
               "sinks", "retrieval", "syntax", "profile", "diff", "film", "shapes", "check", "view",
               "live", "atlas", "export", "models", "python", "watching", "plugins", "recording",
               "mcp", "ci", "install"),
    "Reference": ("options", "api/index", "glossary", "pages"),
    "Trust": ("claims", "same-word", "compare", "seeds", "proofs", "families", "benchmarks",
              "architecture"),
    "More": ("gallery", "releasing", "repo/CONTRIBUTING", "repo/SECURITY", "repo/CHANGELOG",
             "repo/attnviz/models/demo/demo-gpt2/MODEL_CARD",
             "repo/attnviz/models/demo/demo-bert/MODEL_CARD"),
}  # fmt: skip
"""What the site's navigation lists."""
TRY = (
    '<p class="try"><a href="pages/live.html">Try it here</a> A whole model in one page, on a '
    "phone too: type, and see what every head does and what the model says next. Nothing is sent "
    'anywhere. Or <a href="#install">install it</a>.</p>'
)
"""What the first page begins with."""
WHOLE = {
    "benchmarks": ("measured", "make bench"),
    "compare": ("measured", "python -m proofs.compare"),
    "proofs": ("measured", "make proofs"),
    "seeds": ("measured", "python -m training.seeds"),
}
"""Pages on which every figure is one command's."""

SETTINGS = {
    "project": "attnviz",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_title": "attnviz",
    "html_static_path": ["_static"],
    "html_extra_path": ["extra"],
    "html_css_files": ["site.css"],
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_copyright": False,
    "html_show_sphinx": False,
    "html_last_updated_fmt": None,
    "exclude_patterns": ["_static", "extra"],
    "smartquotes": False,  # which makes a dash of the hyphens of an option
    "suppress_warnings": ["misc.highlighting_failure", "myst.header"],
}

CSS = """\
.tag{font-size:.8em;margin:-.6em 0 1.2em;overflow-wrap:anywhere}
.tag b{border:1px solid currentColor;border-radius:.6em;padding:0 .5em;margin-right:.5em}
.try a:first-child{display:table;padding:.5em 1.2em;margin-bottom:.4em;border-radius:.4em;
font-weight:600;background:var(--color-brand-primary);color:var(--color-background-primary);text-decoration:none}
iframe.page{width:100%;height:36rem;border:1px solid var(--color-background-border)}
@media(max-width:30rem){
.table-wrapper :is(table,tbody,tr,td){display:block;width:auto}
.table-wrapper thead{display:none}
.table-wrapper table.docutils{box-shadow:none}
.table-wrapper tr{border-bottom:1px solid var(--color-background-border);padding:.4em 0}
.table-wrapper table.docutils td{border:0;padding:.1em .5em;overflow-wrap:anywhere}
.table-wrapper td:first-child{font-weight:600}
.table-wrapper td:is(:empty,:has(>p:empty)){display:none}
.table-wrapper tr:has(td:first-child:is(:empty,:has(>p:empty))){padding-left:1em}
.tag{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
article p:has(>img){overflow-x:auto}
article p>img{max-width:44rem}
article p>img[src$=".svg"]{width:44rem}
}
"""


class Sources:
    """The gathered sources of the site.

    Attributes:
        folder: where they are gathered.
        missing: links that lead nowhere, with their pages.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing: list[str] = []
        self._waiting = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), DOCS / "tour.ipynb"]

    def gather(self) -> None:
        """Write everything that Sphinx reads, but for the embedded pages."""
        for name, text in api.pages().items():
            self._write(f"api/{name}.md", text)
        for name in (name for names in PARTS.values() for name in names if "repo/" in name):
            self._waiting.append(ROOT / f"{name.removeprefix('repo/')}.md")
        gathered: set[Path] = set()
        while self._waiting:
            path = self._waiting.pop()
            if path in gathered:
                continue
            gathered.add(path)
            if path.suffix == ".md":
                self._write(place(path), self._page(path))
            else:
                target = self.folder / place(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        self._write("_static/site.css", CSS)
        (self.folder / "extra").mkdir(exist_ok=True)

    def _write(self, name: str, text: str) -> None:
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8", newline="\n")

    def _page(self, path: Path) -> str:
        text = path.read_text("utf-8")
        if path.parent == DOCS or path.name == "README.md":
            text = "".join(tagged(path.stem, text))
        text = LINK.sub(lambda link: self._linked(link, path), text)
        if path == ROOT / "README.md":
            text = text.replace("\n![", f"\n{TRY}\n\n![", 1)
            text += "\n" + "\n".join(
                f"```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(names) + "\n```\n"
                for part, names in PARTS.items()
            )
        if path == DOCS / "gallery.md":
            text += embedded.section()
        return text

    def _linked(self, link: re.Match[str], page: Path) -> str:
        """Return a link of a page as it must be in the site."""
        words, target, section = link.groups()
        if re.match(r"\w+:", target):
            return link[0]
        path = Path(os.path.normpath(page.parent / target))
        if not path.exists():
            self.missing.append(f"{page.relative_to(ROOT).as_posix()}: {target}")
            return link[0]
        if path.is_dir():
            return words
        self._waiting.append(path)
        if words == path.name:
            words = title(path)
        start = posixpath.dirname(place(page)) or "."
        return f"[{words}]({posixpath.relpath(place(path), start)}{section or ''})"


def place(path: Path) -> str:
    """Where a file of the repository is in the sources of the site."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"repo/{path.relative_to(ROOT).as_posix()}"


def title(path: Path) -> str:
    """Return what a page calls itself, by its first heading; else its name."""
    heading = re.search(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return path.stem if path.suffix != ".md" or heading is None else heading[1]


def tagged(name: str, text: str) -> Iterator[str]:
    """Yield a page with a tag below every paragraph whose figures a command prints."""
    claims = ROOT / "tests" / "claims" / f"{name}.toml"
    entries = tomllib.loads(claims.read_text("utf-8"))["claims"] if claims.exists() else []
    end = 0
    for block in BLOCK.finditer(text):
        yield text[end : block.end()]
        end = block.end()
        words = " ".join(re.sub(r"\A```.*\n|```\Z", "", block[0]).split())
        said = dict.fromkeys(e["command"] for e in entries if words.startswith(e["paragraph"]))
        if name in WHOLE and words.startswith("# "):
            yield _tag(*WHOLE[name])
        for command in said:
            yield _tag(kind(command), command)
    yield text[end:]


def kind(command: str) -> str:
    """How a figure came about: measured on a model, derived from sizes, or simulated."""
    if command.startswith("python "):
        return "simulated"
    return "derived" if command.startswith("attnviz shapes") else "measured"


def _tag(what: str, command: str) -> str:
    command = command.replace("python attnviz.statistics.coverage", "python -m proofs.coverage")
    return f'\n\n<p class="tag"><b>{what}</b><code>{escape(command, quote=False)}</code></p>\n\n'


def build(folder: Path, pages: Path | None) -> None:
    """Write the site into a folder.

    Args:
        folder: is made anew.
        pages: pages to embed, made before; by default they are made.

    Raises:
        SystemExit: a link leads nowhere, or Sphinx has something to say.
    """
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
    with tempfile.TemporaryDirectory() as work:
        sources = Sources(Path(work) / "sources")
        sources.gather()
        if sources.missing:
            sys.exit("links that lead nowhere:\n" + "\n".join(sources.missing))
        inside = sources.folder / "extra" / "pages"
        if pages is None:
            embedded.make(inside)
        else:
            shutil.copytree(pages, inside)
        shutil.rmtree(folder, ignore_errors=True)
        with patch_docutils(), docutils_namespace():  # so that it can be built twice
            app = Sphinx(
                srcdir=sources.folder, confdir=None, outdir=folder, doctreedir=Path(work) / "trees",
                buildername="html", confoverrides=SETTINGS, status=None, warningiserror=True,
            )  # fmt: skip
            app.build()
        if app.statuscode:
            sys.exit("Sphinx warned; see above")
    _accessible(folder)
    (folder / ".buildinfo").unlink(missing_ok=True)
    shutil.rmtree(folder / "_sources", ignore_errors=True)
    (folder / ".nojekyll").touch()


LACKING = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    "<pre>": '<pre tabindex="0">',
    "<p><img ": '<p tabindex="0"><img ',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
}
"""What the theme's pages lack: the level of headings, and scrolling of wide blocks by keyboard."""


def _accessible(folder: Path) -> None:
    """Give the pages that Sphinx wrote what they lack."""
    for path in folder.rglob("*.html"):
        if "pages" in path.relative_to(folder).parts:
            continue
        text = path.read_text("utf-8")
        for lacking, given in LACKING.items():
            text = text.replace(lacking, given)
        path.write_text(text, "utf-8", newline="\n")


def differing(one: Path, other: Path) -> list[str]:
    """Files of two folders that differ, or are in one alone."""
    names = {
        path.relative_to(folder).as_posix()
        for folder in (one, other)
        for path in folder.rglob("*")
        if path.is_file()
    }
    return sorted(
        name
        for name in names
        if not ((one / name).exists() and (other / name).exists())
        or not filecmp.cmp(one / name, other / name, shallow=False)
    )


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: list[str]) -> int:
    """Build the site, twice where asked; 1 where the two differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("site"))
    parser.add_argument("--pages", type=Path, help="embed these, made before by docs.embedded")
    parser.add_argument("--twice", action="store_true", help="build again and compare")
    given = parser.parse_args(arguments)
    build(given.folder, given.pages)
    print(f"{given.folder / 'index.html'}: {size(given.folder) / 1e6:.1f} MB")
    if not given.twice:
        return 0
    with tempfile.TemporaryDirectory() as again:
        build(Path(again) / "site", given.pages)
        differ = differing(given.folder, Path(again) / "site")
    if differ:
        print(f"files that differ when built again: {', '.join(differ)}", file=sys.stderr)
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
