"""The glossary as a page of the documentation."""

from __future__ import annotations

from attnviz.core.glossary import terms

_HEAD = """# Glossary

Terms as attnviz uses them; `attnviz help TERM` prints one of them. This page is written from
`attnviz/core/terms.toml` by `python -m attnviz.features.glossary`.
"""


def page() -> str:
    """``docs/glossary.md``."""
    parts = [_HEAD]
    for term in terms():
        also = f"\n\nAlso: {', '.join(term.also)}." if term.also else ""
        source = f"\n\nSource: {term.source}." if term.source else ""
        parts.append(f"## {term.name}\n\n{term.text}{also}{source}\n\nTry: `{term.command}`\n")
    return "\n".join(parts)
