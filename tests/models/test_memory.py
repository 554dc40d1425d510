"""Models larger than memory, and how many processors a container leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import transformers

import attnviz as av
from attnviz.cli import console
from attnviz.core import threads
from attnviz.core.settings import LOADING
from attnviz.models import limits, native


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a", {"a/cpu.max": "100000 100000\n", "cpu.max": "max 100000\n"}, 1),
        ("0::/a/b", {"a/b/cpu.max": "350000 100000", "a/cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "20000 100000"}, 1),
        ("5:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "400000",
                              "cpu/a/cpu.cfs_period_us": "100000"}, 4),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("0::/", {"cpu.max": "junk"}, None),
    ],
)  # fmt: skip
def test_processors_of_control_groups(tmp_path: Path, own, files, expected) -> None:
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    found = threads.quota(tmp_path / "groups", write(tmp_path / "own", own))
    assert found == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {"memory.max": "2000\n"}, [2000]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "300\n"}, [300]),
        ("0::/not/seen/here", {"memory.max": "512\n"}, [512]),
        (
            "9:cpu:/\n4:memory:/job\n0::/\n",
            {"memory/job/memory.limit_in_bytes": "700", "memory/memory.limit_in_bytes": str(2**63)},
            [700, 2**63],
        ),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "junk"}, []),
        ("0::/", {}, []),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, own, files, expected) -> None:
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    found = limits.group_limits(tmp_path / "groups", write(tmp_path / "own", own))
    assert list(found) == expected


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert list(limits.group_limits(tmp_path, tmp_path / "none")) == []


def test_the_smaller_one_counts(monkeypatch) -> None:
    machine = limits.physical_memory()
    monkeypatch.setattr(limits, "group_limits", lambda: iter([1 << 20, 1 << 60]))
    assert limits.physical_memory() == 1 << 20 < machine


def test_a_quota_leaves_no_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads.ASKED:
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads, "quota", lambda: 1)
    assert threads.cores() == 1
    threads._keep_to_quota.cache_clear()
    torch.set_num_threads(3)
    try:
        threads.limit_threads()  # as every pass of torch does first
        assert torch.get_num_threads() == 1
        torch.set_num_threads(2)
        threads.limit_threads()  # somebody has asked for more
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


IDS = tuple(range(3, 15))
SCORES = """
import json, sys
import attnviz as av

def scores(source):
    heads = av.heads(av.Prompt(ids=range(3, 15)), model=source).heads
    return [score.mean for head in heads for score in head.scores.values()]
"""
LIMITED = """
import resource
from attnviz.models import native

scores("demo-gpt2")  # all that a run imports
used = int(open("/proc/self/status").read().split("VmData:")[1].split()[0]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + (24 << 20),) * 2)
whole = scores(sys.argv[1])
native.physical_memory = lambda: 24 << 20
print(json.dumps([whole, scores(sys.argv[2])]))
"""
"""May have no more than 24 MB of memory of its own beside what a small model has taken."""


def large(folder: Path, dtype: torch.dtype) -> str:
    """A GPT-2 of 42 MB in float32."""
    config = transformers.GPT2Config(
        vocab_size=60, n_positions=20, n_embd=384, n_layer=6, n_head=8, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).to(dtype).save_pretrained(folder)
    return str(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="ONLY LINUX LIMITS MEMORY SO")
def test_a_model_larger_than_memory_gives_what_it_gives_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 is mapped; float16 is read layer by layer, on torch as on NumPy."""
    folders = [large(tmp_path / str(dtype), dtype) for dtype in (torch.float32, torch.float16)]
    done = subprocess.run(
        [sys.executable, "-c", SCORES + LIMITED, *folders], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    space: dict = {}
    exec(SCORES, space)
    assert json.loads(done.stdout) == [space["scores"](folder) for folder in folders]
    texts = [av.Prompt(ids=IDS), av.Prompt(ids=IDS[::-1])]
    whole = av.ablate(texts, model=folders[1], select="1.0,4.3", method="zero")
    monkeypatch.setattr(native, "physical_memory", lambda: 1 << 20)
    assert av.ablate(texts, model=folders[1], select="1.0,4.3", method="zero") == whole
    config = Path(folders[1], "config.json")
    config.write_text(config.read_text().replace('"n_inner": null', '"n_inner": 2000'))
    with pytest.raises(av.ModelError, match="has shape"):
        av.load(folders[1])


@pytest.mark.parametrize("room", [30_000, 1])
def test_a_model_larger_than_memory_is_read_in_each_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=60,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    prompt, plain = av.Prompt(ids=IDS), av.load(str(tmp_path), device="cpu")
    monkeypatch.setattr("transformers.integrations.accelerate.accelerate_max_memory",
                        lambda most=None: {"cpu": room})  # fmt: skip
    told = list[str]()
    token = LOADING.set(lambda what, done, all_: told.append(f"{what} {done}/{all_}"))
    source = av.load(str(tmp_path), device="balanced")
    LOADING.reset(token)
    assert told[0].startswith("weights 1/")
    assert told[-1] == "passes that prove the hooks 2/2"
    assert any(weight.is_meta for weight in source.body.parameters())
    assert (source.info.backend, source.info.device) == ("hooked", "cpu")
    assert "tried on 80 and 7 tokens in a batch alone" in source.info.exactness
    scores, others = (av.heads(prompt, model=model).heads for model in (source, plain))
    assert [head.scores for head in scores] == [head.scores for head in others]
    with monkeypatch.context() as patch:  # mapped from its files, which memory does not hold
        patch.setattr("attnviz.models.limits.physical_memory", lambda: room)
        mapped = av.load(str(tmp_path), device="cpu").info.exactness
    assert "tried on 80 and 7 tokens in a batch alone" in mapped
    first, second = (av.ablate(prompt, model=model, method="zero") for model in (source, plain))
    assert first.effects == second.effects
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path, device_map="balanced")
    again = av.heads(prompt, model=av.load(theirs)).heads  # as somebody else has loaded it
    assert [head.scores for head in again] == [head.scores for head in others]
    assert "read again in each pass" in source.readout().reason


def test_how_far_a_model_is_loaded_is_told_once_it_takes_long() -> None:
    told = list[tuple[str, int, int]]()
    with console._loading(lambda *what: told.append(what), delay=0.05):
        LOADING.get()("weights", 1, 3)
        time.sleep(0.06)
        LOADING.get()("weights", 2, 3)
    LOADING.get()("weights", 3, 3)
    assert told == [("weights", 2, 3)]
