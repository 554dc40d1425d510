"""What a command loads is what its user waits for: what only some calls need waits for them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from attnviz.cli import main
from attnviz.cli.console import Log, Stages
from attnviz.cli.listing import listed
from attnviz.core.heads import Head, Site
from attnviz.core.scores import HeadScores, Role, Score
from attnviz.drawing.console import FIRST_ROWS, MOST_ROWS
from attnviz.models.demo import DEMOS

BUDGET = 136
"""Modules of attnviz that the table of heads may load: what attends knows gates and cuts too."""

FORBIDDEN = ("attnviz.web", "attnviz.corpus", "attnviz.models.hooked", "attnviz.drawing.figure",
             "attnviz.features.profile", "attnviz.features.view",
             "attnviz.features.ablation", "attnviz.statistics.clusters")  # fmt: skip
"""What only other commands need."""

OTHERS = {
    "annotated_doc", "click", "numpy", "pygments", "rich", "safetensors", "shellingham",
    "threadpoolctl", "tokenizers", "typer", "typing_extensions",
}  # fmt: skip
"""Packages of others that it needs."""

CODE = """
import sys
before = {name.partition(".")[0] for name in sys.modules}
from attnviz.cli import main
assert main(sys.argv[1:]) == 0
sys.stdout.flush()
for name in sorted(sys.modules):
    top = name.partition(".")[0]
    if top == "attnviz" or top not in before | sys.stdlib_module_names:
        sys.stderr.write(f"module {name}\\n")
"""


def loaded(*arguments: str) -> set[str]:
    """The modules that a command loads, none of Python's own."""
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.removeprefix("module ") for line in done.stderr.splitlines() if "module " in line}


def own(modules: set[str]) -> set[str]:
    """Those of attnviz."""
    return {name for name in modules if name.partition(".")[0] == "attnviz"}


def test_heads_loads_no_module_that_it_need_not() -> None:
    modules = loaded("heads", "The cat sat on the mat")
    assert len(own(modules)) <= BUDGET, sorted(own(modules))
    assert not [name for name in own(modules) if name.startswith(FORBIDDEN)]
    packages = {name.partition(".")[0] for name in modules - own(modules)}
    assert {name for name in packages if "cython" not in name} <= OTHERS  # which is numpy's


def test_threads_sleep_while_they_wait_unless_somebody_says_otherwise(monkeypatch) -> None:
    """As torch finds it when it is imported; the sums have as many threads, so the same bits."""
    code = "import os, sys; from attnviz.__main__ import run\nsys.argv[1:] = ['--version']\n"
    code += "try: run()\nfinally: print(os.environ['OMP_WAIT_POLICY'])"
    for said, policy in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if said:
            monkeypatch.setenv("OMP_WAIT_POLICY", said)
        printed = subprocess.check_output([sys.executable, "-c", code], text=True)
        assert printed.split()[-1] == policy


def test_the_list_of_commands_imports_none_of_them() -> None:
    """Their settings and results take several times as long as all that is printed."""
    modules = own(loaded("--help"))
    inside = [name for name in modules if name.startswith("attnviz.features.")]
    assert len(inside) > 20
    assert not [name for name in inside if name.count(".") > 2]


@cache
def scored(count: int) -> list[HeadScores]:
    """Heads with more and more of one role, in an order of their own; every third only rests."""
    found = []
    for n in range(count):
        size = (n * 7919 % count + 1) / count
        name, rests = ("first", True) if n % 3 == 2 else ("previous", False)
        evidence = Score(size, 0.1, size / 0.1, 20)
        role = Role(name, name, evidence, False, rests)
        found.append(HeadScores(Head(Site("decoder", n // 64), n % 64), {name: evidence}, (role,)))
    return found


def test_a_short_table_is_whole_and_in_order() -> None:
    heads = scored(MOST_ROWS)
    rows, more = listed(heads, role=None, sort="layer", top=None)
    assert list(rows) == [one for one in heads if not one.roles[0].rests]
    assert more == ""


@pytest.mark.parametrize("role", [None, "previous"])
def test_of_very_many_the_clearest_come_first(role: str | None) -> None:
    heads = scored(5120)
    rows, more = listed(heads, role=role, sort="layer", top=None)
    lifts = sorted((h.roles[0].evidence.lift for h in heads if not h.roles[0].rests), reverse=True)
    assert [one.roles[0].evidence.lift for one in rows] == lifts[:FIRST_ROWS]
    assert more == (
        f"the {FIRST_ROWS} heads with the clearest evidence of {len(lifts):,} "
        f"(--top {len(lifts)} lists them)"
    )


def test_an_order_that_was_asked_for_stays() -> None:
    rows, more = listed(scored(5120), role=None, sort="previous", top=None)
    means = [one.scores["previous"].mean for one in rows]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.99
    assert more.startswith(f"the {FIRST_ROWS} heads with the largest previous of ")


def test_whoever_says_how_many_gets_them() -> None:
    heads = scored(1024)
    rows, more = listed(heads, role=None, sort="layer", top=500)
    assert (len(rows), more) == (500, "")
    assert [one.head for one in rows] == sorted(one.head for one in rows)
    rows, more = listed(heads, role=None, sort="layer", top=None, everything=True)
    assert (len(rows), more) == (1024, "")


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
    """A folder with the files that the transcript speaks of, where export draws by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnviz.features.export.run.cores", lambda: 1)
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
    assert main(shlex.split("export a.txt -o done --select 0.0 -q")) == 0


@pytest.mark.usefixtures("_files")
def test_every_mistake_is_answered_as_in_the_transcript(capsys) -> None:
    said = []
    for line in TRANSCRIPT.read_text(encoding="utf-8").splitlines():
        if not line.startswith("$ "):
            continue
        code = main(shlex.split(line)[2:])
        out, err = capsys.readouterr()
        assert code != 1 or not out, line
        answer = PAGE_SIZE.sub("about SIZE MB", err)
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
