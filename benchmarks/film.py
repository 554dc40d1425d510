"""Heads while training: a step of training with and without, at every 100 steps.

A GPT-2 of four layers of six heads, 8 windows of 128 tokens a step, AdamW, one thread; 8 texts of
64 tokens are measured. Processor time of one measurement over that of 100 steps of training.
"""

from __future__ import annotations

import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import attnviz as av
from benchmarks.table import Row

EVERY, STEPS, TEXTS = 100, 10, 8


def measure() -> list[Row]:
    """All rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [tracked()]
    finally:
        torch.set_num_threads(threads)


def tracked() -> Row:
    """One measurement every 100 steps, over what 100 steps cost."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=8192, n_positions=256, n_embd=192, n_layer=4, n_head=6)
    ).train()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(8192, (8, 128))
    heads = av.track(model, None, torch.randint(8192, (TEXTS, 64)).tolist())
    heads(0)  # looks at the model once
    training, tracking = [], []
    for step in range(STEPS):
        start = time.process_time()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        middle = time.process_time()
        heads(step)
        training.append(middle - start)
        tracking.append(time.process_time() - middle)
    once, each = sorted(tracking)[STEPS // 2], sorted(training)[STEPS // 2]
    detail = f"{1e3 * once:.0f} ms a measurement, {1e3 * each:.0f} ms a step"
    return Row(
        f"track, every = {EVERY}", "training without", 1 + once / (EVERY * each), 1.02, detail
    )
