"""What can be asked of an ablation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnviz.core.settings import POSITIONS, Settings, like, number_or_text, setting
from attnviz.core.split import HALVES, Splitting, check_split
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.features.ablation.fills import MeanOver, Method

MEASURED, CURVE = "What is measured", "How many heads can be removed"

ORDERS, RANDOM_ORDERS = ("effect", "remeasured", "gradient", "role", "random"), 3
_CURVE = re.compile(rf"({'|'.join(ORDERS)})(:\d{{1,4}})?")
OVER_TOKENS = "mean:tokens"
METHODS = "mean, resample"
"""Two that leave what a head always says in its place; see docs/ablate.md for the choice."""

RULE, SOFT = "rule", "soft-rule"
"""Methods that put the weights of a rule in the place of a head's: all of them, or as much as the
head itself has there in the mean, the rest being its mean output. ``rule:NAME`` says which rule."""


def is_rule(method: str) -> bool:
    """Whether a method puts a rule's weights in a head's place, and takes nothing away."""
    return method.partition(":")[0] in (RULE, SOFT)


def is_file(rule: str) -> bool:
    """Whether a rule's name is that of a file, which has a dot as no rule's own has."""
    return "." in rule


@dataclass(frozen=True)
class AblationSettings(Settings):
    """Which heads, what takes their place, and what is measured."""

    select: str | None = setting(
        None,
        "5.1, 2.*, 3.0+3.1 or role:induction. Heads of 2.* are ablated each alone, those of "
        "3.0+3.1, layer:2, a role or all-but:5.1 together; several by comma. By default every head "
        "alone, and the heads of each role together.",
        short="s",
        metavar="HEADS",
        common=True,
    )
    method: str = setting(
        METHODS,
        "What replaces a head's output: zero, mean, resample. A mean is that at each position, or "
        "over all tokens (mean:tokens); to resample is to take its output on another text; plugins "
        "register others (av.fill). Of several, comma-separated, the first ranks effects, and two "
        "must agree before a head is called needed. rule stands beside them: the weights that the "
        "rule of its role gives (rule:NAME, any rule; rule:FILE.json, those that attnviz profile "
        "found row by row; soft-rule, as much of them as the head has there): how much of the "
        "first one's effect do they keep?",
        metavar="METHODS",
        common=True,
    )
    draws: int | None = setting(
        None,
        "Number of other texts to resample from, for each text.",
        least=1,
        most=10_000,
        shown="1, and more for a few texts",
    )
    seed: int = setting(0, "Seed of masks, halves, resampling and random orders.", least=0)
    stability: bool = setting(
        False,
        "Also say what every effect is without the text that moves it most (jackknife).",
        panel=MEASURED,
    )
    batch_tokens: int | None = setting(
        None, "Largest number of tokens run at once.", least=1, shown="by memory"
    )
    metric: Any = setting(
        None,
        "loss, kl, logit-diff or hidden. The last is 1 - cosine of the last hidden states; plugins "
        "register others (av.metric).",
        panel=MEASURED,
        metavar="METRIC",
        shown="loss, or hidden for models without an LM head",
        common=True,
    )
    answer: str | None = setting(
        None, "For logit-diff: the right token.", panel=MEASURED, metavar="TOKEN", common=True
    )
    against: str | None = setting(
        None, "For logit-diff: the other token.", panel=MEASURED, metavar="TOKEN", common=True
    )
    position: str | int | None = setting(
        None,
        "Measure on these tokens alone. " + POSITIONS,
        panel=MEASURED,
        metavar="TOKENS",
        parser=number_or_text,
    )
    mask: Literal["some", "each"] = setting(
        "some", "For masked models: mask some tokens (15 %), or each in turn.", panel=MEASURED
    )
    by: Literal["head", "position"] = setting(
        "head", "The effect on a whole text, or on each of its tokens.", panel=MEASURED
    )
    estimate: Literal["plain", "layer"] | None = setting(
        None,
        "Also estimate every effect by its gate's gradient. As it is (plain), or normalized within "
        "each layer (Michel et al. 2019).",
        panel=MEASURED,
        bare="plain",
        common=True,
    )
    average: Literal["median", "trimmed", "mean"] = setting(
        "median",
        "Over texts: the median of the texts' own means, which is the typical text; their trimmed "
        "mean (a tenth goes at each end), or the mean of all positions. Medians alone have "
        "intervals that hold for all heads at once.",
        panel=MEASURED,
    )
    smallest: float = setting(
        0.01,
        "Smallest effect of interest, as a share of the metric on the full model.",
        panel=MEASURED,
        metavar="SHARE",
        least=0,
    )
    curve: str | None = setting(
        None,
        "Ablate heads cumulatively, in this order. By effect, remeasured, gradient, role or "
        "random, the least important first: ordered on half of the texts, measured on the other "
        "half; remeasured ranks the rest again after every tenth. Three random orders stand "
        "beside, or as many as are said: effect:20.",
        panel=CURVE,
        metavar="ORDER[:N]",
        bare="effect",
        common=True,
    )
    split: str = like(
        Splitting,
        "split",
        help="Part of the texts that a curve's order is chosen on; its cost is from the other: "
        "halves (those that fill each other), a share by a hash of each (hash:0.5), those with a "
        "value of a field of {texts} (field:NAME, field:NAME=VALUE), or both on everything (all).",
        panel=CURVE,
        common=False,
    )
    tolerance: float = setting(
        0.05, "Largest increase of the metric that a curve may cost.", panel=CURVE, least=0
    )

    @property
    def mean_over(self) -> MeanOver:
        """What a mean is over: each position by itself, or all tokens."""
        return "tokens" if OVER_TOKENS in self._methods else "positions"

    @property
    def _methods(self) -> list[str]:
        return [name.strip() for name in self.method.split(",")]

    @property
    def methods(self) -> tuple[Method, ...]:
        """What takes a head's output away, one after the other; the mean for rules alone."""
        names = ("mean" if name == OVER_TOKENS else name for name in self._methods)
        return tuple(dict.fromkeys(name for name in names if not is_rule(name))) or ("mean",)

    @property
    def rules(self) -> tuple[Method, ...]:
        """The methods that put a rule's weights in a head's place."""
        return tuple(dict.fromkeys(filter(is_rule, self._methods)))

    @property
    def order(self) -> str | None:
        """In which order a curve ablates heads; None for no curve."""
        return None if self.curve is None else self.curve.partition(":")[0]

    @property
    def random_orders(self) -> int:
        """How many random orders stand beside a curve."""
        number = (self.curve or "").partition(":")[2]
        return int(number) if number else RANDOM_ORDERS

    def check(self) -> None:
        """Raise UsageError for what does not exist or does not go together."""
        if self.answer is None and self.against is not None:
            raise UsageError(
                "{answer} and {against} go together: the token that should win, and the other",
                answer=...,
                against=...,
            )
        if self.metric == "logit-diff" and self.answer is None:
            raise UsageError(
                "logit-diff compares two tokens; name them with {answer} and {against}",
                answer=...,
                against=...,
            )
        if self.answer is not None and self.metric not in (None, "logit-diff"):
            raise UsageError(
                "{answer} is for the metric logit-diff, not {}", self.metric, answer=...
            )
        if self.curve is not None and _CURVE.fullmatch(self.curve) is None:
            raise UsageError(
                "{curve} takes {}, or with the number of random orders beside it, from 0 to 9999, "
                "such as effect:20, not {!r}",
                ", ".join(ORDERS),
                self.curve[:40],
                curve=...,
            )
        if self.draws is not None and "resample" not in self.methods:
            raise UsageError("{draws} is of resample; add it to {method}", draws=..., method=...)
        check_split(self.split)
        if self.split != HALVES and self.curve is None:
            raise UsageError("{split} is of a curve; add {curve}", split=self.split, curve=...)
        if self.order == "gradient" and self.estimate is None:
            raise UsageError("an order by gradient needs {estimate}", estimate=...)
        self._check_registered()

    def _check_registered(self) -> None:
        """Raise UsageError for a method or metric that there is not."""
        from attnviz.interventions.metrics import names
        from attnviz.scoring.rules import named
        from attnviz.scoring.user_measures import FILLS, UserMetric

        for method in self.rules:
            name = method.partition(":")[2]
            if ":" in method and not is_file(name):
                named(name)
        methods = ("zero", "mean", "resample", *FILLS)
        for name in self.methods:
            if name not in methods:
                raise UsageError(
                    "unknown method {!r}; choose one of {}, or several by comma",
                    name,
                    ", ".join((*methods, RULE, SOFT)),
                )
        custom = isinstance(self.metric, UserMetric | None) or callable(self.metric)
        if not custom and self.metric not in names():
            raise UsageError(
                "no {metric}; choose one of {}", ", ".join(names()), metric=self.metric
            )
