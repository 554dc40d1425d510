"""Calls that a server refuses, ends or answers in any case: a server in this process."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp")

import anyio
from mcp import Client
from mcp.server.mcpserver.exceptions import ToolError

from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import ToolAnswer
from attnviz.features.mcp.server import LONGEST, ToolServer, server
from attnviz.features.mcp.tools import Tools
from tests import ROOT
from tests.features.mcp import run

RIVER = "the cat river moon stone bread the cat river moon stone"


def served(folder: Path) -> ToolServer:
    for name in ("sentences.txt", "treebank.conllu"):
        (folder / name).write_bytes((ROOT / "sample_inputs" / name).read_bytes())
    return server(Tools(Folders([folder])))


@pytest.fixture
def made(tmp_path: Path) -> ToolServer:
    return served(tmp_path)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> ToolServer:
    """A server that only refuses: what it says of its tools takes half a second to make."""
    return served(tmp_path_factory.mktemp("standing"))


def refused(made: ToolServer, tool: str, arguments: dict[str, Any]) -> str:
    async def call() -> None:
        await made.call_tool(tool, arguments)

    with pytest.raises(ToolError) as error:
        run(call)
    said = str(error.value)
    assert "\n" not in said
    assert len(said) < 700
    return said


REFUSED = [
    ("heads", {"text": RIVER, "withuot": "1.4"}, "no argument 'withuot'; did you mean without?"),
    ("ablate", {"text": RIVER, "heads": "1.4"}, "no argument 'heads'; it takes text, texts, limit"),
    ("circuits", {"wiegh": "norm"}, "no argument 'wiegh'; it takes select, model, picture"),
    ("ablate", {"text": RIVER, "limit": -5}, "limit: Input should be greater than or equal to 1"),
    ("profile", {"files": "sentences.txt", "limit": 0}, "limit: Input should be greater than"),
    ("patch", {"task": "induction", "count": -5}, "count: Input should be greater than"),
    ("read", {"file": "sentences.txt", "first": -1}, "first: Input should be greater than"),
    ("heads", {"text": "the cat " * 2_500_000}, "arguments of 20,000,004 characters; at most"),
    ("spans", {"text": RIVER, "spans": {"a" * LONGEST: "cat"}}, "1,048,643 characters; at most"),
    ("heads", {"evidence": ["a" * 1000] * 1050}, "give a part, or many texts as a file"),
    ("x" * 5000, {}, "unknown tool 'xxx"),
    ("heads", {"x" * 5000: 1}, "no argument 'xxx"),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), REFUSED, ids=range(len(REFUSED)))
def test_arguments_that_make_no_sense_are_refused(
    standing: ToolServer, tool: str, arguments: dict[str, Any], said: str
) -> None:
    assert said in refused(standing, tool, arguments)


def test_every_schema_says_that_it_takes_nothing_else(standing: ToolServer) -> None:
    tools = run(standing.list_tools)
    assert len(tools) == 13
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools)


def test_a_form_that_a_result_does_not_have_is_refused_with_those_that_it_has(
    made: ToolServer,
) -> None:
    run(made.call_tool, "heads", {"text": RIVER})
    said = refused(made, "read", {"file": "heads-1.json", "save": "html"})
    assert said == "a result of heads has no html; save writes it as csv, png, svg, pdf"


def test_a_line_of_a_file_is_read_as_far_as_it_may_go(made: ToolServer, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("the cat " * (LONGEST // 4))
    said = refused(made, "ablate", {"texts": "long.txt", "select": "1.4"})
    assert said.endswith("long.txt:1 is longer than 1 MiB")


def spoken(made: ToolServer, lines: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a server writes to these lines, without being spoken to by an SDK."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
    run(made.run_stdio_async)
    return [json.loads(line) for line in written.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("line", "number", "said"),
    [
        (rb'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":"\ud800"}}', 7,
         "half of a surrogate pair"),
        (rb'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"a":"\udc00 b"}}', "a",
         "half of a surrogate pair"),
        (rb'{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}', None, "surrogate"),
        (b'{"jsonrpc":"2.0","id":8,"method":5}', 8, "method: Input should be a valid string"),
        (b'{"jsonrpc":"2.0","id":9,"meth', None, "Invalid JSON"),
        (b"[" * 100_000, None, "recursion limit"),
        (b"[1]", None, "Input should be an object"),
    ],
)  # fmt: skip
def test_what_is_no_message_gets_a_reply(
    standing: ToolServer,
    monkeypatch: pytest.MonkeyPatch,
    line: bytes,
    number: int | str | None,
    said: str,
) -> None:
    (reply,) = spoken(standing, line + b"\n\n", monkeypatch)
    assert reply["id"] == number
    assert reply["error"]["code"] in (-32700, -32600)
    assert said in reply["error"]["message"]
    assert reply["error"]["message"].startswith("cannot read this message: ")


def test_names_that_are_no_utf_8_do_not_end_the_server(made: ToolServer, tmp_path: Path) -> None:
    results = tmp_path / "attnviz-results"
    results.mkdir()
    try:
        (results / "heads-\udcff.json").write_text("{}")
    except (OSError, UnicodeEncodeError):
        pytest.skip("no file can have such a name here")

    async def listed() -> str:
        return str((await made.call_tool("read", {})).content[0].text)

    assert "heads-\\udcff.json" in run(listed)


class Waiting(Tools):
    """A tool that goes from batch to batch for ever, and one that answers at once."""

    def __init__(self, folders: Folders) -> None:
        super().__init__(folders)
        self.began, self.ended, self.calls = threading.Event(), threading.Event(), list[str]()

    def all(self) -> tuple[Callable[..., ToolAnswer], ...]:
        return (self.endless, self.quick)

    def endless(self) -> ToolAnswer:
        """Does batch after batch."""
        self.began.set()
        try:
            while True:
                self.checkpoint()
                threading.Event().wait(0.001)
        finally:
            self.ended.set()

    def quick(self, name: str) -> ToolAnswer:
        """Answers."""
        self.calls.append(name)
        return ToolAnswer(name)


def test_a_call_that_is_taken_back_ends_and_the_next_one_runs(tmp_path: Path) -> None:
    tools = Waiting(Folders([tmp_path]))

    async def calls() -> str:
        async with Client(server(tools)) as client:
            with anyio.fail_after(20):
                async with anyio.create_task_group() as running:
                    running.start_soon(client.call_tool, "endless", {})
                    await anyio.to_thread.run_sync(tools.began.wait)
                    with anyio.move_on_after(0.05):  # taken back while it waits for its turn
                        await client.call_tool("quick", {"name": "early"})
                    running.cancel_scope.cancel()
                return str((await client.call_tool("quick", {"name": "late"})).content[0].text)

    assert run(calls) == "late"
    assert tools.ended.is_set()
    assert tools.calls == ["late"]


class Stopped(BaseException):
    """Raised in place of a cancellation."""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("heads", {"text": RIVER}),
        ("explain", {"text": RIVER}),
        ("spans", {"text": RIVER, "spans": {"cat": "#1:cat"}}),
        ("profile", {"files": "sentences.txt"}),
        ("syntax", {"files": "treebank.conllu", "model": "demo-gpt2"}),
        ("ablate", {"text": RIVER, "select": "1.4"}),
        ("patch", {"task": "induction", "select": "1.4", "count": 4}),
        ("circuits", {}),
    ],
)
def test_a_tool_ends_between_batches_and_keeps_nothing(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    for name in ("sentences.txt", "treebank.conllu"):
        (tmp_path / name).write_bytes((ROOT / "sample_inputs" / name).read_bytes())

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        getattr(Tools(Folders([tmp_path]), stop), tool)(**arguments)
    assert not (tmp_path / "attnviz-results").exists()
