"""The bundled checkpoints: trained for real, loaded like any other model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.drawing.labels import origin
from attnviz.models.demo import DEMOS
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.probe import probe_prompts
from tests import ROOT
from tests.checkpoints import needs_transformers_5

STORY = (ROOT / "sample_inputs" / "story.txt").read_text("utf-8")
PARAGRAPHS = STORY.split("\n\n")


def best(name: str, score: str, prompts: list[av.Prompt]) -> tuple[float, int]:
    """The highest mean of any head over all prompts, and its rows."""
    source = av.load(name)
    observer = None
    batch = [source.prepare(prompt) for prompt in prompts]
    observer = ScoreObserver(batch, source.layout)
    source.forward(batch, [observer])
    found = max(observer.result(), key=lambda head: head.scores[score].mean or 0.0).scores[score]
    assert found.mean is not None
    return found.mean, found.rows


def random_tokens(name: str) -> list[av.Prompt]:
    """Repeated random tokens, each sequence after the token that starts a text."""
    vocabulary = av.load(name).vocab_size
    assert vocabulary is not None
    ids = probe_prompts(vocabulary, lengths=(32, 64, 100), seed=1, bos=0, avoid=(0,))
    return [av.Prompt(ids=found, special_tokens=False) for found in ids]


def test_both_are_there_and_small() -> None:
    assert set(DEMOS) == {"demo-gpt2", "demo-bert"}
    sizes = [path.stat().st_size for folder in DEMOS.values() for path in folder.iterdir()]
    assert sum(sizes) <= 13_000_000
    for folder in DEMOS.values():
        names = {path.name for path in folder.iterdir()}
        assert names == {
            "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
            "MODEL_CARD.md",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("score", "bar"), [("previous", 0.75), ("first", 0.80), ("induction", 0.80)]
)
def test_gpt2_has_its_heads(score: str, bar: float) -> None:
    prompts = random_tokens("demo-gpt2")
    if score != "induction":
        prompts = [av.Prompt(paragraph) for paragraph in PARAGRAPHS]
    mean, rows = best("demo-gpt2", score, prompts)
    assert rows >= 150
    assert mean >= bar


@pytest.mark.parametrize(("score", "bar"), [("previous", 0.5), ("next", 0.5), ("first", 0.6)])
def test_bert_has_its_heads(score: str, bar: float) -> None:
    pairs = [av.Prompt(a, pair=b) for a, b in pairwise(PARAGRAPHS)]
    mean, rows = best("demo-bert", score, pairs)
    assert rows >= 300
    assert mean >= bar


def test_gpt2_copies_what_repeats() -> None:
    """The loss on the second half of repeated random tokens is at most a twentieth."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(DEMOS["demo-gpt2"]).float().eval()
    assert model.config.model_type == "gpt2"
    losses = []
    for prompt in random_tokens("demo-gpt2"):
        assert prompt.ids is not None
        ids = torch.tensor([prompt.ids])
        with torch.no_grad():
            logits = model(ids).logits
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
        half = (len(prompt.ids) - 1) // 2
        losses.append((float(loss[:half].mean()), float(loss[half + 1 :].mean())))
    first, second = np.mean(losses, axis=0)
    assert second <= 0.05 * first


def test_bert_guesses_masked_words() -> None:
    """Every seventh token of the story, against always guessing the commonest one."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    model = AutoModelForMaskedLM.from_pretrained(DEMOS["demo-bert"]).float().eval()
    tokenizer = AutoTokenizer.from_pretrained(DEMOS["demo-bert"])
    assert model.config.model_type == "bert"
    right, everything = 0, []
    for paragraph in PARAGRAPHS:
        ids = tokenizer(paragraph, return_tensors="pt", truncation=True, max_length=128).input_ids
        places = torch.arange(1, ids.shape[1] - 1)
        everything += ids[0, places].tolist()
        for start in range(7):
            masked, asked = ids.clone(), places[start::7]
            masked[0, asked] = tokenizer.mask_token_id
            with torch.no_grad():
                guesses = model(masked).logits.argmax(-1)
            right += int((guesses == ids)[0, asked].sum())
    commonest = max(everything.count(token) for token in set(everything))
    assert right >= 3 * commonest


@needs_transformers_5
@pytest.mark.parametrize("name", sorted(DEMOS))
def test_both_roads_agree(name: str) -> None:
    from attnviz.models import pretrained

    prompt = av.Prompt(PARAGRAPHS[0])
    native, hooked = (
        av.capture(prompt, model=pretrained.load(name, backend=backend))
        for backend in ("native", "hooked")
    )
    assert (native.source.backend, hooked.source.backend) == ("native", "hooked")
    assert " · hooked backend · checked against eager · " in origin(hooked)
    assert "max |Δ|" in hooked.source.exactness
    assert native.inputs.sides == hooked.inputs.sides
    for site, weights in native.maps.items():
        np.testing.assert_allclose(weights, hooked.maps[site], atol=1e-5)


def test_the_default_model_is_bundled(capsys) -> None:
    assert main(["heads", "The keys to the cabinet are on the table"]) == 0
    assert "demo-gpt2" in capsys.readouterr().out
    assert av.capture("a b c", pair="x y", model="fresh").source.backend == "untrained"


def test_that_it_is_for_teaching_is_said_once_and_where_others_can_be_fetched(
    capsys, monkeypatch
) -> None:
    def said(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().err

    assert "teaching" not in said("heads", "a b c")  # the tests are offline
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "bert-base-uncased" in said("heads", "a b c")
    for quiet in (["heatmap", "a b c"], ["heads", "a b c", "-m", "demo-gpt2"],
                  ["heads", "a b c", "-q"], ["heads", "a b c", "--json"]):  # fmt: skip
        assert "teaching" not in said(*quiet)


@pytest.mark.slow
def test_the_tour_runs_through_without_a_terminal(capsys) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "5/5" in out
    assert "\x1b" not in out
