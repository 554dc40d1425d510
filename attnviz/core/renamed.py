"""Settings that had another name before: whoever uses it is told the new one."""

from __future__ import annotations

from collections.abc import Container

RENAMED: dict[str, tuple[str, ...]] = {
    "lines": ("texts",),
    "plot": ("out",),
    "weigh": ("quantity",),
    "with": ("evidence",),
    "spans": ("span",),
    "source_tokens": ("tokens",),
    "heads": ("select",),
    "head": ("select",),
    "at": ("position", "query"),
    "against": ("other_model", "other_key"),
    "order": ("curve",),
    "remeasure": ("curve",),
    "positions": ("by",),
    "no_title": ("title",),
    "what": ("text",),
    "inputs": ("files",),
    "texts": ("files",),
    "conllu": ("treebank",),
    "gap": ("pronouns",),
    "show": ("map_tokens", "sentences"),
    "keep": ("state",),
    "out": ("state",),
    "baselines": ("baseline",),
    "results": ("out_dir",),
    "ablated": ("limit",),
    "top": ("clearest", "predictions"),
    "fresh_kind": ("kind",),
    "window": ("sliding_window",),
    "why": ("explain",),
    "diagram": ("show",),
    "numbers": ("show",),
    "animate": ("show",),
    "scaling": ("show",),
    "presets": ("show",),
}
"""The new names of a setting by its old one, as Python spells them: the first that there is."""


def renamed(old: str, known: Container[str]) -> str | None:
    """The name of today, where a setting is known by another one; None where it never was.

    Args:
        old: the name that was used.
        known: the names that there are.
    """
    return next((new for new in RENAMED.get(old, ()) if new in known), None)
