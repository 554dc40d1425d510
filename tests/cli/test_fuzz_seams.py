"""Where attnviz meets other programs, at random: agents, cards, training, plugins, families, kills.

As in test_fuzz_readers, an input that breaks something is named by its class and number.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.features.card import block
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import ResultStore
from attnviz.scoring import roles, scores
from tests import checkpoints, forking
from tests.cli.test_fuzz_readers import JUNK, Attempt, mutated_json, try_all
from tests.features.mcp import run

RIVER = "the cat river moon stone the cat river"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models of several families, and a text."""
    folder = tmp_path_factory.mktemp("seams")
    for family in FAMILIES:
        checkpoints.write(folder / family, family)
    (folder / "s.txt").write_text(f"{RIVER}\na dog ran\n")
    return folder


FAMILIES = ("bert", "distilbert", "gpt2")
SMALL: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 0.5, "", "x", "gelu", "llama", [], [0], {}, "0")


def families(random: Random, originals: Path) -> object:
    """A model's folder whose configuration says something else than its weights."""
    folder = originals / "changed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(originals / random.choice(FAMILIES), folder)
    config = json.loads((folder / "config.json").read_text())
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(sorted(config))
        if random.random() < 0.2:
            del config[name]
        else:
            config[name] = random.choice(SMALL)
    (folder / "config.json").write_text(json.dumps(config))
    return av.heads(av.Prompt(ids=(3, 5, 3, 5)), model=str(folder))


def agent(random: Random, originals: Path) -> object:
    """A call of an agent with one argument that is wrong, odd or unknown."""
    pytest.importorskip("mcp")
    from mcp.server.mcpserver.exceptions import ToolError

    from attnviz.features.mcp.server import server
    from attnviz.features.mcp.tools import Tools

    made = server(Tools(Folders([originals])))
    tool, right = random.choice(TOOLS)
    asked = mutated_json(right, random)
    if not isinstance(asked, dict):
        asked = {random.choice(("text", "select", "model", "x")): random.choice(JUNK)}
    try:
        return run(made.call_tool, tool, asked)
    except ToolError as error:
        raise av.UsageError(str(error)) from None


TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("heads", {"text": RIVER, "without": "0.0", "picture": False}),
    ("look", {"text": RIVER, "select": "1.4", "picture": False}),
    ("spans", {"text": RIVER, "spans": {"cat": "all:cat"}}),
    ("profile", {"files": ["s.txt"], "limit": 2}),
    ("ablate", {"texts": "s.txt", "select": "0.0", "limit": 2}),
    ("shapes", {"d_model": 64, "heads": 4}),
    ("diff", {"text": RIVER, "model": "demo-gpt2", "other_model": "demo-gpt2"}),
    ("read", {"file": "s.txt", "first": 0}),
)


def card(random: Random, originals: Path) -> object:
    """A card with markers, fences and ends of lines of all sorts: only the block changes."""
    ends = random.choice(("\n", "\n", "\r\n"))
    text = ends.join(random.choice(LINES) for _ in range(random.randrange(12)))
    made = block.CardBlock({"model": "a", "texts": "b"}, random.choice(("body", "", "a\n\nb")))
    once = block.put(text, made, "x.md")
    place = block.find(text, "x.md")
    assert block.find(once, "x.md") is not None
    assert block.put(once, made, "x.md") == once
    if place is None:
        assert once.startswith(text)
    return once


LINES = (
    "", " ", "a line", "# title", "```", "~~~~", "`<!-- attnviz:end -->`", "---", "\ttab", "é",
    block.END, block.CardBlock({"model": "c"}, "x").text().split("\n")[0],
    block.CardBlock({"model": "c"}, "old").text(), "<!-- other -->", "> quoted", "\x0b",
)  # fmt: skip


def callback(random: Random, originals: Path) -> object:
    """Tracking of a training run with one setting that is wrong or odd."""
    name = random.choice(("texts", "every", "scores", "state", "each", "log"))
    value = random.choice((*JUNK, b"x", object(), len, ["a b"], [[1, 2]], [1], np.ones(2)))
    given = {"texts": ["a b", "c d"], "every": 2, "state": originals / "kept", name: value}
    if name == "state" and isinstance(value, str):
        given["state"] = str(originals / value.replace("..", "")[:20])
    return av.HeadsCallback(**given)


def plugin(random: Random, originals: Path) -> object:
    """A user's score that raises, ends the program, prints, or gives what is no score."""
    path = originals / "plugin.py"
    body = random.choice(BODIES)
    where = random.choice(("inside", "inside", "outside"))
    outside = body.replace("return", "x =") if where == "outside" else ""
    inside = body if where == "inside" else "return block.weights[..., 0]"
    path.write_text(
        "import sys\nimport attnviz as av\n"
        f"{outside}\n"
        f"@av.score({random.choice(NAMES)!r})\ndef mine(block):\n    {inside}\n"
    )
    out, err = StringIO(), StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["heads", "a b c a", "--plugin", str(path), "--json"])
    finally:
        for known in NAMES:
            scores.forget(known)
            roles.forget(known)
    assert code in (0, 1, 2), err.getvalue()
    if code:
        raise av.UsageError(err.getvalue().strip().splitlines()[-1])
    return json.loads(out.getvalue())


BODIES = (
    "raise ValueError('a\\nb')", "sys.exit(0)", "return 1", "return None", "return 'x'",
    "print('noise') or block.weights[..., 0]", "return block.weights",
    "return block.weights[..., 0] * float('nan')", "return block.weights[..., 0]",
    "return block.weights.sum(-1) * 9", "raise SystemExit", "return block.nothing",
    "block.weights.zero_(); return block.weights[..., 0]",
)  # fmt: skip
NAMES = ("mine", "entropy", "", "a b", "x" * 300, "induction")


def servers(random: Random, originals: Path) -> object:
    """Two servers that keep results in one folder replace nothing of each other."""
    folder = originals / f"served-{random.randrange(10**9)}"
    folder.mkdir()
    stores = [ResultStore(Folders([folder])) for _ in range(2)]
    kept: list[tuple[Path, bytes]] = []

    def serve(store: ResultStore, name: int, count: int) -> None:
        for number in range(count):
            data = f"{name} {number}".encode()
            kept.append((store.keep("heads", ".json", data), data))

    threads = [
        threading.Thread(target=serve, args=(store, name, random.randrange(1, 6)))
        for name, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path for path, _ in kept}) == len(kept)
    assert all(path.read_bytes() == data for path, data in kept)
    shutil.rmtree(folder)
    return kept


KILLED = """
import os, signal, sys, threading
import attnviz as av
ending = threading.Timer(float(sys.argv[3]), lambda: os.kill(os.getpid(), signal.SIGKILL))
ending.daemon = True
ending.start()
av.prune_heads(sys.argv[1], "0.0", sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill(random: Random, originals: Path) -> object:
    """A checkpoint whose writing is killed: whole, or none of its name; nothing else is touched."""
    folder = originals / f"killed-{random.randrange(10**9)}"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    after = str(random.random() * 0.6)
    model, out = str(originals / "gpt2"), folder / "new"
    process = forking.Popen([sys.executable, "-c", KILLED, model, str(out), after])
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert (folder / "mine").read_text() == "mine"
    found = av.heads(av.Prompt(ids=(3, 5, 3, 5)), model=str(out)) if out.exists() else None
    shutil.rmtree(folder)
    return found


ATTEMPTS: dict[str, tuple[Attempt, float]] = {
    "card": (card, 0.104),
    "callback": (callback, 0.07),
    "agent": (agent, 0.006),
    "plugin": (plugin, 0.005),
    "families": (families, 0.01),
    "servers": (servers, 0.004),
    "kill": (kill, 0.001),
}
"""What is tried, and its share of all inputs."""


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_nothing_where_programs_meet_finds_a_bug(
    kind: str, originals: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    try_all(kind, *ATTEMPTS[kind], originals)
