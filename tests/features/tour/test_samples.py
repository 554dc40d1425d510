"""The sample inputs that come with the wheel."""

from __future__ import annotations

from pathlib import Path

from tests import ROOT
from tests.cli.calling import ok, refused


def test_the_sample_inputs_are_copied_and_replace_nothing(tmp_path, capsys) -> None:
    to = tmp_path / "samples"
    assert ok(capsys, "demo", "--out-dir", str(to)).startswith(f"wrote {to} (")
    here = ROOT / "sample_inputs"
    names = {path.relative_to(to) for path in to.rglob("*") if path.is_file()}
    assert Path("treebank.conllu") in names
    assert all((to / name).read_bytes() == (here / name).read_bytes() for name in names)
    (to / "story.txt").write_text("mine")
    assert "is there already; name another folder" in refused(capsys, "demo", "--out-dir", str(to))
    assert (to / "story.txt").read_text() == "mine"
