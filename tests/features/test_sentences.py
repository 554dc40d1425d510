"""Sentences of every feature at extreme values, and what plain prompts print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.core.result import Interval
from attnviz.drawing.labels import percent
from attnviz.drawing.renderable import printed
from attnviz.features.ablation import words as of_ablation
from attnviz.features.diff import description as of_diff
from attnviz.features.explain import description as of_explain
from attnviz.features.film import description as of_film
from attnviz.features.flow import description as of_flow
from attnviz.features.knockout import words as of_cuts
from attnviz.features.knockout import words as of_knockout
from attnviz.features.knockout.result import CutChange
from attnviz.features.lens import description as of_lens
from attnviz.features.profile import words as of_profile
from attnviz.features.sinks import description as of_sinks
from attnviz.features.spans import description as of_spans
from attnviz.features.thoughts import words as of_thoughts
from attnviz.models.demo import DEMOS
from tests import ROOT

pytestmark = pytest.mark.usefixtures("few_sentences")

TEXT = "the cat river moon stone bread the cat river moon stone"
NOUNS = "cuts|examples|heads|layers|pairs|positions|rows|sentences|texts|tokens|traces"
ONE = rf"(?<![\d.,:/])(?<!layer )1 ({NOUNS})\b|\b1 of the 1\b|\bnan\b|\d↵"
"""Not in a table either."""
ODD = re.compile(
    rf"{ONE}|\b(rises|falls|moves|gains) by 0\b(?!\.)|\binf\b|\bNone\b|\S  +\S|all tokens cannot"
    r"|-0(\.0+)?(?= )|\+-|--|“”|\( |,,|\.\."
)
"""What no sentence says: 1 texts, rises by 0, a newline behind a number, a figure that is none."""


def read(*sentences: str) -> str:
    """All of them as one text, after looking at each."""
    for sentence in sentences:
        assert sentence, "an empty sentence"
        assert not ODD.search(sentence), sentence
    return " ".join(sentences)


@pytest.fixture(scope="module")
def model() -> Any:
    return av.load("demo-gpt2")


@pytest.fixture(scope="module")
def explained(model: Any) -> Any:
    return av.explain(TEXT, model=model)


def every_explanation(found: Any) -> str:
    said = [of_explain.title(found), of_explain.headline(found), of_explain.said(found)]
    return read(*said, *of_explain.summary(found), of_explain.heading(found))


@pytest.mark.parametrize("lead", [-1.77, 0.0, 0.004, 0.73, 240.0])
def test_an_explanation_of_any_lead(explained: Any, lead: float) -> None:
    said = every_explanation(replace(explained, lead=lead))
    assert "is level with" in said if abs(lead) < 0.005 else f"{abs(lead):.2f} logits" in said


def test_an_explanation_of_nothing_and_of_one_head(explained: Any) -> None:
    zero = tuple(replace(part, value=0.0) for part in explained.parts)
    tokens = dict.fromkeys(explained.by_token, (0.0,) * len(explained.tokens))
    still = tuple(replace(c, change=0.0) for c in explained.together.by)
    nothing = replace(
        explained, parts=zero, by_token=tokens, voters=(), beside=(), negative=None, mlps=(),
        together=replace(explained.together, by=still), lead=0.0,
    )  # fmt: skip
    assert "No head votes for" in every_explanation(nothing)
    alone = replace(
        explained, heads=explained.heads[:1], voters=explained.voters[:1], beside=(), feeder=None
    )
    assert "It looks most at" in every_explanation(alone)
    first = explained.heads[0]
    harmless = tuple(replace(change, change=0.5) for change in first.effect.by)
    gains = replace(first, effect=replace(first.effect, by=harmless))
    assert "falls without none" in every_explanation(replace(alone, heads=(gains,)))
    large = replace(explained, candidates=explained.candidates[:5])
    assert "5 of 24 heads with the largest votes and gradients" in every_explanation(large)
    unread = replace(explained, mlps=(replace(explained.mlps[0], by_head=(), together=0.0),))
    assert "less than a tenth" in every_explanation(unread)


def test_an_explanation_of_an_untrained_model() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=8192, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
    model = av.load(transformers.GPT2LMHeadModel(config).eval(), tokenizer=tokenizer)
    every_explanation(av.explain(TEXT, model=model))


@pytest.fixture(scope="module")
def cut(model: Any) -> Any:
    return av.knockout(Prompt(TEXT, spans={"follower": "bread"}), model=model, draws=1)


@pytest.mark.parametrize("metric", ["kl", "logit-diff", "prob", "loss"])
def test_a_cut_of_any_size(cut: Any, metric: str) -> None:
    answer = (" a", " b") if metric == "logit-diff" else ("", "")
    for change, base, matched, (alone, names) in product(
        (-20.0, -1e-9, 0.0, 0.3), (-1.77, 0.0, 9.5), (None, 0.0, 0.42, 0.6, 1.0),
        ((0.0, ("last", "follower")), (1.0, ("all", "before"))),
    ):  # fmt: skip
        control = None if matched is None or matched < 0.5 else -0.2
        effect = replace(
            cut.effects[0], change=CutChange(abs(change) if metric == "kl" else change), base=base,
            matched=matched, control=control, excess=None, alone=alone, rows=names[0],
            keys=names[1],
        )  # fmt: skip
        result = replace(
            cut, effects=(effect,), metric=metric, unit="", answer=answer[0], against=answer[1]
        )
        said = read(of_knockout.sentence(result), *of_cuts.notes(result))
        assert ("to nothing but itself" in said) == bool(alone)
        assert ("no control" in said) == (matched is not None and control is None)


@pytest.mark.parametrize("chance", [0.01, 0.5, 0.84, 1.0])
@pytest.mark.parametrize("family", [False, True])
def test_spans_of_any_size(model: Any, chance: float, family: bool) -> None:
    found = av.spans(Prompt("The cat sat", spans={"user": "cat"}), model=model)
    ends = (0.0, 1.0) if family else (None, None)
    share = replace(
        found.heads[0].shares[0], chance=chance, lift=1.0, mean=chance, joint_low=ends[0],
        joint_high=ends[1], sure=False if family else None,
    )  # fmt: skip
    heads = tuple(replace(one, shares=(share, *one.shares[1:])) for one in found.heads)
    said = read(of_spans.answer(replace(found, heads=heads)))
    assert ("No head can attend" in said) == (2 * chance >= 1 and not family)


def test_words_of_a_lens(model: Any) -> None:
    found = av.lens(TEXT, model=model)
    last = found.positions[-1]
    for place in (found.positions[0], last):
        assert "“" in read(of_lens.sentence(found, place))
    read(of_lens.headline(av.lens(TEXT, model=model, by="head")))


def test_one_step_one_text_one_position(model: Any) -> None:
    film = av.read(ROOT / "sample_inputs" / "phases" / "demo-gpt2.json")
    none = replace(film, formations=())
    assert "No head" in read(of_film.headline(none))
    read(of_film.headline(film), of_film.heading(film))
    ablated = av.ablate("a cat", model=model, select="1.4", method="mean")
    read(of_ablation.measure(replace(ablated, positions=1)), *ablated.notes)
    assert "and the rows where" not in " ".join(ablated.notes), "of one text none are known"
    nothing = av.ablate("a", model=model, select="1.4, 3.0", method="mean")
    assert "No effect is larger than rounding error (below" in read(*nothing.notes)
    sinks = av.sinks("cat", model=model)
    read(of_sinks.summary(sinks), of_sinks.measured(sinks))
    assert of_sinks.share(Interval(None)) == "–"
    same = av.diff("a cat", "a cat", model=model)
    assert "Nothing changed" in read(of_diff.headline(same))


def test_a_flow_of_one_token(model: Any) -> None:
    found = av.flow("cat", model=model)
    read(of_flow.headline(found), *of_flow.beside(found), of_flow.closing(found))
    alone = replace(found, total=np.eye(len(found.tokens)))
    assert "takes in no other token" in read(of_flow.headline(alone))


def test_receiver_heads_that_are_none(model: Any) -> None:
    trace = "It rains. So we stay. Then it stops. We go out. The sun is there. All is well."
    found = av.thoughts(trace, model=model, apart=1)
    several = replace(found, traces=found.traces * 6, texts=6)
    for sure, low, said in (
        (False, None, "No head can be called a receiver head: 1 trace cannot tell 24"),
        (False, -0.1, "No head of 24 is shown to be a receiver head"),
        (True, 0.1, "0.0 and 23 more heads are receiver heads: the kurtosis of 0.0 is +2.4"),
    ):
        of = {"kurtosis": 2.4, "control": 2.3, "joint_low": low, "sure": sure}
        heads = tuple(replace(head, **of) for head in found.heads)
        assert said in read(of_thoughts.sentence(replace(several, heads=heads)))
    none = tuple(replace(head, kurtosis=None) for head in found.heads)
    assert "No head has a kurtosis" in read(of_thoughts.sentence(replace(several, heads=none)))


def test_a_profile_has_no_newline_behind_a_number(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"a cat sat on the mat and the dog number {n}" for n in range(6)))
    found = av.profile(path, model=model)
    text = printed(*found.for_terminal(everything=True))
    assert "would have shown" in " ".join(text.split())
    for line in text.splitlines():
        assert not re.search(r"\d↵", line), line
    heads = (one for one in found.distribution.heads) if found.distribution else ()
    for head in heads:
        read(of_profile.headline("1.4", head.behaviours))


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0 %"), (1e-9, "<1 %"), (-0.001, "0 %"), (-0.3, "-30 %"), (1.0, "100 %")],
)
def test_a_share_of_any_size(share: float, said: str) -> None:
    assert percent(share) == said


PROMPTS = (
    "Who took the key?", "a", "the the", "No!", "I do not know what to do\n\nbut",
    "stone stone stone stone stone", "naïve café – déjà vu", "hello", "1 2 3 4 5 6 7 8",
    "The keys to the cabinet", "AAAA BBBB AAAA", 'He said: "Come here."',
)  # fmt: skip
COMMANDS: dict[str, tuple[str, ...]] = {
    "heads": (), "logits": (), "lens": (), "flow": (), "sinks": (), "explain": (),
    "sources": ("--select", "2.0"), "knockout": ("--keys", "before, sink"),
    "ablate": ("--select", "1.4"),
}  # fmt: skip
FIRST = (PROMPTS[1], PROMPTS[4])


def asked() -> Iterator[Any]:
    for command in COMMANDS:
        for prompt in PROMPTS:
            slow = prompt not in FIRST or command in ("explain", "sources")
            marks = [pytest.mark.slow] if slow else []
            yield pytest.param(command, prompt, marks=marks)


@pytest.mark.parametrize(("command", "prompt"), [*asked()])
def test_what_plain_prompts_print(command: str, prompt: str, capsys: Any) -> None:
    status = main([command, prompt, "-q", *COMMANDS[command]])
    shown = capsys.readouterr()
    if command == "ablate" and prompt == "a":
        assert status in (0, 1)
    else:
        assert status == 0, shown.err
    for line in (*shown.out.splitlines(), *shown.err.splitlines()):
        found = re.search(
            rf"(?<![\d.,:/])(?<!layer )1 ({NOUNS})\b|1 of the 1|by 0\b(?!\.)|\bnan\b|\d↵", line
        )
        assert found is None, line
