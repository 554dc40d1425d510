"""What a command loads is what its user waits for: what only some calls need waits for them."""

from __future__ import annotations

import subprocess
import sys

BUDGET = 136
"""Modules of attnviz that the table of heads may load: what attends knows gates and cuts too."""

FORBIDDEN = ("attnviz.web", "attnviz.corpus", "attnviz.models.hooked", "attnviz.drawing.figure",
             "attnviz.features.profile", "attnviz.features.view",
             "attnviz.features.ablation", "attnviz.statistics.families")  # fmt: skip
"""What only other commands need."""

OTHERS = {
    "annotated_doc", "click", "numpy", "pygments", "rich", "safetensors", "shellingham",
    "threadpoolctl", "tokenizers", "typer", "typing_extensions",
}  # fmt: skip
"""Packages of others that it needs."""

CODE = """
import sys
before = {name.partition(".")[0] for name in sys.modules}
from attnviz.cli import main
assert main(sys.argv[1:]) == 0
sys.stdout.flush()
for name in sorted(sys.modules):
    top = name.partition(".")[0]
    if top == "attnviz" or top not in before | sys.stdlib_module_names:
        sys.stderr.write(f"module {name}\\n")
"""


def loaded(*arguments: str) -> set[str]:
    """The modules that a command loads, none of Python's own."""
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.removeprefix("module ") for line in done.stderr.splitlines() if "module " in line}


def own(modules: set[str]) -> set[str]:
    """Those of attnviz."""
    return {name for name in modules if name.partition(".")[0] == "attnviz"}


def test_heads_loads_no_module_that_it_need_not() -> None:
    modules = loaded("heads", "The cat sat on the mat")
    assert len(own(modules)) <= BUDGET, sorted(own(modules))
    assert not [name for name in own(modules) if name.startswith(FORBIDDEN)]
    packages = {name.partition(".")[0] for name in modules - own(modules)}
    assert {name for name in packages if "cython" not in name} <= OTHERS  # which is numpy's


def test_threads_sleep_while_they_wait_unless_somebody_says_otherwise(monkeypatch) -> None:
    """As torch finds it when it is imported; the sums have as many threads, so the same bits."""
    code = "import os, sys; from attnviz.__main__ import run\nsys.argv[1:] = ['--version']\n"
    code += "try: run()\nfinally: print(os.environ['OMP_WAIT_POLICY'])"
    for said, policy in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if said:
            monkeypatch.setenv("OMP_WAIT_POLICY", said)
        printed = subprocess.check_output([sys.executable, "-c", code], text=True)
        assert printed.split()[-1] == policy


def test_the_list_of_commands_imports_none_of_them() -> None:
    """Their settings and results take several times as long as all that is printed."""
    modules = own(loaded("--help"))
    inside = [name for name in modules if name.startswith("attnviz.features.")]
    assert len(inside) > 20
    assert not [name for name in inside if name.count(".") > 2]
