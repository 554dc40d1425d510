"""``attnviz.atlas``: everything known about every head of a model, on one page.

It runs the functions of the other commands, one after the other, and gathers what they find. What
each of them found is kept beside the page until that is written, so that an interrupted run goes on
with the part it was in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attnviz import __version__, files
from attnviz.antecedents import coref as run_coref
from attnviz.corpus import texts
from attnviz.corpus.texts import Bad, Text
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.evidence import ablate as run_ablate
from attnviz.evidence import syntax as run_syntax
from attnviz.gathered import Document, examples, gather
from attnviz.looking import DEFAULT_MODEL, Model, capture, load
from attnviz.models.identity import identity
from attnviz.notebook import Page
from attnviz.passes import Source
from attnviz.profiled import profile as run_profile
from attnviz.records import Head, Prompt
from attnviz.render.ablation.tables import ablation_json
from attnviz.render.atlas import atlas_page
from attnviz.render.circuits.tables import circuits_json
from attnviz.render.grammar.tables import annotated_json
from attnviz.render.labels import model_name
from attnviz.scoring import select as selection
from attnviz.wired import circuits as run_circuits

Progress = Callable[[str, int, int], None]
"""Called with a part, how much of it is done and how much there is."""

ABLATED = 64
"""Texts that heads are taken away on, unless asked otherwise."""
PARTS = ("profile", "ablate", "syntax", "coref", "circuits")
_SHOWN = 40
"""Tokens of an example's map at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Atlas(Page):
    """The page, and all of it as plain values: ``document``, as docs/atlas.schema.json says."""

    document: Document

    def json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(self.document, ensure_ascii=False, allow_nan=False)


def atlas(
    inputs: str | Path | Sequence[str | Path],
    *,
    model: str | Path = DEFAULT_MODEL,
    conllu: str | Path | None = None,
    gap: str | Path | None = None,
    limit: int | None = None,
    ablated: int = ABLATED,
    device: str = "auto",
    dtype: str = "auto",
    keep: str | Path | None = None,
    progress: Progress = lambda part, done, total: None,
) -> Atlas:
    """Profile, ablate, compare with gold annotation and read the weights of every head.

    Args:
        inputs: texts, see :func:`attnviz.profile`.
        model: a bundled model, a folder or a hub id.
        conllu: a treebank, see :func:`attnviz.syntax`.
        gap: ambiguous pronouns or entities, see :func:`attnviz.coref`.
        limit: how many texts to take at most.
        ablated: on how many of them heads are taken away.
        device: where to run.
        dtype: in which precision.
        keep: a folder for what is done, so that the same call goes on from there; it is left where
            it is.
        progress: called while it runs.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; a part that a model cannot give is left out, and
            the page says why.
    """
    if ablated < 1:
        raise UsageError("give at least 1 text to take heads away on, not {}", ablated)
    source = load(model, device=device, dtype=dtype)
    listed = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    names = [str(name) for name in listed]
    kept = _Kept(
        None if keep is None else Path(keep), _state(model, names, conllu, gap, limit, dtype)
    )

    def profile() -> str:
        known = texts.read(texts.resolve(names))
        count = sum(isinstance(one, Text) for one in islice(known, limit))
        found = run_profile(
            names,
            limit=limit,
            progress=lambda at: progress("profile", at.texts, count),
            model=model,
            device=device,
            dtype=dtype,
        )
        return found.json()

    def ablate() -> str:
        found = run_ablate(
            list(islice(_prompts(names, source), ablated)),
            gradient=not source.no_logits,
            progress=lambda part, done, total: progress(f"ablate: {part}", done, total),
            model=source,
        )
        return ablation_json(found)

    def circuits() -> str:
        return circuits_json(
            run_circuits(
                progress=lambda part, done, total: progress(f"circuits: {part}", done, total),
                model=source,
            )
        )

    def gold(run: Callable[..., Any], path: str | Path, name: str) -> Callable[[], str]:
        return lambda: annotated_json(
            run(
                path,
                progress=lambda part, done, total: progress(f"{name}: {part}", done, total),
                model=source,
            )
        )

    absent: dict[str, str] = {}

    def maybe(name: str, make: Callable[[], str]) -> Document | None:
        """A part that some models cannot give."""
        try:
            return kept.part(name, make)
        except ModelError as error:
            absent[name] = str(error)
            return None

    profiled = kept.part("profile", profile)
    parts = {
        "ablate": maybe("ablate", ablate),
        "syntax": maybe("syntax", gold(run_syntax, conllu, "syntax")) if conllu else None,
        "coref": maybe("coref", gold(run_coref, gap, "coref")) if gap else None,
        "circuits": maybe("circuits", circuits),
    }
    maps = _maps(profiled, source, progress)
    document = gather(profiled, **parts, absent=absent, maps=maps)
    title = f"attnviz atlas: {model_name(source.info)}"
    return Atlas(atlas_page(document, title=title), title, document)


def forget(keep: str | Path) -> None:
    """Remove a folder of parts once the page is written; anything else in it stays."""
    folder = Path(keep)
    for name in PARTS:
        (folder / f"{name}.json").unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


class _Kept:
    """What parts have found, in a folder, as long as nothing has changed.

    Args:
        folder: where; None to keep nothing.
        state: what decides the results.
    """

    def __init__(self, folder: Path | None, state: str) -> None:
        self._folder, self._state = folder, state

    def part(self, name: str, make: Callable[[], str]) -> Document:
        """A part that is there already, or made now."""
        path = None if self._folder is None else self._folder / f"{name}.json"
        if path is not None and path.is_file():
            try:
                found = json.loads(path.read_text("utf-8"))
                if found["state"] == self._state:
                    return dict(found["document"])
            except (ValueError, KeyError, TypeError):
                pass  # not ours, or of another version: made anew
        document = json.loads(make())
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = {"state": self._state, "document": document}
            files.write(path, json.dumps(whole).encode("utf-8"))
        return dict(document)


def _state(model: Model, names: Sequence[str], *more: Any) -> str:
    """What decides the results: the model, the files with what is in them, and the options."""
    digest = hashlib.sha256(repr((__version__, sorted(identity(model).items()), more)).encode())
    gold = [str(name) for name in more[:2] if name is not None]
    for name in (*texts.resolve(list(names)), *gold):
        path = Path(name)
        if not path.is_file():
            raise InputError(f"cannot read {name}: no such file")
        digest.update(str(name).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _prompts(names: Sequence[str], source: Source) -> Iterator[str]:
    """The texts that the model can take whole."""
    found: Iterator[Text | Bad] = texts.read(texts.resolve(list(names)))
    for text in found:
        if isinstance(text, Bad):
            continue
        try:
            source.prepare(text.prompt)
        except InputError:
            continue
        if text.prompt.text is not None:
            yield text.prompt.text


def _maps(profiled: Document, source: Source, progress: Progress) -> dict[str, Document]:
    """The map of every head on its first example, cut to what can be seen; texts run once each."""
    wanted: dict[str, list[tuple[str, int]]] = {}
    for head in profiled["heads"]:
        best = next(iter(examples(head)), None)
        if best and best["window"] == 0:
            wanted.setdefault(best["text"], []).append((head["name"], best["row"]))
    found: dict[str, Document] = {}
    for done, (text, heads) in enumerate(wanted.items(), start=1):
        try:
            whole = capture(Prompt(text, truncate=True), model=source)
        except InputError:
            continue
        for name, row in heads:
            (head,) = selection.select(name, whole.layout)
            if row >= whole[head].shape[0]:  # of a text that was cut
                continue
            found[name] = _cut(whole[head], whole.inputs.sides[head.site.kind], row, head)
        progress("examples", done, len(wanted))
    return found


def _cut(weights: np.ndarray, sides: Any, row: int, head: Head) -> Document:
    """A window of a map with the row in it; weights in thousandths."""
    rows, columns = weights.shape
    last = min(rows, max(row + 1, _SHOWN))
    first = max(0, last - _SHOWN)
    left = first if rows == columns else 0
    right = min(columns, left + _SHOWN)
    return {
        "queries": list(sides.queries.texts[first:last]),
        "keys": list(sides.keys.texts[left:right]),
        "row": row - first,
        "first": first,
        "weights": np.rint(1000 * weights[first:last, left:right]).astype(int).tolist(),
    }
