"""Pages before and after they became ones to share, at three sizes: ``python docs/sheet.py``.

Draws docs/sheet/NAME-after.png from this tree; ``--before`` draws NAME-before.png from a commit of
before, checked out for that beside the repository and taken away again. The commands are the same
but for names of options that have changed since.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.gallery import DOCS, PHONE, SETTLED, WIDE

BEFORE = "ca77ad48"
"""The commit that is shown before."""
SHEET = DOCS / "sheet"
_LENS = 'lens "Mary gave the old blue clock to Peter, and later Mary gave the old blue"'
_FIRST = '"The cat did not cross it because it was too'
COMMANDS = {
    "live": "live",
    "live-bert": "live --model demo-bert",
    "view": 'view "The keys to the cabinet are on the table because the keys were lost"',
    "atlas": "atlas --texts sample_inputs/sentences.txt --gold sample_inputs/treebank.conllu",
    "lens": _LENS,
    "lens-heads": f"{_LENS} --by head",
    "flow": _LENS.replace("lens", "flow", 1),
    "explain": 'explain "the cat river moon stone bread the cat river moon stone"',
    "patch": "patch --task induction-swap --circuit",
    "diff": f'diff {_FIRST} tired." {_FIRST} wide." --align position',
    "film": "film sample_inputs/phases/demo-gpt2.json",
}
_RENAMED = {"--texts": "--lines", "--gold": "--conllu"}
"""Options of :data:`COMMANDS` as they were called before."""
SHOWN = ((WIDE, "light", 500), ((1024, 768), "dark", 356), (PHONE, "light", 170))
"""Windows, by touch where they are narrow; their theme, and how wide they are drawn."""
_COLOURS, _GAP = 256, 8
_DAY = "1764000000"


def write(tree: Path, folder: Path, renamed: Mapping[str, str]) -> dict[str, Path]:
    """The pages of a tree, by its own commands."""
    pages = {}
    known = {"PYTHONPATH": str(tree), "SOURCE_DATE_EPOCH": _DAY, "HF_HUB_OFFLINE": "1"}
    for name, command in COMMANDS.items():
        typed = [renamed.get(word, word) for word in shlex.split(command)]
        pages[name] = folder / f"{name}.html"
        run = [sys.executable, "-m", "attnviz", *typed, "--quiet", "-o", str(pages[name])]
        subprocess.run(run, cwd=tree, env=os.environ | known, check=True, capture_output=True)
        print(f"{name}: {pages[name].stat().st_size / 1e6:.1f} MB", flush=True)
    return pages


def draw(pages: Mapping[str, Path], when: str, folder: Path = SHEET) -> None:
    """What each page shows first, its windows side by side.

    Args:
        pages: by name.
        when: before or after, for the names of the pictures.
        folder: that they go to.
    """
    from PIL import Image
    from playwright.sync_api import sync_playwright

    folder.mkdir(exist_ok=True)
    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for name, path in pages.items():
            windows = []
            for (width, height), scheme, drawn in SHOWN:
                touch = width == PHONE[0]
                where = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    has_touch=touch,
                    is_mobile=touch,
                    reduced_motion="reduce",
                )
                tab = where.new_page()
                tab.goto(path.as_uri())
                tab.evaluate(SETTLED, "")
                tab.wait_for_timeout(100)
                window = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
                small = window.resize((drawn, height * drawn // width), Image.Resampling.LANCZOS)
                windows.append(small)
                where.close()
            wide = sum(window.width for window in windows) + _GAP * (len(windows) - 1)
            whole = Image.new("RGB", (wide, max(w.height for w in windows)), "#c9ced6")
            left = 0
            for window in windows:
                whole.paste(window, (left, 0))
                left += window.width + _GAP
            whole.quantize(_COLOURS).save(folder / f"{name}-{when}.png", optimize=True)
        browser.close()


def main(arguments: Sequence[str]) -> None:
    """Write the pages of one of both trees and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", action="store_true", help=f"draw those of {BEFORE}")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if not given.before:
            draw(write(DOCS.parent, Path(folder), {}), "after")
            return
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(DOCS.parent), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), BEFORE], check=True)
        try:
            draw(write(tree, Path(folder), _RENAMED), "before")
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
