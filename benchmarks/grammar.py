"""Comparing every head with a treebank against the same batches run without looking at weights."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch

from attnviz.captures.loading import load
from attnviz.core.source import ForwardRequest
from attnviz.corpus.gold.cases import BATCH_TOKENS, sentences
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.texts import Text, batches, tokenize
from attnviz.features.syntax.relations import run
from benchmarks.startup import minilm
from benchmarks.table import Row, in_turn

RUNS, COPIES = 5, 20
TREEBANK = Path(__file__).parent.parent / "sample_inputs" / "treebank.conllu"


def measure() -> list[Row]:
    """MiniLM on copies of the sample treebank, one thread; the median of the pairs' ratios."""
    torch.set_num_threads(1)
    source = load(minilm())
    read, _ = sentences([str(TREEBANK)], strict=True)
    several = [s for _ in range(COPIES) for s in read]
    corpus = [replace(s, number=n, document=n // 10) for n, s in enumerate(several, start=1)]

    def plainly() -> None:
        texts = tokenize((Text(s.number, s.place, s.prompt) for s in corpus), source)
        for batch in batches(texts, lambda inputs: inputs.length, BATCH_TOKENS):
            assert isinstance(batch, tuple)
            source.forward([one.inputs for one in batch], request=ForwardRequest(hidden=False))

    turns = in_turn(lambda: run(source, corpus, SyntaxSettings()), plainly, RUNS, time.perf_counter)
    rate = sum(len(sentence.words) for sentence in corpus) / turns.mine
    return [
        Row(
            "attnviz syntax, MiniLM",
            "the batches, not looked at",
            turns.ratio,
            1.5,
            f"{rate:.0f} words/s",
        )
    ]
