"""``--split field:NAME`` divides as any other split does, wherever something is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.core.result import Result
from attnviz.core.split import sides, sides_by_name
from attnviz.errors import AttnvizError
from attnviz.features.patch import judge
from attnviz.features.patch.pairs import pair_of, prepare, task_pairs
from tests.corpus.gold.pronouns import pronouns
from tests.corpus.gold.sentences import treebank
from tests.features.profile.corpus import sentences as texts

MODEL = "demo-gpt2"
HASH, FIELD = "hash:0.5", "field:side=chosen"


def _sides_of(names: list[Any]) -> list[str]:
    """What the hash says of each, as a field of theirs."""
    by_number = names and isinstance(names[0], int)
    chosen = sides(HASH, names)[0] if by_number else sides_by_name(HASH, names, 0)[0]
    return ["chosen" if there else "measured" for there in chosen.tolist()]


def _written(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _syntax(folder: Path, split: str) -> Result:
    blocks = treebank(40).rstrip("\n").split("\n\n")
    said = _sides_of(list(range(1, len(blocks) + 1)))
    lines = [f"# side = {side}\n{block}\n" for block, side in zip(blocks, said, strict=True)]
    return av.syntax(_written(folder, "t.conllu", lines), split=split, model=MODEL, jobs=1)


def _coref(folder: Path, split: str) -> Result:
    head, *rows = pronouns(24).splitlines()
    said = _sides_of(list(range(1, len(rows) + 1)))
    lines = [f"{row}\t{side}" for row, side in zip(rows, said, strict=True)]
    return av.coref(
        _written(folder, "t.tsv", [f"{head}\tside", *lines]), split=split, model=MODEL, jobs=1
    )


def _retrieval(folder: Path, split: str) -> Result:
    said = _sides_of(list(range(1, 9)))
    lines = [
        json.dumps(
            {"needle": f"The key of {n} is {9 * n}.", "question": f"The key of {n}", "side": s}
        )
        for n, s in enumerate(said, 1)
    ]
    return av.retrieval(
        _written(folder, "n.jsonl", lines), split=split, model=MODEL, lengths=[60], depths=[0.5],
        group_size=(1,), draws=1, control=0, generate=2,
    )  # fmt: skip


def _spans(folder: Path, split: str) -> Result:
    rows = [
        {"question": f"Who has {n}?", "context": [f"Anna has {n}.", f"Paul lost {n}."],
         "answer": "Anna", "gold": 0}
        for n in range(8)
    ]  # fmt: skip
    said = _sides_of(["\n".join(row["context"]) for row in rows])
    lines = [json.dumps({**row, "side": side}) for row, side in zip(rows, said, strict=True)]
    return av.spans(_written(folder, "q.jsonl", lines), split=split, model=MODEL)


def _patch(folder: Path, split: str) -> Result:
    source = av.load(MODEL)
    pairs = task_pairs(source, "gender", 24, 0)[0]
    rows: list[dict[str, Any]] = [
        {"clean": pair.clean, "corrupted": pair.corrupted, "answer": pair.answer,
         "against": pair.against}
        for pair in pairs
    ]  # fmt: skip
    ready = prepare(source, [pair_of(row, "a row") for row in rows])
    said = _sides_of(judge.clusters(ready))
    given = [{**row, "side": side} for row, side in zip(rows, said, strict=True)]
    return av.patch(given, circuit=2, split=split, model=source)


def _sources(folder: Path, split: str) -> Result:
    some = texts(12)
    source = av.load(MODEL)
    ready = [source.prepare(av.Prompt(text)) for text in some]
    names = [str([sides.keys.ids for sides in inputs.sides.values()]) for inputs in ready]
    asked: dict[str, Any] = {"parts": _sides_of(names)} if split == FIELD else {}
    return av.sources(some, select="1.4", split=split, model=MODEL, **asked)


def _ablate(folder: Path, split: str) -> Result:
    some = [text for text in texts(60) if 3 < len(text.split()) < 12][:12]
    numbers = [str(number) for number in range(len(some))]
    asked: dict[str, Any] = {"parts": _sides_of(numbers)} if split == FIELD else {}
    return av.ablate(some, curve="effect:0", method="mean", split=split, model=MODEL, **asked)


MADE: dict[str, Callable[[Path, str], Result]] = {
    "ablate": _ablate, "coref": _coref, "patch": _patch, "retrieval": _retrieval,
    "sources": _sources, "spans": _spans, "syntax": _syntax,
}  # fmt: skip


@pytest.mark.parametrize("name", list(MADE))
def test_a_field_that_says_what_a_hash_says_gives_the_same(name: str, tmp_path: Path) -> None:
    """So both parts are those that are meant, in every command that chooses."""
    by_hash, by_field = (MADE[name](tmp_path, split) for split in (HASH, FIELD))
    assert (by_hash.divided, by_field.divided) == (HASH, FIELD)
    assert f"split {FIELD}" in by_field.origin()
    both = [json.dumps(result.to_dict()).replace(split, "")
            for result, split in ((by_hash, HASH), (by_field, FIELD))]  # fmt: skip
    assert both[0] == both[1]


@pytest.mark.parametrize("name", list(MADE))
def test_a_field_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match=r"split|nowhere"):
        MADE[name](tmp_path, "field:nowhere")


def test_the_parts_of_a_file_are_read_from_its_field(tmp_path: Path, capsys) -> None:
    from attnviz.cli import main

    rows = [{"text": text, "part": "ab"[n % 2]} for n, text in enumerate(texts(12))]
    path = _written(tmp_path, "t.jsonl", list(map(json.dumps, rows)))
    asked = ["sources", "--texts", str(path), "-s", "1.4", "--json", "-q"]
    assert main([*asked, "--split", "field:part"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["split"], told["chosen_on"]) == ("field:part=a", 6)
    assert main([*asked, "--split", "field:other"]) == 1
    assert "other" in capsys.readouterr().err
    plain = _written(tmp_path, "t.txt", texts(6))
    assert main(["sources", "--texts", str(plain), "-s", "1.4", "--split", "field:part"]) == 2
    assert "--split field:part is a field of texts" in capsys.readouterr().err
    assert main(["ablate", "--texts", str(path), "--split", "field:part"]) == 2
    assert "--split field:part is of a curve; add --curve" in capsys.readouterr().err
