"""Sentences written anew: a planted anchor, the answer's probability, going on after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import GPT2LMHeadModel

import attnviz as av
from attnviz import cli
from attnviz.core.prompt import Generation, Prompt
from attnviz.features.thoughts import suppress
from attnviz.features.thoughts.result import Resampled, Sentence, Thoughts
from attnviz.features.thoughts.suppress import answer_at, resampled, whole
from attnviz.models.demo import DEMOS
from tests.features.thoughts.test_thoughts import ANCHOR, anchored

TEXT = "The sea was dark. The old man lit the lamp. The lamp was bright."


@pytest.fixture(scope="module")
def anew(gpt2: Any) -> Thoughts:
    """Six continuations of each sentence."""
    return av.thoughts(TEXT, model=gpt2, resample=6, draws=0)


@pytest.fixture(scope="module")
def two(gpt2: Any) -> Thoughts:
    """Two of each, which have no interval."""
    return av.thoughts(TEXT, model=gpt2, resample=2, draws=0, suppress=False)


def sentences(*parts: str) -> list[Sentence]:
    return [Sentence("", str(n), n, n + 1, part) for n, part in enumerate(parts)]  # type: ignore[arg-type]


def test_a_planted_anchor_decides_the_answer() -> None:
    """One sentence holds the token that is said at the end; written anew, it does not."""
    place, answer = 2, 4
    ids = [n + 6 for n in range(3 * answer)] + [ANCHOR] * 3
    ids[3 * place + 1] = ANCHOR
    spans = {f"s{n}": f"tokens:{3 * n}-{3 * n + 2}" for n in range(answer + 1)}
    result = av.thoughts(
        Prompt(ids=tuple(ids), spans=spans), model=av.load(anchored()), draws=0,
        suppress=False, resample=8,
    )  # fmt: skip
    (trace,) = result.traces
    assert len(trace.resampled) == answer
    assert trace.resampled[0].continuations == (), "nothing stands before the first"
    effects = [row.effect or 0.0 for row in trace.resampled]
    likelier = [n for n, row in enumerate(trace.resampled) if row.sure and effects[n] > 0]
    assert likelier == [place]
    assert effects[place] > 3 * max(map(abs, (*effects[:place], *effects[place + 1 :])))
    assert trace.anew[answer] is None


def test_the_answers_probability_is_the_models_own(gpt2: Any) -> None:
    """Without a sentence left to write, it is that of the trace; by transformers, in float64."""
    inputs = gpt2.prepare(Prompt(TEXT))
    ids = list(inputs.sides["decoder"].queries.ids)
    eager = GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"]).double().eval()
    with torch.no_grad():
        predictions = eager(torch.tensor([ids])).logits[0].log_softmax(-1)
    want = sum(float(predictions[n - 1, ids[n]]) for n in range(len(ids) - 4, len(ids)))
    cut = len(ids) - 7
    got = suppress._log_p(gpt2, ids[:cut], ids[cut:], (3, 7))
    assert got == pytest.approx(want, abs=1e-4)


def test_effects_are_differences_of_neighbours(gpt2: Any, anew: Thoughts) -> None:
    """The mean behind a sentence minus that before it, with Welch's interval, all together."""
    (trace,) = anew.traces
    rows = [[one.log_p for one in row.continuations] for row in trace.resampled]
    assert list(map(len, rows)) == [0, 6] or list(map(len, rows)) == [6, 6]
    first, second = trace.resampled
    ids = list(gpt2.prepare(Prompt(TEXT)).sides["decoder"].queries.ids)
    start, stop = trace.sentences[1].stop, trace.sentences[2].stop
    kept = suppress._log_p(gpt2, ids[:start], ids[start:], (0, stop - start))
    assert second.effect == pytest.approx(kept - np.mean(rows[1]))
    half = stats.t.ppf(1 - 0.05 / 4, 5) * stats.sem(rows[1])
    assert second.joint_low == pytest.approx(second.effect - half)
    assert second.joint_high == pytest.approx(second.effect + half)
    if rows[0]:
        welch = stats.ttest_ind(rows[1], rows[0], equal_var=False)
        interval = welch.confidence_interval(1 - 0.05 / 2)
        assert first.effect == pytest.approx(np.mean(rows[1]) - np.mean(rows[0]))
        assert (first.joint_low, first.joint_high) == pytest.approx(tuple(interval))
    assert trace.answer == "The lamp was bright."


def test_a_seed_gives_the_same_continuations(gpt2: Any, two: Thoughts) -> None:
    def drawn(seed: int) -> tuple[Resampled, ...]:
        asked = {"resample": 2, "draws": 0, "suppress": False, "seed": seed}
        return av.thoughts(TEXT, model=gpt2, **asked).traces[0].resampled

    assert drawn(0) == two.traces[0].resampled != drawn(1)


def test_it_goes_on_where_it_was_interrupted(
    gpt2: Any, two: Thoughts, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("ATTNVIZ_CACHE", str(tmp_path))
    monkeypatch.setattr("attnviz.models.cache.LEAST", 0.0)
    inputs = gpt2.prepare(Prompt(TEXT))
    split = two.traces[0].sentences
    made: list[int] = []
    real = suppress._continuations

    def counted(source: Any, tokens: Any, parts: Any, number: int, *rest: Any) -> Any:
        if number == 1 and made == [0]:
            raise KeyboardInterrupt
        made.append(number)
        return real(source, tokens, parts, number, *rest)

    monkeypatch.setattr(suppress, "_continuations", counted)
    with pytest.raises(KeyboardInterrupt):
        resampled(gpt2, inputs, split, 2, generation=None, seed=(0, 0))
    made.append(-1)
    whole_run = resampled(gpt2, inputs, split, 2, generation=None, seed=(0, 0))
    assert made == [0, -1, 1], "the first sentence is not written again"
    monkeypatch.setenv("ATTNVIZ_CACHE", "off")
    assert resampled(gpt2, inputs, split, 2, generation=None, seed=(0, 0)) == whole_run


def test_the_manner_of_the_trace_is_that_of_its_continuations(gpt2: Any, two: Thoughts) -> None:
    inputs = gpt2.prepare(Prompt(TEXT))
    split = two.traces[0].sentences
    cold = Generation(1, temperature=0.01)
    rows = resampled(gpt2, inputs, split, 2, generation=cold, seed=(0, 0))
    (only,) = {one.log_p for one in rows[1].continuations}
    warm = resampled(gpt2, inputs, split, 2, generation=Generation(1), seed=(0, 0))
    assert warm == resampled(gpt2, inputs, split, 2, generation=None, seed=(0, 0))
    assert {one.log_p for one in warm[1].continuations} != {only}
    assert rows[1].joint_low is None, "continuations that are all the same have no interval"


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (["It", " is", " so", ".", " And", " th"], 4),
        (["It", " is", " so", "</", "think", ">", " No", "."], 3),
        (["It", ".", "</think>", "A", "."], 2), (["It", " said", ".”", " Th"], 3),
        (["no", " end"], 2), (["</think>", "x"], 0), ([], 0),
    ],
)  # fmt: skip
def test_what_is_written_ends_with_a_sentence_or_its_thoughts(texts: list[str], count: int) -> None:
    assert whole(texts) == count


def test_where_the_answer_begins() -> None:
    assert answer_at(sentences("text", "text", "text")) == 2
    assert answer_at(sentences("thought", "thought", "answer", "answer")) == 2
    assert answer_at(sentences("answer", "answer")) == 1, "no thought stands before it"
    assert answer_at(sentences("thought", "thought")) == 1, "it is not closed"


def test_every_form_has_it(anew: Thoughts, tmp_path: Path, browser: Any) -> None:
    from tests.viewing import opened

    result = anew
    assert av.read(result.save(tmp_path / "t.json")) == result
    effect = result.traces[0].resampled[1].effect
    (row,) = [
        row for row in result.to_records() if row["sentence"] == 2 and row["kind"] == "sentence"
    ]
    assert row["resampled"] == effect
    assert row["resampled_low"] < effect < row["resampled_high"]
    assert "resampled" in str(result)
    assert "6 continuations of each sentence" in str(result)
    assert "“The lamp was bright.”" in " ".join(result.notes)
    with opened(browser) as tab:
        tab.open(result.save(tmp_path / "t.html"))
        assert tab.page.locator("#columns").inner_text().split() == [
            "sentence",
            "read",
            "needed",
            "resampled",
        ]
        tab.page.locator(".sentence").nth(1).click()
        assert "not written anew" in tab.page.locator("#chosen").inner_text()


def test_a_number_of_continuations_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["thoughts", TEXT, "--resample", "x", "-q"]) == 2
    assert "--resample" in capsys.readouterr().err


def test_few_continuations_have_no_interval(two: Thoughts) -> None:
    assert two.traces[0].resampled[1].joint_low is None
    assert two.traces[0].resampled[1].sure is None
    assert "have no interval" in " ".join(two.notes)
