"""The terms that a page uses: each is defined once in its help, with its source."""

from __future__ import annotations

import html
import re

from attnviz.core.glossary import Term, term

_USED = re.compile(r"(?:data-term=|\bterm\()\"([^\"]+)\"")


def used(*texts: str) -> tuple[Term, ...]:
    """The terms that a page marks: its markup with ``data-term``, scripts with ``term("...")``."""
    names = {name for text in texts for name in _USED.findall(text)}
    return tuple(sorted(map(term, names), key=lambda entry: entry.name.lower()))


def definitions(terms: tuple[Term, ...]) -> str:
    """Their definitions as the help lists them."""
    return "".join(map(_definition, terms))


def _definition(entry: Term) -> str:
    source = f' <span class="source">{html.escape(entry.source)}</span>' if entry.source else ""
    name = html.escape(entry.name)
    return f'    <dt data-word="{name}">{name}</dt><dd>{html.escape(entry.text)}{source}</dd>\n'
