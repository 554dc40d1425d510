"""Readable tokens: spellings, special tokens and words of any vocabulary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

import attnviz as av
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.models import pretrained, text
from attnviz.models.hooked.tokenizer import Texts
from tests import checkpoints


@pytest.fixture(scope="module")
def gpt2(folder):
    checkpoints.byte_pairs(folder)
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = Tokenizer(models.BPE.from_file(*files))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.add_tokens(["Ġraw é"])
    return tokenizer


def spaces(pieces):
    """A reader of a SentencePiece-like vocabulary."""
    tokenizer = Tokenizer(models.WordLevel({p: n for n, p in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return text.reader(tokenizer), tokenizer


@pytest.mark.parametrize(
    ("piece", "spelling", "expected"),
    [
        ("Ġkeys", "bytes", " keys"),
        ("Ċ", "bytes", "\n"),
        ("ĉ", "bytes", "\t"),
        ("ĠâļĻ", "bytes", " ⚙"),
        ("Ġâļ", "bytes", " <E2 9A>"),
        ("âļa", "bytes", "<E2 9A>a"),
        ("Ļ", "bytes", "<99>"),
        ("keys 键", "bytes", "keys 键"),  # not the byte alphabet: plain text
        ("the</w>", "bytes", "the "),
        ("the</w>", "spaces", "the "),
        ("</w>", "spaces", "</w>"),
        ("▁the", "spaces", " the"),
        ("▁▁", "spaces", "  "),
        ("<0x0A>", "spaces", "\n"),
        ("<0xE2>", "spaces", "<E2>"),
        ("<0xE2>", "whole", "<0xE2>"),
        ("##ing", "whole", "##ing"),
        ("Ġx", "whole", "Ġx"),
    ],
)
def test_pieces_become_readable(piece, spelling, expected):
    assert text.readable(piece, spelling) == expected


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_byte_pieces_spell_the_text(gpt2, written):
    """The texts of byte-level tokens, side by side, are the text, byte for byte."""
    ids = gpt2.encode(written, add_special_tokens=False).ids
    tokens = text.reader(gpt2).tokens(ids)
    assert b"".join(_bytes(part) for part in tokens.texts) == written.encode()
    assert list(tokens.words) == sorted(tokens.words)  # words never come back


def _bytes(part):
    """A token's bytes, those in hexadecimal included."""
    pieces = re.split(r"<((?:[89A-F][0-9A-F] ?)+)>", part)
    return b"".join(
        bytes.fromhex(piece) if n % 2 else piece.encode() for n, piece in enumerate(pieces)
    )


def test_added_and_unknown_ids(gpt2):
    reader = text.reader(gpt2)
    end, raw = gpt2.token_to_id("<|endoftext|>"), gpt2.token_to_id("Ġraw é")
    tokens = reader.tokens([end, raw, 99_999, end, -1])
    assert tokens.texts == ("<|endoftext|>", "Ġraw é", "#99999", "<|endoftext|>", "#-1")
    assert tokens.special == (True, False, False, True, False)
    assert tokens.separators == (False, False, False, True, False)  # the first ends nothing
    assert tokens.words[0] == tokens.words[3] == -1


def test_bert_words_segments_and_content_tokens(minilm):
    tokenizer = Tokenizer.from_file(f"{minilm}/tokenizer.json")
    tokenizer.no_padding()
    read = tokenizer.encode("Unaffable keys aren't [MASK].", "Yes")
    tokens = text.reader(tokenizer).tokens(read.ids, segments=read.type_ids)
    assert tokens.texts == (
        *("[CLS]", "una", "##ffa", "##ble", "keys", "aren", "'", "t", "[MASK]", ".", "[SEP]"),
        *("yes", "[SEP]"),
    )
    assert tokens.words == (-1, 0, 0, 0, 1, 2, 2, 2, 3, 4, -1, 5, -1)
    assert tokens.separators == (False,) * 10 + (True, False, True)
    assert tokens.special == (True, *(False,) * 9, True, False, True)
    assert tokens.segments == (0,) * 11 + (1, 1)


@pytest.mark.parametrize(
    ("texts", "spelling", "expected"),
    [
        (("The", " keys", "ring", ".", " \n", "x"), "bytes", (0, 1, 1, 2, 3, 4)),
        ((" ", "key", "s"), "spaces", (0, 0, 0)),  # a space alone begins the word after it
        ((" caf", "é", "-", "bar"), "spaces", (0, 0, 1, 2)),
        ((" <E2 9A>", "<99>", "<EF B8 8F>", " x"), "bytes", (0, 0, 0, 1)),
        ((" <D7>", "<A9>", "<D7>", "<9D>", ",", "<D7>", "<A9>"), "bytes", (0, 0, 0, 0, 1, 2, 2)),
        (("<E7 8C>", "<AB>", "<E3>", "<80>", "<82>", "x"), "bytes", (0, 0, 1, 1, 1, 2)),
        (("go", "<F0 9F>", "<9A>", "<80>"), "bytes", (0, 1, 1, 1)),
        ((" a", ">", "=", "b", "_", "1"), "bytes", (0, 1, 1, 2, 3, 4)),
        ((" न", "म", "स्", "ते"), "spaces", (0, 0, 0, 0)),  # marks belong to letters
        (("key", "##s", "."), "whole", (0, 0, 1)),
        (("the ", "key", "s ", "."), "spaces", (0, 1, 1, 2)),
        (("", "a"), "bytes", (0, 0)),
        ((" did", "n", "'t", " we", "'", "ll", "."), "bytes", (0, 0, 0, 1, 1, 1, 2)),
        ((" isn", "’", "t", " O", "'", "Br", "ien"), "spaces", (0, 0, 0, 1, 1, 1, 1)),
        ((" '", "no", "'", " cats", "'", " toys"), "bytes", (0, 1, 2, 3, 4, 5)),
        ((" rock", "'", "!"), "bytes", (0, 1, 1)),
        (("did", "##n", "'", "t", "the", "'", "no", "'"), "whole", (0, 0, 0, 0, 1, 2, 3, 4)),
    ],
)
def test_words(texts, spelling, expected):
    assert text.words(texts, [False] * len(texts), spelling) == expected


def test_a_special_token_ends_a_word():
    assert text.words((" a", "<s>", "b"), (False, True, False), "spaces") == (0, -1, 1)


def test_an_apostrophe_before_a_special_token_ends_its_word():
    assert text.words((" a", "'", "t"), (False, False, True), "bytes") == (0, 1, -1)


def test_sentencepiece_spelling_is_found():
    reader, tokenizer = spaces(["<unk>", "▁the", "▁keys"])
    tokens = reader.tokens(tokenizer.encode("the keys").ids)
    assert reader.spelling == "spaces"
    assert tokens.texts == (" the", " keys")


def test_slow_tokenizers_of_transformers(tmp_path):
    tokenizer = ByT5Tokenizer()
    reader = text.transformers_reader(tokenizer)
    tokens = reader.tokens(tokenizer("hi you")["input_ids"])
    assert tokens.texts == ("h", "i", " ", "y", "o", "u", "</s>")
    assert tokens.words == (0, 0, 1, 1, 1, 1, -1)
    assert tokens.separators[-1]


def test_fast_tokenizers_of_transformers_read_as_their_backend(minilm):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    ours = text.transformers_reader(tokenizer).tokens(tokenizer("the keyring")["input_ids"])
    assert ours.texts == ("[CLS]", "the", "key", "##ring", "[SEP]")
    assert ours.separators == (False, False, False, False, True)


def _unmarked(splitter):
    """A vocabulary whose pieces say nothing of words, as the quick tour of tokenizers builds it."""
    pieces = ["[UNK]", "u", "n", "d", "o", "un", "the", "t", "h", "e", "th", "."]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("u", "n"), ("t", "h"), ("th", "e")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = splitter
    return tokenizer


@pytest.mark.parametrize("splitter", ["Whitespace", "WhitespaceSplit", "BertPreTokenizer"])
def test_where_pieces_have_no_marks_the_tokenizers_own_words_decide(splitter):
    tokenizer = _unmarked(getattr(pre_tokenizers, splitter)())
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    tokens, _ = Texts(fast, "x").encode("undo the undo.")
    own = fast("undo the undo.").word_ids(0)
    assert list(tokens.words) == own


def test_where_a_tokenizer_has_no_words_the_spaces_of_the_text_decide():
    tokenizer = _unmarked(None)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    tokens, _ = Texts(fast, "x").encode("undo the")
    assert fast("undo the").word_ids(0) == [0] * len(tokens)
    assert [tokens.words[0]] * 3 == list(tokens.words[:3])
    assert tokens.words[-1] != tokens.words[0]


def test_an_unknown_token_shows_what_it_stands_for():
    tokenizer = _unmarked(pre_tokenizers.Whitespace())
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    tokens, _ = Texts(fast, "x").encode("the ☃ the")
    assert tokens.texts == ("the", "[UNK] ☃", "the")
    assert Texts(fast, "x").tokens([0]).texts == ("[UNK]",)


def test_marks_of_continuation_may_be_others():
    vocabulary = {"[UNK]": 0, "un": 1, "~do": 2, "~": 3}
    model = models.WordPiece(vocabulary, unk_token="[UNK]", continuing_subword_prefix="~")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = text.reader(tokenizer).tokens(tokenizer.encode("undo un").ids)
    assert tokens.texts == ("un", "##do", "un")
    assert tokens.words == (0, 0, 1)


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
