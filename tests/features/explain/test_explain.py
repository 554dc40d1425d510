"""An explanation says what the commands find one by one; and what it shows of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from rich.console import Console

import attnviz as av
from attnviz.captures.trials import one_token
from attnviz.cli import main
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.explain import terminal
from attnviz.features.explain.result import Explanation
from attnviz.features.explain.words import PROVES_NOT, key, sentences, without
from tests.viewing import opened

transformers = pytest.importorskip("transformers")

TEXT = "Mary gave the old blue clock to Peter, and later Mary gave the old blue"


@pytest.fixture(scope="module")
def found() -> Explanation:
    return av.explain(TEXT)


@pytest.fixture(scope="module")
def masked() -> Explanation:
    return av.explain("The cat sat on the [MASK].", model="demo-bert", count=2)


def test_the_difference_is_that_of_transformers(found: Explanation) -> None:
    folder = Path(av.__file__).parent / "models" / "demo" / "demo-gpt2"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    ids = av.load("demo-gpt2").prepare(av.Prompt(TEXT)).sides["decoder"].queries.ids
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    answer, against = found.word(found.answer), found.word(found.against)
    assert [answer.id, against.id] == logits.topk(2).indices.tolist()
    assert found.difference == pytest.approx(
        float(logits.topk(2).values @ torch.tensor([1.0, -1.0], dtype=torch.float64)), abs=1e-4
    )
    assert answer.probability == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)
    assert sum(part.value for part in found.parts) == pytest.approx(found.difference, abs=1e-4)


def test_every_part_is_what_a_command_says(found: Explanation) -> None:
    votes = av.logits(TEXT, token="clock", against=found.against)
    assert [(one.head, one.value) for one in found.heads] == [
        (vote.head, pytest.approx(vote.value)) for vote in votes.votes[:3]
    ]
    capture = av.capture(TEXT)
    for one in found.heads:
        whole = capture[one.head]
        assert list(one.weights) == pytest.approx(whole[found.position].tolist(), abs=1e-6)
        assert [row[0] for row in one.map] == [round(1000 * float(w)) for w in whole[:, 0]]
        assert one.map[0][1:] == (-1,) * (len(found.tokens) - 1)
        assert one.found is not None
        name = found.layout.name(one.head)
        split = av.sources(TEXT, name, found.position, key=one.key, against="mean")
        assert one.found.origins == split.side("key")
        assert one.found.contrast == pytest.approx(split.score)
    names = [found.layout.name(one.head) for one in found.heads]
    assert [effect.name for effect in found.effects][:4] == [*names, "+".join(names)]
    one = av.ablate(
        TEXT, heads=names[1], metric="logit-diff", answer="clock", against=found.against
    )
    assert found.effect(names[1]).by == one.effects[0].by


def test_it_tells_the_induction_circuit(found: Explanation) -> None:
    """Heads that copy *clock* find it through 1.4, which reads the token before it."""
    assert found.answer == " clock"
    copying = [one for one in found.heads if found.tokens[one.key] == " clock"]
    assert len(copying) >= 2
    for one in copying:
        assert one.raises[0] == " clock"
        assert one.found is not None
        assert one.found.lead is not None
        assert found.layout.name(one.found.lead) == "1.4"
        assert one.found.reads is not None
        assert one.found.reads.token == " blue"
        told = key(found, one)
        assert told is not None
        assert "1.4 itself reads there ·blue (6)" in told.said
    assert all(change.change < -1 for change in found.effect("1.4").by)
    assert ": ·garden is ahead" in without(found, found.effect("1.4")).said


def test_heads_are_found_by_ablation_where_logits_are_no_sum(masked: Explanation) -> None:
    assert masked.masked
    assert masked.parts == ()
    assert "normalizes the sum" in masked.reason
    every = av.ablate(
        "The cat sat on the [MASK].", model="demo-bert", heads="*.*", metric="logit-diff",
        answer=masked.answer, against=masked.against,
    )  # fmt: skip
    assert [one.head for one in masked.heads] == [effect.heads[0] for effect in every.ranked()[:2]]
    assert all(one.value is None and one.found is not None for one in masked.heads)


def test_a_word_that_did_not_win_is_compared_with_what_did() -> None:
    found = av.explain(TEXT, answer="garden", count=1)
    assert (found.answer, found.against) == (" garden", " clock")
    assert found.difference < 0
    assert "behind" in next(iter(sentences(found))).said
    assert found.heads[0].value is not None


def test_a_token_by_its_id() -> None:
    source = av.load("demo-gpt2")
    assert one_token(source, "#26") == 26
    with pytest.raises(InputError, match="only one token"):
        one_token(source, "#99999999")


def test_files(found: Explanation, masked: Explanation, tmp_path: Path) -> None:
    for number, one in enumerate((found, masked)):
        assert av.read(one.save(tmp_path / f"{number}.json")) == one
        jsonschema.validate(one.to_dict(), Explanation.json_schema())
        for suffix in ("png", "svg", "pdf", "html", "csv"):
            assert one.to_bytes(suffix)
    rows = found.to_records()
    assert len(rows) == 2 * len(found.effects)
    assert rows[0]["without"] == pytest.approx(found.difference + rows[0]["change"])


@pytest.mark.parametrize("color", [None, "truecolor"])
def test_every_sentence_is_on_the_terminal(
    found: Explanation, masked: Explanation, color: Any
) -> None:
    for one in (found, masked):
        out = io.StringIO()
        console = Console(file=out, width=400, color_system=None, markup=False)
        for part in terminal.parts(one):
            console.print(part)
        for sentence in sentences(one):
            assert sentence.said in out.getvalue()
        assert all(limit in out.getvalue() for limit in PROVES_NOT)
    coloured = Console(file=io.StringIO(), width=60, color_system=color, force_terminal=True)
    coloured.print(*terminal.parts(found))


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    assert main(["explain", "The king slept and the", "--count", "1", "-o", str(page)]) == 0
    said = capsys.readouterr().out
    assert "What none of this proves" in said
    assert page.stat().st_size > 10_000
    assert main(["explain", "a b", "--json", "--csv"]) == 2
    assert main(["explain", "a b", "-o", "x.txt"]) == 2


def test_what_is_refused(minilm: str) -> None:
    with pytest.raises(ModelError, match="predicts no words"):
        av.explain("A cat.", model=minilm)
    with pytest.raises(UsageError, match="recorded attention predicts nothing"):
        av.explain(av.capture("A cat."))
    with pytest.raises(UsageError, match="at least 1"):
        av.explain("A cat.", count=0)
    with pytest.raises(InputError, match="no mask"):
        av.explain("A cat.", model="demo-bert")


def test_the_page(found: Explanation, browser: Any, tmp_path: Path) -> None:
    path = found.save(tmp_path / "why.html")
    for width, scheme in ((1440, "light"), (360, "dark")):
        with opened(browser, viewport={"width": width, "height": 800}, color_scheme=scheme) as seen:
            seen.page.goto(path.as_uri())
            seen.documents.add(path.as_uri())
            for sentence in sentences(found):
                assert sentence.said in seen.text("main")
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
            chosen = seen.page.locator(".card").nth(1)
            assert "·clock (7): weight 0.96" in chosen.inner_text()
            chosen.locator(".tokens button").first.click()
            assert "<|endoftext|> (0): weight 0.0" in chosen.inner_text()
            bars = seen.page.locator("#without table tr")
            assert bars.count() == 1 + 2 * len(found.effects)
            first = found.difference + found.effects[0].by[0].change
            assert f"{first:.3g}" in bars.nth(1).inner_text()
