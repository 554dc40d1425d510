"""Muon for the hidden matrices, AdamW for all the rest, and the learning-rate schedule.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) orthogonalizes the
momentum of each matrix. Written here, in place of ``torch.optim.Muon``, because GPT-2
keeps query, key and value in one matrix, which are three matrices to Muon.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn


def orthogonalized(matrix: Tensor, rounds: int = 5) -> Tensor:
    """Return the nearest (semi-)orthogonal matrix, roughly, by a Newton-Schulz iteration."""
    x = matrix.float()
    if tall := x.size(-2) > x.size(-1):
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    result: Tensor = (x.mT if tall else x).to(matrix.dtype)
    return result


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalized, scaled to the size of an AdamW step (0.2 RMS per entry).

    A group's ``blocks`` says into how many equal matrices its parameters fall along their
    last axis (3 for GPT-2's joint query, key and value).
    """

    def __init__(self, groups: Iterable[dict[str, Any]], momentum: float = 0.95) -> None:
        super().__init__(
            groups, {"lr": 0.0, "weight_decay": 0.0, "blocks": 1, "momentum": momentum}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            beta, lr = group["momentum"], group["lr"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - beta)
                update = parameter.grad.lerp(state["momentum"], beta)
                parameter.mul_(1 - lr * group["weight_decay"])
                for part, target in zip(
                    update.chunk(group["blocks"], dim=-1),
                    parameter.chunk(group["blocks"], dim=-1),
                    strict=True,
                ):
                    scale = 0.2 * max(part.shape) ** 0.5
                    target.add_(orthogonalized(part), alpha=-lr * scale)


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak learning rates by kind of parameter."""

    matrices: float = 5e-3
    tokens: float = 3e-3
    positions: float = 1e-3
    rest: float = 2e-3
    decay: float = 0.1
    late_positions: float = 1.0
    """What the positions' rate is multiplied by once the rates fall."""

    def scaled(self, factor: float) -> Rates:
        """Return the same, every peak times ``factor``."""
        peaks = ("matrices", "tokens", "positions", "rest")
        return replace(self, **{name: factor * getattr(self, name) for name in peaks})


def optimizers(model: nn.Module, rates: Rates) -> list[torch.optim.Optimizer]:
    """Muon for 2-D weights within the layers, AdamW for embeddings, norms and biases."""
    joint: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    tokens: list[nn.Parameter] = []
    positions: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if "wpe" in name or "position_embeddings" in name:
            positions.append(parameter)
        elif "wte" in name or "word_embeddings" in name:
            tokens.append(parameter)
        elif parameter.ndim != 2 or "embeddings" in name:
            rest.append(parameter)
        else:
            (joint if "c_attn" in name else matrices).append(parameter)
    muon = [
        {"params": joint, "lr": rates.matrices, "weight_decay": rates.decay, "blocks": 3},
        {"params": matrices, "lr": rates.matrices, "weight_decay": rates.decay},
    ]
    adamw = [
        {"params": tokens, "lr": rates.tokens, "weight_decay": rates.decay / 4},
        {
            "params": positions,
            "lr": rates.positions,
            "weight_decay": 0.0,
            "late": rates.late_positions,
        },
        {"params": rest, "lr": rates.rest, "weight_decay": 0.0},
    ]
    both: list[torch.optim.Optimizer] = [
        Muon([group for group in muon if group["params"]]),
        torch.optim.AdamW([group for group in adamw if group["params"]], betas=(0.9, 0.98)),
    ]
    for optimizer in both:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
            group.setdefault("late", 1.0)
    return both


@dataclass(frozen=True, slots=True)
class Schedule:
    """Linear warm-up, a plateau, then a linear fall to zero over the last part."""

    steps: int
    warmup: int = 200
    fall: float = 0.4

    @property
    def turn(self) -> int:
        """The first step of the fall."""
        return int(self.steps * (1 - self.fall))

    def fallen(self, step: int) -> float:
        """How much of the fall is done: 0 before it, 1 after the last step."""
        return min(max(0.0, (step - self.turn) / max(1, self.steps - self.turn)), 1.0)

    def factor(self, step: int) -> float:
        """Return what the peak rates are multiplied by at ``step``."""
        return min(1.0, (step + 1) / min(self.warmup, max(1, self.steps // 5))) * (
            1 - self.fallen(step)
        )


def set_rates(optimizer: torch.optim.Optimizer, schedule: Schedule, step: int) -> None:
    """Give every group its learning rate for ``step``."""
    for group in optimizer.param_groups:
        late = group["late"] if schedule.fallen(step) else 1.0
        group["lr"] = group["peak"] * late * schedule.factor(step)
