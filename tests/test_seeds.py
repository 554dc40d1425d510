"""What docs say of four trainings follows from their figures; demo-gpt2's are measured anew."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import ROOT, forking, mutation
from training.seeds import Seed, agreement, markdown, measured, read

SEEDS = read(ROOT / "docs" / "seeds.json")
PAGE = " ".join((ROOT / "docs" / "seeds.md").read_text("utf-8").split())
MEDIANS = 1.0
"""Logits that a median may be from the trimmed mean of the same changes, of which some are 10."""
ALL, FOURTH = pytest.mark.parametrize("seed", SEEDS, ids=[s.name for s in SEEDS]), SEEDS[3]


def layers(heads: list[str]) -> list[int]:
    return [int(head.split(".")[0]) for head in heads]


def made_up(roles: str, shape: list[int]) -> Seed:
    names = {str(number): role.strip("-") for number, role in enumerate(roles)}
    real = SEEDS[0]
    return Seed("made up", "", shape, [], [], real.lost, names, real.circuit, 0, real.edges)


def test_the_page_has_the_tables_of_the_figures() -> None:
    for table in markdown(SEEDS).split("\n\n"):
        assert " ".join(table.split()) in PAGE


@ALL
def test_what_is_said_of_all_four(seed: Seed) -> None:
    assert layers(seed.previous) == [0, 1]
    assert 4 <= len(seed.induction) <= 7
    assert set(layers(seed.induction)) <= {2, 3}
    assert all(share.value >= 0.935 for share in seed.lost.values())
    assert 7 <= len(seed.circuit.heads) <= 10
    assert 0.845 <= seed.circuit.gap.value <= 0.885
    assert 0.025 <= seed.circuit.random <= 0.115
    assert set(seed.previous) <= set(seed.circuit.heads)
    assert len(set(seed.induction) & set(seed.circuit.heads)) >= 3
    back, answer = seed.edges["follower, match"], seed.edges["last, follower"]
    assert back.sure
    assert answer.sure
    assert max(back.layers[:2]) < -4
    assert max(map(abs, back.layers[2:])) < 0.3
    assert max(map(abs, answer.layers[:2])) < 0.3
    assert answer.layers[3] < -3


def test_a_sentence_of_all_four_is_no_sentence_of_three() -> None:
    """No layer of all four trainings counts that counts for nothing in one."""
    (said,) = re.findall(r"## In all four (.*?) ## ", PAGE)
    assert "in layer 3 and in none of layers 0 and 1" in said
    assert "layers 2 and 3. " not in said.partition("Induction needs")[2]


def test_where_most_induction_heads_are() -> None:
    most = [max(set(layers(s.induction)), key=layers(s.induction).count) for s in SEEDS]
    counts = [layers(s.induction).count(layer) for s, layer in zip(SEEDS, most, strict=True)]
    assert (most, counts) == ([3, 2, 3, 3], [3, 4, 3, 4])
    assert [len(s.induction) for s in SEEDS] == [5, 7, 5, 4]


def test_sentences_of_the_first_page_about_heads_say_of_which_training() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## What it answers")[2]
    for paragraph in text.partition("## Five commands")[0].split("\n\n"):
        if re.search(
            r"\b\d\.\d\b(?! nats| logits)|induction heads|heads keep|these eight", paragraph
        ) and (paragraph.startswith("**")):
            said = "this training" in paragraph or "four of four trainings" in paragraph
            assert said, paragraph
    assert "said of this one training" in " ".join(text.split())
    assert "docs/seeds.md" in text


def test_what_is_said_of_one_alone() -> None:
    sure = [seed.edges["last, match"].sure for seed in SEEDS]
    assert sure == [False, False, False, True]
    assert [2 in layers(seed.induction) for seed in SEEDS] == [True, True, True, False]
    assert [seed.edges["last, follower"].layers[2] < -4 for seed in SEEDS] == [True] * 3 + [False]
    cut = FOURTH.edges["last, match"]
    assert round(cut.change.value, 1) == -2.0
    assert min(cut.layers) == cut.layers[2]
    assert [round(share.value, 2) for share in FOURTH.lost.values()] == [1.19, 1.11]
    assert all(share.value < 1 for seed in SEEDS[:3] for share in seed.lost.values())


def test_heads_of_a_layer_may_change_places_and_no_others() -> None:
    one = made_up("pid---", [3, 3])
    assert agreement(one, made_up("dpi---", [3, 3]))[0] == 1
    assert agreement(one, made_up("---pid", [3, 3]))[0] == 0
    assert agreement(one, made_up("pi----", [3, 3]))[0] == pytest.approx(5 / 6)


def test_chance_is_the_mean_over_all_orders() -> None:
    """One head of four has a role: dealt anew, both meet in a layer every second time."""
    alike, chance = agreement(made_up("p---", [2, 2]), made_up("p---", [2, 2]))
    assert alike == 1
    assert chance == pytest.approx(0.5 * 1 + 0.5 * 0.5, abs=0.02)


@pytest.mark.slow
def test_figures_of_the_bundled_model_are_measured_anew() -> None:
    """Cuts are medians today and trimmed means in the table, of the same changes."""
    known, now = SEEDS[0], measured("demo-gpt2")
    assert now.model == known.model
    assert (now.previous, now.induction, now.roles) == (
        known.previous,
        known.induction,
        known.roles,
    )
    assert now.circuit.heads == known.circuit.heads
    assert now.circuit.gap.value == pytest.approx(known.circuit.gap.value, abs=1e-3)
    for names, cut in now.edges.items():
        assert cut.change.value == pytest.approx(known.edges[names].change.value, abs=MEDIANS)
        assert cut.layers == pytest.approx(known.edges[names].layers, abs=MEDIANS)
        assert cut.sure == known.edges[names].sure


def python(code: str, *arguments: str, **options) -> subprocess.CompletedProcess:
    return forking.run([sys.executable, "-c", code, *arguments], text=True, **options)


def test_one_thread_here_and_below() -> None:
    assert torch.get_num_threads() == 1
    assert python("import torch; print(torch.get_num_threads())").stdout == "1\n"


def test_a_process_has_what_it_was_given(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(sys.stdin.read(), sys.argv[1:], os.getcwd(), os.environ['SAID'],"
        " os.getppid(), sys.stdout.encoding, file=sys.stdout); print('told', file=sys.stderr)"
    )
    environment = {**os.environ, "SAID": "é\udcff", "PYTHONIOENCODING": "ascii:replace"}
    done = forking.run(
        [sys.executable, "-c", code, "a", "b"],
        env=environment, cwd=tmp_path, input="hello", encoding="ascii",
    )  # fmt: skip
    assert done.stderr == "told\n"
    said = f"hello ['a', 'b'] {tmp_path} ?? {os.getpid()} ascii\n"
    assert done.stdout == said


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("pass", 0), ("raise SystemExit(7)", 7), ("raise SystemExit('no')", 1), ("1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        (
            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); signal.raise_signal(2)",
            -signal.SIGINT,
        ),
    ],
)  # fmt: skip
def test_a_process_ends_as_processes_do(code: str, ends: int) -> None:
    forked = python(code)
    started = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert forked.returncode == started.returncode == ends
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_a_group_of_its_own() -> None:
    child = forking.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
    assert os.getpgid(child.pid) == child.pid
    child.kill()
    assert child.wait() == -signal.SIGKILL


def test_processes_share_files_and_a_death_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_right(): pass\ndef test_wrong(): assert 0\n")
    (tmp_path / "test_b.py").write_text("import os\ndef test_dies(): os._exit(3)\n")
    options = ["-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "-p", "tests.workers", "--processes", "2"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = forking.run([*command, str(tmp_path)], cwd=ROOT, env=environment, text=True)
    assert done.returncode == 1
    assert "test_a.py::test_wrong" in done.stdout
    assert "the process that ran test_b.py::test_dies has died" in done.stdout
    assert "2 failed, 1 passed" in done.stdout


SOURCE = """
def f(a: int = 3, *rest: int) -> int | None:
    if a < 2 and rest:
        return a + 1
    for one, other in zip(rest, rest, strict=True):
        assert one == other
    return None
"""


def test_every_mutation_changes_the_program_and_nothing_idle() -> None:
    tree = ast.parse(SOURCE)
    found = [(node.lineno, kind) for node, kind in mutation.mutations(tree)]
    assert sorted(found) == [
        (2, "constant"), (3, "comparison"), (3, "condition"), (3, "constant"), (3, "operator"),
        (4, "constant"), (4, "operator"), (4, "return"), (6, "comparison"), (6, "condition"),
        (7, "return"),
    ]  # fmt: skip
    whole = ast.unparse(tree)
    for line in {line for line, _ in found}:
        for which in range(sum(line == one for one, _ in found)):
            changed, what = mutation.broken(SOURCE, line, which)
            assert (changed == whole) == (what == "return: return None  →  return None")


@pytest.mark.slow
def test_lines_are_chosen_by_a_seed_in_every_room() -> None:
    assert mutation.chosen(5, 1) == mutation.chosen(5, 1) != mutation.chosen(5, 2)
    every = mutation.chosen(10**6, 0)
    assert {room for room in mutation.ROOMS for path, *_ in every if path.is_relative_to(room)} == (
        set(mutation.ROOMS)
    )
    assert all(mutation.tests_of(path, ROOT) for path, *_ in every)
