"""Where attnviz meets other programs and files, at random, as in test_fuzz_readers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from http.server import ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.features.card import block
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import ResultStore
from attnviz.models.demo import DEMOS
from attnviz.models.device import DTYPES
from attnviz.web.written import read_page
from tests import ROOT, checkpoints, forking, registered
from tests.cli.test_dtypes import LINES
from tests.cli.test_fuzz_readers import COUNT, JUNK, Attempt, mutated, mutated_json, try_all
from tests.cli.test_saved import page_of
from tests.features.mcp import run
from tests.models.test_hub import FETCH, Hub, environment

RIVER = "the cat river moon stone the cat river"


@pytest.fixture(scope="module")
def originals(folder: Path) -> Path:
    """Tiny models of several families, and a text."""
    for family in FAMILIES:
        checkpoints.write(folder / family, family)
    (folder / "s.txt").write_text(f"{RIVER}\na dog ran\n")
    prompt = av.Prompt(RIVER, spans={"cat": "all:cat"})
    results: dict[str, Any] = {
        "heads": av.heads(RIVER), "logits": av.logits(RIVER), "lens": av.lens(RIVER),
        "spans": av.spans(prompt), "sinks": av.sinks(RIVER),
    }  # fmt: skip
    for name, found in results.items():
        found.save(folder / f"{name}.json")
    (folder / "shapes.json").write_text(av.shapes(d_model=8, heads=2).to_json())
    shutil.copy(ROOT / "sample_inputs" / "phases" / "markov-1.json", folder / "film.json")
    results["lens"].save(folder / "lens.html")
    av.view(RIVER).save(folder / "view.html")
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
    text = ends.join(random.choice(OF_A_CARD) for _ in range(random.randrange(12)))
    made = block.CardBlock({"model": "a", "texts": "b"}, random.choice(("body", "", "a\n\nb")))
    once = block.put(text, made, "x.md")
    place = block.find(text, "x.md")
    assert block.find(once, "x.md") is not None
    assert block.put(once, made, "x.md") == once
    if place is None:
        assert once.startswith(text)
    return once


OF_A_CARD = (
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
    try:
        return json.loads(spoken("heads", "a b c a", "--plugin", str(path), "--json"))
    finally:
        registered.forget()


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


def spoken(*line: str) -> str:
    """What a command prints, once it is known to end as commands do, with nothing that acts."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(line))
    assert code in (0, 1, 2, 3, 4, 5), (line, code, err.getvalue())
    assert not ACTING & set(out.getvalue() + err.getvalue()), line
    if code in (1, 2):
        raise av.UsageError(err.getvalue().strip().splitlines()[-1])
    return out.getvalue()


ACTING = {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160), 0x202E, 0x2066)}
HOSTILE = (
    "\x1b]52;c;QUJD\x07", "\x1b[2J", "\u202eevil", "\ud800", "a\nb", "\x9b31m", "no-such-word", "",
    "</script><b>", "{0}", "%s", "\x00", "x" * 3000, "[bold]b[/]", "../../x", "𝔞é\u0301", "=1+1",
)  # fmt: skip


def saved(random: Random, originals: Path) -> object:
    """A result whose words or numbers are hostile, as every command that reads results shows it."""
    name = random.choice(RESULTS)
    document = json.loads((originals / name).read_text())
    for _ in range(random.choice((0, 1, 1, 3, 20))):
        put_word(document, random.choice(HOSTILE), random)
    if random.random() < 0.5:
        document = mutated_json(document, random)
    hostile = originals / "hostile.json"
    hostile.write_text(json.dumps(document))
    line = random.choice(READING)
    return spoken(*(str(hostile) if word == "FILE" else word for word in line), "--quiet")


def put_word(document: Any, word: str, random: Random) -> None:
    """Put a word in place of one of the texts of a document, or of one of its names."""
    places: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        part = waiting.pop()
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for key, value in items:
            if isinstance(value, str) and key != "schema":
                places.append((part, key))
            elif isinstance(value, dict | list):
                waiting.append(value)
    part, key = random.choice(places)
    if isinstance(part, dict) and random.random() < 0.1:
        part[word] = part.pop(key)
    else:
        part[key] = word


RESULTS = ("heads.json", "logits.json", "lens.json", "spans.json", "sinks.json", "shapes.json",
           "film.json")  # fmt: skip
READING = (
    *[("show", "FILE")] * 4, ("show", "FILE", "--json"), ("show", "FILE", "--csv"),
    ("show", "FILE", "-o", "x.svg"), ("show", "FILE", "-o", "x.html"), ("diff", "FILE", "FILE"),
    ("heads", "a b a", "--evidence", "FILE"),
)  # fmt: skip


def page(random: Random, originals: Path) -> object:
    """A page of attnviz with other bytes, or with another object in it."""
    data = (originals / random.choice(("view.html", "lens.html"))).read_bytes()
    if random.random() < 0.5:
        held = read_page(data)
        assert held is not None
        inside = json.dumps(mutated_json(held, random)).encode()
        data = page_of(inside, random.choice((None, None, len(inside) // 2, 10**12)))
    else:
        data = mutated(data, random)
    path = originals / "page.html"
    path.write_bytes(data)
    return spoken("show", str(path), *random.choice(((), ("--json",))))


def dtypes(random: Random, originals: Path) -> object:
    """A command in any precision on any device, on any of some families."""
    line = random.choice(list(LINES.values()))
    if "patch" in line or line[0] in ("film", "card", "export", "atlas", "thoughts", "retrieval"):
        line = LINES["heads"]
    dtype = random.choice((*DTYPES, *HOSTILE[:4]))
    device = random.choice(("cpu", "cpu", "cuda", "mps", "meta", "x"))
    shutil.copy(ROOT / "sample_inputs" / "treebank.conllu", "treebank.conllu")
    Path("few.txt").write_text("a cat\na dog ran\n")
    return spoken(*line, "--quiet", "--dtype", dtype, "--device", device)


def cache_keys(random: Random, originals: Path) -> object:
    """A model's folder with something changed: what is remembered is what is measured."""
    folder = originals / "keyed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DEMOS["demo-gpt2"], folder)
    names = ("generation_config.json", "tokenizer.json", "tokenizer_config.json")
    changed = folder / random.choice(names)
    document = json.loads(changed.read_text()) if changed.exists() else {}
    if changed.name == "generation_config.json":
        document["eos_token_id"] = random.randrange(400)
    elif changed.name == "tokenizer.json":
        vocabulary = document["model"]["vocab"]
        one, other = random.sample([word for word, at in vocabulary.items() if 300 < at < 600], 2)
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    else:
        document["add_bos_token"] = not document.get("add_bos_token", False)
    changed.write_text(json.dumps(document))
    line = ("heads", RIVER, "--probe", "--json", "--quiet", "--model", str(folder))
    found = []
    for place in (str(originals / "cache"), str(originals / "cache"), "off"):
        with patch.dict("os.environ", {"ATTNVIZ_CACHE": place}):
            found.append(json.loads(spoken(*line)))
    assert found[0] == found[1] == found[2]
    return found


def packages(random: Random, originals: Path) -> object:
    """A command where a package is not installed: it does without, or names it."""
    package = random.choice(("matplotlib", "scipy", "PIL", "pyarrow", "pandas", "jinja2", "ray"))
    line = random.choice((
        ("heatmap", RIVER, "-s", "0.1", "-o", "x.png"), ("circuits", "--sample", "10"),
        ("heads", RIVER, "-o", "x.parquet"), ("flow", RIVER, "--method", "max-flow"),
        ("view", RIVER, "-o", "x.html"), ("explain", RIVER, "-o", "x.html"),
        ("lens", RIVER, "-o", "x.svg"), ("show", str(originals / "heads.json"), "-o", "x.pdf"),
        ("spans", RIVER, "--span", "a=all:cat", "-o", "x.csv"),
    ))  # fmt: skip
    loaded = {name: one for name, one in sys.modules.items() if name.partition(".")[0] == package}
    sys.modules.update(dict.fromkeys((*loaded, package)))  # type: ignore[arg-type]
    try:
        return spoken(*line, "--quiet")
    finally:  # what else was loaded meanwhile stays, so that nothing is loaded twice
        del sys.modules[package]
        sys.modules.update(loaded)


class OddHub(Hub):
    """A hub whose descriptions are changed at random, by the number in a repository's name."""

    def send(self, code: int, body: bytes, head: bool, cut: bool = False, **headers: str) -> None:
        number = self.path.partition("/odd-")[2].partition("/")[0].partition("?")[0]
        random = Random(f"{number} {self.path.count('/')}")
        if headers.get("Content_Type") == "application/json":
            body = json.dumps(mutated_json(json.loads(body), random)).encode()
        elif random.random() < 0.3:
            code, cut = random.choice(((500, False), (404, False), (200, True), (416, False)))
            headers = {name: mutated_header(value, random) for name, value in headers.items()}
        super().send(code, body, head, cut, **headers)


def mutated_header(value: str, random: Random) -> str:
    """A header's value with one of its characters changed, or another one."""
    at = random.randrange(len(value)) if value else 0
    return random.choice((f"{value[:at]}/{value[at + 1 :]}", "", "../../../../x", value * 3))


def hub(count: int, folder: Path) -> list[str]:
    """Fetch from an odd hub, all in one process: the names of what broke something."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), OddHub)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who asked hung up
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = [f"odd-{number}" for number in range(count)]
    try:
        ran = subprocess.run(
            [sys.executable, "-c", FETCH, *names], env=environment(server, folder),
            capture_output=True, text=True, check=False, timeout=20 * count + 60,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    assert ran.returncode == 0, ran.stderr
    cached = folder / "a" / "b" / "c" / "cache"
    outside = [path for path in folder.rglob("*") if path.is_file() and cached not in path.parents]
    assert [path for path in outside if folder / "hf" not in path.parents] == []
    found = dict(map(json.loads, ran.stdout.splitlines()))
    assert list(found) == names
    return [name for name, answer in found.items()
            if isinstance(answer, str) and ("\n" in answer or len(answer) > 700)]  # fmt: skip


def test_a_hub_that_answers_at_random_finds_no_bug(tmp_path: Path) -> None:
    assert hub(max(3, COUNT // 200), tmp_path) == []


ATTEMPTS: dict[str, tuple[Attempt, float]] = {
    "card": (card, 0.104), "callback": (callback, 0.07), "agent": (agent, 0.006),
    "plugin": (plugin, 0.005), "families": (families, 0.01), "servers": (servers, 0.004),
    "kill": (kill, 0.001), "saved": (saved, 0.05), "page": (page, 0.03),
    "dtypes": (dtypes, 0.004), "cache keys": (cache_keys, 0.002), "packages": (packages, 0.004),
}  # fmt: skip
"""What is tried, and its share of all inputs."""


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_nothing_where_programs_meet_finds_a_bug(
    kind: str, originals: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    try_all(kind, *ATTEMPTS[kind], originals)
