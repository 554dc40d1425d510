"""Where the projections of a checkpoint's heads stand: W_Q, W_K, W_V and W_O by their names.

Three ways of storing them are known: GPT-2's (one matrix for query, key and value, as [in, out]),
BERT's and its kin's, and Llama's with query groups (GQA, Ainslie et al. 2023, arXiv:2305.13245).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from attnviz.errors import ModelError

_FUSED = re.compile(r"(?:^|\.)h\.(\d+)\.attn\.(c_attn|c_proj)\.(weight|bias)$")
_APART = (
    re.compile(r"(?:^|\.)layer\.(\d+)\.attention\.self\.(query|key|value)\.(weight|bias)$"),
    re.compile(r"(?:^|\.)layer\.(\d+)\.attention\.output\.(dense)\.(weight|bias)$"),
    re.compile(r"(?:^|\.)layer\.(\d+)\.attention\.(q_lin|k_lin|v_lin|out_lin)\.(weight|bias)$"),
)
_GROUPED = re.compile(r"(?:^|\.)layers\.(\d+)\.self_attn\.(\w+)(?:\.(weight|bias))?$")
_ROLES = {
    "c_attn": "qkv", "c_proj": "out", "query": "q", "key": "k", "value": "v", "dense": "out",
    "q_lin": "q", "k_lin": "k", "v_lin": "v", "out_lin": "out",
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out",
}  # fmt: skip


@dataclass(frozen=True)
class StoredProjections:
    """The tensors of every layer's attention."""

    transposed: bool  # whether matrices are stored as [in, out]
    fused: bool  # whether query, key and value are one matrix
    # whether sizes of heads do not follow from their number, so that transformers may load fewer
    cuttable: bool
    # by layer and part (``q``, ``k``, ``v``, ``qkv``, ``out``, then ``.weight`` or ``.bias``), the
    # tensor's name
    names: Mapping[int, Mapping[str, str]]
    # of each layer's attention, tensors that are none of these
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def find(tensors: Iterable[str], model: str) -> StoredProjections:
    """Find the projections by the names of a checkpoint's tensors."""
    listed = list(tensors)
    for patterns, transposed, grouped in (
        ((_FUSED,), True, False),
        (_APART, False, False),
        ((_GROUPED,), False, True),
    ):
        names: dict[int, dict[str, str]] = {}
        others: dict[int, tuple[str, ...]] = {}
        for name in listed:
            for pattern in patterns:
                match = pattern.search(name)
                if match is None:
                    continue
                layer, role = int(match[1]), _ROLES.get(match[2])
                if role is None:
                    others[layer] = (*others.get(layer, ()), name)
                    continue
                names.setdefault(layer, {})[f"{role}.{match[3]}"] = name
        needed = {"qkv.weight", "out.weight"} if transposed else {
            "q.weight", "k.weight", "v.weight", "out.weight"
        }  # fmt: skip
        if names and all(needed <= set(keys) for keys in names.values()):
            return StoredProjections(transposed, transposed, grouped, names, others)
    raise ModelError(
        f"the heads of {model} cannot be removed: its projections are none of GPT-2's, BERT's or "
        "Llama's by their names"
    )
