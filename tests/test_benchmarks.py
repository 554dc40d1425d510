"""Every benchmark runs, at a size at which its figures mean nothing."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest
import torch

from benchmarks import __main__ as program
from benchmarks import ablation, drawn, logits, streaming, thoughts
from benchmarks.table import Row, show
from tests import ROOT

TINY: dict[str, Any] = {
    "LAYERS": 2, "HEADS": 4, "WIDTH": 32, "VOCABULARY": 1000, "RUNS": 1, "ROUNDS": 1, "STEPS": 2,
    "EVERY": 1, "COPIES": 1, "PASSES": 1, "PAIRS": 1, "TOKENS": 32, "LENGTH": 24, "SHORT": 8,
    "SENTENCES": 4, "STEP": 2, "LINES": 2, "LONG": 40, "LENGTHS": (256, 512), "SIZES": ((2, 4),),
}  # fmt: skip
"""What benchmarks call their sizes."""
OTHERWISE: dict[str, dict[str, Any]] = {
    "arrays": {"PASSES": ((1, 16),)}, "atlas": {"TEXTS": ("the cat sat",)},
    "profiling": {"TEXTS": 600}, "startup": {"SENTENCES": ROOT / "sample_inputs" / "sentences.txt"},
    "thoughts": {"LENGTH": 60, "SENTENCES": 6}, "streaming": {"LENGTHS": (32, 64)},
    "live": {"MOST_PASS": {16: 120.0}, "MINILM_TOKENS": (12,)},
    "viewer": {"MOST_MB": {16: 1.5}, "MOST_SECONDS": {16: 1.0}, "COMPARED": ((2, 16),), "LONG": 32},
    "export": {"HEADS": 2},
}  # fmt: skip
MODEL = drawn.Shape(
    "tiny", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "float32", passes=1, tokens=64, lines=2,
)  # fmt: skip
CASES = {"gpt2": "gpt2 24", "llama": "llama 24 8", "layer": "layer 8", "sentences": "sentences 4"}


@pytest.mark.slow
@pytest.mark.parametrize("name", program.TABLES)
def test_a_benchmark_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    module = import_module(f"benchmarks.{name}")
    own = OTHERWISE.get(name, {})
    for shared in {module, ablation, logits, thoughts}:  # models that several benchmarks run
        for constant, value in (TINY | (own if shared is module else {})).items():
            if hasattr(shared, constant):
                monkeypatch.setattr(shared, constant, value)
    if name == "models":
        monkeypatch.setattr(module, "SHAPES", {"tiny": MODEL})
        monkeypatch.delenv("ATTNVIZ_SHAPES", raising=False)
    if name == "streaming":
        monkeypatch.setattr(streaming, "_child", measured_here)
    rows = module.measure()
    assert rows
    assert all(isinstance(row, Row) and row.ratio > 0 for row in rows)
    assert rows[0].what in capsys.readouterr().err


def measured_here(job: str, case: str, *rest: str) -> dict[str, Any]:
    """What a process of its own measures, in this one and small; memory does not grow."""
    small = CASES[case.split()[0]]
    if job == "memory":
        return {"peak": 1, "added": 1}
    with torch.inference_mode():
        if job == "accuracy":
            return streaming._error("llama 128 8", *rest)
        return streaming._time(small, *rest[:-1], "1")


def test_figures_are_told_as_they_are_found_and_targets_are_judged(capsys) -> None:
    row = Row("a", "b", 2.0, 1.0, "3 s")
    assert capsys.readouterr().err == "a: 2\u00d7 of b (3 s)\n"
    assert not show("title", [row])


def test_a_run_of_all_ends_in_time_and_names_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    clock = iter(range(0, 10**6, 600))
    monkeypatch.setattr(program.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(program, "TABLES", dict.fromkeys(("one", "two", "three"), "title"))
    monkeypatch.setitem(sys.modules, "benchmarks.one", Measured)
    monkeypatch.setenv("ATTNVIZ_SHAPES", "")
    assert program.main([]) == 0
    assert "run python -m benchmarks two three\n" in capsys.readouterr().err


class Measured:
    """A benchmark."""

    @staticmethod
    def measure() -> list[Row]:
        return [Row("a", "b", 1.0, 1.0)]
