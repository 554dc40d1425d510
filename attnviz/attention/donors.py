"""Another run's values inside a layer: what :func:`attend` reads and what it gives, replaced.

Notation as in :mod:`attnviz.attention.attend`; n runs of the same B items, each with shares of its
own, share one computation of attention where only its result is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.source import Donor, Rows


def fed(
    donors: Sequence[Donor], query: Array, key: Array, value: Array
) -> tuple[Array, Array, Array]:
    """Queries, keys and values with those of other runs in their place.

    ``query`` [B, H, T, d]; ``key`` [B, G, S, d]; ``value`` [B, G, S, d_v].
    """
    parts = {"q": query, "k": key, "v": value}
    for donor in donors:
        if donor.part in parts:
            parts[donor.part] = _blended(parts[donor.part], donor.values, donor, repeat=False)
    return parts["q"], parts["k"], parts["v"]


def donated(donors: Sequence[Donor], output: Array, value: Array) -> Array:
    """The heads' outputs with what other runs' weights or outputs make of them.

    ``output`` [B, H, T, d_v]; ``value`` [B, G, S, d_v], as attention read it; returns [n · B, H, T,
    d_v].
    """
    on = arrays.of(output)
    xp = on.xp
    late = [donor.converted(output) for donor in donors if donor.part in ("pattern", "z")]
    for donor in sorted(late, key=lambda donor: donor.part):
        values = donor.values
        if donor.part == "pattern":
            if len(values) < len(value):
                values = xp.tile(values, (len(value) // len(values), 1, 1, 1))
            batch, heads, length, keys = values.shape
            weights = on.cast(values, value.dtype).reshape(batch, value.shape[1], -1, keys)
            values = (weights @ value).reshape(batch, heads, length, -1)
        output = _blended(output, values, donor, repeat=True)
    return output


def exchanged(donor: Donor, own: Array) -> Array:
    """A layer's own gate with another run's in its place, [B, H, T, d_v]; see :class:`Donor`."""
    return _blended(own, donor.values, donor, repeat=False)


def written(rows: Rows, z: Array | None = None) -> Array:
    """What W_O gets of a block's heads, [B, H, r, d_v]: z, or z ⊙ m where m stands between."""
    z = mixed(rows) if z is None else z
    return z if rows.passes is None else z * arrays.of(z).cast(rows.passes, z.dtype)


def mixed(rows: Rows) -> Array:
    """What attention gives of a block's heads: z = Σ_j α_ij v_j, [B, H, r, d_v]."""
    assert rows.values is not None, "every backend that can be gated hands its values out"
    batch, heads, count, keys = rows.weights.shape
    weights = rows.weights.reshape(batch, rows.values.shape[1], -1, keys)
    weights = arrays.of(weights).cast(weights, rows.values.dtype)
    made: Array = (weights @ rows.values).reshape(batch, heads, count, -1)
    return made


def _blended(own: Array, values: Array, donor: Donor, *, repeat: bool) -> Array:
    """Blend: x + share (values - x), exact for shares of 0 and 1.

    ``own``: x, [B, heads, positions, width]; ``donor``: with the shares, [n · B, heads] or [n · B,
    heads, positions].
    """
    on = arrays.of(own)
    share = on.cast(donor.share, own.dtype)
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
    own_runs = on.xp.tile(own, (runs, 1, 1, 1)) if runs > 1 else own
    values = on.cast(values, own.dtype)
    if len(values) < items:
        values = on.xp.tile(values, (items // len(values), 1, 1, 1))
    blended: Array = share * values + (1 - share) * own_runs
    return blended
