"""Wrong use of every command: one line that says what was wrong, and nothing is written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from attnviz.cli import main

TREEBANK, PRONOUNS = "sample_inputs/treebank.conllu", "sample_inputs/pronouns.tsv"
LONG = " ".join(["It rains."] * 200)

WRONG: dict[str, list[tuple[str, str]]] = {
    "heatmap 'a b' -m fresh": [
        ("-s 0.99", "0.99"), ("--normalize log", "row"),
        ("-o .", "name the file"), ("-o q/x.svg", "does not exist"),
        ("-o x.pdf --width '3 parsecs'", "is no length; write 3.3in, 84mm, 8.4cm or 240pt"),
        ("-o x.pdf --width 33", "33 of what? write 33mm, 33pt or 33in"),
        ("-o x.pdf --width 3.3 --size 3", "--size is of a map and --width of the whole file"),
    ],
    "view": [
        ("'a b' -o /nowhere/page.html", "does not exist"), ("-o page.html", "nothing to look at"),
    ],
    "profile": [
        ("s.txt --interval both", "takes 'each' or 'simultaneous', not 'both'"),
        ("s.txt --group doc", "--group doc"),
        ("s.txt --state no/such/folder/x.profile", "no/such/folder does not exist"),
        ("s.txt --state p.PNG", "--state keeps the state that a profile goes on from"),
        ("s.txt --state p.json", "name it p.profile, not p.json"),
        ("a.profile b.profile --state p.html", "name it p.profile, not p.html"),
        ("a.profile", "merging takes two profiles or more"),
        ("bad.profile bad.profile", "is not a profile that attnviz wrote"),
        ("a.profile b.profile --whole", "as they are; leave out --whole"),
        ("gone.profile bad.profile", "gone.profile is missing; give a file"),
        ("--merge a.profile", "No such option"),
    ],
    f"syntax {TREEBANK}": [
        ("--sentences 1 --relation zzz", "--relation zzz is not a relation of this treebank"),
        ("--sentences 1 --relation csubj,vocative,obj", "is not a relation"),
        ("-m demo-bert --sentences 1 --relation conj,iobj", "no sentence of odd documents has"),
    ],
    "coref": [
        (f"{TREEBANK} --window 8", "--window must be at least 16, not 8"),
        (f"{TREEBANK} {PRONOUNS} -m demo-bert", "is CoNLL-U and"),
    ],
    "knockout": [
        ("'a b c'", "nothing to cut"), ("'a b c' --keys nosuch", "no part 'nosuch'"),
        ("'a b c' --span 'x=a b' --span 'y=b c'", "overlap"),
        ("'a b c' --keys before --answer antidisestablishment", "tokens"),
        ("'a b c' --keys before --cut half", "mask, rescale, zero or redirect:NAME"),
        ("'a b c' --keys before --cut redirect:x", "needs a span 'x'"),
        ("'a b c' --keys before --against was", "--answer"),
        ("'a b c' --keys before --metric prob", "--answer"),
        ("'a b c' --keys before --metric loss", "no token follows"),
        ("'a b c' --span x=c --rows x --keys x --select 9.9", "9.9"),
        ("'a b c' --span x=c --span y=a --rows y --keys x", "nothing to cut"),
    ],
    "spans": [
        ("q.jsonl --fields doc=d", "fields are named as question=FIELD"),
        ("q.jsonl --fields question=q --span x=y", "leave out --span"),
        ("--chat 'system: be kind'", "a system message alone is no chat; add --chat 'user: TEXT'"),
        ("a --chat 'user: b'", "exclude each other"),
    ],
    "thoughts": [
        ("'One sentence alone.'", "the trace has 1 sentence"), ("nosuch.txt", "nosuch.txt"),
        ("'a b c' --span 'x=a b' --span 'y=b c'", "overlap"), (f"'{LONG}'", "at most 256"),
        ("'a b c' --span 'x=a b c' --span y=b", "overlap"),
        ("'It rains. We stay.' -m demo-bert", "causal"),
    ],
    "film": [
        (f"{name} --device cuda", said)
        for name in ("s.txt", "absent.csv")
        for said in (f"{name} is no film", f"--texts {name}")
    ],
    "export -o maps": [
        ("none.txt", "no file none.txt"), (".", "folder"), ("'*.zip'", "no file matches *.zip"),
        ("- -", "standard input"), ("''", "an empty file name"), ("empty.txt", "there is no text"),
        ("s.txt --role king", "king"), ("s.txt --palette jet", "jet"),
        ("s.txt --scale cube", "cube"), ("s.txt --format png,csv", "csv"),
        ("s.txt --select 9.9", "9.9"), ("s.txt --recorded -m gpt2", "leave out --model"),
        ("a.PNG", "a.PNG is a picture, and an export reads texts; capture it first, then give"),
        ("a.wav", "a.wav is a sound, and an export reads texts"),
        ("s.txt --layout films", "--layout takes heads, layers, grid, overview, not"),
        ("s.txt --format bmp", "--format takes png, svg, pdf, npz, safetensors, not 'bmp'"),
        ("s.txt --jobs 100000", "--jobs 100000 is more than"),
        ("s.txt -o s.txt", "s.txt is a file"),
    ],
}  # fmt: skip
"""How a line begins, how it goes on, and words of what is said; many more are in messages.txt."""
FILES = {
    "s.txt": "one two\n", "empty.txt": "\n \n", "bad.profile": "one two\n", "q.jsonl": "{}\n",
    "a.PNG": "anything", "a.wav": "anything",
}  # fmt: skip


@pytest.mark.usefixtures("beside_samples")
@pytest.mark.parametrize(
    ("line", "says"),
    [(f"{begins} {more}", says) for begins, several in WRONG.items() for more, says in several],
    ids=lambda value: value[:50],
)
def test_wrong_use_is_one_line(line: str, says: str, capsys) -> None:
    for name, content in FILES.items():
        Path(name).write_text(content)
    assert main(shlex.split(line)) in (1, 2)
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("attnviz: ")
    assert says in error
    own = (".json", ".jsonl", ".html", "")  # what an export's folder has, whatever is drawn
    there = [path for path in Path().rglob("*") if path.is_file()]
    assert {str(p) for p in there if p.parts[0] != "maps" or p.suffix not in own} == {*FILES}
