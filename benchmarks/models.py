"""Models of a billion parameters: peak memory of commands, time of scores, loading.

Random weights of true shapes (:mod:`benchmarks.drawn`). Every command runs as people run it, as a
process of its own whose peak the kernel tells. Times are CPU seconds of one thread. ``heads`` and a
plain pass take turns in one process (A B A B); the ratio is the median of the pairs' ratios. Each
side loads in a process of its own, model and tokenizer, four times; the first, which imports and
reads files, is left out, and the median of the others counts.

transformers only maps the files, and reads a weight when a pass needs it; attnviz runs two short
texts through a hooked model when it loads one, to compare its attention with eager attention.
So loading stands against transformers' loading and two such passes; what it is without them stands
beside it.

``ATTNVIZ_MODELS`` names a folder in which the models are kept between runs; ``ATTNVIZ_SHAPES`` some
of them, with commas: without it all but the 8B one (18 GB); ``make bench`` has the first.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.drawn import SHAPES, Shape, write
from benchmarks.table import Row, Turns, in_turn

MB = 10**6
TOKENS = 1024
LINES = 8
STORY = Path(__file__).parent.parent / "sample_inputs" / "story.txt"
LARGEST = "Llama-3.1-8B"
ROOM, MORE = 1.15, 300 * MB
"""Times the weights, and what Python, torch and transformers take beside them."""
SPEED, LOADING = 1.3, 1.2


def measure() -> list[Row]:
    """All rows; takes about a quarter of an hour."""
    wanted = os.environ.get("ATTNVIZ_SHAPES")
    names = wanted.split(",") if wanted else [name for name in SHAPES if name != LARGEST]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(os.environ.get("ATTNVIZ_MODELS", temporary))
        found: list[Row] = []
        for name in names:
            text = _text(Path(temporary), SHAPES[name].lines)
            found += _rows(SHAPES[name], root, text)
        return found


def _rows(shape: Shape, root: Path, text: Path) -> Iterator[Row]:
    folder = root / shape.name.replace(" ", "-")
    weights = write(shape, folder)
    size, texts = f", T={shape.tokens:,}", f", {shape.lines} texts"
    short = {"heads": size, "spans": size, "profile": texts, "ablate": texts}
    for command, arguments in _commands(text, shape.tokens).items():
        peak = _peak([command, *arguments, "--model", str(folder)])
        allowed = ROOM * weights + MORE
        detail = f"{peak / MB:,.0f} MB, weights {weights / MB:,.0f} MB in {shape.dtype}"
        what = f"{shape.name}: peak memory of {command}{short.get(command, '')}"
        yield Row(what, "weights × 1.15 + 300 MB", peak / allowed, 1.0, detail)
    found = _child("time", str(folder), shape.kind, str(shape.passes), str(shape.tokens))
    yield Turns(**found).row(f"{shape.name}: heads{size}", "a plain SDPA pass", SPEED)
    mine, theirs, alone, backend = _loading(folder, shape)
    detail = f"{mine:.2f} s, {theirs:.2f} s; transformers without a pass {alone:.2f} s"
    against = "transformers' own and two passes"
    if backend == "native":
        theirs, against, detail = alone, "transformers' own", f"{mine:.2f} s, {alone:.2f} s"
    yield Row(f"{shape.name}: loading", against, mine / theirs, LOADING, detail)


def _commands(text: Path, long: int = TOKENS) -> dict[str, list[str]]:
    """Return what is run of every command, on long texts where it streams."""

    def cut(tokens: int) -> list[str]:
        return ["--file", str(text), "--truncate", "--max-tokens", str(tokens)]

    folder = text.parent
    return {
        "heads": [*cut(long), "--json"],
        "heatmap": [*cut(256), "--select", "1.0", "--out", str(folder / "map.png")],
        "view": [*cut(64), "--select", "clearest:8", "--out", str(folder / "page.html")],
        "profile": [str(folder / "lines.txt"), "--jobs", "1", "--json"],
        "ablate": ["--texts", str(folder / "lines.txt"), "--select", "1.0", "--json"],
        "spans": [*cut(long), "--span", "part=tokens:20-60", "--json"],
    }


def _text(folder: Path, texts: int = LINES) -> Path:
    """Return a text of more than T tokens, and its first lines as texts of their own."""
    words = STORY.read_text("utf-8").split()
    words *= -(-3 * TOKENS // len(words))
    lines = [" ".join(words[start : start + 60]) for start in range(0, 60 * texts, 60)]
    (folder / "lines.txt").write_text("\n".join(lines), "utf-8")
    path = folder / "text.txt"
    path.write_text(" ".join(words), "utf-8")
    return path


def _peak(arguments: list[str]) -> int:
    """Return the most memory that a command had resident, in bytes."""
    command = [sys.executable, "-m", "attnviz", *arguments, "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peak", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return int(done.stdout)


def _loading(folder: Path, shape: Shape) -> tuple[float, float, float, str]:
    """CPU seconds of loading, each side in a process of its own.

    Returns:
        Ours; theirs with two passes, and without; and our backend.
    """
    mine = _child("load", str(folder), shape.kind, "mine")
    theirs = _child("load", str(folder), shape.kind, "theirs")
    return mine["seconds"], theirs["seconds"], theirs["alone"], mine["backend"]


def _child(*arguments: str) -> dict[str, Any]:
    """Run one measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.models", *arguments]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found: dict[str, Any] = json.loads(out)
    return found


# -- in the fresh process --------------------------------------------------------------------


def _load(folder: str, kind: str, side: str) -> dict[str, Any]:
    import torch
    import transformers

    import attnviz as av
    from attnviz.models import hooked  # what is imported is not timed

    theirs, tokenizer = getattr(transformers, kind), transformers.AutoTokenizer
    load = av.load
    ids = torch.arange(5, 27).view(2, 11)
    seen = torch.ones(2, 11, dtype=torch.long)
    seen[1, 7:] = 0
    assert hooked

    def mine() -> tuple[float, float, str]:
        start = time.process_time()
        backend = load(folder, device="cpu").info.backend
        return time.process_time() - start, 0.0, backend

    def others() -> tuple[float, float, str]:
        start = time.process_time()
        model = theirs.from_pretrained(
            folder, dtype="auto", attn_implementation="eager", local_files_only=True
        )
        tokenizer.from_pretrained(folder, local_files_only=True)
        alone = time.process_time() - start
        with torch.no_grad():
            for weights in (True, False):
                model.base_model(input_ids=ids, attention_mask=seen, output_attentions=weights)
        return time.process_time() - start, alone, ""

    found = [mine() if side == "mine" else others() for _ in range(4)][1:]
    seconds, alone, backends = zip(*found, strict=True)
    return {
        "seconds": statistics.median(seconds),
        "alone": statistics.median(alone),
        "backend": backends[0],
    }


def _time(folder: str, kind: str, passes: str, tokens: str) -> dict[str, Any]:
    import torch
    import transformers

    import attnviz as av
    from attnviz.core.prompt import Prompt

    source = av.load(folder, device="cpu")
    theirs = getattr(transformers, kind).from_pretrained(
        folder, dtype="auto", attn_implementation="sdpa", local_files_only=True
    )
    ids = torch.randint(5, 2000, (1, int(tokens)), generator=torch.Generator().manual_seed(0))
    prompt = Prompt(ids=tuple(ids[0].tolist()))

    def mine() -> None:
        av.heads(prompt, model=source)

    cache = {} if "ModernBert" in kind else {"use_cache": False}

    def plain() -> None:
        with torch.no_grad():
            theirs.base_model(input_ids=ids, **cache)

    return in_turn(mine, plain, int(passes))._asdict()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    print(json.dumps(_load(*rest) if what == "load" else _time(*rest)))
