"""docs/watching.md from its first line to its last, as one script."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import torch

from tests import ROOT

PAGE = (ROOT / "docs" / "watching.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def test_every_block_runs_and_prints_what_stands_below_it() -> None:
    names: dict[str, object] = {}
    torch.manual_seed(0)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) >= 8
    for code, told in blocks:
        with redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        assert out.getvalue() == told
    without, plain = names["without"], names["plain"]
    assert isinstance(without, torch.Tensor)
    assert not torch.equal(without, plain)  # type: ignore[arg-type]
    gates = names["gates"]
    assert isinstance(gates, torch.Tensor)
    assert gates.grad is not None
    assert gates.grad.abs().min() > 0
