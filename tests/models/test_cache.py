"""What is kept of earlier measurements: the same bits, and never another model's or version's."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import attnviz as av
from attnviz.captures import trials
from attnviz.cli import main
from attnviz.core.heads import Head, Site
from attnviz.core.source import Cut
from attnviz.features.ablation import fills
from attnviz.features.models.function import models
from attnviz.models import cache
from attnviz.models.cache import Cache, as_records, pack_arrays, unpack_arrays
from attnviz.models.demo import DEMOS
from tests import ROOT, checkpoints, forking
from tests.models.tiny import Folders

TEXT = "the cat river moon stone the cat river moon"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, in which everything is kept however quick it was."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "LEAST", 0.0)
    return tmp_path / "kept"


class Counted:
    """Makes a value, and counts how often."""

    def __init__(self, value: bytes = b"made") -> None:
        self.value, self.times = value, 0

    def __call__(self, *about: object) -> bytes:
        self.times += 1
        return self.value


def recall(source: Any, make: Counted, about: object = 0, what: str = "test") -> bytes:
    return Cache(source).recall(what, (about,), make, lambda made: made, bytes)


def made(source: Any, make: Counted, about: object = 0) -> int:
    """How often a value is made for one call."""
    before = make.times
    recall(source, make, about)
    return make.times - before


@pytest.fixture
def demo() -> Any:
    """The bundled model, loaded anew."""
    return av.load("demo-gpt2")


def test_what_is_kept_is_made_once(place: Path, demo: Any) -> None:
    make = Counted()
    assert recall(demo, make) == recall(demo, make) == b"made"
    assert make.times == 1
    assert recall(av.load("demo-gpt2"), make) == b"made"
    assert make.times == 1, "the same numbers, loaded again"
    recall(demo, make, about=1)
    recall(demo, make, what="another")
    assert make.times == 3
    (entry, *_) = cache.entries()
    assert entry.model == "demo-gpt2"
    assert {entry.what for entry in cache.entries()} == {"test", "another"}


def test_another_model_has_its_own(place: Path, demo: Any) -> None:
    make = Counted()
    recall(demo, make)
    recall(demo.light, make)  # NumPy's last bits are its own
    recall(av.load("demo-gpt2", untrained=0), make)
    recall(av.load("demo-bert"), make)
    assert make.times == 4
    weight = demo.output(Site("decoder", 0)).weight
    before = weight[0, 0, 0].clone()
    weight[0, 0, 0] += 1e-6
    recall(demo, make)
    assert make.times == 5, "a number was changed in memory"
    weight[0, 0, 0] = before
    recall(demo, make)
    assert make.times == 5
    with demo.gated({"0.0": 0.0}):
        assert demo.contents is None
        recall(demo, make)
    assert make.times == 6, "while a head is off nothing is kept and nothing is taken"
    assert len(cache.entries()) == 5, "those before training are known by their numbers"


def test_other_code_threads_and_machines_have_their_own(
    place: Path, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Counted()
    recall(demo, make)
    for version in (("0.1.1",), ("0.1.0", "another processor")):
        monkeypatch.setattr(cache, "_version", lambda version=version: version)
        recall(demo, make)
    monkeypatch.undo()
    monkeypatch.setenv(cache.VARIABLE, str(place))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        recall(demo, make)
    finally:
        torch.set_num_threads(before)
    assert make.times == 4
    assert any(name == "numpy" for name, *_ in cache._version()[2:-1])


@pytest.mark.parametrize(
    "damage", [b"", b"x" * 100, lambda data: data[:-1], lambda data: data[:40] + b"?" + data[41:]]
)
def test_a_damaged_entry_is_made_again(place: Path, demo: Any, damage: Any) -> None:
    make = Counted(b"made" * 50)
    recall(demo, make)
    (path,) = place.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole) if callable(damage) else damage)
    assert recall(demo, make) == make.value
    assert make.times == 2
    assert path.read_bytes() == whole
    cache.entries()  # says it, whatever is in it


def test_sound_bytes_of_something_else_are_made_again(place: Path, demo: Any) -> None:
    recall(demo, Counted(b"no array"), what="arrays")
    first = Cache(demo).recall(
        "arrays", (), lambda: {"x": np.arange(3.0)}, pack_arrays, unpack_arrays
    )
    assert first["x"].tolist() == [0, 1, 2]
    again = Cache(demo).recall("arrays", (), dict, pack_arrays, unpack_arrays)
    assert again["x"].tolist() == [0, 1, 2]


def test_there_is_room_for_so_much_and_what_was_used_longest_ago_goes(
    place: Path, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        recall(demo, Counted(bytes(1000)), about=number, what=str(number))
    by_age = {entry.what: entry for entry in cache.entries()}
    for path in place.iterdir():
        what = next(w for w, e in by_age.items() if e.what.encode() in path.read_bytes()[32:50])
        os.utime(path, (int(what), int(what)))
    recall(demo, Counted(), about=0, what="0")  # used now
    monkeypatch.setattr(cache, "MOST", 3300)
    recall(demo, Counted(bytes(1000)), about=4, what="4")
    assert {entry.what for entry in cache.entries()} == {"0", "3", "4"}
    monkeypatch.setattr(cache, "LARGEST", 10)
    recall(demo, Counted(bytes(1000)), about=5, what="5")
    assert "5" not in {entry.what for entry in cache.entries()}


def test_what_is_quick_is_not_kept(place: Path, demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LEAST", 60.0)
    make = Counted()
    recall(demo, make)
    recall(demo, make)
    assert make.times == 2
    assert cache.entries() == ()


def test_nothing_is_kept_where_that_is_said_or_cannot_be(
    place: Path, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Counted()
    for said in ("off", "OFF", "", "0"):
        monkeypatch.setenv(cache.VARIABLE, said)
        assert cache.folder() is None
        recall(demo, make)
    place.write_text("a file in the folder's place")
    monkeypatch.setenv(cache.VARIABLE, str(place))
    recall(demo, make)
    assert make.times == 5
    assert cache.entries() == ()
    assert cache.shrink(0) == 0


def test_models_in_memory_are_not_known(place: Path) -> None:
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50))
    assert av.load(model).contents is None


def test_a_hooked_model_is_known_by_its_numbers(place: Path, folders: Folders) -> None:
    source: Any = av.load(folders("llama", words=True))
    known = source.contents
    assert known is not None
    assert av.load(folders("llama", words=True)).contents == known
    with torch.no_grad():
        source._network.model.model.layers[0].mlp.up_proj.weight[0, 0] += 1e-3
    assert source.contents != known


def _folder(kind: str, at: Path) -> Path:
    """A model's folder with every kind of file that decides tokens, and one that decides none."""
    if kind == "demo-gpt2":
        shutil.copytree(DEMOS[kind], at)
    elif kind == "gpt2":
        checkpoints.write(at, kind)
        AutoTokenizer.from_pretrained(at).save_pretrained(at)
    else:
        tokenizer = AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
        config = LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, eos_token_id=1, max_position_embeddings=64,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(at)
        tokenizer.save_pretrained(at)
    templates = at / "additional_chat_templates"
    templates.mkdir(exist_ok=True)
    for path, text in {
        at / "generation_config.json": '{"eos_token_id": [1, 2]}',
        at / "chat_template.jinja": "{{ messages }}",
        templates / "rag.jinja": "{{ messages }}",
        at / "special_tokens_map.json": "{}",
        at / "vocab.tiktoken": "IQ== 0\n",
        at / "notes.md": "a model",
    }.items():
        path.write_text(text)
    return at


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_every_file_of_a_model_is_in_the_key(kind: str, place: Path, tmp_path: Path) -> None:
    """Each file changed in turn is a miss, and so is one that is added; restored it is a hit."""
    folder, make = _folder(kind, tmp_path / "model"), Counted()
    recall(av.load(folder), make)
    recall(av.load(shutil.copytree(folder, tmp_path / "copy")), make)
    assert make.times == 1, "a copy is the same model"
    loaded = av.load(folder)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if kind == "llama":  # whose other files are hashed by the same class
        files = [path for path in files if path.stem in ("config", "model")]
    for path in files:
        whole, status = path.read_bytes(), path.stat()
        weights = path.suffix == ".safetensors"  # the last number of the last tensor
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if weights else whole + b"\n")
        assert made(av.load(folder), make) == 1, f"{path.name} changed"
        if not weights:
            assert made(loaded, make) == 1, f"{path.name} changed behind a loaded model"
        path.write_bytes(whole)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert made(loaded, make) == 0, f"{path.name} as it was"
    assert made(av.load(folder), make) == 0, "all of them as they were"
    for name in ("added_tokens.json", "merges.txt.bak"):
        (folder / name).write_text("{}")
        assert made(av.load(folder), make) == 1, f"{name} was added"
        (folder / name).unlink()


def test_other_ends_of_texts_are_not_taken_for_the_same(place: Path, tmp_path: Path) -> None:
    """A model whose generation_config.json ends texts elsewhere writes other sentences anew."""
    first, second = (_folder("demo-gpt2", tmp_path / name) for name in "ab")
    (first / "generation_config.json").unlink()
    (second / "generation_config.json").write_text('{"eos_token_id": [17, 308, 15]}')
    how = {"resample": 2, "draws": 0, "suppress": False}
    text = "The cat sat. The dog ran. It was old."
    results = [av.thoughts(text, model=folder, **how).to_dict() for folder in (first, second)]
    apart = av.thoughts(text, model=second, **how).to_dict()
    os.environ[cache.VARIABLE] = "off"  # the fixture puts it back
    anew = av.thoughts(text, model=second, **how).to_dict()
    for result in (*results, apart, anew):
        result.pop("made", None)
    assert results[0] != results[1] == apart == anew


def test_arguments_are_in_the_key_as_what_they_are(place: Path, demo: Any) -> None:
    """Long arrays to the last bit, numbers apart from flags; what is no data is not kept."""
    make, numbers = Counted(), np.zeros(5000)
    other = numbers.copy()
    other[2500] = 1e-300
    for about in (numbers, other, numbers.astype("f4"), torch.zeros(5000), 1, True, 1.5, "1"):
        assert made(demo, make, about) == 1, about
    assert made(demo, make, np.zeros(5000)) == 0
    for about in (object(), lambda: 0, "\ud800"):
        assert made(demo, make, about) == made(demo, make, about) == 1, about


def test_nothing_is_kept_while_attention_is_cut(place: Path, demo: Any) -> None:
    assert demo.contents
    heads, rows = np.ones((1, 4), bool), np.ones((1, 3), bool)
    with demo.cutting({Site("decoder", 0): Cut(heads, rows, rows)}):
        assert demo.contents is None


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.parametrize("mode", [0o022, 0o002, 0o020])
def test_entries_that_others_could_write_are_not_believed(
    place: Path, demo: Any, what: str, mode: int
) -> None:
    make = Counted()
    recall(demo, make)
    (entry,) = place.iterdir()
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    path = place if what == "folder" else entry
    path.chmod(path.stat().st_mode | mode)
    cache._REFUSED.clear()
    if what == "folder":
        with pytest.warns(av.AttnvizWarning, match="it can be written by others; make it yours"):
            recall(demo, make)
    else:
        recall(demo, make)
    assert make.times == 2


@pytest.mark.skipif(os.name != "posix", reason="POSIX owners")
def test_entries_of_another_user_are_not_believed(
    place: Path, demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Counted()
    recall(demo, make)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    cache._REFUSED.clear()
    with pytest.warns(av.AttnvizWarning, match="it belongs to another user"):
        recall(demo, make)
    assert make.times == 2


def test_an_entry_without_end_of_nesting_is_made_again(place: Path, demo: Any) -> None:
    make = Counted()

    def deep(data: bytes) -> bytes:
        raise RecursionError

    recall(demo, make)
    Cache(demo).recall("test", (0,), make, lambda made: made, deep)
    assert make.times == 2


WRITES = """
import os, sys
from attnviz.models import cache
cache.LEAST = 0.0
class Source:
    contents = "one model"
    class info:
        model, backend, device, dtype = "m", "native", "cpu", "float32"
for number in range(60):
    size = 20_000 + number % 7
    made = cache.Cache(Source).recall(
        "test", (number % 5,), lambda n: bytes([n]) * 20_000, bytes, bytes
    )
    assert made == bytes([number % 5]) * 20_000, number
    if number % 9 == 0:
        cache.shrink(30_000)
"""


def test_processes_may_write_and_remove_at_once(place: Path) -> None:
    running = [
        forking.Popen([sys.executable, "-c", WRITES], stderr=subprocess.PIPE) for _ in range(2)
    ]
    for process in running:
        assert process.wait(120) == 0, process.stderr and process.stderr.read().decode()
        process.stderr.close()
    left = list(place.iterdir())
    assert all(path.suffix == ".kept" for path in left)


def test_arrays_come_back_with_their_bits_and_their_library() -> None:
    values = {
        "a": np.array([[1 / 3, np.nan, -0.0]]),
        "b": torch.arange(4).view(2, 2),
        "c": torch.tensor([1e-40, 2.5]),
    }
    again = unpack_arrays(pack_arrays(values))
    assert list(map(type, again.values())) == list(map(type, values.values()))
    for name, value in values.items():
        assert np.asarray(again[name]).tobytes() == np.asarray(value).tobytes()
        assert again[name].dtype == value.dtype


def test_records_come_back_equal() -> None:
    kind = tuple[tuple[Head, ...], float, str | None]
    pack, unpack = as_records(kind)
    value = ((Head(Site("cross", 1), 2),), 1 / 3, None)
    assert unpack(pack(value)) == value
    with pytest.raises(ValueError, match="Expected"):
        unpack(as_records(int)[0](3))


def run(name: str, treebank: Path) -> Any:
    """What a feature says, of the kind that keeps something."""
    return {
        "heads": lambda: av.heads(TEXT, probe=True),
        "profile": lambda: av.profile(texts=[TEXT, "a b c d"]),
        "syntax": lambda: av.syntax(treebank, control=1, sentences=1),
        "retrieval": lambda: av.retrieval(lengths=(40,), depths=(0.5,), count=2, draws=1),
        "ablate": lambda: av.ablate(
            [TEXT, "a b c"], model="demo-bert", select="0.0", method="mean"
        ),
    }[name]()


@pytest.mark.parametrize("name", ["heads", "profile", "syntax", "retrieval", "ablate"])
def test_results_are_the_same_bits_with_and_without(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (trials, fills):  # 3 probes, not 60
        monkeypatch.setattr(module, "PROBE_SEEDS", 1)
    few = fills.sentences()[:6]
    monkeypatch.setattr(fills, "sentences", lambda: few)
    whole = (ROOT / "sample_inputs" / "treebank.conllu").read_text("utf-8")
    treebank = place.with_name("few.conllu")
    treebank.write_text("\n\n".join(whole.split("\n\n")[:8]) + "\n\n", "utf-8")
    first = run(name, treebank).to_json()
    count = len(cache.entries())
    assert count, "something was kept"
    assert run(name, treebank).to_json() == first
    assert len(cache.entries()) == count, "all of it was taken"
    monkeypatch.setenv(cache.VARIABLE, "off")
    assert run(name, treebank).to_json() == first


def test_what_is_taken_says_which_library_made_it(place: Path) -> None:
    """Long batches run on torch; a result that takes what they made names it as they do."""

    def versions(ran: str) -> Any:
        source: Any = av.load("demo-gpt2").light

        def make(about: int) -> bytes:
            source.add_versions({ran: ""})
            return b"made"

        assert recall(source, make, what=ran) == b"made"
        return source.info.versions

    for ran in ("torch", "numpy"):
        first = versions(ran)
        assert ran in first
        assert versions(ran) == first, "taken, not made"
    assert "torch" not in first, "what ran before in the process is no part of an entry"


def test_models_lists_what_is_kept_and_removes_it(place: Path, demo: Any, capsys) -> None:
    assert main(["models"]) == 0
    assert "cached" not in capsys.readouterr().out
    recall(demo, Counted(bytes(3000)))
    assert main(["models"]) == 0
    said = capsys.readouterr()
    assert "--max-mb 0 empties the cache" in said.err
    assert "3.1 kB" in said.out
    assert models().cached == cache.entries()
    assert main(["models", "--max-mb", "0.001", "--json"]) == 0
    assert '"cached": []' in capsys.readouterr().out
    assert list(place.iterdir()) == []
    assert main(["models", "--show", "demo-gpt2", "--max-mb", "0"]) == 2
