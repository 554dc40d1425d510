"""The river: what every head writes at a token, the residual stream, and the logit lens on it."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertForMaskedLM, GPT2LMHeadModel

import attnviz as av
from attnviz.core.heads import Site
from attnviz.features.live.opening import TEXT
from attnviz.models.demo import DEMOS
from tests.features.live.test_live import live_page
from tests.samples import Samples
from tests.viewing import Opened, accessible, until

LAYERS, HEADS, WIDTH = 4, 6, 32
SLOW = pytest.mark.slow
SIZE = {"width": 1440, "height": 1000}
"""Of the window, for the fixture page."""
STATE = f"text={TEXT.replace(' ', '+')}"
SEEN = """() => ({
    heads: [...document.querySelectorAll('.river-head')].map(e => e.getAttribute('aria-label')),
    mlps: [...document.querySelectorAll('.river-mlp')].map(e => e.getAttribute('aria-label')),
    norms: [...document.querySelectorAll('.river-norm')].map(e => e.textContent),
    entering: document.getElementById('river-place').textContent,
    said: [...document.querySelectorAll('.river-speech')].map(e => e.hidden ? '' : e.textContent),
    bed: document.querySelector('#river-bed path').getAttribute('d'),
    sides: [...document.querySelectorAll('.river-head i')].map(e => e.offsetWidth),
})"""


def number(text: str) -> float:
    """The figure in front of ``here``, or the last one."""
    return float((re.findall(r"writes ([\d.]+)", text) or re.findall(r"[\d.]+", text))[-1])


def close(shown: float, value: float) -> bool:
    """As a figure is written: to two digits that count, whole from 10 on, four decimals at most."""
    decimals = min(4, max(0, 1 - math.floor(math.log10(value))))
    return abs(shown - value) <= 0.51 * 10**-decimals


@dataclass(frozen=True)
class Inside:
    """Of transformers' eager pass in float64: [layer] and what a token has in it.

    ``qkv`` [layers, 3, T, width], ``mixed`` [layers, T, width] as W_O gets it, and W_O, ``out``
    [layers, width, width]; ``added`` by attention and MLP, ``read`` and ``given`` by the
    normalization of each, [layers, 2, T, width].
    """

    qkv: NDArray[np.float64]
    mixed: NDArray[np.float64]
    out: NDArray[np.float64]
    added: NDArray[np.float64]
    read: NDArray[np.float64]
    given: NDArray[np.float64]
    states: NDArray[np.float64]

    def head(self, head: str) -> tuple[NDArray[np.float64], ...]:
        """Its queries, keys, values and what it hands to W_O, [T, 32] each."""
        layer, number = map(int, head.split("."))
        part = slice(number * WIDTH, (number + 1) * WIDTH)
        return (*self.qkv[layer, :, :, part], self.mixed[layer, :, part])


@functools.cache
def inside(name: str, text: str, off: tuple[int, int] | None = None) -> Inside:
    kind = GPT2LMHeadModel if name == "demo-gpt2" else BertForMaskedLM
    model = kind.from_pretrained(DEMOS[name], attn_implementation="eager").double().eval()
    kept: dict[str, list[NDArray[np.float64]]] = {}

    def keep(name: str, batch: torch.Tensor | list[torch.Tensor]) -> None:
        kept.setdefault(name, []).append(batch[0].numpy())

    def gated(_: Any, given: tuple[torch.Tensor, ...], layer: int) -> tuple[torch.Tensor, ...]:
        mixed = given[0].clone()
        if off is not None and off[0] == layer:
            mixed[..., off[1] * WIDTH : (off[1] + 1) * WIDTH] = 0
        keep("mixed", mixed)
        return (mixed, *given[1:])

    def both(_: Any, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        keep("read", given[0])
        keep("given", out)

    def added(module: Any) -> None:
        module.register_forward_hook(lambda _, given, out: keep("added", out))

    gpt2 = name == "demo-gpt2"
    for layer, block in enumerate(model.transformer.h if gpt2 else model.bert.encoder.layer):
        if gpt2:
            block.attn.c_attn.register_forward_hook(lambda _, given, out: keep("qkv", out))
            inner, norms = block.attn.c_proj, (block.ln_1, block.ln_2)
            mlp = block.mlp
        else:
            own = block.attention.self
            for part in (own.query, own.key, own.value):
                part.register_forward_hook(lambda _, given, out: keep("qkv", out))
            inner, mlp = block.attention.output.dense, block.output.dense
            norms = (block.attention.output.LayerNorm, block.output.LayerNorm)
        keep("out", [inner.weight.detach() if gpt2 else inner.weight.detach().T])
        inner.register_forward_pre_hook(lambda m, given, layer=layer: gated(m, given, layer))
        added(inner)
        added(mlp)
        for norm in norms:
            norm.register_forward_hook(both)
    if gpt2:
        model.transformer.ln_f.register_forward_pre_hook(lambda _, given: keep("last", given[0]))
    (sides,) = av.load(name).prepare(av.Prompt(text)).sides.values()
    with torch.no_grad():
        out = model(torch.tensor([sides.queries.ids]), output_hidden_states=True)
    states = [state[0].numpy() for state in out.hidden_states]
    if gpt2:  # hidden_states end after the last normalization
        states[-1] = kept["last"][0]
    (count, width), layers = states[0].shape, len(states) - 1
    qkv = np.stack(kept["qkv"]).reshape(layers, -1, count, 3 * width if gpt2 else width)
    if gpt2:
        qkv = qkv.reshape(layers, count, 3, width).swapaxes(1, 2)
    pairs = [np.stack(kept[n]).reshape(layers, 2, count, width) for n in ("added", "read", "given")]
    return Inside(qkv, np.stack(kept["mixed"]), np.stack(kept["out"]), *pairs, np.stack(states))


def norms(
    name: str, text: str, at: int, off: tuple[int, int] | None = None
) -> dict[str, list[float]]:
    """What heads and MLPs write at a token, and the states, of that pass."""
    model = inside(name, text, off)
    mixed = model.mixed[:, at].reshape(LAYERS, HEADS, 1, WIDTH)
    heads = mixed @ model.out.reshape(LAYERS, HEADS, WIDTH, -1)
    written = {"heads": heads, "mlps": model.added[:, 1, at], "states": model.states[:, at]}
    return {kind: np.linalg.norm(v, axis=-1).ravel().tolist() for kind, v in written.items()}


@pytest.mark.parametrize(
    ("name", "text", "at", "off"),
    [
        ("demo-gpt2", TEXT, 11, None),
        ("demo-gpt2", TEXT, 6, (1, 4)),
        ("demo-bert", "the cat [MASK] on the mat", 3, None),
    ],
)
def test_norms_are_those_of_the_model(
    page: Opened, samples: Samples, name: str, text: str, at: int, off: tuple[int, int] | None
) -> None:
    switched = "" if off is None else f"&off={off[0]}.{off[1]}"
    state = f"text={text.replace(' ', '+')}&at={at}{switched}"
    tab = page.open(live_page(samples, name), state).page
    seen = tab.evaluate(SEEN)
    wanted = norms(name, text, at, off)
    for label, value in zip(seen["heads"], wanted["heads"], strict=True):
        assert close(number(label), value) if value else ", off;" in label, (label, value)
    for label, value in zip(seen["mlps"], wanted["mlps"], strict=True):
        assert close(number(label), value), (label, value)
    for shown, value in zip([seen["entering"], *seen["norms"]], wanted["states"], strict=True):
        assert close(number(shown), value), (shown, value)
    points = [float(y) for y in re.findall(r"[\d.]+ ([\d.]+)(?=[CLZ])", seen["bed"])]
    upper, lower = points[: LAYERS + 1], points[LAYERS + 1 :][::-1]
    wide = [low - high for high, low in zip(upper, lower, strict=True)]
    assert wide == pytest.approx([v / max(wanted["states"]) for v in wanted["states"]], rel=2e-3)
    most = max(wanted["heads"] + wanted["mlps"])
    for side, value in zip(seen["sides"], wanted["heads"], strict=True):
        assert value == 0 or abs(side - max(5, 40 * (value / most) ** 0.5)) <= 1, "area by norm"


def test_speech_is_that_of_lens(page: Opened, path: Path) -> None:
    tab = page.open(path, STATE).page
    seen = tab.evaluate(SEEN)
    last = TEXT.count(" ") + 1
    cells = av.lens(TEXT, position=last).cells[1:]
    for said, cell in zip(seen["said"], cells, strict=True):
        word, share = re.fullmatch(r"(?:would say|says): (\S+) (.+) %", said).groups()
        assert word == cell.top[0].token.replace(" ", "·")
        assert float(share) == pytest.approx(100 * cell.top[0].probability, abs=0.51)
    assert seen["said"][-1].startswith("says: ·bread")


def threads(tab: Any) -> dict[int, float]:
    found = tab.eval_on_selector_all(
        "#threads path", "all => all.map(e => [e.dataset.key, e.getAttribute('stroke-width')])"
    )
    return {int(key): (float(width) - 1) / 7 for key, width in found}


def test_pointing_at_a_dot_draws_where_its_head_looks(page: Opened, path: Path) -> None:
    tab = page.open(path, STATE).page
    row = av.capture(TEXT).maps[Site("decoder", 3)][0, -1]
    wanted = {s: float(w) for s, w in enumerate(row) if w >= 0.02}
    assert not threads(tab)
    tab.hover('[data-dot="3.0"]')
    assert threads(tab) == pytest.approx(wanted, abs=1e-3)
    ends = tab.eval_on_selector_all(
        "#threads path",
        """all => all.map(e => {
            const { x, y } = e.getPointAtLength(e.getTotalLength());
            const field = document.getElementById('course').getBoundingClientRect();
            const token = document.getElementById(`token-${e.dataset.key}`);
            const { left, width, bottom } = token.getBoundingClientRect();
            return Math.hypot(x + field.left - left - width / 2, y + field.top - bottom);
        })""",
    )
    assert max(ends) < 1
    tab.mouse.move(2, 2)
    assert not threads(tab)
    tab.focus('[data-dot="3.0"]')
    assert threads(tab) == pytest.approx(wanted, abs=1e-3)
    until(tab, "() => document.getElementById('spoken').textContent.startsWith('looks at ·bread')")
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate("document.activeElement.dataset.dot") == "2.5"
    assert "head 2.5 looks at" in tab.inner_text("#river-why")
    page.press("Enter")
    assert tab.inner_text("#head-title") == "HEAD 2.5"
    assert tab.evaluate("document.activeElement.dataset.dot") == "2.5", "the focus stays"
    tab.focus("#text")
    assert not threads(tab)


def test_a_block_opens_the_heads_of_its_layer(page: Opened, path: Path) -> None:
    tab = page.open(path, STATE).page
    assert not tab.is_visible("#river-heads")
    box = tab.locator(".river-layer").nth(1).bounding_box()
    tab.mouse.click(box["x"] + 30, box["y"] + box["height"] - 50)
    lines = tab.locator("#river-heads button")
    assert lines.count() == HEADS
    (line,) = [text for text in lines.all_inner_texts() if text.startswith("1.4")]
    assert "previous" in line
    assert "looks at ·moon (10)" in line
    names = tab.locator(".river-name")
    assert [one.get_attribute("aria-expanded") for one in names.all()] == [
        "false", "true", "false", "false",
    ]  # fmt: skip
    lines.nth(4).click()
    page.settle()
    assert tab.inner_text("#head-title") == "HEAD 1.4"
    assert tab.evaluate("document.activeElement.dataset.listed") == "1.4", "the focus stays"
    names.nth(1).press("Enter")
    assert not tab.is_visible("#river-heads")


def test_a_question_about_a_map_is_not_answered_by_the_river(page: Opened, path: Path) -> None:
    tab = page.open(path, "lesson=next&step=2").page
    tab.locator(".river-name").nth(2).click()
    tab.focus('[data-dot="2.0"]')
    assert not threads(tab)
    assert not tab.locator("#river-heads").is_visible()
    assert not tab.locator("#river-why").is_visible()
    tab = page.open(path, "lesson=next&step=3").page
    dot = tab.locator('[data-dot="1.4"]')
    color = "e => getComputedStyle(e.firstChild).backgroundColor"
    asked = dot.evaluate(color)
    assert asked == tab.locator('[data-dot="1.3"]').evaluate(color)
    assert "previous" not in dot.get_attribute("aria-label") + dot.get_attribute("title")
    page.click("#lesson-choices button")
    assert "previous" in dot.get_attribute("aria-label")
    assert dot.evaluate(color) != asked


@pytest.mark.parametrize("width", [390, *(pytest.param(n, marks=SLOW) for n in (768, 1024))])
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=SLOW), "dark"])
def test_it_fits_and_axe_finds_nothing(page: Opened, path: Path, width: int, scheme: str) -> None:
    page.page.set_viewport_size({"width": width, "height": 844})
    page.page.emulate_media(color_scheme=scheme)
    tab = page.open(path, STATE).page
    tab.locator(".river-name").nth(3).click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    inside = "e => e.scrollWidth - e.clientWidth"
    assert tab.eval_on_selector("#river-field", inside) <= 0
    parts = tab.eval_on_selector_all(
        ".river-head, .river-mlp, .river-speech, .river-norm",
        """all => all.map(e => { const [a, b] = [e, e.closest('.river-layer')]
            .map(one => one.getBoundingClientRect());
            return a.left >= b.left - 1 && a.right <= b.right + 1; })""",
    )
    assert all(parts)
    accessible(tab)
