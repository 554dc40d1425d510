"""The glossary, and questions with their commands, as pages of the documentation."""

from __future__ import annotations

from attnviz.core.questions import questions, terms

_GLOSSARY = """# Glossary

Terms as attnviz uses them; `attnviz help TERM` prints one of them. This page is written from
`attnviz/core/terms.toml` by `python -m docs.reference`.
"""

_QUESTIONS = """# How to, by question

`attnviz help "which heads matter"` finds these in the terminal. Commands run in a clone of the
repository, where `sample_inputs/` is. This page is written from `attnviz/core/questions.toml` by
`python -m docs.reference`.
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
    """``docs/questions.md``."""
    parts = [_QUESTIONS]
    parts += [
        f"## {question.asks}\n\n```sh\n{question.command}\n```\n\n{question.tells} "
        f"More: [{question.page}.md]({question.page}.md).\n"
        for question in questions()
    ]
    return "\n".join(parts)
