"""Lessons of the page that runs the model: what they say is so, and a reader's text comes back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2LMHeadModel

import attnviz as av
from attnviz.attention.walkthrough import reasons
from attnviz.features.live.lessons import FIND, INDUCTION, LAYERS, LESSONS, Lesson, Step
from attnviz.features.live.opening import LessonPasses, holding
from attnviz.features.live.page import rounded
from attnviz.models.demo import DEMOS
from sample_inputs.attention import Attention, Glued, Unscaled, Viewed
from tests import ROOT
from tests.features.live.test_live import ASK, maps_of
from tests.viewing import Opened, opened, until


@pytest.fixture(scope="module")
def passes() -> LessonPasses:
    return LessonPasses(av.load("demo-gpt2"))


def figure(words: list[str], step: Step, passes: LessonPasses) -> float | str:
    """A figure of a sentence, from attnviz's own pass."""
    seen = passes.of(step)
    if words[0] == "was":
        words, seen = words[1:], seen.before
    name, *rest = words
    at = len(seen.tokens) - 1 if step.at is None else step.at
    source = av.load("demo-gpt2")
    if name == "w":
        return seen.w(rest[0], int(rest[1]), int(rest[2]))
    if name == "p":
        return 100 * seen.p(f" {rest[0]}")
    if name == "top":
        return seen.top.replace(" ", "·")
    if name == "previous":
        return seen.previous(rest[0])
    if name == "token":
        return seen.tokens[int(rest[0])].replace(" ", "·")
    if name == "dot":
        text = step.text if seen is seen.before and step.other else step.other or step.text
        capture = av.capture(text, model=source, why=step.head)
        return float(capture.why(step.head, at, step.key).dot)
    if name == "spread":
        return spreads(float(rest[1]))[int(rest[0]) - 1][1]
    largest = seen.largest(step.head, at, float(rest[0]) if rest and name != "shifted" else None)
    width = 32.0
    return {
        "max": largest, "shifted": largest, "slope": largest * (1 - largest), "width": width,
        "sqrt": width**0.5,
    }[name]  # fmt: skip


def spreads(variance: float) -> list[tuple[float, float]]:
    """Mean and spread of the first value's share, of one head and of two, over 20,000 quantiles."""
    nodes = np.array([NormalDist().inv_cdf((n + 0.5) / 20000) for n in range(20000)])
    lengths = np.stack([1 + variance**0.5 * nodes, *np.ones((3, len(nodes)))])
    keys = lengths[:, None] * np.eye(4)[:, :, None]
    found = []
    for queries in ([[1, 1, 0, 0]], [[1, 0, 0, 0], [0, 1, 0, 0]]):
        powers = np.exp(20 * np.einsum("hd,tdn->htn", np.array(queries, float), keys))
        share = (powers / powers.sum(1, keepdims=True))[:, 0].mean(0)
        found.append((float(share.mean()), float(share.std())))
    return found


def agrees(shown: str, template: str, step: Step, passes: LessonPasses) -> None:
    """A sentence is its template with figures that are right to the digits that it prints."""
    parts = re.split(r"\{([^}]+)\}", template)
    pattern = "".join(re.escape(p) if n % 2 == 0 else "(.+?)" for n, p in enumerate(parts))
    found = re.fullmatch(pattern, shown)
    assert found, (shown, template)
    for text, words in zip(found.groups(), parts[1::2], strict=True):
        if words.startswith("random"):
            # 2,000 products: their standard deviation is off by a 63rd of it, as a rule
            wanted = 32.0**0.5 / (32.0**0.5 if "sqrt" in words else 1)
            assert abs(float(text) - wanted) < 0.05 * wanted
            continue
        value = figure(words.split(), step, passes)
        if isinstance(value, str):
            assert text == value
        elif text.startswith("<"):
            assert value < float(text[1:].rstrip(" %")), (words, text, value)
        else:
            digits = text.rstrip(" %").replace("−", "-")
            decimals = len(digits.partition(".")[2])
            assert abs(float(digits) - value) <= 0.52 * 10**-decimals, (words, text, value)


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(one, id=one.name, marks=() if one is INDUCTION else pytest.mark.slow)
        for one in LESSONS
        if one is not FIND
    ],
)
def test_every_sentence_is_so(
    page: Opened, path: Path, passes: LessonPasses, lesson: Lesson
) -> None:
    """What is asked is not given away, the right answer is, and figures are those of the model."""
    assert len(lesson.steps) <= 7
    assert holding([lesson], av.load("demo-gpt2"))
    page.open(path, again=True)
    tab = page.page
    tab.click(f"[data-lesson={lesson.name}]")
    for number, step in enumerate(lesson.steps, 1):
        page.settle()
        until(tab, "text => document.getElementById('lesson-count').textContent === text",
              f"{number} of {len(lesson.steps)}")  # fmt: skip
        plain = replace(step, off=(), places=True, other=None)
        agrees(tab.inner_text("#lesson-said"), step.say, plain if step.ask else step, passes)
        if step.ask:
            assert not tab.is_visible("#lesson-told")
            for what, element in (("words", "#words"), ("map", "#map-before")):
                assert tab.is_visible(element) is (what not in step.hides)
            page.click(f"#lesson-choices button >> nth={step.right}")
            agrees(tab.inner_text("#lesson-told"), step.told, step, passes)
            marks = tab.eval_on_selector_all(
                "#lesson-choices button", "a => a.map(b => b.innerText)"
            )
            assert [n for n, mark in enumerate(marks) if "✓" in mark] == [step.right]
            assert tab.is_visible("#words")
            assert tab.is_visible("#map-before")
        until(tab, "() => document.querySelector('#spot .edge')?.getBoundingClientRect().width > 8")
        tab.wait_for_timeout(60)
        # at one go: what is drawn anew between finding it and asking it has no place any more
        edge = tab.evaluate(
            "document.querySelector('#spot .edge').getBoundingClientRect().toJSON()"
        )
        assert edge["width"] > 8
        said = tab.eval_on_selector("#lesson", "e => e.getBoundingClientRect().bottom")
        assert step.spot == "figure" or said - 8 <= edge["top"] < 780, (
            "in sight, below what is said"
        )
        tab.click("#lesson-next")


SLOW_WORKER = """globalThis.Worker = class extends Worker {
    addEventListener(kind, hear) {
        const later = kind === 'message' ? event => setTimeout(() => hear(event), 400) : hear;
        super.addEventListener(kind, later);
    }
};"""
"""Answers come so much later that what is asked meanwhile has to wait."""


def test_the_page_is_busy_until_its_newest_question_is_answered(browser: Any, path: Path) -> None:
    """A choice that is clicked while another question is open: that one's answer is not its own."""
    with opened(browser) as page:
        page.page.add_init_script(SLOW_WORKER)
        told = page.open(path, "lesson=layers&step=2").page.evaluate(
            """async () => {
                const pause = () => new Promise(done => setTimeout(done, 20));
                document.getElementById('token-1').click();
                await pause();
                document.querySelector('#lesson-choices button').click();
                do await pause(); while (document.documentElement.dataset.busy !== '0');
                return document.getElementById('lesson-told').innerText;
            }"""
        )
    assert told


def test_the_first_step_does_not_show_its_answer(page: Opened, path: Path) -> None:
    """Neither in the strip nor beside the map: gold stands where it is typed, and in a choice."""
    page.open(path, "lesson=next&step=1")
    tab = page.page
    for part in ("#river", "#head-part", "#words-part", "#heads-part"):
        assert "gold" not in tab.inner_text(part), part
    seen = "all => all.filter(e => e.checkVisibility({ visibilityProperty: true })).length"
    labelled = tab.eval_on_selector_all("[aria-label*=gold]", seen)
    assert labelled == 0
    page.click("#lesson-choices button")
    assert "gold" in tab.inner_text("#river")
    assert "gold" in tab.inner_text("#row-said")


STEPS = {"off by one": "mask", "scale": "scale", "axis": "softmax", "view": "view",
         "merge": "untranspose"}  # fmt: skip


class WrongAxis(Attention):
    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-2)


class Leaking(Attention):
    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2)
        return scores.masked_fill(later, -torch.inf)


def planted(bug: str) -> Attention:
    """Attention of demo-gpt2's size, written by hand, with a bug."""
    kinds = {"": Attention, "off by one": Leaking, "scale": Unscaled, "axis": WrongAxis,
             "view": Viewed, "merge": Glued}  # fmt: skip
    return kinds[bug](192, 6)


def broken_pass(bug: str, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Weights of layer 0 [H, T, T], and probabilities of the next token, in float64."""
    model = GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"]).double().eval()
    old, new = model.transformer.h[0].attn, planted(bug).double()
    for name, weight, bias in zip(("query", "key", "value"), old.c_attn.weight.chunk(3, 1),
                                  old.c_attn.bias.chunk(3), strict=True):  # fmt: skip
        getattr(new, name).weight.data, getattr(new, name).bias.data = weight.T, bias
    new.out.weight.data, new.out.bias.data = old.c_proj.weight.T, old.c_proj.bias
    maps: list[torch.Tensor] = []
    own = new.weights
    new.weights = lambda scores: maps.append(own(scores)) or maps[0]  # type: ignore[func-returns-value, method-assign]
    old.forward = lambda hidden, *_, **__: (new(hidden), None)
    with torch.no_grad():
        shares = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    return maps[0][0].detach().numpy(), shares.numpy()


@pytest.mark.parametrize("step", FIND.steps[:-1], ids=lambda step: step.bug)
def test_a_planted_bug_is_the_one_that_check_names(step: Step) -> None:
    assert [bug.name for bug in av.check(planted(step.bug)).bugs] == [step.bug]


def test_bugs_are_found_by_what_they_do(page: Opened, path: Path) -> None:
    """Maps of layer 0 and the next word are those of modules written by hand, in float64."""
    page.open(path, "lesson=find&step=1")
    tab = page.page
    gold = av.load("demo-gpt2").portable().vocabulary.texts.index(" gold")
    ask = ASK.replace("text, off, write)", "text, [], 0, 0, 0, 0, 1, off)")
    for number, step in enumerate(FIND.steps[:-1], 1):
        assert tab.inner_text("#lesson-count") == f"{number} of 6"
        assert "a bug in layer 0" in tab.inner_text("#after-said")
        found = tab.evaluate(ask, [step.text, step.bug, 0])
        weights, shares = broken_pass(step.bug, found["ids"])
        assert np.abs(maps_of(found)[0] - weights).max() < 1e-5
        for word in found["words"]:
            assert word["after"] == pytest.approx(shares[word["id"]], abs=1e-5)
        page.click(f"#lesson-choices button >> nth={step.right}")
        told = tab.inner_text("#lesson-told")
        assert reasons()[STEPS[step.bug]].split(". ")[0].rstrip(".") in told
        figures = {
            "scale": f"has {weights[4, 11, 10]:.2f} of",
            "axis": f"to {weights[5, 11].sum():.2f}.",
            "off by one": f"gives {weights[5, 10, 11]:.2f} to",
            "merge": f"gold has {'<0.1' if shares[gold] < 1e-3 else '?'} %",
        }
        assert figures.get(step.bug, "the 6 slices of ·horse and the 6 of ·night") in told
        page.click("#lesson-next")
    plain = tab.evaluate(ask, [step.text, "", 0])
    assert np.abs(maps_of(plain)[0] - broken_pass("", plain["ids"])[0]).max() < 1e-5


@pytest.mark.parametrize("bits", [8, 16])
def test_lessons_hold_with_rounded_numbers(bits: int) -> None:
    source = av.load("demo-gpt2").rounded(lambda t: torch.from_numpy(rounded(t.numpy(), bits)))
    assert holding(LESSONS, source) == LESSONS


def test_a_lesson_of_another_model_is_left_out() -> None:
    changed = av.load("demo-gpt2").rounded(lambda t: t.flip(0) if t.ndim == 2 else t)
    assert not holding([INDUCTION, LAYERS], changed)


def test_what_a_reader_had_comes_back_and_back_goes_back(page: Opened, path: Path) -> None:
    page.open(path, again=True)
    tab = page.page
    assert tab.is_visible("#lessons"), "the first choice"
    tab.fill("#text", "my own words")
    page.click('[data-head="2.4"]', modifiers=["Shift"])
    page.click("[data-lesson=next]")
    page.click("#lesson-choices button >> nth=1")
    assert "✗" in tab.inner_text("#lesson-choices")
    page.click("#lesson-next")
    assert tab.inner_text("#lesson-count") == "2 of 7"
    tab.wait_for_timeout(250)
    tab.go_back()
    page.settle()
    assert tab.inner_text("#lesson-count") == "1 of 7"
    assert tab.is_visible("#lesson-told")
    tab.go_back()
    tab.wait_for_selector("#lesson-told", state="hidden")
    page.settle()
    page.fill("#text", "something else")
    assert tab.is_visible("#lesson-again")
    assert "The model has read six words" in tab.inner_text("#lesson-said")
    page.click("#lesson-again")
    assert tab.input_value("#text") == INDUCTION.steps[0].text
    page.click("#lesson-end")
    assert tab.input_value("#text") == "my own words"
    assert tab.inner_text("#off-count") == "1 of 24 off"
    page.open(path, "lesson=layers&step=4&told=1")
    assert "in 2.0" not in tab.inner_text("#lesson-said")
    assert tab.inner_text("#off-count") == "2 of 24 off", "a link opens a step as it was"
    tab.click("#open-lessons")
    assert tab.is_visible("#lessons")


def test_a_lesson_goes_by_keyboard(page: Opened, path: Path) -> None:
    page.open(path, again=True)
    tab = page.page
    tab.focus("[data-lesson=next]")
    page.press("Enter")
    tab.focus("#lesson-choices button")
    page.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "lesson-next"
    page.press("Enter")
    assert tab.inner_text("#lesson-count") == "2 of 7"


def test_the_divisor_moves_the_shares(page: Opened, path: Path) -> None:
    page.open(path, "lesson=softmax&step=7")
    tab = page.page

    def shares() -> list[float]:
        cells = tab.eval_on_selector_all(
            "#shares tbody tr", "a => a.map(r => r.cells[4].innerText)"
        )
        return [float(cell.lstrip("<")) for cell in cells]

    usual = shares()
    assert sum(usual) == pytest.approx(1, abs=0.03)
    tab.focus("#divisor")
    page.press("Home")
    assert max(shares()) > 0.95 > 0.6 > max(usual)
    page.click("#divisor-root")
    assert shares() == usual


def test_products_of_random_vectors_are_two_histograms(page: Opened, path: Path) -> None:
    """Those of 2,000 pairs, counted here again; the divisor narrows or widens the second."""
    page.open(path, "lesson=softmax&step=4")
    tab = page.page
    seed = np.uint32(1) + np.uint32(0x6D2B79F5) * np.arange(1, 2000 * 32 * 4 + 1, dtype=np.uint32)
    mixed = (seed ^ seed >> np.uint32(15)) * (seed | np.uint32(1))
    mixed ^= mixed + (mixed ^ mixed >> np.uint32(7)) * (mixed | np.uint32(61))
    uniform = ((mixed ^ mixed >> np.uint32(14)) / 2**32).reshape(-1, 2)
    normal = np.sqrt(-2 * np.log(1 - uniform[:, 0])) * np.cos(2 * np.pi * uniform[:, 1])
    products = normal.reshape(2000, 32, 2).prod(-1).sum(-1)
    end = 4 * 32**0.5

    def agree(divisor: float) -> None:
        page.settle()
        shown = tab.eval_on_selector_all(
            "#histograms svg",
            "all => all.map(e => [...e.querySelectorAll('rect')].map(r => +r.dataset.count))",
        )
        said = tab.locator("#histograms figcaption").all_inner_texts()
        largest = 0.0
        for counts, line, values in zip(shown, said, (products, products / divisor), strict=True):
            wanted = np.histogram(values, 48, (-end, end))[0]
            assert counts == [n for n in wanted.tolist() if n]
            assert f"standard deviation {values.std():.2f}" in line
            powers = np.exp(values.reshape(-1, 10))
            largest = float((powers.max(1) / powers.sum(1)).mean())
        assert f"the largest share is {largest:.2f} on average" in tab.inner_text("#shares-said")

    agree(32**0.5)
    assert not tab.is_visible("#shares table")
    tab.focus("#divisor")
    tab.keyboard.press("Home")
    agree(0.5)
    assert "√d × temperature 0.09" in tab.inner_text("#divisor-said")
    tab.keyboard.press("End")
    agree(12)
    page.click("#lesson-next")
    assert tab.is_visible("#shares table")
    assert not tab.is_visible("#histograms")


def test_one_head_varies_more_than_two(page: Opened, path: Path) -> None:
    """Both as integrals, done here in another way; before the answer no key's length varies."""
    page.open(path, "lesson=softmax&step=6")
    tab = page.page

    def agree(variance: float) -> None:
        page.settle()
        said = tab.locator("#histograms figcaption").all_inner_texts()[:2]
        for line, (mean, spread) in zip(said, spreads(variance), strict=True):
            shown = re.findall(r"\d\.\d\d", line)
            assert [float(number) for number in shown] == pytest.approx([mean, spread], abs=6e-3)

    agree(0)
    assert not tab.is_visible("#divisor")
    assert not tab.is_visible("#shares table")
    tab.click("#lesson-choices button")
    agree(0.5)
    one, two = (spread for _, spread in spreads(0.5))
    course = " ".join((ROOT / "docs" / "courses.md").read_text("utf-8").split())
    assert f"varies by {one:.2f} with one head and by {two:.2f} with two" in course
    tab.focus("#noise")
    tab.keyboard.press("End")
    agree(1)
    tab.wait_for_timeout(250)
    assert "noise=1" in tab.evaluate("location.hash")
    page.click("#lesson-next")
    assert tab.is_visible("#divisor")
    assert tab.is_visible("#shares table")
    assert not tab.is_visible("#noise")
