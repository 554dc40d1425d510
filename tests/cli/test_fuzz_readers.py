"""Real files and calls, changed at random by class and number: used, or refused by our errors."""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import shutil
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import attnviz as av
from attnviz.corpus.gold.cases import sentences
from attnviz.features.coref.choosing import choices
from attnviz.features.coref.mentions import documents
from attnviz.features.profile import saved
from attnviz.features.profile.summary import summarize
from attnviz.features.results import read_evidence
from attnviz.features.shapes.tiny import read_json
from attnviz.models import recorded
from tests import ROOT

SAMPLES = ROOT / "sample_inputs"
COUNT = int(os.environ.get("ATTNVIZ_FUZZ", "100")) * 9 // 10
"""How many inputs, but for the command lines of test_fuzz; ``make fuzz`` asks for thousands."""
LONGEST = 20.0
"""Seconds of processor time of one input: what takes longer has no bound."""
JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 0.5, 2**31, 2**64, 10**400, -(2**70), 1e308, math.nan, math.inf, "", "x",
    "a" * 5000, "\x00\ud800", "0.0", "1", [], {}, [[]], [0] * 50, {"x": 1}, [None], "../x",
)  # fmt: skip

Attempt = Callable[[Random, Path], object]


def mutated(data: bytes, random: Random) -> bytes:
    """Bytes with some of them changed, repeated, moved, left out or cut off."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        if not changed:
            break
        at = random.randrange(len(changed))
        end = min(len(changed), at + random.choice((1, 1, 2, 8, 64, 1000)))
        piece = changed[at:end]
        match random.randrange(6):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                changed[at:end] = piece * random.choice((2, 3, 300))
            case 2:
                del changed[at:end]
            case 3:
                changed[at:end] = random.choice((b"\t", b"\n", b"()", b"9" * 5000, b"\xff", b"-1"))
            case 4:
                changed[at:at] = changed[:: random.choice((-1, 7))][:200]
            case _:
                del changed[at:]
    return bytes(changed)


def mutated_json(value: Any, random: Random) -> Any:
    """A JSON value in which one place, however deep, holds something else or is missing."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        inner = list(value.items() if isinstance(value, dict) else enumerate(value))
    if not inner or random.random() < 0.08:
        return random.choice(JUNK)
    key, one = random.choice(inner)
    changed = value.copy()
    fate = random.random()
    if fate < 0.08:
        del changed[key]
    elif fate < 0.12 and isinstance(value, list):
        changed.insert(key, one)
    elif fate < 0.16 and isinstance(value, dict):
        changed[random.choice(("x", "schema", "name", "heads"))] = one
    else:
        changed[key] = mutated_json(one, random)
    return changed


def altered(path: Path, name: str, random: Random) -> Path:
    """A file beside another one, whose bytes or, of JSON, values are changed."""
    data, out = path.read_bytes(), path.with_name(name)
    if path.suffix == ".json":
        data = json.dumps(mutated_json(json.loads(data), random)).encode()
    else:
        data = mutated(data, random)
    out.write_bytes(data)
    return out


@pytest.fixture(scope="module")
def originals(folder: Path) -> Path:
    """Files of every kind that attnviz reads, small ones."""
    text = "the cat sat on the mat because the cat was tired"
    (folder / "s.txt").write_text(f"{text}\na dog ran\nwe like cats\n")
    profile = av.profile(folder / "s.txt", state=folder / "s.profile", jobs=1)
    capture = av.capture(text, model="demo-bert")
    av.write_capture(capture, folder / "c.npz")
    av.write_capture(capture, folder / "c.safetensors")
    profile.save(folder / "profile.json")
    few = [text, "a dog ran", "we like cats"]
    results: dict[str, Any] = {
        "heads": av.heads(text), "ablate": av.ablate(few, select="0.*"),
        "sources": av.sources(text, select="2.0"), "shares": av.sources(few, select="1.4"),
        "spans": av.spans(av.Prompt(text, spans={"cat": "all:cat"})),
        "lens": av.lens(few, by="head"), "patch": av.patch(task="gender", count=4),
        "circuits": av.circuits(sample=20),
    }  # fmt: skip
    for name, found in results.items():
        found.save(folder / f"{name}.json")
    shutil.copy(SAMPLES / "phases" / "markov-1.json", folder / "film.json")
    for name in ("treebank.conllu", "pronouns.tsv"):
        shutil.copy(SAMPLES / name, folder / name)
    save_foreign(folder, capture)
    (folder / "tiny.json").write_text(json.dumps({"x": [[1, 0], [0, 1]], "heads": 1, "seed": 3}))
    return folder


def save_foreign(folder: Path, capture: Any) -> None:
    """The same attention as other tools would save it."""
    layers = [capture.maps[site] for site in capture.layout.sites]
    named = {f"blocks.{n}.attn.hook_pattern": layer[None] for n, layer in enumerate(layers)}
    torch.save({name: torch.from_numpy(layer) for name, layer in named.items()}, folder / "c.pt")
    np.save(folder / "c.npy", np.stack(layers))
    np.savez(folder / "lens.npz", **named)
    save_file(named, folder / "lens.safetensors")
    few = [layer[:2, :4, :4] / layer[:2, :4, :4].sum(-1, keepdims=True) for layer in layers]
    written = np.stack(few).transpose(3, 2, 0, 1).tolist()  # [keys, queries, layers, heads]
    document = {"schema": "attnviz.capture/1", "tokens": list("abcd"), "special": [False] * 4,
                "attentions": np.stack(few).tolist(), "meta": {"model": "x"}}  # fmt: skip
    (folder / "a.json").write_text(json.dumps(document))
    tokens = [{"id": 1, "token": text} for text in "abcde"]
    sequence = {"source": tokens[:1], "target": tokens, "target_attributions": written,
                "source_attributions": None, "sequence_scores": None, "attr_pos_start": 1,
                "attr_pos_end": 5}  # fmt: skip
    (folder / "inseq.json").write_text(json.dumps({
        "info": {"attribution_method": "attention"}, "sequence_attributions": [sequence],
    }))  # fmt: skip


def state(random: Random, originals: Path) -> object:
    """A profile's state: its header by JSON, its arrays by value and shape."""
    out = originals / "x.profile"
    with np.load(originals / "s.profile") as file:
        arrays = {name: file[name] for name in file.files}
    if random.random() < 0.7:
        header = mutated_json(json.loads(arrays["header"].tobytes()), random)
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    else:
        name = random.choice(sorted(arrays))
        arrays[name] = mutated_array(arrays[name], random)
    with open(out, "wb") as file:
        np.savez(file, **arrays)
    return summarize(saved.read(out))


ARRAYS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda a: a[1:], lambda a: a[::-1], lambda a: a.astype("f8"), lambda a: a[None],
    lambda a: a.astype("U"), lambda a: np.concatenate([a, a]), lambda a: a.T,
    lambda a: a.astype("f4") * np.nan, lambda a: np.full_like(a, np.iinfo("i4").max),
    lambda a: a.ravel()[:0], lambda a: a.reshape(-1),
)  # fmt: skip


def mutated_array(array: np.ndarray, random: Random) -> np.ndarray:
    """An array of another shape, type or content."""
    while True:
        with suppress(TypeError, ValueError, OverflowError, IndexError):  # not every array can
            return random.choice(ARRAYS)(array)


def capture_file(random: Random, originals: Path) -> object:
    """Recorded attention: bytes of either format, or arrays of an archive."""
    suffix = random.choice((".npz", ".safetensors"))
    path, out = originals / f"c{suffix}", originals / f"x{suffix}"
    if suffix == ".npz" and random.random() < 0.6:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        name = random.choice(sorted(arrays))
        if name == "meta":
            arrays[name] = np.array(json.dumps(mutated_json(json.loads(str(arrays[name])), random)))
        else:
            arrays[name] = mutated_array(arrays[name], random)
        with open(out, "wb") as file:
            np.savez(file, **arrays)
    else:
        altered(path, out.name, random)
    return av.heads(recorded.load(out))


def archive(random: Random, originals: Path) -> object:
    """A state file as bytes."""
    return summarize(saved.read(altered(originals / "s.profile", "y.profile", random)))


def treebank(random: Random, originals: Path) -> object:
    """Gold dependencies and mentions."""
    out = altered(originals / "treebank.conllu", "x.conllu", random)
    return sentences([str(out)], strict=False), documents([str(out)], strict=False)


def pronouns(random: Random, originals: Path) -> object:
    """A table of ambiguous pronouns."""
    out = altered(originals / "pronouns.tsv", "x.tsv", random)
    return choices([str(out)], strict=False)


def tiny(random: Random, originals: Path) -> object:
    """The numbers of a layer that are walked through by hand."""
    return read_json(altered(originals / "tiny.json", "x.json", random).read_bytes(), "x.json")


def evidence(random: Random, originals: Path) -> object:
    """A report that is read beside others."""
    return read_evidence(altered(originals / random.choice(REPORTS), "x.json", random))


REPORTS = tuple(
    f"{name}.json"
    for name in (
        "heads", "profile", "ablate", "sources", "shares", "spans", "lens", "patch", "circuits",
        "film",
    )
)  # fmt: skip


COMPARED = ("heads", "profile", "ablate", "spans", "lens")


def compared(random: Random, originals: Path) -> object:
    """Two reports of one kind."""
    first = originals / f"{random.choice(COMPARED)}.json"
    return str(av.diff(first, altered(first, "z.json", random)))


def film(random: Random, originals: Path) -> object:
    """A film that is there already, as a command shows it."""
    found = av.read(altered(originals / "film.json", "f.json", random))
    return str(found), found.to_csv()


def media(random: Random, originals: Path) -> object:
    """A picture or a sound."""
    decoding = pytest.importorskip("attnviz.models.containers")
    image, soundfile = pytest.importorskip("PIL.Image"), pytest.importorskip("soundfile")
    kind = random.choice(("png", "jpeg", "gif", "tiff", "wav", "flac", "ogg"))
    data = io.BytesIO()
    if kind in ("wav", "flac", "ogg"):
        soundfile.write(data, np.sin(np.arange(2000) / 9), 8000, format=kind.upper())
    else:
        image.fromarray(np.arange(300, dtype="u1").reshape(10, 10, 3)).save(data, kind)
    out = originals / f"x.{kind}"
    out.write_bytes(mutated(data.getvalue(), random))
    if kind in ("wav", "flac", "ogg"):
        return decoding.read_sound(out, 16000)
    return decoding.read_picture(out)


def foreign(random: Random, originals: Path) -> object:
    """Files of other tools, and recordings in JSON: bytes and values changed."""
    name = random.choice(("c.pt", "c.npy", "lens.npz", "lens.safetensors", "a.json", "inseq.json"))
    out = altered(originals / name, f"changed-{name}", random)
    av.check(out)
    return av.heads(av.read(out))


def call(random: Random, originals: Path) -> object:
    """A function of Python with one argument that is wrong, odd or right."""
    name, given = random.choice(CALLS)
    function = getattr(av, name)
    fixed = ("options", "changes", "model", "jobs", "ray", "progress")
    names = [one for one in inspect.signature(function).parameters if one not in fixed]
    wrong = random.choice(names)
    given = {key: originals / value[1:] if isinstance(value, str) and value[:1] == "@" else value
             for key, value in given.items()}  # fmt: skip
    return function(**{**given, wrong: random.choice(VALUES)})


VALUES: tuple[Any, ...] = (*JUNK, b"x", Path("x"), object(), len, np.ones(3), 1j, ["a b"], "first")
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("heads", {"text": "a b c"}), ("heatmap", {"text": "a b c"}), ("capture", {"text": "a b c"}),
    ("view", {"text": "a b c"}), ("logits", {"text": "a b c"}), ("flow", {"text": "a b c"}),
    ("diff", {"before": "a b c", "after": "a b d"}),
    ("sources", {"text": "a b c", "select": "1.4"}),
    ("sources", {"text": ["a b c", "b c d"], "select": "1.4"}), ("lens", {"text": "a b c"}),
    ("spans", {"text": av.Prompt("a b c", spans={"b": "b"})}), ("explain", {"text": "a b c"}),
    ("ablate", {"text": ["a b c", "b c d", "c d e"], "select": "0.0"}),
    ("patch", {"pairs": av.Pair("a b", "a c", "d", "e"), "select": "0.0"}),
    ("circuits", {"sample": 20}),
    ("film", {"files": "@s.txt", "model": ["demo-gpt2", "demo-gpt2"]}),
    ("read", {"path": "@film.json"}), ("select", {"text": "0.0", "where": "x"}),
    ("from_arrays", {"attentions": [np.full((1, 2, 2), 0.5, "f4")], "tokens": ["a", "b"]}),
    ("read", {"path": "@c.npz"}), ("read", {"path": "@c.npy"}), ("check", {"path": "@a.json"}),
    ("read", {"path": "@s.profile"}), ("Prompt", {"text": "a"}), ("Generation", {"tokens": 2}),
    ("FreshConfig", {"heads": 2}),
)  # fmt: skip

ATTEMPTS: dict[str, tuple[Attempt, float]] = {
    "state": (state, 0.03), "archive": (archive, 0.05), "capture": (capture_file, 0.1),
    "foreign": (foreign, 0.1), "treebank": (treebank, 0.05), "pronouns": (pronouns, 0.15),
    "tiny": (tiny, 0.12), "evidence": (evidence, 0.05), "compared": (compared, 0.03),
    "film": (film, 0.03), "media": (media, 0.14), "call": (call, 0.05),
}  # fmt: skip
"""What is tried, and its share of all inputs."""


def try_all(kind: str, attempt: Attempt, share: float, originals: Path) -> None:
    """Try a class of inputs as often as its share says, and name all that break something."""
    wrong: list[str] = []
    for number in range(max(1, round(COUNT * share))):
        start, said = process_time(), ""
        try:
            attempt(Random(f"{kind} {number}"), originals)
        except av.AttnvizError as error:
            said = str(error)
            if "\n" in said or len(said) >= 700:
                wrong.append(f"{kind} {number}: its message is long: {said}")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            wrong.append(
                f"{kind} {number}: {type(error).__name__}: {str(error)[:200]} "
                f"({place.filename}:{place.lineno})"
            )
        if process_time() - start >= LONGEST:
            wrong.append(f"{kind} {number}: it took {process_time() - start:.0f} seconds")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_nothing_that_is_read_or_called_finds_a_bug(
    kind: str, originals: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    try_all(kind, *ATTEMPTS[kind], originals)


@pytest.mark.parametrize(("name", "given"), CALLS, ids=[name for name, _ in CALLS])
def test_what_is_mutated_is_a_call_of_today(name: str, given: dict[str, Any]) -> None:
    assert given.keys() <= inspect.signature(getattr(av, name)).parameters.keys()


def test_mutation_changes_what_it_is_given() -> None:
    data, value = b"0123456789" * 20, {"a": [1, 2, {"b": 3}]}
    assert sum(mutated(data, Random(n)) != data for n in range(100)) > 90
    assert sum(mutated_json(value, Random(n)) != value for n in range(100)) > 90
    assert value == {"a": [1, 2, {"b": 3}]}
