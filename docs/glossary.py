"""The glossary, and questions with their commands, as pages of the documentation."""

from __future__ import annotations

import re

from attnviz.core.questions import questions, terms

_GLOSSARY = """# Glossary

Terms as attnviz uses them; `attnviz help TERM` prints one of them.
"""

_QUESTIONS = """# Choose your command

Find your question, copy its command. `attnviz help "my RAG answer is wrong"` finds these in the
terminal, whatever words you ask with. Commands run in a clone of the repository, where
`sample_inputs/` is.
"""


def glossary_page() -> str:
    """``docs/glossary.md``."""
    parts = [_GLOSSARY]
    for term in terms():
        also = f"\n\nAlso: {', '.join(term.also)}." if term.also else ""
        source = f"\n\nSource: {term.source}." if term.source else ""
        parts.append(f"## {term.name}\n\n{term.text}{also}{source}\n\nTry: `{term.command}`\n")
    return "\n".join(parts)


def questions_page() -> str:
    """``docs/questions.md``: which command answers what, in one table, then each in full."""
    rows = [
        f"| [{entry.asks}](#{_anchor(entry.asks)}) | `{' '.join(entry.command.split()[:2])}` |"
        for entry in questions()
    ]
    parts = [_QUESTIONS, "\n".join(["| you ask | command |", "|---|---|", *rows]) + "\n"]
    for question in questions():
        python = f"\n```python\n{question.python}\n```\n" if question.python else ""
        parts.append(
            f"## {question.asks}\n\n```sh\n{question.command}\n```\n{python}\n{question.tells} "
            f"More: [{question.page}.md]({question.page}.md).\n"
        )
    return "\n".join(parts)


def _anchor(heading: str) -> str:
    """Name a heading as links to it do."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
