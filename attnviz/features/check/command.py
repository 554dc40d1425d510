"""``attnviz check``: is this attention right, a recorded file's or a module's?"""

from __future__ import annotations

from dataclasses import dataclass

import typer

from attnviz.cli.console import DIFFERS
from attnviz.cli.declared import command
from attnviz.cli.output import Output
from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class Checked(Settings):
    """What is checked."""

    path: str = setting(
        ...,
        "A recording, what another tool has written (docs/recording.md), or file.py:Class of a "
        "torch module, whose file is run.",
        argument=True,
    )
    d_model: int = setting(24, "D of the module.", least=1, metavar="D", common=True)
    heads: int | None = setting(
        None, "H heads of the module.", shown="4", least=1, metavar="H", common=True
    )
    kv_heads: int | None = setting(None, "G key/value heads of the module.", least=1, metavar="G")
    causal: bool | None = setting(
        None, "Whether a token must not see later ones; by default as the module says."
    )


@command
def check(checked: Checked, output: Output) -> None:
    """Check attention: what is wrong with a recorded file, or which bug a module has.

    Exit code 0: nothing is wrong. 1: no such file, or none that could be. 4: something is wrong;
    of a module also where something fails that has no name.

    [bold]Examples[/]

      attnviz check sample_inputs/attention.py:Attention --d-model 32 --heads 4

      attnviz check sample_inputs/attention.py:Attention --causal
    """
    from attnviz.features.check import function
    from attnviz.features.check.result import FileCheck, ModuleCheck

    module = ".py:" in checked.path
    output.check_written(ModuleCheck if module else FileCheck)
    result = function.check(
        checked.path,
        heads=checked.heads,
        causal=checked.causal,
        d_model=checked.d_model,
        kv_heads=checked.kv_heads,
    )
    output.deliver(result)
    if not result.holds:
        raise typer.Exit(DIFFERS)
