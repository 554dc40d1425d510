"""A model on NumPy does what it does on torch: weights, scores, states, gates and donors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import attnviz as av
from attnviz.core import arrays
from attnviz.core.heads import Site
from attnviz.core.quantities import QUANTITIES
from attnviz.core.source import Donor, ForwardRequest, Gate, Start
from attnviz.features.patch.measure import PatchMeter, PatchPlan
from attnviz.features.patch.pairs import Pair, prepare
from attnviz.features.patch.runs import metric_of
from attnviz.features.patch.sweep import key_heads, targets, trials
from attnviz.models.demo import DEMOS
from attnviz.models.native import source as native
from attnviz.models.native.weights import TensorFile
from attnviz.models.norm_based import with_quantity
from attnviz.scoring.observe import Recorder, ScoreObserver

TEXTS = (
    "The keys to the cabinet are on the table because nobody put the keys away.",
    "She said that the cat, which slept, was hers.",
    "One, two, one, two, one, two!",
)
CLOSE = 1e-6
SAMPLES = Path(__file__).parents[2] / "sample_inputs"


@pytest.fixture(scope="module", params=["demo-gpt2", "demo-bert"])
def source(request: Any) -> Any:
    name = request.param
    return av.load(request.getfixturevalue("minilm") if name == "minilm" else name)


def near(ours: Any, theirs: Any, tolerance: float = CLOSE) -> None:
    assert isinstance(ours, np.ndarray)
    assert isinstance(theirs, torch.Tensor)
    np.testing.assert_allclose(ours, theirs.numpy(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("source", ["demo-gpt2", "demo-bert", "minilm"], indirect=True)
def test_scores_are_the_same(source: Any) -> None:
    """Every score, its chance and its rows, of a padded batch."""
    batch = [source.prepare(av.Prompt(text)) for text in TEXTS]
    both = []
    for model in (source, source.light):
        observer = ScoreObserver(batch, source.layout)
        model.forward(batch, [observer], ForwardRequest(hidden=False))
        both.append((observer.total(), [observer.sinks(n).tolist() for n in range(len(batch))]))
    (theirs, their_sinks), (ours, our_sinks) = both
    assert our_sinks == their_sinks
    assert (ours.rows == theirs.rows).all()
    assert (ours.counted == theirs.counted).all()
    assert (ours.rows > 0).any()
    rows = np.maximum(theirs.rows, 1)
    for name in ("values", "chances"):  # of distances, which count tokens, by their size
        mine, other = (getattr(sums, name) / rows for sums in (ours, theirs))
        assert (np.abs(mine - other) <= 2 * CLOSE * np.maximum(np.abs(other), 1)).all(), name
    assert np.abs((ours.shares - theirs.shares) / rows[..., None]).max() < CLOSE


@pytest.mark.parametrize(
    "quantity", [name for name, one in QUANTITIES.items() if name != "weights" and not one.signed]
)
def test_quantities_are_the_same(source: Any, quantity: str) -> None:
    if quantity == "norm-residual-ln" and source.layout.kinds == ("decoder",):
        pytest.skip("normalizes before attention")
    inputs = source.prepare(av.Prompt(TEXTS[0]))
    maps = []
    for model in (source, source.light):
        shown = with_quantity(model, quantity, shares=False)
        recorder = Recorder([inputs])
        shown.forward([inputs], [recorder], ForwardRequest(hidden=False))
        maps.append(recorder.maps())
    for site, theirs in maps[0].items():
        np.testing.assert_allclose(maps[1][site], theirs, atol=2e-5, rtol=2e-5)


def test_states_and_a_start_in_the_middle(source: Any) -> None:
    inputs = source.prepare(av.Prompt(TEXTS[0]))
    request = ForwardRequest(states=True, mlps=True)
    ours, theirs = (model.forward([inputs], request=request) for model in (source.light, source))
    for mine, other in zip((*ours.states, *ours.mlps), (*theirs.states, *theirs.mlps), strict=True):
        near(mine, other, 2e-5)
    start = Start(1, theirs.states[1])  # a tensor, for a pass on NumPy
    again = source.light.forward([inputs], request=ForwardRequest(start=start))
    near(again.hidden, theirs.hidden, 2e-5)


def test_gates_and_donors(source: Any) -> None:
    """Given as tensors, for several runs at once, as ablation and patching give them."""
    inputs, site = source.prepare(av.Prompt(TEXTS[1])), Site(source.start_kind, 1)
    heads = source.layout.heads[source.start_kind][1]
    states = source.forward([inputs], request=ForwardRequest(states=True)).states
    width = states[0].shape[2] // heads
    share = 1 - torch.eye(heads)
    fill = torch.randn(heads, width, generator=torch.Generator().manual_seed(0))
    values = torch.randn(1, heads, inputs.length, width, generator=torch.Generator().manual_seed(1))
    start = Start(1, states[1])
    for request in (
        ForwardRequest(gates={site: Gate(share, fill)}, start=start),
        ForwardRequest(donors={site: [Donor("z", values, 1 - share)]}, start=start),
        ForwardRequest(donors={site: [Donor("v", values, 1 - share)]}, start=start),
    ):
        ours, theirs = (
            m.forward([inputs] * heads, request=request) for m in (source.light, source)
        )
        near(ours.hidden, theirs.hidden, 2e-5)


def test_gates_that_stand_hold_for_both(source: Any) -> None:
    plain = av.heads(TEXTS[0], model=source)
    with source.gated({"0.0": 0.0}):
        gated = av.heads(TEXTS[0], model=source)
    assert gated.heads != plain.heads
    assert av.heads(TEXTS[0], model=source, without="0.0").heads == gated.heads


@pytest.mark.parametrize("source", ["demo-gpt2", "minilm"], indirect=True)
def test_sizes_alone_choose_torch(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = source.prepare(av.Prompt(TEXTS[0]))

    def kind(batch: Any, **more: Any) -> Any:
        return arrays.of(source.light.forward(batch, request=ForwardRequest(**more)).hidden)

    several = [inputs] * (native.MOST_TOKENS // inputs.length + 1)
    assert kind([inputs]) is kind([inputs] * 2) is arrays.on_numpy
    assert (kind(several) is arrays.on_numpy) == source.info.model.startswith("demo")
    assert kind([inputs], grad=True) is arrays.of(torch.empty(0))
    with monkeypatch.context() as patch:
        patch.setattr(native, "SMALL", 1)
        assert kind([inputs] * 2) is arrays.on_numpy
        assert kind(several) is arrays.of(torch.empty(0))
    for limit in ("MOST_WEIGHTS", "MOST_PRODUCTS"):
        with monkeypatch.context() as patch:
            patch.setattr(native, limit, 1)
            assert kind([inputs]) is arrays.of(torch.empty(0))


def test_what_ran_is_named() -> None:
    source = av.load("demo-gpt2")
    assert {"torch", "tokenizers", "safetensors"} == set(source.info.versions)
    assert {"numpy", "tokenizers", "safetensors"} == set(source.light.info.versions)
    assert av.heads(TEXTS[0], model=source).source.versions["numpy"] == np.__version__


def test_what_runs_elsewhere_is_its_own_light_model() -> None:
    shuffled = av.load("demo-gpt2", untrained=0, scale="trained")
    for source in (av.load("demo-gpt2", dtype="bfloat16"), shuffled):
        assert source.light is source


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("z", "logit-diff"), ("q", "prob"), ("pattern", "kl"), ("mlp", "prob"),
     ("residual", "logit-diff"), ("attention", "kl")],
)  # fmt: skip
def test_patches_are_the_same(kind: str, metric: str) -> None:
    """Of prompts of one length and of two, and by way of a function that wants tensors."""
    source = av.load("demo-gpt2")
    longer = {} if kind == "pattern" else {"align": "word"}
    several = [Pair("The man smiled because", "The woman smiled because", " he", " she")]
    if longer:
        several.append(Pair("The boy smiled because", "The old queen smiled because", " he", " she",
                            clean_span=(2, 3), corrupted_span=(2, 4)))  # fmt: skip
    both = []
    for model in (source, source.light):
        ready = prepare(model, several, **longer)
        chosen = targets(model, kind, None, key_heads(model, ready[0]))
        plan = PatchPlan(
            tuple(ready), metric_of(metric, ready), trials(chosen, "head", ()), ("denoise", "noise")
        )
        both.append([PatchMeter(model, plan)((number,))[0] for number in range(len(ready))])
    for theirs, ours in zip(*both, strict=True):
        assert np.abs(theirs.patched - theirs.corrupted).max() > 1e-3
        np.testing.assert_allclose(ours.patched, theirs.patched, atol=2e-5, rtol=2e-6)
        assert (ours.wins, ours.top) == (theirs.wins, theirs.top)


def test_what_goes_on_with_a_text_is_the_same() -> None:
    source = av.load("demo-gpt2")
    for how in (av.Generation(6), av.Generation(6, temperature=1.5, top_p=0.9, seed=3)):
        prompt = av.Prompt("the heart fire light king river", generate=how)
        ours, theirs = (model.prepare(prompt) for model in (source.light, source))
        assert ours.sides == theirs.sides


def test_weights_stay_in_their_file_until_they_are_read(tmp_path: Any) -> None:
    """Of every type that a checkpoint may have, as safetensors' own reader gives them."""
    drawn = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    tensors = {str(dtype): drawn.to(dtype) for dtype in types}
    tensors["odd"] = drawn[0, :1].to(torch.float16)
    save_file(tensors, tmp_path / "model.safetensors")
    stored = TensorFile(tmp_path / "model.safetensors")
    for name, tensor in tensors.items():
        assert (stored.take(name) == tensor.float().numpy()).all()
    with pytest.raises(KeyError):
        stored.take("none")


_CODE = """
import sys
from importlib.machinery import PathFinder

tried, absent = set(), set(sys.argv[1].split())
find, find_distributions = PathFinder.find_spec, PathFinder.find_distributions

def find_spec(name, path=None, target=None):
    package = name.partition(".")[0]
    if package in {"torch", "matplotlib", "scipy", "transformers"}:
        tried.add(package)
    return None if package in absent else find(name, path, target)

PathFinder.find_spec = find_spec
PathFinder.find_distributions = lambda context: (
    () if context.name in absent else find_distributions(context)
)
from attnviz.cli import main
from attnviz.features.ablation import fills
from attnviz.features.atlas import function as atlas

atlas.MEASURED_HEADS = atlas.MEASURED_TEXTS = 2
few = fills.sentences()[:12]
fills.sentences = lambda: few
sys.stdout = sys.stderr
for line in sys.stdin:
    tried.clear()
    code = main(line.rstrip("\\n").split("\\t"))
    sys.stderr.flush()
    print(code, *tried, file=sys.__stdout__, flush=True)
"""
"""Runs commands where packages are absent and says what each gave, and which it looked for."""
ABSENT = "torch transformers scipy matplotlib PIL huggingface_hub"
TEXT = "The keys to the cabinet are on the table"
GOLD = ("--gold", "treebank.conllu", "--gold", "pronouns.tsv")
FEW_NEEDLES = ("--lengths", "40", "--depths", "0.5", "--group-size", "1", "--draws", "1")
COMMANDS = {
    "heads": [TEXT], "heads of an encoder": [TEXT, "--model", "demo-bert"],
    "heads without one": [TEXT, "--without", "0.1"], "heads by norms": [TEXT, "--quantity", "norm"],
    "heads with a probe": [TEXT, "--probe"], "heads recorded": ["--recorded", "a.npz"],
    "heatmap": [TEXT, "--select", "1.4"], "view": [TEXT, "-o", "a.html"],
    "capture": [TEXT, "-o", "b.npz"], "profile": ["sentences.txt"], "logits": [TEXT],
    "ablate": [TEXT, "--select", "1.0"], "lens": [TEXT],
    "lens of heads": ["sentences.txt", "--by", "head"], "sources": [TEXT, "--select", "2.0"],
    "sources of an encoder": [TEXT, "--model", "demo-bert", "--select", "2.0"],
    "demo": ["-o", "tour.html"],
    "ablate an encoder": [TEXT, "--model", "demo-bert", "--select", "0.0", "--metric", "kl",
                         "--method", "zero"],
    "sinks": [TEXT, "--ablate"], "spans": [TEXT, "--span", "subject=keys"], "flow": [TEXT],
    "circuits": ["--sample", "50"], "patch": ["pairs.jsonl"],
    "patch of paths": ["pairs.jsonl", "--paths", "2.3 -> 3.*"],
    "patch of a circuit": ["--task", "gender", "--count", "10", "--circuit", "1"],
    "syntax": ["treebank.conllu", "--sentences", "1"],
    "syntax by trees": ["treebank.conllu", "--also", "trees,rooted-trees"],
    "coref": ["pronouns.tsv", "--model", "demo-bert"],
    "retrieval": ["needles.jsonl", *FEW_NEEDLES, "--control", "0", "--generate", "5"],
    "retrieval of words": [*FEW_NEEDLES, "--count", "2"],
    "atlas": [*GOLD, "--texts", "a.txt", "--limit", "1", "-o", "atlas.html"],
    "heads of what it writes": [TEXT, "--generate", "3"], "live": ["the cat", "-o", "live.html"],
    "show": ["a.json"], "diff": ["a.json", "a.json"],
    "diff of models": ["a b a b", "--other-model", "demo-gpt2"],
    "heads of a folder": [TEXT, "--model", str(DEMOS["demo-bert"])],
    "knockout": ["a b c a b", "--keys", "before", "--window", "1"],
    "explain on a page": ["the cat the cat", "-o", "explain.html"],
    "shapes": ["--d-model", "512", "--heads", "8"], "models": [],
}  # fmt: skip
"""Commands that need none of these packages on models of the native backend."""
PICTURES = {
    "heads": [TEXT, "-o", "heads.png"], "heatmap": [TEXT, "--values", "-o", "map.png"],
    "heatmap of heads": [TEXT, "--select", "all", "--generate", "2", "-o", "maps.png"],
    "export": ["a.txt", "--out-dir", "maps", "--jobs", "1", "--layout", "grid,overview"],
    "card": ["demo-gpt2", "--texts", "a.txt", "-o", "README.md"],
}  # fmt: skip
"""Commands that draw by our own writer, since matplotlib, which they look for, is not there."""
REFUSED = {
    "heatmap": ([TEXT, "-o", "a.svg"], "matplotlib"),
    "heads as wide as": ([TEXT, "-o", "a.png", "--width", "3in"], "matplotlib"),
    "ablate": ([TEXT, "--select", "1.0", "-o", "a.png"], "matplotlib"),
    "heads": ([TEXT, "--model", "fresh"], "torch"),
    "heads in half": ([TEXT, "--dtype", "bfloat16"], "torch"),
    "flow": ([TEXT, "--method", "max-flow"], "scipy"),
    "syntax": (["treebank.conllu", "--also", "combined"], "scipy"),
    "heads of a hub": ([TEXT, "--model", "name/of-none"], "huggingface-hub"),
}


@pytest.fixture(scope="module")
def written(folder: Path) -> Any:
    av.write_capture(av.capture(TEXT), folder / "a.npz")
    av.heads(TEXT).save(folder / "a.json")
    (folder / "sentences.txt").write_text("\n".join(TEXTS))
    (folder / "a.txt").write_text("\n".join(TEXTS[1:]))
    for name, end, few in (("treebank.conllu", "\n\n", 8), ("pronouns.tsv", "\n", 5),
                           ("pairs.jsonl", "\n", 3), ("needles.jsonl", "\n", 3)):  # fmt: skip
        whole = (SAMPLES / name).read_text("utf-8").split(end)
        (folder / name).write_text(end.join(whole[:few]) + end, "utf-8")
    return folder


@pytest.fixture(scope="module")
def light(written: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs all commands, one after the other."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (written / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, ABSENT], cwd=written, text=True, stderr=errors, **pipes
        )
        with process:
            yield process
            process.stdin.close()


@pytest.mark.parametrize("called", COMMANDS)
def test_commands_that_import_no_torch(called: str, light: Any, written: Path) -> None:
    print(called.split()[0], *COMMANDS[called], sep="\t", file=light.stdin, flush=True)
    assert light.stdout.readline() == "0\n", (written / "errors").read_text()[-2000:]


@pytest.mark.parametrize("called", PICTURES)
def test_pictures_that_need_no_matplotlib(called: str, light: Any, written: Path) -> None:
    before = set(written.rglob("*.png"))
    print(called.split()[0], *PICTURES[called], sep="\t", file=light.stdin, flush=True)
    told = light.stdout.readline().rstrip("\n")
    assert told in ("0", "0 matplotlib"), (written / "errors").read_text()[-2000:]
    drawn = set(written.rglob("*.png")) - before
    assert drawn or called == "card"
    for path in drawn:
        colors = Image.open(path).convert("RGB").getcolors(1 << 24)
        assert len(colors) > 20, path


@pytest.mark.parametrize("called", REFUSED)
def test_what_needs_a_package_that_is_absent_names_it(
    called: str, light: Any, written: Path
) -> None:
    arguments, package = REFUSED[called]
    print(called.split()[0], *arguments, sep="\t", file=light.stdin, flush=True)
    code, *looked_for = light.stdout.readline().split()
    assert code == "1"
    assert package in looked_for or package == "huggingface-hub"
    last = (written / "errors").read_text().splitlines()[-1]
    assert last == f"attnviz: this needs {package}, which is not installed; pip install {package}"
