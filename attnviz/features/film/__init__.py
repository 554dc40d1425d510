"""Heads over time: checkpoints of one training run, step by step."""
