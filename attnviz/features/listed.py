"""Which features there are: the one list of commands, public names and results.

A new feature is one folder and one row here. What is imported by nothing but ``import attnviz``
imports nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

LOOK, MEASURE, KEEP, SERVE, LEARN = "Input", "Measure", "Keep", "Serve", "Learn"
_TEXT = 'a text, such as "The cat sat"'


class Feature(NamedTuple):
    """A command, and what its folder has for Python and for files."""

    command: str  # its name; a function of that name is in ``command.py``.
    group: str  # where it stands in ``--help``
    needs: str = ""  # what it cannot do without, for who gives nothing; empty for nothing
    folder: str = ""  # in ``features/``, where that has another name than the command
    # public names as ``module.name``; by default the function of the command's name.
    names: Sequence[str] | None = None
    result: str = ""  # the class in ``result.py`` whose schema has the command's name
    results: Mapping[str, str] = {}  # those of other schemas that it writes, as ``module.Class``.

    @property
    def package(self) -> str:
        """The folder as Python imports it."""
        return f"attnviz.features.{self.folder or self.command}"

    @property
    def written(self) -> Mapping[str, str]:
        """The class of each schema that it writes, as ``module.Class``."""
        own = {self.command: f"result.{self.result}"} if self.result else {}
        return {**own, **self.results}

    @property
    def public(self) -> Mapping[str, str]:
        """The module of each public name."""
        listed = (f"function.{self.command}",) if self.names is None else self.names
        parts = [name.rpartition(".") for name in listed]
        return {name: f"{self.package}.{module}" for module, _, name in parts}


FEATURES = (
    Feature("heads", LOOK, _TEXT, names=("result.Heads", "function.heads"), result="Heads"),
    Feature("explain", LOOK, _TEXT, result="Explain"),
    Feature("heatmap", LOOK, _TEXT),
    Feature("view", LOOK, _TEXT),
    Feature("live", LOOK),
    Feature(
        "profile", MEASURE, names=("function.merge_profiles", "function.profile"), result="Profile"
    ),
    Feature(
        "ablate",
        MEASURE,
        _TEXT,
        folder="ablation",
        names=("function.ablate", "prune.prune_heads"),
        result="Ablation",
    ),
    Feature(
        "patch",
        MEASURE,
        "pairs: --task induction, two texts with --answer, or a .jsonl file",
        names=("pairs.Pair", "function.patch"),
        result="Patch",
    ),
    Feature(
        "knockout",
        MEASURE,
        "a text with --span NAME=TEXT, or --keys before; or a .jsonl file of texts",
        result="Knockout",
    ),
    Feature(
        "thoughts",
        MEASURE,
        "a file with a reasoning trace, or a --chat with --generate N",
        result="Thoughts",
    ),
    Feature(
        "syntax", MEASURE, "a treebank, such as sample_inputs/treebank.conllu", result="Syntax"
    ),
    Feature(
        "coref",
        MEASURE,
        "a table of pronouns or a treebank with entities, such as sample_inputs/pronouns.tsv",
        result="Coref",
    ),
    Feature(
        "spans",
        MEASURE,
        "a text with --span NAME=TEXT, a --chat, or a .jsonl file of questions",
        result="Spans",
    ),
    Feature("sinks", MEASURE, _TEXT, result="Sinks"),
    Feature("retrieval", MEASURE, result="Retrieval"),
    Feature(
        "logits",
        MEASURE,
        _TEXT,
        names=("function.logits", "function.writers"),
        results={"logits": "result.Logits", "writers": "result.Writers"},
    ),
    Feature("lens", MEASURE, _TEXT, result="Lens"),
    Feature(
        "sources",
        MEASURE,
        'a text and --select HEAD, such as "The cat sat" --select 2.0',
        results={"source-shares": "result.SourceShares", "sources": "result.Sources"},
    ),
    Feature("flow", MEASURE, _TEXT, result="Flow"),
    Feature("circuits", MEASURE, result="Circuits"),
    Feature(
        "film",
        MEASURE,
        "--model PATTERN and --texts FILE, or a film that is there already",
        names=("function.film", "callback.HeadsCallback", "track.track"),
        result="Film",
    ),
    Feature("atlas", MEASURE, result="Atlas"),
    Feature(
        "diff",
        MEASURE,
        "two captures, reports or texts, or a text and --other-model MODEL",
        result="Diff",
    ),
    Feature(
        "show",
        KEEP,
        "a file that attnviz wrote, such as sample_inputs/phases/repeats-2.json",
        names=(),
    ),
    Feature(
        "card", KEEP, "a model, such as demo-gpt2", names=("function.card", "function.stale_card")
    ),
    Feature("capture", KEEP, "a text and --out FILE", names=()),
    Feature(
        "check",
        KEEP,
        "a file of recorded attention, or file.py:Class",
        results={"check": "result.FileCheck", "module-check": "result.ModuleCheck"},
    ),
    Feature("export", KEEP, "files of texts and --out FOLDER"),
    Feature("mcp", SERVE, names=()),
    Feature("shapes", LEARN, "sizes, such as --d-model 512 --heads 8", result="Answer"),
    Feature(
        "models",
        LEARN,
        names=(),
        results={
            "model": "result.ModelCard",
            "models": "result.Models",
            "families": "result.Families",
        },
    ),
    Feature("demo", LEARN, folder="tour", names=()),
    Feature("help", LEARN, folder="glossary", names=()),
)
"""In the order of ``--help``."""
