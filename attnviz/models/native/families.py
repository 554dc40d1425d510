"""The families of the native backend: one table each of configuration keys and weight names.

BERT (Devlin et al. 2018, arXiv:1810.04805) normalizes after each residual sum, GPT-2 (Radford et
al. 2019) before each sublayer; DistilBERT (arXiv:1910.01108) and RoBERTa (arXiv:1907.11692) are
BERT under other names, the latter with positions that count from its padding id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from attnviz.core.heads import SiteKind

Spelling = Literal["wordpiece", "roberta", "gpt2"]

_BERT = {
    "vocab": 30522,
    "width": 768,
    "layers": 12,
    "heads": 12,
    "inner": 3072,
    "positions": 512,
    "segments": 2,
    "eps": 1e-12,
    "activation": "gelu",
    "pad": 0,
}
_OFF: dict[str, tuple[Any, ...]] = {"add_cross_attention": (None, False)}
_ENCODER = {
    **_OFF,
    "is_decoder": (None, False),
    "position_embedding_type": (None, "absolute"),
}


@dataclass(frozen=True)
class NativeFamily:
    """What tells one family from another.

    Attributes:
        kind: what its layers are.
        tokenizer: how its vocabulary is built where there is no ``tokenizer.json``.
        defaults: of the configuration, as transformers has them.
        needs: configuration keys and the values of them that this backend can compute.
        tensors: part -> name in the checkpoint, with ``{}`` for the layer's number.
        words: part of the LM head -> its full name; ``table`` is the token embeddings unless
            the configuration says that the two are not tied.
        buffers: tensors that are stored and mean nothing.
        pre_norm: normalization before each sublayer instead of after it.
        transposed: matrices stored as [in, out].
        from_padding: positions count from the padding id + 1, and only tokens that are not padding.
    """

    kind: SiteKind
    tokenizer: Spelling
    defaults: Mapping[str, Any]
    needs: Mapping[str, tuple[Any, ...]]
    tensors: Mapping[str, str]
    words: Mapping[str, str]
    buffers: re.Pattern[str]
    pre_norm: bool = False
    transposed: bool = False
    from_padding: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """The first parts of all tensor names of the model itself; others belong to heads on it."""
        return tuple({name.split(".")[0] + "." for name in self.tensors.values()})


BERT = NativeFamily(
    kind="encoder",
    tokenizer="wordpiece",
    defaults=_BERT,
    needs=_ENCODER,
    tensors={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "segments": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "query": "encoder.layer.{}.attention.self.query",
        "key": "encoder.layer.{}.attention.self.key",
        "value": "encoder.layer.{}.attention.self.value",
        "out": "encoder.layer.{}.attention.output.dense",
        "norm_1": "encoder.layer.{}.attention.output.LayerNorm",
        "up": "encoder.layer.{}.intermediate.dense",
        "down": "encoder.layer.{}.output.dense",
        "norm_2": "encoder.layer.{}.output.LayerNorm",
    },
    words={
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "table": "cls.predictions.decoder",
        "bias": "cls.predictions.bias",
    },
    buffers=re.compile(r"embeddings\.(position_ids|token_type_ids)"),
)
ROBERTA = NativeFamily(
    kind="encoder",
    tokenizer="roberta",
    defaults=_BERT | {"vocab": 50265, "pad": 1},
    needs=_ENCODER,
    tensors=BERT.tensors,
    words={
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "table": "lm_head.decoder",
        "bias": "lm_head.bias",
    },
    buffers=BERT.buffers,
    from_padding=True,
)
DISTILBERT = NativeFamily(
    kind="encoder",
    tokenizer="wordpiece",
    defaults=_BERT | {"layers": 6},
    needs=_ENCODER,
    tensors={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "norm": "embeddings.LayerNorm",
        "query": "transformer.layer.{}.attention.q_lin",
        "key": "transformer.layer.{}.attention.k_lin",
        "value": "transformer.layer.{}.attention.v_lin",
        "out": "transformer.layer.{}.attention.out_lin",
        "norm_1": "transformer.layer.{}.sa_layer_norm",
        "up": "transformer.layer.{}.ffn.lin1",
        "down": "transformer.layer.{}.ffn.lin2",
        "norm_2": "transformer.layer.{}.output_layer_norm",
    },
    words={
        "dense": "vocab_transform",
        "norm": "vocab_layer_norm",
        "table": "vocab_projector",
        "bias": "vocab_projector.bias",
    },
    buffers=BERT.buffers,
)
GPT2 = NativeFamily(
    kind="decoder",
    tokenizer="gpt2",
    defaults={
        "vocab": 50257,
        "width": 768,
        "layers": 12,
        "heads": 12,
        "inner": None,
        "positions": 1024,
        "eps": 1e-5,
        "activation": "gelu_new",
        "pad": 0,
    },
    needs=_OFF,
    tensors={
        "tokens": "wte",
        "positions": "wpe",
        "norm": "ln_f",
        "qkv": "h.{}.attn.c_attn",
        "out": "h.{}.attn.c_proj",
        "norm_1": "h.{}.ln_1",
        "up": "h.{}.mlp.c_fc",
        "down": "h.{}.mlp.c_proj",
        "norm_2": "h.{}.ln_2",
    },
    words={"table": "lm_head"},
    buffers=re.compile(r"h\.\d+\.attn\.(bias|masked_bias)"),
    pre_norm=True,
    transposed=True,
)

FAMILIES: Mapping[str, NativeFamily] = {
    "bert": BERT,
    "distilbert": DISTILBERT,
    "gpt2": GPT2,
    "roberta": ROBERTA,
}
"""``model_type`` -> family."""
