"""The figures of numbers with a sign."""

from __future__ import annotations

import pytest

from attnviz.drawing.signed import minus


@pytest.mark.parametrize(
    ("sentence", "written"),
    [
        ("the lead changes by -5.6 (mean), -5.7", "the lead changes by −5.6 (mean), −5.7"),
        ("-0.25 nats [-0.3, +.1]", "−0.25 nats [−0.3, +.1]"),
        ("looks at -5 (6) and at “-5”, ·-5", "looks at -5 (6) and at “-5”, ·-5"),
        ("gpt-2, log-prob, 2026-01-02, a-3", "gpt-2, log-prob, 2026-01-02, a-3"),
    ],
)
def test_a_sentence_has_minus_signs_and_its_tokens_stay(sentence: str, written: str) -> None:
    assert minus(sentence) == written
