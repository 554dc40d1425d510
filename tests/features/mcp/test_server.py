"""``attnviz mcp`` as a client of the official SDK sees it: one server, twenty questions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnviz.features.mcp.results import MOST, tokens
from tests import ROOT
from tests.repeated import REPEATED

pytest.importorskip("mcp")

from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

RIVER = "the cat river moon stone bread the cat river moon stone"
KEYS = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
WATCHED = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind"):
        open({log!r}, "a").write(f"{{event}} {{arguments[1:]}}\\n")
sys.addaudithook(watch)
"""
"""What the server's interpreter runs first: every try to reach a network is written down."""

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server may read, with links that lead out of it."""
    found = tmp_path_factory.mktemp("allowed")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("a secret\n")
    (found / "link.txt").symlink_to(outside / "secret.txt")
    (found / "away").symlink_to(outside)
    (found / "model").mkdir()
    (found / "model" / "config.json").symlink_to(ROOT / "attnviz/models/demo/demo-bert/config.json")
    for name in ("sentences.txt", "treebank.conllu"):
        (found / name).write_bytes((ROOT / "sample_inputs" / name).read_bytes())
    (found / "repeated.txt").write_text("\n".join(REPEATED))
    return found


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Calls a tool of a server in a process of its own; checks what holds of every answer."""
    first = tmp_path_factory.mktemp("first")
    log = first / "network.txt"
    (first / "sitecustomize.py").write_text(WATCHED.format(log=str(log)))
    path = os.pathsep.join([str(first), str(ROOT)])
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "attnviz", "mcp", "--allow", str(folder)],
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=folder,
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(server, sys.__stderr__))) as there,
    ):

        def ask(tool: str | None, /, **arguments: Any) -> Any:
            if tool is None:
                return portal.call(there.list_tools).tools
            found = portal.call(there.call_tool, tool, arguments)
            text = found.content[0].text
            assert tokens(text) <= MOST
            return found

        yield ask
    assert not log.exists(), log.read_text()


@pytest.fixture
def ask(client: Ask) -> Ask:
    """The text of an answer."""

    def text(tool: str, /, **arguments: Any) -> str:
        found = client(tool, **arguments)
        assert not found.is_error, found.content[0].text
        return str(found.content[0].text)

    return text


@pytest.fixture(scope="module")
def ablated(client: Ask) -> str:
    """The file of an ablation on texts that repeat themselves, which questions are about."""
    found = client(
        "ablate", texts="repeated.txt", select="1.4, 2.1, 2.4", method="mean, resample, zero"
    ).content[0]
    return re.search(r"File: (\S+)", found.text)[1]


def lines(text: str, *starts: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip().startswith(starts)]


def row(text: str, name: str) -> dict[str, str]:
    """Of a table in CSV the row of a head."""
    columns, *rows = (line.split(",") for line in text.splitlines() if "," in line)
    return next(dict(zip(columns, cells, strict=False)) for cells in rows if cells[0] == name)


def test_there_are_thirteen_tools_with_words_and_types(client: Ask) -> None:
    tools = client(None)
    assert [one.name for one in tools] == [
        "heads", "look", "explain", "lens", "spans", "profile", "syntax",
        "ablate", "patch", "circuits", "shapes", "diff", "read",
    ]  # fmt: skip
    assert sum(tokens(f"{one.description} {one.input_schema}") for one in tools) < 6 * MOST
    for one in tools:
        for argument, told in one.input_schema["properties"].items():
            assert told["description"].strip(), argument


# twenty questions whose answers are known: by hand, from a paper, or from docs that are checked


ANSWERS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "the KV cache of Llama 3 8B at 32k tokens": (
        "shapes", {"model": "llama3-8b", "cache": 32768, "dtype": "bf16"},
        [f"{2 * 8 * 128 * 2 * 32 * 32768 / 2**30:.2f} GiB at 32,768 tokens"]),
    "parameters of a layer": (
        "shapes", {"d_model": 512, "heads": 8}, [f"{4 * 512 * 512 + 4 * 512:,}"]),
    "parameters of GPT-2, as published": ("shapes", {"model": "gpt2"}, ["124,439,808"]),
    "what grouped queries save": (
        "shapes", {"model": "llama3-70b", "dtype": "bf16", "show": "compare"},
        [f"{2 * 8 * 128 * 2 * 80 // 1024} KiB", "2.50 MiB"]),
    "why bread": (
        "explain", {"text": RIVER}, ["Why does demo-gpt2 say “·bread”?", "3.3, 3.0 and 2.0"]),
    "which head carries the answer": (
        "patch", {"task": "induction", "select": "1.4, 2.0, 2.1", "count": 8},
        ["the output of 2.0 of the clean run alone restores"]),
    "nothing changed": (
        "diff", {"text": KEYS, "model": "demo-gpt2", "other_model": "demo-gpt2"},
        ["nothing changed"]),
}  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_answers_that_are_known(ask: Ask, question: str) -> None:
    tool, arguments, parts = ANSWERS[question]
    said = ask(tool, **arguments)
    assert all(part in said for part in parts), said


def test_which_head_looks_at_the_token_before(ask: Ask) -> None:
    """With how that was measured, and where all figures are."""
    said = ask("heads", text=KEYS)
    (previous,) = lines(said, "1.4")
    assert "previous" in previous
    assert "How: score: mean weight" in said
    assert "Of: demo-gpt2" in said
    assert re.search(r"File: attnviz-results/heads-\d+\.json", said)


def test_which_heads_find_what_followed_and_2_0_not_without_the_token_before(ask: Ask) -> None:
    before, after = (ask("heads", text=RIVER, without=one) for one in (None, "1.4"))
    for head in ("2.0", "3.0", "3.3"):
        assert "induction" in lines(before, head)[0]
    assert "induction" not in lines(after, "2.0")[0]


def test_where_a_head_looks(ask: Ask) -> None:
    said = ask("look", text=RIVER, select="1.4")
    best = re.findall(r"\((\d+)\): \S+ \((\d+)\)", said)
    assert len(best) == 12
    assert sum(int(key) == int(query) - 1 for query, key in best) >= 10


def test_what_an_induction_head_reads(ask: Ask) -> None:
    (last,) = lines(ask("look", text=RIVER, select="2.0"), "·stone (11)")
    assert last.startswith("·stone (11): ·bread (6)")


def test_a_kept_look_is_read_again(ask: Ask) -> None:
    kept = re.search(r"File: (\S+)", ask("look", text=KEYS, select="1.4"))[1]
    assert "previous" in lines(ask("heads", recorded=kept), "1.4")[0]


def test_what_repetition_needs(ask: Ask, ablated: str) -> None:
    for name, verdict in {"1.4": "needed", "2.1": "", "2.4": "depends"}.items():
        assert row(ask("read", file=ablated, select=name), name)["verdict"] == verdict


def test_zero_overstates_a_head(ask: Ask, ablated: str) -> None:
    """Figures that no one else computes: with and without the gate of 2.4, in the typical text."""
    found = row(ask("read", file=ablated, select="2.4"), "2.4")
    assert float(found["zero_effect"]) == pytest.approx(0.900, abs=0.005)
    assert float(found["mean_effect"]) == pytest.approx(-0.011, abs=0.005)


def test_who_feeds_the_induction_head(ask: Ask) -> None:
    kept = re.search(r"File: (\S+)", ask("circuits"))[1]
    said = ask("read", file=kept, select="2.0")
    keys = [line.split(",") for line in said.splitlines() if line.startswith("K,")]
    assert keys[0][1:3] == ["1.4", "2.0"]
    first, later = (ask("read", file=kept, first=n).splitlines() for n in (0, 1))
    assert (first[0], first[2]) == (later[0], later[1])  # titles, and the row after the first


def test_how_much_goes_to_a_part(ask: Ask) -> None:
    said = ask("spans", text=RIVER, spans={"answer": "#1:bread"})
    assert "answer" in said
    assert float(re.search(r"2\.0 +answer +(\d+)", said)[1]) > 50


def test_roles_over_many_texts(ask: Ask) -> None:
    (previous,) = lines(ask("profile", files="sentences.txt"), "1.4")
    assert "previous" in previous


def test_the_best_offset_of_a_treebank(ask: Ask) -> None:
    said = ask("syntax", files="treebank.conllu", model="demo-gpt2")
    (amod,) = lines(said, "amod")
    assert amod.split()[6:8] == ["+1", "100"]  # all four stand before their nouns


def test_what_there_is(ask: Ask, folder: Path) -> None:
    ask("shapes", d_model=64, heads=4)
    said = ask("read")
    assert "demo-bert, demo-gpt2" in said
    assert "shapes-1.json" in said
    assert (folder / "attnviz-results" / "shapes-1.json").is_file()


# what is promised of every answer, and what is refused


def test_pictures_are_images(client: Ask) -> None:
    _, picture = client("heads", text=KEYS, picture=True).content
    assert (picture.type, picture.mime_type) == ("image", "image/png")
    _, picture = client("look", text=RIVER, select="2.0", picture=True).content
    assert picture.type == "image"


REFUSED = [
    ("read", {"file": "/etc/passwd"}, "leads out of the folders"),
    ("read", {"file": "../secret.txt"}, "leads out of the folders"),
    ("read", {"file": "link.txt"}, "leads out of the folders"),
    ("profile", {"files": "away/secret.txt"}, "leads out of the folders"),
    ("profile", {"files": "*.txt"}, "name one file"),
    ("profile", {"files": "-"}, "call read without a file"),
    ("heads", {"text": "a b", "without": "2.0, @/etc/passwd"}, "leads out of the folders"),
    ("look", {"text": "a b", "select": "@link.txt"}, "leads out of the folders"),
    ("ablate", {"text": "a b", "select": "2.0+@link.txt"}, "leads out of the folders"),
    ("patch", {"task": "induction", "paths": ["@link.txt -> *.k"]}, "leads out of the folders"),
    ("circuits", {"select": "@../x"}, "leads out of the folders"),
    ("heads", {"text": "a b", "model": "model"}, "leads out of the folders"),
    ("heads", {"text": "a b", "model": "/etc"}, "leads out of the folders"),
    ("heads", {"text": "a b", "model": "gpt2"}, "give a local folder"),
    ("heads", {"text": "a b", "without": "9.9"}, "this model has layers 0-3"),
    ("heads", {"text": 7}, "see the tool's input schema"), ("heads", {}, "give text or recorded"),
    ("shapes", {"d_model": 512, "heads": 6}, "head counts that work: 1, 2, 4, 8"),
    ("shapes", {"model": "llama9"}, "did you mean"),
    ("patch", {"clean": "a", "answer": "b"}, "give all three"),
    ("ablate", {"text": "a b", "probe": True}, "give one of text, texts and probe"),
    ("diff", {"before": "sentences.txt"}, "give before and after"),
    ("nonsense", {}, "choose from heads, look"), ("read", {"file": "sentences.txt"}, "not"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "remedy"), REFUSED)
def test_refusals_are_one_line_with_a_remedy(
    client: Ask, tool: str, arguments: dict[str, Any], remedy: str
) -> None:
    found = client(tool, **arguments)
    said = found.content[0].text
    assert found.is_error
    assert remedy in said
    assert "\n" not in said
    assert "a secret" not in said
