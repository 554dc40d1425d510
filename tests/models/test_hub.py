"""A hub on this machine that answers well, badly, slowly and with malice; nothing else is asked."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from attnviz.models.hub import choose

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CASES = {
    "whole": "", "redirect": "", "names": "",
    "missing": "no folder and no model 'org/missing' on the hub",
    "gated": "org/gated is gated on the hub; accept its terms there and log in",
    "partial": "cannot fetch org/partial",
    "slow": "cannot be reached and its cache does not hold org/slow",
    "list": "answers for org/list with no description of a model",
    "number": "answers for org/number with no description of a model", "text": "org/text",
    "no-sha": "answers for org/no-sha with commit 'None'",
    "sha": "answers for org/sha with commit '../../../../sha'",
    "etag": "answers for org/etag with ETag '../../../../etag'",
    "commit": "answers for org/commit with commit '../../../../commit'",
    "lost": "answers for org/lost with commit '../../../../lost'", "tree": "org/tree",
    "xet": "org/xet", "siblings": "answers for org/siblings with no description of a model",
    "pickles": "only pickled weights", "failing": "org/failing",
}  # fmt: skip
"""What is said of each repository; nothing where it is fetched."""

BAD = "../../../../"
FETCH = """
import json, sys, time
from attnviz.models import hub
from attnviz.errors import ModelError
time.sleep = lambda seconds: None  # the library waits between its tries
for name in sys.argv[1:]:
    hub._PATIENCE = 0.2 if name == "slow" else 10.0
    try:
        folder = hub.download(f"org/{name}")
        said = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    except ModelError as error:
        said = str(error)
    print(json.dumps([name, said]), flush=True)
"""


def files() -> dict[str, bytes]:
    """What every repository holds; what is in the files nobody reads."""
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    return {
        **{name: 999 * name.encode() for name in names}, "chat_template.jinja": b"{{ messages }}",
        "additional_chat_templates/rag.jinja": b"{{ messages }}", "vocab.tiktoken": b"IQ== 0\n",
        "code.py": b"raise SystemExit", "onnx/model.json": b"{}", "pytorch_model.bin": b"x",
    }  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """The hub's interface, as far as one fetch needs it."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer(head=True)

    def do_GET(self) -> None:
        self.answer(head=False)

    def send(self, code: int, body: bytes, head: bool, cut: bool = False, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True

    def answer(self, *, head: bool) -> None:
        path = self.path.partition("?")[0].removeprefix("/api/models").removeprefix("/cdn")
        _, _, name, *rest = path.split("/")
        held = dict(files())
        if name == "pickles":
            del held["model.safetensors"]
        if name == "names":
            held |= {"*.json": b"x", "../../../out.json": b"x", "a[b].json": b"x", ".x.json": b"x"}
        if name == "slow":
            time.sleep(4)
        if name == "failing" and not self.path.startswith("/api/models/org/failing/revision"):
            self.send(503, b"", head)
        elif name == "missing":
            self.send(404, b"{}", head, X_Error_Code="RepoNotFound")
        elif self.path.startswith("/api/"):
            self.describe(name, rest, held, head)
        elif name == "gated":
            self.send(403, b"", head, X_Error_Code="GatedRepo")
        else:
            self.give(name, "/".join(rest[2:]), held, head)

    def describe(self, name: str, rest: list[str], held: dict[str, bytes], head: bool) -> None:
        if "tree" in rest:
            listed = [
                {"type": "file", "path": path, "size": len(data), "oid": self.etag(data)}
                for path, data in held.items()
            ]
            if name == "tree":
                self.send(200, b'{"a": 1}', head, Content_Type="application/json")
                return
            if name == "xet":
                for file in listed:
                    file |= {"oid": BAD + "oid", "xetHash": "a" * 64}
                    file["lfs"] = {"oid": BAD + "lfs", "size": file["size"], "pointerSize": 1}
            body: Any = listed
        else:
            sha = {"sha": BAD + "sha", "no-sha": None}.get(name, COMMIT)
            siblings: Any = [{"rfilename": path} for path in held]
            body = {"_id": "1", "id": f"org/{name}", "sha": sha, "siblings": siblings}
            body |= {"tags": [], "private": False, "downloads": 1, "likes": 1, "disabled": False}
            if name == "siblings":
                body["siblings"] = [1, "a", None]
            body = {"list": [1], "number": 3, "text": "hello"}.get(name, body)
        self.send(200, json.dumps(body).encode(), head, Content_Type="application/json")

    @staticmethod
    def etag(data: bytes) -> str:
        return hashlib.sha1(data, usedforsecurity=False).hexdigest()

    def give(self, name: str, file: str, held: dict[str, bytes], head: bool) -> None:
        commit = BAD + "commit" if name == "commit" else COMMIT
        if name == "lost":
            self.send(404, b"", head, X_Error_Code="EntryNotFound", X_Repo_Commit=BAD + "lost")
            return
        if file not in held:
            self.send(404, b"", head, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
            return
        data = held[file]
        etag = BAD + "etag" if name == "etag" else self.etag(data)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "Accept-Ranges": "none"}
        if name == "redirect" and not self.path.startswith("/cdn"):
            address = f"http://127.0.0.1:{self.server.server_address[1]}/cdn{self.path}"
            linked = {"X-Linked-ETag": f'"{etag}"', "X-Linked-Size": str(len(data))}
            self.send(302, b"", head, **headers, **linked, Location=address)
            return
        self.send(200, data, head, cut=name == "partial" and not head, **headers)


def environment(server: ThreadingHTTPServer, home: Path) -> dict[str, str]:
    """The variables of a process that asks a hub on this machine, and keeps all within a folder."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "HF_HUB_CACHE": str(home / "a" / "b" / "c" / "cache"),
        "HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "0",
        "HF_HUB_ETAG_TIMEOUT": "2", "HF_HUB_DOWNLOAD_TIMEOUT": "2", "NO_PROXY": "127.0.0.1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of every case; all of them are fetched in one process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = tmp_path_factory.mktemp("home")
    deep = home / "a" / "b" / "c" / "cache"
    try:
        ran = subprocess.run(
            [sys.executable, "-c", FETCH, *CASES],
            env=environment(server, home), capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    assert ran.returncode == 0, ran.stderr
    outside = [path for path in home.rglob("*") if path.is_file() and deep not in path.parents]
    return {
        **dict(map(json.loads, ran.stdout.splitlines())),
        "outside": [path for path in outside if home / "hf" not in path.parents],
        "stderr": ran.stderr,
        "refs": (deep / "models--org--whole" / "refs" / "main").read_text(),
    }


@pytest.mark.parametrize("name", CASES)
def test_what_a_hub_may_answer(name: str, said: dict[str, Any]) -> None:
    if CASES[name]:
        assert CASES[name] in str(said[name])
        assert isinstance(said[name], str), "it is refused"
        assert "\n" not in said[name]
        return
    safe = [name for name in files() if not name.endswith((".py", ".bin")) and "onnx" not in name]
    assert said[name] == sorted(safe)


def test_nothing_is_written_outside_of_the_cache(said: dict[str, Any]) -> None:
    assert said["outside"] == []
    assert said["refs"] == COMMIT


def test_the_library_says_nothing_beside_our_line(said: dict[str, Any]) -> None:
    assert said["stderr"] == ""


def test_only_names_that_are_names_are_chosen() -> None:
    names = [
        "config.json", "*.json", "../a.json", "a/../b.json", "a\\b.json", "[a].json", ".a.json",
        "a?.txt", "a\nb.txt", "additional_chat_templates/../x.jinja", "chat_template.jinja",
        "additional_chat_templates/a.jinja", "additional_chat_templates/a.txt", "cl100k.tiktoken",
        "model.safetensors", "model.fp16.safetensors", "README.md", "spiece.model", "vocab.txt",
        "/etc/passwd.txt", "", "..", "C:x.json",
    ]  # fmt: skip
    assert choose(names, "some/one") == [
        "config.json", "chat_template.jinja", "cl100k.tiktoken", "spiece.model", "vocab.txt",
        "additional_chat_templates/a.jinja", "model.safetensors",
    ]  # fmt: skip
