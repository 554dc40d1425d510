"""``python -m tests.web.sheet [FOLDER]``: the page, and a picture of it in light and dark."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.viewing import FLAGS, chromium
from tests.web.sheet import sheet

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "sheet")
folder.mkdir(parents=True, exist_ok=True)
path = sheet(folder)
print(path)
if found := chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme)
            page.goto(path.as_uri())
            page.screenshot(path=folder / f"sheet-{scheme}.png", full_page=True)
            print(folder / f"sheet-{scheme}.png")
        browser.close()
