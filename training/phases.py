"""Train attention-only models in which heads form in plain sight.

    python -m training.phases --task repeats --layers 2 --out runs/repeats-2
    python -m training.phases --task markov --layers 2 --out runs/markov-2

Two tasks whose solution takes two layers of attention. ``repeats``: random symbols, and the same
again with a period that differs from sequence to sequence, which takes induction (Olsson et al.
2022, arXiv:2209.11895). ``markov``: every sequence has its own Markov chain, whose transitions are
drawn from a flat Dirichlet distribution (Edelman et al. 2024, arXiv:2402.11004): models pass from
the uniform over the unigram to the bigram solution. Models of one layer come to neither.

The models are GPT-2s whose MLPs write nothing, so that whatever reads a GPT-2 reads them. ``out``
gets a folder ``step-…`` for every checkpoint, ``texts.txt`` that no model was trained on, and
``optimum.json``, the loss on these texts of those who know how they are made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
import typer
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

from .optim import Rates, Schedule, optimizers, set_rates

Symbols = NDArray[np.int64]
Task = Literal["repeats", "markov"]

RATES = Rates(matrices=1e-2, tokens=5e-3, positions=5e-3, rest=3e-3, decay=0.01)
HELD = 1 << 20
"""Added to a seed for the texts that no model is trained on."""


@dataclass(frozen=True, slots=True)
class Phases:
    """A run; everything but ``every`` and ``texts`` changes the weights.

    Attributes:
        task: what the sequences are; ``layers`` and ``heads`` (in each) what the model is.
        symbols: how many there are; ``length`` of a sequence.
        width: of the residual stream.
        steps: of the optimizer, each on ``batch`` sequences.
        every: steps between checkpoints; those of the first fifth come twice as often.
        texts: how many are held out.
    """

    task: Task = "repeats"
    layers: int = 2
    heads: int = 2
    symbols: int = 24
    length: int = 48
    width: int = 48
    steps: int = 2000
    batch: int = 32
    every: int = 100
    texts: int = 100
    seed: int = 1

    @property
    def saved(self) -> list[int]:
        """The steps at which a checkpoint is written, with 0."""
        early = range(0, self.steps // 5, max(1, self.every // 2))
        return sorted({*early, *range(0, self.steps + 1, self.every), self.steps})


MARKOV = Phases("markov", heads=1, symbols=5, length=64, width=32, steps=1500, every=60)


def draw(run: Phases, rng: np.random.Generator, count: int) -> Symbols:
    """[count, length] symbols of the task."""
    return (repeats if run.task == "repeats" else markov)(run, rng, count)


def repeats(run: Phases, rng: np.random.Generator, count: int) -> Symbols:
    """Random symbols with a period between an eighth and a half of the length."""
    found = rng.integers(0, run.symbols, (count, run.length))
    periods = rng.integers(run.length // 8, run.length // 2 + 1, count)
    places = np.arange(run.length)
    return np.take_along_axis(found, places % periods[:, None], 1)


def markov(run: Phases, rng: np.random.Generator, count: int) -> Symbols:
    """Chains whose transitions are drawn anew for every sequence; the first symbol is uniform."""
    k = run.symbols
    sums = rng.dirichlet(np.ones(k), (count, k)).cumsum(-1)
    found = np.empty((count, run.length), np.int64)
    found[:, 0] = rng.integers(0, k, count)
    for place in range(1, run.length):
        rows = sums[np.arange(count), found[:, place - 1]]
        found[:, place] = np.minimum((rng.random(count)[:, None] > rows).sum(-1), k - 1)
    return found


def optimum(run: Phases, sequences: Symbols) -> dict[str, float]:
    """Return the mean loss in nats of predictors that know how the sequences are made.

    ``uniform`` knows the symbols. For chains, ``unigram`` and ``bigram`` also count symbols, or
    transitions, and add one to each count; ``bigram`` is Bayes' estimate and the best there is.
    For repeats, ``known period`` copies once it has seen one period and is uniform until then.
    """
    k = run.symbols
    found = {"uniform": math.log(k)}
    if run.task == "repeats":
        first = [_period(row) for row in sequences.tolist()]
        share = np.mean([(period - 1) / (run.length - 1) for period in first])
        return found | {"known period": float(share * math.log(k))}
    losses: dict[str, list[float]] = {"unigram": [], "bigram": []}
    for row in sequences.tolist():
        ones, twos = np.ones(k), np.ones((k, k))
        ones[row[0]] += 1
        for before, after in pairwise(row):
            losses["unigram"].append(-math.log(ones[after] / ones.sum()))
            losses["bigram"].append(-math.log(twos[before, after] / twos[before].sum()))
            ones[after] += 1
            twos[before, after] += 1
    return found | {name: float(np.mean(values)) for name, values in losses.items()}


def _period(row: Sequence[int]) -> int:
    return next(p for p in range(1, len(row) + 1) if row[p:] == row[: len(row) - p])


def build(run: Phases) -> GPT2LMHeadModel:
    """Fresh weights of a GPT-2 whose MLPs write nothing and are not trained."""
    torch.manual_seed(run.seed)
    config = GPT2Config(
        vocab_size=run.symbols, n_positions=run.length, n_embd=run.width, n_layer=run.layers,
        n_head=run.heads, n_inner=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    for block in model.transformer.h:
        block.mlp.requires_grad_(False)
        torch.nn.init.zeros_(block.mlp.c_proj.weight)
        torch.nn.init.zeros_(block.mlp.c_proj.bias)
    return model


def words(run: Phases) -> list[str]:
    """Return what the symbols are called in texts."""
    if run.symbols <= 26:
        return [chr(ord("a") + n) for n in range(run.symbols)]
    return [f"{chr(ord('a') + n // 10)}{n % 10}" for n in range(run.symbols)]


def tokenizer(run: Phases) -> Tokenizer:
    """Return a word is a token."""
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words(run))}))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def train(
    run: Phases, checkpoint: Callable[[int, GPT2LMHeadModel], None] = lambda step, model: None
) -> GPT2LMHeadModel:
    """Train a model, and show it at every step that is saved.

    Args:
        run: what to train.
        checkpoint: gets the number of steps done, and the model.
    """
    model, saved = build(run), set(run.saved)
    trained = [one for one in model.parameters() if one.requires_grad]
    schedule, several = Schedule(run.steps, warmup=50, fall=0.0), optimizers(model, RATES)
    checkpoint(0, model)
    for step in range(run.steps):
        ids = torch.from_numpy(draw(run, np.random.default_rng([run.seed, step]), run.batch))
        logits = model(ids[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for optimizer in several:
            set_rates(optimizer, schedule, step)
            optimizer.step()
            optimizer.zero_grad()
        if step + 1 in saved:
            checkpoint(step + 1, model)
    return model


def save(run: Phases, out: Path) -> Callable[[int, GPT2LMHeadModel], None]:
    """Write what belongs to a run, and return what writes its checkpoints."""
    held = draw(run, np.random.default_rng(run.seed + HELD), run.texts)
    named = words(run)
    out.mkdir(parents=True, exist_ok=True)
    lines = (" ".join(named[n] for n in row) for row in held.tolist())
    (out / "texts.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    known: Mapping[str, float] = optimum(run, held)
    (out / "optimum.json").write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    (out / "run.json").write_text(json.dumps(asdict(run), indent=2) + "\n", "utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": run.length,
        "clean_up_tokenization_spaces": False,
    }

    def checkpoint(step: int, model: GPT2LMHeadModel) -> None:
        folder = out / f"step-{step:05}"
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokenizer(run).save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n", "utf-8")

    return checkpoint


def main(
    out: Annotated[Path, typer.Option(help="folder for texts and checkpoints")],
    task: Annotated[str, typer.Option(help="repeats or markov")] = "repeats",
    layers: Annotated[int, typer.Option(min=1, help="of attention")] = 2,
    heads: Annotated[int | None, typer.Option(min=1, help="in each layer")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="of the optimizer")] = None,
    seed: Annotated[int, typer.Option(help="of weights and data")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="torch threads")] = 1,
) -> None:
    """Train one of the models."""
    torch.set_num_threads(threads)
    if task not in ("repeats", "markov"):
        raise SystemExit(f"no task {task!r}; choose repeats or markov")
    base = Phases() if task == "repeats" else MARKOV
    given = {"heads": heads, "steps": steps}
    run = Phases(
        **{**asdict(base), "layers": layers, "seed": seed}
        | {name: value for name, value in given.items() if value is not None}
    )
    train(run, save(run, out))
    typer.echo(f"wrote {out}: {len(run.saved)} checkpoints, texts.txt, optimum.json")


if __name__ == "__main__":
    typer.run(main)
