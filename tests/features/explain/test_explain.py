"""An explanation against what the commands say one by one; its forms; what is refused."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz as av
from attnviz.captures.loading import light
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.reasons import Origin
from attnviz.drawing.grid import minus, signed
from attnviz.drawing.labels import visible
from attnviz.drawing.renderable import printed
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.ablation import fills
from attnviz.features.explain.description import headline
from attnviz.features.explain.function import _feeder
from attnviz.features.explain.result import Explain
from attnviz.features.sources.result import SideSum
from attnviz.models.demo import DEMOS
from tests.models import tiny
from tests.repeated import REPEATED
from tests.viewing import opened

pytestmark = pytest.mark.usefixtures("remembering")
TEXT = "the cat river moon stone bread the cat river moon stone"


@pytest.fixture(scope="module", autouse=True)
def _few_sentences() -> Iterator[None]:
    """Heads are filled with their mean over 12 sentences of attnviz, not 48: half of the time."""
    some = fills.sentences()[:12]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fills, "sentences", lambda: some)
        yield


@pytest.fixture(scope="module")
def found(gpt2: Any) -> Explain:
    return av.explain(TEXT, model=gpt2)


@pytest.fixture(scope="module")
def bert() -> Explain:
    return av.explain("The cat sat on the [MASK].", model="demo-bert")


@pytest.fixture(scope="module")
def drawn(found: Explain, bert: Explain) -> list[tuple[Explain, str]]:
    """Both, and their pictures."""
    return [(one, one.to_bytes("svg").decode()) for one in (found, bert)]


def names(found: Explain) -> list[str]:
    return [found.layout.name(one.head) for one in found.heads]


def pair_of(one: Explain) -> dict[str, str]:
    """The answer and the other word, by their ids."""
    words = {"answer": one.answer, "against": one.against}
    return {name: f"#{one.prediction(word).id}" for name, word in words.items()}


def ablated(one: Explain, model: Any, text: str = TEXT, **options: Any) -> Any:
    options = {"select": "*.*", "method": "mean"} | options
    return av.ablate(text, model=model, metric="logit-diff", **pair_of(one), **options)


def test_heads_that_count_are_those_whose_ablation_costs_most(gpt2: Any, found: Explain) -> None:
    first, second = av.logits(TEXT, model=gpt2).predictions[:2]
    assert (found.answer, found.against) == (first.token, second.token)
    every = ablated(found, gpt2).ranked()
    assert names(found) == [effect.name for effect in every[:3]] == ["0.5", "1.4", "2.0"]
    assert found.candidates == tuple(gpt2.layout)
    values = av.logits(TEXT, model=gpt2, **pair_of(found)).heads()
    ranked = sorted(values, key=lambda head: -values[head])
    assert found.voters == tuple(ranked[:3])
    assert [one.head for one in found.beside] == [h for h in ranked[:3] if h not in {
        one.head for one in found.heads}]  # fmt: skip
    assert found.negative.head == ranked[-1]
    assert [one.vote for one in found.shown_heads] == pytest.approx(
        [values[one.head] for one in found.shown_heads]
    )
    assert found.logit == pytest.approx(first.logit, abs=1e-4)
    assert found.lead == pytest.approx(first.logit - second.logit, abs=1e-4)


def test_the_account_is_of_the_whole(found: Explain, drawn: Any, tmp_path: Path) -> None:
    """The heads add 2.0 of the 6.9, and MLP 3 5.5: no form says less."""
    account = dict(found.account())
    assert [*account] == ["embedding", "heads", "MLP 0", "MLP 1", "MLP 2", "MLP 3", "bias"]
    assert sum(account.values()) == pytest.approx(found.lead, abs=1e-3)
    assert account["heads"] == pytest.approx(sum(found.votes().values()), abs=1e-6)
    assert account["MLP 3"] == pytest.approx(5.53, abs=0.01)
    text = " ".join(printed(*found.for_terminal(everything=True)).split())
    told = "MLP 3 +5.53; the heads +2.04 together, most of it 3.3, 3.0 and 2.0; all else -0.67"
    assert told in text
    head = "MLP 3 adds +5.53, the heads +2.04 together, most of it 3.3, 3.0 and 2.0; without 0.5"
    page = found.save(tmp_path / "a.html").read_text("utf-8")
    assert minus(head) in page
    assert "MLP 3 +5.53" in drawn[0][1]
    rows = {row["part"]: row["adds"] for row in found.to_records() if row["part"] in account}
    assert rows == pytest.approx(account)


def test_what_an_mlp_gets_from_heads_is_that_of_an_independent_model(found: Explain) -> None:
    """In float64, by transformers' own MLP: what it reads, less what heads wrote, plus the mean."""
    model = transformers.GPT2LMHeadModel.from_pretrained(
        DEMOS["demo-gpt2"], dtype=torch.float64, attn_implementation="eager"
    ).eval()
    source = light(av.load("demo-gpt2"))
    inputs = source.prepare(Prompt(TEXT))
    blocks, kept = model.transformer.h, {}

    def run(ids: Any) -> dict[str, Any]:
        with torch.no_grad():
            model(torch.tensor([list(ids)]))
        return dict(kept)

    for n, block in enumerate(blocks):
        block.attn.c_proj.register_forward_pre_hook(
            lambda _, given, n=n: kept.__setitem__(f"z{n}", given[0][0])
        )
        block.ln_2.register_forward_pre_hook(
            lambda _, given, n=n: kept.__setitem__(f"x{n}", given[0][0])
        )
    model.transformer.ln_f.register_forward_pre_hook(
        lambda _, given: kept.__setitem__("end", given[0][0])
    )
    ids = inputs.sides["decoder"].queries.ids
    bundled = fills.bundled(source, inputs)
    others = [run(one.sides["decoder"].queries.ids) for one in bundled]
    own = run(ids)
    end, norm = own["end"][-1], model.transformer.ln_f
    spread = (end.var(unbiased=False) + norm.eps).sqrt()
    pair = [found.prediction(word).id for word in (found.answer, found.against)]
    ahead = norm.weight * (model.lm_head.weight[pair[0]] - model.lm_head.weight[pair[1]])
    toward = (ahead - ahead.mean()) / spread
    share, layer, at = found.mlps[0], found.mlps[0].layer, len(ids) - 1
    width = own["z0"].shape[1] // 6

    def wrote(head: Head, z: Any) -> Any:
        mine = slice(head.index * width, (head.index + 1) * width)
        return z[mine] @ blocks[head.layer].attn.c_proj.weight[mine]

    def reads(heads: Any) -> Any:
        x = own[f"x{layer}"][at]
        for head in heads:
            means = torch.stack([o[f"z{head.layer}"][at] for o in others if len(o["z0"]) > at])
            x = x - wrote(head, own[f"z{head.layer}"][at]) + wrote(head, means.mean(0))
        return blocks[layer].mlp(blocks[layer].ln_2(x)[None])[0] @ toward

    with torch.no_grad():
        whole = float(reads([]))
        assert share.value == pytest.approx(whole, abs=1e-4)
        for edge in share.by_head:
            assert edge.value == pytest.approx(whole - float(reads([edge.head])), abs=2e-4)
        together = whole - float(reads(found.voters))
    assert share.together == pytest.approx(together, abs=2e-4)
    assert together == pytest.approx(4.54, abs=0.01)
    names_of = [found.layout.name(edge.head) for edge in share.feeders()]
    assert names_of == ["3.4", "3.2", "3.3"]
    said = "Of MLP 3's +5.53, +4.54 comes through 3.3, 3.0 and 2.0 together; alone most through"
    assert f"{said} 3.4 (+3.3), 3.2 (+3.1) and 3.3 (+1.6)" in " ".join(str(found).split())


def test_where_heads_add_next_to_nothing_the_headline_says_so(gpt2: Any) -> None:
    told = av.explain("Who took the key?", model=gpt2)
    assert abs(told.by_heads) < told.lead / 10
    assert "By themselves the heads hardly matter here" in headline(told)
    assert not told.idle
    assert "yet without 1.5, 2.5 and 0.4 it changes by" in headline(told)


def test_where_ablation_moves_nothing_the_headline_says_so(found: Explain, bert: Explain) -> None:
    """Less than the smallest effect of interest, of a model of either kind."""
    for one in (found, bert):
        small = tuple(replace(c, change=-0.5 * one.smallest) for c in one.together.by)
        idle = replace(one, together=replace(one.together, by=small))
        assert idle.idle
        assert headline(idle).startswith("The heads hardly matter here: ")
        assert "hardly" in " ".join(str(idle).split())
        assert not one.idle
        assert "hardly" not in headline(one)


def test_a_large_model_has_candidates_by_vote_and_by_gradient() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=8192, n_positions=64, n_embd=100, n_layer=2, n_head=25,
        initializer_range=0.3, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
    model = av.load(transformers.GPT2LMHeadModel(config).eval(), tokenizer=tokenizer)
    told = av.explain(TEXT, model=model)
    votes = told.votes()
    most = sorted(votes, key=lambda head: -votes[head])[:8]
    assert set(most) <= set(told.candidates)
    assert 8 < len(told.candidates) <= 16
    every = ablated(told, model, estimate="plain")
    slopes = {effect.heads[0]: effect.signed for effect in every.effects}
    assert set(sorted(slopes, key=lambda head: -slopes[head])[:8]) <= set(told.candidates)
    ranked = [e.heads[0] for e in every.ranked() if e.heads[0] in told.candidates]
    assert [one.head for one in told.heads] == ranked[: len(told.heads)]
    text = " ".join(printed(*told.for_terminal(everything=True)).split())
    assert "of 50 heads with the largest votes and gradients" in text


PROMPTS = ("stone stone stone stone", "the cat sat on the mat and the cat")


@pytest.mark.parametrize("text", PROMPTS)
def test_no_head_that_is_said_to_vote_for_a_word_adds_less_than_nothing(
    gpt2: Any, text: str
) -> None:
    told = av.explain(text, model=gpt2)
    votes = told.votes()
    assert all(votes[head] > 0 for head in told.voters)
    assert told.negative is None or told.negative.vote < 0
    text = printed(*told.for_terminal(everything=True))
    assert "votes add most through" not in text or max(v for _, v in told.through_tokens()) > 0
    assert sum(value for _, value in told.account()) == pytest.approx(told.lead, abs=1e-3)


def test_a_word_that_is_behind_is_not_said_to_be_said(
    gpt2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words that are asked for are those of the model, however they are typed."""
    given, ran = fills.given, []
    monkeypatch.setattr(fills, "given", lambda *rest: ran.append(1) or given(*rest))
    told = av.explain(TEXT, model=gpt2, answer="stone", against="moon")
    assert (told.answer, told.against) == (" stone", " moon")
    pair = av.logits(TEXT, model=gpt2, answer="moon", against="stone")
    assert told.lead == pytest.approx(-pair.logit, abs=1e-5)
    assert told.lead < 0
    assert "votes for" in str(told).splitlines()[0]
    assert f"lies {-told.lead:.2f} logits behind" in " ".join(str(told).split())
    second = av.explain(TEXT, model=gpt2, answer="moon", against="stone")
    assert second.prediction(" moon").rank > 1
    assert " rank " in str(second).splitlines()[0]
    assert ran == [1, 1]  # what fills heads is worked out once an explanation


def test_keys_whose_sources_cancel_feed_no_finding() -> None:
    def key(origin: Origin, share: float) -> SideSum:
        return SideSum(origin, share, share)

    head = Head(Site("decoder", 1), 2)
    mlp, wrote = Origin("mlp", layer=head.site), Origin("head", head)
    assert _feeder([[key(wrote, 0.71), key(mlp, 0.2)], [key(mlp, 1.0)]]) == head
    assert _feeder([[key(mlp, -2.67), key(wrote, 0.71)]]) is None


def test_maps_keys_and_losses_are_those_of_the_commands(gpt2: Any, found: Explain) -> None:
    capture = av.capture(TEXT, model=gpt2)
    shown = [found.layout.name(one.head) for one in found.shown_heads]
    group = [*shown, "+".join(names(found)), found.feeder.name]
    report = ablated(found, gpt2, select=", ".join(group), method="mean, resample")
    effects = {one.name: one for one in report.effects}
    for one, name in zip(found.shown_heads, shown, strict=True):
        row = np.asarray(capture[name])[found.position]
        assert one.weights == pytest.approx(row.tolist(), abs=1e-6)
        assert one.position == int(row.argmax())
        assert np.abs(np.array(one.map).clip(0) / 1000 - np.asarray(capture[name])).max() < 6e-4
        sources = av.sources(TEXT, select=name, query=found.position, other_key="mean", model=gpt2)
        assert sources.key == one.position
        assert [key.value for key in one.keys] == pytest.approx(
            [key.value for key in sources.side("key")[:5]]
        )
        assert [c.change for c in one.effect.by] == pytest.approx(
            [c.change for c in effects[name].by], abs=1e-5
        )
    assert found.together.change == pytest.approx(effects[found.together.name].change, abs=1e-5)
    assert found.feeder.change == pytest.approx(effects[found.feeder.name].change, abs=1e-5)


def test_it_tells_the_induction_circuit(gpt2: Any, found: Explain) -> None:
    """Where a model repeats, heads look behind the same token, by keys that another head wrote."""
    repeated = 0
    for text in (TEXT, *(one.rsplit(" ", 1)[0] for one in REPEATED[:2])):
        tokens = av.logits(text, model=gpt2).tokens
        before = tokens.index(tokens[-1])
        if av.logits(text, model=gpt2).token != tokens[before + 1]:
            continue
        found = found if text == TEXT else av.explain(text, model=gpt2)
        looks = {one.head: one.position for one in found.shown_heads}
        assert looks[found.voters[0]] == before + 1
        assert sum(looks[head] == before + 1 for head in found.voters) >= 2
        assert found.layout.name(found.feeder.heads[0]) == "1.4"
        assert "1.4" in names(found)
        assert found.feeder.change < -0.5 * found.lead
        repeated += 1
    assert repeated == 1 + 1


def test_of_ten_sentences_that_repeat_themselves_eight_end_as_docs_say(gpt2: Any) -> None:
    asked = [one.rstrip(".").rsplit(" ", 1) for one in REPEATED]
    said = [av.logits(text, model=gpt2).token.strip() == word for text, word in asked]
    assert (sum(said), len(said)) == (8, 10)


def test_a_masked_model_is_explained_by_ablation(bert: Explain) -> None:
    assert bert.reason
    assert not bert.parts
    assert not bert.account()
    assert (bert.voters, bert.mlps, bert.by_heads) == ((), (), None)
    assert all(one.vote is None for one in bert.heads)
    every = ablated(bert, "demo-bert", "The cat sat on the [MASK].")
    assert names(bert) == [one.name for one in every.ranked()[:3]]
    assert all(one.change < 0 for one in every.ranked()[:3])


def test_what_is_printed_and_rows(found: Explain, bert: Explain) -> None:
    for one in (found, bert):
        text = printed(*one.for_terminal(everything=True))
        assert all(name in text for name in names(one))
        assert "What none of it proves" in text
        assert max(map(len, text.splitlines())) <= 100
        assert one.to_records()[0]["without_mean"] == one.heads[0].effect.change


def test_the_picture_says_what_was_found(drawn: Any) -> None:
    for one, picture in drawn:
        svg = " ".join(re.findall(r">([^<>]+)</text>", picture))
        for head in one.shown_heads:
            assert f"head {one.layout.name(head.head)}" in svg
            for key in head.keys:
                assert f"{key.origin.name(one.layout)}" in svg
                assert f"{100 * key.share:.0f} %" in svg
            for change in head.effect.by:
                assert f"{signed(change.change)} ({change.method})" in svg
        for word in one.predictions:
            assert visible(word.token) in svg
        for vote in one.votes().values():
            assert signed(vote) in svg


def test_a_text_that_is_too_long_for_maps_is_drawn_without(found: Explain) -> None:
    heads = tuple(replace(one, map=(), keys=(), reason="why") for one in found.heads)
    svg = (
        replace(found, heads=heads, beside=(), negative=None, feeder=None).to_bytes("svg").decode()
    )
    assert "cannot be told" in svg
    assert "<image" not in svg


def test_the_page_saves_what_it_shows(found: Explain, tmp_path: Path, browser: Any) -> None:
    path = found.save(tmp_path / "page.html")
    with opened(browser, color_scheme="light") as tab:
        tab.open(path)
        saved = {suffix: tab.downloaded(suffix) for suffix in ("png", "svg", "csv")}
    assert saved["png"][:4] == b"\x89PNG"
    words = re.findall(r"<text[^>]*>([^<>]+)</text>", saved["svg"].decode())
    assert [one for one in words if one.startswith("head ")] == [
        f"head {found.layout.name(one.head)}: vote {minus(signed(one.vote))}"
        for one in found.shown_heads
    ]
    lines = list(csv.DictReader(io.StringIO(saved["csv"].decode())))
    assert [float(line["without_mean"]) for line in lines if line["without_mean"]] == [
        row["without_mean"] for row in found.to_records() if row["without_mean"] is not None
    ]


def test_what_is_refused(minilm: str, gpt2: Any) -> None:
    with pytest.raises(ModelError, match="predicts no words"):
        av.explain("A cat.", model=minilm)
    with pytest.raises(InputError, match="with one mask"):
        av.explain("A [MASK] sat on a [MASK].", model="demo-bert")
    with pytest.raises(UsageError, match="recorded attention predicts nothing"):
        av.explain(dataclasses.replace(av.capture("A cat.", model=gpt2), asked=None))


@pytest.mark.parametrize("theme", ["dark", pytest.param("light", marks=pytest.mark.slow)])
def test_the_page(found: Explain, bert: Explain, tmp_path: Path, browser: Any, theme: Any) -> None:
    paths = [one.save(tmp_path / f"{n}.html") for n, one in enumerate((found, bert))]
    with opened(browser, color_scheme=theme, viewport={"width": 360, "height": 740}) as tab:
        for path, one in zip(paths, (found, bert), strict=True):
            tab.open(path)
            titles = tab.all("#heads h2")
            shown = [one.layout.name(head.head) for head in one.shown_heads]
            assert [title.split()[1].rstrip(":") for title in titles] == shown
            assert tab.all("#heads h3:first-of-type") == [
                f"it looks most at {one.tokens[h.position].replace(' ', '·')} ({h.position}) "
                f"{100 * h.weights[h.position]:.0f} %"
                for h in one.shown_heads
            ]
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert not tab.page.is_visible("#by-head")


@pytest.mark.parametrize("text", ["The keys to the cabinet", "In the morning"])
def test_the_other_word_is_the_second_most_probable(gpt2: Any, text: str) -> None:
    """Also where it is a full stop or a comma, which alone may be read as another token."""
    model = transformers.GPT2LMHeadModel.from_pretrained(
        DEMOS["demo-gpt2"], dtype=torch.float32
    ).eval()
    ids = gpt2.prepare(Prompt(text)).sides["decoder"].queries.ids
    with torch.no_grad():
        first, second = model(torch.tensor([ids])).logits[0, -1].topk(2)[0].tolist()
    found = av.explain(text, model=gpt2)
    assert found.prediction(found.against).rank == 2
    assert found.lead == pytest.approx(first - second, abs=1e-4)
    report = ablated(found, gpt2, text, select="+".join(names(found)))
    assert report.base == pytest.approx(found.lead, abs=1e-4)
    assert report.effects[0].first.change == pytest.approx(found.together.first.change, abs=1e-5)


def test_a_model_that_reads_no_sentences_is_refused_without_remedies_of_ablate(
    tmp_path: Path,
) -> None:
    tiny.build("t5", tmp_path)  # it has no tokenizer
    with pytest.raises(UsageError, match="which this model cannot read; attnviz ablate fills them"):
        av.explain(Prompt(ids=tiny.SHORT), model=str(tmp_path))


def test_heads_of_an_encoder_and_between_stacks_have_the_encoders_tokens(tmp_path: Path) -> None:
    """Weights, maps and words against eager transformers; the page and the picture take them."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=8192, decoder_start_token_id=0, **sizes)
    model = transformers.T5ForConditionalGeneration(config).eval()
    for block in model.decoder.block:  # so that the decoder's own heads do not count
        block.layer[0].SelfAttention.o.weight.data.zero_()
    model.save_pretrained(tmp_path / "t5")
    for file in DEMOS["demo-gpt2"].glob("tokenizer*"):
        (tmp_path / "t5" / file.name).write_bytes(file.read_bytes())
    prompt = Prompt("the cat river moon stone bread", target="the cat sat")
    t5 = av.load(str(tmp_path / "t5"))
    found = av.explain(prompt, model=t5)
    sides = av.capture(prompt, model=t5).inputs.sides["cross"]
    text, target = sides.keys.ids, sides.queries.ids
    model.set_attn_implementation("eager")
    with torch.no_grad():
        passed = model(
            input_ids=torch.tensor([text]), decoder_input_ids=torch.tensor([target]),
            output_attentions=True,
        )  # fmt: skip
    maps = {"enc": passed.encoder_attentions, "cross": passed.cross_attentions,
            "dec": passed.decoder_attentions}  # fmt: skip
    kinds = set()
    for head in found.shown_heads:
        kind, place = found.layout.name(head.head).split(":")
        kinds.add(kind)
        weights = maps[kind][head.head.layer][0, head.head.index].numpy()
        row = weights.mean(0) if kind == "enc" else weights[-1]
        assert head.weights == pytest.approx(row, abs=1e-6), place
        keys = sides.queries if kind == "dec" else sides.keys
        assert head.tokens == keys.texts
        assert head.query == (None if kind == "enc" else len(target) - 1)
        allowed = np.tri(*weights.shape, dtype=bool) | (kind != "dec")
        assert ((np.array(head.map) == -2) == ~allowed).all()
    assert {"enc", "cross"} <= kinds
    for form in (found.save(tmp_path / "x.svg"), found.save(tmp_path / "x.html")):
        assert form.stat().st_size > 10_000
    assert Explain.from_json(found.to_json()) == found
