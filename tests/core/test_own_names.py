"""A model's name: enough to tell it from others, nothing of where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnviz.core.provenance import called


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("gpt2", "gpt2"),
        ("org/model", "org/model"),
        ("/data/my-bert", "my-bert"),
        ("/data/all_minilm/model", "all_minilm/model"),
        ("/data/bert-run/checkpoint-500", "bert-run/checkpoint-500"),
        ("/data/bert-run/final_model/", "bert-run/final_model"),
        ("/data/bert-run/1000/hf", "bert-run/1000/hf"),
        ("/data/secret/bert/runs/1000/hf", "runs/1000/hf"),
        (f"/c/models--openai--gpt2/snapshots/{'0123456789' * 4}", "openai/gpt2"),
        ("/home/alice/model", "model"),
        ("/Users/alice/checkpoint-3", "checkpoint-3"),
        ("~/model", "model"),
        ("/srv/person/model", "model"),
        ("/model", "model"),
        ("bert, untrained (seed 0)", "bert, untrained (seed 0)"),
    ],
)
def test_a_folder_is_named_by_the_part_that_says_something(
    path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/srv/person")
    assert called(path) == name


def test_a_relative_path_is_named_as_the_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny-bert" / "model"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder.parent)
    assert called("model") == called("./model") == called(str(folder)) == "tiny-bert/model"
    monkeypatch.chdir(folder)
    assert called(".") == "tiny-bert/model"
