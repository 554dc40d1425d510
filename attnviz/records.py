"""The values that travel through attnviz: frozen, typed, without behaviour beyond naming.

Text becomes :class:`Tokens`; a forward pass hands out :class:`~attnviz.passes.Rows`; observers turn
them into a :class:`Capture` (whole maps) or :class:`HeadScores` (running sums); renderers read
those. Notation in shapes: B batch, H query heads, T query length, S key length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnviz.findings import Finding
from attnviz.generation import Generation
from attnviz.measures import PrefixMatching
from attnviz.media import Picture, Place, Sound, Space, space
from attnviz.reach import Reach
from attnviz.reasons import HeadTerms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SiteKind = Literal["encoder", "decoder", "cross"]
"""Where attention happens: an encoder's or a decoder's self-attention, or cross-attention."""

SITE_KINDS: tuple[SiteKind, ...] = ("encoder", "decoder", "cross")
SITE_PREFIX: Mapping[SiteKind, str] = {"encoder": "enc", "decoder": "dec", "cross": "cross"}

Backend = Literal["untrained", "native", "hooked", "eager", "recorded"]
"""How the weights were obtained; see docs/models.md."""


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One attention layer: its kind and its number, from 0."""

    kind: SiteKind
    layer: int


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """One attention head: its site and its number in the layer, from 0."""

    site: Site
    index: int

    @property
    def layer(self) -> int:
        """The layer's number, from 0."""
        return self.site.layer

    @property
    def name(self) -> str:
        """``layer.head``, for example ``4.11``."""
        return f"{self.site.layer}.{self.index}"

    @property
    def qualified(self) -> str:
        """``kind:layer.head``, for example ``cross:4.11``."""
        return f"{SITE_PREFIX[self.site.kind]}:{self.name}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which heads a model has: for each kind of site, the number of heads in each layer.

    ``whole`` says that what counts as a head is a layer, all its heads together: ``4.*``.
    """

    heads: Mapping[SiteKind, tuple[int, ...]]
    whole: bool = False

    @property
    def kinds(self) -> tuple[SiteKind, ...]:
        """The kinds of site present, in the order encoder, decoder, cross."""
        return tuple(kind for kind in SITE_KINDS if self.heads.get(kind))

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every attention layer, in the order encoder, decoder, cross."""
        return tuple(Site(kind, layer) for kind in self.kinds for layer in range(self.layers(kind)))

    def __iter__(self) -> Iterator[Head]:
        """Every head, layer by layer."""
        for site in self.sites:
            for index in range(self.heads[site.kind][site.layer]):
                yield Head(site, index)

    def __len__(self) -> int:
        return sum(sum(self.heads[kind]) for kind in self.kinds)

    def __contains__(self, head: object) -> bool:
        if not isinstance(head, Head):
            return False
        counts = self.heads.get(head.site.kind, ())
        return 0 <= head.layer < len(counts) and 0 <= head.index < counts[head.layer]

    def layers(self, kind: SiteKind) -> int:
        """The number of layers of one kind."""
        return len(self.heads.get(kind, ()))

    def name(self, head: Head) -> str:
        """The head's short name where that is unambiguous, else the qualified one."""
        name = head.name if len(self.kinds) == 1 else head.qualified
        return f"{name.rpartition('.')[0]}.*" if self.whole else name


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token sequence, as the model saw it.

    Attributes:
        texts: what each token stands for, as readable text (``" keys"``, ``"##ing"``, ``"[SEP]"``).
        ids: vocabulary ids; empty where there is no vocabulary (fresh and recorded models).
        special: True for tokens that the tokenizer added (``[CLS]``, ``<s>``, ...).
        separators: True for tokens that end a segment (``[SEP]``, ``</s>``).
        words: the number of the word each token belongs to, from 0; -1 for special tokens.
        segments: BERT's segment number of each token (0 or 1).
        places: where patches of a picture and frames of a sound stand, see
            :data:`~attnviz.media.Place`; empty where there are none.
        written: how many of the last ones the model wrote itself.
    """

    texts: tuple[str, ...]
    ids: tuple[int, ...] = ()
    special: tuple[bool, ...] = ()
    separators: tuple[bool, ...] = ()
    words: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    written: int = 0

    def __post_init__(self) -> None:
        n = len(self.texts)
        defaults: dict[str, tuple[Any, ...]] = {
            "special": (False,) * n,
            "separators": (False,) * n,
            "words": tuple(range(n)),
            "segments": (0,) * n,
        }
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name in ("special", "separators", "words", "segments"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"Tokens.{name} has {len(getattr(self, name))} entries, not {n}")
        for name in ("ids", "places"):
            if getattr(self, name) and len(getattr(self, name)) != n:
                raise ValueError(f"Tokens.{name} has {len(getattr(self, name))} entries, not {n}")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two tokens the same: their id, or their text where there are no ids.

        What has a place is like nothing else.
        """
        same = self.ids or self.texts
        return tuple(zip(same, self.places, strict=True)) if self.places else same

    @property
    def space(self) -> Space:
        """What they are laid out in; text as soon as one of them is text."""
        return space(self.places, self.special) if self.places else "text"


@dataclass(frozen=True, slots=True)
class Sides:
    """The two axes of a map: queries (rows) and keys (columns); the same tokens twice for self."""

    queries: Tokens
    keys: Tokens


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user asks to be run, before any tokenizer has seen it.

    Exactly one of ``text`` and ``ids`` is set, or there is an ``image`` or ``audio`` (paths of
    files), with a text only where the model reads both. ``pair`` is a second sentence (BERT
    segments), ``context`` the other sequence of a fresh cross-attention layer, ``target`` the
    decoder's text. ``spans`` are words of the text that somebody else has found, as first
    character and end, in order and apart: ``Tokens.words`` then numbers these, and is -1 for tokens
    outside of them.
    ``generate`` lets the model go on with the text (or write the decoder's) before it is looked at.
    """

    text: str | None = None
    ids: tuple[int, ...] | None = None
    pair: str | None = None
    context: str | None = None
    target: str | None = None
    special_tokens: bool = True
    truncate: bool = False
    spans: tuple[tuple[int, int], ...] | None = None
    image: str | Path | None = None
    audio: str | Path | None = None
    generate: Generation | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """What was typed, in the order in which it is read, and the names of files."""
        typed = (self.text, self.pair, self.context, self.target)
        named = (None if file is None else Path(file).name for file in (self.image, self.audio))
        return tuple(text for text in (*named, *typed) if text is not None)


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
    def length(self) -> int:
        """The longest token sequence in it."""
        return max(max(len(s.queries), len(s.keys)) for s in self.sides.values())


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where weights came from, for the report.

    Attributes:
        model: the name the user gave, or what stands for it (``fresh mha, seed 0``).
        backend: how the weights were obtained.
        exactness: one phrase on how far they can be trusted, with the measured difference if any.
        device: where it ran; ``dtype``: in which precision.
        reason: why this backend was taken, when another was tried or usual.
        versions: package versions that took part.
    """

    model: str
    backend: Backend
    exactness: str
    device: str = "cpu"
    dtype: str = "float32"
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is on this machine.

    Attributes:
        name: under which it is loaded.
        place: ``bundled``, ``built in`` or ``hub cache``.
        family: ``model_type`` of its configuration.
        shape: layers × heads, for every kind of layer.
        size: bytes on disk.
        usable: whether attnviz can run it; ``note`` says why not, or what to know.
    """

    name: str
    place: str
    family: str = ""
    shape: str = ""
    size: int = 0
    usable: bool = True
    note: str = ""


@dataclass(frozen=True, eq=False)
class Capture:
    """Attention maps of one input, and where they came from.

    ``maps`` holds [H, T, S] float arrays by site, for the layers that were asked for; ``quantity``
    says of what, a name of :data:`attnviz.quantities.QUANTITIES`;
    ``empty_rows`` counts query rows that had no key to attend to (all zero); ``reach`` says which
    keys each query may attend to, for layers where that is known and not read off the weights;
    ``terms`` what the weights of some heads are made of, for those that were asked for.
    """

    source: SourceInfo
    layout: Layout
    inputs: Inputs
    maps: Mapping[Site, NDArray[np.floating[Any]]]
    empty_rows: int = 0
    reach: Mapping[Site, Reach] = field(default_factory=dict)
    quantity: str = "weights"
    terms: Mapping[Head, HeadTerms] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = "" if self.quantity == "weights" else f", {self.quantity}"
        return f"<Capture {_described(self.source, self.inputs, self.layout)}{what}>"

    def __getitem__(self, head: Head) -> NDArray[np.floating[Any]]:
        """The [T, S] map of one head."""
        return self.maps[head.site][head.index]  # type: ignore[no-any-return]

    def sides(self, head: Head) -> Sides:
        """The tokens on the two axes of a head's map."""
        return self.inputs.sides[head.site.kind]


@dataclass(frozen=True, slots=True)
class Score:
    """One score of one head, averaged over the rows on which it is defined.

    ``chance`` is its mean under uniform attention over the allowed keys, ``lift`` mean / chance;
    both are None where they mean nothing; ``mean`` is None when no row counts.
    """

    mean: float | None
    chance: float | None
    lift: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class Rival:
    """The role whose targets got the most weight on the rows of another, and how much."""

    name: str
    mean: float


@dataclass(frozen=True, slots=True)
class Role:
    """A role a head plays on this input, with its evidence.

    Attributes:
        name: as in :data:`attnviz.scoring.roles.SHOWN`.
        score: the score that is the evidence; ``evidence`` what was measured.
        few_rows: whether that is little to go by.
        rests: whether it is a place where attention rests, not a thing that the head does.
        possible: the share of the head's rows on which it could show; None where not known.
        rival: the role that came next on the same rows; None where none compares.
        of: what it is about where a role has several, such as the relation of a syntactic head.
    """

    name: str
    score: str
    evidence: Score
    few_rows: bool
    rests: bool = False
    possible: float | None = None
    rival: Rival | None = None
    of: str = ""

    @property
    def title(self) -> str:
        """Its name with what it is about: ``syntactic: obj``."""
        return f"{self.name}: {self.of}" if self.of else self.name


@dataclass(frozen=True, slots=True)
class HeadScores:
    """All scores of one head, and the roles they support: what it does, then where it rests."""

    head: Head
    scores: Mapping[str, Score]
    roles: tuple[Role, ...]

    @property
    def does(self) -> Role | None:
        """What the head does where that is possible."""
        return next((role for role in self.roles if not role.rests), None)

    @property
    def rests(self) -> Role | None:
        """Where its attention rests."""
        return next((role for role in self.roles if role.rests), None)


@dataclass(frozen=True, slots=True)
class Mixing:
    """How much of what a layer's positions get comes from other positions, a mean over rows.

    The mixing ratio of Kobayashi et al. 2021 (arXiv:2109.07152), without rows that have one key to
    attend to; None where no row is left.

    Attributes:
        site: the layer.
        rows: how many rows count.
        weights: of every head by its weights, 1 - α_ii; ``norms`` by what it writes.
        norms: see ``weights``.
        layer_weights: of the layer by its weights, the mean over heads; ``layer`` by the quantity
            that the report is of, of all heads together.
        layer: see ``layer_weights``.
    """

    site: Site
    rows: int
    weights: tuple[float | None, ...]
    norms: tuple[float | None, ...]
    layer_weights: float | None
    layer: float | None


@dataclass(frozen=True)
class HeadsReport:
    """What the heads of a model did on one input.

    ``probe`` and ``matching`` are of the same heads on repeated random tokens, if asked for;
    ``notes`` are full sentences that the reader must not miss. ``quantity`` is what was scored, as
    for :class:`Capture`; all but weights with rows divided by their sums. ``mixing`` has the
    self-attention layers, where something else than weights was measured. ``findings`` is what
    other commands say of these heads.
    """

    source: SourceInfo
    layout: Layout
    inputs: Inputs
    heads: tuple[HeadScores, ...]
    probe: tuple[HeadScores, ...] = ()
    empty_rows: int = 0
    notes: tuple[str, ...] = ()
    quantity: str = "weights"
    mixing: tuple[Mixing, ...] = ()
    matching: PrefixMatching | None = None
    findings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        named = sum(bool(head.roles) for head in self.heads)
        described = _described(self.source, self.inputs, self.layout)
        return f"<HeadsReport {described}, {named} of {len(self.heads)} heads with a role>"


def _described(source: SourceInfo, inputs: Inputs, layout: Layout) -> str:
    lengths = " + ".join(
        str(len(side.queries))
        if side.queries is side.keys
        else f"{len(side.queries)}×{len(side.keys)}"
        for side in inputs.sides.values()
    )
    layers = " + ".join(str(layout.layers(kind)) for kind in layout.kinds)
    return f"{source.model}, {source.backend} backend, {lengths} tokens, {layers} layers"
