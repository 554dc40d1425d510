"""What the command line says to mistakes, word for word: ``messages.txt`` is a transcript.

With ``$ATTNVIZ_KEEP`` the test writes it anew; read the difference before it is committed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from attnviz.cli import main
from attnviz.cli.console import Log, Stages
from attnviz.models.demo import DEMOS

TRANSCRIPT = Path(__file__).with_name("messages.txt")
PAGE_SIZE = re.compile(r"about [\d.]+ MB")
"""How large a page would be: what every change of the page changes."""
WORD = "{}\t{}\t_\tNOUN\t_\t_\t{}\tdep\t_\t{}\n"
COLUMNS = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
PRONOUN = "1\tAnn met Eve; she ran.\tshe\t{}\tAnn\t0\t{}\tEve\t8\tFALSE\tu\n"
TEXTS = {
    "columns.conllu": "1\ta\t2\n",
    "range.conllu": WORD.format(1, "a", 3, "_") + WORD.format(2, "b", 0, "_"),
    "cycle.conllu": WORD.format(1, "a", 2, "_") + WORD.format(2, "b", 1, "_"),
    "twice.conllu": WORD.format(1, "a", 0, "_") + WORD.format(1, "b", 1, "_"),
    "root.conllu": WORD.format(1, "a", 0, "_"), "plain.conllu": "a text\n",
    "closed.conllu": WORD.format(1, "a", 0, "Entity=e1)"),
    "open.conllu": WORD.format(1, "a", 0, "Entity=(e1-person-1"),
    "brackets.conllu": WORD.format(1, "a", 0, "Entity=e1"),
    "head.conllu": WORD.format(1, "a", 0, "Entity=(e1-person-4)"),
    "part.conllu": WORD.format(1, "a", 0, "Entity=(e1[2/2]-person-1)"),
    "once.conllu": WORD.format(1, "a", 0, "Entity=(e1-person-1)"),
    "missing.tsv": COLUMNS.replace("A-offset\t", ""),
    "offset.tsv": COLUMNS + PRONOUN.format(12, "TRUE"),
    "truth.tsv": COLUMNS + PRONOUN.format(13, "yes"),
    "neither.tsv": COLUMNS + PRONOUN.format(13, "FALSE"),
    "pronouns.tsv": COLUMNS + PRONOUN.format(13, "TRUE"),
    "other.json": '{"schema": "attnviz.heads/2"}', "a.txt": "a b c\n", "b.txt": "d e f\n",
    "empty.txt": "x", "long.txt": "word " * 2000, "t.csv": "p,q\na b,c d\n",
    "pair.jsonl": '{"text": "a b", "pair": "c"}\n',
    "target.jsonl": '{"text": "a b", "target": "c"}\n', "cross.jsonl": '{"text": "a b"}\n',
    "i.json": '{"x": [[1, 0], [0, 1]]}',
    "qkv.json": '{"q": [[1, 0]], "k": [[0, 1]], "v": [[0, 1]]}', "used/x": "x",
    "t.conllu": "1\ta\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tb\t_\t_\t_\t_\t0\troot\t_\t_\n",
    "configured/config.json": json.dumps(
        {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
         "intermediate_size": 16, "vocab_size": 5, "max_position_embeddings": 16,
         "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    ),
}  # fmt: skip


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the transcript speaks of."""
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    Path("latin.conllu").write_bytes(WORD.format(1, "\u00e9", 0, "_").encode("latin-1"))
    Path("latin.tsv").write_bytes((COLUMNS + PRONOUN.format(13, "\u00e9")).encode("latin-1"))
    for name in ("empty", "untokenized"):
        Path(name).mkdir()
    for name in ("config.json", "model.safetensors"):
        Path("untokenized", name).symlink_to(DEMOS["demo-gpt2"].absolute() / name)
    weights = np.full((1, 1, 2, 2), 0.5, "f4")
    np.savez("one.npz", attentions=weights, tokens=np.array(["a", "b"]))
    two = weights[:, None].repeat(2, 1)
    np.savez("two.npz", attentions=two, tokens=np.array([["a", "b"]] * 2))
    assert main(shlex.split("export a.txt -o done --select 0.0 --jobs 1 -q")) == 0


@pytest.mark.usefixtures("_files")
def test_every_mistake_is_answered_as_in_the_transcript(capsys) -> None:
    said = []
    for line in TRANSCRIPT.read_text(encoding="utf-8").splitlines():
        if not line.startswith("$ "):
            continue
        code = main(shlex.split(line)[2:])
        answer = PAGE_SIZE.sub("about SIZE MB", capsys.readouterr().err)
        said += [line, *answer.splitlines(), f"[{code}]", ""]
    if os.environ.get("ATTNVIZ_KEEP"):
        TRANSCRIPT.write_text("\n".join(said).strip() + "\n", encoding="utf-8")
    assert "\n".join(said).strip() == TRANSCRIPT.read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(
    ("times", "unit", "counts", "total", "lines"),
    [
        (range(0, 80, 10), "texts", range(0, 70, 10), 100,
         ["20 of 100 texts, 1.0 a second, 1:20 left", "50 of 100 texts, 1.0 a second, 0:50 left"]),
        ([0, 0, 120], "inputs", [0, 1], None, ["1 input, 0.5 a minute"]),
        ([0, 0, 3600, 7200], "inputs", [0, 0, 1], None, ["0 inputs", "1 input, 0.5 an hour"]),
    ],
)  # fmt: skip
def test_a_line_every_half_minute_with_rate_and_time_left(
    capsys, times, unit, counts, total, lines
) -> None:
    log = Log(False, map(float, times).__next__)
    for count in counts:
        log.tell(unit, count, total)
    assert capsys.readouterr().err.splitlines() == [f"attnviz: {line}" for line in lines]


def test_nothing_is_said_when_quiet_or_soon(capsys) -> None:
    times = itertools.count(0, 100)
    log = Log(True, lambda: next(times))
    log.tell("texts", 5, 10)
    with Stages(quiet=False) as stages:
        stages.show("ablating heads", 3, 10)
    assert capsys.readouterr().err == ""
