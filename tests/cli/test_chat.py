"""Chats and spans on the command line: every command that takes a text takes them."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.models.demo import DEMOS
from tests.cli.calling import ok, refused
from tests.models.templates import TEMPLATES

pytestmark = pytest.mark.usefixtures("few_sentences")

CHAT = [
    {"role": "system", "content": "Answer with one word."},
    {"role": "user", "content": "The keys are on the table. Where are the keys?"},
]

SYSTEM, USER = (["--chat", f"{message['role']}: {message['content']}"] for message in CHAT)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("chat") / "chatty"
    shutil.copytree(DEMOS["demo-gpt2"], folder)
    (folder / "chat_template.jinja").write_text(TEMPLATES["bars"].jinja)
    return str(folder)


@pytest.fixture
def chat(tmp_path: Path) -> str:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(CHAT))
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        ["heads", "--json"], ["heatmap", "-s", "2.0", "-o", "OUT.png"], ["heatmap", "-s", "2.0"],
        ["view", "-o", "OUT.html"], ["capture", "-o", "OUT.npz"], ["logits", "--json"],
        ["flow", "--position", "-1", "--json"], ["ablate", "--select", "2.0", "--json"],
        ["spans", "--json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_takes_them(
    command: list[str], model: str, chat: str, tmp_path: Path, capsys: Any
) -> None:
    name, *options = [one.replace("OUT", str(tmp_path / "out")) for one in command]
    given = ["--chat", chat, "--span", "place=the table", "-m", model, "-q"]
    out = ok(capsys, name, *given, *options)
    if "--json" in options:
        told = json.dumps(json.loads(out))
        assert "table" in told
    if name == "capture":
        held = av.read(tmp_path / "out.npz").inputs.sides["decoder"].keys
        assert {span.name for span in held.spans} == {"system", "user", "place"}


def spans_of(arguments: list[str], capsys: Any) -> dict[str, str]:
    found = json.loads(ok(capsys, "spans", *arguments, "--json", "-q"))
    return {span["name"]: span["shown"] for span in found["spans"]}


def test_messages_come_in_every_way(model: str, chat: str, monkeypatch: Any, capsys: Any) -> None:
    of = ["-m", model]
    file = spans_of(["--chat", chat, *of], capsys)
    assert file["system"].strip() == CHAT[0]["content"]
    assert file["user"].strip() == CHAT[1]["content"]
    both = spans_of([*SYSTEM, *USER, *of], capsys)
    assert both == file
    raw: Any = io.BytesIO(json.dumps(CHAT[1:]).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(raw)))
    piped = spans_of([*SYSTEM, "--chat", "-", *of], capsys)
    assert piped == file
    wrapped = Path(chat).with_name("wrapped.json")
    wrapped.write_text(json.dumps({"model": "m", "messages": CHAT[:1]}))
    assert spans_of(["--chat", str(wrapped), *USER, *of], capsys) == file


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("{", [], "is not readable JSON"), ("3", [], "holds no list of messages"),
        ("[1]", [], "holds no list of messages"),
        ('[{"role": "user", "content": 3}]', [], "the content of message 1 (user) is no text"),
        (json.dumps(CHAT[:1]), [], "a system message alone is no chat"),
        (json.dumps(CHAT), ["--pair", "x"], "--pair goes with a text, not with a chat"),
        (json.dumps(CHAT), ["--ids", "1,2"], "exclude each other"),
        (json.dumps(CHAT), ["--span", "user=keys"], "'user' is a message of the chat"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(
    content: str, more: list[str], said: str, model: str, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "m.json"
    path.write_text(content)
    assert main(["heads", "--chat", str(path), *more, "-m", model]) in (1, 2)
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", ["[]", '{"a": 3}', "no"])
def test_a_file_without_spans_is_refused(content: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    assert "s.json" in refused(capsys, "heads", "a cat", "--span", f"@{path}")


def test_recorded_attention_brings_its_own(capsys: Any) -> None:
    assert main(["heads", "--recorded", "x.npz", "--span", "a=b"]) == 2
    assert "--recorded brings its own tokens; leave out --span" in capsys.readouterr().err
