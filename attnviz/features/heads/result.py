"""What every head of a model does with one text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from attnviz.core.capture import described
from attnviz.core.heads import SiteKind
from attnviz.core.lengths import OneOf
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import QUANTITIES
from attnviz.core.result import Finding, Result
from attnviz.core.scores import HeadScores, Mixing, PrefixMatching, UserDefined
from attnviz.core.tokens import Sides
from attnviz.drawing.renderable import Renderable
from attnviz.errors import PackageError


@dataclass(frozen=True, kw_only=True, repr=False)
class Heads(Renderable, Result):
    """Scores of heads with chance and lift, and the roles that they support.

    Attributes:
        tokens: the text on both axes of every kind of layer.
        heads: what each does.
        probe, matching: the same heads on repeated random tokens, if asked for, and prefix matching
            on such tokens.
        empty_rows: query rows that had no key to attend to.
        quantity: what was scored, a name of :data:`attnviz.core.quantities.QUANTITIES`; all but
            weights with rows divided by their sums.
        mixing: of the self-attention layers, where something else than weights was measured.
        false_names: how many heads would have a role beyond a place to rest on this text if all of
            the model's attended at random, by simulation; None of what is no text, or too long.
        user_defined: the scores and roles that are no part of attnviz.
        findings: what attached results say of these heads.
    """

    schema: ClassVar[str] = "attnviz.heads/1"
    command: ClassVar[str] = "heads"

    tokens: Mapping[SiteKind, Sides]
    heads: tuple[HeadScores, ...]
    probe: tuple[HeadScores, ...] = ()
    empty_rows: int = 0
    quantity: Annotated[str, OneOf(*QUANTITIES)] = "weights"
    mixing: tuple[Mixing, ...] = ()
    false_names: float | None = None
    matching: PrefixMatching | None = None
    user_defined: tuple[UserDefined, ...] = ()
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for scores in self.heads:
            sink, sides = scores.sink, self.tokens.get(scores.head.site.kind)
            if sink is not None and (sides is None or not 0 <= sink < len(sides.keys)):
                raise ValueError(
                    f"head {scores.head.name} rests on a token {sink} that is not there"
                )

    @property
    def inputs(self) -> Inputs:
        """The text, as renderers take it."""
        return Inputs(self.tokens)

    def described(self) -> str:
        """Which heads have which role."""
        from attnviz.drawing import html

        return html.described(self)

    def __repr__(self) -> str:
        named = sum(bool(head.roles) for head in self.heads)
        about = described(self.source, self.inputs, self.layout)
        return f"<Heads {about}, {named} of {len(self.heads)} heads with a role>"

    def _repr_html_(self) -> str | None:
        from attnviz.drawing import html

        with suppress(PackageError):
            return html.heads(self, self.to_bytes("png"))
        return None
