"""Tasks on a real Ray of this machine: order, deaths, errors, and the bits of one process.

All share one Ray, but for the test that looks at how one is started and ended.
"""

from __future__ import annotations

import copy
import logging
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import attnviz as av
from attnviz.core.source import Source
from attnviz.corpus import running as on_ray
from attnviz.corpus.executors import WorkerFailure
from attnviz.corpus.running import OnRay
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.features.profile import run
from attnviz.features.profile.work import Part, Worker
from tests import ROOT
from tests.corpus import tasks
from tests.features.profile.corpus import lines, sentences
from tests.features.profile.test_bits import content

pytest.importorskip("ray", reason="NO RAY, SO IT IS NOT TESTED: install attnviz[ray]")


@pytest.fixture(scope="module")
def _running() -> Iterator[None]:
    """A Ray that several tests use; it takes seconds to start."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else its actors wait for the other tests
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def killed_once(flag: str, source: Source, **more: Any) -> Callable[[Any], Part]:
    """A worker that dies over the first task, the first time."""
    do = Worker(source, **more)

    def work(task: Any) -> Part:
        if not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return do(task)

    return work


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*is deprecated and will be removed in Ray")
def test_a_ray_of_its_own_is_started_and_ended() -> None:
    import ray
    from ray.data import DataContext

    assert not ray.is_initialized()
    level, context = logging.getLogger("ray").level, copy.deepcopy(DataContext.get_current())
    with OnRay(tasks.squares, actors=1) as actors:
        assert ray.cluster_resources()["CPU"] == 1
        assert list(actors.run([2, 3])) == [(2, 4), (3, 9)]
        assert DataContext.get_current() == context
    assert not ray.is_initialized()
    assert logging.getLogger("ray").level == level
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ


@pytest.mark.slow
@pytest.mark.usefixtures("_running")
@pytest.mark.filterwarnings("error:.*is deprecated and will be removed in Ray")
def test_order_deaths_and_errors(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(on_ray, "AHEAD", 3)
    with OnRay(partial(tasks.hostile, str(tmp_path)), actors=2) as actors:
        answers = list(actors.run([0, 1, 2, 3, 4, 5, 6, 11]))
        assert [task for task, _ in answers] == [0, 1, 2, 3, 4, 5, 6, 11]
        lost = answers.pop(5)[1]
        assert isinstance(lost, WorkerFailure)
        assert "actors crashed on it" in lost.reason
        assert all(task == answer for task, answer in answers)
        with pytest.raises(InputError, match="seven is not liked"):
            list(actors.run([1, 7]))


@pytest.mark.slow
@pytest.mark.usefixtures("_running")
@pytest.mark.parametrize("select", [None, "1.4, 3.0"])
def test_a_profile_has_the_bits_of_one_process_though_an_actor_dies(
    select: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lines(tmp_path / "t.txt", sentences(150))
    one, two = tmp_path / "one.profile", tmp_path / "two.profile"
    av.profile(path, model="demo-gpt2", select=select, jobs=1, state=one)
    monkeypatch.setattr(run, "Worker", partial(killed_once, str(tmp_path / "flag")))
    av.profile(path, model="demo-gpt2", select=select, ray="local", jobs=2, state=two)
    assert (tmp_path / "flag").exists()
    assert content(two) == content(one)


def test_an_address_may_say_what_share_of_a_gpu_each_actor_gets() -> None:
    assert on_ray.read_address("local") == ("local", 0)
    assert on_ray.read_address("ray://host:10001?gpus=0.25") == ("ray://host:10001", 0.25)
    assert OnRay(tasks.squares, "auto?gpus=0.25")._room({"GPU": 2, "CPU": 64}, 0.25) == 8
    assert OnRay(tasks.squares)._room({"GPU": 4}, 0.3) == 12
    for wrong in ("auto?gpus=", "auto?gpus=-1", "auto?gpus=0", "auto?cpus=1", "auto?gpus=1.5"):
        with pytest.raises(UsageError, match=r"gpus=0\.5"):
            on_ray.read_address(wrong)


def test_an_error_of_others_is_a_row() -> None:
    actor = object.__new__(on_ray._Actor)
    actor._fault, actor._get, actor._do = None, lambda _: 1, lambda task: 1 / task
    actor._desk = SimpleNamespace(again=SimpleNamespace(remote=lambda number: number))
    went_well, answer = actor._answer(0, pickle.dumps(0))
    assert (went_well, answer.reason) == (True, "ZeroDivisionError: division by zero")


@pytest.mark.slow
@pytest.mark.usefixtures("_running")
def test_tasks_stream_to_actors_that_load_once_and_have_the_same_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_ray, "AHEAD", 4)
    begun = list[int]()
    with OnRay(tasks.process, actors=1) as actors:
        answers = actors.run(begun.append(n) or 0.0 for n in range(30))
        first = next(answers)[1]
        assert len(begun) == 4
        assert {process for _, process in answers} == {first}
    assert begun == list(range(30))
    monkeypatch.setattr(on_ray, "_versions", lambda: {"numpy": "0.1"})
    with (
        OnRay(tasks.squares, actors=1) as actors,
        pytest.raises(AttnvizError, match=r"Ray's has numpy .* and not 0\.1"),
    ):
        list(actors.run([1]))


def test_a_cluster_that_is_not_there_and_a_model_that_cannot_travel(tmp_path) -> None:
    path = lines(tmp_path / "t.txt", sentences(3))
    with pytest.raises(UsageError, match="a loaded model cannot go to other processes"):
        av.profile(path, model=av.load("demo-gpt2"), ray="local")


@pytest.mark.slow
@pytest.mark.usefixtures("_running")
def test_an_ablation_has_the_bits_of_one_process() -> None:
    texts = ["one two three one two three", "a b c a b c", "the cat and the dog and the cat"]
    one = av.ablate(texts, select="2.4,1.4,role:previous", estimate="plain")
    two = av.ablate(texts, select="2.4,1.4,role:previous", estimate="plain", ray="local", jobs=2)
    assert two.to_json() == one.to_json()


@pytest.mark.slow
@pytest.mark.usefixtures("_running")
@pytest.mark.parametrize(
    ("look", "name"), [(av.syntax, "treebank.conllu"), (av.coref, "pronouns.tsv")]
)
def test_annotated_text_gives_the_bits_of_one_process(look: Any, name: str) -> None:
    path = ROOT / "sample_inputs" / name
    one = look(path, model="demo-bert").to_json()
    assert look(path, model="demo-bert", ray="local", jobs=2).to_json() == one
    assert look(path, model="demo-bert", jobs=2).to_json() == one
    with pytest.raises(UsageError, match="this one is loaded already"):
        look(path, model=av.load("demo-bert"), ray="local")
