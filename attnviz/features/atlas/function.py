"""``attnviz.atlas``: everything known about every head of a model, on one page.

It runs the functions of the other commands, one after the other, and gathers what they find. What
each of them found is kept beside the page until that is written, so that an interrupted run goes on
with the part it was in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz import __version__
from attnviz.captures.inputs import capture, prepare_each, prompt_of
from attnviz.captures.loading import light
from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.prompt import Prompt
from attnviz.core.result import Result
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.tokens import Sides
from attnviz.corpus import texts
from attnviz.corpus.gold.cases import sentences as read_sentences
from attnviz.corpus.gold.cases import split_gold
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError, ModelError, OutputError, system_errors
from attnviz.features.ablation.function import ablate as run_ablate
from attnviz.features.ablation.result import Ablation
from attnviz.features.atlas.gather import examples, gather, readers
from attnviz.features.atlas.page import selection, write
from attnviz.features.atlas.result import Atlas, ExampleMap
from attnviz.features.atlas.settings import AtlasSettings
from attnviz.features.circuits.function import circuits as run_circuits
from attnviz.features.circuits.result import Circuits
from attnviz.features.coref.function import coref as run_coref
from attnviz.features.coref.result import Coref
from attnviz.features.profile.function import profile as run_profile
from attnviz.features.profile.result import Profile
from attnviz.features.results import read_evidence
from attnviz.features.sources.measure import measure
from attnviz.features.sources.result import SourceShares
from attnviz.features.syntax.function import syntax as run_syntax
from attnviz.features.syntax.result import Syntax
from attnviz.files import check_folder, contents, listed, open_regular, place
from attnviz.scoring.scores import SCORES

ABLATED = 64  # texts that heads are ablated on at most
MEASURED_HEADS, MEASURED_TEXTS = 24, 16
"""Heads whose queries and keys are split by source at most, and texts on which they are."""
PARTS = ("profile", "ablate", "syntax", "coref", "circuits", "sources")
_MARKER = "attnviz-atlas"
_SHOWN = 40  # tokens of an example's map at most


Part = TypeVar("Part", bound=Result)


@interface
def atlas(
    files: str | Path | Sequence[str | Path],
    *,
    settings: AtlasSettings,
    attaching: Attaching,
    model: ModelSettings,
    state: str | Path | None = None,
    out_dir: str | Path | None = None,
    progress: Progress = lambda part, done, total: None,
) -> Atlas:
    """Profile, ablate, compare with gold annotation and read the weights of every head.

    Of up to 24 heads that others feed by their weights, what their queries and keys are from is
    measured on up to 16 of the texts (:func:`attnviz.sources`).

    Args:
        files: of texts, see :func:`attnviz.profile`.
        state: a folder for what is done, so that the same call goes on from there: one that is not
            there yet, or that this made; it is left where it is.
        out_dir: a folder for the atlas as pages: ``index.html``, and one of each head row by row
            (:func:`attnviz.profile` with ``select``), linked and offline.
        progress: called while it runs.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; a part that a model cannot give is left out, and
            the page says why.
    """
    treebanks, antecedents = split_gold(settings.gold)
    limit = None if settings.limit is None else min(settings.limit, sys.maxsize)
    if out_dir is not None:
        check_folder(Path(out_dir))
    names, beside = listed(files), read_evidence(attaching.evidence)
    texts.resolve(names)
    if antecedents:
        texts.resolve(antecedents)
    if treebanks:
        read_sentences(treebanks, strict=False)  # now, not when the profile is done
    source = light(model.load())
    for evidence in beside:
        evidence.result.check_model(evidence.name, source.info, source.layout, model.identity)
    rows = None if out_dir is None else selection(source.layout)
    store = _Kept(
        None if state is None else Path(state), f"{_state(model, names, settings)} {rows}"
    )

    def profile() -> Profile:
        records = texts.read(texts.resolve(names))
        count = sum(isinstance(text, Text) for text in islice(records, limit))
        return run_profile(
            names,
            limit=limit,
            stability=True,
            select=rows,
            progress=lambda state: progress("profile", state.texts, count),
            model=model,
        )

    def ablate() -> Ablation:
        return run_ablate(
            list(islice(_prompts(names, source, limit), ABLATED)),
            progress=lambda part, done, total: progress(f"ablate: {part}", done, total),
            model=source,
        )

    absent: dict[str, str] = {}

    def maybe(kind: type[Part], make: Callable[[], Part]) -> Part | None:
        """Return a part that some models cannot give."""
        try:
            return store.part(kind, make)
        except ModelError as error:
            absent[kind.command] = str(error)
            return None

    profiled = store.part(Profile, profile)
    ablation = maybe(Ablation, ablate)
    grammar = maybe(
        Syntax, lambda: run_syntax(treebanks, model=source, progress=_of("syntax", progress))
    ) if treebanks else None  # fmt: skip
    names_found = maybe(
        Coref, lambda: run_coref(antecedents, model=source, progress=_of("coref", progress))
    ) if antecedents else None  # fmt: skip
    weights = maybe(
        Circuits, lambda: run_circuits(model=source, progress=_of("circuits", progress))
    )
    split: dict[Head, SourceShares] = {}
    if weights is not None:
        roles: dict[Head, str | None] = {}  # that it finds its keys by; None for none
        for head in readers(weights, MEASURED_HEADS):
            does = profiled[head].scores.does
            roles[head] = does.name if does and SCORES[does.score].on_targets else None
        inputs = list(islice(_prompts(names, source, limit), MEASURED_TEXTS))
        try:
            split = _shares(store, source, model, inputs, roles, progress)
        except ModelError as error:
            absent[SourceShares.command] = str(error)
    result = gather(
        profiled,
        ablate=ablation,
        syntax=grammar,
        coref=names_found,
        circuits=weights,
        shares=split,
        absent=absent,
        maps=_maps(profiled, source, progress),
        findings=[finding for attached in beside if (finding := attached.finding()) is not None],
    )
    if out_dir is not None:
        write(result, profiled, Path(out_dir))
    return result


def forget(state: str | Path) -> None:
    """Remove a folder of parts that :func:`atlas` made, but for anything else in it."""
    folder = Path(state)
    nonce = _nonce(folder)
    if nonce is None:
        return
    with suppress(OSError):
        for path in (*folder.glob(f"*.{nonce}.json"), folder / _MARKER):
            path.unlink(missing_ok=True)
        folder.rmdir()


def _nonce(folder: Path) -> str | None:
    """Give what the names of the parts in a folder of ours end with; None for any other folder."""
    if folder.is_symlink():
        return None
    with suppress(OSError, UnicodeDecodeError):
        nonce = contents(folder / _MARKER, 100).decode().strip()
        if re.fullmatch("[0-9a-f]{16}", nonce):
            return nonce
    return None


class _Kept:
    """What parts have found, in a folder, as long as nothing has changed.

    The folder is one that this made: a marker in it holds a random number, which is part of the
    names of all other files, so that nobody else's file is ever taken for ours.
    """

    def __init__(self, folder: Path | None, state: str) -> None:
        self._folder, self._state, self._ending = folder, state, ""
        if folder is None:
            return
        self._ending = _nonce(folder) or secrets.token_hex(8)
        with system_errors(OutputError, f"cannot write into {folder}"):
            if _nonce(folder) is None and os.path.lexists(folder):
                raise OutputError(
                    f"{folder} is not of attnviz atlas, which keeps there what it has done; "
                    "remove it or choose another place"
                )

    def part(self, kind: type[Part], make: Callable[[], Part], name: str = "") -> Part:
        """Return a part that is there already, or made now."""
        if self._folder is None:
            return make()
        path = self._folder / f"{name or kind.command}.{self._ending}.json"
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, InputError):
            saved = json.loads(contents(path))  # if it is broken it is made anew
            if saved["state"] == self._state:
                return kind.from_dict(saved["document"])
        part = make()
        if _nonce(self._folder) is None:
            with system_errors(OutputError, f"cannot write into {self._folder}"):
                self._folder.mkdir(parents=True)
            place(self._folder / _MARKER, (self._ending.encode(),))
        record = {"state": self._state, "document": part.to_dict()}
        place(path, (json.dumps(record).encode(),))
        return part


def _state(model: ModelSettings, names: Sequence[str], settings: AtlasSettings) -> str:
    """Give what decides the results: the model, the files with what is in them, and the options."""
    options = model.but(model=None).asked() | settings.asked()
    asked = sorted(model.identity.items()), sorted((name, str(options[name])) for name in options)
    digest = hashlib.sha256(repr((__version__, asked)).encode())
    gold = [name for several in split_gold(settings.gold) for name in several]
    for name in (*texts.resolve(list(names)), *gold):
        digest.update(str(name).encode())
        with system_errors(InputError, f"cannot read {name}"), open_regular(name) as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def _prompts(names: Sequence[str], source: Source, limit: int | None) -> Iterator[str | Prompt]:
    """Yield the texts that the model can take whole, of the first so many."""
    records: Iterator[Text | InvalidRecord] = texts.read(texts.resolve(list(names)))
    for text in islice(records, limit):
        if isinstance(text, InvalidRecord):
            continue
        try:
            source.prepare(text.prompt)
        except InputError:
            continue
        yield text.prompt.text or replace(text.prompt, spans=None)


def _shares(
    store: _Kept,
    source: Source,
    model: ModelSettings,
    texts: Sequence[str | Prompt],
    roles: Mapping[Head, str | None],
    progress: Progress,
) -> dict[Head, SourceShares]:
    """Where the scores of heads that others feed by their weights come from, if that can be told.

    ``roles``: what each finds its keys by, see :func:`attnviz.features.sources.measure.measure`.
    """

    @cache
    def every() -> dict[Head, Callable[[], SourceShares]]:
        """Measure all heads, whose passes are the same."""
        inputs = prepare_each(source, list(map(prompt_of, texts)))
        return measure(source, inputs, roles, progress=_of("sources", progress))

    shares: dict[Head, SourceShares] = {}
    for number, head in enumerate(roles):

        def judged(head: Head = head) -> SourceShares:
            return replace(every()[head](), identity=model.identity)

        with suppress(InputError):  # no row of these texts counts
            shares[head] = store.part(SourceShares, judged, f"sources-{number}")
    return shares


def _of(part: str, progress: Progress) -> Progress:
    """Progress of a part by its stages."""
    return lambda stage, done, total: progress(f"{part}: {stage}", done, total)


def _maps(profiled: Profile, source: Source, progress: Progress) -> dict[Head, ExampleMap]:
    """Return every head's map on its first example, cut to what is seen; texts run once."""
    by_text: dict[str, list[tuple[Head, int, str]]] = {}
    for profile in profiled.heads:
        for _, best in examples(profile)[:1]:
            if best.window == 0:
                by_text.setdefault(best.text, []).append((profile.head, best.row, best.token))
    maps: dict[Head, ExampleMap] = {}
    for number, (text, heads) in enumerate(by_text.items(), start=1):
        try:
            attention = capture(Prompt(text, truncate=True), model=source)
        except InputError:
            continue
        for head, row, token in heads:
            queries = attention.inputs.sides[head.site.kind].queries.texts
            # of a text that was not cut before it, nor written by a chat template
            if row < len(queries) and queries[row] == token:
                maps[head] = _cut(attention[head], attention.inputs.sides[head.site.kind], row)
        progress("examples", number, len(by_text))
    return maps


def _cut(weights: NDArray[np.floating[Any]], sides: Sides, row: int) -> ExampleMap:
    """Return a window of a map with the row in it; weights in thousandths."""
    rows, columns = weights.shape
    last = min(rows, max(row + 1, _SHOWN))
    first = max(0, last - _SHOWN)
    left = first if rows == columns else 0
    right = min(columns, left + _SHOWN)
    thousandths = np.rint(1000 * weights[first:last, left:right]).astype(int)
    return ExampleMap(
        tuple(sides.queries.texts[first:last]),
        tuple(sides.keys.texts[left:right]),
        row - first,
        first,
        tuple(map(tuple, thousandths.tolist())),
    )
