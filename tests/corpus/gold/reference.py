"""The sample treebank read by hand, and attention from word to word of eager transformers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tests import ROOT

SAMPLE = ROOT / "sample_inputs" / "treebank.conllu"


def gold() -> list[tuple[list[str], list[int], list[str], str]]:
    """The sample, read by hand: words, heads from 0 (-1: root), relations, document."""
    found, document = [], ""
    for block in SAMPLE.read_text().strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines() if line[0] != "#"]
        named = [x.split("= ")[1] for x in block.splitlines() if x.startswith("# newdoc")]
        document = named[0] if named else document
        found.append(
            ([r[1] for r in rows], [int(r[6]) - 1 for r in rows], [r[7] for r in rows], document)
        )
    return found


@cache
def eager(folder: str) -> tuple[Any, Any]:
    """Tokenizer and model of transformers."""
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    return AutoTokenizer.from_pretrained(folder), model.eval()


def maps_of_eager(folder: str, ids: list[int]) -> np.ndarray:
    """Attention of eager transformers as float64, [L, H, T, T]."""
    with torch.no_grad():
        out = eager(folder)[1](torch.tensor([ids]), output_attentions=True).attentions
    return torch.stack(out)[:, 0].double().numpy()


@cache
def words_of_eager(folder: str, byte_level: bool) -> list[np.ndarray]:
    """Weights from word to word of eager transformers in float64, [L, H, W, W] a sentence."""
    tokenizer, _ = eager(folder)
    found = []
    for words, *_ in gold():
        ids, owner = [], []
        for number, word in enumerate(words):
            spelled = f" {word}" if byte_level and number else word
            pieces = tokenizer(spelled, add_special_tokens=False)["input_ids"]
            ids += pieces
            owner += [number] * len(pieces)
        whole = tokenizer(" ".join(words))["input_ids"]
        front = whole.index(ids[0])
        assert whole[front : front + len(ids)] == ids
        owner = [-1] * front + owner + [-1] * (len(whole) - front - len(ids))
        maps = maps_of_eager(folder, whole)
        weights = np.zeros((*maps.shape[:2], len(words), len(words)))
        for i in range(len(words)):
            rows = maps[:, :, [k for k, n in enumerate(owner) if n == i]].mean(2)
            for j in range(len(words)):
                weights[:, :, i, j] = rows[:, :, [k for k, n in enumerate(owner) if n == j]].sum(2)
            weights[:, :, i, i] = 0
        found.append(weights)
    return found
