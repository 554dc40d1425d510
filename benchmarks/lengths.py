"""Profiles of windows of any length: memory grows with the length, not with its square.

One head, so that 32,768 tokens take no hour; memory is what the profile of one text adds at most to
a fresh process (VmHWM), after a short one that loads all code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.drawn import Shape, write
from benchmarks.streaming import _reset_peak, _status
from benchmarks.table import Row

SHORT, LONG = 4096, 32768
ONE = Shape(
    "one head",
    "LlamaForCausalLM",
    {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 4096}
    | {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 40000},
    "float32",
)


def measure() -> list[Row]:
    """The row."""
    with tempfile.TemporaryDirectory() as folder:
        write(ONE, Path(folder))
        short, long = (_child(folder, tokens) for tokens in (SHORT, LONG))
    detail = f"{long / 2**20:.0f} MiB, {short / 2**20:.0f} MiB"
    what = f"memory of a profile, a window of {LONG:,} tokens"
    return [Row(what, f"8 × {SHORT:,} tokens", long / (LONG // SHORT * short), 1.1, detail)]


def _child(folder: str, tokens: int) -> int:
    command = [sys.executable, "-m", "benchmarks.lengths", folder, str(tokens)]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return int(json.loads(out))


def _main(folder: str, tokens: int) -> None:
    import attnviz as av

    source = av.load(folder, device="cpu")
    text = " ".join(["the", "cat", "sat", "on", "a", "mat"][n * n % 6] for n in range(tokens))
    av.profile(texts=[text[:2000]], model=source)
    _reset_peak()
    before = _status("VmRSS")
    found = av.profile(texts=[text], model=source, window=tokens)
    assert found.tokens > 0.8 * tokens
    print(json.dumps(_status("VmHWM") - before))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
