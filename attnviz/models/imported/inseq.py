"""What Inseq saves of its method ``attention``: a JSON document with safetensors inside.

``source_attributions`` and ``target_attributions`` are [keys, queries, layers, heads]. A column is
of a word that was generated, and holds the weights of the query before it, which wrote that word;
what it did not see is NaN.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import SiteKind
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.models.external_errors import one_line
from attnviz.models.imported.recording import Imported, Layers
from attnviz.models.text import marked

Array = NDArray[Any]

PART = (
    "Inseq keeps the weights of the queries that wrote a word: rows of the prompt before its last "
    "token are empty."
)


def is_inseq(document: Any) -> bool:
    """Whether a JSON document is what Inseq saves."""
    return isinstance(_plain(document), dict) and "sequence_attributions" in _plain(document)


def count(document: Any) -> int:
    """How many sequences it holds."""
    attributions = _plain(document)["sequence_attributions"] if is_inseq(document) else None
    return len(attributions) if isinstance(attributions, list) else 0


def imported(document: Any, item: int, name: str) -> Imported:
    """The attention of one sequence.

    Args:
        document: JSON as Inseq's ``save`` writes it.
        item: which sequence.
        name: of the file, for messages.

    Raises:
        InputError: another method than attention, weights without layers and heads, or damage.
    """
    try:
        whole = _plain(document)
        method = _plain(whole.get("info", {})).get("attribution_method", "attention")
        if method != "attention":
            raise InputError(
                f"{name} holds Inseq attributions by {str(method)[:40]!r}, which are no attention "
                "weights; attribute with method 'attention'"
            )
        return _sequence(_plain(whole["sequence_attributions"][item]), name)
    except InputError:
        raise
    except Exception as error:  # whatever somebody damaged or made up
        raise InputError(
            f"{name} is damaged: {one_line(error)}; save it again with Inseq"
        ) from None


def _sequence(given: dict[str, Any], name: str) -> Imported:
    source, target = _tokens(given["source"]), _tokens(given["target"])
    start, end = int(given["attr_pos_start"]), int(given["attr_pos_end"])
    if not 0 <= start < end <= len(target.texts):
        raise ValueError(f"words {start} to {end} of {len(target.texts)} are attributed")
    crossed = _array(given.get("source_attributions"))
    own = _array(given.get("target_attributions"))
    more = _plain(given.get("sequence_scores") or {})
    if own is None:
        own = _array(more.get("decoder_self_attentions"))
    encoder = _array(more.get("encoder_self_attentions"))
    for array in (crossed, own, encoder):
        if array is not None and array.ndim != 4:
            raise InputError(
                f"{name} holds attributions of shape {list(array.shape)}, without layers and "
                "heads; save them before they are aggregated"
            )
    first = max(start - 1, 0)  # the query that writes the first word
    queries = max(end - 1, 1)
    layers: dict[SiteKind | None, Layers] = {}
    if own is not None:
        layers["decoder"] = _layers(own, first, queries, queries)
    if crossed is not None:
        layers["cross"] = _layers(crossed, first, queries, len(source.texts))
    if encoder is not None:
        layers["encoder"] = _layers(encoder, 0, len(source.texts), len(source.texts))
    if not layers:
        raise ValueError("there are no attributions")
    cut = marked(target.texts[:queries])
    notes = (PART,) if first else ()
    other = source if crossed is not None else None
    return Imported("Inseq attributions", layers, cut, other, notes)


def _layers(array: Array, first: int, rows: int, keys: int) -> Layers:
    """[keys, queries, L, H] as [H, rows, keys] by layer; rows that are not there are empty."""
    turned = np.nan_to_num(array.transpose(2, 3, 1, 0), nan=0.0)[..., :keys]
    whole = np.zeros((*turned.shape[:2], rows, keys), turned.dtype)
    there = min(turned.shape[2], rows - first)
    whole[:, :, first : first + there, : turned.shape[3]] = turned[:, :, :there]
    return dict(enumerate(whole))


def _tokens(listed: Any) -> Tokens:
    texts = [str(_plain(token)["token"]) for token in listed]
    if not texts:
        raise ValueError("there are no tokens")
    return marked(texts)


def _array(given: Any) -> Array | None:
    """An array as Inseq writes it: safetensors or bytes in base64, or lists."""
    if given is None:
        return None
    if isinstance(given, str):
        from safetensors.torch import load

        return np.asarray(load(base64.b64decode(given))["attribution"].float().numpy())
    listed = given["__ndarray__"] if isinstance(given, dict) else given
    with np.errstate(over="ignore"):  # what is infinite then is refused
        return np.array(listed, np.float32)


def _plain(given: Any) -> Any:
    """An object's attributes, whether its class was saved beside them or not."""
    return given["attributes"] if isinstance(given, dict) and "attributes" in given else given
