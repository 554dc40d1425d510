"""``attnviz profile`` on the command line."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import attnviz as av
from attnviz.cli import main
from attnviz.features.profile import figure as figure_profile
from attnviz.features.profile.result import Profile
from tests.features.profile.corpus import grouped, lines, sentences

pytestmark = pytest.mark.usefixtures("remembering")
SCHEMA = Profile.json_schema()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return str(lines(tmp_path_factory.mktemp("texts") / "texts.txt", sentences(12)))


@pytest.fixture(scope="module")
def kept(corpus, folder: Path) -> Path:
    """The state of a profile that several tests look at."""
    av.profile(corpus, state=folder / "t.profile")
    return folder / "t.profile"


@cache
def built(corpus: str, kept: Path, model: str) -> Figure:
    """The picture of a profile, not yet drawn."""
    profile = av.read(kept) if model == "demo-gpt2" else av.profile(corpus, model=model)
    return figure_profile.build(profile)


def test_grid_table_and_closing_line(corpus, capsys) -> None:
    assert main(["profile", corpus]) == 0
    out, err = capsys.readouterr()
    assert "layer ↓  head →" in out
    assert "95 %" in out
    assert "<|endoftext" in out
    assert "12 texts" in out
    assert "95 % intervals from 12 texts cover less" in err
    assert "of samples (median score)" in " ".join(err.split())
    assert "questions (Holm)" in " ".join(out.split())


def test_what_stays_when_texts_are_drawn_anew(corpus, tmp_path, capsys) -> None:
    printed = tmp_path / "p.json"
    assert main(["profile", corpus, "-q", "--stability", "-o", str(printed)]) == 0
    out = capsys.readouterr().out
    assert "of 20 draws of the texts" in out
    assert re.search(r"1\.4 +previous 20 ", out)
    document = json.loads(printed.read_text("utf-8"))
    jsonschema_rs.validate(SCHEMA, document)
    assert {**av.read(printed).to_dict(), "made": document["made"]} == document
    assert document["resamples"] == 20
    for head in document["heads"]:
        assert sum(times for _, times in head["stability"]["nearest"]) == 20
        named = {role["name"] for role in head["scores"]["roles"]}
        assert named <= set(head["stability"]["roles"])


def test_copies_of_a_line_are_one_text(tmp_path, capsys) -> None:
    same = lines(tmp_path / "same.txt", ["the cat sat on the mat and the cat ran"] * 60)
    assert main(["profile", str(same), "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    jsonschema_rs.validate(SCHEMA, document)
    said = " ".join(document["notes"])
    assert not err
    assert "59 of 60 texts repeat another one word for word" in said
    assert "No intervals: 1 independent text is too few" in said
    assert (document["grouped"], document["clusters"], document["copies"]) == (False, 60, 59)
    for head in document["heads"]:
        assert head["scores"]["roles"] == []
        assert all(one["low"] is one["macro_low"] is None for one in head["estimates"].values())
    assert any(head["undecided"] for head in document["heads"])


def test_a_narrow_console_gets_fewer_columns_and_no_number_is_cut(
    kept: Path, capsys, monkeypatch
) -> None:
    def table(width: int) -> list[list[str]]:
        """The titles and the rows, cell by cell."""
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["show", str(kept), "-q", "--role", "previous"]) == 0
        lines = capsys.readouterr().out.splitlines()
        start = next(n for n, line in enumerate(lines) if line.startswith("head "))
        title, rule, *rows = lines[start : lines.index("", start)]
        assert len(rule) <= width
        return [re.split(r"\s{2,}", line.strip()) for line in (title, *rows)]

    titles, *rows = table(400)
    whole = [dict(zip(titles, row, strict=True)) for row in rows]
    wide = {title: max(len(title), *(len(row[title]) for row in whole)) for title in titles}
    seen = set()
    for width in range(60, 201, 46):
        some, *cells = table(width)
        assert [dict(zip(some, row, strict=True)) for row in cells] == [
            {title: row[title] for title in some} for row in whole
        ]
        left = width - sum(wide[title] + 3 for title in some)
        assert all(wide[title] > left for title in titles if title not in some)
        seen.add(len(some))
    assert len(seen) > 2


def test_json_follows_its_schema_and_csv_has_a_line_a_score(tmp_path, capsys) -> None:
    path = grouped(tmp_path / "t.jsonl", sentences(40), 2)
    state = tmp_path / "t.profile"
    interval = ["--interval", "simultaneous", "--group", "doc"]
    assert main(["profile", str(path), *interval, "--state", str(state), "--json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema_rs.validate(SCHEMA, document)
    assert Profile.from_dict(document) == av.read(state)
    assert document["matching"]
    assert (document["grouped"], document["clusters"], document["copies"]) == (True, 20, 0)
    assert document["simultaneous"] is True
    assert document["width"] > 1.96  # one interval by itself
    head = document["heads"][10]
    assert head["scores"]["head"] == "1.4"
    assert head["scores"]["roles"][0]["name"] == "previous"
    assert head["estimates"]["previous"]["low"] < head["estimates"]["previous"]["mean"]
    assert main(["profile", str(path), *interval, "--state", str(state), "--csv", "-q"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("layer,index,head,does,rests,score,mean,low,high,chance")
    assert len(rows) == 1 + 24 * len(head["estimates"])
    assert main(["show", str(state)]) == 0
    assert "20 groups" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["demo-gpt2", pytest.param("demo-bert", marks=pytest.mark.slow)])
def test_labels_overlap_nothing(corpus, kept: Path, model: str) -> None:
    drawn = built(corpus, kept, model)
    renderer = FigureCanvasAgg(drawn).get_renderer()
    drawn.draw_without_rendering()
    plane = next(axes for axes in drawn.axes if axes.get_title("left").startswith("similar"))
    names = [text.get_window_extent(renderer) for text in plane.texts]
    dots = [line.get_window_extent(renderer) for line in plane.get_lines()]
    assert len(names) > 5
    for place, box in enumerate(names):
        assert not any(box.overlaps(other) for other in (*names[:place], *dots))
    # what stands in one panel does not reach into another
    boxes = [axes.get_tightbbox(renderer) for axes in drawn.axes]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place]), place


@pytest.mark.parametrize(("model", "ahead"), [("demo-gpt2", 0), ("demo-bert", 8)])
def test_distances_are_drawn_where_weight_can_be(
    corpus, kept: Path, model: str, ahead: int
) -> None:
    figure = built(corpus, kept, model)
    (axes,) = (one for one in figure.axes if one.get_title(loc="left") == "weight by distance")
    drawn = [float(x) for line in axes.lines for x in line.get_xdata()]
    assert min(drawn) < -8
    assert (max(drawn) > ahead) if ahead else (max(drawn) == 0)
    codes = {text.get_text() for one in figure.axes for text in one.texts}
    assert {"prev", "diff"} & codes
    assert not {"pr", "di"} & codes


def test_bad_lines_are_named_and_counted(tmp_path, capsys) -> None:
    path = tmp_path / "t.jsonl"
    rows = ['{"text": "the cat sat on the mat"}', '{"text": 3}', "not json", '{"text": "a dog"}']
    path.write_text("\n".join(rows))
    assert main(["profile", str(path)]) == 3
    err = capsys.readouterr().err
    assert "t.jsonl:2: the text is no text (3); skipped" in err
    assert "t.jsonl:3: not JSON" in err
    assert "2 of 4 texts could not be used" in err
    assert main(["profile", str(path), "--strict"]) == 1
    assert "t.jsonl:2" in capsys.readouterr().err
    assert main(["profile", str(path), "part.profile"]) == 2


def test_texts_in_memory_are_profiled_as_those_of_a_file(corpus, kept: Path) -> None:
    read, held = av.read(kept), av.profile(texts=sentences(12))
    assert (held.texts, held.tokens, held.files) == (12, read.tokens, ("texts in memory",))
    for one, other in zip(read.heads, held.heads, strict=True):
        assert [role.name for role in one.scores.roles] == [r.name for r in other.scores.roles]
        for name, estimate in one.estimates.items():
            if estimate.mean is not None:
                assert estimate.mean == pytest.approx(
                    other.estimates[name].mean, rel=2e-6, abs=1e-7
                ), name
    with pytest.raises(av.UsageError, match="give either files or texts"):
        av.profile(corpus, texts=["a"])
    with pytest.raises(av.UsageError, match="column='c' is for files; leave it out"):
        av.profile(texts=["a"], column="c")
    with pytest.raises(av.InputError, match="no text could be used of texts in memory"):
        av.profile(texts=[" "])


def test_show_takes_the_json_of_a_profile_as_its_state(kept: Path, tmp_path, capsys) -> None:
    printed = av.read(kept).save(tmp_path / "t.json")
    told = []
    for one in (kept, printed):
        assert main(["show", str(one), "--top", "all"]) == 0
        told.append(capsys.readouterr())
    assert told[0] == told[1]
    assert "12 texts" in told[0].out
    assert av.read(printed) == av.read(kept)
    other = tmp_path / "heads.json"
    av.heads("The cat sat.").save(other)
    assert main(["show", str(other)]) == 0
    assert capsys.readouterr().out.startswith("layer ↓")
    named = tmp_path / "state.json"  # a state may have any name
    named.write_bytes(kept.read_bytes())
    assert av.read(named) == av.read(kept)


def test_a_row_has_the_figures_of_the_score_that_gave_the_role(tmp_path, capsys) -> None:
    """2.0 rests on the first token; off that sink it is an induction head."""
    kept = tmp_path / "t.profile"
    found = av.profile("sample_inputs/sentences.txt", state=kept)
    for head in found.heads:
        for role in head.scores.roles:
            assert head.evidence(role).mean == role.evidence.mean
            assert head.evidence(role).rows == role.evidence.rows
    (one,) = (head for head in found.heads if found.layout.name(head.head) == "2.0")
    assert one.scores.does is not None
    assert one.scores.does.score == "induction_no_sink"
    assert main(["show", str(kept), "--role", "induction", "--quiet"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("2.0"))
    assert f"induction off the sink    {one.scores.does.evidence.mean:.2f}" in row


def test_of_a_single_text_no_role_is_claimed_or_denied(tmp_path: Path, capsys) -> None:
    text = tmp_path / "one.txt"
    text.write_text("the cat river moon stone bread the cat river moon stone")
    assert main(["profile", str(text)]) == 0
    said = capsys.readouterr()
    assert "no role is claimed of so few texts: give more, one a line" in said.out
    assert "95 % intervals, each score" not in said.out
    assert "1 independent text is too few" in " ".join(said.err.split())
    assert not re.search(r"\b1 (texts|tokens|groups)\b", said.out + said.err)
