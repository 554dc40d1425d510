"""The pages' scripts that need no page, in Node.js: their answers against reference.py's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.web.reference import cases

NODE = shutil.which("node")
TESTS = sorted((ROOT / "tests").rglob("*.test.js"))


@pytest.mark.skipif(NODE is None, reason="needs node, to run the pages' scripts without a page")
def test_scripts_answer_as_the_reference_does(tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "package.json").write_text('{"type": "module"}')
    given = json.dumps(cases())
    copies = []
    for test in TESTS:
        folder = tmp_path / "-".join(test.parent.relative_to(ROOT / "tests").parts)
        own = ROOT / "attnviz" / test.parent.relative_to(ROOT / "tests") / "js"
        for source in (ROOT / "attnviz/web/js", own):
            shutil.copytree(source, folder, dirs_exist_ok=True)
        (folder / "cases.json").write_text(given)
        copies.append(shutil.copy(test, folder))
    assert len(copies) == 10
    ran = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", *copies], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)
    assert found
    assert int(found[1]) >= len(copies)


def test_one_module_writes_numbers() -> None:
    """Others would have hyphens for minus signs, and digits that nobody knows."""
    own = re.compile(r"\.to(Fixed|Precision|Exponential|LocaleString)\(|Math\.round\(100 \*")
    free = {"numbers.js", "painter.js"}  # the latter writes paths
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in sorted((ROOT / "attnviz").rglob("js/*.js"))
        for line in path.read_text("utf-8").splitlines()
        if path.name not in free and own.search(line)
    ]
    assert found == []
