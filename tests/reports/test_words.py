"""What people reported of words and of means over heads: address, case, and that it holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.errors import UsageError

TEXT = "The keyring was unusable"


def _words() -> None:
    """The weights from word to word, as numbers."""
    tokens, words = (
        av.capture(TEXT, model="demo-bert"),
        av.capture(TEXT, model="demo-bert", words=True),
    )
    assert words.tokens == ("[CLS]", "the", "keyring", "was", "unusable", "[SEP]")
    map_ = tokens["1.2"]
    assert words["1.2"][2, 4] == pytest.approx(map_[2:4, 5:7].sum(1).mean(), abs=1e-6)


def _all_heads() -> None:
    """One map of all heads and layers, for which a sum over words is asked."""
    whole = av.capture(TEXT, model="demo-bert")
    mean = av.capture(TEXT, model="demo-bert", mean="all", words=True)
    by_hand = np.stack(list(whole.maps.values())).astype(np.float64).mean((0, 1))
    ((row,),) = mean.maps.values()
    assert row[2, 4] == pytest.approx(by_hand[2:4, 5:7].sum(1).mean(), abs=1e-6)
    assert any("hides what single heads do" in note for note in mean.inputs.notes)


def _padded() -> None:
    """A batch padded to one length is shown without its padding."""
    draw = np.random.default_rng(0).random((2, 3, 16, 16))
    draw[..., 12:] = 0
    weights = draw / draw.sum(-1, keepdims=True)
    tokens = [f"w{n}" for n in range(12)] + ["[PAD]"] * 4
    found = av.from_arrays(weights, tokens, attention_mask=[1] * 12 + [0] * 4, layout="lhqk")
    assert {map_.shape for map_ in found.maps.values()} == {(3, 12, 12)}


def _left_padded() -> None:
    """Padding before a causal text leaves it causal."""
    lower = np.tril(np.ones((8, 8)))
    lower[:, :3] = 0
    lower[:3] = 1
    weights = np.broadcast_to(lower / lower.sum(-1, keepdims=True), (2, 4, 8, 8))
    tokens = ["<pad>"] * 3 + list("abcde")
    found = av.from_arrays(weights, tokens, attention_mask=[0] * 3 + [1] * 5, layout="lhqk")
    assert found.layout.kinds == ("decoder",)
    assert {map_.shape for map_ in found.maps.values()} == {(4, 5, 5)}


def _one_head() -> None:
    """Each head of each layer has a map of its own, which its name gives."""
    found = av.capture(TEXT, model="demo-gpt2")
    for site, maps in found.maps.items():
        for head in range(len(maps)):
            np.testing.assert_array_equal(found[f"{site.layer}.{head}"], maps[head])


def _encoder() -> None:
    """An encoder on PyTorch's fast path, which no hook of its parts sees, is seen."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(1, 5, 32)
    with torch.inference_mode():
        plain = encoder(x)
        with av.watch(encoder) as watched:
            assert torch.equal(encoder(x), plain)
        attention = encoder.layers[0].self_attn
        _, weights = attention(x, x, x, average_attn_weights=False)
    found = watched.capture()
    assert found.layout.heads == {"encoder": (4, 4)}
    np.testing.assert_allclose(found["0.1"], weights[0, 1].numpy(), atol=1e-6)


def _fused() -> None:
    """A model whose fused attention returns no weights has those of eager attention."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 41, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).eval()
    ids = torch.tensor([[5, 9, 2, 31, 17]])
    with torch.no_grad():
        model.set_attn_implementation("sdpa")
        with av.watch(model) as watched:
            model(ids)
        model.set_attn_implementation("eager")
        expected = model(ids, output_attentions=True).attentions
    for site, maps in watched.capture().maps.items():
        np.testing.assert_allclose(maps, expected[site.layer][0].numpy(), atol=1e-6)


def _sizes() -> None:
    """Layers of a pyramid are taken by size, and keep their numbers."""

    class Level(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.cross = torch.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            x = x + self.inner(x, x, x)[0]
            return x + self.cross(x, words, words)[0]

    class Pyramid(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.levels = torch.nn.ModuleList(Level() for _ in range(2))

        def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            for level in self.levels:
                x = level(x, words)[:, ::2]
            return x

    with torch.no_grad(), av.watch(pyramid := Pyramid().eval()) as watched:
        pyramid(torch.randn(1, 16, 8), torch.randn(1, 3, 8))
    found = watched.capture(layers=["levels.1.cross"])
    assert {map_.shape for map_ in found.maps.values()} == {(2, 8, 3)}
    with pytest.raises(UsageError, match="choose those of one size"):
        watched.capture()


REPORTS: list[tuple[str, Callable[[], None]]] = [
    ("https://github.com/jessevig/bertviz/issues/101", _padded),
    ("https://github.com/TransformerLensOrg/TransformerLens/issues/240", _left_padded),
    ("https://github.com/TransformerLensOrg/TransformerLens/issues/1609", _left_padded),
    ("https://github.com/jalammar/ecco/issues/37", _one_head),
    ("https://github.com/inseq-team/inseq/issues/208", _one_head),
    ("https://github.com/pytorch/pytorch/issues/128413", _encoder),
    ("https://github.com/pytorch/pytorch/issues/132700", _encoder),
    ("https://github.com/pytorch/pytorch/issues/82919", _encoder),
    ("https://github.com/pytorch/pytorch/issues/99304", _encoder),
    ("https://github.com/pytorch/pytorch/issues/88810", _encoder),
    ("https://github.com/huggingface/transformers/issues/31990", _fused),
    ("https://github.com/huggingface/transformers/issues/32086", _fused),
    ("https://github.com/huggingface/diffusers/issues/6036", _sizes),
    ("https://github.com/jessevig/bertviz/issues/23", _words),
    ("https://github.com/jessevig/bertviz/issues/111", _all_heads),
]


@pytest.mark.parametrize(
    ("address", "case"), REPORTS, ids=[row[0].partition("com/")[2] for row in REPORTS]
)
def test_a_report(address: str, case: Callable[[], None]) -> None:
    assert address.startswith("https://")
    case()


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
