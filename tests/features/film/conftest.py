"""Two runs of the recipe in which heads form, small enough to be trained here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.phases import MARKOV, save, train

RUN = replace(MARKOV, steps=1100, every=110, length=48, texts=40, seed=1)
"""Long enough for the rise of two layers."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By the number of layers, a folder with checkpoints, texts.txt and optimum.json."""
    found = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for layers in (1, 2):
        out = tmp_path_factory.mktemp(f"markov-{layers}")
        run = replace(RUN, layers=layers, steps=RUN.steps if layers == 2 else 440)
        train(run, save(run, out))
        found[layers] = out
    torch.set_num_threads(threads)
    return found
