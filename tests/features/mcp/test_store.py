"""Results stay: no server replaces a file, none writes through a link, the oldest make room."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnviz import files
from attnviz.cli import main
from attnviz.errors import OutputError
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import ResultStore
from attnviz.features.mcp.tools import Tools, skill
from tests import ROOT
from tests.features.mcp import run

BOTH_WAYS = [True, False] if files._BY_HANDLE else [False]


@pytest.fixture(params=BOTH_WAYS, ids=lambda by_handle: "handle" if by_handle else "path")
def folders(tmp_path: Path, monkeypatch, request: pytest.FixtureRequest) -> Folders:
    """Folders on a system that opens files relative to folders, and on one that does not."""
    monkeypatch.setattr(files, "_BY_HANDLE", request.param)
    (tmp_path / "allowed").mkdir()
    return Folders([tmp_path / "allowed"], tmp_path / "allowed" / "a" / "results")


WRITER = """
import sys
from pathlib import Path
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.results import ResultStore
store = ResultStore(Folders([Path(sys.argv[1])]))
for number in range(40):
    print(store.keep("heads", ".json", f"{sys.argv[2]} {number}".encode()).name)
"""


def test_two_servers_replace_nothing_of_each_other(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in ("one", "two")
    ]  # fmt: skip
    results = tmp_path / "attnviz-results"
    for writer, name in zip(writers, ("one", "two"), strict=True):
        written = writer.communicate()[0].split()
        assert writer.returncode == 0
        told = [(results / file).read_text() for file in written]
        assert told == [f"{name} {number}" for number in range(40)]
    assert len(list(results.glob("heads-*.json"))) == 80
    assert not list(results.glob(".*.part"))


def test_a_name_that_another_server_takes_meanwhile_is_left_to_it(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.results.mkdir(parents=True)
    listed = files.HeldFolder.files

    def late(self: files.HeldFolder) -> dict[str, os.stat_result]:
        there = listed(self)
        if not there:
            (folders.results / "heads-1.json").write_text("theirs")
        return there

    monkeypatch.setattr(files.HeldFolder, "files", late)
    assert ResultStore(folders).keep("heads", ".json", b"ours").name == "heads-2.json"
    assert (folders.results / "heads-1.json").read_text() == "theirs"


@pytest.mark.parametrize("replaced", ["a/results", "a"])
def test_nothing_is_written_through_a_link_in_place_of_the_folder(
    folders: Folders, tmp_path: Path, replaced: str
) -> None:
    store = ResultStore(folders)
    store.keep("heads", ".json", b"{}")
    outside = tmp_path / "outside"
    (outside / "results").mkdir(parents=True)
    (outside / "heads-9.json").write_text("{}")
    place = folders.allowed[0] / replaced
    place.rename(tmp_path / "moved")
    place.symlink_to(outside)
    for use in (lambda: store.keep("heads", ".json", b"{}"), store.names):
        with pytest.raises(OutputError, match="a link or a file stands in place of the folder"):
            use()
    assert sorted(path.name for path in outside.rglob("*")) == ["heads-9.json", "results"]


def test_a_link_of_the_next_name_is_not_followed(folders: Folders, tmp_path: Path) -> None:
    folders.results.mkdir(parents=True)
    (folders.results / "heads-1.json").symlink_to(tmp_path / "outside.json")
    assert ResultStore(folders).keep("heads", ".json", b"{}").name == "heads-2.json"
    assert not (tmp_path / "outside.json").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name, and links are followed")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_stands_in_place_of_the_journal_is_not_written_to(
    folders: Folders, tmp_path: Path, kind: str
) -> None:
    journal = folders.results / ".written"
    folders.results.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(journal)
    else:
        journal.symlink_to(tmp_path / "outside.txt")
    with pytest.raises(OutputError):
        ResultStore(folders).keep("heads", ".json", b"{}")
    assert list(folders.results.iterdir()) == [journal]
    assert not (tmp_path / "outside.txt").exists()


def test_the_oldest_make_room_by_count(folders: Folders) -> None:
    for _ in range(3):
        ResultStore(folders, most_files=4).keep("look", ".npz", b"maps")
    for _ in range(3):
        ResultStore(folders, most_files=4).keep("heads", ".json", b"{}")
    names = ["heads-1.json", "heads-2.json", "heads-3.json", "look-3.npz"]
    assert sorted(ResultStore(folders).names()) == names
    assert ResultStore(folders, 4).keep("look", ".npz", b"maps").name == "look-4.npz"


def test_the_oldest_make_room_by_bytes_but_never_the_newest(folders: Folders) -> None:
    store = ResultStore(folders, most_bytes=100)
    for size in (40, 50, 30):
        store.keep("look", ".npz", bytes(size))
    assert sorted(store.names()) == ["look-2.npz", "look-3.npz"]
    store.keep("look", ".npz", bytes(1000))
    assert store.names() == ["look-4.npz"]


def test_a_name_is_not_given_twice(folders: Folders) -> None:
    """Whoever asks again for a result that is gone must not get another one."""
    store = ResultStore(folders, most_files=2)
    store.keep("heads", ".json", b"{}")
    for _ in range(5):
        store.keep("look", ".npz", b"maps")
    assert store.keep("heads", ".json", b"{}").name == "heads-2.json"


def test_files_of_others_are_not_removed(folders: Folders) -> None:
    store = ResultStore(folders, most_files=1)
    store.keep("heads", ".json", b"{}")
    (folders.results / "heads-1.json").write_text("written again by the command line")
    (folders.results / "ablate-1.json").write_text("from before")
    for _ in range(20):
        store.keep("look", ".npz", b"maps")
    assert sorted(store.names()) == ["ablate-1.json", "heads-1.json", "look-20.npz"]
    assert len((folders.results / ".written").read_text().splitlines()) <= 5


def test_what_cannot_be_written_leaves_nothing(folders: Folders, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        ResultStore(folders).keep("heads", ".json", b"{}")
    assert list(folders.results.iterdir()) == []


KEYS = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
TOOL = re.compile(r"^\| `(\w+)` \| [^|]+ \| `[\w. ]+` \|$", re.MULTILINE)
WITHOUT = """
import sys; sys.modules["mcp"] = sys.modules["pydantic"] = None
from attnviz.cli import main
sys.exit(main(["mcp", "--skill", sys.argv[1]]))
"""


def test_the_skill_is_written_without_the_sdk_and_over_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "new" / "attnviz")]
    subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, check=True)
    assert main(["mcp", "--skill", command[-1]]) == 0  # an older one is replaced
    written = (tmp_path / "new" / "attnviz" / "SKILL.md").read_text("utf-8")
    assert written == skill()
    front = written.split("---\n")[1]
    assert re.search(r"^name: attnviz$", front, re.MULTILINE)
    assert 100 < len(re.search(r"^description: (.+)$", front, re.MULTILINE)[1]) <= 1024
    (tmp_path / "SKILL.md").write_text("---\nname: another\n---\n")
    assert main(["mcp", "--skill", str(tmp_path)]) == 1
    assert "another" in (tmp_path / "SKILL.md").read_text()


def test_the_skill_and_the_page_name_the_tools_that_there_are(tmp_path: Path) -> None:
    names = [tool.__name__ for tool in Tools(Folders([tmp_path])).all()]
    assert TOOL.findall(skill()) == names
    assert TOOL.findall((ROOT / "docs" / "mcp.md").read_text("utf-8")) == names
    assert "{{" not in skill()


QUESTIONS = [
    # which head attends to the previous token; what tensors has llama3-70b; does ablating 1.4
    # matter; what does the model predict at layer 2
    (["heads", KEYS], {"text": KEYS}, r"^ *1\.4 +previous"),
    (["shapes", "--model", "llama3-70b"], {"model": "llama3-70b"}, r"8,?192"),
    (["ablate", KEYS, "--select", "1.4"], {"text": KEYS, "select": "1.4"}, r"1\.4"),
    (["lens", KEYS, "--position", "-1"], {"text": KEYS, "position": -1}, "layer"),
]


@pytest.mark.parametrize(
    ("command", "arguments", "said"), QUESTIONS, ids=lambda part: str(part)[:9]
)
def test_an_agent_s_answer_is_the_command_line_s(
    command: list[str], arguments: dict[str, Any], said: str, tmp_path: Path, capsys: Any
) -> None:
    """The answer of a server in this process names a file: it holds what ``--json`` prints."""
    Client = pytest.importorskip("mcp").Client
    from attnviz.features.mcp.server import server

    async def asked() -> Any:
        async with Client(server(Tools(Folders([tmp_path])))) as client:
            return await client.call_tool(command[0], arguments)

    text = run(asked).content[0].text
    assert re.search(said, text, re.MULTILINE), text
    file = re.search(r"File: attnviz-results/(\S+)", text)[1]
    assert main([*command, "--json"]) == 0
    document = (tmp_path / "attnviz-results" / file).read_text("utf-8")
    printed = capsys.readouterr().out  # notes name options, which a tool's caller has without --
    assert json.loads(printed.replace("--", "")) == json.loads(document.replace("--", ""))


@pytest.mark.parametrize(("name", "code"), [("Attention", 0), ("LateMask", 4)])
def test_whether_a_module_is_right_is_asked_in_a_shell(name: str, code: int, capsys: Any) -> None:
    line = re.search(r"`attnviz (check) FILE\.py:Class ([^`]+)`", skill())
    assert main([line[1], f"{ROOT}/sample_inputs/attention.py:{name}", *line[2].split()]) == code
    document = json.loads(capsys.readouterr().out)
    assert [bug["name"] for bug in document["bugs"]] == ["mask after softmax"] * (code == 4)
