"""A text, what every head does on it, and its page: ``marimo run docs/marimo/heads.py``.

Needs attnviz and marimo. Everything runs offline, on the small GPT-2 that comes with attnviz.
"""

import marimo

app = marimo.App(width="medium", app_title="What heads do")


@app.cell
def _():
    import marimo as mo

    import attnviz as av

    return av, mo


@app.cell
def _(mo):
    text = mo.ui.text(
        "the cat river moon stone bread the cat river moon stone", label="Text", full_width=True
    )
    text  # noqa: B018  # what the cell shows
    return (text,)


@app.cell
def _(av, mo, text):
    mo.stop(not text.value.strip(), mo.md("Type a text of some words."))
    cap = av.capture(text.value)
    return (cap,)


@app.cell
def _(av, cap):
    av.heads(cap)


@app.cell
def _(av, cap):
    av.view(cap)


if __name__ == "__main__":
    app.run()
