"""What attnviz finds about the heads of a model: a record that begins with what all share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnviz.core.findings import Value
from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import Made, SourceInfo, called_by, hash_of
from attnviz.core.record import Record
from attnviz.core.scores import Estimate, Role
from attnviz.errors import UsageError

Leaf = tuple[tuple[tuple[str, bool], ...], tuple[str, ...]]
"""A leaf of a tree of rules: what its queries are, by the names of conditions, each with whether it
holds; and relations, which say which key such a query looks at, in the order in which they do."""

DIGITS = 16
"""Of a hash in a result; captions show the first half of them."""


def fingerprint(texts: Iterable[object]) -> str:
    """A hash of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(repr(text).encode("utf-8", "backslashreplace") + b"\n")
    return digest.hexdigest()[:DIGITS]


@dataclass(frozen=True, kw_only=True)
class Result(Record):
    """What was found about the heads of a model."""

    source: SourceInfo  # the model: its name, backend, exactness, device, dtype and versions
    layout: Layout  # its heads
    # what no other model shares, a hash of its files; empty for one handed over loaded
    identity: Mapping[str, Any] = field(default_factory=dict)
    texts: int = 0  # how many texts it is from; 0 where it needs none
    # a hash of these texts in their order (of a profile in any order, as parts of a corpus merge in
    # any); empty where it is of one, or of none
    corpus: str = ""
    seed: int | None = None  # of whatever was drawn; None where nothing was
    partial: bool = False  # whether it was interrupted: only what was done until then is in it
    notes: tuple[str, ...] = ()  # full sentences that the reader must not miss

    @property
    def made(self) -> Made:
        """What makes files of it now: model, version, command and day."""
        return Made.now(self.source.model, identity=self.identity, command=called_by(self))

    @property
    def divided(self) -> str:
        """Which part of the texts heads were chosen on; empty where none were chosen."""
        return str(getattr(self, "split", ""))

    def origin(self) -> str:
        """What of texts, model and chance makes it again, for captions; empty without a corpus.

        ``corpus 3f2a91c0 · model 91c2aa01 · split hash:0.5 · seed 0``.
        """
        if not self.corpus:
            return ""
        models = (self.identity, getattr(self, "other_identity", {}))
        hashes = (hash_of(known)[: DIGITS // 2] for known in models)
        parts = {
            "corpus": self.corpus[: DIGITS // 2],
            "model": " and ".join(filter(None, hashes)),
            "split": self.divided,
            "seed": "" if self.seed is None else str(self.seed),
        }
        return " · ".join(f"{name} {value}" for name, value in parts.items() if value)

    def annotated_roles(self) -> Mapping[Head, tuple[tuple[Role, Estimate], ...]]:
        """The roles that it gives heads and that no text by itself could, with their evidence."""
        return {}

    def measured_edges(self) -> Mapping[tuple[str, Head, Head], Value]:
        """What was measured of a head through another one: by side (Q, K or V), writer, reader."""
        return {}

    def rule_trees(self) -> Mapping[Head, tuple[Leaf, ...]]:
        """The trees of rules that it found for heads, leaf by leaf."""
        return {}

    @property
    def measured_on(self) -> str:
        """What such roles were measured on, in words."""
        return ""

    def check_model(
        self, name: str, source: SourceInfo, layout: Layout, identity: Mapping[str, Any]
    ) -> None:
        """Refuse to stand, by its ``name``, beside what is of a model with other files or heads."""
        same = self.layout.heads == layout.heads
        known = bool(self.identity and identity)
        if same and (not known or dict(self.identity) == dict(identity)):
            return
        if self.source.model == source.model:
            why = f"other {'weights' if same else 'heads'} under the name {source.model}"
        else:
            why = f"{self.source.model}, and this is {source.model}"
        raise UsageError(f"{name} is of {why}; what was measured holds for that model alone")
