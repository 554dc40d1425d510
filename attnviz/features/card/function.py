"""``attnviz.card``: a block for a model card, and whether one is stale."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from attnviz import files
from attnviz.captures.look import DEFAULT_MODEL
from attnviz.core.provenance import called
from attnviz.corpus import texts as corpus
from attnviz.corpus.sentences import sentences
from attnviz.errors import InputError, system_errors
from attnviz.features.card.block import CardBlock, Facts, find, put
from attnviz.features.card.markdown import markdown
from attnviz.features.profile.function import profile
from attnviz.features.profile.result import Profile
from attnviz.models.identity import identity
from attnviz.scoring.plugins import user_defined

PICTURE = "attention-heads.png"
"""Beside the card."""


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
        """Put the block into a Markdown file, and the picture beside it.

        Args:
            path: the card, as ``README.md``. A block that is there is renewed, all else is left as
                it is; without one it is appended; without a file that is made.

        Raises:
            InputError: the file cannot be read, or has damaged markers; OutputError: it, or the
                picture, cannot be written.
        """
        path = Path(path)
        text = put(_read(path), self.block, str(path))
        files.check_writable(path)
        if self.picture:
            self.profile.save(path.with_name(self.picture))
        files.write(path, text.encode("utf-8"))
        return path


def card(
    model: str | Path = DEFAULT_MODEL,
    *,
    texts: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
    picture: str = PICTURE,
    device: str = "auto",
    dtype: str = "auto",
    path: str | Path | None = None,
    command: str = "",
) -> Card:
    """Say in a model's card what its heads do: roles with intervals, a picture, the command.

    Args:
        model: a bundled model's name, a folder or a hub id.
        texts: files to measure on, see :func:`attnviz.profile`; by default English sentences that
            ship with attnviz.
        limit: how many texts to take at most.
        picture: the name of the picture beside the card; empty for none.
        device: where to run.
        dtype: in which precision.
        path: of the card, for the command that the block names; without it the block has no
            picture, which would have no place.
        command: that the block says it was written by; this call by default.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.

    Source:
        Mitchell et al. 2019 (arXiv:1810.03993) for model cards; the figures are those of
        :func:`attnviz.profile`.
    """
    names = files.listed(texts)
    said = list(sentences())[:limit] if texts is None else None
    found = profile(
        None if texts is None else names, texts=said, model=model, limit=None if said else limit,
        device=device, dtype=dtype,
    )  # fmt: skip
    shown = picture if path is not None else ""
    text = markdown(found, command or _call(model, names, limit, path), shown)
    block = CardBlock(facts(model, texts=texts, limit=limit), text)
    return Card(block, found, shown)


def stale_card(
    path: str | Path,
    model: str | Path = DEFAULT_MODEL,
    *,
    texts: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
) -> tuple[str, ...] | None:
    """What in the block of a model's card is not as it would be now; no model runs.

    Args:
        path: of the card.
        model: see :func:`card`, as for ``texts`` and ``limit``.
        texts: see ``model``.
        limit: see ``model``.

    Returns:
        Names: ``"model"``, ``"texts"``, ``"attnviz"``, ``"plugins"``, or ``"text"`` where the block
        was changed by hand. Empty where it is up to date; None where there is no block.

    Raises:
        InputError: the file cannot be read, or has damaged markers. ModelError: no such model.
    """
    block = find(_read(Path(path), must=True), str(path))
    return None if block is None else tuple(block.stale(facts(model, texts=texts, limit=limit)))


def facts(
    model: str | Path, *, texts: str | Path | Sequence[str | Path] | None, limit: int | None
) -> Facts:
    """What a block depends on; see :func:`card` for the arguments."""
    read = hashlib.sha256(f"{limit}\n".encode())
    for name in [] if texts is None else corpus.resolve(files.listed(texts)):
        with system_errors(InputError, f"cannot read {name}"), files.opened(Path(name)) as file:
            read.update(file.read())
    if texts is None:
        read.update("\n".join(sentences()).encode())
    own = json.dumps([[one.name, one.function, one.formula] for one in user_defined()])
    known = json.dumps(identity(model), sort_keys=True)
    return {
        "model": hashlib.sha256(known.encode()).hexdigest()[:16],
        "texts": read.hexdigest()[:16],
        "attnviz": version("attnviz"),
        "plugins": hashlib.sha256(own.encode()).hexdigest()[:16],
    }


def _call(
    model: str | Path, names: Sequence[str], limit: int | None, path: str | Path | None
) -> str:
    """That writes the card anew, in Python."""
    words = [repr(called(str(model)))]
    if names:
        short = [Path(name).name for name in names]
        words.append(f"texts={(short[0] if len(short) == 1 else short)!r}")
    words += [] if limit is None else [f"limit={limit}"]
    file = repr(Path(path or "README.md").name)
    return f"attnviz.card({', '.join([*words, f'path={file}'])}).save({file})"


def _read(path: Path, *, must: bool = False) -> str:
    """The text of a card; empty where there is no file, unless there must be one."""
    if not must and not path.exists():
        return ""
    with system_errors(InputError, f"cannot read {path}"), files.opened(path) as file:
        data: bytes = file.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is no UTF-8 text; a model card is Markdown") from None
