"""Draws the pictures of the README into docs/images: ``python docs/pictures.py``."""

from __future__ import annotations

from pathlib import Path

import attnviz as av

IMAGES = Path(__file__).parent / "images"
SENTENCE = "The keys to the cabinet are on the table because the keys to the cabinet were lost"


def best(report: av.HeadsReport, score: str) -> str:
    """The name of the head with the highest mean of a score."""
    head = max(report.heads, key=lambda head: head.scores[score].mean or 0.0)
    return report.layout.name(head.head)


def main() -> None:
    """The grid of heads, and one head for each of three roles."""
    IMAGES.mkdir(exist_ok=True)
    capture = av.capture(SENTENCE, model="demo-gpt2")
    report = av.heads(capture)
    report.save(IMAGES / "heads.png")
    chosen = ",".join(best(report, score) for score in ("previous", "first", "induction"))
    av.heatmap(capture, chosen).save(IMAGES / "heatmaps.png")


if __name__ == "__main__":
    main()
