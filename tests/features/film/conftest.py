"""Two runs of the recipe in which heads form, small enough to be trained here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.phases import MARKOV, save, train

RUN = replace(MARKOV, steps=1080, every=120, texts=60, seed=1)
"""The recipe's own run as far as the rise of two layers, with fewer checkpoints."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By the number of layers, a folder with checkpoints, texts.txt and optimum.json."""
    found = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for layers in (1, 2):
        out = tmp_path_factory.mktemp(f"markov-{layers}")
        run = replace(RUN, layers=layers, steps=RUN.steps if layers == 2 else 480)
        train(run, save(run, out))
        found[layers] = out
    torch.set_num_threads(threads)
    return found
