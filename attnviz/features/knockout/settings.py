"""What can be asked of a knockout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.settings import Settings, setting
from attnviz.errors import UsageError

MEASURED, CUT = "What is measured", "What is cut"
REDIRECT = "redirect:"
CUTS = ("mask", "rescale", "zero")
OF_ANSWER = ("logit-diff", "prob", "log-prob")
"""Metrics of a token that is named."""


@dataclass(frozen=True)
class KnockoutSettings(Settings, panel=CUT):
    """Which edges are cut, how, and what is measured."""

    rows: str | None = setting(
        None,
        "Query tokens to cut off: last, all, or spans by comma. By default all spans and the last "
        "token.",
        metavar="ROWS",
        shown="",
        common=True,
    )
    keys: str | None = setting(
        None,
        "Key tokens to cut them off from: spans, before (all before these), sink, punctuation or "
        "all, by comma. By default every span.",
        metavar="KEYS",
        shown="",
        common=True,
    )
    select: str | None = setting(
        None,
        "Also cut these heads separately: 5.1, 2.* (each alone), 3.0+3.1 or role:induction "
        "(together).",
        short="s",
        metavar="HEADS",
        common=True,
    )
    window: int | None = setting(
        None,
        "Also cut all heads of K layers, around each layer in turn.",
        metavar="K",
        least=1,
        most=10_000,
        common=True,
    )
    cut: str = setting(
        "mask",
        "mask, rescale or zero. Mask before softmax, so that a row's other keys share the weight; "
        "rescale the row after it to what it was; or zero, and the row loses it. Or "
        "redirect:NAME, which moves the weight to a span.",
        metavar="HOW",
    )
    draws: int = setting(
        3,
        "Random controls of each cut, in which the same rows lose as much weight from other keys; "
        "0 for none.",
        least=0,
        most=1000,
    )
    metric: Literal["loss", "kl", "logit-diff", "prob", "log-prob"] | None = setting(
        None,
        "loss, kl, logit-diff, prob or log-prob. Loss and KL at the queries that are cut off and "
        "after them; the others of the token that {answer} names.",
        panel=MEASURED,
        shown="of an answer logit-diff or prob, else kl",
    )
    answer: str | None = setting(
        None,
        "The expected next token. In a file: the field answer.",
        panel=MEASURED,
        metavar="TOKEN",
        common=True,
    )
    against: str | None = setting(
        None,
        "The competing token. In a file: the field against.",
        panel=MEASURED,
        metavar="TOKEN",
        common=True,
    )
    seed: int = setting(0, "Seed of random controls and masks.", least=0)
    batch_tokens: int | None = setting(
        None, "Largest number of tokens run at once.", least=1, shown="by memory"
    )

    @property
    def instead(self) -> str | None:
        """The span that weight is moved to; None where it is not moved."""
        name = self.cut.removeprefix(REDIRECT)
        return name if name != self.cut else None

    def check(self) -> None:
        """Raise UsageError for what does not exist or does not go together."""
        if self.cut not in CUTS and not self.instead:
            raise UsageError("{cut} is mask, rescale, zero or redirect:NAME", cut=self.cut[:40])
        if self.against is not None and self.answer is None:
            raise UsageError(
                "{against} is what an {answer} is set against; give both", against=self.against,
                answer=...,
            )  # fmt: skip
        if self.answer is not None and self.metric in ("loss", "kl"):
            raise UsageError(
                "{answer} is for logit-diff, prob and log-prob, not for {metric}",
                answer=self.answer,
                metric=self.metric,
            )
        for names in (self.rows, self.keys):
            if names is not None and not all(part.strip() for part in names.split(",")):
                raise UsageError("parts are names with commas between them, not {!r}", names[:40])


def listed(names: str | None) -> tuple[str, ...]:
    """Names with commas between them; none for None."""
    return tuple(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))
