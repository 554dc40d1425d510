"""A table with the columns of GAP, of pronouns that gender alone decides, made of a few rules."""

from __future__ import annotations

COLUMNS = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL"
WOMEN = ["Marta", "Julia", "Anna", "Maria"]
MEN = ["Peter", "Thomas", "David", "John"]
VERBS = ["met", "thanked", "called", "saw", "helped", "followed"]


def pronouns(count: int) -> str:
    """So many rows, each a document; the nearest and the first name are right in half of them."""
    rows = ["\t".join(COLUMNS.split())]
    for n in range(count):
        she, first = n // 2 % 2 == 0, n // 4 % 2 == 0
        woman, man = WOMEN[n % 4], MEN[n // 3 % 4]
        one, other = (woman, man) if first else (man, woman)
        pronoun, right = ("she", woman) if she else ("he", man)
        end = ".!?;"[n // 24 % 4]  # else texts are copies of each other from the 25th on
        text = f"{one} {VERBS[n % 6]} {other} because {pronoun} was late{end}"
        cells = [f"row-{n}", text, pronoun, text.index(f" {pronoun} ") + 1]
        for name in (one, other):
            cells += [name, text.index(name), str(name == right).upper()]
        rows.append("\t".join(map(str, [*cells, f"document-{n}"])))
    return "\n".join(rows) + "\n"
