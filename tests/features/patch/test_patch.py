"""Patching against plain hooks on transformers' own models, and what its users meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.captures.trials import mask_id, predicted
from attnviz.cli import main
from attnviz.core.prompt import Inputs
from attnviz.errors import InputError, UsageError
from attnviz.features.patch import figure as drawing
from attnviz.features.patch import words
from attnviz.features.patch.function import patch
from attnviz.features.patch.pairs import TASKS, Pair, TaskWords, prepare, task_pairs
from attnviz.features.patch.result import PatchShare
from attnviz.features.patch.shares import shares
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from tests.features.patch.loop import PlainLoop, token
from tests.models.tiny import GAIN, inputs_of

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pairs(gpt2: Any) -> list[Pair]:
    return task_pairs(gpt2, "induction", 6, 1)[0]


def test_heads_are_those_of_the_plain_loop(gpt2: Any, pairs: list[Pair]) -> None:
    model = transformers.GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"])
    loop = PlainLoop(model, [block.attn.c_proj for block in model.transformer.h], 6)
    pairs = pairs[:2]
    found = patch(pairs, model=gpt2)
    assert [effect.name for effect in found.effects] == [h.name for h in gpt2.layout]
    for effect in found.effects[3::8]:  # of three layers
        (head,) = effect.heads
        found_shares = [share.share for share in effect.shares.values()]
        assert found_shares == pytest.approx(loop.shares(pairs, head.layer, head.index), abs=1e-5)


def test_heads_of_a_llama_with_shared_keys_are_those_of_the_plain_loop(folders: Any) -> None:
    folder = folders("llama", GAIN.get("llama", 3.0), words=True)
    source = pretrained.load(str(folder))
    given = [
        Pair((7, 21, 30, 4, 18, 11), (7, 21, 9, 4, 18, 11), 5, 12),
        Pair((5, 9, 2, 31, 17, 3), (5, 9, 8, 31, 16, 3), 7, 6),
    ]
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    loop = PlainLoop(model, [layer.self_attn.o_proj for layer in model.model.layers], 4)
    found = patch(given, model=source)
    for effect in found.effects:
        (head,) = effect.heads
        assert effect.denoise is not None
        expected = loop.shares(given, head.layer, head.index)[0]
        assert effect.denoise.share == pytest.approx(expected, abs=1e-4)
    keys = patch(given, model=source, component="k")
    assert [one.name for one in keys.effects][:2] == ["keys of 0.0+0.1", "keys of 0.2+0.3"]
    assert len(keys.effects) == 4
    together = patch(given, model=source, component="v", select="1.0")
    assert [head.name for head in together.effects[0].heads] == ["1.0", "1.1"]


def test_heads_of_a_bert_are_those_of_the_plain_loop() -> None:
    """At its mask, in a model that normalizes every sum."""
    source = av.load("demo-bert")
    ready = prepare(source, task_pairs(source, "gender", 2, 0)[0])
    given = [
        Pair(*(predicted(one).ids for one in (pair.clean, pair.corrupted)), pair.answer,
             pair.against)
        for pair in ready
    ]  # fmt: skip
    model = transformers.BertForMaskedLM.from_pretrained(DEMOS["demo-bert"])
    heads = model.config.num_attention_heads
    loop = PlainLoop(
        model, [layer.attention.output.dense for layer in model.bert.encoder.layer], heads,
        mask=mask_id(source),
    )  # fmt: skip
    found = patch(given, model=source)
    for effect in found.effects[1::9]:  # of three layers
        (head,) = effect.heads
        found_shares = [share.share for share in effect.shares.values()]
        assert found_shares == pytest.approx(loop.shares(given, head.layer, head.index), abs=1e-5)


def test_parts_of_the_first_layer_make_all_of_it(gpt2: Any, pairs: list[Pair]) -> None:
    """Residual states that enter are everything; attention and MLP of a layer what it adds."""
    states = patch(pairs, model=gpt2, component="residual", direction="denoise")
    assert [one.name for one in states.effects] == [f"residual {n}" for n in range(5)]
    assert [one.first.share for one in states.effects] == pytest.approx([1.0] * 5, abs=1e-6)
    sublayer = patch(pairs, model=gpt2, component="attention")
    layers = patch(pairs, model=gpt2, select="layer:0, layer:1, layer:2, layer:3")
    for one, two in zip(sublayer.effects, layers.effects, strict=True):
        assert one.first.share == pytest.approx(two.first.share, abs=1e-6)
    assert next(one.name for one in sublayer.effects) == "attention 0"
    mlps = patch(pairs, model=gpt2, component="mlp", position="-1")
    assert {one.name for one in mlps.effects} == {f"MLP {n}" for n in range(4)}


def test_an_mlp_is_what_a_plain_hook_puts_in_its_place(gpt2: Any, pairs: list[Pair]) -> None:
    model = transformers.GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"]).double().eval()
    found = patch(pairs[:2], model=gpt2, component="mlp", direction="noise")
    for layer, effect in enumerate(found.effects[1:3], 1):
        changed = gap = 0.0
        for pair in pairs[:2]:
            values = []
            mlp = model.transformer.h[layer].mlp
            for ids, hook in (
                (pair.corrupted, lambda _, args, out, kept=values: kept.append(out)),
                (pair.clean, None),
                (pair.clean, lambda _, args, out, kept=values: kept[0]),
                (pair.corrupted, None),
            ):
                handle = None if hook is None else mlp.register_forward_hook(hook)
                with torch.no_grad():
                    logits = model(torch.tensor([ids])).logits[0, -1]
                if handle is not None:
                    handle.remove()
                values.append(float(logits[token(pair, "answer")] - logits[token(pair, "against")]))
            _, _, clean, patched, corrupted = values
            changed, gap = changed + clean - patched, gap + clean - corrupted
        assert effect.noise is not None
        assert effect.noise.share == pytest.approx(changed / gap, abs=1e-5)


@pytest.mark.parametrize("component", ["z", "q", "k", "v", "pattern"])
def test_any_budget_gives_the_same_and_positions_add_up(
    gpt2: Any, pairs: list[Pair], component: Any
) -> None:
    pairs = pairs[:3]
    one = patch(pairs, model=gpt2, component=component, select="2.0, 3.3+0.4")
    two = patch(pairs, model=gpt2, component=component, select="2.0, 3.3+0.4", batch_tokens=20)
    for a, b in zip(one.effects, two.effects, strict=True):
        assert a.first.share == pytest.approx(b.first.share, abs=1e-5)
    last = len(pairs[0].clean) - 1
    cells = patch(pairs, model=gpt2, component=component, by="position", select="3.3")
    alone = patch(pairs, model=gpt2, component=component, select="3.3", position=str(last))
    (cell,) = [effect for effect in cells.effects if effect.position == last]
    assert cell.first.share == pytest.approx(alone.effects[0].first.share, abs=1e-6)


def test_a_grid_of_positions_shows_every_share(gpt2: Any, pairs: list[Pair]) -> None:
    """In words, and in the colours of a picture: full at the largest, by the square root."""
    found = patch(pairs[:2], model=gpt2, by="position", select="2.0, 3.3")
    shares = {(one.name, one.position): one.denoise.share for one in found.effects if one.denoise}
    names, positions = ("2.0", "3.3"), range(len(pairs[0].clean))
    assert set(shares) == {(name, place) for name in names for place in positions}
    lines = str(found).splitlines()
    assert words.MINUS not in str(found), "the grids of all commands have hyphens"
    assert any("-" in line for line in lines)
    for name in names:
        (line, *_) = (line.split() for line in lines if line.startswith(f"{name} "))
        shown = [float(figure) for figure in line[1:]]
        expected = [shares[name, n] for n in positions if abs(shares[name, n]) >= 0.005]
        assert shown == pytest.approx(expected, abs=0.00501)
    drawn = drawing.draw(found, "figure")
    image = drawn.axes[0].images[0].get_array()
    end = max(map(abs, shares.values()))
    for row, name in enumerate(names):
        for place in positions:
            share = shares[name, place]
            expected = np.sign(share) * (abs(share) / end) ** 0.5
            assert image[row, place] == pytest.approx(expected, abs=1e-6)
    assert found.to_bytes("png")[:4] == b"\x89PNG"


def test_a_named_span_is_its_positions_and_their_partners(gpt2: Any) -> None:
    """Also where the prompts differ in length: king is one token, violin is two."""
    spans = {"who": "king", "verb": "tokens:3"}
    pair = Pair("The king smiled because", "The violin smiled because", "he", "she", spans=spans)
    options: dict[str, Any] = {"model": gpt2, "select": "layer:1", "align": "word"}
    for at, clean, corrupted in (("span:who", "2", "3"), ("span:verb, -1", "3,4", "4,5"),
                               ("king,smiled", "2,3", "3,4")):  # fmt: skip
        found = patch([pair], position=at, **options)
        (both,) = found.effects
        (noise,) = patch([pair], position=clean, direction="noise", **options).effects
        (denoise,) = patch([pair], position=corrupted, direction="denoise", **options).effects
        assert (both.noise, both.denoise) == (noise.noise, denoise.denoise)
        assert both.noise
        assert both.noise.share != 0
        assert found.position == at.replace(" ", "")
    with pytest.raises(UsageError, match="a span 'what'; choose from who, verb"):
        patch([pair], position="span:what", **options)


@pytest.mark.slow
def test_processes_give_the_same_bits(pairs: list[Pair]) -> None:
    one = patch(pairs, select="2.*", batch_tokens=64)
    assert patch(pairs, select="2.*", batch_tokens=64, jobs=2).to_dict() == one.to_dict()


def test_estimates_are_exact_where_everything_behind_is_linear_enough(
    gpt2: Any, pairs: list[Pair]
) -> None:
    found = patch(pairs, model=gpt2, estimate=True)
    assert found.correlation is not None
    assert found.correlation > 0.9
    assert all(effect.estimate is not None for effect in found.effects)


def test_prompts_of_different_lengths(gpt2: Any) -> None:
    clean, corrupted = "The man smiled because", "The old woman smiled because"
    given = Pair(clean, corrupted, "he", "she")
    with pytest.raises(InputError, match=r"cannot be aligned by position; give align="):
        prepare(gpt2, [given])
    length = [len(gpt2.prepare(av.Prompt(text)).sides["decoder"].queries.ids) for text in
              (clean, corrupted)]  # fmt: skip
    marked = Pair(clean, corrupted, "he", "she", clean_span=(2, 3),
                  corrupted_span=(2, 3 + length[1] - length[0]))  # fmt: skip
    (ready,) = prepare(gpt2, [marked])
    assert ready.partner[:2] == (0, 1)
    assert ready.partner[-1] == length[1] - 1
    found = patch([marked], model=gpt2, component="residual", direction="denoise")
    assert found.effects[-1].first.share == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(InputError, match=r"what surrounds the spans differs in length: 2 and 2"):
        prepare(
            gpt2, [Pair(clean, corrupted, "he", "she", clean_span=(2, 3), corrupted_span=(2, 3))]
        )


def test_words_align_by_their_last_tokens(gpt2: Any) -> None:
    given = Pair("The man smiled because", "The grandmother smiled because", "he", "she")
    (ready,) = prepare(gpt2, [given], "word")
    mine, theirs = (one.sides["decoder"].queries.texts for one in (ready.clean, ready.corrupted))
    assert [theirs[j] for j in ready.partner if mine and j >= 0][-2:] == list(theirs[-2:])
    assert patch([given], model=gpt2, align="word", select="2.0").pairs == 1


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert"])
def test_tasks_make_pairs_of_one_word(model: str, name: str) -> None:
    source = av.load(model)
    given, _ = task_pairs(source, name, 8, 0)
    for ready in prepare(source, given):
        assert ready.aligned
        assert len(ready.span) == 1 + (name == "induction-swap")
        assert ready.answer != ready.against
    assert task_pairs(source, name, 8, 0)[0] == given
    assert task_pairs(source, name, 8, 1)[0] != given


def test_a_masked_model_answers_at_its_mask() -> None:
    found = patch(task="gender", model="demo-bert", count=8, select="2.*")
    assert found.example.clean[found.example.position] == "[MASK]"
    assert found.pairs == 8


def test_an_encoder_decoder_is_patched_across(folders: Any, monkeypatch) -> None:
    source = pretrained.load(str(folders("t5", GAIN.get("t5", 3.0), words=True)))

    def prepare(prompt: av.Prompt) -> Inputs:  # it has no tokenizer for the target
        assert prompt.ids is not None
        return inputs_of(source, prompt.ids, (2, 14, 8))

    monkeypatch.setattr(source, "prepare", prepare)
    given = Pair((7, 21, 30, 4, 18, 2), (7, 21, 9, 4, 18, 2), 5, 12, target="w1 w2")
    found = patch([given], model=source, metric="kl")
    kinds = {head.site.kind for effect in found.effects for head in effect.heads}
    assert kinds == {"encoder", "decoder", "cross"}
    assert any(abs(effect.first.share) > 1e-3 for effect in found.effects)
    with pytest.raises(InputError, match="has a decoder; give target"):
        patch([Pair((7, 21), (7, 9), 5)], model=source)
    with pytest.raises(UsageError, match="two sequences of positions"):
        patch([given], model=source, metric="kl", by="position")


def test_metrics_agree_with_the_logits(gpt2: Any, pairs: list[Pair]) -> None:
    def difference(logits: Tensor, pair: Pair) -> Tensor:
        return logits[token(pair, "answer")] - logits[token(pair, "against")]

    pairs = pairs[:3]
    plain = patch(pairs, model=gpt2, select="2.0")
    custom = patch(pairs, model=gpt2, select="2.0", metric=difference)
    assert custom.effects[0].first.share == pytest.approx(plain.effects[0].first.share, abs=1e-6)
    assert custom.metric == "custom"
    loss = patch(pairs, model=gpt2, select="2.0", metric="loss")
    logs = patch(pairs, model=gpt2, select="2.0", metric="log-prob")
    assert loss.clean.mean == pytest.approx(-logs.clean.mean)
    assert loss.effects[0].first.share == pytest.approx(logs.effects[0].first.share, abs=1e-9)
    assert patch(pairs, model=gpt2, select="2.0", metric="kl").clean.mean == pytest.approx(
        0, abs=1e-6
    )
    assert 0 < patch(pairs, model=gpt2, select="2.0", metric="prob").clean.mean <= 1
    for wrong in (lambda logits, pair: "much", lambda logits, pair: logits):
        with pytest.raises(InputError, match="it must give one finite number"):
            patch(pairs, model=gpt2, select="2.0", metric=wrong)


def test_an_interrupted_run_keeps_what_is_done(gpt2: Any, pairs: list[Pair], monkeypatch) -> None:
    def progress(stage: str, done: int, all_: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    found = av.patch(pairs, model=gpt2, select="2.0", batch_tokens=40, progress=progress)
    assert found.partial
    assert found.pairs == 4


def test_a_result_says_itself(pairs: list[Pair]) -> None:
    found = av.patch(pairs, model="demo-gpt2")
    said = found.finding("p.json")
    assert said is not None
    assert said.measures[0].values["2.0"][0] == pytest.approx(found.effects[12].first.share)
    assert "restores" in said.said["2.0"][0]
    assert "2.0" in str(found)
    rows = found.to_csv().splitlines()
    assert rows[0].startswith("name,heads,layer,index,head,position,denoise_share,denoise_low")
    assert len(rows) == 25


def test_a_corrupted_prompt_that_has_the_answer_too_is_told_of(gpt2: Any) -> None:
    pair = Pair("The king smiled because", "The violin smiled because", "he", "she")
    found = patch([pair], model=gpt2, align="word", select="2.0+2.1")
    assert found.corrupted.wins == 1
    assert any("In 100 % of the corrupted prompts the answer wins too" in n for n in found.notes)
    assert "On 1 pair, the outputs of 2.0+2.1 of the clean run alone restore " in str(found)


MISTAKES = {  # more are in tests/cli/messages.txt
    "no pairs": ([], "give pairs, or --task induction"),
    "both": (["pairs.jsonl", "--task", "ioi"], "give pairs, or --task induction"),
    "one text": (["The man smiled because"], "a clean text needs a corrupted one, and --answer"),
    "tokens": (["A man", "A woman", "--answer", "incomprehensible"], "and only one token can be"),
    "heads": (["--task", "induction", "--select", "9.9"], "no head 9.9"),
    "whole": (
        ["--task", "induction", "--component", "mlp", "--select", "2.0"],
        "--component mlp is of a whole layer; leave out --select 2.0",
    ),
    "estimate": (
        ["--task", "induction", "--component", "mlp", "--estimate"],
        "is of heads at all positions together",
    ),
    "file": (["missing.jsonl"], "cannot read missing.jsonl: No such file"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_remedy(name: str, capsys) -> None:
    arguments, said = MISTAKES[name]
    assert main(["patch", *arguments, "--quiet"]) in (1, 2)
    error = capsys.readouterr().err
    if arguments:
        assert error.count("\n") == 1
    assert said in error


def test_a_metric_that_does_not_move_is_refused(gpt2: Any) -> None:
    given = Pair((0, 5, 6, 7, 8), (0, 5, 6, 9, 8), 11, 12)
    with pytest.raises(InputError, match=r"the custom does not move: clean minus corrupted is \+0"):
        patch([given], model=gpt2, metric=lambda logits, pair: 1.0)


def test_a_file_of_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.jsonl"
    lines = [
        {"clean": f"The {he} {did} because", "corrupted": f"The {she} {did} because",
         "answer": "he", "against": "she", "verb": did}
        for he, she in (("father", "mother"), ("man", "woman"), ("boy", "girl"))
        for did in ("smiled", "spoke")
    ]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, lines)))
    assert main(["patch", str(file), "--group", "verb", "--select", "3.1", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["pairs"], found["clusters"]) == (6, 2)
    assert main(["patch", str(file), "--group", "place", "-q"]) == 2
    assert "has no field 'place' for --group" in capsys.readouterr().err
    file.write_text('{"clean": "a", "answer": "b"}')
    assert main(["patch", str(file), "-q"]) == 1
    assert "pairs.jsonl:1 has no corrupted; a pair needs" in capsys.readouterr().err


def test_words_that_a_tokenizer_splits_are_left_out(gpt2: Any) -> None:
    import random

    words = TaskWords(gpt2, random.Random(0))
    assert words.single(["king", "incomprehensible"]) == ["king"]


def test_more_pairs_than_can_be_run_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="count must be from 1 to 10,000, not 99,999,999"):
        av.patch(task="induction", count=99_999_999)


def test_an_empty_answer_is_refused_with_and_without_a_pair(capsys) -> None:
    assert main(["patch", "--answer", ""]) == 2
    assert "--answer is of one pair" in capsys.readouterr().err
    assert main(["patch", "a b", "a c", "--answer", ""]) == 1
    assert "the answer, or what it is held against, is empty" in capsys.readouterr().err


def test_beside_the_heads_that_differ_stands_what_would_have_shown() -> None:
    found = av.patch(task="induction", count=16)
    others = [effect.first for effect in found.effects if not effect.first.sure]
    known = [share.detectable for share in others if share.detectable is not None]
    assert all(value > abs(share.share) - 1e-9 for value, share in zip(known, others, strict=False))
    said = " ".join(str(found).split())
    assert f"and of the others {round(100 * max(known))} % would have shown." in said
    assert PatchShare(0.0, 0.1).detectable is None


def test_what_matters_in_some_pairs_only_is_counted() -> None:
    """A head that does 0.4 of the gap in four of twelve pairs: the typical pair says nothing."""
    changes = np.zeros((12, 1, 2))
    changes[:4, 0, 0], changes[:, 0, 1] = 0.8, 1e-4
    ((some, none),) = shares(changes, np.full(12, 2.0), [str(n) for n in range(12)])
    assert some.typical == 0
    assert some.often_above is not None
    assert some.often_above.texts == 4
    assert words.often(some) == f"up in {round(100 * some.often_above.least)} % or more"
    assert words.often(none) == ""
