"""Roles that need annotation, from results of other commands, given to the heads of an export."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnviz.core.heads import Layout
from attnviz.core.provenance import SourceInfo
from attnviz.errors import UsageError
from attnviz.features.evidence import Attached, given_roles, notes, with_roles
from attnviz.features.export.scored import Scored
from attnviz.scoring.roles import ANNOTATED, ROLES, SHOWN, is_called, role_name


class Annotation:
    """Results and the roles they give."""

    def __init__(self, results: Sequence[Attached], identity: Mapping[str, Any]) -> None:
        self._results, self._identity = results, identity
        self._roles = given_roles(results)

    def check_role(self, role: str | None) -> None:
        """UsageError for a role that does not exist, or needs annotation and is in no result."""
        wanted = None if role is None else role_name(role)
        given = [known_role for several in self._roles.values() for known_role, _ in several]
        if (
            wanted is None
            or wanted in ROLES
            or any(is_called(known_role, wanted) for known_role in given)
        ):
            return
        named = sorted({known_role.title for known_role in given})
        if wanted.partition(":")[0] not in ANNOTATED:
            known = ", ".join([*SHOWN, *named])
            raise UsageError(f"unknown role {role!r}: choose one of {known}")
        if named:
            raise UsageError(f"no head has the role {role!r}; {', '.join(named)} are given")
        raise UsageError(
            "the role {!r} needs annotated text; give {evidence} the JSON of attnviz syntax or "
            "attnviz coref that has it",
            role,
            evidence=...,
        )

    def check_model(self, source: SourceInfo, layout: Layout) -> None:
        """UsageError for results of another model."""
        for attached in self._results:
            attached.result.check_model(attached.name, source, layout, self._identity)

    def given(self, scored: Scored) -> Scored:
        """An input whose heads have these roles before their own."""
        if not self._results:
            return scored
        self.check_model(scored.capture.source, scored.capture.layout)
        heads = with_roles(tuple(scored.scores.values()), self._roles)
        return replace(scored, scores={head.head: head for head in heads})

    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside these roles, as full sentences."""
        return tuple(notes(self._results, self._identity))

    def document(self) -> dict[str, Any]:
        """What another run must share to go on: which results; nothing where there are none."""
        digests = [
            hashlib.sha256(attached.result.to_json().encode()).hexdigest()
            for attached in self._results
        ]
        return {"evidence": digests} if digests else {}
