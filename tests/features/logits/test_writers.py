"""Writers and cancellers: means of single runs, planted ones, and none where weights are random."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features import results
from attnviz.features.logits.result import Writers
from tests.features.patch.planted import CASES, WIDTH, wired_as

transformers = pytest.importorskip("transformers")
stats = pytest.importorskip("scipy.stats")

WORDS = ["cat", "river", "moon", "stone", "bread", "night"]
TEXTS = [f"the {a} {b} and then the {a}" for a in WORDS for b in WORDS if a != b][:14]
ANSWERS = [text.split()[2] for text in TEXTS]
OTHERS = [text.split()[1] for text in TEXTS]


@cache
def found() -> Writers:
    return av.writers(TEXTS, answer=ANSWERS, against=OTHERS)


def test_means_shares_and_p_values_are_those_of_single_runs() -> None:
    """Intervals by Student's t, p by sign tests that are adjusted by Holm's steps."""
    model = av.load("demo-gpt2")
    singles = [
        av.logits(text, answer=answer, against=other, model=model)
        for text, answer, other in zip(TEXTS, ANSWERS, OTHERS, strict=True)
    ]
    judged = np.array(
        [[p.value for p in one.parts if p.kind in ("head", "mlp")] for one in singles]
    )
    means = [push.mean.value for push in found().pushes]
    assert means == pytest.approx(judged.mean(0).tolist(), abs=1e-6)
    assert found().rest + sum(filter(None, means)) == pytest.approx(found().logit, abs=1e-6)
    assert found().logit == pytest.approx(np.mean([one.logit for one in singles]), abs=1e-3)
    assert list(found().heads()) == [found().layout.name(head) for head in found().layout]
    error = judged.std(0, ddof=1) / len(TEXTS) ** 0.5 * stats.t.ppf(0.975, len(TEXTS) - 1)
    for n, push in enumerate(found().pushes):
        assert (push.mean.low, push.mean.high) == pytest.approx(
            (means[n] - error[n], means[n] + error[n])
        )

    alike = (np.sign(judged) == np.sign(judged.mean(0))).sum(0)
    assert [push.share for push in found().pushes] == pytest.approx(alike / len(TEXTS))
    p = np.array([stats.binomtest(int(k), len(TEXTS)).pvalue for k in alike])
    steps, most = {}, 0.0
    for rank, n in enumerate(np.argsort(p, kind="stable")):
        most = max(most, min(1.0, (len(p) - rank) * p[n]))
        steps[int(n)] = most
    assert [push.adjusted for push in found().pushes] == pytest.approx(
        [steps[n] for n in range(len(p))]
    )


def repeats(count: int) -> tuple[list[Prompt], list[str], list[str]]:
    """Words that begin again: prompts of ids, what followed, and another word of the text."""
    draw = random.Random(3)
    prompts, answers, others = [], [], []
    for _ in range(count):
        ids = draw.sample(range(WIDTH), 7)
        prompts.append(Prompt(ids=(*ids, *ids[:3])))
        answers.append(f"#{ids[3]}")
        others.append(f"#{ids[5]}")
    return prompts, answers, others


@pytest.mark.parametrize(
    ("name", "writer", "canceller", "fails"),
    [
        ("late suppressor", (1, 7), (2, 5), {"reading", "lowering"}),
        ("opposite inductions", (1, 7), (1, 4), {"reading", "path"}),
    ],
)
def test_a_planted_canceller_is_found_and_nothing_else(
    name: str, writer: tuple[int, int], canceller: tuple[int, int], fails: set[str]
) -> None:
    """And suppresses no copies: one stays at home, one is in its writer's layer."""
    heads = CASES[name]
    model = av.load(wired_as(heads, 1 + max(layer for layer, _ in heads)))
    prompts, answers, others = repeats(10)
    against = others if canceller[0] == 1 else None
    planted = av.writers(prompts, answer=answers, against=against, model=model)
    for verdict, head in (("writer", writer), ("canceller", canceller)):
        (push,) = planted.listed(verdict)
        assert (push.layer, push.head) == head
    assert push.why is not None
    assert set(push.why.fails) == fails


def test_random_weights_name_none() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=200, n_positions=16, n_embd=48, n_layer=3, n_head=12
    )
    model = av.load(transformers.GPT2LMHeadModel(config).eval())
    draw = random.Random(1)
    prompts = [Prompt(ids=tuple(draw.sample(range(200), 10))) for _ in range(16)]
    words = [[f"#{n}" for n in draw.sample(range(200), 16)] for _ in range(2)]
    words[1] = [b if a != b else "#0" for a, b in zip(*words, strict=True)]
    drawn = av.writers(prompts, answer=words[0], against=words[1], model=model)
    assert [push for push in drawn.pushes if push.verdict] == []
    assert all(push.share is not None for push in drawn.pushes)


def test_few_texts_and_own_answers_say_so_and_copies_count_once() -> None:
    own, twice = av.writers(TEXTS[:4]), av.writers(TEXTS[:4] * 2)
    assert twice.pushes == own.pushes
    assert twice.texts == own.texts == 4
    assert "copies count once" in twice.notes[0]
    assert own.of == "logit of the next token"
    assert not any(push.verdict for push in own.pushes)
    assert own.pushes[0].mean.low is None
    assert any("too few" in note for note in own.notes)
    assert any("the model's own choice" in note for note in own.notes)


def test_every_form_has_it(tmp_path: Path) -> None:
    lines = found().save(tmp_path / "w.csv").read_text("utf-8").splitlines()
    first = "kind,layer,index,head,mean,mean_low,mean_high,share,adjusted,verdict,suppression,"
    assert lines[0].startswith(first)
    assert lines[0].endswith("without_scales_high,made")
    assert len(lines) == 1 + len(found().pushes)
    assert found().to_bytes("png").startswith(b"\x89PNG")
    told = found().finding("w.json")
    assert told is not None
    assert set(told.said) == {found().layout.name(head) for head in found().layout}
    mean = found().heads()["3.0"].mean
    assert told.measures[0].values["3.0"] == (mean.value, mean.low, mean.high)
    assert found().compared().values["3.0"]["logits"] == mean.value


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.jsonl"
    rows = [{"text": t, "a": a, "b": b} for t, a, b in zip(TEXTS, ANSWERS, OTHERS, strict=True)]
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    texts = ["logits", "--texts", str(file)]
    asked = [*texts, "--answer", "field:a", "--against", "field:b"]
    assert main([*asked, "--top", "all", "--out", str(tmp_path / "w.json")]) == 0
    assert results.read(tmp_path / "w.json").pushes == found().pushes
    out = capsys.readouterr().out
    assert "Writers, which push it up" in out
    assert "Cancellers, which push it down" in out
    refused: list[tuple[list[str], str]] = [
        ([*texts, "--answer", "field:c"], "'c' is missing"),
        ([*texts, "--by", "token"], "leave out --by"),
        ([*texts, "--position", "2"], "leave out --position"),
        (["logits", "a b", "--answer", "field:a"], "--answer field:a is a field; add --texts FILE"),
    ]
    for arguments, says in refused:
        assert main(arguments) in (1, 2)
        assert says in " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ModelError, match="no sum over heads for demo-bert"):
        av.writers(["The cat [MASK]."], model="demo-bert")
    with pytest.raises(UsageError, match="one word for all 2 of them or one for each"):
        av.writers(["a b", "b c"], answer=["the"])
    with pytest.raises(InputError, match="no text to measure"):
        av.writers([])
