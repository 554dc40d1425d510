"""No page and no saved result has a path of the machine, whichever command writes it."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnviz.cli import main
from attnviz.core.provenance import own_name
from attnviz.features.listed import FEATURES
from attnviz.models.folder import locate
from attnviz.web.written import read_page
from tests import ROOT

pytestmark = pytest.mark.usefixtures("few_sentences")

NOBODYS = "a-folder-of-nobody"
SAMPLES = (
    "story.txt", "treebank.conllu", "pronouns.tsv", "questions.jsonl", "repeats.jsonl",
    "pairs.jsonl", "needles.jsonl", "trace.txt", "recorded.npz", "my_scores.py",
)  # fmt: skip
MODEL = "-m {folder}/mine"
TEXT = '"the cat river the cat river"'
COMMANDS = {
    "heads": ("heads @{folder}/story.txt --plugin {folder}/my_scores.py", "json csv svg"),
    "heads of a file": ("heads --recorded {folder}/recorded.npz", "json"),
    "explain": (f"explain {TEXT}", "json html"),
    "heatmap": (f"heatmap {TEXT} --select @{{folder}}/circuit.json", "svg"),
    "view": ("view --texts {folder}/few.txt", "html"),
    "view of a file": ("view --recorded {folder}/recorded.npz", "html"),
    "view of two": ("view --texts {folder}/few.txt --other-model {folder}/other", "html"),
    "live": ("live --select @{folder}/circuit.json", "html"),
    "profile": ("profile {folder}/broken.txt --select 1.4", "json html csv parquet"),
    "ablate": ("ablate --texts {folder}/few.txt --select 0.5", "json svg"),
    "patch": ("patch {folder}/pairs.jsonl --circuit", "json html dot"),
    "knockout": ("knockout {folder}/repeats.jsonl --select 1.4 --draws 1 --limit 6", "json html"),
    "thoughts": ("thoughts {folder}/trace.txt", "json html"),
    "syntax": ("syntax {folder}/nameless.conllu {folder}/treebank.conllu", "json svg"),
    "coref": ("coref {folder}/pronouns.tsv", "json"),
    "spans": (
        "spans {folder}/questions.jsonl --fields context=doc,question=q,answer=a", "json csv",
    ),
    "sinks": ("sinks --texts {folder}/few.txt", "json"),
    "retrieval": (
        "retrieval {folder}/needles.jsonl --lengths 120 --depths 0.5 --count 12 --group-size 1"
        " --draws 1 --control 0", "json",
    ),
    "logits": (f"logits {TEXT}", "json"),
    "lens": (f"lens {TEXT}", "json html"),
    "lens by head": ("lens --texts {folder}/few.txt --by head", "json html"),
    "sources": ("sources --texts {folder}/few.txt --select 1.4", "json"),
    "flow": (f"flow {TEXT}", "json html"),
    "circuits": ("circuits --sample 50", "json"),
    "film": ("film --texts {folder}/few.txt -m {folder}/tuning/step-*", "json html"),
    "atlas": ("atlas --texts {folder}/broken.txt --gold {folder}/treebank.conllu", "json html"),
    "diff": (
        f'diff {TEXT} "the dog river the dog river" --align position',
        "json html",
    ),
    "diff of files": ("diff {folder}/one.json {folder}/two.json", "json"),
    "show": ("show {folder}/one.json", "csv"),
    "card": ("card {folder}/mine --texts {folder}/few.txt", "md"),
    "capture": (f"capture {TEXT}", "npz"),
    "check": ("check {folder}/recorded.npz", "json"),
    "models": ("models --show {folder}/mine", "json"),
    "export": ("export {folder}/few.txt --select 1.4", "folder"),
}  # fmt: skip
"""What is typed, and the endings of what it writes; a model of its own where it takes one."""
WITHOUT_MODEL = (
    "heads of a file", "view of a file", "film", "diff of files", "show", "card", "check", "models",
)  # fmt: skip
SLOW = (
    "heatmap", "live", "patch", "knockout", "thoughts", "spans", "ablate", "retrieval", "sinks",
    "view of two",
)  # fmt: skip
NO_FILES = ("help", "shapes", "glossary", "tour", "mcp", "demo")
"""Commands that read no file and no model, or that write nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("nameless") / NOBODYS
    place.mkdir()
    for name in SAMPLES:
        shutil.copy(ROOT / "sample_inputs" / name, place / name)
    lines = (ROOT / "sample_inputs" / "sentences.txt").read_text("utf-8").splitlines(True)
    broken = b"\xff\xfe is no text\n"
    (place / "few.txt").write_text("".join(lines[:3]), encoding="utf-8")
    (place / "broken.txt").write_bytes("".join(lines[:3]).encode() + broken)
    grammar = (place / "treebank.conllu").read_text("utf-8")
    (place / "nameless.conllu").write_text(re.sub(r"(?m)^# sent_id.*\n", "", grammar))
    (place / "tuning").mkdir()
    for name in ("mine", "other", "tuning/step-1", "tuning/step-2"):
        (place / name).symlink_to(locate("demo-gpt2").folder)
    typed = f"-m {place}/mine --quiet"
    for name in ("one", "two"):
        assert main(shlex.split(f"heads {TEXT} {typed} -o {place}/{name}.json")) == 0
    return place


def held(path: Path) -> Iterator[bytes]:
    """What a file says, packed parts too."""
    data = path.read_bytes()
    yield data
    if path.suffix == ".html":
        document = read_page(data)
        yield json.dumps(document).encode()
        for packed in re.findall(rb">([\w+/]{200,}=*)<", data):
            try:
                yield zlib.decompress(base64.b64decode(packed))
            except (ValueError, zlib.error):
                continue
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as parts:
            yield from map(parts.read, parts.namelist())
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow.parquet")
        table = pyarrow.read_table(path)
        yield repr((table.to_pydict(), table.schema.metadata)).encode()


@pytest.fixture(scope="module")
def circuit(folder: Path) -> Path:
    out = folder / "circuit.json"
    typed = f"patch --task gender --count 16 --circuit 4 -m {folder}/mine --quiet -o {out}"
    assert main(shlex.split(typed)) == 0
    return out


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in COMMANDS]
)
def test_what_is_saved_has_no_path(
    folder: Path, name: str, tmp_path: Path, monkeypatch: Any, request: Any
) -> None:
    monkeypatch.setattr("attnviz.features.atlas.function.MEASURED_HEADS", 1)
    typed, endings = COMMANDS[name]
    if "circuit.json" in typed:
        request.getfixturevalue("circuit")
    if name not in WITHOUT_MODEL:
        typed += f" {MODEL}"
    outs = [folder / f"{tmp_path.name}.{ending}" for ending in endings.split()]
    options = " ".join(("--quiet", *(f"-o {out}" for out in outs)))
    assert main(shlex.split(f"{typed.format(folder=folder)} {options}")) in (0, 3)
    for out in outs:
        written = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else [out]
        assert written
        for path in written:
            for data in held(path):
                at = data.find(NOBODYS.encode())
                assert at < 0, (path.name, data[max(0, at - 80) : at + 60])


def test_every_command_is_here() -> None:
    names = {typed.split()[0] for typed, _ in COMMANDS.values()}
    assert names | set(NO_FILES) >= {feature.command for feature in FEATURES}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("/home/me/data/a.txt:3", "a.txt:3"), ("~/a.txt", "a.txt"), ("../../me/a.txt", "a.txt"),
        ("data/a.txt:3", "data/a.txt:3"), ("standard input", "standard input"),
        ("text 4", "text 4"),
    ],
)  # fmt: skip
def test_a_file_is_called_by_its_own_name(given: str, said: str) -> None:
    assert own_name(given) == said
