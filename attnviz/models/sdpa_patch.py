"""Calls of PyTorch's functional attention, seen while somebody else's code makes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnviz.errors import InputError, UsageError
from attnviz.models.output_gates import gated_output

_CALL = Signature(
    [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("query", "key", "value")]
    + [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in (
            ("attn_mask", None),
            ("dropout_p", 0.0),
            ("is_causal", False),
            ("scale", None),
            ("enable_gqa", False),
        )
    ]
)
"""Of ``scaled_dot_product_attention``, which is built in and tells no signature."""
_CHECK = "_validate_sdpa_input"
"""What FlexAttention calls before anything else."""


class SdpaWatch(TorchFunctionMode):
    """While it is on, hands over the arguments of every call of scaled dot-product attention.

    The call itself is made as it was meant, so that its result is the same to the bit where no
    head is gated; what modules such as ``nn.MultiheadAttention`` do inside is not seen.

    Args:
        tell: gets weights [B, H, T, S] and the allowed keys, bool [B, H or 1, T, S]; returns what
            each head's output is to be multiplied by, [H], or None.
        counts: whether calls are of interest now.
    """

    def __init__(
        self, tell: Callable[[Tensor, Tensor], Tensor | None], counts: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._tell, self._counts = tell, counts

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a call, and tell of it where it is attention."""
        given = kwargs or {}
        if func is functional.scaled_dot_product_attention and self._counts():
            gates = self._tell(*weights(*args, **given))
            return gated_output(func(*args, **given), gates)
        return func(*args, **given)


@contextmanager
def flex_refused() -> Iterator[None]:
    """In the ``with`` block FlexAttention is refused by name, at the check that it begins with."""
    from torch.nn.attention import flex_attention

    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError(
            "FlexAttention computes its weights inside a kernel, where nothing sees them; run the "
            "module with scaled_dot_product_attention"
        )

    known = getattr(flex_attention, _CHECK, None)
    if known is None:  # of another version of PyTorch: it then runs, and is not seen
        yield
        return
    setattr(flex_attention, _CHECK, refuse)
    try:
        yield
    finally:
        setattr(flex_attention, _CHECK, known)


def weights(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """The weights of a call of ``scaled_dot_product_attention``, before dropout, in float32.

    Returns:
        Weights [B, H, T, S], rows without an allowed key all zero; and the allowed keys, bool
        [B or 1, H or 1, T, S].

    Raises:
        InputError: not [B, H, T, d], or weights that are not numbers though keys were allowed.
    """
    call = _CALL.bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    query, key, mask = given["query"], given["key"], given["attn_mask"]
    if query.ndim != 4:
        raise InputError(
            f"scaled_dot_product_attention was called with queries of shape {tuple(query.shape)}; "
            "only [batch, heads, tokens, width] tells heads apart"
        )
    with torch.no_grad():
        wide = torch.promote_types(query.dtype, torch.float32)
        query, key = query.to(wide), key.to(wide)
        if given["enable_gqa"]:
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        scale = given["scale"]
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = query @ key.transpose(-1, -2) * scale
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        if given["is_causal"]:
            allowed = allowed.tril()
        if mask is not None:
            allowed = allowed & (mask if mask.dtype == torch.bool else mask > -torch.inf)
            scores = scores if mask.dtype == torch.bool else scores + mask
        allowed = allowed[(None,) * (4 - allowed.ndim)].expand(len(query), -1, -1, -1)
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        weights = weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
    if not bool(weights.isfinite().all()):
        raise InputError("attention weights are not numbers (NaN): look at what the module was fed")
    return weights, allowed
