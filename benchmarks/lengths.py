"""Long texts: memory of a profile, of scores and of tiles grows with the length, not its square.

One head, so that 32,768 tokens take no hour. Memory is what the work adds at most to a fresh
process that has the model and has done the same on 100 tokens (VmHWM - VmRSS), so that neither
the weights nor code that is loaded on first use count.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.drawn import Shape, write
from benchmarks.streaming import MIB, _reset_peak, _status
from benchmarks.table import Row

LENGTHS = (4096, 8192, 16384, 32768)
WORK = {"profile": "a profile, one window", "heads": "scores of heads", "view": "a page of tiles"}
ONE = Shape(
    "one head",
    "LlamaForCausalLM",
    {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 8192}
    | {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 40000},
    "float32",
)


def measure() -> list[Row]:
    """Return a row for each kind of work."""
    with tempfile.TemporaryDirectory() as folder:
        write(ONE, Path(folder))
        return [_row(folder, name, what) for name, what in WORK.items()]


def _row(folder: str, name: str, what: str) -> Row:
    added = [_child(folder, name, tokens) for tokens in LENGTHS]
    detail = ", ".join(
        f"{length // 1024}k {size / MIB:.0f} MiB"
        for length, size in zip(LENGTHS, added, strict=True)
    )
    times = LENGTHS[-1] // LENGTHS[0]
    ratio = added[-1] / (times * added[0])
    return Row(f"{what}: memory at T=32k", f"{times} × T=4k", ratio, 1.1, detail)


def _child(folder: str, name: str, tokens: int) -> int:
    command = [sys.executable, "-m", "benchmarks.lengths", folder, name, str(tokens)]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return int(json.loads(out))


# -- in the fresh process --------------------------------------------------------------------


def _text(source: Any, tokens: int) -> str:
    """Words of a story, as often as there: at most so many tokens, and nearly."""
    from attnviz.core.prompt import Prompt

    story = Path(__file__).parent.parent / "sample_inputs" / "story.txt"
    words = random.Random(0).choices(story.read_text("utf-8").split(), k=tokens)
    count = tokens // 2
    while (length := source.prepare(Prompt(" ".join(words[:count]))).length) < 0.97 * tokens:
        count = int(0.99 * count * tokens / length)
    assert length <= tokens
    return " ".join(words[:count])


def _do(name: str, source: Any, text: str, tokens: int) -> None:
    import attnviz as av

    if name == "profile":
        assert av.profile(texts=[text], model=source, window=tokens).windows == 1
    elif name == "heads":
        av.heads(text, model=source)
    else:  # a short text has such a page of a part of it
        av.view(text, model=source, rows="0-30" if len(text) < LENGTHS[0] else None)


def _main(folder: str, name: str, tokens: int) -> None:
    import attnviz as av

    source = av.load(folder, device="cpu")
    text = _text(source, tokens)
    _do(name, source, _text(source, 100), tokens)
    _reset_peak()
    before = _status("VmRSS")
    _do(name, source, text, tokens)
    print(json.dumps(_status("VmHWM") - before))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
