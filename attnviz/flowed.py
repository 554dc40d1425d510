"""Flow: what reaches every position from every token, through all layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.errors import UsageError
from attnviz.flowing.run import Progress, follow, run, run_recorded
from attnviz.flows import Direction, FlowReport
from attnviz.looking import DEFAULT_MODEL, Look, Model, prompt_of, source_for
from attnviz.notebook import Pictured, Tabular, picture_format, printed
from attnviz.records import Capture
from attnviz.render.figure import FORMATS
from attnviz.render.labels import percent, visible
from attnviz.render.style import Style

_PAGES = (".html", ".htm")


def check_path(path: Path) -> None:
    """UsageError for a file that a flow cannot be drawn into."""
    if path.suffix.lower() not in _PAGES and path.suffix.removeprefix(".").lower() not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"cannot draw {path.name!r}; name the file {known} or .html")


class Flow(Pictured, Tabular, FlowReport):
    """A report as :func:`flow` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each position and token that can reach it: its share by flow, and by weight."""
        from attnviz.render.flow.tables import flow_rows

        return flow_rows(self)

    def __str__(self) -> str:
        """The maps and the lines, as the command line prints them, without colours."""
        from attnviz.render.flow.terminal import parts

        return printed(*parts(self, Style()))

    def figure(self, format: str = "png", style: Style | None = None) -> bytes:
        """The maps and the lines across layers, in ``png``, ``svg`` or ``pdf``."""
        from attnviz.render.flow.figure import flow_figure

        return flow_figure(self, format, style)

    def page(self) -> bytes:
        """The lines across layers as one offline page, to follow any token."""
        from attnviz.render.flow.page import page

        return page(self)

    def save(self, path: str | Path, style: Style | None = None) -> Path:
        """Write it as .json, .csv or .html, or draw it as .png, .svg or .pdf."""
        from attnviz.render.flow.tables import flow_csv, flow_json

        path = Path(path)
        suffix = path.suffix.lower()
        written: dict[str, Callable[[FlowReport], str]] = {".json": flow_json, ".csv": flow_csv}
        if suffix in _PAGES:
            found = self.page()
        elif suffix in written:
            found = written[suffix](self).encode()
        else:
            found = self.figure(picture_format(path), style)
        files.write(path, found)
        return path

    def __repr__(self) -> str:
        named = (
            f", {self.followed.direction} {visible(self.followed.name)}" if self.followed else ""
        )
        return (
            f"<Flow {self.source.model}, {self.method}, {len(self.tokens)} tokens, "
            f"{len(self.steps)} layers{named}: own token {percent(float(self.kept.mean()))}>"
        )

    def _repr_png_(self) -> bytes:
        return self.figure()


def flow(
    what: Look,
    *,
    model: Model = DEFAULT_MODEL,
    method: str | None = None,
    to: str | int | None = None,
    from_: str | int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Flow:
    """Follow tokens from layer to layer: what reaches every position from every token.

    ALTI (Ferrando et al. 2022, arXiv:2203.04212) measures in every layer how near each token's part
    comes to the whole, residual path included; rollout and max-flow (Abnar & Zuidema 2020,
    arXiv:2005.00928) take the mean of the weights for what attention moves, and half of every layer
    for the residual path.

    Args:
        what: a capture of all layers, or a text or prompt to run.
        model: for a text or prompt, see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        method: ``alti``, ``rollout`` or ``max-flow`` (up to 128 tokens); by default
            ALTI where the vectors that attention moves are at hand, else rollout.
        to: follow a token back, by its position or text: where did it come from?
        from_: follow a token on: where does it go?
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    if to is not None and from_ is not None:
        raise UsageError("a token is followed to it or from it, not both; give one of them")
    tell = progress or (lambda stage, done, all_: None)
    if isinstance(what, Capture):
        report = run_recorded(what, method, tell)
    else:
        prompt = prompt_of(what)
        source = source_for(prompt, model, device, dtype)
        report = run(source, source.prepare(prompt), method, tell)
    asked: tuple[tuple[Direction, str | int | None], ...] = (("to", to), ("from", from_))
    for direction, token in asked:
        if token is not None:
            report = follow(report, direction, str(token))
    return Flow(**{name: getattr(report, name) for name in report.__dataclass_fields__})
