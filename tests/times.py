"""Where the time of a run goes, ``-p tests.times``: seconds by file, summed over processes."""

from __future__ import annotations

from collections import Counter
from typing import Any

FILES, TESTS = 30, 30


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table."""
    tests, files, prepared = Counter[str](), Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if not hasattr(report, "duration"):
                continue
            name = report.nodeid.partition("::")[0]
            tests[report.nodeid] += report.duration
            files[name] += report.duration
            prepared[name] += report.duration if report.when == "setup" else 0
    write = terminalreporter.write_line
    terminalreporter.section(f"{files.total():.0f} s in {len(files)} files")
    write("  all s  fixtures  file")
    for name, seconds in files.most_common(FILES):
        write(f"{seconds:7.1f} {prepared[name]:9.1f}  {name}")
    write("")
    write("  all s  test")
    for name, seconds in tests.most_common(TESTS):
        write(f"{seconds:7.1f}  {name}")
