"""The lessons of the page: what is said, what is shown, and what has to be true for it to be said.

Figures in braces are put in by the page, from the pass that it has just run (``js/figures.js`` has
their names), so that none of them is written here. What sentences say beside them is checked on the
model when the page is made (:mod:`attnviz.features.live.opening`): a lesson of which anything does
not hold is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.walkthrough import reasons


@dataclass(frozen=True, eq=False)
class LessonPass:
    """What a pass over a text gave, beside the plain one."""

    tokens: tuple[str, ...]  # the texts of the tokens
    weights: NDArray[np.floating[Any]]  # [layers, heads, T, T]
    shares: NDArray[np.floating[Any]]  # [V], the probabilities of what comes next
    vocabulary: tuple[str, ...]  # the text of every id
    root: float  # √d
    plain: LessonPass | None = None  # the pass with nothing changed, where something is

    @property
    def before(self) -> LessonPass:
        """The pass with nothing changed."""
        return self.plain or self

    @property
    def top(self) -> str:
        """The likeliest token."""
        return self.vocabulary[int(self.shares.argmax())]

    def p(self, token: str) -> float:
        """Return the probability of a token."""
        return float(self.shares[self.vocabulary.index(token)])

    def w(self, head: str, query: int, key: int) -> float:
        """Return a weight."""
        return float(self._map(head)[query, key])

    def previous(self, head: str) -> float:
        """Return the mean weight on the token before, over rows from the third on."""
        return float(np.diagonal(self._map(head), -1)[1:].mean())

    def largest(self, head: str, query: int, divisor: float | None = None) -> float:
        """Give a row's largest weight by another divisor than √d: weights to a power, rescaled."""
        row = self._map(head)[query].astype(np.float64)
        if divisor is not None:
            row = row ** (self.root / divisor)
        return float(row.max() / row.sum())

    def same_key(self, head: str, key: int) -> bool:
        """Say whether the last query's q·k with a key stays, as far as ratios of weights show."""
        now, plain = (run._map(head)[-1].astype(np.float64) for run in (self, self.before))
        return bool(np.isclose(now[key] / now[-1], plain[key] / plain[-1], rtol=1e-4))

    def _map(self, head: str) -> NDArray[np.floating[Any]]:
        layer, number = head.split(".")
        return self.weights[int(layer), int(number)]


Holds = Callable[[LessonPass], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a lesson.

    What it changes (``off``, ``places``, ``other``, ``divisor``, ``noise``) comes with the answer,
    where it asks something first.
    """

    say: str  # what is to be seen
    text: str  # what the model reads
    head: str  # the head that is shown, such as ``"2.4"``.
    # the token whose row is shown, or None for the last; ``key`` the one looked at
    at: int | None = None
    key: int | None = None
    off: tuple[str, ...] = ()  # heads that are off
    places: bool = True  # False where the mean position vector stands at every place
    other: str | None = None  # a text of as many tokens, which the second pass reads
    # what is drawn: ``shares``, the softmax of the row, ``products`` of random vectors, or
    # ``heads``, one of them against two; ``divisor`` of the scores, or None for √d; ``noise``, the
    # variance of the length of a key
    figure: str = ""
    divisor: float | None = None
    noise: float = 0.0
    # what the second pass has in the attention of layer 0, by the name that ``attnviz check`` has
    # for it; it is seen before it is told
    bug: str = ""
    spot: str = "words"  # what is pointed at, by the names of ``js/spot.js``.
    # what the reader is asked before ``told`` is shown; ``choices`` and which is ``right``
    ask: str = ""
    choices: tuple[str, ...] = ()
    right: int = 0
    told: str = ""
    hides: str = ""  # what would give the answer away: ``words``, ``map`` or both
    holds: Holds = lambda run: True  # whether what it says is true of a pass


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson: its name in the address, its title, what it is about, and its steps."""

    name: str
    title: str
    about: str
    steps: tuple[Step, ...]


_TWICE = "the cat river moon stone bread the cat river moon stone"
_NIGHT = "the fire hand horse night gold the fire hand horse night"
_SHORT = "the cat river moon stone bread the cat river"
_SWAPPED = "the cat hand moon stone bread the cat river"
_DOGS = " dog dog dog dog dog dog"
_KEYS = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
_PREVIOUS = ("0.5", "1.4")
_ABOVE = tuple(f"{layer}.{head}" for layer in (1, 2, 3) for head in range(6))
_YOURS = "Now it is yours: type something else, switch off what you like"


INDUCTION = Lesson("next", "How a model finds the next word", "two heads in a row", (
    Step("The model has read six words in no order, and then five of them again.", _NIGHT, "2.0",
         ask="Which token does it expect next?", hides="words map",
         choices=("gold", "a comma", "the"),
         told="{top}, with {p gold}: the word that followed night the first time. Where does it "
              "find it?",
         holds=lambda run: run.top == " gold" and run.p(" gold") > 0.5),
    Step("This is the row of the last token in head 2.0: how much the second night looks at every "
         "token.", _NIGHT, "2.0", key=6, spot="row", hides="map",
         ask="At which token does it look?",
         choices=("the first night", "gold, which came after it", "horse, just before"), right=1,
         told="At gold, with a weight of {w 2.0 11 6}: at what followed the same token the first "
              "time. That is an induction head (Olsson et al. 2022).",
         holds=lambda run: run.w("2.0", 11, 6) > 0.5),
    Step("How does 2.0 know that night came before gold? Head 1.4 is one layer below.", _NIGHT,
         "1.4", key=10, spot="map", hides="map", ask="Where does every token look in 1.4?",
         choices=("at itself", "at the token before it", "at the first token"), right=1,
         told="At the token before it, with {previous 1.4} of its weight on average. So gold can "
              "carry on that night stood before it, and 2.0 can look for that.",
         holds=lambda run: run.previous("1.4") > 0.8),
    Step("0.5 and 1.4 are the two heads that look at the token before: {was previous 0.5} and "
         "{was previous 1.4} of their weight. Now they go off.", _NIGHT, "2.0", key=6,
         off=_PREVIOUS, hides="words", ask="Does the model still expect gold?",
         choices=("yes", "no"), right=1,
         told="No: gold has {p gold}, where it had {was p gold}. 2.0 has lost its place: "
              "{w 2.0 11 6} of its weight is on gold, where {was w 2.0 11 6} was.",
         holds=lambda run: run.before.previous("0.5") > 0.5 and run.p(" gold") < 0.05
         and run.w("2.0", 11, 6) < 0.1),
    Step("They are on again. 3.3 looks at gold as well, one layer later; now it goes off.", _NIGHT,
         "3.3", key=6, off=("3.3",), hides="words", ask="Does gold stay first?",
         choices=("yes", "no"),
         told="Yes: gold keeps {p gold}, where it had {was p gold}. Other heads look there too, "
              "2.0 with {w 2.0 11 6}, 3.0 with {w 3.0 11 6}.",
         holds=lambda run: run.top == " gold" and run.before.w("3.3", 11, 6) > 0.5
         and min(run.w("2.0", 11, 6), run.w("3.0", 11, 6)) > 0.5),
    Step("3.0, 3.3 and 3.5 all look at gold: {was w 3.0 11 6}, {was w 3.3 11 6} and "
         "{was w 3.5 11 6}. Now all three of them go off.", _NIGHT, "3.3", key=6,
         off=("3.0", "3.3", "3.5"), hides="words", ask="And gold?",
         choices=("stays first", "is gone"), right=1,
         told="It is gone: {p gold}. One switch at a time can hide what several heads do together. "
         "A switch also takes away what a head says of any text: attnviz ablate can put its mean "
         "in its place.",
         holds=lambda run: run.top != " gold" and run.p(" gold") < 0.05
         and min(run.before.w(f"3.{head}", 11, 6) for head in (0, 3, 5)) > 0.5),
    Step(f"{_YOURS}, let the model write.", _NIGHT, "2.0", spot="text"),
))  # fmt: skip
"""The induction circuit (Olsson et al. 2022, arXiv:2209.11895)."""

SOFTMAX = Lesson("softmax", "Softmax, and why √d", "from scores to weights", (
    Step("The query of {token 11} is multiplied with the key of every token: q·k, a number each. "
         "For {token 10} it is {dot}. Any number can come out.", _KEYS, "0.4", 11, 10,
         figure="shares", spot="figure"),
    Step("Softmax makes shares of scores: e to the power of each, over the sum of all. The largest "
         "share here is {max}.", _KEYS, "0.4", 11, 10, figure="shares", spot="figure",
         ask="Add 5 to every score. What happens to the shares?",
         choices=("nothing", "the largest grows", "they become alike"),
         told="Nothing: the largest is {shifted 5}. e⁵ stands above and below the fraction line; "
              "only differences between scores count."),
    Step("A score is q·k divided by √d, the root of the head’s width: √{width} = {sqrt}.", _KEYS,
         "0.4", 11, 10, figure="shares", divisor=1.0, spot="figure",
         ask="What would the largest share be without the division?",
         choices=("{max}, as it is", "nearly 1", "nearer to the others"), right=1,
         told="{max 1}. Without the division all differences are {sqrt} times as large, and a "
              "difference of scores is a ratio of shares: nearly all goes to one token.",
         holds=lambda run: run.largest("0.4", 11) < 0.6
         and run.largest("0.4", 11, divisor=1.0) > 0.95),
    Step("Why the root? Products of two vectors of d random numbers with variance 1 have variance "
         "d (Vaswani et al. 2017). First 2,000 products of {width} such numbers, drawn by this "
         "page: their standard deviation is {random}. Then the same over {sqrt}: {random sqrt}. So "
         "scores of an untrained head have one size, whatever d is. Move the divisor: a factor "
         "beside √d is a temperature.", _KEYS, "0.4", 11, 10, figure="products",
         spot="figure"),
    Step("Why does size matter? A share p changes by p(1 − p) for each unit of its score. For the "
         "largest share that is {slope} with the division and {slope 1} without it: there, hardly "
         "anything that training could follow.", _KEYS, "0.4", 11, 10, figure="shares",
         spot="figure",
         holds=lambda run: run.largest("0.4", 11) < 0.6
         and run.largest("0.4", 11, divisor=1.0) > 0.95),
    Step("Then why several heads? Say four keys stand at right angles, and the mean of values a "
         "and b is wanted. One head asks for both keys with one query, 20 (a + b). Or two heads "
         "ask for one each, and their outputs are averaged. Here both give ½ of a: all keys have "
         "length 1.", _KEYS, "0.4", 11, 10, figure="heads", noise=0.5, spot="figure",
         ask="Now the length of key a varies. Whose output varies more?",
         choices=("that of one head", "that of two heads", "both alike"),
         told="That of one head: at a variance of ½ its share of a has a standard deviation of "
              "{spread 1 0.5}, that of two heads {spread 2 0.5}. One softmax takes whichever key "
              "is longer, nearly all of it. Of two heads each still finds its own key, until that "
              "has nearly no length (Stanford CS224N). Move the variance."),
    Step("Now it is yours: move the divisor, choose another head or another row.", _KEYS, "0.4", 11,
         10, figure="shares", spot="figure"),
))  # fmt: skip
"""Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, 3.2.1), and an exercise on
self-attention of Stanford's CS224N: one head against two."""

POSITIONS = Lesson("positions", "What positions do", "the same word at six places", (
    Step("A token enters as the sum of two vectors: what it is and where it stands. Here is one "
         "token six times, so that only places differ. 0.5 looks from the last one at the one "
         "before it: {w 0.5 6 5}.", _DOGS, "0.5", key=5, spot="river",
         holds=lambda run: run.w("0.5", 6, 5) > 0.5),
    Step("Now the same position vector, the mean of all, goes to every place.", _DOGS, "0.5", key=5,
         places=False, spot="map", hides="map", ask="Where does the last one look in 0.5?",
         choices=("still at the one before", "at all six alike", "at the first one"), right=1,
         told="At all six alike: {w 0.5 6 5} on the one before, {w 0.5 6 1} on the first. Equal "
              "vectors have equal keys, so in layer 0 nothing tells these tokens apart.",
         holds=lambda run: abs(run.w("0.5", 6, 5) - run.w("0.5", 6, 1)) < 1e-5),
    Step("Other words, with their places. 1.4 looks at the token before: {was w 1.4 11 10} from "
         "the last.", _NIGHT, "1.4", key=10, places=False, spot="map", hides="map",
         ask="And without places?", choices=("as before", "it loses the token before"), right=1,
         told="{w 1.4 11 10}: it has lost it. The token before is found by places.",
         holds=lambda run: run.before.w("1.4", 11, 10) > 0.8 and run.w("1.4", 11, 10) < 0.5),
    Step("The model expected gold here, with {was p gold}, since night came before gold.",
         _NIGHT,
         "2.0", key=6, places=False, hides="words", ask="Without places, does it still?",
         choices=("yes", "no"), right=1,
         told="No: {p gold}. What comes next cannot be found without what came before what.",
         holds=lambda run: run.before.p(" gold") > 0.5 and run.p(" gold") < 0.05),
    Step("Is all order gone? The mask still lets a token see only those before it, so that each "
         "mixes more of them than the one before did.", _DOGS, "1.5", key=5, places=False,
         spot="map", hides="map", ask="Can a head of layer 1 tell equal tokens apart?",
         choices=("yes", "no"),
         told="Yes: 1.5 gives {w 1.5 6 1} to the first and {w 1.5 6 6} to the last. Causal models "
              "learn some order without position vectors (Haviv et al. 2022).",
         holds=lambda run: run.w("1.5", 6, 6) > 1.5 * run.w("1.5", 6, 1)),
    Step(f"{_YOURS}, with places or without: the switch stands beside the token.", _DOGS, "0.5",
         spot="river"),
))  # fmt: skip
"""Learned position vectors; what is left without them (Haviv et al. 2022, arXiv:2203.16634)."""

LAYERS = Lesson("layers", "Why induction needs two layers", "what a key can know", (
    Step("From the second river, 2.0 looks at moon: {w 2.0 9 4}. It must know that moon stood "
         "after river. But moon is only moon, at place 4.", _SHORT, "2.0", key=4, spot="cell",
         holds=lambda run: run.w("2.0", 9, 4) > 0.5),
    Step("One word changes: the first river becomes hand. moon stays where it is. 0.5 is a head of "
         "layer 0.", _SHORT, "0.5", key=4, other=_SWAPPED, spot="cell", hides="map",
         ask="Does q·k of river and moon change there?", choices=("yes", "no"), right=1,
         told="No: {was dot} before, {dot} after. In layer 0 a key is made of the token and its "
              "place, and of nothing before it. No head of the first layer can know what stood "
              "before moon.",
         holds=lambda run: all(run.same_key(f"0.{head}", 4) for head in range(6))),
    Step("2.0 is two layers up, and reads what the layers below have written.", _SHORT, "2.0",
         key=4, other=_SWAPPED, spot="cell", hides="map",
         ask="Does it still look at moon, when hand stood before it?", choices=("yes", "no"),
         right=1,
         told="No: {w 2.0 9 4}, where {was w 2.0 9 4} was. By layer 2, moon carries what stood "
         "before it.",
         holds=lambda run: run.before.w("2.0", 9, 4) > 0.5 and run.w("2.0", 9, 4) < 0.1),
    Step("Which heads wrote it there? 0.5 and 1.4 look at the token before. The text is as it was; "
         "now these two go off.", _SHORT, "2.0", key=4, off=_PREVIOUS, spot="cell", hides="map",
         ask="Does 2.0 still look at moon?", choices=("yes", "no"), right=1,
         told="No: {w 2.0 9 4}, where {was w 2.0 9 4} was. One layer writes what stood before, a "
              "later one looks for it: two layers, and no fewer (Elhage et al. 2021).",
         holds=lambda run: run.before.w("2.0", 9, 4) > 0.5 and run.w("2.0", 9, 4) < 0.1),
    Step("Now all heads of layers 1, 2 and 3 go off, and those of layer 0 stay.", _TWICE, "0.5",
         off=_ABOVE, hides="words", ask="Does the model still expect bread after stone?",
         choices=("yes", "no"), right=1,
         told="No: {p bread}, where {was p bread} was.",
         holds=lambda run: run.before.p(" bread") > 0.5 and run.p(" bread") < 0.05),
    Step(f"{_YOURS}. Are there texts on which other heads do it?", _SHORT, "2.0", spot="text"),
))  # fmt: skip
"""Composition of heads (Elhage et al. 2021, A Mathematical Framework for Transformer Circuits)."""

_BUGS = {
    "off by one": ("mask", "the mask is off by one"),
    "scale": ("scale", "no division by √d"),
    "axis": ("softmax", "softmax over the queries"),
    "view": ("view", "a view where a transpose is missing"),
    "merge": ("untranspose", "heads joined without the transpose back"),
}
"""Bugs by the names of ``attnviz check``: the key of the step in the walk, and a choice."""


def _planted(
    bug: str, head: str, say: str, answer: str, *, key: int = 10, spot: str = "map"
) -> Step:
    """Ask which bug layer 0 has; the answer ends with what the walk says of that step."""
    line = reasons()[_BUGS[bug][0]].split(". ")[0].rstrip(".")
    answer = f"{answer} The walk of attnviz shapes: “{line}.” attnviz check calls it {bug}."
    choices = tuple(choice for _, choice in _BUGS.values())
    right = list(_BUGS).index(bug)
    return Step(say, _NIGHT, head, 10 if bug == "off by one" else 11, key, bug=bug, spot=spot,
                ask="Which bug is it?", choices=choices, right=right, told=answer)  # fmt: skip


FIND = Lesson("find", "Find the bug", "five in layer 0, and no shape is wrong", (
    _planted("scale", "0.4", "The attention of layer 0 has been written anew, with one bug. All "
             "shapes are right, and nothing fails. The maps of 0.4 show how it was, and how it is "
             "now.", "Scores are not divided by √d = {sqrt}, so that small differences grow: "
             "{token 10} has {w 0.4 11 10} of the last row, where it had {was w 0.4 11 10}."),
    _planted("axis", "0.5", "Another one. Look at the rows of 0.5, one by one.",
             "Softmax runs over the queries: now every column sums to 1, and the last row to "
             "{sum 0.5 11}."),
    _planted("off by one", "0.5", "A third one, and {token 10} is chosen.",
             "The mask is off by one. Every token sees the next one: {token 10} gives "
             "{w 0.5 10 11} to {token 11}, where nothing went. In training it would read its "
             "answer there.", key=11, spot="cell"),
    _planted("view", "0.5", "A fourth one. Does 0.5 still look at the token before?",
             "A view straight to [B, H, T, d] cuts across tokens. The 12 rows of 0.5 are no longer "
             "12 tokens, but the 6 slices of {token 10} and the 6 of {token 11}: the 6 heads have "
             "2 tokens each."),
    _planted("merge", "0.5", "The last one. Compare the maps of layer 0, then those above and the "
             "next word.", "No map of layer 0 has changed: the bug is behind them. What the heads "
             "read is joined without the transpose back, and W_O mixes different tokens. gold has "
             "{p gold}, where it had {was p gold}.", spot="words"),
    Step(f"{_YOURS}. In a module of your own, attnviz check file.py:Class finds such bugs.", _NIGHT,
         "0.5", spot="text"),
))  # fmt: skip
"""Attention whose shapes are right and whose numbers are not; the page computes each bug itself,
from the layer's own weights."""

LESSONS = (INDUCTION, SOFTMAX, POSITIONS, LAYERS, FIND)
"""Lessons of demo-gpt2, in the order of the page."""
