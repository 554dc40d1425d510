"""Every command that runs a model, in every precision and device: a result, or one line."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pytest
import torch

from attnviz.cli import COMMANDS
from attnviz.models.demo import DEMOS
from attnviz.models.device import DTYPES
from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("few_sentences")

SAMPLES = Path(__file__).parents[2] / "sample_inputs"
TEXT = "the cat and the dog and the cat"
PAIR = ("The cat sat on the mat.", "The dog sat on the mat.")
LINES: dict[str, tuple[str, ...]] = {
    "heads": ("heads", TEXT), "heads --probe": ("heads", TEXT, "--probe"),
    "heads of norms": ("heads", TEXT, "--quantity", "norm"),
    "explain": ("explain", "the cat the"), "heatmap": ("heatmap", TEXT, "--select", "0.1"),
    "view": ("view", TEXT, "-o", "view.html"), "profile": ("profile", "few.txt"),
    "profile --select": ("profile", "few.txt", "--select", "0.0"),
    "ablate": ("ablate", TEXT, "--select", "0.*"),
    "ablate a file": ("ablate", "--texts", "few.txt", "--select", "0.*"),
    "ablate --estimate": ("ablate", TEXT, "--select", "0.0", "--method", "zero", "--estimate"),
    "patch": ("patch", "--task", "induction", "--count", "4", "--select", "0.*"),
    "knockout": ("knockout", TEXT, "--span", "a=the cat", "--draws", "1", "--select", "0.0"),
    "thoughts": ("thoughts", "trace.txt", "--draws", "2"),
    "thoughts --resample": ("thoughts", "trace.txt", "--draws", "2", "--resample", "2"),
    "syntax": ("syntax", "treebank.conllu"), "coref": ("coref", str(SAMPLES / "pronouns.tsv")),
    "spans": ("spans", TEXT, "--span", "a=the cat"), "sinks": ("sinks", TEXT),
    "retrieval": ("retrieval", "--lengths", "40", "--depths", "0.5", "--count", "2",
                  "--control", "0"),
    "logits": ("logits", TEXT),
    "lens": ("lens", TEXT, "--by", "head"),
    "sources": ("sources", TEXT, "--select", "1.0"),
    "flow": ("flow", TEXT),
    "flow --method rollout": ("flow", TEXT, "--method", "rollout"),
    "circuits": ("circuits", "--sample", "20"),
    "film": ("film", "--model", "demo-gpt[0-9]", "--texts", "few.txt"),
    "atlas": ("atlas", "--texts", "few.txt", "-o", "atlas.html"),
    "diff": ("diff", *PAIR, "--align", "position"),
    "capture": ("capture", TEXT, "--out", "capture.npz"),
    "export": ("export", "few.txt", "--out", "out"),
    "card": ("card", "MODEL", "--texts", "few.txt", "-o", "card.md"),
}  # fmt: skip
QUICK = [(name, "demo-gpt2", "bfloat16", "cpu") for name in
         ("heads", "profile --select", "sources", "logits", "ablate --estimate")]  # fmt: skip
"""One for each way in which weights, products and gradients are taken; explain runs three."""
OF_NO_MODEL = {"live", "show", "check", "mcp", "shapes", "models", "demo", "help"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with short inputs of every kind, and a model under two names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNVIZ_CACHE", "off")
    Path("few.txt").write_text("the cat sat\nthe dog and the cat\na dog sat on the cat\n")
    Path("trace.txt").write_text("The cat sat. The dog ran. She saw the cat. It was old.")
    whole = (SAMPLES / "treebank.conllu").read_text().split("\n\n")
    Path("treebank.conllu").write_text("\n\n".join(whole[:12]) + "\n\n")
    for name in ("demo-gpt1", "demo-gpt2"):
        shutil.copytree(DEMOS["demo-gpt2"], name)
    return tmp_path


def test_every_command_is_here() -> None:
    assert {line[0] for line in LINES.values()} == set(COMMANDS) - OF_NO_MODEL


DEVICES = ("cpu", "cuda")[: 1 + torch.cuda.is_available()]


@pytest.mark.parametrize(
    ("name", "model", "dtype", "device"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
     for case in product(LINES, ("demo-gpt2", "demo-bert"), DTYPES[1:], DEVICES)],
)  # fmt: skip
def test_every_command_runs_in_every_precision(
    name: str, model: str, dtype: str, device: str, folder: Path, capsys
) -> None:
    line = [model if word == "MODEL" else word for word in LINES[name]]
    line += [] if "--model" in line or model in line else ["--model", model]
    code, out, err = call(capsys, *line, "--dtype", dtype, "--device", device)
    if model == "demo-gpt2":
        assert code in (0, 3, 4, 5), err
    else:  # some commands are of causal models
        assert code in (0, 1, 2, 3, 4, 5), err
    assert out or err
