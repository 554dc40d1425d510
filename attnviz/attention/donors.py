"""Another run's values inside a layer: what :func:`attend` reads and what it gives, replaced.

Notation as in :mod:`attnviz.attention.attend`; n runs of the same B items, each with shares of its
own, share one computation of attention where only its result is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from attnviz.core.source import Donor, Rows


def fed(
    donors: Sequence[Donor], query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with those of other runs in their place.

    Args:
        donors: those of other parts are passed over.
        query: [B, H, T, d].
        key: [B, G, S, d].
        value: [B, G, S, d_v].

    Raises:
        ValueError: shares or values of other sizes, named.
    """
    parts = {"q": query, "k": key, "v": value}
    for donor in donors:
        if donor.part in parts:
            parts[donor.part] = _blended(parts[donor.part], donor.values, donor, repeat=False)
    return parts["q"], parts["k"], parts["v"]


def donated(donors: Sequence[Donor], output: Tensor, value: Tensor) -> Tensor:
    """The heads' outputs with what other runs' weights or outputs make of them.

    Args:
        donors: those of other parts are passed over; weights come before outputs.
        output: [B, H, T, d_v].
        value: [B, G, S, d_v], as attention read it.

    Returns:
        [n · B, H, T, d_v].
    """
    late = [donor for donor in donors if donor.part in ("pattern", "z")]
    for donor in sorted(late, key=lambda donor: donor.part):
        values = donor.values
        if donor.part == "pattern":
            if len(values) < len(value):
                values = values.repeat(len(value) // len(values), 1, 1, 1)
            batch, heads, length, keys = values.shape
            weights = values.to(value.dtype).reshape(batch, value.shape[1], -1, keys)
            values = (weights @ value).view(batch, heads, length, -1)
        output = _blended(output, values, donor, repeat=True)
    return output


def mixed(rows: Rows) -> Tensor:
    """What the heads hand to W_O in a block: z = Σ_j α_ij v_j, [B, H, r, d_v]."""
    assert rows.values is not None, "every backend that can be gated hands its values out"
    batch, heads, count, keys = rows.weights.shape
    weights = rows.weights.reshape(batch, rows.values.shape[1], -1, keys).to(rows.values.dtype)
    return (weights @ rows.values).view(batch, heads, count, -1)


def _blended(own: Tensor, values: Tensor, donor: Donor, *, repeat: bool) -> Tensor:
    """Blend: x + share (values - x), exact for shares of 0 and 1.

    Args:
        own: x, [B, heads, positions, width].
        values: [B / m, heads, positions, width].
        donor: with the shares, [n · B, heads] or [n · B, heads, positions].
        repeat: whether x may be repeated n times.
    """
    share = donor.share.to(own.dtype)
    share = share[..., None, None] if share.ndim == 2 else share[..., None]
    items = len(share)
    sizes = tuple(values.shape[1:]) == tuple(own.shape[1:]) and share.shape[1] == own.shape[1]
    runs = items // len(own) if repeat else 1
    fits = items == runs * len(own) and items % max(len(values), 1) == 0
    if not sizes or not fits or share.shape[2] not in (1, own.shape[2]):
        raise ValueError(
            f"a donor of {donor.part} does not fit: values {tuple(donor.values.shape)}, shares "
            f"{tuple(donor.share.shape)}, and the layer has {tuple(own.shape)}"
        )
    own_runs = own.expand(runs, *own.shape).flatten(0, 1) if runs > 1 else own
    values = values.to(own.dtype)
    if len(values) < items:
        values = values.expand(items // len(values), *values.shape).flatten(0, 1)
    return share * values + (1 - share) * own_runs
