"""A capture knows its text, model and settings, so that what needs the model runs it again.

Copies of texts say nothing new: every command with texts is as sure as without them.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import attnviz as av
from attnviz.captures.files import write_capture
from attnviz.captures.trials import distinct
from attnviz.cli import main
from attnviz.errors import InputError, UsageError
from tests import ROOT
from tests.checkpoints import needs_transformers_5

pytestmark = pytest.mark.usefixtures("few_sentences")

TEXT = "the cat and the dog and the cat"
PROMPT = av.Prompt(TEXT, spans={"cat": "all:cat"})
CALLS: dict[str, Callable[..., Any]] = {
    "explain": av.explain, "lens": av.lens, "logits": av.logits,
    "ablate": lambda what, **model: av.ablate(what, select="0.0", method="mean", **model),
    "sinks": av.sinks,
    "knockout": lambda what, **model: av.knockout(what, select="0.0", draws=1, **model),
    "flow": av.flow, "sources": lambda what, **model: av.sources(what, select="1.0", **model),
}  # fmt: skip


OTHERS: dict[str, tuple[str, dict[str, Any], av.Prompt]] = {
    **dict.fromkeys(("lens", "logits", "knockout"), ("demo-gpt2", {"dtype": "bfloat16"}, PROMPT)),
    "explain": ("demo-bert", {}, av.Prompt("the cat and the [MASK]")),
}
"""Model and text; else the same one untrained, of which a pass takes no longer."""


@pytest.mark.parametrize("name", CALLS)
def test_a_capture_is_as_good_as_its_text(name: str) -> None:
    other, asked, prompt = OTHERS.get(name, ("demo-gpt2", {"untrained": 1}, PROMPT))
    call, model = CALLS[name], av.load(other, **asked)
    capture = av.capture(prompt, model=model)
    wanted = call(prompt, model=model).to_json()
    found = call(capture)
    assert found.to_json() == wanted
    if name in ("lens", "knockout"):  # all find their model in one place
        assert call(capture, model=model).to_json() == wanted
    ran, default = ((info.model, info.dtype) for info in (found.source, av.load("demo-gpt2").info))
    assert ran == (model.info.model, model.info.dtype)
    assert ran != default, "the default model is another one"


@pytest.fixture(scope="module")
def changed() -> list[Any]:
    """The capture of a text as it is, and those of a model that is changed or not known."""
    model = av.load("demo-gpt2")
    whole, without = av.capture(PROMPT, model=model), av.capture(PROMPT, without="0.0")
    with model.gated({"0.0": 0.0}):
        gated = av.capture(PROMPT, model=model)
    return [whole, without, gated, dataclasses.replace(whole, asked=None)]


@pytest.mark.parametrize("name", CALLS)
def test_it_is_never_of_another_model_or_of_one_that_was_changed(
    name: str, changed: list[Any]
) -> None:
    call, (whole, *others) = CALLS[name], changed
    with pytest.raises(UsageError, match="the capture is of demo-gpt2; leave model out"):
        call(whole, model="demo-bert")
    for capture in others:
        with pytest.raises(UsageError):
            call(capture)


def test_its_settings_are_kept() -> None:
    capture = av.capture(PROMPT, model="demo-gpt2", dtype="bfloat16")
    assert av.logits(capture).source.dtype == "bfloat16"
    several = [capture, av.capture("a dog", dtype="bfloat16"), "a cat"]
    assert av.sinks(several).source.dtype == "bfloat16"
    with pytest.raises(UsageError, match="the capture is of demo-gpt2"):
        av.sinks([capture, av.capture("a dog")])


def test_what_is_recorded_names_the_method_of_flow(tmp_path: Path) -> None:
    """Rollout never stands where ALTI would, unless it is named."""
    capture = av.capture(TEXT)
    assert av.flow(capture).method == av.flow(TEXT).method == "alti"
    assert av.flow(capture, method="rollout").method == "rollout"
    path = tmp_path / "c.npz"
    write_capture(capture, path)
    recorded = av.read(path)
    with pytest.raises(UsageError, match="take method='rollout' or method='max-flow'"):
        av.flow(recorded)
    assert av.flow(recorded, method="rollout").method == "rollout"


TEXTS = [
    "the cat and the cat", "one two one two three", "the keys to the table", "a b c a b",
    "she read a book and she read another", "a small town by the small river",
]  # fmt: skip
COPIES = [*TEXTS, *random.Random(0).sample(TEXTS * 3, 18)]

Ends = Iterator[tuple[float | None, float | None]]


def of_ablate(texts: list[str]) -> Ends:
    found = av.ablate(texts, select="2.*", method="mean", reference=REFERENCE)
    return ((one.first.low, one.first.high) for one in found.effects)


def of_diff(texts: list[str]) -> Ends:
    model, bare = av.load("demo-gpt2"), av.load("demo-gpt2")
    with bare.gated({"0.5": 0}):
        found = av.diff(texts, model=model, other_model=bare)
    return ((one.low, one.high) for head in found.heads for one in head.changes)


def of_sinks(texts: list[str]) -> Ends:
    return ((one.share.low, one.share.high) for one in av.sinks(texts).heads)


def of_spans(texts: list[str]) -> Ends:
    prompts = [av.Prompt(text, spans={"first": "tokens:1-3"}) for text in texts]
    found = av.spans(prompts, rows="all")
    return ((share.low, share.high) for head in found.heads for share in head.shares)


def of_sources(texts: list[str]) -> Ends:
    return ((one.low, one.high) for one in av.sources(texts, select="2.0", role="duplicate").by_key)


def of_lens(texts: list[str]) -> Ends:
    found = av.lens(texts, by="head")
    return ((one.in_text.low, one.in_text.high) for one in found.heads if one.in_text)


def of_profile(texts: list[str]) -> Ends:
    found = av.profile(texts=texts)
    return ((one.low, one.high) for head in found.heads for one in head.estimates.values())


REFERENCE = ["a small boat waited at the quay", "nobody knew why he had gone", "two horses stood"]


@pytest.mark.parametrize(
    "ends", [of_ablate, of_diff, of_sinks, of_spans, of_sources, of_lens, of_profile]
)
def test_copies_make_no_interval_narrower(ends: Callable[[list[str]], Any]) -> None:
    once, often = list(ends(TEXTS)), list(ends(COPIES))
    assert len(once) == len(often)
    widths = [
        (high - low, more - less)
        for (low, high), (less, more) in zip(once, often, strict=True)
        if None not in (low, high, less, more) and high > low + 1e-6
    ]
    assert len(widths) > 3
    assert all(wide >= 0.6 * narrow for narrow, wide in widths)  # 24 texts would be half as wide


def test_copies_of_a_document_are_one_document(tmp_path: Path) -> None:
    words = [("the", "cat", "sat"), ("a", "dog", "ran"), ("the", "man", "slept")]
    lines = []
    for document in (*words, words[0], words[0]):
        lines.append("# newdoc")
        lines += [
            f"{n}\t{word}\t_\t_\t_\t_\t{(2, 3, 0)[n - 1]}\t{('det', 'nsubj', 'root')[n - 1]}\t_\t_"
            for n, word in enumerate(document, 1)
        ]
        lines += ["", *lines[-3:], ""]
    path = tmp_path / "copies.conllu"
    path.write_text("\n".join(lines) + "\n")
    found = av.syntax(path, split="all")
    assert found.texts == 3
    assert next(one for one in found.relations if one.name == "det").count == 10


def test_what_is_like_nothing_else_stays() -> None:
    kept, said = distinct(["a", "b", "c", "d"], ["x", None, "x", None])
    assert kept == ["a", "b", "d"]
    assert said == ("1 text repeats another one word for word: copies count once.",)
    assert distinct(["a"], ["x"]) == (["a"], ())


SAMPLE = ROOT / "sample_inputs" / "response.json"


@pytest.fixture
def sample() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(SAMPLE.read_text("utf-8"))
    return made


@pytest.fixture(scope="module")
def model() -> Any:
    return av.load("demo-gpt2")


def without_ids(sample: dict[str, Any]) -> dict[str, Any]:
    other = copy.deepcopy(sample)
    del other["response"]["prompt_token_ids"], other["response"]["choices"][0]["token_ids"]
    return other


def tokens_of(model: Any, prompt: av.Prompt) -> Any:
    return model.prepare(prompt).sides["decoder"].queries


def note(model: Any, prompt: av.Prompt) -> str:
    (said,) = model.prepare(prompt).notes
    return str(said)


@needs_transformers_5
def test_the_sample_is_what_transformers_generates() -> None:
    made = run_path(str(ROOT / "sample_inputs" / "make_response.py"))["response"]()
    assert made == json.loads(SAMPLE.read_text("utf-8"))


def test_ids_are_run_as_they_are(model: Any, sample: dict[str, Any]) -> None:
    response = sample["response"]
    tokens = tokens_of(model, av.from_response(sample))
    written = response["choices"][0]["token_ids"]
    assert list(tokens.ids) == response["prompt_token_ids"] + written
    (span,) = tokens.spans
    assert (span.name, len(span), tokens.written) == ("output", 12, 12)
    assert [tokens.ids[place] for place in span.positions] == written


@pytest.mark.parametrize("ids", [True, False])
def test_log_probabilities_of_double_precision_agree(
    model: Any, sample: dict[str, Any], ids: bool
) -> None:
    said = note(model, av.from_response(sample if ids else without_ids(sample)))
    begin, apart = said.rstrip(".").rsplit(" ", 1)
    assert begin.endswith("of 12 tokens and those of the model here agree to")
    assert 0 <= float(apart) < 1e-5


def test_a_chat_goes_through_the_template(model: Any, sample: dict[str, Any]) -> None:
    """The template ends an answer, which the server has not yet."""
    with_ids = tokens_of(model, av.from_response(sample))
    by_text = tokens_of(model, av.from_response(without_ids(sample)))
    assert by_text.ids[: len(with_ids)] == with_ids.ids
    assert [span.name for span in by_text.spans] == ["user", "assistant"]
    assert by_text.spans[1].positions == with_ids.spans[0].positions


def completion(**changes: Any) -> dict[str, Any]:
    logprobs = {"tokens": [" sat", " on"], "token_logprobs": [-1.0, -2.0], "text_offset": [7, 11]}
    choice = {"index": 0, "text": " sat on", "logprobs": logprobs} | changes
    return {"object": "text_completion", "choices": [choice]}


def test_a_completion_goes_on_with_its_prompt(model: Any) -> None:
    request = {"prompt": "The cat"}
    prompt = av.from_response(completion(), request=request)
    tokens = tokens_of(model, prompt)
    assert [tokens.texts[place] for place in tokens.spans[0].positions] == [" sat", " on"]
    echoed = completion(
        text="The cat sat on",
        logprobs={
            "tokens": ["The", " cat", " sat", " on"],
            "token_logprobs": [None, -9.0, -1.0, -2.0],
            "text_offset": [0, 3, 7, 11],
        },
    )
    assert av.from_response(echoed, request=request) == prompt


@pytest.mark.parametrize("family", ["native", "hooked"])
def test_a_difference_is_named_with_its_token(
    model: Any, sample: dict[str, Any], family: str
) -> None:
    if family == "hooked":
        import transformers

        from attnviz.models.demo import DEMOS

        folder = DEMOS["demo-gpt2"]
        network = transformers.AutoModelForCausalLM.from_pretrained(folder).float()
        model = av.load(network, tokenizer=transformers.AutoTokenizer.from_pretrained(folder))
        assert model.info.backend == "hooked"
    listed = sample["response"]["choices"][0]["logprobs"]["content"]
    listed[2]["logprob"] -= 1.5
    there = listed[2]["logprob"]
    said = note(model, av.from_response(sample))
    assert "are up to 1.5 apart, at ' middle'" in said
    assert f"({there:.2f} there, {there + 1.5:.2f} here)" in said
    assert "another quantization" in said
    listed[2]["logprob"] = None
    listed[3]["logprob"] = -9999.0
    assert "of 10 tokens" in note(model, av.from_response(sample))


def test_tokens_that_another_tokenizer_made_are_not_compared(
    model: Any, sample: dict[str, Any]
) -> None:
    other = without_ids(sample)
    listed = other["response"]["choices"][0]["logprobs"]["content"]
    del listed[3:5]
    said = note(model, av.from_response(other))
    assert said.startswith("The tokenizer here reads the 10 tokens that the server wrote as 12")
    other["response"]["choices"][0]["logprobs"] = None
    assert "no log probabilities to compare; ask it for them" in note(
        model, av.from_response(other)
    )


def test_the_token_that_ends_an_answer_is_left_out(model: Any, sample: dict[str, Any]) -> None:
    other = without_ids(sample)
    end = {"token": "<|endoftext|>", "logprob": -0.5, "bytes": None}
    other["response"]["choices"][0]["logprobs"]["content"].append(end)
    assert "of 12 tokens and those of the model here agree" in note(model, av.from_response(other))


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        ([], InputError, "no response of a server: it has no choices"),
        ({"error": {"message": "no"}}, InputError, "no response of a server"),
        ({"choices": []}, InputError, "nothing was written"),
        ({"choices": [{}, {}]}, UsageError, "has 2 choices; take one of them with item=0"),
        ({"choices": [{"message": {"content": None}}]}, InputError, "does not hold what it answer"),
        (completion(), InputError, "does not hold what it goes on with; ask the server for"),
        ({"request": {"prompt": "a"}, "response": completion(text="")}, InputError, "no text"),
        (
            {"request": {"messages": [{"role": "user", "content": "a"}]},
             "response": {"choices": [{"message": {"content": None, "tool_calls": []}}]}},
            InputError,
            "message has no text",
        ),
        (completion(logprobs={"tokens": ["a"], "token_logprobs": []}), InputError, "no log prob"),
    ],
)  # fmt: skip
def test_what_cannot_be_run(response: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        av.from_response(response)


def test_one_of_several_choices() -> None:
    both = completion()
    both["choices"].append(both["choices"][0] | {"text": " ran off"})
    prompt = av.from_response(both, request={"prompt": "The cat"}, item=1)
    assert prompt.text == "The cat ran off"
    with pytest.raises(UsageError, match="has 2 choices; there is no item=2"):
        av.from_response(both, item=2)


@pytest.mark.parametrize("command", ["heads", "spans", "sinks", "lens", "flow"])
def test_commands_say_how_it_compares(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--ids", str(SAMPLE)]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "log probabilities of 12 tokens and those of the model here agree to" in said


def test_the_command_line_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("{")
    for arguments, message in (
        ([str(tmp_path / "broken.json")], "broken.json"),
        ([str(tmp_path / "none.json")], "none.json"),
        ([str(SAMPLE), "--item", "3"], "has 1 choice; there is no --item 3"),
        ([str(SAMPLE), "--generate", "3"], "has its own tokens; leave out --generate"),
        ([str(SAMPLE), "--span", "output=the"], "--span output is what the server wrote"),
    ):
        assert main(["heads", "--ids", *arguments]) != 0
        said = capsys.readouterr().err
        assert message in " ".join(said.split())
        assert "Traceback" not in said
