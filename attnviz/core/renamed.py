"""Settings that had another name before: whoever uses it is told the new one."""

from __future__ import annotations

from collections.abc import Container

from attnviz.errors import Setting

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
    "device_map": ("device=balanced",),
    "load_in": ("dtype=8bit",),
    "font_size": ("font=8pt",),
    "system": ("chat=system: TEXT",),
    "user": ("chat=user: TEXT",),
}
"""The new names of a setting by its old one, as Python spells them: the first that there is.

One that is a value of another setting now is written with it.
"""


def renamed(old: str, known: Container[str]) -> Setting | None:
    """The setting of today, where it is known by another name; None where it never was.

    Args:
        old: the name that was used.
        known: the names that there are.
    """
    for new in RENAMED.get(old, ()):
        name, equals, value = new.partition("=")
        if name in known:
            return Setting(name, value) if equals else Setting(name)
    return None
