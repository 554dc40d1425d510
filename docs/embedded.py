"""The pages that the site embeds: ``python -m docs.embedded FOLDER``.

Each is what a command writes, as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import attnviz as av
from attnviz.features.tour.stops import SENTENCE, WORDS
from docs import gallery

PHASES = Path(__file__).absolute().parents[1] / "sample_inputs" / "phases"


@dataclass(frozen=True)
class Embedded:
    """A page.

    Attributes:
        name: of its file.
        title: what it is called.
        command: that writes it.
        save: writes it into a folder.
    """

    name: str
    title: str
    command: str
    save: Callable[[Path], object]


PAGES = (
    Embedded("view", "Every head of a sentence", f'attnviz view "{SENTENCE}" -o view.html',
             lambda folder: av.view(SENTENCE).save(folder / "view.html")),
    Embedded("live", "The model itself", "attnviz live -o live.html",
             lambda folder: av.live().save(folder / "live.html")),
    Embedded("explain", "Why it said that", f'attnviz explain "{WORDS}" -o explain.html',
             lambda folder: av.explain(WORDS).save(folder / "explain.html")),
    Embedded("film", "Heads form while a model is trained",
             "attnviz film sample_inputs/phases/demo-gpt2.json -o film.html",
             lambda folder: av.read(PHASES / "demo-gpt2.json").save(folder / "film.html")),
    Embedded("demo-gpt2", "The atlas of demo-gpt2", "python docs/gallery.py --models demo-gpt2",
             lambda folder: gallery.build("demo-gpt2", folder)),
)  # fmt: skip


def make(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        page.save(folder)


def section() -> str:
    """Return what the gallery shows of them in the site."""
    parts = [
        "\n## Pages to try\n\nThese are the files that the commands wrote, and nothing else.\n"
    ]
    parts += [
        f"### {page.title}\n\n```sh\n{page.command}\n```\n\n"
        f'<p><a href="pages/{page.name}.html">Open it alone</a></p>\n'
        f'<iframe class="page" loading="lazy" src="pages/{page.name}.html" title="{page.title}">'
        "</iframe>\n"
        for page in PAGES
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
