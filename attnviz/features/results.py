"""Results, read again from any file that attnviz wrote, and attached to what heads do on a text.

``attnviz syntax`` and ``attnviz coref`` name heads that follow a dependency relation or find
antecedents. Such roles need gold annotation, so no text gives them; they come from a result. What
any result says of a head stands beside it (``description.py`` of its feature).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from attnviz.core.heads import Head, Layout
from attnviz.core.interface import interface
from attnviz.core.provenance import SourceInfo, of_call
from attnviz.core.record import Record, parsed
from attnviz.core.result import Finding, Result
from attnviz.core.scores import Estimate, HeadScores, Role
from attnviz.core.settings import declarations
from attnviz.drawing.renderable import Renderable
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.features.listed import FEATURES
from attnviz.files import contents, handed, name_of, open_regular
from attnviz.models.recorded.arrays import ArrayOptions
from attnviz.scoring.roles import ANNOTATED

RESULTS = {
    f"attnviz.{schema}": f"{feature.package}.{name}"
    for feature in FEATURES
    for schema, name in feature.written.items()
}
"""The class of each schema, without its version."""

_RECORDED = (".npz", ".safetensors", ".npy", ".pt", ".pth")
"""Suffixes of files that hold attention and nothing else."""


def result_class(schema: str) -> type[Record] | None:
    """Return the class of a schema such as ``attnviz.ablate/1``; None for none that is known."""
    module, _, name = RESULTS.get(schema.partition("/")[0], "").rpartition(".")
    return getattr(import_module(module), name) if module else None


def read_record(document: Any, name: str) -> Record:
    """Return the record of a JSON document."""
    schema = document.get("schema") if isinstance(document, dict) else None
    kind = result_class(schema) if isinstance(schema, str) else None
    if kind is None:
        holds = f"a result of {str(schema)[:40]}" if schema else "not an attnviz result"
        raise InputError(f"{name} is {holds}; give a JSON file that an attnviz command wrote")
    record = kind.from_dict(document, name)
    made = document.get("made")
    of_call(record, str(made.get("command", "")) if isinstance(made, dict) else "")
    return record


@interface
def read(path: Any, tokens: Any = None, *, options: ArrayOptions) -> Any:
    """Return what is in any file that attnviz wrote, or attention that any tool has recorded.

    Args:
        path: the JSON of a command, a page (.html), which holds the result that it shows, the
            state of ``attnviz profile``, a folder with the steps of a film; or recorded attention,
            which is a :class:`~attnviz.Capture`: of attnviz's own (.npz, .safetensors, .json;
            docs/recording.md), a TransformerLens cache or other tensors by module (.npz,
            .safetensors, .pt), what Inseq saves of its method attention (.json), a list of layers
            (.pt), one array of all (.npy), or a folder of .npy files. JSON may also come from
            ``<(command)`` of a shell. Or an object: TransformerLens's
            ``ActivationCache``, a dictionary of tensors by module path, as an nnsight trace saves
            them, a list with an array for each layer, as BertViz takes it, one array, or a model's
            output.
        tokens: of recorded attention, the text of each position, or its id where there is a
            ``tokenizer``; of the queries. Positions are shown as numbers where they are neither
            given nor recorded.

    Raises:
        InputError: it cannot be read, or is nothing that attnviz knows.
        UsageError: an item that is not there or none chosen; tokens for a file that has its own.
    """
    from attnviz.captures.files import read_recorded

    values = (getattr(options, name) for name in declarations(ArrayOptions))
    plain = tokens is None and all(value is None or value is False for value in values)
    if not plain or not isinstance(path, str | Path):
        return read_recorded(path, tokens, options)
    path = Path(path)
    if os.path.isdir(path):
        if any(path.glob("*.npy")):
            return read_recorded(path)
        return import_module("attnviz.features.film.summary").read_steps(path)
    if path.suffix.lower() in _RECORDED:
        return read_recorded(path)
    name = name_of(path)
    if path.suffix.lower() in (".html", ".htm"):
        return _shown(path, name)
    state = path.suffix.lower() == ".profile"
    if os.path.isfile(path) and (state or is_zipfile(path)):  # a device has no end to look for
        return import_module("attnviz.features.profile.saved").read_state(path)
    from attnviz.corpus.lines import text

    if name != "-" and not handed(path):  # another pipe that nobody writes to would be waited for
        with system_errors(InputError, f"cannot read {path}"):
            open_regular(path).close()
    content = text(str(path))
    try:
        document = parsed(content, name)
    except InputError:
        if not _is_recorded(_lenient(content)):
            raise
        return read_recorded(path)
    return read_recorded(path) if _is_recorded(document) else read_record(document, name)


def _shown(path: Path, name: str) -> Any:
    """Give the result that a page shows; of a page of many, such as ``view``'s, the page itself."""
    from attnviz.web.written import PAGE, Page, page_title, read_made, read_page

    with system_errors(InputError, f"cannot read {path}"):
        page = contents(path)
    document = read_page(page)
    if document is None:
        raise InputError(f"{name} is no page that attnviz wrote; give one, or a JSON file")
    if document.get("schema") == PAGE:
        made = read_made(document)
        if made is None:
            raise InputError(f"{name} does not say what made it; give the page as attnviz wrote it")
        return Page(page, page_title(page) or made.model, made=made)
    return read_record(document, name)


def _lenient(text: str) -> Any:
    """JSON with the NaN that other tools write; None where it is none even so."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_recorded(document: Any) -> bool:
    """Whether JSON holds recorded attention, ours or Inseq's."""
    if isinstance(document, dict) and str(document.get("schema")).partition("/")[0] in RESULTS:
        return False
    from attnviz.models.recorded.format import is_recording
    from attnviz.models.recorded.other_tools import is_inseq, is_served

    return is_recording(document) or is_inseq(document) or is_served(document)


Roles = Mapping[Head, tuple[tuple[Role, Estimate], ...]]


@dataclass(frozen=True)
class Attached:
    """A result that stands beside others, and the name of its file."""

    name: str
    result: Result

    def finding(self) -> Finding | None:
        """Return what it says of every head; None where it says nothing of heads."""
        return self.result.finding(self.name) if isinstance(self.result, Renderable) else None


Evidence = str | Path | Result | Attached
"""A file with a result, the result itself, or what was read of either."""


def read_evidence(evidence: Evidence | Sequence[Evidence] | None) -> tuple[Attached, ...]:
    """Every result that is to be attached."""
    if evidence is None:
        return ()
    several = isinstance(evidence, Iterable) and not isinstance(evidence, str)
    return tuple(map(_attached, evidence if several else [evidence]))  # type: ignore[arg-type]


def attach(
    evidence: Evidence | Sequence[Evidence] | None,
    scores: Sequence[HeadScores],
    source: SourceInfo,
    layout: Layout,
    identity: Mapping[str, Any],
) -> tuple[tuple[HeadScores, ...], tuple[str, ...], tuple[Finding, ...]]:
    """Scores with the roles of results before their own, what to say of those, and all findings."""
    several = read_evidence(evidence)
    scored = tuple(scores)
    for attached in several:
        attached.result.check_model(attached.name, source, layout, identity)
        scored = with_roles(scored, attached.result.annotated_roles())
    findings = tuple(finding for source in several if (finding := source.finding()) is not None)
    return scored, tuple(notes(several, identity)), findings


def beside(result: Any, evidence: Evidence | Sequence[Evidence]) -> Any:
    """Put the roles and findings of other results beside what heads do on a text."""
    heads, remarks, findings = attach(
        evidence, result.heads, result.source, result.layout, result.identity
    )
    return replace(result, heads=heads, findings=findings, notes=(*result.notes, *remarks))


def given_roles(several: Sequence[Attached]) -> Roles:
    """Return the roles that results give to heads, of all of them together."""
    by_head: dict[Head, tuple[tuple[Role, Estimate], ...]] = {}
    for source in several:
        for head, roles in source.result.annotated_roles().items():
            by_head[head] = (*by_head.get(head, ()), *roles)
    return by_head


def with_roles(scores: Sequence[HeadScores], roles: Roles) -> tuple[HeadScores, ...]:
    """Scores of heads with these roles before their own, those first that have most margin."""
    annotated = []
    for scored in scores:
        mine = [role for role, _ in roles.get(scored.head, ())]
        mine += [role for role in scored.roles if role.name in ANNOTATED]
        plain = [role for role in scored.roles if role.name not in ANNOTATED]
        annotated.append(replace(scored, roles=(*sorted(mine, key=_margin, reverse=True), *plain)))
    return tuple(annotated)


def notes(several: Sequence[Attached], identity: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader must know beside these roles, as full sentences."""
    annotated = [source for source in several if source.result.annotated_roles()]
    if annotated:
        names = " and ".join(source.name for source in annotated)
        halves = " and ".join(dict.fromkeys(source.result.measured_on for source in annotated))
        yield (
            f"Roles from {names} are from annotated text ({halves}), not from this one: their "
            "score is how often the head is right, their chance that of the best rule without "
            "attention."
        )
    for source in several:
        if source.result.measured_on and not source.result.annotated_roles():
            yield f"{source.name} gives no head a role."
        if not (source.result.identity and identity):
            yield f"Only the number of heads shows that {source.name} is of this model."


def _attached(evidence: Evidence) -> Attached:
    if isinstance(evidence, Attached):
        return evidence
    if isinstance(evidence, Result):
        return Attached(f"the {evidence.command} result", evidence)
    if not isinstance(evidence, str | Path):
        raise UsageError("{evidence} takes a file or a result, not {!r}", evidence, evidence=...)
    result = read(evidence)
    if not isinstance(result, Result):
        raise InputError(
            f"{evidence} holds no result about heads; give the JSON of a command that measures them"
        )
    return Attached(name_of(evidence), result)


def _margin(role: Role) -> float:
    """How far the score of a role is above what needs no attention."""
    return (role.evidence.mean or 0.0) - (role.evidence.chance or 0.0)
