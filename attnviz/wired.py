"""Circuits, as a script asks for them: what the weights of a model say about its heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.edges import CircuitsReport
from attnviz.errors import UsageError
from attnviz.looking import DEFAULT_MODEL, Model, load
from attnviz.notebook import Pictured, Tabular, picture_format, printed
from attnviz.scoring.select import select
from attnviz.wiring.run import CircuitsSettings, Progress, run


class Circuits(Pictured, Tabular, CircuitsReport):
    """A report as :func:`circuits` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each edge: side, writer, reader, ratio, and that above random weights."""
        from attnviz.render.circuits.tables import edge_rows

        return edge_rows(self)

    def __str__(self) -> str:
        """Copying, positions and edges, as the command line prints them, without colours."""
        from attnviz.render.circuits.terminal import parts

        return printed(*parts(self))

    def figure(self, format: str = "png", top: int = 10) -> bytes:
        """The graph of the strongest edges, in ``png``, ``svg`` or ``pdf``."""
        from attnviz.render.circuits.figure import circuits_figure

        return circuits_figure(self, format, top)

    def save(self, path: str | Path, top: int = 10) -> Path:
        """Write it as .json or .csv, or draw it as .png, .svg or .pdf.

        Args:
            path: where to.
            top: how many edges of each side are drawn.
        """
        from attnviz.render.circuits.tables import circuits_csv, circuits_json

        path = Path(path)
        written = {".json": circuits_json, ".csv": circuits_csv}.get(path.suffix.lower())
        data = written(self).encode() if written else self.figure(picture_format(path), top)
        files.write(path, data)
        return path

    def __repr__(self) -> str:
        name = self.layout.name
        best = (self.of(side)[0] for side in self.spread)
        edges = ", ".join(
            f"{e.side} {name(e.writer)} → {name(e.reader)} {e.excess:+.3f}" for e in best
        )
        return f"<Circuits {self.source.model}: {edges or 'no edges'}>"

    def _repr_png_(self) -> bytes | None:
        return self.figure() if self.edges else None


def circuits(
    *,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    settings: CircuitsSettings | None = None,
    **options: Any,
) -> Circuits:
    """Say from weights alone who can feed whom, what heads copy, and where positions send them.

    Composition between heads of different layers and copying scores as in Elhage et al. 2021, "A
    Mathematical Framework for Transformer Circuits", see :mod:`attnviz.wiring`.

    Args:
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision the weights are read; products are in float32 or better.
        progress: called again and again with a stage, how much is done and how much there is.
        settings: see :class:`~attnviz.wiring.run.CircuitsSettings`.
        options: its fields, in place of ``settings``: ``select="1.4"``, ``keep=50``, ...

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where nothing of a model's matrices is
            known for certain.
    """
    if settings is not None and options:
        raise UsageError("give {settings} or their fields, not both", settings=...)
    unknown = [name for name in options if name not in CircuitsSettings.__dataclass_fields__]
    if unknown:
        known = ", ".join(CircuitsSettings.__dataclass_fields__)
        raise UsageError(f"unknown option {unknown[0]!r}; there are {known}")
    settings = settings or CircuitsSettings(**options)
    settings.check()
    source = load(model, device=device, dtype=dtype)
    chosen = None if settings.select is None else select(settings.select, source.layout)
    report = run(source, settings, chosen, progress or (lambda stage, done, total: None))
    return Circuits(**{name: getattr(report, name) for name in report.__dataclass_fields__})
