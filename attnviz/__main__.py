"""``python -m attnviz``."""

from attnviz.cli import run

run()
