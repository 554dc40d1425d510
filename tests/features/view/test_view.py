"""The viewer's page as bytes: put together, packed, sized, escaped; the command that makes it."""

from __future__ import annotations

import base64
import hashlib
import importlib
import itertools
import json
import math
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.features.view.encoding import pack
from attnviz.features.view.page import estimate
from attnviz.models import pretrained
from attnviz.models.controls import FreshConfig
from attnviz.web.page import assemble
from tests.cli.calling import ok
from tests.viewing import data_of, encoder_decoder, made, pair, softmax, words

HOSTILE = (
    "</script><img src=x onerror=window.pwned=1>", "-->", "<!--<script>", "\u202eevil\u202c",
    "\ud800", "\x00", "\u2028", "&lt;b&gt;", "{{script}}", "'\"`${1}", "__proto__",
)  # fmt: skip


def hostile() -> av.Tokens:
    return av.Tokens(HOSTILE)


class Elements(HTMLParser):
    """Every element of a page, and the text of those that hold text only."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data

    def find(self, tag: str, **wanted: str) -> str:
        return next(
            text
            for (name, attributes), text in zip(self.seen, self.texts, strict=True)
            if name == tag and wanted.items() <= attributes.items()
        )


def unpacked(chunk: str, bits: int, shape: tuple[int, ...], causal: bool, tops) -> np.ndarray:
    """Read maps back as the page does, written from the description in quantize.py."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(chunk)), np.uint8).astype(float)
    codes = raw if bits == 8 else 256 * raw[: raw.size // 2] + raw[raw.size // 2 :]
    heads, rows, _ = shape
    out = np.zeros(shape)
    if causal:
        out[:, *np.tril_indices(rows)] = codes.reshape(heads, -1)
    else:
        out[:] = codes.reshape(shape)
    return np.array(tops)[:, None, None] * (out / (2**bits - 1)) ** 2


@pytest.mark.parametrize(("bits", "most"), [(8, 0.0040), (16, 0.000016)])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_weights_come_back(bits: int, most: float, causal: bool) -> None:
    weights = softmax(np.random.default_rng(1), 3, 11, 11, causal)
    weights[1, 4] = 0
    packed = pack(weights, bits)
    assert packed.causal == causal
    back = unpacked(packed.text, bits, weights.shape, causal, packed.tops)
    assert np.abs(back - weights).max() == pytest.approx(packed.error, rel=1e-6)
    assert packed.error <= most
    assert (back[weights == 0] == 0).all()


def test_small_weights_keep_their_relative_size() -> None:
    weights = np.full((1, 2, 256), 0.3 / 254)
    weights[:, :, 0] = 0.7
    packed = pack(weights, 8)
    back = unpacked(packed.text, 8, weights.shape, False, packed.tops)
    assert np.abs(back / weights - 1).max() < 0.1, "a linear code of 8 bits would lose them"


def test_weights_that_cannot_be_shown_are_refused() -> None:
    for bad in (np.nan, np.inf, -0.1):
        with pytest.raises(av.InputError, match="NaN, infinite or negative"):
            pack(np.full((1, 2, 2), bad))
    with pytest.raises(av.UsageError, match="8 or 16 bits, not 4"):
        pack(np.ones((1, 1, 1)), 4)


def test_modules_become_one_script_in_order() -> None:
    script = assemble(
        {
            "main": 'import { twice } from "./b.js";\nconst hidden = twice(2);\nout(hidden);\n',
            "b": 'import { one } from "./a.js";\nconst hidden = 1;\n'
            "export function twice(x) {\n  return x * 2 * one * hidden;\n}\n",
            "a": "export const one = 1;\nexport function* many() {}\n",
            "unused": "boom();\n",
        },
        "main",
    )
    assert script.index("const one") < script.index("function twice") < script.index("out(hidden)")
    assert "import" not in script
    assert "export" not in script
    assert "boom" not in script


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ({"main": 'import { a } from "./b.js";\n', "b": "const a = 1;\n"}, "does not export"),
        ({"main": 'import { a } from "./b.js";\n'}, "not there"),
        (
            {
                "main": 'import { b } from "./b.js";\nexport const a = 1;\n',
                "b": 'import { a } from "./main.js";\nexport const b = 1;\n',
            },
            "circle",
        ),
        ({"main": 'import * as b from "./b.js";\n', "b": "export const a = 1;\n"}, "resolve"),
        ({"main": "export default 1;\n"}, "resolve"),
        ({"main": "export let a = 1;\n"}, "resolve"),
        ({"main": 'const a = "</script>";\n'}, "end the element"),
    ],
)
def test_modules_that_would_change_their_meaning_are_refused(modules, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        assemble(modules, "main")


def test_the_policy_lets_in_its_own_script_and_style_and_nothing_else() -> None:
    elements = Elements(av.view(made()).page.decode())

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    (policy,) = [a["content"] for t, a in elements.seen if "http-equiv" in a and t == "meta"]
    script = next(
        text
        for (tag, attributes), text in zip(elements.seen, elements.texts, strict=True)
        if tag == "script" and not attributes
    )
    assert policy.split("; ") == [
        "default-src 'none'", f"script-src 'sha256-{digest(script)}'",
        f"style-src 'sha256-{digest(elements.find('style'))}'", "base-uri 'none'",
        "form-action 'none'",
    ]  # fmt: skip
    for tag, attributes in elements.seen:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "srcset", "style", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(
        r"\beval\b|innerHTML|outerHTML|insertAdjacent|document\.write|Function\(", script
    )
    assert "://" not in script.replace("http://www.w3.org/2000/svg", "")


def test_hostile_tokens_add_no_element_and_stay_as_texts() -> None:
    plain = Elements(av.view(made(tokens=words(len(HOSTILE)))).page.decode())
    page = av.view(made(tokens=hostile()), title="</title><b>{{data}}").page.decode()
    elements = Elements(page)
    assert [tag for tag, _ in elements.seen] == [tag for tag, _ in plain.seen]
    text = elements.find("script", id="data")
    assert text.isascii()
    assert not set("<>&") & set(text)
    labels = json.loads(text)["items"][0]["axes"][0]["labels"]
    assert labels[0] == HOSTILE[0]
    assert labels[3:7] == ["<U+202E>evil<U+202C>", "<U+D800>", "␀", "<U+2028>"]


def test_the_data_holds_scores_words_and_maps() -> None:
    capture = pair()
    elements = Elements(av.view(capture, bits=16).page.decode())
    data = data_of(av.view(capture, bits=16).page)
    (item,) = data["items"]
    assert item["label"] == "a keyboard. | it fells"
    (axis,) = item["axes"]
    assert axis["words"] == ["[CLS]", "a", "keyboard", ".", "[SEP]", "it", "fells", "[SEP]"]
    (kind,) = item["kinds"]
    names = [score["name"] for score in data["scores"]]
    for site, head in ((0, 2), (1, 0)):
        entry = kind["sites"][site]
        back = unpacked(
            elements.find("script", id=f"maps-{entry['chunk']}"),
            16,
            (3, 10, 10),
            False,
            [one["top"] for one in entry["heads"]],
        )
        where = av.Head(av.Site("encoder", site), head)
        np.testing.assert_allclose(back[head], capture[where], atol=2e-5)
        (scored,) = [h for h in av.heads(capture).heads if h.head == where]
        for name, (mean, chance, lift, rows) in zip(
            names, entry["heads"][head]["scores"], strict=True
        ):
            score = scored.scores[name]
            assert rows == score.rows
            for shown, exact in ((mean, score.mean), (chance, score.chance), (lift, score.lift)):
                assert shown == (None if exact is None else pytest.approx(exact, rel=1e-4))


SCRIPTS = "שלום עולם, 猫が好き 🚀 didn't"


def test_what_was_typed_is_the_title_and_words_are_spelled_out() -> None:
    """A byte-level vocabulary cuts every one of these characters into pieces."""
    capture = av.capture(SCRIPTS)
    (item,) = data_of(av.view(capture).page)["items"]
    assert "<D7>" in item["axes"][0]["labels"]
    assert item["label"] == item["text"] == SCRIPTS
    words = item["axes"][0]["words"]
    assert words == ["<|endoftext|>", "שלום", "עולם", ",", "猫が好き", "🚀", "didn't"]
    untyped = replace(capture, inputs=replace(capture.inputs, texts=()))
    (item,) = data_of(av.view(untyped).page)["items"]
    assert item["label"] == SCRIPTS


def test_a_title_is_as_typed_and_not_as_the_vocabulary_has_it(minilm: str) -> None:
    capture = av.capture("The Keys ☃ didn't", model=minilm, pair="Yes")
    (item,) = data_of(av.view(capture).page)["items"]
    assert item["label"] == "The Keys ☃ didn't | Yes"
    assert item["axes"][0]["words"] == [
        "[CLS]", "the", "keys", "[UNK] ☃", "didn't", "[SEP]", "yes", "[SEP]",
    ]  # fmt: skip


def test_a_selection_carries_only_its_heads() -> None:
    (item,) = data_of(av.view(encoder_decoder(), select="cross:1.*, enc:0.2").page)["items"]
    found = {
        kind["kind"]: {s["layer"]: [h["index"] for h in s["heads"]] for s in kind["sites"]}
        for kind in item["kinds"]
    }
    assert found == {"encoder": {0: [2]}, "cross": {1: [0, 1]}}
    part = av.capture("a b c", model=av.FreshConfig(layers=2), select="0.*")
    with pytest.raises(av.SelectionError, match="holds no map of 1"):
        av.view(part, select="1.*")


@pytest.mark.parametrize(("tokens", "most"), [(64, 1.52e6), (128, 5e6), (256, 16e6)])
def test_pages_of_12_layers_of_12_heads_stay_small(tokens: int, most: float) -> None:
    """Random weights hardly deflate, so real ones take less."""
    capture = made(12, 12, words(tokens))
    chosen = [frozenset(capture.layout)]
    size = estimate([capture], chosen)
    assert size <= most
    if tokens == 64:
        real = len(av.view(capture, bits=8).page)
        assert 0.7 * size < real <= 1.05 * size
        assert estimate([made(12, 12, words(tokens), causal=True)], chosen) < 0.7 * size


def test_a_page_that_is_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(av.UsageError, match=r"and 0\.1 MB is the limit; select fewer heads"):
        av.view(made(8, 8, words(64)), max_mb=0.1)
    with pytest.raises(av.UsageError, match="at least one text or capture"):
        av.view([])


@pytest.mark.parametrize("limit", [math.nan, 0.0, -1.0])
def test_a_limit_that_is_none_is_refused(limit: float) -> None:
    with pytest.raises(av.UsageError, match=r"max_mb"):
        av.view("a b", max_mb=limit)


def test_many_texts_are_refused_before_any_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not even all of them are read, however many there are."""
    source = av.load(FreshConfig(d_model=16, heads=4, layers=2))
    monkeypatch.setattr(type(source), "forward", lambda *given, **options: pytest.fail("it runs"))
    read = []
    texts = (read.append(1) or "a b c d" for _ in itertools.count())
    with pytest.raises(av.UsageError, match=r"1\.0 MB or more, and 1 MB is the limit"):
        av.view(texts, model=source, max_mb=1)
    assert 100 < len(read) < 1e6 / (8 * 900)
    with pytest.raises(av.UsageError, match="is the limit"):
        av.view("a " * 2000, model=source, max_mb=1)


def test_saving_and_showing(tmp_path: Path) -> None:
    view = av.view(made(1, 1, words(2)), title="T & <U>")
    assert view.save(tmp_path / "p.html").read_bytes() == view.page
    assert "T & <U>" in repr(view)
    frame = Elements(view._repr_html_())
    assert [tag for tag, _ in frame.seen] == ["iframe"]
    assert frame.seen[0][1]["srcdoc"] == view.page.decode()
    with pytest.raises(av.UsageError, match=r"name the file \.html"):
        view.save(tmp_path / "p.png")


def test_command(tmp_path: Path, capsys) -> None:
    out = tmp_path / "page.html"
    sizes = ["-m", "fresh", "--layers", "2", "--heads", "4"]
    printed = ok(capsys, "view", "a b c a b", *sizes, "-o", str(out))
    assert f"wrote {out}" in printed.replace("\n", "")
    (item,) = data_of(out.read_bytes())["items"]
    assert item["label"] == "a b c a b"
    assert [len(site["heads"]) for site in item["kinds"][0]["sites"]] == [4, 4]


def test_command_makes_a_picker_of_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one two\n\n  \nthree four five\n", "utf-8")
    out = tmp_path / "page.html"
    lines = str(tmp_path / "t.txt")
    assert main(["view", "--texts", lines, "-s", "0.1", "-o", str(out), "-q"]) == 0
    items = data_of(out.read_bytes())["items"]
    assert [item["label"] for item in items] == ["one two", "three four five"]
    assert [h["index"] for h in items[1]["kinds"][0]["sites"][0]["heads"]] == [1]


def test_command_shows_recorded_attention(tmp_path: Path) -> None:
    av.write_capture(encoder_decoder(), tmp_path / "c.npz")
    out = tmp_path / "page.html"
    arguments = [
        "view", "--recorded", str(tmp_path / "c.npz"), "--bits", "16", "-o", str(out), "-q",
    ]  # fmt: skip
    assert main([*arguments, "--title", "mine"]) == 0
    data = data_of(out.read_bytes())
    assert (data["bits"], data["title"]) == (16, "mine")
    assert [kind["kind"] for kind in data["items"][0]["kinds"]] == ["encoder", "decoder", "cross"]


def test_command_without_a_file_opens_the_browser(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("attnviz.cli.output.open_page", lambda page: opened.append(page) or True)
    assert main(["view", "a b", "-q"]) == 0
    (path,) = opened
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    assert b"<!doctype html>" in path.read_bytes()[:20]
    path.unlink()


def test_large_pages_are_announced(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("attnviz.features.view.command"), "LARGE_PAGE", 1e4)
    assert main(["view", "a b", "-o", str(tmp_path / "p.html")]) == 0
    assert "--select makes it small" in capsys.readouterr().err.replace("\n", " ")


def _lead(text: str, **options: Any) -> dict[str, Any]:
    """What a page says first, and of which head."""
    (kind,) = data_of(av.view(text, **options).page)["items"][0]["kinds"]
    return {"head": kind["opening"], **kind["see"]}


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert"])
def test_the_first_sentence_carries_the_doubt_of_its_head(model: str) -> None:
    short = "The cat sat. The cat" if model == "demo-gpt2" else "The cat sat."
    for text in (short, f"{short} Then it went home, since it was dark and the cat was tired."):
        see = _lead(text, model=model)
        scored = next(
            one for one in av.heads(text, model=model).heads if one.head.name == see["head"]
        )
        does = [role for role in scored.roles if not role.rests] or list(scored.roles)
        role = max(does, key=lambda one: one.evidence.lift or 0.0)
        assert f"{role.evidence.rows} rows" in see["doubt"]
        assert "the clearest of 24 heads" in see["doubt"]
        assert (see["hedge"], "too few to tell" in see["doubt"]) == (
            ("perhaps ", True) if role.few_rows else ("", False)
        )
        assert role.few_rows == (text == short)


def test_of_random_weights_nothing_is_claimed() -> None:
    see = _lead(
        "a b c d a b c d a b c d a b c d",
        model=FreshConfig(heads=8, layers=4, causal=True, d_model=32),
    )
    assert see["hedge"] == "by chance "
    said = "the weights are random, nothing was learned; it is the clearest of 32 heads"
    assert see["doubt"] == said
    assert pretrained.load("demo-gpt2", untrained=0).info.untrained
    assert not pretrained.load("demo-gpt2").info.untrained
