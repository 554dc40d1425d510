"""The sink rate of a profile, against the published definition on whole maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.features.profile import saved
from attnviz.scoring.probe import match_prefixes
from attnviz.scoring.roles import sink_rate
from tests.features.profile.corpus import WORDS, lines, sentences

MODEL = "demo-gpt2"


def long(count: int, seed: int = 0) -> list[str]:
    """Texts of about 40 to 400 tokens."""
    return [
        " ".join(WORDS[(7 * n + k * (1 + (n + seed) % 5)) % len(WORDS)] for k in range(30 + 35 * n))
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("long")
    return [lines(folder / "a.txt", long(6)), lines(folder / "b.txt", long(5, 1))]


def by_text(source, texts: list[str]) -> list[np.ndarray]:
    """The heads that are sinks on each text of 64 tokens, from whole maps."""
    found = []
    for text in texts:
        tokens = source.prepare(Prompt(text, truncate=True)).sides["decoder"].keys
        if len(tokens) < 64:
            continue
        maps = av.capture(Prompt(ids=tokens.ids, special_tokens=False), model=source).maps
        found.append(np.concatenate([m[:, :64, 0].mean(1, dtype=float) > 0.3
                                     for m in maps.values()]))  # fmt: skip
        assert sink_rate(maps.values()) == pytest.approx(found[-1].mean())
    return found


def test_the_rate_is_that_of_whole_maps(corpus: list[Path]) -> None:
    source = av.load(MODEL)
    profile = av.profile(corpus, model=source)
    rates = by_text(source, [*long(6), *long(5, 1)])
    found = profile.sink_rate
    assert found is not None
    assert 5 < found.texts == len(rates) < 11
    assert found.rate == pytest.approx(np.mean(rates))
    assert found.heads == pytest.approx(np.mean(rates, 0))
    shares = np.mean(rates, 1)
    half = {8: 2.364624, 9: 2.306004, 10: 2.262157}[len(rates)] * np.std(shares, ddof=1)
    assert found.half == pytest.approx(half / np.sqrt(len(rates)), abs=1e-6)
    assert profile.matching is not None
    assert profile.matching.means == pytest.approx(match_prefixes(source).means, abs=1e-6)


def test_the_same_bits_for_processes_and_parts(corpus: list[Path], tmp_path: Path) -> None:
    one = av.profile(corpus, model=MODEL, jobs=1, state=tmp_path / "one.profile")
    two = av.profile(corpus, model=MODEL, jobs=2)
    parts = [tmp_path / f"{n}.profile" for n in (0, 1)]
    for path, out in zip(corpus, parts, strict=True):
        av.profile(path, model=MODEL, state=out)
    merged = av.merge_profiles(parts)
    read = av.read(tmp_path / "one.profile")
    for other in (two, merged, read):
        assert other.sink_rate == one.sink_rate
        assert other.matching == one.matching
    assert saved.read(parts[0]).tally.sink_texts < one.sink_rate.texts


def test_short_texts_and_models_that_look_both_ways(tmp_path: Path, capsys) -> None:
    path = lines(tmp_path / "t.txt", sentences(3))
    assert av.profile(path, model=MODEL).sink_rate is None
    assert main(["profile", str(path), "-q"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Sink rate (Gu et al. 2024): not defined here, for no text has 64 tokens" in out
    assert "Prefix matching (Olsson et al. 2022), best: 3." in out
    both_ways = av.profile(lines(tmp_path / "l.txt", long(3)), model="demo-bert")
    assert (both_ways.sink_rate, both_ways.matching) == (None, None)
    assert "Sink rate" not in str(both_ways)


def test_what_is_printed_says_what_was_measured(corpus: list[Path]) -> None:
    profile = av.profile(corpus, model=MODEL)
    text = " ".join(str(profile).split())
    assert f"Sink rate (Gu et al. 2024): {100 * profile.sink_rate.rate:.0f} % of the heads" in text
    assert f"over the first 64 rows, {profile.sink_rate.texts} texts long enough" in text
    assert "a perfect head has 0.5" in text
    assert "5 probes of 4×25 random tokens" in text
