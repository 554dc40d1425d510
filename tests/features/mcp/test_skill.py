"""SKILL.md names the server's tools, and an agent that follows it gets the commands' figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnviz.cli import main
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.tools import Tools, skill
from tests import ROOT
from tests.features.mcp import run

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
