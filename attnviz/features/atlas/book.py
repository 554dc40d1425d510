"""The atlas as a folder of pages: the index, and each head row by row, linked and offline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from attnviz import files
from attnviz.core.heads import Head, Layout
from attnviz.errors import OutputError, system_errors
from attnviz.features.atlas.page import page
from attnviz.features.atlas.result import Atlas
from attnviz.features.profile.page import page as head_page
from attnviz.features.profile.parts import Distribution, HeadDistribution
from attnviz.features.profile.result import Profile

INDEX = "index.html"


def selection(layout: Layout) -> str | None:
    """The heads that have a page: those of the first stack whose queries and keys are one text."""
    kinds = [kind for kind in layout.kinds if kind != "cross"]
    if not kinds:
        return None
    return ", ".join(layout.name(head) for head in layout if head.site.kind == kinds[0])


def address(layout: Layout, head: Head) -> str:
    """The file of a head's page."""
    return f"{layout.name(head).replace(':', '-').replace('*', 'all')}.html"


def write(atlas: Atlas, profile: Profile, folder: Path) -> tuple[Path, ...]:
    """Write every page."""
    with system_errors(OutputError, f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    distribution, layout = profile.distribution, atlas.layout
    several: Sequence[HeadDistribution] = () if distribution is None else distribution.heads
    links = {layout.name(head.head): address(layout, head.head) for head in several}
    written = [folder / INDEX]
    files.write(folder / INDEX, page(atlas, links=links))
    for n, head in enumerate(several):
        assert distribution is not None
        name = layout.name(head.head)
        beside = dict(_beside(layout, several, n))
        own = replace(profile, distribution=_alone(distribution, head))
        path = folder / links[name]
        files.write(path, head_page(own, links={"all heads": f"{INDEX}#{name}", **beside}))
        written.append(path)
    return tuple(written)


def _beside(
    layout: Layout, several: Sequence[HeadDistribution], n: int
) -> Iterator[tuple[str, str]]:
    """The pages of the heads before and after one."""
    if n:
        yield f"← {layout.name(several[n - 1].head)}", address(layout, several[n - 1].head)
    if n + 1 < len(several):
        yield f"{layout.name(several[n + 1].head)} →", address(layout, several[n + 1].head)


def _alone(distribution: Distribution, head: HeadDistribution) -> Distribution:
    """One head with the texts that its rows are of."""
    used = {text: n for n, text in enumerate(sorted({row.text for row in head.rows}))}
    rows = tuple(replace(row, text=used[row.text]) for row in head.rows)
    texts = tuple(distribution.texts[text] for text in used)
    return replace(distribution, heads=(replace(head, rows=rows),), texts=texts)
