"""Measuring heads while a model is trained leaves no trace in the training."""

import math
import random
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

import attnviz as av
from attnviz.cli import main
from attnviz.errors import AttnvizError, AttnvizWarning, InputError, OutputError, UsageError
from attnviz.features.film import steps
from attnviz.features.film.track import Tracker, first_rank, inside

TEXTS = [[n % 11 for n in range(start, start + 40)] for start in range(6)]
STEPS = 4


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
    heads = av.track(wrapped, None, TEXTS, every=2, state=out) if tracked else None
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
        "losses": losses, "tensors": [*model.state_dict().values(), *state, torch.get_rng_state()],
        "drawn": (random.random(), np.random.rand(), torch.rand(1).item()),
        "modes": [module.training for module in model.modules()],
        "trained": [p.requires_grad for p in model.parameters()], "names": sorted(vars(model)),
        "chosen": model.config._attn_implementation, "logged": logged,
    }  # fmt: skip


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
        {}, {"dtype": torch.bfloat16}, {"autocast": True}, {"checkpointing": True},
        {"wrap": distributed_data_parallel},
    ],
    ids=["plain", "bfloat16", "autocast", "checkpointing", "distributed"],
)  # fmt: skip
def test_training_is_bit_identical_with_and_without(options: dict[str, Any], tmp_path) -> None:
    without, tracked = trained(False, **options), trained(True, tmp_path, **options)
    for mine, theirs in zip(without.pop("tensors"), tracked.pop("tensors"), strict=True):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))
    logged = tracked.pop("logged")
    assert without.pop("logged") == []
    assert without == tracked
    assert [bool(numbers) for numbers in logged] == [True, False] * 2
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
    heads = av.track(model, None, TEXTS, state=tmp_path, scores=("previous",), each=True)
    first = heads(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    heads(10)
    found = av.read(tmp_path)
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
    heads = av.track(built(), None, TEXTS)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    assert not first_rank()
    assert heads(0) == {}


def test_what_cannot_be_tracked_is_refused() -> None:
    with pytest.raises(UsageError, match=r"attnviz\.watch"):
        av.track(nn.Linear(2, 2), None, TEXTS)
    model = built()
    model.transformer.wte.weight.data = torch.zeros(0)
    with pytest.raises(UsageError, match="spread over processes"):
        av.track(model, None, TEXTS)


WRONG: list[tuple[dict[str, Any], type[AttnvizError], str]] = [
    ({"texts": None}, UsageError, "texts takes several"),
    ({"texts": "abc"}, UsageError, "texts takes several"),
    ({"texts": b"abc"}, UsageError, "texts takes several"),
    ({"texts": [b"abc"]}, UsageError, "texts takes several"),
    ({"texts": [[1.5, 2.5]]}, UsageError, "texts takes several"),
    ({"texts": [[True, False]]}, UsageError, "texts takes several"),
    ({"texts": [[3, -1]]}, InputError, "text 1 has the token id -1; ids go from 0"),
    ({"texts": [" "]}, InputError, "text 1 is empty"),
    ({"texts": []}, UsageError, "no texts"),
    ({"every": "2"}, UsageError, "every takes a whole number, not '2'"),
    ({"every": 2.5}, UsageError, "every takes a whole number"),
    ({"every": True}, UsageError, "every takes a whole number"),
    ({"every": 0}, UsageError, "every=0 must be 1 or more"),
    ({"scores": []}, UsageError, "no scores; name some"),
    ({"scores": "previous"}, UsageError, "scores takes several"),
    ({"scores": ["prev"]}, UsageError, "no score is called 'prev'"),
    ({"state": "FILE"}, OutputError, "cannot keep steps in .*File exists"),
    ({"state": "FILE/below"}, OutputError, "cannot keep steps in .*Not a directory"),
    ({"state": 3}, UsageError, "state takes a string, a path or None"),
]


@pytest.mark.parametrize(("options", "kind", "says"), WRONG, ids=str)
def test_wrong_settings_are_refused_when_it_is_made(
    options: dict[str, Any], kind: type[AttnvizError], says: str, tmp_path: Path
) -> None:
    (tmp_path / "FILE").write_text("mine")
    if isinstance(options.get("state"), str):
        options = {"state": tmp_path / options["state"]}
    options = {"texts": TEXTS, **options}
    with pytest.raises(kind, match=says):
        av.HeadsCallback(**options)
    model = built()
    with pytest.raises(kind, match=says):
        av.track(model, None, **options)
    with pytest.raises(kind, match=says):
        Tracker(model, None, **options)
    assert (tmp_path / "FILE").read_text() == "mine"


def test_what_the_model_cannot_take_is_refused_when_it_is_made() -> None:
    with pytest.raises(InputError, match="token id 100 is not in the model's vocabulary"):
        av.track(built(), None, [[100, 1]])
    with pytest.raises(av.ModelError, match="given without its tokenizer"):
        av.track(built(), None, ["a text"])
    for model in (None, "demo-gpt2", 3):
        with pytest.raises(UsageError, match="model takes the transformers model that is trained"):
            av.track(model, None, TEXTS)
    with pytest.raises(UsageError, match="trainer takes transformers' Trainer, not Linear"):
        av.HeadsCallback(TEXTS).attach(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="map_tokens=-1 must be 0 or more"):
        av.track(built(), None, TEXTS, map_tokens=-1)


def test_a_step_is_a_whole_number(tmp_path: Path) -> None:
    heads = av.track(built(), None, TEXTS[:1], state=tmp_path)
    for step in ("1", b"1", 1.0, 1.5, True, None, -1, float("nan")):
        for call in (heads, heads.measure):
            with pytest.raises(UsageError, match=r"step(=-1 must be 0| takes a whole number)"):
                call(step)
    assert not list(tmp_path.iterdir())


def test_kept_steps_are_read_in_order_and_by_their_names(tmp_path: Path) -> None:
    heads = av.track(built(), None, TEXTS, state=tmp_path, scores=("previous",))
    numbers = (np.int64(7), 99_999_999, 100_000_000)
    for step in reversed(numbers):
        heads(step)
    assert av.read(tmp_path).steps == numbers
    shutil.copy(steps.path_of(tmp_path, 7), steps.path_of(tmp_path, 8))
    with pytest.raises(InputError, match=r"it is of step 7, which is not that of its name"):
        av.read(tmp_path)
    heads.last.header.step = -1
    written = steps.write(tmp_path, heads.last)
    written.rename(steps.path_of(tmp_path, 8))
    with pytest.raises(InputError, match=r"it is of step -1"):
        av.read(tmp_path)


def test_a_folder_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    """As on a full disk: one warning, nothing more is kept, numbers are as before."""
    heads, other = (av.track(built(), None, TEXTS, state=tmp_path / name) for name in "ab")
    first = heads(0)
    shutil.rmtree(tmp_path / "a")
    with pytest.warns(AttnvizWarning, match=r"not kept from step 1 on: .*Training goes on") as said:
        numbers = [heads(1), heads(2)]
    assert len(said) == 1
    assert numbers == [first, first] == [other(1), other(2)]
    assert not (tmp_path / "a").exists()
    assert heads.last.header.step == 2


def test_weights_that_are_no_numbers_end_no_training() -> None:
    model = built()
    heads = av.track(model, None, TEXTS)
    first = heads(0)
    weights = model.transformer.h[1].attn.c_attn.weight
    before = weights.detach().clone()
    with torch.no_grad():
        weights.fill_(float("nan"))
    with pytest.warns(AttnvizWarning, match=r"step 1 is not measured.*not numbers \(NaN\)") as said:
        numbers = [heads(1), heads(2)]
    assert len(said) == 1
    assert numbers == [{}, {}]
    with torch.no_grad():
        weights.copy_(before)
    assert heads(3) == first


@pytest.mark.parametrize("loss", [float("nan"), 1e30])
def test_a_loss_that_is_no_number_is_none_in_the_film(loss: float, tmp_path: Path) -> None:
    """And not 0, and no warning of NumPy's."""
    model = built()
    heads = av.track(model, None, TEXTS, state=tmp_path)
    before = model.transformer.ln_f.weight.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step, weights in enumerate([before, torch.full_like(before, loss), before]):
            with torch.no_grad():
                model.transformer.ln_f.weight.copy_(weights)
            heads(step)
        film = av.read(tmp_path)
        for curve in (film.loss, film.in_context):
            assert [value is None for value in curve.mean] == [False, True, False]
            assert curve.mean[0] == curve.mean[2] != 0
        steps.path_of(tmp_path, 0).unlink()  # so that the film begins with it
        shorter = av.read(tmp_path)
        assert shorter.loss.mean == (None, film.loss.mean[0])
        assert av.read(film.save(tmp_path / "film.json")) == film
        for suffix in (".png", ".html", ".csv") if math.isnan(loss) else ():
            film.save(tmp_path / f"film{suffix}")
    said = "The loss is too large or no number at 1 step, first at step 1: training has diverged."
    assert said in film.notes


def test_a_film_that_is_there_takes_no_options_of_a_measurement(tmp_path: Path, capsys) -> None:
    heads = av.track(built(), None, TEXTS, state=tmp_path, scores=("previous",))
    heads(0), heads(1)
    assert main(["film", str(tmp_path), "-q"]) == 0
    capsys.readouterr()
    options = ["--device", "cuda", "--no-special-tokens", "--scores", "next", "--texts", "x.txt"]
    assert main(["film", str(tmp_path), *options]) == 2
    said = capsys.readouterr().err
    left = re.sub(r".*leave out", "", " ".join(said.split()))
    assert left.split(", ") == [" --texts", "--no-special-tokens", "--scores", "--device"]
    assert main(["film", str(tmp_path), "--map-tokens", "3", "--state", "k", "--jobs", "2"]) == 2


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor(TEXTS[number % 6][:20])
        return {"input_ids": ids, "labels": ids}


def with_trainer(folder: Path, tracked: bool, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    pytest.importorskip("accelerate")
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
        av.HeadsCallback(TEXTS, every=2, **options).attach(trainer)
    with pytest.MonkeyPatch.context() as patch:  # garbage of so large a process takes seconds
        patch.setattr("accelerate.utils.memory.gc", SimpleNamespace(collect=lambda: 0))
        trainer.train()
    return trainer, logged


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A training in which no head is measured."""
    return with_trainer(tmp_path_factory.mktemp("plain"), tracked=False)


def test_the_trainer_logs_heads_and_trains_the_same(untracked: Any, tmp_path: Path) -> None:
    plain, quiet = untracked
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
    film = av.read(tmp_path / "tracked" / "heads")
    assert film.steps == (0, 2, 4, 6)
    assert film.maps is not None


def test_a_trainer_is_looked_at_when_it_is_attached(tmp_path: Path) -> None:
    added: list[Any] = []
    trainer = SimpleNamespace(
        model=built(), processing_class=None, args=SimpleNamespace(output_dir=str(tmp_path)),
        add_callback=added.append, log=print,
    )  # fmt: skip
    with pytest.raises(InputError, match="token id 100 is not in the model's vocabulary"):
        av.HeadsCallback([[100, 1]]).attach(trainer)
    (tmp_path / "file").write_text("mine")
    trainer.args.output_dir = tmp_path / "file"
    with pytest.raises(OutputError, match="cannot keep steps in"):
        av.HeadsCallback(TEXTS).attach(trainer)
    trainer.args.output_dir = tmp_path
    with pytest.raises(UsageError, match="processing_class=tokenizer"):
        av.HeadsCallback(["a b"]).attach(trainer)
    assert not added


def test_a_log_that_raises_ends_no_training(untracked: Any, tmp_path: Path) -> None:
    calls = []

    def log(numbers: dict[str, float]) -> None:
        calls.append(numbers)
        raise ConnectionError("the logger is gone")

    plain, quiet = untracked
    with pytest.warns(AttnvizWarning, match="not logged from step 0 on: ConnectionError: the logg"):
        trainer, logged = with_trainer(tmp_path / "tracked", tracked=True, log=log)
    assert len(calls) == 1
    assert trainer.state.global_step == 6
    for mine, theirs in zip(
        plain.model.state_dict().values(), trainer.model.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs)
    assert [one["loss"] for one in quiet if "loss" in one] == [
        one["loss"] for one in logged if "loss" in one
    ]
    assert av.read(tmp_path / "tracked" / "heads").steps == (0, 2, 4, 6)


def fakes(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """The interfaces of five trackers, each under its package's name, and what they were given."""
    got: list[tuple[Any, ...]] = []

    def module(name: str, **contents: Any) -> Any:
        fake = ModuleType(name)
        vars(fake).update(contents, Image=lambda picture: ("image", picture.size))
        monkeypatch.setitem(sys.modules, name, fake)
        return fake

    def taker(name: str, **methods: str) -> type:
        def taking(kind: str) -> Any:
            return lambda self, *given, **more: got.append((name, kind, *given, more))

        return type("Taker", (), {"__module__": name, **{m: taking(m) for m in methods}})

    def table(columns: list[str], data: list[list[Any]]) -> Any:
        return ("table", columns, data)

    def logging(name: str) -> Any:
        return module(name, Table=table, log=lambda shown: got.append((name, "log", shown)))

    writer = taker("torch.utils.tensorboard.writer", add_image="", add_text="", flush="")
    mlflow = module("mlflow", **{
        name: (lambda *given, _name=name, **more: got.append(("mlflow", _name, *given, more)))
        for name in ("log_image", "log_table")
    })  # fmt: skip
    module("aim", Text=lambda text: ("text", text))
    run = taker("aim.sdk.run", track="")
    return {
        "tensorboard": writer(), "wandb": logging("wandb"), "trackio": logging("trackio"),
        "mlflow": mlflow, "aim": run(),
    }, got  # fmt: skip


def test_trackers_get_pictures_and_a_table_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    known, got = fakes(monkeypatch)
    names = ["heads/grid", "heads/map/previous", "heads/map/induction"]
    heads = av.track(built(), None, TEXTS, log_pictures=list(known.values()))
    numbers = heads(7)
    assert not numbers.keys() & {*names}  # aim keeps one kind of value under a name
    assert len(heads.last.header.shown) == 24
    images = [one for one in got if one[1] == "add_image"]
    assert [one[2] for one in images] == names
    assert all(one[3].dtype == np.uint8 and one[3].ndim == 3 and one[4] == 7 for one in images)
    (table,) = [one[2] for one in got if one[1] == "log_table"]
    assert [*table] == ["head", "roles", "previous", "induction"]
    for name in ("wandb", "trackio"):
        (shown,) = [one[2] for one in got if one[0] == name]
        assert [*shown] == [*names, "heads/roles", "train/global_step"]
        assert shown["train/global_step"] == 7
        _, columns, rows = shown["heads/roles"]
        assert columns == ["head", "roles", "previous", "induction"]
        assert [row[0] for row in rows] == ["0.0", "0.1", "1.0", "1.1"]
        assert max(row[2] for row in rows) == pytest.approx(numbers["heads/previous"])
    logged = [one for one in got if one[1] == "log_image"][:3]
    assert [one[3] for one in logged] == [{"key": name, "step": 7} for name in names]
    tracked = [one for one in got if one[1] == "track"][:4]
    assert [one[3] for one in tracked] == [{"name": n, "step": 7} for n in [*names, "heads/roles"]]
    with pytest.raises(UsageError, match=r"log_pictures takes a SummaryWriter.* not list_iterator"):
        av.track(built(), None, TEXTS, log_pictures=iter([]))


def test_a_tracker_that_raises_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = fakes(monkeypatch)
    known["mlflow"].log_image = None
    heads = av.track(built(), None, TEXTS[:1], scores=("previous",), log_pictures=known["mlflow"])
    with pytest.warns(AttnvizWarning, match=r"pictures are not logged from step 1 on: Typ") as said:
        assert heads(1) == heads(2)
    assert len(said) == 1


def test_the_trainers_trackers_get_pictures_at_its_steps(tmp_path: Path, monkeypatch) -> None:
    known, got = fakes(monkeypatch)
    callback = av.HeadsCallback(TEXTS[:1], every=4, scores=["previous"], log_pictures=True)
    reporting = [SimpleNamespace(tb_writer=known["tensorboard"]), SimpleNamespace(other=1)]
    trainer = SimpleNamespace(
        model=built(), processing_class=None, args=SimpleNamespace(output_dir=str(tmp_path)),
        add_callback=print, log=lambda numbers: got.append(("trainer", "log", numbers)),
        callback_handler=SimpleNamespace(callbacks=reporting),
    )  # fmt: skip
    callback.attach(trainer)
    control = SimpleNamespace(should_log=False)
    state = SimpleNamespace(global_step=0, max_steps=6, is_world_process_zero=True)
    callback.on_train_begin(trainer.args, state, control, model=trainer.model)
    for state.global_step in range(1, 7):
        callback.on_step_end(trainer.args, state, control)
    reporting[0].tb_writer = None  # closed before ours is told of the end
    callback.on_train_end(trainer.args, state, control)
    assert [one[4] for one in got if one[1:3] == ("add_image", "heads/grid")] == [0, 4, 6]
    assert [one[0] for one in got if one[1] == "log"] == ["trainer"] * 3


@pytest.mark.parametrize("best", [False, True], ids=["last", "best"])
def test_the_end_of_a_training_that_stops_goes_to_the_run_that_is_on(tmp_path, best) -> None:
    """Trackers end their runs when training does; a model loaded instead is of another step."""

    def noted(event: str) -> Any:
        return lambda _, args, state, *__, **___: calls.append((event, state.global_step))

    calls: list[tuple[str, int]] = []
    events = {f"on_{event}": noted(event) for event in ("train_begin", "log", "train_end")}
    reporting = type("Reporting", (TrainerCallback,), events)
    handler = CallbackHandler([reporting()], built(), None, None, None)
    args = SimpleNamespace(output_dir=str(tmp_path), load_best_model_at_end=best)
    state, control = TrainerState(max_steps=9), TrainerControl()
    trainer = SimpleNamespace(
        model=built(), processing_class=None, args=args, add_callback=handler.add_callback,
        log=lambda numbers: handler.on_log(args, state, control, numbers), callback_handler=handler,
    )  # fmt: skip
    av.HeadsCallback(TEXTS[:1], every=2).attach(trainer)
    for _ in range(2):  # the same trainer may train again
        calls.clear()
        handler.on_train_begin(args, state, control)
        for state.global_step in range(1, 4):
            handler.on_step_end(args, state, control)
        handler.on_train_end(args, state, control)
        assert calls[:3] == [("train_begin", 0), ("log", 0), ("log", 2)]
        assert calls[3:] == [*([] if best else [("log", 3)]), ("train_end", 3)]
        state.global_step = 0


def test_pictures_without_a_trainer_are_said_to_go_nowhere(tmp_path: Path) -> None:
    args = SimpleNamespace(output_dir=str(tmp_path))
    state = SimpleNamespace(global_step=0, is_world_process_zero=True)
    callback = av.HeadsCallback(TEXTS[:1], log_pictures=True)
    with pytest.warns(AttnvizWarning, match=r"no pictures are logged: .* needs attach\(trainer\)"):
        callback.on_train_begin(args, state, None, model=built())
