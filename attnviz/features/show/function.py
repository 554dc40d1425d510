"""What is in a file, with results of other commands beside the heads that it is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from attnviz.captures.settings import Attaching
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.record import Record
from attnviz.errors import UsageError
from attnviz.features.registry import read


@interface
def show(path: str | Path, *, attaching: Attaching) -> Record:
    """The result in a file that attnviz wrote; of a capture, what its heads do."""
    from attnviz.features.heads.result import Heads
    from attnviz.features.profile.result import Profile

    result, evidence = read(path), attaching.evidence
    if isinstance(result, Capture):
        from attnviz.features.heads.function import heads

        return heads(result, evidence=evidence)
    if evidence is None:
        shown: Record = result
        return shown
    if isinstance(result, Profile):
        from attnviz.features.profile.function import with_evidence

        return with_evidence(result, evidence)
    if isinstance(result, Heads):
        from attnviz.features.evidence import attach

        scored, notes, findings = attach(
            evidence, result.heads, result.source, result.layout, result.identity
        )
        return replace(result, heads=scored, findings=findings, notes=(*result.notes, *notes))
    raise UsageError(
        "{} holds no scores of heads for {evidence} to stand beside; leave it out",
        path,
        evidence=...,
    )
