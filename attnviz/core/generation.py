"""How a model goes on with a text: how many tokens, and which of the likely ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from attnviz.core.arguments import check_fields


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model is to write after its prompt.

    Attributes:
        tokens: how many at most; it stops earlier at a token that ends texts, which is kept.
        temperature: what logits are divided by before softmax; None and 0 are greedy.
        top_p: draw from the fewest tokens that have this probability together (nucleus sampling,
            Holtzman et al. 2020, arXiv:1904.09751); None for all. Drawing needs no temperature: it
            is 1 then.
        seed: of the draws.
        tell: gets the text as it grows, piece by piece, and an empty piece at its end.
    """

    tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    tell: Callable[[str], None] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken every time."""
        return self.temperature == 0 or (self.temperature is None and self.top_p is None)

    @property
    def manner(self) -> str:
        """How tokens are chosen, as an adverb: ``greedily``."""
        if self.greedy:
            return "greedily"
        top = "" if self.top_p is None else f", top-p {self.top_p:g}"
        return f"at temperature {self.temperature or 1:g}{top}, seed {self.seed or 0}"

    def say(self, piece: str) -> None:
        """Hand a piece of text to whoever watches it grow."""
        if self.tell is not None:
            self.tell(piece)
