"""An atlas of 1,024 heads on three texts, against the passes that ablating each of them would take.

A GPT-2 of 32 layers × 32 heads × 256 with random weights, one thread, processor time. Every head is
ablated by its mean and by two outputs on other texts: 3,072 whole passes of the three texts, if
each were run from the first layer on. Of these a few are timed.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.models.demo import DEMOS
from benchmarks.table import Row

LAYERS, HEADS, WIDTH, FILLS = 32, 32, 256, 3
TEXTS = (
    "The keys to the cabinet are on the table.",
    "The author of the books that the critics praised lives by the sea.",
    "The animal didn't cross the street because it was too tired.",
)
PASSES = 8
TARGET = 0.6
MOST_SECONDS = 120.0


def measure() -> list[Row]:
    """Return the atlas, its page and its JSON."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with model() as folder:
            return rows(folder)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def model() -> Iterator[Path]:
    """Make a folder with random weights and demo-gpt2's tokenizer."""
    import transformers

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "random-32x32")
        shutil.copytree(DEMOS["demo-gpt2"], folder)
        sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "n_inner": 4 * WIDTH}
        config = transformers.AutoConfig.from_pretrained(folder, **sizes)
        torch.manual_seed(0)
        made = transformers.AutoModelForCausalLM.from_config(config).float()
        (folder / "model.safetensors").unlink()
        made.save_pretrained(folder)
        yield folder


def rows(folder: Path) -> list[Row]:
    """Processor time of the whole, and of passes."""
    texts = folder.with_name("texts.txt")
    texts.write_text("\n".join(TEXTS))
    source = av.load(folder)
    batch = [source.prepare(Prompt(text)) for text in TEXTS]
    request = ForwardRequest(logits=True)
    source.forward(batch, request=request)
    start = time.process_time()
    for _ in range(PASSES):
        source.forward(batch, request=request)
    passes = (time.process_time() - start) / PASSES * LAYERS * HEADS * FILLS
    start = time.process_time()
    found = av.atlas(texts, model=folder)
    made = time.process_time() - start
    start = time.process_time()
    size = len(found.page()) + len(found.to_json())
    written = time.process_time() - start
    return [
        Row("an atlas of 1,024 heads, three texts", "3,072 passes", made / passes, TARGET,
            f"{made:.0f} s, {passes:.0f} s"),
        Row("the same", f"{MOST_SECONDS:.0f} s", made / MOST_SECONDS, 1.0, f"{made:.0f} s"),
        Row("its page and its JSON", "the atlas", written / made, 0.1,
            f"{written:.1f} s, {size / 1e6:.0f} MB"),
    ]  # fmt: skip
