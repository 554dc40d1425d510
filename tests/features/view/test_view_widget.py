"""The page as a widget: its Python side, and its JavaScript in a browser with the smallest host."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.features.view import result as module
from tests.viewing import Opened, encoder_decoder, made, opened, until, words, write_page

HOST = """<!doctype html><title>a notebook</title><div id="cell"></div>
<script>
window.saves = [];
window.model = {
  state: STATE, listeners: {},
  get(name) { return this.state[name]; },
  set(name, value) {
    if (JSON.stringify(this.state[name]) === JSON.stringify(value)) return;
    this.state[name] = value;
    for (const f of this.listeners[`change:${name}`] || []) f();
  },
  save_changes() {
    const { head, heads, text } = this.state;
    saves.push({ head, heads, text });
  },
  on(name, f) { (this.listeners[name] ||= []).push(f); },
  off(name, f) { this.listeners[name] = this.listeners[name].filter((one) => one !== f); },
};
</script>
<script>
const widget = (() => { WIDGET })();
window.end = widget.render({ model, el: document.getElementById("cell") });
</script>"""


def hosted(folder: Path, captures: Any, **state: Any) -> Path:
    """A notebook of one cell: a page of ours is in it, and a model that only keeps values."""
    page = write_page(folder, "page", captures).read_text("utf-8")
    listed = captures if isinstance(captures, list) else [captures]
    state = {"page": page, "title": "x", "places": module._places(listed), "height": 700,
             "head": "", "heads": [], "text": 0, **state}  # fmt: skip
    script = (files(module.__package__) / "widget.js").read_text("utf-8")
    written = HOST.replace("STATE", json.dumps(state).replace("<", "\\u003c"))
    path = folder / "host.html"
    path.write_text(written.replace("WIDGET", script.replace("export default", "return")))
    return path


@pytest.fixture(scope="module")
def cell(browser: Any, folder: Path) -> Iterator[Opened]:
    captures = [made(3, 2, words(4), seed=1), made(3, 2, words(6, name="v"), seed=2)]
    with opened(browser) as found:
        path = hosted(folder, captures, head="1.2")
        found.documents.add(path.as_uri())
        found.page.goto(path.as_uri())
        until(found.page, "() => window.saves.length > 0")
        inside(found).evaluate("() => { document.getElementById('panel').open = true; }")
        yield found


def state(cell: Opened) -> dict[str, Any]:
    return cell.page.evaluate("() => saves.at(-1)")


def inside(cell: Opened) -> Any:
    return cell.page.frames[1]


def test_the_page_opens_at_the_models_head(cell: Opened) -> None:
    assert state(cell) == {"head": "1.2", "heads": ["1.2"], "text": 0}
    assert inside(cell).eval_on_selector("#heads .current", "one => one.dataset.head") == "1.2"


def test_a_head_of_the_model_is_shown(cell: Opened) -> None:
    cell.page.evaluate("() => model.set('head', '0.1')")
    until(cell.page, "() => saves.at(-1).head === '0.1'")
    inside(cell).wait_for_selector("#heads .current[data-head='0.1']")


def test_a_head_that_is_chosen_is_the_models(cell: Opened) -> None:
    inside(cell).click("#heads [data-head='1.0']")
    until(cell.page, "() => saves.at(-1).heads.includes('1.0')")
    assert state(cell)["head"] == "1.0"


def test_another_text_keeps_what_is_chosen(cell: Opened) -> None:
    inside(cell).select_option("#texts", "1")
    until(cell.page, "() => saves.at(-1).text === 1")
    on = state(cell)["heads"]
    cell.page.wait_for_timeout(200)
    assert state(cell)["heads"] == on
    count = cell.page.evaluate("() => saves.length")
    cell.page.wait_for_timeout(200)
    assert cell.page.evaluate("() => saves.length") == count, "the two do not talk for ever"


def test_other_windows_and_messages_are_not_heard(cell: Opened) -> None:
    before = state(cell)
    for data in (
        "null",
        "'x'",
        "{attnviz: 'shown', kind: 'encoder', head: '0.0', on: [], text: 0}",
    ):
        cell.page.evaluate(f"() => postMessage({data}, '*')")
    frame = inside(cell)
    frame.evaluate(
        "() => postMessage({attnviz: 'show', kind: 'encoder', head: '0.2', text: 0}, '*')"
    )
    for wrong in ("{kind: 'nope', head: '0.2', text: 0}", "{kind: 'encoder', head: 3, text: 0}",
                  "{kind: 'encoder', head: '9.9', text: 99}"):  # fmt: skip
        script = f"Object.assign({{attnviz: 'show'}}, {wrong})"
        cell.page.evaluate(
            f"() => document.querySelector('iframe').contentWindow.postMessage({script}, '*')"
        )
    cell.page.wait_for_timeout(200)
    assert state(cell) == before


def test_a_widget_that_is_gone_hears_nothing(cell: Opened) -> None:
    cell.page.evaluate("() => end()")
    count = cell.page.evaluate("() => saves.length")
    inside(cell).click("#heads [data-head='0.2']")
    cell.page.wait_for_timeout(200)
    assert cell.page.evaluate("() => saves.length") == count


def test_a_page_alone_tells_nobody(browser: Any, tmp_path: Path) -> None:
    """A page in a stranger's frame, which has not asked."""
    page = write_page(tmp_path, "page", made(2, 2)).read_text("utf-8")
    host = tmp_path / "host.html"
    inside = page.replace("&", "&amp;").replace('"', "&quot;")
    script = "window.heard = []; addEventListener('message', e => heard.push(e.data));"
    host.write_text(f'<script>{script}</script><iframe srcdoc="{inside}"></iframe>')
    with opened(browser) as found:
        found.documents.add(host.as_uri())
        found.page.goto(host.as_uri())
        found.page.wait_for_timeout(400)
        assert found.page.evaluate("() => heard") == []


def test_the_python_side() -> None:
    pytest.importorskip("anywidget")
    view = av.view(encoder_decoder())
    widget = view.widget()
    heard: list[str] = []
    end = widget.on_head(heard.append)
    widget.head = "cross:1.0"
    assert heard == ["cross:1.0"]
    with pytest.raises(av.SelectionError, match=r"the page has no head '9\.9'"):
        widget.head = "9.9"
    assert widget.head == "cross:1.0"
    end()
    widget.head = "enc:0.0"
    assert heard == ["cross:1.0"]
    assert widget.places["cross:1.0"] == ["cross", "1.0"]
    assert widget.page.encode() == view.page
    assert "http" not in widget._esm
    assert view._repr_html_().startswith("<iframe")


def test_without_anywidget_the_page_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    view = av.view(made(2, 2))
    module._kind.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(av.UsageError, match="anywidget is not installed; pip install"):
        view.widget()
    assert view._repr_html_().startswith("<iframe")
