"""What the states between the layers say when they are read out as the last ones are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, Place
from attnviz.core.result import Result
from attnviz.core.settings import POSITIONS, Settings, number_or_text, setting
from attnviz.drawing.renderable import Renderable
from attnviz.errors import UsageError


@dataclass(frozen=True, slots=True)
class LensToken:
    """A word that a state is read as.

    Attributes:
        token: its text.
        id: its number in the vocabulary.
        logit: as the LM head gives it.
        probability: after softmax over the whole vocabulary.
    """

    token: str
    id: int
    logit: float
    probability: float


@dataclass(frozen=True, slots=True)
class Added:
    """One logit of a state, as the sum of what made it; σ of the state itself throughout.

    Attributes:
        token: whose logit.
        logit: the sum.
        before: what the state before the layer adds; of the first state all that there is.
        heads: what each head of the layer adds, in logits; empty for the first state.
        bias: b_O of the layer, and β of its normalizations over the stream.
        mlp: what its feed-forward part adds.
        constant: what the last normalization and the LM head add by themselves.
        mixer: what a part adds that mixes tokens without attention (a layer with a state, a
            convolution).
    """

    token: str
    logit: float
    before: float
    heads: tuple[float, ...]
    bias: float
    mlp: float
    constant: float
    mixer: float = 0.0


@dataclass(frozen=True, slots=True)
class LensCell:
    """One state, read out.

    Attributes:
        layer: after which the state stands, from 0; None for what enters the first.
        position: of the token, from 0.
        top: the most probable words, the best first.
        entropy: of all words, in nats.
        kl: D(last ∥ this): how far what the model says in the end is from this, in nats.
        rank: of the token that is followed, from 1 for the most probable.
        probability: of the same.
        added: what made one logit: of the token that was asked for, else of the most probable;
            None where a layer's output is no sum of parts.
    """

    layer: int | None
    position: Annotated[int, Place("tokens")]
    top: Annotated[tuple[LensToken, ...], Axes(least=1)]
    entropy: float
    kl: float
    rank: int
    probability: float
    added: Added | None = None


@dataclass(frozen=True, slots=True)
class TokenEffect:
    """What is added to one logit, against the mean of the vocabulary."""

    token: str
    id: int
    value: float


@dataclass(frozen=True, slots=True)
class RowShare:
    """A share of rows.

    Attributes:
        share: from 0 to 1.
        low, high: of its 95 % interval over texts, which holds for all heads at once from 20 texts
            on; None from fewer than five.
    """

    share: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class RecurringToken:
    """A token that a head raises again and again.

    Attributes:
        token: its text.
        id: its number in the vocabulary.
        rows: the share of rows in which it is one of the five that the head raises most.
    """

    token: str
    id: int
    rows: float


@dataclass(frozen=True, slots=True)
class HeadWrites:
    """What a head writes, read out: z W_O through the last normalization, with its σ, and W_U.

    Attributes:
        head: which.
        norm: ‖z W_O‖, the mean over the rows.
        raises: the words whose logits it raises most, by the mean over the rows.
        lowers: those it lowers most.
        recurring: tokens that are among its five most raised in several rows, the most often first;
            empty for a single row.
        in_text: how often the word that it raises most stands in the text up to there; None for a
            single row.
    """

    head: Head
    norm: float
    raises: tuple[TokenEffect, ...]
    lowers: tuple[TokenEffect, ...]
    recurring: tuple[RecurringToken, ...] = ()
    in_text: RowShare | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Lens(Renderable, Result):
    """States read out by layer and position, or what every head writes.

    Attributes:
        tokens: of the text; empty for several.
        masked: whether words stand at their positions, as in a masked model, or follow them.
        positions: that were read, in order; of several texts empty.
        token: that is followed along the layers; empty where each position's own last prediction
            is.
        followed: the token that is followed at each of the positions.
        next: the token that does follow each position in the text; empty in masked models and
            where none does.
        cells: state by state, position by position; empty where heads were read.
        difference: the largest difference between logits of the last state and the model's own.
        reason: why no layer is taken apart; empty where each is.
        heads: what every head writes; empty where states were read.
        rows: how many positions the heads were read at.
        chance: of ``in_text``: the share of the vocabulary that stands in the text up to a row,
            the mean over the rows; None where it was not asked.
    """

    schema: ClassVar[str] = "attnviz.lens/1"
    command: ClassVar[str] = "lens"

    tokens: Annotated[tuple[str, ...], Axes("tokens")] = ()
    masked: bool = False
    positions: Annotated[tuple[int, ...], Axes("positions"), Place("tokens")] = ()
    token: str = ""
    followed: Annotated[tuple[str, ...], Axes("positions", absent=True)] = ()
    next: Annotated[tuple[str, ...], Axes("positions", absent=True)] = ()
    cells: Annotated[tuple[LensCell, ...], Axes("positions", again=True)] = ()
    difference: float | None = None
    reason: str = ""
    heads: tuple[HeadWrites, ...] = ()
    rows: int = 0
    chance: float | None = None

    def __post_init__(self) -> None:
        if not (self.heads or self.cells) or (self.rows == 1 and not self.positions):
            raise ValueError("neither states nor heads at a position")
        if self.cells and (not self.followed or self.difference is None):
            raise ValueError("states without the tokens that are followed, or their difference")

    def states(self) -> tuple[tuple[LensCell, ...], ...]:
        """Return the cells of each state, the first state first."""
        width = len(self.positions)
        return tuple(self.cells[n : n + width] for n in range(0, len(self.cells), width or 1))

    def along(self, position: int) -> tuple[LensCell, ...]:
        """Return the cells of one position, the first state first."""
        return tuple(cell for cell in self.cells if cell.position == position)

    def __repr__(self) -> str:
        if self.heads:
            return f"<Lens {self.source.model}: {len(self.heads)} heads, {self.rows} rows>"
        words = " ".join(repr(cell.top[0].token) for cell in self.along(self.positions[-1]))
        return f"<Lens {self.source.model}, position {self.positions[-1]}: {words}>"

    def _picture_png(self) -> bytes | None:
        return self.to_bytes("png") if self.cells else None


@dataclass(frozen=True)
class LensSettings(Settings):
    """What is decoded, and where."""

    by: Literal["layer", "head"] = setting(
        "layer",
        "Decode the state after each layer, or what each head writes. Of several texts the mean "
        "over all positions.",
        common=True,
    )
    answer: str | None = setting(
        None,
        "The word whose rank and probability to follow across layers.",
        metavar="WORD",
        shown="what each position predicts in the end",
        common=True,
    )
    position: str | int | None = setting(
        None,
        f"Read these tokens alone, or all. {POSITIONS} By default every position or, of a masked "
        "model, every mask; of heads the last token of a single text.",
        metavar="TOKENS|all",
        shown="all",
        parser=number_or_text,
        common=True,
    )
    predictions: int = setting(
        10, "Number of words to list for each layer or head.", least=1, most=1000
    )

    def check(self) -> None:
        """Raise UsageError for a word that is followed along no layers."""
        if self.by == "head" and self.answer is not None:
            raise UsageError(
                "{answer} is followed along the layers; leave out {by}",
                answer=self.answer,
                by=self.by,
            )
