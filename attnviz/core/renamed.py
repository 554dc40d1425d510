"""Settings that had another name before: whoever uses it is told the new one."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

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
    "conllu": ("gold",),
    "gap": ("gold",),
    "show": ("map_tokens", "sentences"),
    "keep": ("state",),
    "out": ("state",),
    "baselines": ("baseline",),
    "results": ("out_dir",),
    "ablated": ("limit",),
    "top": ("select=clearest:{3}", "predictions"),
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
    "circuit_size": ("circuit=5",),
    "faithful": ("circuit=85%",),
    "gradient": ("estimate",),
    "seeds": ("control=3",),
    "no_control": ("control=0",),
    "only": ("select",),
    "needles": ("needles",),
    "merge": ("files",),
    "token": ("answer",),
    "treebank": ("gold",),
    "pronouns": ("gold",),
    "compare": ("show=compare",),
    "verify": ("show=verify",),
    "memory": ("show=compare:{80GB}",),
    "sweep": ("show={seq=128..131072}",),
    "precision": ("show=numbers:{5}",),
    "preset": ("model",),
    "example": ("input=words",),
    "rope_dim": ("latent=512+64",),
    "write": ("out_dir",),
    "copy": ("out_dir",),
    "matrix": ("query=all",),
    "weights": ("format=png,npz",),
    "hide_sink": ("hide=sink",),
    "no_labels": ("hide=labels",),
    "labels": ("hide=labels",),
    "all": ("top=all",),
    "random_orders": ("curve=effect:{20}",),
    "mean_over": ("method=mean:tokens",),
    "clearest": ("select=clearest:{3}",),
    "context": ("pair",),
    "cache_dtype": ("dtype=bf16+{fp8}",),
    "system": ("chat=system: TEXT",),
    "user": ("chat=user: TEXT",),
    "select_on": ("split",),
}
"""The new names of a setting by its old one, as Python spells them: the first that there is.

One that is a value of another setting now is written with it; what stands in braces is its own
value, or an example of one.
"""

_VALUE = re.compile(r"\{(.*)\}")


def renamed(old: str, known: Container[str], value: Any = ...) -> Setting | None:
    """The setting of today, where it is known by another name; None where it never was."""
    for new in RENAMED.get(old, ()):
        name, equals, spelled = new.partition("=")
        if name in known:
            own = r"\1" if value is ... or isinstance(value, bool) else str(value).replace("\\", "")
            return Setting(name, _VALUE.sub(own, spelled)) if equals else Setting(name)
    return None
