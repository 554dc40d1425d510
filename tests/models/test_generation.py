"""Models that write: equal to transformers' own generate, and looked at as any finished text."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import TopPLogitsWarper

import attnviz as av
from attnviz.captures.inputs import prepare_each
from attnviz.cli import main
from attnviz.core.heads import Site
from attnviz.core.prompt import Generation, Prompt
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.labels import row_labels
from attnviz.drawing.panels import sentence_breaks
from attnviz.errors import AttnvizError, InputError, ModelError, UsageError
from attnviz.models import recorded
from attnviz.models.demo import DEMOS
from attnviz.models.hooked import prompting
from attnviz.models.hooked.interface import WatchedPass, hooking
from attnviz.models.hooked.network import Item
from attnviz.models.native.words import Choice, write
from attnviz.models.pretrained import load
from attnviz.scoring.merged import in_words, shown_sides
from tests import mostly_slow
from tests.models.tiny import LONG, LONGEST, SEQ2SEQ, SHORT, Folders, hooked_only

transformers = pytest.importorskip("transformers")

DECODERS = ("llama", "qwen3", "mistral", "gemma2", "gpt_neox", "opt", "gpt_oss", "phi", "cohere")
FAMILIES = mostly_slow(("gpt2", *DECODERS), "gpt2", "llama", "gemma2", "gpt_oss")
TEXT = "one two three one two"
CAUSAL, SEQUENCE = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"


def generated(model: Any, ids: tuple[int, ...], tokens: int, *, cache: bool = True) -> list[int]:
    """What transformers' own generate gives with its own attention, the prompt among it."""
    with torch.no_grad():
        written = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=tokens, do_sample=False, num_beams=1, use_cache=cache,
        )  # fmt: skip
    return list(written[0].tolist())


def side(inputs: Any) -> Tokens:
    return list(inputs.sides.values())[-1].queries


@pytest.mark.parametrize("backend", ["native", "hooked"])
def test_demo_gpt2_writes_what_transformers_generates(backend: Any, eager: Any) -> None:
    source, model = load("demo-gpt2", backend=backend), eager(DEMOS["demo-gpt2"], CAUSAL)
    for text in (TEXT, "The keys to the cabinet", "a"):
        before = source.prepare(Prompt(text))
        found = side(source.prepare(Prompt(text, generate=Generation(12))))
        whole = generated(model, side(before).ids, 12)
        assert list(found.ids) == whole
        assert found.written == len(whole) - len(side(before))


@pytest.mark.parametrize("ids", [SHORT, LONG, SHORT[:1]])
@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_models_write_what_transformers_generates(
    family: str, ids: tuple[int, ...], folders: Folders, loaded: Any, eager: Any
) -> None:
    source = loaded(family, backend="auto")
    found = side(source.prepare(Prompt(ids=ids, generate=Generation(9))))
    whole = generated(eager(folders(family, words=True), CAUSAL), ids, 9)
    assert list(found.ids) == whole
    assert found.written == len(whole) - len(ids)


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_decoders_beside_encoders_write_what_transformers_generates(
    family: str, loaded: Any, eager: Any
) -> None:
    source = loaded(family)
    inputs = source.prepare(Prompt(ids=SHORT, generate=Generation(9)))
    model = eager(source.folder, SEQUENCE)
    # transformers makes the cache of a T5 for as many layers as its encoder has
    whole = generated(model, SHORT, 9, cache=family != "t5")
    for kind in ("decoder", "cross"):
        assert list(inputs.sides[kind].queries.ids) == whole
        assert inputs.sides[kind].queries.written == len(whole) - 1
    assert inputs.sides["cross"].keys.written == 0


def calls(source: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many texts each call of the model's own generate has, and whether with a cache."""
    network, made = source._network, list[tuple[int, bool]]()
    generate = network.model.generate

    def counted(**arguments: Any) -> torch.Tensor:
        made.append((len(arguments["inputs"]), arguments["use_cache"]))
        return generate(**arguments)

    monkeypatch.setattr(network.model, "generate", counted)
    return made


@pytest.mark.parametrize("family", SEQ2SEQ)
def test_decoders_write_several_texts_side_by_side_as_each_alone(
    family: str, loaded: Any, eager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompting, "WRITES_AT_MOST", 6)
    source: Any = load(str(loaded(family).folder))
    prompts = [Prompt(ids=ids) for ids in (SHORT, LONG, SHORT[:1])]
    alone = [source.prepare(prompt) for prompt in prompts]
    made = calls(source, monkeypatch)
    assert prepare_each(source, prompts) == alone
    several = [(len(prompts), True)]
    if family == "t5":  # its cache is for as many layers as its encoder has, and fails
        several.append((len(prompts), False))
    assert made == [(1, False), *several]
    written = side(alone[1]).ids
    whole = generated(eager(source.folder, SEQUENCE), LONG, 6, cache=False)
    assert list(written) == whole[: len(written)]


def test_a_model_that_writes_otherwise_beside_others_writes_each_alone(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompting, "WRITES_AT_MOST", 12)
    source: Any = load(str(folders("bart", words=True)))
    prompts = [Prompt(ids=ids) for ids in (LONG, SHORT, SHORT[:1])]
    alone = [source.prepare(prompt) for prompt in prompts]
    generate = source._network.model.generate

    def blind(**arguments: Any) -> torch.Tensor:
        """What a model without a mask would write: padding counts."""
        arguments["attention_mask"] = torch.ones_like(arguments["attention_mask"])
        return generate(**arguments)

    monkeypatch.setattr(source._network.model, "generate", blind)
    made = calls(source, monkeypatch)
    assert prepare_each(source, prompts) == alone
    assert [texts for texts, _ in made] == [1, 3, 3, 1, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_is_that_of_the_finished_text_to_the_bit(family: str, loaded: Any) -> None:
    source = loaded(family, backend="auto")
    hooked_only(source) if family != "gpt2" else None
    made = av.capture(Prompt(ids=SHORT, generate=Generation(8)), model=source)
    tokens = side(made.inputs)
    given = av.capture(Prompt(ids=tokens.ids), model=source)
    assert len(tokens) > len(SHORT)
    for site, maps in made.maps.items():
        assert maps.shape[1] == len(tokens)  # the last token has a row as well
        assert np.array_equal(maps, given.maps[site])


class _Kept:
    """Keeps the last row of every block that goes by."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, torch.Tensor]] = []

    def observe(self, rows: Rows) -> None:
        weights = rows.weights[0]
        self.rows += [(rows.start + i, weights[:, i].clone()) for i in range(weights.shape[1])]


def agree(kept: list[tuple[int, torch.Tensor]], maps: list[np.ndarray]) -> int:
    """How many rows of the cache there were; each is that of the whole pass."""
    at: dict[int, int] = {}
    places = itertools.cycle(range(len(maps)))
    layer, last = -1, None
    for start, weights in kept:
        if start == 0 or last is None:  # a block begins: the next layer
            layer = next(places)
        number = at.get(layer, 0)
        row = maps[layer][:, number]
        some = weights.shape[-1]
        assert np.abs(row[:, :some] - weights.numpy()).max() < 1e-5
        assert not row[:, number + 1 :].any()
        at[layer] = number + 1
        last = start
    return min(at.values())


def test_rows_of_the_native_cache_are_those_of_the_whole_pass() -> None:
    source: Any = load("demo-gpt2")
    made = av.capture(Prompt(TEXT, generate=Generation(12)), model=source)
    tokens, kept = side(made.inputs), _Kept()
    before = torch.tensor([tokens.ids[: -tokens.written]])
    with torch.inference_mode():
        new = list(
            write(
                source._network, source._words, before, Generation(12), frozenset(), {}, {}, [kept]
            )
        )
    assert tuple(new) == tokens.ids[-12:]
    assert agree(kept.rows, list(made.maps.values())) == len(tokens) - 1


@pytest.mark.parametrize("family", ["llama", "granite", "qwen3", "phi"])
def test_rows_of_a_hooked_model_s_cache_are_those_of_the_whole_pass(
    family: str, loaded: Any
) -> None:
    source: Any = loaded(family)
    hooked_only(source)
    made = av.capture(Prompt(ids=SHORT, generate=Generation(8)), model=source)
    tokens, kept = side(made.inputs), _Kept()
    with hooking(WatchedPass([kept])):
        new = source._network.write(Item(SHORT), Generation(8))
    assert (*SHORT, *new) == tokens.ids
    assert agree(kept.rows, list(made.maps.values())) == len(tokens) - 1


def test_draws_follow_the_seed_and_are_the_same_on_both_backends() -> None:
    sources = [load("demo-gpt2", backend=backend) for backend in ("native", "hooked")]
    texts = {}
    for seed in (0, 1, 2):
        how = Generation(12, temperature=0.9, top_p=0.95, seed=seed)
        found = [side(source.prepare(Prompt(TEXT, generate=how))).ids for source in sources]
        assert found[0] == found[1]
        assert found[0] == side(sources[0].prepare(Prompt(TEXT, generate=how))).ids
        texts[seed] = found[0]
    assert len(set(texts.values())) == 3


def test_the_nucleus_is_that_of_transformers() -> None:
    generator = torch.Generator().manual_seed(0)
    for share in (0.1, 0.5, 0.9, 1.0):
        logits = torch.randn(23, generator=generator) * 2
        kept = TopPLogitsWarper(share)(torch.zeros(1, 1, dtype=torch.long), logits[None])[0]
        chances = kept.double().softmax(-1)
        choose = Choice(Generation(1, top_p=share, seed=3))
        drawn = Counter(choose(logits) for _ in range(1_500))
        assert set(drawn) <= set(chances.nonzero().flatten().tolist())
        for token, chance in enumerate(chances.tolist()):
            spread = 5 * (chance * (1 - chance) / 1_500) ** 0.5
            assert abs(drawn[token] / 1_500 - chance) <= spread + 1e-9


def test_temperature_divides_logits_and_none_is_the_likeliest() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0])
    cold = Choice(Generation(1, temperature=0.01))
    assert {cold(logits) for _ in range(50)} == {1}
    assert {Choice(how)(logits) for how in (Generation(1), Generation(1, temperature=0))} == {1}
    assert Generation(1).manner == "greedily"
    assert Generation(1, 0.8, 0.9, 3).manner == "at temperature 0.8, top-p 0.9, seed 3"
    hot = Choice(Generation(1, temperature=2.0, seed=1))
    drawn = Counter(hot(logits) for _ in range(4_000))
    for token, chance in enumerate((logits.double() / 2).softmax(-1).tolist()):
        assert abs(drawn[token] / 4_000 - chance) < 0.02


def test_writing_stops_at_the_end_and_keeps_it(loaded: Any) -> None:
    source = load("demo-gpt2")
    free = side(source.prepare(Prompt(TEXT, generate=Generation(6))))
    source._ends = frozenset({free.ids[-3]})
    ended = source.prepare(Prompt(TEXT, generate=Generation(6)))
    first = free.ids.index(free.ids[-3], len(free) - free.written)
    assert side(ended).ids == free.ids[: first + 1]
    assert "and ended the text there" in ended.notes[0]
    assert loaded("gpt2", backend="auto")._ends == frozenset({2})


def test_a_watcher_sees_the_text_grow() -> None:
    for backend in ("native", "hooked"):
        pieces: list[str] = []
        how = Generation(5, tell=pieces.append)
        tokens = side(load("demo-gpt2", backend=backend).prepare(Prompt(TEXT, generate=how)))
        assert pieces == [TEXT, *tokens.texts[-5:], ""]


@pytest.mark.parametrize(
    ("model", "prompt", "said"),
    [
        ("demo-bert", Prompt("a", generate=Generation(3)), "reads texts in both directions"),
        ("fresh", Prompt("a", generate=Generation(3)), "a fresh layer has no vocabulary"),
        ("demo-gpt2", Prompt("a", generate=Generation(0)), "generate=0 must be at least 1"),
        ("demo-gpt2", Prompt("a", generate=Generation(9, temperature=-1)), "must be 0 or above"),
        ("demo-gpt2", Prompt("a", generate=Generation(9, top_p=0)), "above 0 and at most 1"),
        ("demo-gpt2", Prompt("a", generate=Generation(9, 0, 0.5)), "has no effect"),
        (
            "demo-gpt2",
            Prompt("a", generate=Generation(9, seed=1)),
            "only matters when tokens are sampled; add temperature",
        ),
        ("demo-gpt2", Prompt("a", generate=Generation(9, 1, seed=-1)), "must not be negative"),
        ("demo-gpt2", Prompt("a", generate=Generation(999)), "generate at most 254"),
    ],
)
def test_what_cannot_be_written(model: str, prompt: Prompt, said: str) -> None:
    with pytest.raises(AttnvizError, match=said):
        av.capture(prompt, model=model)


def test_a_temperature_is_a_number() -> None:
    with pytest.raises(UsageError, match="temperature takes a number or None, not nan"):
        Generation(9, float("nan"))


def test_two_stacks_take_a_target_or_write_one(loaded: Any) -> None:
    source = loaded("bart")
    with pytest.raises(UsageError, match="both give the decoder's text"):
        source.prepare(Prompt(ids=SHORT, target="x", generate=Generation(3)))
    with pytest.raises(InputError, match=f"more than the {LONGEST:,} that the model takes"):
        source.prepare(Prompt(ids=SHORT, generate=Generation(LONGEST)))
    bert = loaded("modernbert")
    with pytest.raises(UsageError, match="generates no text"):
        bert.prepare(Prompt(ids=SHORT, generate=Generation(3)))


# how it is shown

MIXED = Tokens(("", "a", "b", "c", "d", "e"), words=(0, 1, 1, 2, 3, 4), written=3)


def test_what_was_written_is_told_from_the_prompt() -> None:
    assert row_labels(MIXED) == ("∅", "a", "b → c", "c → d", "d → e", "e")
    assert row_labels(replace(MIXED, written=0)) == ("∅", "a", "b", "c", "d", "e")
    assert sentence_breaks(MIXED) == (3,)
    sides = Sides(MIXED, MIXED)
    assert in_words(sides).queries.written == 3
    left = shown_sides(sides, words=False, hide_sink=True).queries
    assert (len(left), left.written) == (5, 3)


def test_views_mark_prompt_and_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.npz"
    assert main(["capture", TEXT, "--generate", "4", "-o", str(out)]) == 0
    assert side(recorded.load(out).inputs).written == 4
    capsys.readouterr()
    for source in ([TEXT, "--generate", "4"], ["--recorded", str(out)]):
        assert main(["heatmap", *source, "-s", "2.4"]) == 0
        shown, said = capsys.readouterr()
        assert "prompt | output; the row a → b is the step that chose b" in " ".join(shown.split())
        assert "·two → ," in shown
        assert ("The model generated 4 tokens greedily" in " ".join(said.split())) == (
            source[0] == TEXT
        )
    made = av.heatmap(Prompt(TEXT, generate=Generation(4)), "2.4")
    picture = tmp_path / "a.svg"
    made.save(picture)
    assert "prompt | output" in picture.read_text() or "a row a" in picture.read_text()
    page = tmp_path / "a.html"
    av.view(Prompt(TEXT, generate=Generation(4))).save(page)
    assert '"written":4' in page.read_text().replace(" ", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["heads", TEXT], ["logits", TEXT], ["ablate", TEXT, "--select", "2.4"], ["flow", TEXT],
        ["heads", TEXT, "--temperature", "1.3", "--seed", "4"],
        ["logits", TEXT, "--top-p", "0.9", "--seed", "4"],
    ],
)  # fmt: skip
def test_commands_let_models_write(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--generate", "5"]) == 0
    assert "The model generated 5 tokens" in " ".join(capsys.readouterr().err.split())


def test_the_terminal_shows_it_grow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["heads", TEXT, "--generate", "3", "--json"]) == 0
    assert TEXT not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["heads", TEXT, "--generate", "3", "--json"]) == 0
    assert f"{TEXT}, and the\n" in capsys.readouterr().err
    assert main(["heads", TEXT, "--generate", "3", "--json", "--quiet"]) == 0
    assert TEXT not in capsys.readouterr().err


def many_languages(**options: Any) -> tuple[Any, Any]:
    """A tiny M2M100 and a tokenizer of three languages."""
    letters = {letter: 5 + n for n, letter in enumerate("abcdef")}
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "\u2581": 4, **letters}
    tokenizer = transformers.NllbTokenizer(
        vocab=vocab, merges=[], src_lang="eng_Latn", **options,
        extra_special_tokens=["eng_Latn", "fra_Latn", "deu_Latn"],
    )  # fmt: skip
    torch.manual_seed(0)
    config = transformers.M2M100Config(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, max_position_embeddings=32,
    )  # fmt: skip
    config._attn_implementation = "eager"
    return transformers.M2M100ForConditionalGeneration(config).eval(), tokenizer


def test_the_language_of_a_target_is_named_or_asked_for() -> None:
    """The tokenizer takes the language of the source where nobody names that of the target."""
    prompt = av.Prompt("a b", target="c d")
    model, tokenizer = many_languages()
    with pytest.raises(ModelError, match=r"several languages; name that of target: tgt_lang"):
        av.capture(prompt, model=model, tokenizer=tokenizer)
    french = tokenizer.convert_tokens_to_ids("fra_Latn")
    told, named = many_languages(), many_languages(tgt_lang="fra_Latn")
    told[0].generation_config.forced_bos_token_id = french
    texts = []
    for model, tokenizer in (told, named):
        found = av.capture(prompt, model=model, tokenizer=tokenizer)
        ids = found.inputs.sides["cross"].queries.ids
        assert ids[:2] == (2, french)
        with torch.no_grad():
            output = model(
                torch.tensor([found.inputs.sides["cross"].keys.ids]),
                decoder_input_ids=torch.tensor([ids]), output_attentions=True,
            )  # fmt: skip
        expected = output.cross_attentions[0][0].numpy()
        np.testing.assert_allclose(found.maps[Site("cross", 0)], expected, atol=1e-6)
        texts.append(found.tokens)
    assert texts[0] == texts[1]
    assert told[1].tgt_lang is None
    written = av.capture(Prompt("a b", generate=Generation(3)), model=told[0], tokenizer=told[1])
    assert written.inputs.sides["cross"].queries.ids[:2] == (2, french)


def test_forced_first_tokens_are_part_of_a_target() -> None:
    """As Whisper is told language and task; a token that is there already is not put twice."""
    model, tokenizer = many_languages(tgt_lang="fra_Latn")
    french = tokenizer.convert_tokens_to_ids("fra_Latn")
    model.generation_config.forced_decoder_ids = [[1, french], [2, 7]]
    found = av.capture(av.Prompt("a b", target="c d"), model=model, tokenizer=tokenizer)
    ids = found.inputs.sides["cross"].queries.ids
    assert ids[:3] == (2, french, 7)
    assert ids.count(french) == 1
