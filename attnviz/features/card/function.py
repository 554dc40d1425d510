"""``attnviz.card``: a block for a model card, and whether one is stale."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attnviz import files as paths
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.model_entry import DEFAULT_MODEL
from attnviz.core.provenance import called
from attnviz.corpus import texts as corpus
from attnviz.corpus.lines import sentences
from attnviz.drawing.forms import FORMS, picture_format
from attnviz.errors import InputError, OutputError, UsageError, system_errors
from attnviz.features.card.block import PICTURE, CardBlock, CardSettings, Facts, find, put
from attnviz.features.card.markdown import markdown
from attnviz.features.profile.function import profile
from attnviz.features.profile.result import Profile
from attnviz.models.identity import identity
from attnviz.scoring.plugins import user_defined


@dataclass(frozen=True, eq=False)
class Card:
    """A block for a model card.

    Attributes:
        block: with what it depends on.
        profile: what it is from.
        picture: the name of the picture that it shows; empty for none.
    """

    block: CardBlock
    profile: Profile
    picture: str = PICTURE

    def __str__(self) -> str:
        return self.block.text()

    def save(self, path: str | Path) -> Path:
        """Put the block into a Markdown file, and the picture beside it."""
        path = Path(path)
        check_place(path, self.picture)
        block, picture = self.block, b""
        if self.picture:
            picture = self.profile.to_bytes(Path(self.picture).suffix)
            block = replace(block, facts={**block.facts, "picture": _digest(picture)})
        text = put(_read(path), block, str(path))
        if self.picture:
            paths.write(path.with_name(self.picture), picture)
        paths.write(path, text.encode("utf-8"))
        return path


def check_place(path: Path | None, picture: str) -> None:
    """Find out before anything is measured that a card or its picture could not be saved."""
    if picture:
        if Path(picture).name != picture or not picture.isprintable():
            raise UsageError(
                "{picture} is the name of a file beside the card, such as {}; {!r} is none",
                PICTURE,
                picture,
                picture=...,
            )
        picture_format(Path(picture))
    if path is None:
        return
    if FORMS.get(path.suffix.lower(), "markdown") != "markdown":
        raise UsageError(f"a card is Markdown; name it README.md, not {path.name}")
    paths.check_writable(path)
    block = find(_read(path), str(path))
    if not picture:
        return
    beside = path.with_name(picture)
    paths.check_writable(beside)
    if not beside.exists():
        return
    with system_errors(InputError, f"cannot read {beside}"):
        there = _digest(paths.contents(beside))
    if block is None or block.facts.get("picture") != there:
        raise OutputError(
            "{} is there already, and is no picture of this card; delete it, or give {picture} "
            "another name",
            beside,
            picture=...,
        )


@interface
def card(
    model: Any = DEFAULT_MODEL,
    *,
    files: str | Path | Sequence[str | Path] | None = None,
    settings: CardSettings,
    loading: ModelSettings,
    path: str | Path | None = None,
    command: str = "",
) -> Card:
    """Say in a model's card what its heads do: roles with intervals, a picture, the command.

    Args:
        model: a bundled model's name, a folder or a hub id.
        files: of texts to measure on, see :func:`attnviz.profile`; by default English sentences
            that come with attnviz.
        path: of the card, for the command that the block names; without it the block has no
            picture, which would have no place.
        command: that the block says it was written by; this call by default.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.

    Source:
        Mitchell et al. 2019 (arXiv:1810.03993) for model cards; the figures are those of
        :func:`attnviz.profile`.
    """
    check_place(None, settings.drawn)
    names, limit = paths.listed(files), settings.limit
    if files is None:
        profiled = profile(texts=list(sentences())[:limit], **loading.asked())
    else:
        profiled = profile(names, limit=limit, **loading.asked())
    shown = settings.drawn if path is not None else ""
    text = markdown(profiled, command or _call(model, names, limit, path), shown)
    text = text.encode("utf-8", "replace").decode()  # names of files may be no Unicode
    return Card(CardBlock(facts(model, files, limit), text), profiled, shown)


@interface
def stale_card(
    path: str | Path,
    model: Any = DEFAULT_MODEL,
    *,
    files: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
) -> tuple[str, ...] | None:
    """What in the block of a model's card is not as it would be now; no model runs.

    Args:
        path: of the card.
        model: see :func:`card`, as for ``files`` and ``limit``.
        files: see ``model``.
        limit: see ``model``.

    Returns:
        Names: ``"model"``, ``"texts"``, ``"attnviz"``, ``"plugins"``, or ``"text"`` where the block
        was changed by hand. Empty where it is up to date; None where there is no block.

    Raises:
        InputError: the file cannot be read, or has damaged markers. ModelError: no such model.
    """
    block = find(_read(Path(path), must=True), str(path))
    return None if block is None else tuple(block.stale(facts(model, files, limit)))


def facts(model: Any, files: str | Path | Sequence[str | Path] | None, limit: int | None) -> Facts:
    """What a block depends on; see :func:`card` for the arguments."""
    read = hashlib.sha256(f"{limit}\n".encode())
    for name in [] if files is None else corpus.resolve(paths.listed(files)):
        with (
            system_errors(InputError, f"cannot read {name}"),
            paths.open_regular(Path(name)) as file,
        ):
            read.update(file.read())
    if files is None:
        read.update("\n".join(sentences()).encode())
    own = json.dumps([[mark.name, mark.function, mark.formula] for mark in user_defined()])
    known = json.dumps(identity(model), sort_keys=True)
    return {
        "model": hashlib.sha256(known.encode()).hexdigest()[:16],
        "texts": read.hexdigest()[:16],
        "attnviz": version("attnviz"),
        "plugins": hashlib.sha256(own.encode()).hexdigest()[:16],
    }


def _digest(picture: bytes) -> str:
    """By which a card knows its own picture."""
    return hashlib.sha256(picture).hexdigest()[:16]


def _call(model: Any, names: Sequence[str], limit: int | None, path: str | Path | None) -> str:
    """That writes the card anew, in Python."""
    words = [repr(called(str(model)))]
    if names:
        short = [Path(name).name for name in names]
        words.append(f"files={(short[0] if len(short) == 1 else short)!r}")
    words += [] if limit is None else [f"limit={limit}"]
    file = repr(Path(path or "README.md").name)
    return f"attnviz.card({', '.join([*words, f'path={file}'])}).save({file})"


def _read(path: Path, *, must: bool = False) -> str:
    """The text of a card; empty where there is no file, unless there must be one."""
    if not must and not path.exists():
        return ""
    with system_errors(InputError, f"cannot read {path}"):
        data = paths.contents(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is no UTF-8 text; a model card is Markdown") from None
