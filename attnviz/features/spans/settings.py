"""What can be asked of spans, and of a file of questions with documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnviz.captures.settings import MapSettings
from attnviz.core.parsing import fields
from attnviz.core.settings import Settings, like, setting
from attnviz.corpus.gold.settings import GoldSettings
from attnviz.errors import UsageError

DOCUMENTS = "Documents (TEXT is a .jsonl file)"
FIELDS = ("question", "context", "gold", "answer")


@dataclass(frozen=True)
class SpansSettings(Settings):
    """Whose weight is measured, and of what."""

    from_: str | None = setting(
        None,
        "Whose weight: last, all, or a span. That is, the last token's, every token's, or that of "
        "a named part.",
        metavar="ROWS",
        shown="last; of documents, answer",
        common=True,
    )
    quantity: str = like(MapSettings, "quantity")


@dataclass(frozen=True)
class DocumentSettings(GoldSettings):
    """Which fields of a file of questions are what, and how heads are chosen."""

    fields: Mapping[str, str] | None = setting(
        None,
        "The fields of a file of questions. As question=FIELD, context=FIELD (the right document, "
        "or a list of them), answer=FIELD, and gold=FIELD, the number of the right one, from 0 "
        "(by default the first is right).",
        panel=DOCUMENTS,
        metavar="NAME=FIELD,...",
        parser=fields(*FIELDS),
        typed=str,
        shown="",
        common=True,
    )
    distractors: int = setting(
        3,
        "Number of documents from other lines to put beside a single one.",
        panel=DOCUMENTS,
        least=1,
        most=1000,
    )
    split: str = like(GoldSettings, "split", panel=DOCUMENTS, common=False)
    strict: bool = like(GoldSettings, "strict", panel=DOCUMENTS)
    seed: int = setting(0, "Seed of the documents that are drawn.", least=0, most=(1 << 63) - 1)

    def check(self) -> None:
        """Raise UsageError for no such split, or a field that means nothing here."""
        super().check()
        for name in self.fields or {}:
            if name not in FIELDS:
                raise UsageError("{fields} takes {}, not {!r}", ", ".join(FIELDS), name, fields=...)

    def _field(self, name: str) -> str:
        return (self.fields or {}).get(name, name)

    @property
    def question(self) -> str:
        """The field with the question."""
        return self._field("question")

    @property
    def context(self) -> str:
        """The field with the right document, or a list of documents."""
        return self._field("context")

    @property
    def answer(self) -> str:
        """The field with the answer."""
        return self._field("answer")

    @property
    def gold(self) -> str | None:
        """The field with the number of the right document in the list."""
        return (self.fields or {}).get("gold")
