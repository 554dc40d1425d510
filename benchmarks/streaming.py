"""Scores on the fly against the forward pass alone: time, memory, growth and accuracy.

Times are CPU seconds of one thread, in one fresh process a case, the two sides in turn (A B A B);
the ratio is the median of the pairs' ratios, so that other work on the machine disturbs it little.
Peak memory is the weights and the input, and what the forward pass adds at most to a fresh process
(VmHWM), which is shown as well.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.table import Row, Turns, in_turn, show

MIB = 2**20
LENGTHS = (1024, 2048, 4096, 8192)


def measure() -> list[Row]:
    """All rows; takes a few minutes."""
    return [*_sentences(), *_gpt2(), *_llama(), *_growth(), *_accuracy()]


def _sentences() -> list[Row]:
    name = "512 sentences, MiniLM, batches of 32, all scores"
    return [_timed(name, "the same passes alone", "sentences", ("scores", "sdpa"), 1.25, pairs=3)]


def _gpt2() -> list[Row]:
    name = "T=512, GPT-2 shape, all scores"
    rows = [
        _timed(name, "plain SDPA forward", "gpt2", ("scores", "sdpa"), 1.15, pairs=5),
        _memory(name, "plain SDPA forward", "gpt2", ("scores", "sdpa"), 1.15),
    ]
    norm, layers = "T=512, scores of ‖αf(x)‖", "T=512, scores of ‖Σαf(x) + x‖"
    mixed = f"{norm} and mixing ratios"
    sides = ((norm, "norms", 1.5), (mixed, "norms_mixed", 1.7), (layers, "layers_norms", 2.0))
    for what, side, target in sides:
        rows += [
            _timed(what, "scores of weights", "gpt2", (side, "scores"), target, pairs=5),
            _memory(what, "scores of weights", "gpt2", (side, "scores"), 1.2),
        ]
    eager = "T=512, eager, weights kept"
    return [
        *rows,
        _timed(eager, "plain SDPA forward", "gpt2", ("eager", "sdpa"), None, pairs=3),
        _memory(eager, "plain SDPA forward", "gpt2", ("eager", "sdpa"), None),
    ]


def _llama() -> list[Row]:
    whole, alone = "T=4096, Llama-like layer, all scores", "T=4096, its attention alone"
    return [
        _timed(whole, "the layer with SDPA", "layer", ("scores", "sdpa"), 2.0, pairs=3),
        _memory(whole, "the layer with SDPA", "layer", ("scores", "sdpa"), 1.1),
        _timed(alone, "SDPA alone, d=128", "llama", ("scores", "sdpa"), 2.0, pairs=5),
        _timed(alone, "SDPA alone, d=64", "llama 4096 64", ("scores", "sdpa"), None, pairs=5),
        _timed(alone, "eager + scores", "llama", ("scores", "eager_scores"), 0.2, pairs=1),
        _memory(alone, "eager + scores", "llama", ("scores", "eager_scores"), None),
    ]


def _growth() -> list[Row]:
    """Twice the length, twice the memory: 8 times from 1k to 8k, where whole maps take 64 times."""
    added = [_child("memory", f"llama {length} 64", "scores")["added"] for length in LENGTHS]
    shown = ", ".join(
        f"{length // 1024}k {a / MIB:.0f} MiB" for length, a in zip(LENGTHS, added, strict=True)
    )
    return [Row("memory of scores, T=8k", "8 × T=1k", added[-1] / (8 * added[0]), 1.1, shown)]


def _accuracy() -> list[Row]:
    worst = _child("accuracy", "llama 1024 64", "scores")
    return [
        Row("largest error of a score", "1e-5 of float64 on whole maps", worst["error"] / 1e-5, 1.0,
            f"{worst['error']:.1e} ({worst['score']})")
    ]  # fmt: skip


def _timed(
    what: str, against: str, case: str, sides: tuple[str, str], target: float | None, pairs: int
) -> Row:
    return Turns(**_child("time", case, *sides, str(pairs))).row(what, against, target)


def _memory(
    what: str, against: str, case: str, sides: tuple[str, str], target: float | None
) -> Row:
    mine, theirs = (_child("memory", case, side) for side in sides)
    detail = f"{_mib(mine['peak'])}, {_mib(theirs['peak'])}; the pass alone "
    detail += f"+{_mib(mine['added'])}, +{_mib(theirs['added'])}"
    return Row(f"{what}: peak memory", against, mine["peak"] / theirs["peak"], target, detail)


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


def _child(*arguments: str) -> dict[str, Any]:
    """Run one measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.streaming", *arguments]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found: dict[str, Any] = json.loads(out)
    return found


# -- in the fresh process --------------------------------------------------------------------


def _workload(case: str, *smaller: int) -> Any:
    from benchmarks import workloads

    name, *rest = case.split()
    numbers = smaller or tuple(map(int, rest))
    kinds = {
        "gpt2": workloads.Gpt2Shape,
        "llama": workloads.LlamaLike,
        "layer": workloads.LlamaLayer,
        "sentences": workloads.Sentences,
    }
    return kinds[name](*numbers)


def _time(case: str, mine: str, theirs: str, pairs: str) -> dict[str, Any]:
    workload = _workload(case)
    return in_turn(getattr(workload, mine), getattr(workload, theirs), int(pairs))._asdict()


def _size(case: str, side: str) -> dict[str, Any]:
    from benchmarks.workloads import held_bytes

    getattr(_workload(case, 16), side)()  # code that is loaded on first use is no growth
    workload = _workload(case)
    _reset_peak()
    before = _status("VmRSS")
    getattr(workload, side)()
    added = _status("VmHWM") - before
    return {"peak": held_bytes(workload) + added, "added": added}


def _reset_peak() -> None:
    """Let Linux forget the largest size so far, which building the workload may have reached."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")


def _status(field: str) -> int:
    """Bytes resident now (VmRSS) or at most (VmHWM); without /proc the latter for both."""
    status = Path("/proc/self/status")
    if not status.exists():
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _error(case: str, _: str) -> dict[str, Any]:
    """Return the largest relative difference between streamed means and float64 on whole maps."""
    import torch

    from benchmarks import workloads

    workload = _workload(case)
    workload.query *= 4  # about as sharp as trained heads: half of the weight on one key
    exact = (x.double() for x in (workload.query, workload.key, workload.value))
    weights = workloads.eager(*exact)[0][0]
    expected = workloads.plain_scores(weights, workloads.tokens(workload.length))
    found = workload.scores()
    errors = {}
    for name, means in expected.items():
        ours = [head.scores[name].mean for head in found]
        mine = torch.tensor(ours, dtype=torch.float64)
        errors[name] = float(((mine - means) / means).abs().max())
    worst = max(errors, key=lambda name: errors[name])
    return {"error": errors[worst], "score": worst}


def _main(arguments: list[str]) -> int:
    if not arguments:
        return 0 if show("Scores on the fly", measure()) else 1
    import torch

    torch.set_num_threads(1)
    with torch.inference_mode():
        jobs: dict[str, Callable[..., dict[str, Any]]]
        jobs = {"time": _time, "memory": _size, "accuracy": _error}
        print(json.dumps(jobs[arguments[0]](*arguments[1:])))
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
