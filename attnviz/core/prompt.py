"""What a user asks to be run, and the same once a tokenizer has seen it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attnviz.core.arguments import check_fields
from attnviz.core.heads import SiteKind
from attnviz.core.media import Picture, Sound
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import Setting, UsageError, require


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


@dataclass(frozen=True, slots=True)
class Reply:
    """What an inference server wrote, for the same model to be compared with."""

    span: str  # the name of the part of the prompt that it is
    # its tokens as the server spells them; empty where their ids are known
    texts: tuple[str, ...] = ()
    # of each, the natural logarithm; None where the server gave none
    log_probs: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user asks to be run, before any tokenizer has seen it.

    Exactly one of ``text``, ``ids`` and ``chat`` is set, or there is an ``image`` or ``audio``
    (paths of files; several pictures in the order in which they are read), with a text only where
    the model reads both. ``chat`` is messages, each with
    ``role`` and ``content``, which the tokenizer's own chat template makes a text of; every message
    is a span. ``pair`` is a second sentence (BERT
    segments), ``context`` the other sequence of a fresh cross-attention layer, ``target`` the
    decoder's text. ``words`` are words of the text that somebody else has found, as first
    character and end, in order and apart: ``Tokens.words`` then numbers these, and is -1 for tokens
    outside of them. ``spans`` are named parts of the text and how each is found, written as
    :mod:`attnviz.core.spans` says: ``{"document": "regex:Paris.*?river"}``.
    ``generate`` lets the model go on with the text (or write the decoder's) before it is looked at.
    ``max_tokens`` takes the place of the length that the model's configuration names.
    ``reply`` says which part a server wrote, see :func:`attnviz.from_response`.
    """

    text: str | None = None
    ids: tuple[int, ...] | None = None
    pair: str | None = None
    target: str | None = None
    special_tokens: bool = True
    truncate: bool = False
    words: tuple[tuple[int, int], ...] | None = None
    image: str | Path | Sequence[str | Path] | None = None
    audio: str | Path | None = None
    generate: Generation | None = None
    max_tokens: int | None = None
    chat: Sequence[Mapping[str, Any]] | None = None
    spans: Mapping[str, str] | None = None
    reply: Reply | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.image is not None and not self.images:
            raise UsageError("the list of pictures is empty; give at least one")
        if self.audio is not None:
            require("soundfile", Setting("audio"))

    @property
    def images(self) -> tuple[Path, ...]:
        """The files of pictures, in order."""
        if self.image is None:
            return ()
        return (
            (Path(self.image),)
            if isinstance(self.image, str | Path)
            else tuple(map(Path, self.image))
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of pictures, in order, and of a sound."""
        return self.images if self.audio is None else (*self.images, Path(self.audio))

    @property
    def texts(self) -> tuple[str, ...]:
        """What was typed, in the order in which it is read, and the names of files."""
        chat = [str(message["content"]) for message in self.chat or () if message.get("content")]
        typed = (self.text, *chat, self.pair, self.target)
        named = (file.name for file in self.files)
        return tuple(text for text in (*named, *typed) if text is not None)

    def with_spans(self, spans: Mapping[str, str] | None) -> Prompt:
        """Return the same with more named parts."""
        return replace(self, spans={**(self.spans or {}), **(spans or {})} or None)

    def cut_to(self, text: str) -> Prompt:
        """Return the prompt of a part of its text, where words stand elsewhere."""
        return replace(self, text=text, words=None)


@dataclass(frozen=True, slots=True)
class Inputs:
    """A tokenized prompt: the tokens on both axes of every kind of site, and what to tell the user.

    ``notes`` are full sentences for the report, such as what was cut; ``texts`` what was typed,
    where anything was, since tokens need not spell it (bytes of a character, lower case, unknown).
    ``picture`` and ``sound`` are what the tokens' places are in; ``features`` what the processor
    made of them, for the model alone.
    """

    sides: Mapping[SiteKind, Sides]
    notes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    picture: Picture | None = None
    sound: Sound | None = None
    features: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def output(self) -> str:
        """What the model wrote itself; empty where it wrote nothing."""
        last = list(self.sides.values())[-1].queries
        return "".join(last.texts[len(last) - last.written :])

    @property
    def tokens(self) -> Tokens:
        """The queries of the first stack, which is the only one of most models."""
        return next(iter(self.sides.values())).queries

    @property
    def length(self) -> int:
        """The longest token sequence in it."""
        return max(max(len(s.queries), len(s.keys)) for s in self.sides.values())


def padded(batch: Sequence[Inputs]) -> int:
    """Return the tokens that a batch runs, padding among them."""
    return len(batch) * max(item.length for item in batch)
