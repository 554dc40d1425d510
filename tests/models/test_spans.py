"""Named parts of a text as tokens, on every kind of model, and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.models import pretrained

TEXT = "The keys to the cabinet are on the table."


def of(model: Any, spans: dict[str, str], text: str = TEXT, **more: Any) -> tuple[Tokens, Any]:
    inputs = av.load(model).prepare(av.Prompt(text, spans=spans, **more))
    return next(iter(inputs.sides.values())).keys, inputs.notes


def texts(tokens: Tokens, name: str) -> list[str]:
    (span,) = [one for one in tokens.spans if one.name == name]
    return [tokens.texts[place].strip() for place in span.positions]


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert", "fresh", "hooked"])
def test_the_same_words_on_every_kind_of_model(model: str) -> None:
    source = pretrained.load("demo-gpt2", backend="hooked") if model == "hooked" else model
    spans = {"thing": "cabinet", "the": "all:the ", "end": "regex:t.ble"}
    tokens, notes = of(source, spans)
    assert "".join(texts(tokens, "thing")).replace("##", "") == "cabinet"
    assert texts(tokens, "the") == ["the", "the"]
    assert "".join(texts(tokens, "end")).replace("##", "") == "table"
    assert notes == ()


def test_a_token_that_holds_more_is_in_and_is_said() -> None:
    tokens, notes = of("demo-gpt2", {"part": "he ke"})
    assert texts(tokens, "part") == ["The", "keys"]
    assert notes == (
        "Span 'part': its first token also holds 'T'.",
        "Span 'part': its last token also holds 'ys'.",
    )


def test_the_space_before_a_word_is_not_the_word_before() -> None:
    tokens, _ = of("demo-gpt2", {"one": "The ", "two": "keys "})
    assert texts(tokens, "one") == ["The"]
    assert texts(tokens, "two") == ["keys"]


def test_the_first_of_several_is_said_to_be_taken() -> None:
    tokens, notes = of("demo-gpt2", {"the": "the"})
    assert [span.ranges for span in tokens.spans] == [((4, 5),)]
    assert "'the' is in the text 2 times; the first is taken" in notes[0]


def test_parts_of_ids_are_tokens_or_what_they_stand_for() -> None:
    source = av.load("demo-gpt2")
    spans = {"a": "the cabinet", "b": "regex:tab.e", "c": "tokens:0-0"}
    typed = source.prepare(av.Prompt(TEXT, spans=spans)).sides["decoder"].keys
    by_ids = source.prepare(av.Prompt(ids=typed.ids, spans=spans)).sides["decoder"].keys
    assert [span.positions for span in by_ids.spans] == [span.positions for span in typed.spans]
    assert not any(span.characters for span in by_ids.spans)  # there is no text that has them
    with pytest.raises(InputError, match="'a'"):
        source.prepare(av.Prompt(ids=typed.ids, spans={"a": "piano"}))


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ({"a": "tokens:3-90"}, "span 'a' ends at token 90; the text has 11 tokens"),
        ({"a": "chars:3-90"}, "span 'a' ends at character 90; the text has 41"),
        ({"a": "keys to", "b": "to the"}, "spans 'a' and 'b' overlap"),
        ({"a": "keys", "b": "tokens:2-2"}, "spans 'a' and 'b' are the same tokens"),
        ({"a": "key", "b": "chars:4-6"}, "spans 'a' and 'b' are the same tokens"),
        ({"a": "chars:3-3"}, "span 'a' has no token"),
    ],
)
def test_parts_that_cannot_be_are_refused_by_name(spans: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        of("demo-gpt2", spans)


def test_what_is_cut_off_is_said_or_refused() -> None:
    long = "word " * 300 + "end"
    tokens, notes = of("demo-gpt2", {"a": "regex:word.*end"}, long, truncate=True)
    assert tokens.spans[0].positions[-1] == 255
    assert any("'a': part of it was cut off" in note for note in notes)
    with pytest.raises(InputError, match="span 'z' has no token among those that are read"):
        of("demo-gpt2", {"z": "end"}, long, truncate=True)


def test_the_second_sentence_is_not_looked_into() -> None:
    tokens, _ = of("demo-bert", {"a": "chars:0-2"}, "the cat", pair="the dog")
    assert [span.positions for span in tokens.spans] == [(1,)]


def test_generated_tokens_leave_the_parts_where_they_are() -> None:
    found = (
        av.capture(av.Prompt("The keys to", spans={"k": "keys"}, generate=av.Generation(2)))
        .inputs.sides["decoder"]
        .keys
    )
    assert found.written == 2
    assert [found.texts[at] for at in found.spans[0].positions] == [" keys"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_captures_keep_them(tmp_path: Path, suffix: str) -> None:
    held = av.capture(av.Prompt(TEXT, spans={"a": "all:the", "b": "keys to"}))
    path = av.write_capture(held, tmp_path / f"one{suffix}")
    assert av.read(path).inputs.sides == held.inputs.sides


def test_heads_keep_them_in_their_json() -> None:
    found = av.heads(av.Prompt(TEXT, spans={"a": "all:the"}))
    again = type(found).from_json(found.to_json())
    assert again.tokens["decoder"].keys.spans == found.tokens["decoder"].keys.spans
    assert again == found
