"""The answer of ``attnviz shapes verify``: closed forms beside a real layer or model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.features.shapes.result import Answer


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One comparison: what the closed forms said, and what the real layer or model has."""

    step: str
    what: str
    said: str
    found: str
    equal: bool

    @classmethod
    def of(cls, step: str, what: str, said: str, found: str) -> Compared:
        """The comparison of two texts."""
        return cls(step=step, what=what, said=said, found=found, equal=said == found)


@dataclass(frozen=True, kw_only=True)
class VerifyAnswer(Answer):
    """The closed forms beside a real layer, or beside a model's parameters.

    Attributes:
        subject: what was run or counted. equal: whether every comparison is.
        checks: the comparisons.
        attention_parameters: counted in a model. whole_parameters: all of its; None for a layer.
    """

    view: Literal["verify"] = "verify"
    subject: str
    equal: bool
    checks: tuple[Compared, ...]
    attention_parameters: int | None = None
    whole_parameters: int | None = None
