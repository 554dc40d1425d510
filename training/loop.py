"""The training loop of both models: step, log, save, resume."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from transformers import PreTrainedModel

from .optim import Rates, Schedule, optimizers, set_rates

PEAKS = Rates()
STATE = "state.pt"
LOG = "log.jsonl"


class Task(Protocol):
    """What the loop has to know of a model."""

    @property
    def model(self) -> PreTrainedModel:
        """The weights to train."""
        ...

    def loss(self, rng: np.random.Generator, step: int, schedule: Schedule) -> Tensor:
        """Return the loss of one step's batch, drawn from ``rng``."""
        ...

    def probe(self) -> Mapping[str, float]:
        """Figures to watch: head scores, held-out loss."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run; only ``steps``, ``fall`` and ``seed`` change the weights."""

    out: Path
    steps: int
    fall: float = 0.4
    seed: int = 1
    minutes: float | None = None
    log_every: int = 50
    probe_every: int = 250
    save_every: int = 500
    save_minutes: float = 4.0
    """The state is saved after so many steps or so long, whichever comes first."""
    quiet: bool = False
    checkpoint: Callable[[int], None] | None = None
    checkpoint_every: int = 0
    """Steps between two calls of ``checkpoint``, which gets the step, 0 first; 0 for none."""


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` beside ``path``, then move it there: never half a file."""
    partial = path.with_suffix(".partial")
    torch.save(dict(state), partial)
    os.replace(partial, path)


def run(task: Task, settings: Settings, rates: Rates = PEAKS) -> int:
    """Train up to ``settings.steps``, from the saved state if there is one.

    Returns the number of steps done: fewer than asked for if ``minutes`` ran out, in
    which case the same command goes on from there. A resumed run may ask for another
    number of steps only as long as neither the old nor the new schedule has begun to fall:
    until then the weights are the same for both.
    """
    schedule = Schedule(settings.steps, fall=settings.fall)
    optims = optimizers(task.model, rates)
    step, seconds = _resume(task.model, optims, settings, schedule)
    path = settings.out / STATE
    settings.out.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        save_state(
            path,
            {
                "model": task.model.state_dict(),
                "optims": [optim.state_dict() for optim in optims],
                "step": step,
                "steps": settings.steps,
                "fall": settings.fall,
                "seed": settings.seed,
                "seconds": seconds,
            },
        )

    if step == 0 and settings.checkpoint is not None and settings.checkpoint_every:
        settings.checkpoint(0)
    begin, recent = time.monotonic(), []
    saved = begin
    with _bar(settings, step) as advance:
        while step < settings.steps:
            tick = time.monotonic()
            recent.append(_one_step(task, optims, settings.seed, step, schedule))
            step += 1
            seconds += time.monotonic() - tick
            last = step == settings.steps
            advance(recent[-1])
            if step % settings.log_every == 0 or last:
                entry = {"step": step, "loss": float(np.mean(recent)), "seconds": round(seconds, 1)}
                if step % settings.probe_every == 0 or last:
                    entry |= {name: round(value, 4) for name, value in task.probe().items()}
                with (settings.out / LOG).open("a", encoding="utf-8") as log:
                    log.write(json.dumps(entry) + "\n")
                recent.clear()
            stop = settings.minutes is not None and time.monotonic() - begin > 60 * settings.minutes
            due = time.monotonic() - saved > 60 * settings.save_minutes
            if step % settings.save_every == 0 or due or last or stop:
                save()
                saved = time.monotonic()
            every = settings.checkpoint_every
            if settings.checkpoint is not None and every and (step % every == 0 or last):
                settings.checkpoint(step)
            if stop:
                break
    return step


def _one_step(
    task: Task, optims: list[torch.optim.Optimizer], seed: int, step: int, schedule: Schedule
) -> float:
    loss = task.loss(np.random.default_rng([seed, step]), step, schedule)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
    for optim in optims:
        set_rates(optim, schedule, step)
        optim.step()
        optim.zero_grad()
    return float(loss.detach())


def _resume(
    model: nn.Module, optims: list[torch.optim.Optimizer], settings: Settings, schedule: Schedule
) -> tuple[int, float]:
    """Load the saved state, if any; the steps and the seconds it stands for."""
    path = settings.out / STATE
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, map_location="cpu", weights_only=True)
    if state["seed"] != settings.seed:
        raise SystemExit(f"{path} was trained with seed {state['seed']}, not {settings.seed}")
    before = Schedule(state["steps"], fall=state["fall"])
    if before != schedule and state["step"] > min(before.turn, schedule.turn):
        raise SystemExit(
            f"{path} is at step {state['step']} of {state['steps']}; "
            f"its end can no longer be moved to {settings.steps}"
        )
    model.load_state_dict(state["model"])
    for optim, saved in zip(optims, state["optims"], strict=True):
        optim.load_state_dict(saved)
    return int(state["step"]), float(state["seconds"])


@contextmanager
def _bar(settings: Settings, step: int) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(), TextColumn("loss {task.fields[loss]:.3f}"),
    )  # fmt: skip
    with Progress(*columns, disable=settings.quiet, refresh_per_second=2) as progress:
        bar = progress.add_task(settings.out.name, total=settings.steps, completed=step, loss=0.0)
        yield lambda loss: progress.update(bar, advance=1, loss=loss)
