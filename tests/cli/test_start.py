"""What a command loads is what its user waits for: ``heads``, the command that people meet first.

Each module costs about a thousandth of importing torch, which is not among them. One that is new
here needs a reason: what only some calls need is imported where they need it.
"""

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
    "annotated_doc",
    "click",
    "numpy",
    "pygments",
    "rich",
    "safetensors",
    "shellingham",
    "threadpoolctl",
    "tokenizers",
    "typer",
    "typing_extensions",
}
"""Packages of others that it needs."""

CODE = """
import sys
before = {name.partition(".")[0] for name in sys.modules}
from attnviz.cli import main
assert main(["heads", "The cat sat on the mat"]) == 0
sys.stdout.flush()
for name in sorted(sys.modules):
    top = name.partition(".")[0]
    if top == "attnviz" or top not in before | sys.stdlib_module_names:
        sys.stderr.write(f"module {name}\\n")
"""


def test_heads_loads_no_module_that_it_need_not() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    loaded = {
        line.removeprefix("module ") for line in done.stderr.splitlines() if "module " in line
    }
    own = {name for name in loaded if name.partition(".")[0] == "attnviz"}
    assert len(own) <= BUDGET, sorted(own)
    assert not [name for name in own if name.startswith(FORBIDDEN)]
    packages = {name.partition(".")[0] for name in loaded - own}
    assert {name for name in packages if "cython" not in name} <= OTHERS  # which is numpy's
