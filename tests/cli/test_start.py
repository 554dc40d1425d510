"""What a command loads is what its user waits for: ``heads``, the command that people meet first.

Each module costs about a thousandth of importing torch. One that is new here needs a reason: what
only some calls need is imported where they need it.
"""

from __future__ import annotations

import subprocess
import sys

OWN = """
attnviz attnviz.errors attnviz.files
attnviz.attention attnviz.attention.attend attnviz.attention.contributions attnviz.attention.donors
attnviz.attention.layers attnviz.attention.masks attnviz.attention.sizes
attnviz.captures attnviz.captures.captured attnviz.captures.look attnviz.captures.notes
attnviz.captures.without
attnviz.cli attnviz.cli.console attnviz.cli.ending attnviz.cli.exits
attnviz.cli.flattening attnviz.cli.options
attnviz.cli.listing attnviz.cli.logged
attnviz.cli.paper_options attnviz.cli.plugins attnviz.cli.voice
attnviz.core attnviz.core.arguments attnviz.core.capture attnviz.core.findings
attnviz.core.generation attnviz.core.heads attnviz.core.key_mask attnviz.core.measures
attnviz.core.media attnviz.core.prompt attnviz.core.provenance
attnviz.core.quantities
attnviz.core.reasons attnviz.core.record attnviz.core.result attnviz.core.scores
attnviz.core.source attnviz.core.spans attnviz.core.tokens
attnviz.drawing attnviz.drawing.findings attnviz.drawing.folded attnviz.drawing.forms
attnviz.drawing.frames
attnviz.drawing.grid
attnviz.drawing.grid_terminal attnviz.drawing.html attnviz.drawing.labels attnviz.drawing.palette
attnviz.drawing.paper attnviz.drawing.published attnviz.drawing.terminal
attnviz.features
attnviz.features.heads attnviz.features.heads.command attnviz.features.heads.function
attnviz.features.heads.result attnviz.features.heads.terminal
attnviz.models attnviz.models.containers attnviz.models.controls attnviz.models.demo
attnviz.models.device
attnviz.models.folder attnviz.models.foreign attnviz.models.gating attnviz.models.hub
attnviz.models.identity attnviz.models.limits attnviz.models.memory attnviz.models.mixing
attnviz.models.pretrained attnviz.models.running attnviz.models.text attnviz.models.untrained
attnviz.models.weighed
attnviz.models.configs attnviz.models.configs.keys
attnviz.models.native attnviz.models.native.config attnviz.models.native.drawn
attnviz.models.native.families attnviz.models.native.network attnviz.models.native.source
attnviz.models.native.tokenizer attnviz.models.native.unsupported attnviz.models.native.weights
attnviz.models.native.words
attnviz.scoring attnviz.scoring.arrange attnviz.scoring.axes attnviz.scoring.block
attnviz.scoring.groups attnviz.scoring.observe attnviz.scoring.papers attnviz.scoring.plugins
attnviz.scoring.roles
attnviz.scoring.scores attnviz.scoring.select attnviz.scoring.stored attnviz.scoring.sums
attnviz.scoring.totals
"""
"""Every module of ours that ``attnviz heads TEXT`` loads, by package."""

OTHERS = {
    "annotated_doc",
    "click",
    "pygments",
    "rich",
    "safetensors",
    "shellingham",
    "tokenizers",
    "typer",
    "typing_extensions",
}
"""Packages of others beside torch and all that torch itself loads."""

CODE = """
import sys
import torch
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
    assert own == set(OWN.split())
    assert {name.partition(".")[0] for name in loaded - own} <= OTHERS
