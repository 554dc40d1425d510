"""Two reports, as JSON holds them, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnviz.differences import Change, DiffReport, HeadChange
from attnviz.errors import InputError

KINDS = {"attnviz.heads/1": "heads", "attnviz.profile/1": "profile", "attnviz.ablate/1": "ablate"}
"""Schemas that can be compared."""

Document = Mapping[str, Any]


def kind_of(document: Document, name: str) -> str:
    """What a report is of; InputError for another document."""
    schema = document.get("schema")
    if schema not in KINDS:
        raise InputError(f"{name} has the schema {schema!r}; there are {', '.join(KINDS)}")
    return KINDS[schema]


def compare(one: Document, other: Document, names: tuple[str, str]) -> DiffReport:
    """What differs between two reports.

    Args:
        one: JSON of ``heads``, ``profile`` or ``ablate``.
        other: of the same.
        names: of the files.

    Raises:
        InputError: reports of different kinds, metrics or heads.
    """
    kinds = [kind_of(document, name) for document, name in zip((one, other), names, strict=True)]
    if kinds[0] != kinds[1]:
        raise InputError(f"{names[0]} is of {kinds[0]}, {names[1]} of {kinds[1]}; compare like")
    kind = kinds[0]
    if kind == "ablate":
        for key in ("metric", "method"):
            if one[key] != other[key]:
                raise InputError(f"{key} is {one[key]} in {names[0]}, {other[key]} in {names[1]}")
    listed = "effects" if kind == "ablate" else "heads"
    before, after = ({entry["name"]: entry for entry in doc[listed]} for doc in (one, other))
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise InputError(f"only one of the two reports has {', '.join(odd[:5])}")
    heads = [_changed(name, before[name], after[name], kind) for name in before]
    heads.sort(key=lambda head: -head.largest())
    labels = [f"{doc['model']} ({name})" for doc, name in zip((one, other), names, strict=True)]
    notes = ["Reports keep no figures of single texts: their differences have no paired interval."]
    if kind != "heads" and one.get("texts") != other.get("texts"):
        notes.append(f"The first report is of {one.get('texts')} texts, the second of "
                     f"{other.get('texts')}.")  # fmt: skip
    texts = one.get("texts", 1)
    return DiffReport(labels[0], labels[1], kind, tuple(heads), texts=texts, notes=tuple(notes))


def _changed(name: str, before: Document, after: Document, kind: str) -> HeadChange:
    if kind == "ablate":
        changes: tuple[Change, ...] = tuple(_change("effect", before["effect"], after["effect"]))
        roles = [{e[key] for key in ("does", "rests") if e[key]} for e in (before, after)]
    else:
        changes = tuple(
            change
            for score in before["scores"].keys() & after["scores"].keys()
            for change in _change(
                score, before["scores"][score]["mean"], after["scores"][score]["mean"]
            )
        )
        roles = [{role["name"] for role in entry["roles"]} for entry in (before, after)]
    gained, lost = roles[1] - roles[0], roles[0] - roles[1]
    return HeadChange(name, None, changes, tuple(sorted(gained)), tuple(sorted(lost)))


def _change(name: str, before: float | None, after: float | None) -> Iterator[Change]:
    if before is not None and after is not None:
        yield Change(name, before, after, after - before)
