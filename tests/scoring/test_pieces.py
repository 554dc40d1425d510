"""Pieces of words, as vocabularies mark them: what one word is, in texts and in arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attnviz as av

TEXT = "The keyring was unusable"


def test_bertweet_phobert_and_ctrl_join_what_their_vocabularies_join(tmp_path: Path) -> None:
    """Pieces that go on end in ``@@``; a stop is a word of its own, as in every vocabulary."""
    import json

    from transformers import BertweetTokenizer, CTRLTokenizer, PhobertTokenizer

    from attnviz.models.hooked.tokenizer import Texts
    from attnviz.scoring.merged import word_starts

    pieces = ["c@@", "a@@", "t", ".", "t@@", "he", "cat@@"]
    (tmp_path / "vocab.txt").write_text("".join(f"{p} {n}\n" for n, p in enumerate(pieces)))
    (tmp_path / "codes").write_text("h e</w> 1\n")
    (tmp_path / "vocab.json").write_text(
        json.dumps({p: n for n, p in enumerate([*pieces, "<unk>"])})
    )
    (tmp_path / "merges").write_text("#version: 0.2\nh e</w>\n")
    tokenizers = [
        BertweetTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "codes")),
        PhobertTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "codes")),
        CTRLTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges")),
    ]
    for tokenizer in tokenizers:
        tokens, _ = Texts(tokenizer, "x").encode("the cat .", special=False)
        assert tokens.texts == ("t@@", "he", "c@@", "a@@", "t", ".")
        assert word_starts(tokens)[1].texts == ("the", "cat", ".")
        joined = Texts(tokenizer, "x").tokens(tokenizer.convert_tokens_to_ids(["cat@@", "."]))
        assert word_starts(joined)[1].texts == ("cat", ".")


RAW = [
    (["[CLS]", "The", "un", "##happi", "##ness", ".", "[SEP]"], "[CLS] The unhappiness . [SEP]"),
    (["The", "Ġun", "happi", "ness", "."], "The unhappiness ."),
    (["<s>", "▁The", "▁un", "happi", "ness", "."], "<s> The unhappiness ."),
    (["the</w>", "un", "happi", "ness</w>", ".</w>"], "the unhappiness ."),
    (["the", "un@@", "happi@@", "ness", "."], "the unhappiness ."),
    (["Ġna", "Ã¯", "ve", "Ċ"], "naïve \n"),
    (["##", "un", "@@", "▂x"], "## un @@ ▂x"),  # marks alone are text
    (["Ġużeppi", "kiel", "ħobż"], "Ġużeppi kiel ħobż"),  # a letter of Maltese
]


@pytest.mark.parametrize(("pieces", "words"), RAW)
def test_raw_pieces_merge(pieces: list[str], words: str) -> None:
    from attnviz.scoring.merged import word_starts

    count = len(pieces)
    weights = np.full((1, 1, count, count), 1 / count, np.float32)
    held = av.from_arrays(weights, pieces, kind="encoder")
    merged = word_starts(held.inputs.sides["encoder"].queries)[1].texts
    assert " ".join(text.strip(" ") for text in merged) == words


def test_recorded_pieces_merge_too(tmp_path: Path) -> None:
    """A file with raw pieces, and one whose flags say nothing of words."""
    from attnviz.scoring.merged import word_starts

    weights = np.full((1, 1, 3, 3), 1 / 3, np.float32)
    for more in ({}, {"special": np.array([True, False, False])}):
        np.savez(tmp_path / "x.npz", attentions=weights, tokens=["[CLS]", "un", "##do"], **more)
        sides = av.read(tmp_path / "x.npz").inputs.sides["encoder"]
        assert word_starts(sides.queries)[1].texts == ("[CLS]", "undo")


def test_words_and_means_of_padded_arrays_are_those_of_the_text() -> None:
    """Padding told by a mask is left out before words are merged and means are taken."""
    own = av.capture(TEXT, model="demo-bert")
    arrays = [np.pad(layer, ((0, 0), (0, 2), (0, 2))) for layer in own.maps.values()]
    given = av.from_arrays(
        arrays, [*own.tokens, "[PAD]", "[PAD]"], attention_mask=[1] * len(own.tokens) + [0] * 2
    )
    words = av.capture(given, words=True, mean="heads")
    expected = av.capture(TEXT, model="demo-bert", words=True, mean="heads")
    assert words.tokens == expected.tokens
    for site, layer in expected.maps.items():
        np.testing.assert_allclose(words.maps[site], layer, atol=1e-6)
        assert np.asarray(words.reach[site].allowed(*layer.shape[1:])).all()
