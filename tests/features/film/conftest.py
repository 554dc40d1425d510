"""Runs of the recipe in which heads form: a short one to measure, and one to its phase change."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.phases import MARKOV, save, train

RUN = replace(MARKOV, steps=1080, every=120, texts=60, seed=1)
"""The recipe's own run as far as the rise of two layers, with fewer checkpoints."""


def _trained(out: Path, layers: int, steps: int, texts: int = RUN.texts) -> Path:
    """``out``, with checkpoints, texts.txt and optimum.json."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    every = min(RUN.every, steps // 2)
    run = replace(RUN, layers=layers, steps=steps, every=every, texts=texts)
    train(run, save(run, out))
    torch.set_num_threads(threads)
    return out


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, three checkpoints: enough to measure, too few for heads to form."""
    return _trained(tmp_path_factory.mktemp("short"), 2, 40, texts=20)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By the number of layers; half a minute."""
    lengths = {1: 480, 2: RUN.steps}
    return {n: _trained(tmp_path_factory.mktemp(f"markov-{n}"), n, lengths[n]) for n in lengths}
