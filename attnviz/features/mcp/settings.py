"""What tools take beside the settings of the functions behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from attnviz.core.model_entry import DEFAULT_MODEL
from attnviz.core.settings import Settings, setting
from attnviz.features.mcp.results import Form


@dataclass(frozen=True)
class ToolSettings(Settings):
    """Texts, files and models by name, and what comes back."""

    text: str | None = setting(None, "What the model reads.")
    pair: str | None = setting(None, "A second sentence, for models with segments (BERT).")
    recorded: str | None = setting(None, "A kept .npz in place of {text}.")
    texts: str | None = setting(None, "A file with a text per line, in place of {text}.")
    files: str | None = setting(
        None,
        "A file of texts (one a line, .jsonl, .csv, .tsv or .parquet), or a treebank (CoNLL-U).",
    )
    spans: Mapping[str, str] | None = setting(
        None, 'Name to the words ("the table"), "all:WORDS" or "regex:PATTERN".'
    )
    probe: bool = setting(False, "Repeated random tokens, which tell induction heads.")
    evidence: tuple[str, ...] | None = setting(None, "Kept results whose roles to add.")
    model: str = setting(
        DEFAULT_MODEL,
        "demo-gpt2, demo-bert, an allowed folder, or a hub id that is in the local cache.",
    )
    other_model: str | None = setting(None, "The model to compare with, on {text}.")
    clean: str | None = setting(None, "A prompt, with {corrupted} and {answer}.")
    corrupted: str | None = setting(None, "The prompt without what the answer needs.")
    answer: str | None = setting(None, "The word that should win.")
    against: str | None = setting(None, "The word that {answer} is held against.")
    pairs: str | None = setting(None, "A .jsonl file of pairs.")
    before: str | None = setting(None, "A kept result.")
    after: str | None = setting(None, "Another of its kind.")
    file: str | None = setting(None, "A kept result; without it what there is.")
    select: str | None = setting(None, "Heads: 2.0, or 1.4, 3.*; few, since each is a table.")
    first: int = setting(0, "The number of the first row.", least=0)
    limit: int = setting(20, "Take at most the first N texts.", least=1)
    save: Form | None = setting(
        None, "Also write it in this form; html: of explain, and of patch with circuit."
    )
    picture: bool = setting(False, "Also a PNG.")


Kind = Literal["file", "model", "selection"]

REACHES: Mapping[str, Kind] = {
    **dict.fromkeys(
        ("recorded", "texts", "files", "evidence", "pairs", "before", "after", "file"), "file"
    ),
    **dict.fromkeys(("model", "other_model"), "model"),
    **dict.fromkeys(("select", "without", "paths"), "selection"),
}  # fmt: skip
"""What may lead to a file, by the name of the argument, whichever tool has it."""
