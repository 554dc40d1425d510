"""``attnviz.card``: a block for a model card, and whether one is stale."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attnviz import __version__
from attnviz import files as paths
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.provenance import DEFAULT_MODEL, called, saying
from attnviz.corpus import texts as corpus
from attnviz.corpus.lines import sentences
from attnviz.drawing.figure import heads_figure, is_plain
from attnviz.drawing.grid import tally
from attnviz.drawing.labels import counted, number, role_name, times
from attnviz.drawing.markdown import code, plain, table
from attnviz.drawing.renderable import FORMS, picture_format
from attnviz.errors import InputError, OutputError, UsageError, system_errors
from attnviz.features.card.block import PICTURE, CardBlock, CardSettings, Facts, find, put
from attnviz.features.profile.description import report
from attnviz.features.profile.function import profile
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.models.cache import identity
from attnviz.scoring.plugins import user_defined
from attnviz.scoring.roles import SHOWN

_LISTED, _BEST = 24, 3
_COLUMNS = ("head", "role", ">score", "95 %", ">chance", ">lift", ">rows")


def markdown(profile: Profile, command: str, picture: str = "") -> str:
    """Return the section: a sentence, a picture, a table of heads, and how it was measured."""
    return "\n\n".join(_parts(profile, command, picture))


def _parts(profile: Profile, command: str, picture: str) -> Iterator[str]:
    yield "## What its attention heads do"
    yield _summary(profile)
    if picture:
        heads = f"the {len(profile.layout)} heads of {profile.source.model}"
        yield f"![{plain(f'Roles of {heads}, and where they look')}]({quote(picture)})"
    named = [head for head in profile.heads if head.scores.roles]
    named.sort(key=_order)
    if named:
        yield table(_COLUMNS, [_row(profile, head) for head in named[:_LISTED]])
    if len(named) > _LISTED:
        yield f"{len(named) - _LISTED} more heads show a role; the command below lists them."
    yield _method(profile)
    yield (
        "\n".join(f"- {plain(note)}" for note in profile.notes)
        if profile.notes
        else ("Where a head looks is not what it does: nothing here says that the model needs it.")
    )
    yield f"Written by {code(command)}."


def _summary(profile: Profile) -> str:
    """How many heads there are, and how many show each role."""
    layers = counted(len(profile.layout.sites), "layer")
    roles = [(name, count) for name, count in tally(report(profile)) if name is not None]
    listed = ", ".join(f"{count} {plain(name)}" for name, count in roles)
    start = f"{counted(len(profile.layout), 'head')} in {layers}"
    if not roles:
        return f"Of {start}, none shows a significant role on the texts named below."
    silent = len(profile.heads) - sum(count for _, count in roles)
    return f"Of {start}: {listed}; {silent} without a significant role."


def _row(profile: Profile, head: HeadProfile) -> list[str]:
    role = head.scores.does or head.scores.roles[0]
    estimate = head.evidence(role)
    kind = "sink: " if role.rests and role.name != "diffuse" else ""
    bounded = estimate.low is not None and estimate.high is not None
    return [
        profile.layout.name(head.head),
        f"{kind}{plain(role_name(role))}",
        "–" if estimate.mean is None else f"{estimate.mean:.2f}",
        f"{estimate.low:.2f}–{estimate.high:.2f}" if bounded else "–",
        "–" if estimate.chance is None else number(estimate.chance),
        times(role.evidence),
        f"{estimate.rows:,}",
    ]


def _order(head: HeadProfile) -> tuple[bool, int, float]:
    """Return what does something before what rests, role by role, the highest score first."""
    role = head.scores.does or head.scores.roles[0]
    names = list(SHOWN)
    rank = names.index(role.name) if role.name in SHOWN else len(names)
    return role.rests, rank, -(role.evidence.mean or 0.0)


def _matching(profile: Profile) -> str:
    """Return the best induction heads on random tokens, where that is defined."""
    if profile.matching is None:
        return ""
    scores = zip(profile.layout, profile.matching.means, profile.matching.halves, strict=True)
    best = sorted(scores, key=lambda item: -item[1])[:_BEST]
    heads = ", ".join(f"{profile.layout.name(h)} {mean:.2f} ± {half:.2f}" for h, mean, half in best)
    return (
        f" On random tokens that come {profile.matching.copies} times, prefix matching (Olsson et "
        f"al. 2022) is highest in {heads}; uniform attention has {profile.matching.chance:.3f}."
    )


def _method(profile: Profile) -> str:
    """Return what was measured on what."""
    return (
        f"Measured on {counted(profile.texts, 'text')} ({counted(profile.tokens, 'token')}) with "
        f"attnviz {__version__}: the mean weight on what a role looks at, over the rows on which "
        "it could show, beside that of uniform attention (chance). Intervals are 95 % over texts; "
        f"roles are significant at 5 % among {profile.questions:,} questions (Holm)."
        f"{_matching(profile)}"
    )


@dataclass(frozen=True, eq=False)
class Card:
    """A block for a model card."""

    block: CardBlock  # with what it depends on
    profile: Profile  # what it is from
    picture: str = PICTURE  # the name of the picture that it shows; empty for none

    def __str__(self) -> str:
        return self.block.text()

    def save(self, path: str | Path) -> Path:
        """Put the block into a Markdown file, and the picture beside it."""
        path = Path(path)
        check_place(path, self.picture)
        block, picture = self.block, b""
        if self.picture:
            suffix = Path(self.picture).suffix
            if is_plain(suffix.lower().removeprefix(".")):  # a profile's curves are matplotlib's
                with saying(self.profile.made):
                    picture = heads_figure(report(self.profile))
            else:
                picture = self.profile.to_bytes(suffix)
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
        present = _digest(paths.contents(beside))
    if block is None or block.facts.get("picture") != present:
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

    Source:
        Mitchell et al. 2019 (arXiv:1810.03993) for model cards; the figures are those of
        :func:`attnviz.profile`.
    """
    check_place(None, settings.drawn)
    names, limit = paths.listed(files), settings.limit
    if files is None:
        profiled = profile(texts=list(sentences())[:limit], model=loading)
    else:
        profiled = profile(names, limit=limit, model=loading)
    picture = settings.drawn if path is not None else ""
    text = markdown(profiled, command or _call(model, names, limit, path), picture)
    text = text.encode("utf-8", "replace").decode()  # names of files may be no Unicode
    return Card(CardBlock(facts(model, files, limit), text), profiled, picture)


@interface
def stale_card(
    path: str | Path,
    model: Any = DEFAULT_MODEL,
    *,
    files: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
) -> tuple[str, ...] | None:
    """Return what in the block of a model's card is not as it would be now; no model runs.

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
    """Return what a block depends on; see :func:`card` for the arguments."""
    read = hashlib.sha256(f"{limit}\n".encode())
    for name in [] if files is None else corpus.resolve(paths.listed(files)):
        with (
            system_errors(InputError, f"cannot read {name}"),
            paths.open_regular(Path(name)) as file,
        ):
            read.update(file.read())
    if files is None:
        read.update("\n".join(sentences()).encode())
    plugins = json.dumps([[mark.name, mark.function, mark.formula] for mark in user_defined()])
    model_id = json.dumps(identity(model), sort_keys=True)
    return {
        "model": hashlib.sha256(model_id.encode()).hexdigest()[:16],
        "texts": read.hexdigest()[:16],
        "attnviz": version("attnviz"),
        "plugins": hashlib.sha256(plugins.encode()).hexdigest()[:16],
    }


def _digest(picture: bytes) -> str:
    """By which a card knows its own picture."""
    return hashlib.sha256(picture).hexdigest()[:16]


def _call(model: Any, names: Sequence[str], limit: int | None, path: str | Path | None) -> str:
    """Return the call that writes the card anew, in Python."""
    words = [repr(called(str(model)))]
    if names:
        short = [Path(name).name for name in names]
        words.append(f"files={(short[0] if len(short) == 1 else short)!r}")
    words += [] if limit is None else [f"limit={limit}"]
    file = repr(Path(path or "README.md").name)
    return f"attnviz.card({', '.join([*words, f'path={file}'])}).save({file})"


def _read(path: Path, *, must: bool = False) -> str:
    """Return the text of a card; empty where there is no file, unless there must be one."""
    if not must and not path.exists():
        return ""
    with system_errors(InputError, f"cannot read {path}"):
        data = paths.contents(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is no UTF-8 text; a model card is Markdown") from None
