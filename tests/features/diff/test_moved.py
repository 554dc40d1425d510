"""Whose maps, writing and need moved: planted changes, equal models, values by other ways."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr
from transformers import GPT2LMHeadModel

import attnviz as av
from attnviz.cli import main
from attnviz.drawing.labels import visible
from attnviz.drawing.markdown import code, plain, table
from attnviz.errors import UsageError
from attnviz.features.diff import description
from attnviz.features.diff.moved import correlation
from attnviz.features.diff.result import Diff, FigureChange
from attnviz.models.demo import DEMOS
from tests.checkpoints import write

TEXTS = [f"{who} saw the {what} and the {what} saw {who}." for who in ("Tom", "the dog", "she")
         for what in ("old house", "river", "black cat", "boat")]  # fmt: skip
SHORT = [f"the {one} or the {other}" for one in ("river", "boat", "key") for other in "abcd"]
WIDTH, SIZE, RANK, SCALE = 192, 32, 4, 2.0


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes W_Q of head 0.1, W_O of head 0.3 and an MLP, the latter by 0."""
    torch.manual_seed(0)
    q, o = torch.zeros(3 * WIDTH, RANK), torch.zeros(RANK, WIDTH)
    q[SIZE : 2 * SIZE] = torch.randn(SIZE, RANK) / 4
    o[:, 3 * SIZE : 4 * SIZE] = torch.randn(RANK, SIZE) / 4
    tensors = {
        "attn.c_attn": (torch.randn(RANK, WIDTH) / 4, q),
        "attn.c_proj": (o, torch.randn(WIDTH, RANK) / 4),
        "mlp.c_fc": (torch.ones(RANK, WIDTH), torch.zeros(4 * WIDTH, RANK)),
    }
    folder = tmp_path_factory.mktemp("planted")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": SCALE * RANK}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    before = "base_model.model.transformer.h.0"
    stored = {
        f"{before}.{name}.lora_{letter}.weight": tensor
        for name, pair in tensors.items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    save_file(stored, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def found(planted: Path) -> Diff:
    return av.diff(TEXTS, model="demo-gpt2", other_model=f"demo-gpt2+{planted}")


def moved(result: Diff, what: str) -> dict[str, FigureChange]:
    return {head.name: one for head in result.heads for one in head.moved if one.name == what}


def test_what_was_planted_moved_and_nothing_else_below_it(found: Diff) -> None:
    maps, writing = moved(found, "maps"), moved(found, "writing")
    first = [name for name in maps if name.startswith("0.")]
    assert {name for name in first if maps[name].typical} == {"0.1"}
    assert {name for name in first if writing[name].typical} == {"0.1", "0.3"}
    assert {name for name in first if maps[name].sure} == {"0.1"}
    assert writing["0.3"].sure
    assert all(one.typical for name, one in maps.items() if name not in first)
    sizes = {name: one.change for name, one in moved(found, "added").items()}
    assert {name for name, size in sizes.items() if size} == {"0.1", "0.3"}
    assert found.elsewhere == ("transformer.h.0.mlp.c_fc",)
    assert [one.what for one in found.along] == ["maps", "writing", "need"]


def test_writing_is_that_of_hooks_on_the_merged_model(found: Diff, planted: Path) -> None:
    stored = {key.rpartition("h.0.")[2]: t for key, t in
              load_file(planted / "adapter_model.safetensors").items()}  # fmt: skip
    runs: list[list[np.ndarray]] = []
    source = av.load("demo-gpt2")
    for merged in (False, True):
        model = GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"], dtype=torch.float64).eval()
        layer = model.transformer.h[0].attn
        for name in ("c_attn", "c_proj") if merged else ():
            a, b = (stored[f"attn.{name}.lora_{letter}.weight"].double() for letter in "AB")
            getattr(layer, name).weight.data += (SCALE * b @ a).T
        seen: list[torch.Tensor] = []
        layer.c_proj.register_forward_hook(
            lambda module, args, out, seen=seen: seen.append(args[0])
        )
        for text in TEXTS:
            ids = source.prepare(av.Prompt(text)).sides["decoder"].queries.ids
            with torch.no_grad():
                model(torch.tensor([ids]))
        by_head = layer.c_proj.weight.detach().view(6, SIZE, WIDTH)
        runs.append([
            torch.einsum("thd,hdw->htw", z[0].view(-1, 6, SIZE), by_head).numpy() for z in seen
        ])  # fmt: skip
    for head in range(6):
        shares = [
            np.linalg.norm(b[head] - a[head], axis=-1).mean()
            / np.linalg.norm(a[head], axis=-1).mean()
            for a, b in zip(*runs, strict=True)
        ]
        typical = moved(found, "writing")[f"0.{head}"].typical
        assert typical == pytest.approx(np.median(shares), rel=1e-4, abs=1e-9)


def test_need_is_that_of_ablations_of_either_model(found: Diff, planted: Path) -> None:
    need = moved(found, "need")
    for side, model in (("before", "demo-gpt2"), ("after", f"demo-gpt2+{planted}")):
        effects = av.ablate(TEXTS, model=model, method="mean", select="0.0, 0.1, 0.3, 3.0").effects
        for effect in effects:
            mean = effect.by[0].mean
            assert getattr(need[effect.name], side) == pytest.approx(mean, abs=1e-4)
    one = need["0.3"]
    assert one.joint_low is not None
    assert one.joint_high is not None
    assert one.joint_low <= (one.typical or 0) <= one.joint_high
    assert one.detectable is not None
    assert one.detectable > 0


def test_every_form_says_it(found: Diff, tmp_path: Path) -> None:
    headings, ranked = description.ranking(found, 3)
    assert headings == ["maps", "writing", "need (nats)", "added"]
    assert len(ranked) == 3
    assert ranked[0][1].startswith("0.3  ")
    shown = found.to_markdown()
    assert "Smallest that could have been seen" in shown
    assert "Rank correlation of what is added and how far heads moved: maps " in shown
    base, _, adapted = found.origin().rpartition("model ")[2].split(" ")[:3]
    assert base != adapted, "an adapter's digits are not its base's"
    again = av.read(found.save(tmp_path / "diff.json"))
    assert again == found
    finding = description.finding(found, "diff.json")
    assert {"moved: maps", "moved: writing", "moved: need", "moved: added"} <= {
        measure.name for measure in finding.measures
    }
    assert any(line.startswith("writing: ") for line in finding.said["0.3"])
    assert "need" in {row["figure"] for row in found.to_records()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GPT-2 of six heads."""
    return str(write(tmp_path_factory.mktemp("tiny"), "gpt2", "GPT2LMHeadModel"))


def test_equal_models_move_by_nothing(capsys: pytest.CaptureFixture[str], tiny: str) -> None:
    found = av.diff(SHORT, model=tiny, other_model=tiny)
    every = [one for head in found.heads for one in head.moved]
    assert {one.change for one in every} == {0.0}
    assert len(every) == 3 * 6
    assert {one.typical for one in every} == {0.0}
    assert not any(one.sure for one in every)
    assert description.ranking(found, 10) == ([], [])
    assert next(description.sentences(found)).startswith(
        "No change seen. Smallest that could have been seen of the median head: maps"
    )
    assert main(["diff"]) == 2
    assert main(["diff", "--other-model", "demo-gpt2"]) == 2
    assert "without texts only the file of a LoRA adapter is read" in capsys.readouterr().err


def test_dtypes_and_a_few_texts(tiny: str) -> None:
    other = av.load(tiny, dtype="bfloat16")
    found = av.diff(SHORT[:3], model=av.load(tiny), other_model=other)
    assert all(one.typical for one in moved(found, "writing").values())
    assert all(one.joint_low is None for one in moved(found, "writing").values())
    assert (
        "3 texts cannot say anything of 18 maps, writings and needs at once; 10 can." in found.notes
    )
    with pytest.raises(UsageError, match="without texts"):
        av.diff(other_model=other)


def test_correlation_by_scipy() -> None:
    rng, layers = np.random.default_rng(3), np.repeat(np.arange(4.0), 6)
    added = rng.random(24)
    others = added + rng.random(24)
    (along,), reference = correlation("maps", layers, added, others), spearmanr(added, others)
    assert along.rho == pytest.approx(reference.statistic)
    assert along.p == pytest.approx(reference.pvalue, abs=0.01)
    (of_layers,) = correlation("maps", layers, layers, layers + added / 9)
    assert of_layers.p < 0.001
    assert of_layers.p_within == 1.0
    assert correlation("maps", layers, added, np.ones(24)) == []


READER = MarkdownIt("commonmark").enable("table")
HARD = st.text(alphabet="ab_*`<>&@#[]()!|\\~-=+ .:1/", min_size=1, max_size=12)


@given(HARD)
def test_text_of_others_stays_text(text: str) -> None:
    """A reader of Markdown gives back what was written, in a sentence and in a cell."""
    for made in (f"x {plain(text)} x", table(["head"], [[f"x {plain(text)} x"]])):
        shown = READER.render(made)
        cells = re.findall(r"<(?:p|td)>(.*?)</(?:p|td)>", shown, re.DOTALL)
        assert " ".join(html.unescape(cells[-1]).split()) == " ".join(
            f"x {visible(text)} x".split()
        )
    assert "@" not in plain(text)


@given(HARD)
def test_code_stays_code(text: str) -> None:
    found = re.search(r"<code>(.*?)</code>", READER.render(f"x {code('a' + text)} x"), re.DOTALL)
    assert found is not None
    assert html.unescape(found[1]).strip() == " ".join(f"a{text}".split())


def test_figures_are_those_of_the_result(tmp_path: Path) -> None:
    found = av.diff("it was too tired", "it was too wide", align="position")
    shown = READER.render(found.to_markdown(top=5, limit=0.05))
    rows = [
        re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", shown, re.S)
    ]
    rows = [row for row in rows if row]
    assert [row[0] for row in rows] == [head.name for head in found.heads[:5]]
    for row, head in zip(rows, found.heads, strict=False):
        assert float(row[1]) == pytest.approx(head.distance.mean, rel=0.05)
        assert float(row[2]) == pytest.approx(head.distance.largest, rel=0.05)
    over = sum(head.distance.mean > 0.05 for head in found.heads)
    assert f"❌ <strong>{over} of 24 heads differ by more than 0.05</strong>" in shown
    assert "✅ <strong>No head differs by more than 0.9" in READER.render(
        found.to_markdown(limit=0.9)
    )
    found.save(tmp_path / "comment.md")
    assert (tmp_path / "comment.md").read_text().startswith(found.to_markdown())


def test_the_command_prints_it_and_still_fails(tmp_path: Path, capsys) -> None:
    for name, without in (("one", ()), ("other", ("--without", "1.4"))):
        assert main(["heads", "The cat sat on the cat", *without, "--json"]) == 0
        (tmp_path / f"{name}.json").write_text(capsys.readouterr().out)
    files = [str(tmp_path / f"{name}.json") for name in ("one", "other")]
    assert main(["diff", *files, "--markdown", "--fail-over", "0.01"]) == 4
    shown = capsys.readouterr().out
    assert shown.startswith("### Attention heads: demo-gpt2 (one.json) → demo-gpt2 (other.json)\n")
    assert "❌ **" in shown
    assert main(["diff", *files, "--markdown", "--json"]) == 2
    assert main(["diff", files[0], files[0], "--markdown", "--fail-over", "0"]) == 0
    assert "| head |" not in capsys.readouterr().out
