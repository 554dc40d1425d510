"""Which heads of an input are drawn, into which files, and what the manifest says of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attnviz import files
from attnviz.core.heads import Head, SiteKind
from attnviz.core.provenance import own_name
from attnviz.core.scores import Score
from attnviz.core.spans import said_cut
from attnviz.core.tokens import Sides
from attnviz.corpus.texts import Text
from attnviz.drawing.labels import caption, head_title, mean_warning, rounded
from attnviz.errors import OutputError
from attnviz.features.export import paths
from attnviz.features.export.gallery import INDEX
from attnviz.features.export.manifest import MANIFEST, Manifest
from attnviz.features.export.paths import FOLDER, Lock
from attnviz.features.export.pictures import ExportPicture, Job, Written
from attnviz.features.export.scored import Input, Scored
from attnviz.features.export.settings import ExportSettings, difference
from attnviz.scoring import merged
from attnviz.scoring.observe import allowed_keys, unselected_in
from attnviz.scoring.roles import is_called, role_name
from attnviz.scoring.select import leading

_JOB_BYTES = 4 << 20  # weights that one job holds, as long as it has at least one picture


def chosen(scored: Scored, heads: Iterable[Head], settings: ExportSettings) -> tuple[Head, ...]:
    """Choose an input's heads: with a ``role``, or the ``clearest`` N by lift, acting first."""
    listed = [head for head in heads if head in scored.scores]
    role = None if settings.role is None else role_name(settings.role)
    if role is not None:
        listed = [h for h in listed if any(is_called(r, role) for r in scored.scores[h].roles)]
    if settings.clearest is not None:
        ranked = sorted(listed, key=lambda head: leading(scored.scores[head], role))
        best = frozenset(ranked[: settings.clearest])
        listed = [head for head in listed if head in best]
    return tuple(listed)


class FilePlan:
    """The files of one input."""

    def __init__(self, scored: Scored, heads: Sequence[Head], settings: ExportSettings) -> None:
        self.scored, self.settings = scored, settings
        self.heads = chosen(scored, heads, settings)
        self.folder = paths.folder_name(scored.input.number, scored.input.name or scored.input.text)
        self.style = style = replace(settings.style, quantity=scored.capture.quantity)
        self._looks = {"words": style.words, "hide_sink": style.hide_sink}
        self._cut: dict[SiteKind, tuple[Sequence[int], Sequence[int]]] = {}
        self._shown: dict[SiteKind, Sides] = {}
        for site in {head.site.kind for head in self.heads}:
            sides = scored.capture.inputs.sides[site]
            axes = merged.shown_sides(sides, **self._looks)
            if settings.rows is not None or settings.keys is not None:
                self._cut[site] = merged.asked_places((settings.rows, settings.keys), sides)
                blank = np.broadcast_to(np.float32(0), (len(axes.queries), len(axes.keys)))
                _, axes = self._cropped(blank, axes, site)
            self._shown[site] = axes
        self.files: dict[str, tuple[str, tuple[Head, ...]]] = {}
        for kind in settings.layouts:
            for group in self._groups(kind):
                stem = paths.stem(kind, group, scored.capture.layout)
                self.files[f"{stem}.{settings.drawn}"] = (kind, group)
        if settings.stored is not None and self.heads:
            for group in self._groups("grid"):
                prefix = paths.prefix(group[0].site.kind, scored.capture.layout)
                name = f"{prefix}{scored.capture.quantity}.{settings.stored}"
                self.files[name] = "weights", group

    def _cropped(
        self, weights: merged.Map, axes: Sides, kind: SiteKind
    ) -> tuple[merged.Map, Sides]:
        """Return a map's rows and keys that are asked for."""
        sides = self.scored.capture.inputs.sides[kind]
        return merged.cropped(weights, axes, sides, self._cut[kind], **self._looks)

    def _groups(self, kind: str) -> list[tuple[Head, ...]]:
        """Return the heads that share a picture."""
        if kind == "heads":
            return [(head,) for head in self.heads]
        groups: dict[object, list[Head]] = {}
        for head in self.heads:
            groups.setdefault(head.site if kind == "layers" else head.site.kind, []).append(head)
        return [tuple(group) for group in groups.values()]

    def jobs(self, folder: str, missing: Sequence[str]) -> Iterable[Job]:
        """Yield the work for some of the files, in parts of a bounded size."""
        waiting: list[ExportPicture] = []
        size = 0
        for name in missing:
            picture = self._picture(name)
            bytes_ = sum(weights.nbytes for _, _, weights in picture.maps)
            if waiting and size + bytes_ > _JOB_BYTES:
                yield Job(folder, tuple(waiting), self.style)
                waiting, size = [], 0
            waiting.append(picture)
            size += bytes_
        if waiting:
            yield Job(folder, tuple(waiting), self.style)

    def _picture(self, name: str) -> ExportPicture:
        scored, (kind, heads) = self.scored, self.files[name]
        capture, maps = scored.capture, []
        for head in heads:
            sides, weights = capture.inputs.sides[head.site.kind], capture[head]
            title = head_title(capture.layout.name(head), scored.scores[head].roles)
            if kind == "weights":
                title = paths.stem("heads", [head], capture.layout)
                if self.style.words:
                    weights = merged.merge_words(weights[None], sides)[0][0]
            else:
                unselected = unselected_in(capture.reach.get(head.site))
                weights = merged.shown_map(
                    weights,
                    allowed_keys(capture, head),
                    sides,
                    unselected=unselected,
                    **self._looks,
                )
                if head.site.kind in self._cut:
                    axes = merged.shown_sides(sides, **self._looks)
                    weights, _ = self._cropped(weights, axes, head.site.kind)
            maps.append((title, (head.layer, head.index), weights))
        site = heads[0].site.kind
        noun = "layers" if capture.layout.whole else "heads"
        title = f"{len(heads)} {noun}" if kind == "overview" else ""
        below = caption(capture.source, capture.inputs.texts or (scored.input.text,))
        if capture.layout.mean:
            below = f"{mean_warning(capture.layout.mean)}; {below}"
        if site in self._cut:
            part = said_cut((self.settings.rows, self.settings.keys), self._cut[site])
            below = f"{part} of {below}"
        return ExportPicture(name, kind, title, below, self._sides(site, kind), tuple(maps))

    def _sides(self, site: SiteKind, kind: str) -> Sides:
        """Give what stands on a file's axes; weights are all kept, by token or by word."""
        if kind != "weights":
            return self._shown[site]
        sides = self.scored.capture.inputs.sides[site]
        return merged.in_words(sides) if self.style.words else sides

    def _positions(self, site: SiteKind, kind: str) -> dict[str, Any]:
        """Where the tokens stand in their text that a cut picture was asked for."""
        if site not in self._cut or kind == "weights":
            return {}
        rows, keys = (list(positions) for positions in self._cut[site])
        return {"positions": {"queries": rows, "keys": keys}}

    def _name(self, head: Head) -> str:
        """Return what a head, or a mean, is called."""
        layout = self.scored.capture.layout
        return layout.name(head) if layout.mean else head.name

    def line(self, file: Written, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the manifest says of a file."""
        kind, heads = self.files[file.name]
        scored, first = self.scored, heads[0]
        sides = self._sides(first.site.kind, kind)
        single = kind == "heads"
        tokens: dict[str, Any] = {"queries": sides.queries.texts}
        if sides.keys != sides.queries:
            tokens["keys"] = sides.keys.texts
        line: dict[str, Any] = {
            "file": f"{self.folder}/{file.name}",
            "layout": kind,
            "number": scored.input.number,
            **_input(scored.input),
            "digest": scored.input.digest,
            "together": len(self.files),
            "site": first.site.kind,
            "layer": first.layer if kind in ("heads", "layers") else None,
            "index": first.index if single else None,
            "head": self._name(first) if single else None,
            "tokens": tokens,
            **self._positions(first.site.kind, kind),
            "sha256": file.sha256,
            "bytes": file.size,
        }
        if file.map is not None:
            line["map"] = file.map
        if single:
            line["roles"] = [role.title for role in scored.scores[first].roles]
            line["scores"] = _scores(scored.scores[first].scores)
        else:
            line["heads"] = {
                self._name(h): [r.title for r in scored.scores[h].roles] for h in heads
            }
        return {**line, **common}


def _input(item: Input) -> dict[str, Any]:
    fields: dict[str, Any] = {"input": own_name(item.place), "id": item.name, "text": item.text}
    if isinstance(item, Text):
        for name in ("pair", "target"):
            value = getattr(item.prompt, name)
            if value is not None:
                fields[name] = value
        optional = {"messages": item.prompt.chat, "spans": item.prompt.spans}
        fields |= {name: value for name, value in optional.items() if value is not None}
    return fields


def _scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    """Return the scores that mean something, to six digits."""
    return {
        name: {
            "mean": rounded(score.mean),
            "chance": rounded(score.chance),
            "lift": rounded(score.lift),
            "rows": score.rows,
        }
        for name, score in scores.items()
        if score.mean is not None
    }


PRIVATE = ".attnviz"  # where the lock, the settings and the journal live, inside of the folder


class Folder:
    """Opens a folder for writing, and locks it.

    Attributes:
        path: of the folder; ``force`` as given.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path, self.force = path, force
        self._private = path / PRIVATE
        self._stored = self._private / "settings.json"
        try:
            self._fresh = not path.exists()
            if not self._fresh and not path.is_dir():
                raise OutputError(f"{path} is a file; name a folder")
            paths.folder(self._private)
            occupied = not self._fresh and any(entry.name != PRIVATE for entry in path.iterdir())
            ours = paths.file(self._stored).exists() or self._has(MANIFEST)
            if occupied and not force and not ours:
                lose = f"; its {INDEX} would be replaced" if self._has(INDEX) else ""
                raise OutputError(
                    "{} holds files that no export wrote; choose another folder, or {force} to "
                    "write beside them{}",
                    path,
                    lose,
                    force=True,
                )
            self._private.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write into {path}: {error.strerror or error}") from None
        self._lock = Lock(paths.file(self._private / "lock"), path)
        self.manifest: Manifest | None = None

    def begin(self, settings: Mapping[str, Any]) -> Manifest:
        """Check the settings against those of earlier runs, and prove what is there."""
        stored = _json(paths.file(self._stored))
        changed = None if stored is None else difference(stored, settings)
        if stored is None and self._has(MANIFEST):
            changed = f"{PRIVATE}/settings.json is lost"
        if changed and not self.force:
            raise OutputError(
                "{} holds pictures with other settings ({})",
                self.path,
                changed,
                remedy="choose another folder, or {force} to replace all of them",
                force=True,
            )
        journal = self._private / "journal.jsonl"
        if journal.exists():
            self.sweep()
        self.manifest = Manifest(self.path, journal)
        if stored is None or changed:
            self.manifest.wipe()
            document = json.dumps(settings, indent=1).encode()
            files.place(self._stored, (document,), sync=True)
            files.sync_folder(self.path)
        else:
            self.manifest.verify()
        return self.manifest

    def begun(self) -> bool:
        """Whether there is a manifest, in a folder that nobody has moved away."""
        return self.manifest is not None and self._stored.exists()

    def _has(self, name: str) -> bool:
        return (self.path / name).exists()

    def close(self) -> None:
        """Let the folder go; one that was made for nothing is removed."""
        if self.manifest is not None:
            self.manifest.close()
        if not self._stored.exists():
            (self._private / "lock").unlink(missing_ok=True)
            files.remove_empty(self._private)
            if self._fresh:
                files.remove_empty(self.path)
        self._lock.release()

    def sweep(self) -> None:
        """Remove unfinished files that a killed process left."""
        for folder in (self.path, self._private, *_numbered(self.path)):
            files.sweep(folder)


def _numbered(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]


def _json(path: Path) -> Any:
    """Return the object in a JSON file, or None where there is no such file or it is broken."""
    try:
        document = json.loads(files.contents(path))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
