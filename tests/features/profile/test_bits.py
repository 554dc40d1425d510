"""One result, to the bit: several processes, interrupted and resumed, in parts and merged."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.corpus.executors import Inline, WorkerFailure
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.features.profile import run, saved, tasks
from attnviz.features.profile.result import Profile
from attnviz.features.profile.state import State
from tests import forking
from tests.checkpoints import write
from tests.features.profile.corpus import grouped, lines, sentences

pytestmark = pytest.mark.usefixtures("remembering")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GPT-2 of six heads."""
    folder = tmp_path_factory.mktemp("model")
    return str(write(folder, "gpt2", "GPT2LMHeadModel", n_positions=256))


def content(path: Path) -> dict[str, Any]:
    """What a state file says, but for the names of files."""
    with np.load(path) as found:
        arrays = {name: array.tobytes() for name, array in found.items() if name != "header"}
        header = found["header"].tobytes()
    assert header
    state = saved.read(path)
    return {
        **arrays,
        "texts": (state.tally.texts, state.tally.windows, state.tally.tokens),
        "strings": list(state.tally.flow.strings),
        "shown": sorted(state.tally.examples.shown.items()),
        "alike": [(text.key, dict(text.rows)) for text in state.tally.alike],
        "bad": [(bad.number, bad.reason) for bad in state.bad],
        "groups": state.groups,
        "sinks": (state.tally.sink_texts, state.tally.sink_squares),
        "matching": state.about.matching,
    }


@pytest.fixture(scope="module", autouse=True)
def short_tasks() -> Iterator[None]:
    """Eight texts a task, so that a few of them are several tasks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tasks, "WINDOW", 8)
        yield


@pytest.fixture(scope="module")
def corpus(folder: Path) -> list[Path]:
    """Two files, more than two tasks, with a line that is not text."""
    first = lines(folder / "a.txt", sentences(14))
    with open(first, "ab") as file:
        file.write(b"caf\xe9 is not UTF-8\n")
    return [first, lines(folder / "b.txt", sentences(10, 1))]


@pytest.fixture(scope="module")
def alone(corpus, model, tmp_path_factory) -> Path:
    """The profile of one process."""
    out = tmp_path_factory.mktemp("alone") / "one.profile"
    av.profile(corpus, model=model, jobs=1, interval="simultaneous", state=out)
    return out


@pytest.mark.slow
def test_parts_merge_to_the_same_bits(corpus, alone, model, tmp_path) -> None:
    parts = []
    for number, path in enumerate(corpus):
        parts.append(tmp_path / f"{number}.profile")
        av.profile(path, model=model, jobs=1, interval="simultaneous", state=parts[-1])
    out = tmp_path / "all.profile"
    merged = av.merge_profiles(parts, state=out)
    assert content(out) == content(alone)
    assert merged.to_json() == av.read(alone).to_json()
    with pytest.raises(UsageError, match=r"0\.profile has texts that are there already"):
        av.merge_profiles([parts[0], parts[0]])
    other = tmp_path / "other.profile"
    av.profile(corpus[1], model="demo-bert", jobs=1, interval="simultaneous", state=other)
    with pytest.raises(UsageError, match=r"other\.profile does not belong.*: its model"):
        av.merge_profiles([parts[0], other])
    plain = tmp_path / "plain.profile"
    av.profile(corpus[1], model=model, jobs=1, state=plain)
    with pytest.raises(UsageError, match="its simultaneous is False, theirs True"):
        av.merge_profiles([parts[0], plain])


class Stop(Exception):
    """In the middle of a run."""


def stopping(after: int, done: run.Progress) -> None:
    if done.texts >= after:
        raise Stop


@pytest.mark.parametrize("after", [14, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_goes_on_where_it_was_stopped(corpus, alone, model, tmp_path, after: int) -> None:
    out = tmp_path / "again.profile"
    again = partial(av.profile, corpus, model=model, jobs=1, interval="simultaneous", state=out)
    with pytest.raises(Stop):
        again(progress=partial(stopping, after))
    assert "not finished" in " ".join(av.read(out).notes)
    with pytest.raises(UsageError, match="not finished"):
        av.merge_profiles([out, out])
    counted: list[int] = []
    found = again(progress=lambda done: counted.append(done.texts))
    assert min(counted) > after - 8
    assert content(out) == content(alone)
    assert again(progress=lambda done: pytest.fail("nothing is left to do")).texts == found.texts
    assert found.bad
    assert Profile.from_json(found.to_json()) == found


def test_groups_over_several_tasks_and_parts(model, tmp_path) -> None:
    """Groups of five over tasks of eight: some begin in one task and end in the next."""
    first = grouped(tmp_path / "a.jsonl", sentences(10), 5)
    second = grouped(tmp_path / "b.jsonl", sentences(10, 2), 5)
    outs = [tmp_path / f"{n}.profile" for n in range(4)]
    again = partial(av.profile, model=model, jobs=1, group="doc", interval="simultaneous")
    whole = again([first, second], state=outs[0])
    again(first, state=outs[1])
    again(second, state=outs[2])
    av.merge_profiles(outs[1:3], state=outs[3])
    assert content(outs[3]) == content(outs[0])
    assert whole.clusters == 2 + 2
    state, other = saved.read(outs[1]), saved.read(outs[1])
    other.runs[0].digest = "that of other texts"
    with pytest.raises(UsageError, match="has 2 groups that are there already"):
        state.merge(other, "x")
    mixed = grouped(tmp_path / "mixed.jsonl", sentences(8), 1)
    mixed.write_text(mixed.read_text() + mixed.read_text())
    with pytest.raises(InputError, match="the group 'mixed 0' do not follow each other"):
        again(mixed)


def test_a_state_of_other_texts_or_settings_is_not_gone_on_with(model, tmp_path) -> None:
    path, out = lines(tmp_path / "t.txt", sentences(10)), tmp_path / "t.profile"
    again = partial(av.profile, path, jobs=1, state=out)
    again(model=model)
    for change, says in (
        ({"model": "demo-bert"}, "t.profile has model"),
        ({"model": model, "special_tokens": False}, "has special_tokens True, not False"),
        ({"model": model, "seed": 3}, "has seed 0, not 3"),
        ({"model": model, "interval": "simultaneous"}, "has simultaneous False, not True"),
    ):
        with pytest.raises(UsageError, match=says):
            again(**change)
    for count in (11, 8):
        lines(path, sentences(count))
        with pytest.raises(InputError, match="made from other texts"):
            again(model=model)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "not a profile"),
        (lambda data: b"not a zip at all", "not a profile"),
        (lambda data: data[: len(data) // 2], "not a profile"),
        (lambda data: data.replace(b"profile-state/1", b"profile-state/9"), "not a profile"),
    ],
)
def test_damaged_files_are_refused(alone, tmp_path, damage, says: str) -> None:
    path = tmp_path / "broken.profile"
    path.write_bytes(damage(alone.read_bytes()))
    with pytest.raises(InputError, match=says):
        av.read(path)


class Deadly:
    """An executor in which one task kills every process that tries it."""

    def __init__(self, inner: Inline, which: int) -> None:
        self.inner, self.which = inner, which

    def __enter__(self) -> Deadly:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def run(self, tasks: Iterable[Any]) -> Iterator[Any]:
        for number, (task, answer) in enumerate(self.inner.run(tasks)):
            yield (
                task,
                WorkerFailure("2 processes crashed on it") if number == self.which else answer,
            )


def test_a_task_that_kills_is_reported_as_bad(corpus, model, monkeypatch) -> None:
    inline = run.executor
    monkeypatch.setattr(
        run,
        "executor",
        lambda *args, **more: Deadly(inline(*args, **more), 1),  # type: ignore[arg-type]
    )
    found = av.profile(corpus[0], model=model, jobs=1)
    assert found.texts == 8
    assert found.bad_count == 7  # six texts and a line that is none
    assert found.bad[0] == (f"{Path(corpus[0]).name}:9", "2 processes crashed on it")


def test_strict_stops_at_the_first_bad_text(corpus, model, tmp_path) -> None:
    out = tmp_path / "strict.profile"
    with pytest.raises(AttnvizError, match=r"a\.txt:15: not UTF-8"):
        av.profile(corpus, model=model, jobs=1, strict=True, state=out)
    assert av.read(out).texts == 8  # what was done before is kept


SAVING_ALWAYS = """
from attnviz.features.profile import run
run.SAVE_EVERY = 0
from attnviz.__main__ import run
run()
"""


def test_sigterm_leaves_a_state_to_go_on_from(model, tmp_path) -> None:
    path = lines(tmp_path / "t.txt", sentences(1500))
    out = tmp_path / "t.profile"
    options = ["profile", str(path), "--jobs", "2", "--state", str(out), "--model", model]
    process = forking.Popen(
        [sys.executable, "-c", SAVING_ALWAYS, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not out.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, says = process.communicate(timeout=300)
    assert process.returncode == 130, says
    assert "interrupted after" in says
    assert "resumes from it" in says
    state = saved.read(out)
    assert isinstance(state, State)
    assert 0 < state.tally.texts <= 1500  # all, if the last was just done


def test_sample_and_limit_take_texts_in_order(corpus, model) -> None:
    assert av.profile(corpus, model=model, limit=3).texts == 3
    some, other = (av.profile(corpus, model=model, sample=5, seed=seed) for seed in (1, 2))
    assert some.texts == other.texts == 5
    assert some.to_json() != other.to_json()
