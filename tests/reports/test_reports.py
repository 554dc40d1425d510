"""Public reports of people who look at attention: address, case, what holds.

A row is a thread, what somebody there has, and a function that tries it: maps are equal to weights
that the code itself kept, to eager attention or to arrays that were given; or the words of a
refusal. Some functions are tests of ``tests/models``, where code stands too that has no thread of
its own (``test_written.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.errors import AttnvizError, UsageError
from attnviz.scoring.merged import word_starts
from tests.models import test_layouts as layouts
from tests.models import test_watched_runs as runs
from tests.models import test_watching as watching
from tests.models import test_written as written
from tests.models.test_watched_runs import D, H, Written

L, B, T = 3, 2, 6
WORDS = [f"w{n}" for n in range(T)]
ALL = torch.randn(L, B, H, T, T, generator=torch.Generator().manual_seed(0)).softmax(-1)
LOWER = np.tri(T, dtype=bool)
BLOCKS = np.equal.outer(np.arange(T) // 3, np.arange(T) // 3)
PREFIX = LOWER | (np.arange(T) < 2)
GRAPH = np.eye(T, dtype=bool) | np.isin(np.subtract.outer(np.arange(T), np.arange(T)), (2, -2))
READ = [layer[:1, :, :3, :3].tril() for layer in ALL]
STEPS = [READ, *([x[:1, :, n : n + 1, : n + 1] for x in ALL] for n in range(3, T))]
TEXT = "The keyring was unusable"

Case = Callable[[], None]


def masked(low: float, allowed: Any) -> list[Tensor]:
    """One item's layers under an additive mask."""
    scores = torch.randn(L, H, T, T, generator=torch.Generator().manual_seed(1))
    return list((scores + torch.where(torch.as_tensor(allowed), 0.3, low + 0.3)).softmax(-1))


def reads(given: Any, expected: Any, tokens: Any = WORDS, **options: Any) -> Case:
    """Arrays whose maps of layer 1 are these, [H, T, S]."""

    def run() -> None:
        found = av.from_arrays(given, tokens, **options)
        (maps,) = (found.maps[site] for site in found.layout.sites if site.layer == 1)
        np.testing.assert_array_equal(maps, expected)

    return run


def allows(low: float, allowed: Any) -> Case:
    """Weights under an additive mask, of which it is known which keys it allows, bool [T, S]."""

    def run() -> None:
        found = av.from_arrays(masked(low, allowed), WORDS)
        for site in found.layout.sites:
            reach = found.reach[site].allowed(T, T)
            np.testing.assert_array_equal(reach, np.broadcast_to(allowed, (1, T, T)))

    return run


def refuses(given: Any, says: str, tokens: Any = WORDS, **options: Any) -> Case:
    """Arrays that are refused with these words."""

    def run() -> None:
        with pytest.raises(AttnvizError, match=says):
            av.from_arrays(given, tokens, **options)

    return run


def merges(pieces: str, words: str) -> Case:
    """Raw pieces of a vocabulary that are these words."""

    def run() -> None:
        texts = pieces.split()
        even = np.full((1, 1, len(texts), len(texts)), 1 / len(texts), np.float32)
        side = av.from_arrays(even, texts, kind="encoder").inputs.sides["encoder"].queries
        assert "|".join(text.strip(" ") for text in word_starts(side)[1].texts) == words

    return run


def sees(run: Callable[..., Any]) -> Case:
    """Code whose weights are those that it kept."""
    return partial(written.check_read, run)


def says(run: Callable[..., Any], reason: str) -> Case:
    """Code that is no attention or cannot be seen, as is said."""
    return partial(written.check_refused, run, reason)


def watched_pass(module: nn.Module, *given: Any, **named: Any) -> Any:
    """A pass that runs as it would, watched."""
    with torch.no_grad(), av.watch(module) as watched:
        module(*given, **named)
    return watched


def _padded(left: bool, count: int = 3) -> None:
    """Padding is left out, whatever its rows have, and a causal text is causal."""
    real = np.arange(T) >= count if left else np.arange(T) < T - count
    allowed = LOWER & real
    allowed[~real] = real if not left else True
    weights = np.stack([layer.numpy() for layer in masked(-np.inf, allowed)])
    given = {"attention_mask": real.astype(int), "layout": "lhqk"}
    found = av.from_arrays(weights, ["[PAD]" if not r else w for r, w in zip(real, WORDS, strict=True)], **given)  # fmt: skip
    assert found.layout.kinds == ("decoder",)
    for layer, maps in zip(weights, found.maps.values(), strict=True):
        np.testing.assert_array_equal(maps, layer[:, real][:, :, real])


def _words() -> None:
    """The weights from word to word, as numbers."""
    tokens = av.capture(TEXT, model="demo-bert")
    words = av.capture(TEXT, model="demo-bert", words=True)
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


def _one_head() -> None:
    """Each head of each layer has a map of its own, which its name gives."""
    found = av.capture(TEXT, model="demo-gpt2")
    for site, maps in found.maps.items():
        for head in range(len(maps)):
            np.testing.assert_array_equal(found[f"{site.layer}.{head}"], maps[head])


def _patches() -> None:
    """A vision model's patches stand on its picture, and it is asked for where it is missing."""
    tokens, picture = ["[CLS]", "[REG]", *[None] * 4], np.zeros((8, 8, 3), np.uint8)
    found = av.from_arrays(ALL[:, 0], tokens, picture=picture)
    assert found.tokens == ("[CLS]", "[REG]", "0,0", "0,1", "1,0", "1,1")
    with pytest.raises(UsageError, match="add their picture"):
        av.from_arrays(ALL[:, 0], tokens)


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
        watched = watched_pass(model, ids)
        model.set_attn_implementation("eager")
        expected = model(ids, output_attentions=True).attentions
    for site, maps in watched.capture().maps.items():
        np.testing.assert_allclose(maps, expected[site.layer][0].numpy(), atol=1e-6)


def _many_calls() -> None:
    """A decoder that attends once a step in one pass: each call is a layer with its number."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Written()

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.attention(x + n) for n in range(3)], 1)

    module = Steps().eval()
    watched = watched_pass(module, torch.randn(B, T, D))
    assert list(watched.layers.values()) == [
        "attention",
        "attention (call 2)",
        "attention (call 3)",
    ]
    for layer, kept in enumerate(module.attention.kept):
        np.testing.assert_array_equal(watched.capture(item=1)[f"{layer}.2"], kept[1, 2])


def _wrapped() -> None:
    """A model inside of a pipeline of modules that pass dictionaries on."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 41, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24}
    config = transformers.BertConfig(**sizes, num_attention_heads=4)

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.auto_model = transformers.BertModel(config)

        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            return {**features, "token_embeddings": self.auto_model(**features)[0]}

    model = nn.Sequential(Embedded()).eval()
    given = {"input_ids": torch.tensor([[5, 9, 2], [7, 3, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}  # fmt: skip
    found = watched_pass(model, dict(given)).capture(item=1)
    inner = model[0].auto_model
    inner.set_attn_implementation("eager")
    expected = inner(**given, output_attentions=True).attentions
    for site, maps in found.maps.items():
        np.testing.assert_allclose(maps, expected[site.layer][1].detach(), atol=1e-6)


ESM = {"attentions": ALL.transpose(0, 1)}
ROW, CROSS = [np.array([[0.9, 0.1]])] * 2, [ALL[n, 0, 0, :4].numpy() for n in range(2)]
NAN = [np.where(np.arange(T)[:, None] > 3, np.nan, layer) for layer in ALL[:, 0].numpy()]
INVERTED = [np.pad(ALL[n, 0, :, :4, :4].softmax(-1), ((0, 0), (0, 2), (0, 2))) for n in range(2)]
MADE = [torch.cat([x, x]) for x in READ]

REPORTS: list[tuple[str, str, Case]] = [
    # arrays
    ("facebookresearch/esm/issues/55", "[B, L, H, T, T]", reads(ESM, ALL[1, 1], item=1, layout="blhqk")),
    ("facebookresearch/esm/issues/264", "of one sequence", reads({"attentions": ESM["attentions"][1:]}, ALL[1, 1])),
    ("Biohub/esm/issues/177", "of which nothing says the order", refuses(ESM, "layout='lbhqk' or 'blhqk'", item=1)),
    ("pytorch/pytorch/issues/34537", "means over heads", reads([x.mean(1) for x in ALL], ALL[1].mean(1)[1:], layout="bqk", item=1)),
    ("pytorch/pytorch/issues/47583", "means are not taken for heads", refuses([x.mean(1) for x in ALL], "say layout='hqk'", item=1)),
    ("openai/CLIP/issues/47", "the mean map of one text", reads([x.mean(1)[:1] for x in ALL], ALL[1].mean(1)[:1])),
    ("jessevig/bertviz/issues/54", "one row of weights", refuses(ROW[0][0], "no axis for heads; .* layout='qk'", tokens=["Hello", "world"])),
    ("farizrahman4u/seq2seq/issues/272", "one row with its label", reads(ROW, ROW[0][None], ["label"], source_tokens=["Hello", "world"], layout="qk")),
    ("OpenNMT/OpenNMT-py/issues/736", "a map for a translation", reads(CROSS, CROSS[1][None], WORDS[:4], source_tokens=WORDS, layout="qk")),
    ("OpenNMT/OpenNMT-py/issues/903", "beams", refuses([MADE] * 3, "num_beams=1", tokens=[[*WORDS, "end"]])),
    ("huggingface/transformers/issues/26174", "steps of generate", reads(STEPS, ALL[1, 0].tril(), [*WORDS, "end"], sinks=True)),
    ("Shengcao-Cao/groundLMM/issues/3", "the last token was never read", reads(STEPS[:2], ALL[1, 0, :, :4, :4].tril(), [*WORDS[:4], "end"], sinks=True)),
    ("huggingface/transformers/issues/40752", "what asks for the first new token", reads(STEPS[:1], ALL[1, 0, :, :3, :3].tril(), [*WORDS[:3], "new"], sinks=True)),
    ("huggingface/transformers/issues/33296 huggingface/transformers/issues/17327", "steps of a translation; cross-attention of its steps", partial(layouts.test_generated_text_of_two_stacks, "bart", True)),
    ("huggingface/transformers/issues/5646", "windows in place of keys", refuses([ALL[0, :1, :, :, :5].softmax(-1)], "expected 6 keys, one for each token, found 5")),
    ("hila-chefer/Transformer-MM-Explainability/issues/4", "layers of unequal size", refuses([ALL[0, 0], ALL[0, 0, :, :3, :3]], "differ in queries × keys: 0 6 × 6, 1 3 × 3")),
    ("harvardnlp/annotated-transformer/issues/104", "rows are keys", refuses(list(ALL[:, 0].mT), "as columns do here: swap queries and keys")),
    ("facebookresearch/detr/issues/162", "rows are keys, and it is said", reads(list(ALL[:, 0].mT), ALL[1, 0], layout="hkq")),
    ("pytorch/pytorch/issues/41508", "rows of NaN", refuses(NAN, "finite weights, 0 where all keys are masked")),
    ("pytorch/pytorch/issues/160064", "a mask with True for blocked", refuses(masked(-torch.inf, LOWER), "give ~mask", mask=~LOWER)),
    ("pytorch/pytorch/issues/41508", "a mask with 1 for padding", refuses(INVERTED, "the other way round", attention_mask=[0] * 4 + [1] * 2)),
    ("thunlp/OpenPrompt/issues/70", "-10000", allows(-1e4, LOWER)),
    ("microsoft/Swin-Transformer/issues/168", "-100 between windows", allows(-100.0, BLOCKS)),
    ("PetarV-/GAT/issues/39", "-1e9 beside a graph's edges", allows(-1e9, GRAPH)),
    ("karpathy/nanoGPT/issues/280", "documents side by side", allows(-torch.inf, BLOCKS & LOWER)),
    ("bigscience-workshop/Megatron-DeepSpeed/issues/21", "a prefix that sees itself", allows(torch.finfo(torch.float32).min, PREFIX)),
    ("jessevig/bertviz/issues/101", "a padded batch", partial(_padded, False)),
    ("google-research/bert/issues/478", "padding that attends", partial(_padded, False, 2)),
    ("TransformerLensOrg/TransformerLens/issues/240", "padding on the left", partial(_padded, True)),
    ("TransformerLensOrg/TransformerLens/issues/1609", "padding on the left", partial(_padded, True, 2)),
    ("Lightning-AI/lit-llama/issues/77", "padding on the left", partial(_padded, True, 1)),
    ("jessevig/bertviz/issues/118 facebookresearch/dinov2/issues/390", "patches of a picture; patches behind registers", _patches),
    # words and means
    ("jessevig/bertviz/issues/23", "weights from word to word", _words),
    ("jessevig/bertviz/issues/111 facebookresearch/dino/issues/237", "all heads and layers; one map of all heads", _all_heads),
    ("jalammar/ecco/issues/37", "one head", _one_head),
    ("microsoft/nlp-recipes/issues/117", "##", merges("call Qing ##xi ##ong Daisy", "call|Qingxiong|Daisy")),
    ("tensorflow/text/issues/275", "## behind marks", merges("[CLS] un ##happi ##ness . [SEP]", "[CLS]|unhappiness|.|[SEP]")),
    ("PlanTL-GOB-ES/lm-biomedical-clinical-es/issues/2", "Ġ", merges("<s> Ġcreat inina ĠPTH </s>", "<s>|creatinina|PTH|</s>")),
    ("VinAIResearch/PhoBERT/issues/38", "@@", merges("Trần_@@ văn_@@ Thời", "Trần_văn_Thời")),
    # modules
    ("pytorch/pytorch/issues/128413 pytorch/pytorch/issues/82919 pytorch/pytorch/issues/99304 pytorch/pytorch/issues/88810", "PyTorch's fast path; hooks that are not called; an encoder's maps", watching.test_an_encoder_on_its_fast_path),
    ("pytorch/pytorch/issues/64509 harvardnlp/annotated-transformer/issues/54", "nn.Transformer; a decoder's two kinds", watching.test_a_whole_transformer),
    ("huggingface/transformers/issues/31990 huggingface/transformers/issues/32086 jessevig/bertviz/issues/128", "Llama without eager attention; fused and eager; groups of query heads", _fused),
    ("pytorch/pytorch/issues/119811 jacobgil/vit-explain/issues/23", "the fused function; fused blocks, whose dropout never runs", partial(watching.test_the_function_is_seen_and_nothing_else_changes, watching.Dotted)),
    ("huggingface/pytorch-image-models/issues/607", "forward_features", partial(runs.test_methods_of_the_module_are_passes, runs.Function, "forward_features")),
    ("openai/CLIP/issues/18 mlfoundations/open_clip/issues/795", "weights that are thrown away; need_weights=False", partial(watching.test_an_attention_module_whatever_it_is_asked_for, False, {"need_weights": False})),
    ("pytorch/pytorch/issues/153472", "nested tensors", partial(runs.test_nested_tensors_run_and_are_noted, torch.jagged)),
    ("Lightning-AI/pytorch-lightning/issues/49", "activation checkpointing", partial(runs.test_layers_that_backward_runs_again_are_not_another_pass, True)),
    ("linto-ai/whisper-timestamped/issues/40", "an encoder and a decoder called apart", runs.test_encoder_and_decoder_called_apart),
    ("openai/CLIP/issues/237", "a pool of pixels", runs.test_a_pool_by_the_function_of_pytorch),
    ("espnet/espnet/issues/1644", "attention once a step", _many_calls),
    ("huggingface/sentence-transformers/issues/1747 huggingface/sentence-transformers/issues/3399", "a model in a wrapper", _wrapped),
    ("huggingface/diffusers/issues/6036 wooyeolbaek/attention-map-diffusers/issues/18", "a pyramid", watching.test_layers_of_unlike_sizes_are_taken_one_size_at_a_time),
    # attention written out
    ("facebookresearch/fairseq/issues/3365", "sequence first", sees(written.sequence_first)),
    ("facebookresearch/fairseq/issues/1531", "sequence first with a mask", sees(written.mask_between)),
    ("lucidrains/x-transformers/issues/5", "heads that talk", sees(written.talking("einsum"))),
    ("tczhangzhi/VisionTransformer-Pytorch/issues/1", "tensordot", sees(written.tensordots)),
    ("lukemelas/PyTorch-Pretrained-ViT/issues/19", "-10000 for padding", sees(written.by(written.half_masked))),
    ("lucidrains/vit-pytorch/issues/1", "a class token", sees(written.class_token)),
    ("microsoft/Swin-Transformer/issues/130", "windows", sees(written.windows)),
    ("facebookresearch/detr/issues/593", "pixels to pixels", sees(written.pixels)),
    ("huggingface/transformers/issues/16424", "learned queries", sees(written.learned)),
    ("huggingface/diffusers/issues/3599", "heads beside the batch", sees(written.empty_sum)),
    ("mit-han-lab/fastcomposer/issues/7", "heads before the batch, two sequences", sees(written.keywords)),
    ("facebookresearch/esm/issues/57", "an alignment by columns", sees(written.alignment(False))),
    ("yikunpku/RNA-MSM/issues/16", "an alignment, tied rows", sees(written.alignment(True))),
    ("pyg-team/pytorch_geometric/issues/1141", "a dense graph", sees(written.dense_graph)),
    ("sktime/pytorch-forecasting/issues/1809 Nixtla/neuralforecast/issues/294", "heads with values in common", sees(written.shared_values)),
    ("aimagelab/meshed-memory-transformer/issues/28", "keys of a cache", sees(written.cached)),
    # what is none, or is not seen
    ("facebookresearch/xcit/issues/5", "attention over channels", says(written.channels, "features or heads")),
    ("MenghaoGuo/PCT/issues/14", "normalized twice", says(written.offsets, "values are summed over axis 1")),
    ("singhgautam/slate/issues/3", "slots", says(written.slots, "values are summed over axis 1")),
    ("fundamentalvision/Deformable-DETR/issues/71", "sampled places", says(written.deformable, "no product of two tensors")),
    ("bentrevett/pytorch-seq2seq/issues/90", "one query beside keys", says(written.beside_query, "no product of two tensors")),
    ("gordicaleksa/pytorch-GAT/issues/6", "features side by side", says(written.every_pair, "no product of two tensors")),
    ("facebookresearch/xformers/issues/821 facebookresearch/dinov2/issues/177 NVIDIA/TransformerEngine/issues/579", "a fused operator", says(written.operator, "inside a kernel")),
]  # fmt: skip
"""Of each thread the path on GitHub; threads that the same call tries stand together."""


@pytest.mark.parametrize(("address", "case", "run"), REPORTS, ids=[row[0] for row in REPORTS])
def test_a_report(address: str, case: str, run: Case) -> None:
    assert all("/issues/" in thread for thread in address.split())
    assert case
    run()
