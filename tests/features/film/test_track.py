"""Measuring heads while a model is trained leaves no trace in the training."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import attnviz as av
from attnviz.errors import UsageError
from attnviz.features.film.track import first_rank, inside

TEXTS = [[n % 11 for n in range(start, start + 40)] for start in range(6)]
STEPS = 6


def built(seed: int = 0, **options: Any) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=11, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=None,
            eos_token_id=None, **options,
        )
    )  # fmt: skip


def trained(
    tracked: bool,
    out: Path | None = None,
    wrap: Any = lambda model: model,
    dtype: torch.dtype = torch.float32,
    autocast: bool = False,
    checkpointing: bool = False,
) -> dict[str, Any]:
    """Train with dropout, which draws random numbers, and say everything that came of it."""
    model = built().to(dtype)
    if checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    wrapped = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    heads = av.track(wrapped, None, TEXTS, every=2, out=out) if tracked else None
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    losses, logged = [], []
    for step in range(STEPS):
        ids = torch.from_numpy(np.random.randint(0, 11, (4, 20)))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = wrapped(input_ids=ids, labels=ids).loss
            loss.backward()
            if heads is not None:  # in the middle of a step, gradients and autocast and all
                logged.append(heads(step))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    state = [value for group in optimizer.state.values() for value in group.values()]
    return {
        "losses": losses,
        "tensors": [*model.state_dict().values(), *state, torch.get_rng_state()],
        "drawn": (random.random(), np.random.rand(), torch.rand(1).item()),
        "modes": [module.training for module in model.modules()],
        "trained": [p.requires_grad for p in model.parameters()],
        "names": sorted(vars(model)),
        "chosen": model.config._attn_implementation,
        "logged": logged,
    }


def distributed_data_parallel(model: Any) -> Any:
    return nn.parallel.DistributedDataParallel(model)


@pytest.fixture
def group() -> Iterator[None]:
    """A group of this process alone."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": torch.bfloat16},
        {"autocast": True},
        {"checkpointing": True},
        {"wrap": distributed_data_parallel},
    ],
    ids=["plain", "bfloat16", "autocast", "checkpointing", "distributed"],
)
def test_training_is_bit_identical_with_and_without(
    options: dict[str, Any], tmp_path: Path
) -> None:
    without, tracked = trained(False, **options), trained(True, tmp_path, **options)
    for mine, theirs in zip(without.pop("tensors"), tracked.pop("tensors"), strict=True):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))
    logged = tracked.pop("logged")
    assert without.pop("logged") == []
    assert without == tracked
    assert [bool(numbers) for numbers in logged] == [True, False] * 3
    assert set(logged[0]) == {"heads/previous", "heads/induction", "heads/loss", "heads/in_context"}


def test_the_test_of_identity_can_fail() -> None:
    """A random number drawn between two steps is seen."""

    def drawing(model: Any) -> Any:
        model.register_forward_hook(lambda *_: torch.rand(1) and None)
        return model

    assert trained(False)["losses"] == trained(False)["losses"]
    assert trained(False)["losses"] != trained(False, wrap=drawing)["losses"]


def test_numbers_are_those_of_the_film_and_of_transformers(tmp_path: Path) -> None:
    model = built()
    heads = av.track(model, None, TEXTS, out=tmp_path, scores=("previous",), each=True)
    first = heads(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    heads(10)
    found = av.read_film(tmp_path)
    assert found.steps == (0, 10)
    ids = torch.tensor(TEXTS)
    model = built().eval()
    model.set_attn_implementation("eager")
    output = model(ids, output_attentions=True, labels=ids)
    assert first["heads/loss"] == pytest.approx(output.loss.item(), rel=1e-5)
    for layer, maps in enumerate(output.attentions):
        for head in range(2):
            below = torch.diagonal(maps[:, head], -1, 1, 2)[:, 2 - 1 :]  # from row 2 on
            wanted = below.mean().item()
            assert first[f"heads/previous/{layer}.{head}"] == pytest.approx(wanted, rel=1e-5)
            curve = found.heads[2 * layer + head].scores["previous"]
            assert curve.mean[0] == pytest.approx(wanted, abs=1e-4)


def test_a_compiled_model_runs_uncompiled() -> None:
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(graph)
        return graph.forward

    model = built()
    compiled = torch.compile(model, backend=backend)
    assert inside(compiled) is model
    assert av.track(compiled, None, TEXTS)(0)
    model.compile(backend=backend)
    before = model._compiled_call_impl
    assert before is not None
    assert av.track(model, None, TEXTS)(0)
    assert model._compiled_call_impl is before
    assert not calls


def test_only_rank_0_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import distributed

    heads = av.track(built(), None, TEXTS)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    assert not first_rank()
    assert heads(0) == {}


def test_what_cannot_be_tracked_is_refused() -> None:
    with pytest.raises(UsageError, match="every"):
        av.track(built(), None, TEXTS, every=0)
    with pytest.raises(UsageError, match="no score is called 'prev'"):
        av.track(built(), None, TEXTS, scores=("prev",))
    with pytest.raises(UsageError, match="texts"):
        av.track(built(), None, [])
    with pytest.raises(UsageError, match=r"attnviz\.watch"):
        av.track(nn.Linear(2, 2), None, TEXTS)
    model = built()
    model.transformer.wte.weight.data = torch.zeros(0)
    with pytest.raises(UsageError, match="spread over processes"):
        av.track(model, None, TEXTS)


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor(TEXTS[number % 6][:20])
        return {"input_ids": ids, "labels": ids}


def with_trainer(folder: Path, tracked: bool) -> tuple[Any, list[dict[str, Any]]]:
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainerCallback, TrainingArguments

    logged: list[dict[str, Any]] = []

    class Logger(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **more: Any) -> None:
            logged.append({**logs, "step": state.global_step})

    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, logging_steps=2,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, seed=3,
    )  # fmt: skip
    trainer = Trainer(built(), arguments, train_dataset=Rows(), callbacks=[Logger])
    if tracked:
        av.HeadsCallback(TEXTS, every=2).attach(trainer)
    trainer.train()
    return trainer, logged


def test_the_trainer_logs_heads_and_trains_the_same(tmp_path: Path) -> None:
    plain, quiet = with_trainer(tmp_path / "plain", tracked=False)
    trainer, logged = with_trainer(tmp_path / "tracked", tracked=True)
    for mine, theirs in zip(
        plain.model.state_dict().values(), trainer.model.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs)
    heads = [one for one in logged if "heads/induction" in one]
    assert [one["step"] for one in heads] == [0, 2, 4, 6]
    assert [one["loss"] for one in quiet if "loss" in one] == [
        one["loss"] for one in logged if "loss" in one
    ]
    assert any("heads/loss" in one for one in trainer.state.log_history)
    film = av.read_film(tmp_path / "tracked" / "heads")
    assert film.steps == (0, 2, 4, 6)
    assert film.maps is not None
