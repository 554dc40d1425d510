"""What other commands say of heads, below their table on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.text import Text

from attnviz.core.findings import Finding
from attnviz.drawing.terminal import Line


def finding_lines(findings: Sequence[Finding], names: Collection[str]) -> Iterator[Line | Text]:
    """Each result, what it says first of the heads named, and how it knows."""
    for finding in findings:
        listed = [name for name in names if name in finding.said]
        yield Line(f"{finding.title} ({finding.name})", "bold")
        wide = max(map(len, listed), default=0)
        for name in listed:
            yield Line(f"{name:<{wide}}  {finding.said[name][0]}")
        if not listed:
            yield Line("nothing on the heads above")
        yield Line(finding.how, "dim")
        yield Text()
