"""Makes recorded.npz: attention as any framework could store it, without attnviz's own writer.

Two layers of two heads on twelve tokens, worked out by hand: a previous-token head, a head that
looks at the first token, one that spreads evenly, and one that looks at what followed an equal
token before.
"""

from pathlib import Path

import numpy as np

TOKENS = [" the", " cat", " saw", " the", " dog", " and"] * 2


def rows(target: dict[int, int] | None) -> np.ndarray:
    """A causal map: 0.9 on each query's target, the rest spread over the keys it may see."""
    size = len(TOKENS)
    weights = np.zeros((size, size))
    for i in range(size):
        j = None if target is None else target.get(i)
        share = 1.0 if j is None else 0.1
        weights[i, : i + 1] = share / (i + 1)
        if j is not None:
            weights[i, j] += 0.9
    return weights


def followers() -> dict[int, int]:
    """For each token seen before, the token after its latest occurrence; else the first one."""
    latest = {
        i: max((j + 1 for j in range(i) if TOKENS[j] == TOKENS[i]), default=0)
        for i in range(len(TOKENS))
    }
    return {i: j for i, j in latest.items() if i}


previous = rows({i: i - 1 for i in range(1, len(TOKENS))})
first = rows(dict.fromkeys(range(1, len(TOKENS)), 0))
induction = rows(followers())
attentions = np.array([[previous, first], [rows(None), induction]], dtype=np.float32)
np.savez(Path(__file__).parent / "recorded.npz", attentions=attentions, tokens=np.array(TOKENS))
