"""The sink rate of a profile, against the published definition on whole maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.errors import InputError
from attnviz.features.profile import saved
from attnviz.features.profile.result import Profile
from attnviz.scoring.probe import match_prefixes
from tests.features.profile.corpus import WORDS, lines, sentences
from tests.models.tiny_senses import build

MODEL = "demo-gpt2"


def long(count: int, seed: int = 0) -> list[str]:
    """Texts of about 40 to 100 tokens, the sixth of several windows."""
    sizes = [30 + 12 * n for n in range(5)] + [260]
    return [
        " ".join(WORDS[(7 * n + k * (1 + (n + seed) % 5)) % len(WORDS)] for k in range(size))
        for n, size in enumerate(sizes[:count])
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("long")
    return [lines(folder / "a.txt", long(6)), lines(folder / "b.txt", long(5, 1))]


@pytest.fixture(scope="module")
def one(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """Of both files, in this process; what is read from its state is the same."""
    state = tmp_path_factory.mktemp("state") / "one.profile"
    found = av.profile(corpus, model=MODEL, jobs=1, state=state)
    assert av.read(state).sink_rate == found.sink_rate
    assert av.read(state).matching == found.matching
    return found


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
    return found


def test_the_rate_is_that_of_whole_maps(one: Profile) -> None:
    source = av.load(MODEL)
    rates = by_text(source, [*long(6), *long(5, 1)])
    found = one.sink_rate
    assert found is not None
    assert 5 < found.texts == len(rates) < 11
    assert found.rate == pytest.approx(np.mean(rates))
    assert found.heads == pytest.approx(np.mean(rates, 0))
    shares = np.mean(rates, 1)
    half = {6: 2.570582, 7: 2.446912, 8: 2.364624}[len(rates)] * np.std(shares, ddof=1)
    assert found.half == pytest.approx(half / np.sqrt(len(rates)), abs=1e-6)
    assert one.matching is not None
    assert one.matching.means == pytest.approx(match_prefixes(source).means, abs=1e-6)


def test_the_same_bits_for_processes_and_parts(
    one: Profile, corpus: list[Path], tmp_path: Path
) -> None:
    two = av.profile(corpus, model=MODEL, jobs=2)
    parts = [tmp_path / f"{n}.profile" for n in (0, 1)]
    for path, out in zip(corpus, parts, strict=True):
        av.profile(path, model=MODEL, state=out)
    merged = av.merge_profiles(parts)
    for other in (two, merged):
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


def test_what_is_printed_says_what_was_measured(one: Profile) -> None:
    text = " ".join(str(one).split())
    assert f"Sink rate (Gu et al. 2024): {100 * one.sink_rate.rate:.0f} % of the heads" in text
    assert f"over the first 64 rows, {one.sink_rate.texts} texts long enough" in text
    assert "a perfect head has 0.5" in text
    assert "5 probes of 4×25 random tokens" in text


Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, four pictures and three sounds, all different."""
    found, rng = tmp_path_factory.mktemp("senses"), np.random.default_rng(0)
    for family in ("vit", "clip", "wav2vec2"):
        build(family, found / family)
    (found / "pictures").mkdir()
    (found / "sounds").mkdir()
    for n in range(4):
        pixels = rng.integers(0, 255, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(found / "pictures" / f"{n}.png")
    for n in range(3):
        soundfile.write(found / "sounds" / f"{n}.wav", rng.normal(0, 0.1, 8000 + 800 * n), 16000)
    return found


@pytest.mark.parametrize(
    ("family", "files", "given"),
    [("vit", "pictures", "image"), ("clip", "pictures", "image"), ("wav2vec2", "sounds", "audio")],
)
def test_scores_are_the_means_of_single_looks(
    folder: Path, family: str, files: str, given: str
) -> None:
    inputs = sorted((folder / files).iterdir())
    found = av.profile(folder / files, model=folder / family, jobs=1)
    single = [
        {x["head"]: x for x in one.to_records()}
        for path in inputs
        for one in [av.heads(av.Prompt(**{given: path}), model=folder / family)]
    ]
    assert found.texts == len(inputs)
    compared = 0
    for record in found.to_records():
        ours = [one[record["head"]] for one in single]
        rows = [one[f"{record['score']}.rows"] for one in ours]
        assert record["rows"] == sum(rows)
        if sum(rows):
            means = [one[f"{record['score']}.mean"] or 0.0 for one in ours]
            assert record["mean"] == pytest.approx(np.average(means, weights=rows), abs=1e-5)
            compared += 1
    assert compared > 20


@pytest.mark.slow
def test_files_may_be_named_and_run_in_several_processes(folder: Path, tmp_path: Path) -> None:
    one = av.profile(str(folder / "pictures" / "*.png"), model=folder / "vit", jobs=1)
    two = av.profile(folder / "pictures", model=folder / "vit", jobs=2)
    assert one.to_records() == two.to_records()


def test_what_cannot_be_used_is_said_and_passed_over(folder: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for n in (0, 1):
        (mixed / f"{n}.png").write_bytes((folder / "pictures" / f"{n}.png").read_bytes())
    (mixed / "bad.png").write_bytes(b"no picture")
    found = av.profile(mixed, model=folder / "vit", jobs=1)
    assert found.texts == 2
    (mixed / "a.wav").write_bytes((folder / "sounds" / "0.wav").read_bytes())
    with pytest.raises(InputError, match="holds pictures and sounds"):
        av.profile(mixed, model=folder / "vit")
    with pytest.raises(InputError, match="no text could be used"):
        av.profile(folder / "pictures", model="demo-gpt2", jobs=1)
