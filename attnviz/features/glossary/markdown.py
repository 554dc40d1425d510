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
    for one in terms():
        also = f"\n\nAlso: {', '.join(one.also)}." if one.also else ""
        source = f"\n\nSource: {one.source}." if one.source else ""
        parts.append(f"## {one.name}\n\n{one.text}{also}{source}\n")
    return "\n".join(parts)
