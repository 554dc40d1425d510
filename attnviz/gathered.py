"""Everything known about the heads of a model, gathered by head from what commands found.

Plain values in, plain values out: the JSON documents of a profile, an ablation, of gold annotation
and of circuits become one, attnviz.atlas/1 (docs/atlas.schema.json). Nothing is computed anew; what
a document does not have stays None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attnviz.effects import DISTANCES

SCHEMA = "attnviz.atlas/1"

Document = Mapping[str, Any]
"""A command's JSON, read."""

_STRINGS, _NEAREST, _EDGES, _RELATIONS = 8, 3, 3, 3
"""How many of each a head keeps."""
_SOURCE = ("model", "backend", "exactness", "device", "dtype", "versions")


def gather(
    profile: Document,
    *,
    ablate: Document | None = None,
    syntax: Document | None = None,
    coref: Document | None = None,
    circuits: Document | None = None,
    absent: Mapping[str, str] | None = None,
    maps: Mapping[str, Document] | None = None,
) -> dict[str, Any]:
    """One document of all that is known.

    Args:
        profile: attnviz.profile/1, which has all heads.
        ablate: attnviz.ablate/1.
        syntax: attnviz.syntax/1; ``coref`` is attnviz.coref/1, ``circuits`` attnviz.circuits/1.
        coref: see there.
        circuits: see there.
        absent: why a part is not there, by its name.
        maps: by head, the map of its first example: ``tokens`` and ``weights``.
    """
    effects = _effects(ablate)
    heads = [
        {
            **{key: head[key] for key in ("name", "site", "layer", "head", "does", "rests")},
            "roles": head["roles"],
            "scores": head["scores"],
            "strings": head["tokens"][:_STRINGS],
            "kinds": head["kinds"],
            "distances": head["distances"],
            "nearest": head["nearest"][:_NEAREST],
            "plane": head["plane"],
            "examples": examples(head),
            "effect": effects.get(head["name"]),
            "relations": list(_relations(syntax, head["name"])),
            "coreference": _coreference(coref, head["name"]),
            "copying": _copying(circuits, head["name"]),
            "feeds": _edges(circuits, "writer", head["name"]),
            "reads": _edges(circuits, "reader", head["name"]),
            "map": (maps or {}).get(head["name"]),
        }
        for head in profile["heads"]
    ]
    parts = {"ablate": ablate, "syntax": syntax, "coref": coref, "circuits": circuits}
    return {
        "schema": SCHEMA,
        **{key: profile[key] for key in _SOURCE},
        "summary": list(_summary(profile, heads, ablate, circuits)),
        "methods": list(_methods(profile, parts, absent or {})),
        "notes": list(dict.fromkeys(_notes(profile, parts))),
        "metric": None if ablate is None else _metric(ablate),
        "heads": heads,
    }


def examples(head: Document) -> list[dict[str, Any]]:
    """The row that shows each role of a head best; where there is none, its strongest of any."""
    best = {
        score: {"score": score, **example}
        for score, examples in head["examples"].items()
        for example in reversed(examples)
        if example["sort"] == "best"
    }
    roles = [best[role["score"]] for role in head["roles"] if role["score"] in best]
    return roles or sorted(best.values(), key=lambda example: -example["value"])[:1]


def _effects(ablate: Document | None) -> dict[str, dict[str, Any]]:
    """What taking each head away costs, with its rank from the costliest."""
    if ablate is None:
        return {}
    alone = [effect for effect in ablate["effects"] if not effect["members"]]
    alone = [effect for effect in alone if effect["heads"] == [effect["name"]]]
    ranked = sorted(alone, key=lambda effect: -effect["effect"])
    distance = ablate["metric"] in DISTANCES  # above zero for every head that does anything
    keys = ("effect", "low", "high", "worse", "gradient")
    return {
        effect["name"]: {
            **{key: effect[key] for key in keys},
            "rank": rank,
            "needed": None if distance else needed(effect),
        }
        for rank, effect in enumerate(ranked, start=1)
    }


def _metric(ablate: Document) -> dict[str, Any]:
    name = ablate["metric"]
    return {"name": name, "unit": ablate["unit"], "distance": name in DISTANCES}


def needed(effect: Document) -> bool | None:
    """Whether taking a head away costs something for certain; None without an interval."""
    return None if effect["low"] is None else bool(effect["low"] > 0)


def _relations(syntax: Document | None, name: str) -> Iterator[dict[str, Any]]:
    """The relations that no head finds better and no offset as well; those with a role first."""
    if syntax is None:
        return
    roles = {(role["head"], role["relation"]) for role in syntax.get("roles", ())}
    found = [
        {
            "relation": relation,
            "role": (name, relation) in roles,
            **{key: value for key, value in entry["best"].items() if key != "head"},
        }
        for relation, entry in syntax["relations"].items()
        if relation != "all"
        and entry["best"]
        and entry["best"]["head"] == name
        and (entry["best"]["margin"] or 0.0) > 0
    ]
    found.sort(key=lambda entry: (not entry["role"], -(entry["margin"] or 0.0)))
    yield from found[:_RELATIONS]


def _coreference(coref: Document | None, name: str) -> dict[str, Any] | None:
    """How a head does at names, on the half that no head was chosen on."""
    if coref is None:
        return None
    for entry in coref["ranked"]:
        if entry["head"] == name:
            role = any(one["head"] == name for one in coref["roles"])
            return {**{key: value for key, value in entry.items() if key != "head"}, "role": role}
    return None


def _copying(circuits: Document | None, name: str) -> dict[str, Any] | None:
    """The copying scores of a head, with plain embeddings and with those of the first layer."""
    for head in () if circuits is None else circuits["heads"]:
        if head["head"] == name:
            scores = {key: head[key] and head[key]["score"] for key in ("plain", "first")}
            return scores if any(score is not None for score in scores.values()) else None
    return None


def _edges(circuits: Document | None, end: str, name: str) -> list[dict[str, Any]]:
    """The strongest edges that a head is at one end of."""
    edges = [] if circuits is None else [e for e in circuits["edges"] if e[end] == name]
    edges.sort(key=lambda edge: -edge["excess"])
    return edges[:_EDGES]


def _summary(
    profile: Document,
    heads: Sequence[Document],
    ablate: Document | None,
    circuits: Document | None,
) -> Iterator[str]:
    """What one would quote, each sentence with its figures."""
    does: dict[str, list[str]] = {}
    for head in heads:
        if head["does"]:
            does.setdefault(head["does"]["name"], []).append(head["name"])
    named = sum(map(len, does.values()))
    rest = sum(not head["does"] and bool(head["rests"]) for head in heads)
    listed = "; ".join(
        f"{role} {len(names)} ({', '.join(names[:6])}{', …' if len(names) > 6 else ''})"
        for role, names in sorted(does.items(), key=lambda item: -len(item[1]))
    )
    yield (
        f"Over {profile['texts']:,} texts ({profile['tokens']:,} tokens), {named} of {len(heads)} "
        f"heads do something that has a name{': ' + listed if listed else ''}. {rest} only rest."
    )
    if ablate is not None:
        effects = [head for head in heads if head["effect"]]
        top = sorted(effects, key=lambda head: head["effect"]["rank"])[:3]
        told = ", ".join(f"{head['name']} {_change(head['effect'])}" for head in top)
        how = f"{ablate['texts']:,} texts, {ablate['method']} ablation"
        if ablate["metric"] in DISTANCES:
            yield (
                f"Taken away one by one ({how}), these change the prediction most "
                f"({ablate['metric']}, {ablate['unit']}): {told}."
            )
        else:
            certain = sum(bool(head["effect"]["needed"]) for head in effects)
            yield (
                f"Taken away one by one ({how}, {ablate['metric']} in {ablate['unit']}, base "
                f"{ablate['base']:.3g}), the costliest are {told}; {certain} of {len(effects)} "
                "cost something with an interval above zero."
            )
    found = [
        f"{entry['relation']} by {head['name']} ({100 * entry['accuracy']:.0f} % of "
        f"{entry['count']:,}, best offset {100 * entry['offset_accuracy']:.0f} %)"
        for head in heads
        for entry in head["relations"]
        if entry["role"]
    ]
    if found:
        yield f"Grammar, on documents that no head was chosen on: {', '.join(found)}."
    names = [head for head in heads if head["coreference"] and head["coreference"]["role"]]
    if names:
        names.sort(key=lambda head: -head["coreference"]["accuracy"])
        told = ", ".join(
            f"{head['name']} {100 * head['coreference']['accuracy']:.0f} %" for head in names
        )
        entry = names[0]["coreference"]
        yield (
            f"Names, on documents that no head was chosen on: {told} right of "
            f"{entry['count']:,} cases; {entry['baseline']} "
            f"{100 * entry['baseline_accuracy']:.0f} %."
        )
    if circuits is not None and circuits["edges"]:
        edges = sorted(circuits["edges"], key=lambda edge: -edge["excess"])[:3]
        told = ", ".join(
            f"{e['writer']} into {e['side']} of {e['reader']} ({e['ratio']:.2f})" for e in edges
        )
        yield f"Strongest connections by weights alone: {told}."


def _change(effect: Document) -> str:
    """A change with its interval: ``+2.1 [1.2, 3.0]``."""
    ends = "" if effect["low"] is None else f" [{effect['low']:+.2g}, {effect['high']:+.2g}]"
    return f"{effect['effect']:+.2g}{ends}"


def _methods(
    profile: Document, parts: Mapping[str, Document | None], absent: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """How each part was measured, and why one is missing."""
    unit = profile["clusters"]["unit"]
    yield {
        "part": "profile",
        "said": f"{profile['texts']:,} texts in {profile['windows']:,} windows from "
        f"{', '.join(profile['files'])}; 95 % intervals over {profile['clusters']['count']:,} "
        f"{unit}s" + (" for all heads and scores at once" if _simultaneous(profile) else ""),
    }
    ablate, syntax, coref, circuits = (
        parts[name] for name in ("ablate", "syntax", "coref", "circuits")
    )
    if ablate is not None:
        yield {
            "part": "ablate",
            "said": f"{ablate['method']} ablation of every head alone, change of "
            f"{ablate['metric']} ({ablate['unit']}) over {ablate['positions']:,} positions of "
            f"{ablate['texts']:,} texts; 95 % intervals over texts",
        }
    for name, found in (("syntax", syntax), ("coref", coref)):
        if found is not None:
            cases = (
                f"{found['words']:,} words" if name == "syntax" else f"{found['examples']:,} cases"
            )
            yield {
                "part": name,
                "said": f"{cases} in {found['clusters']['count']:,} {found['clusters']['unit']}; "
                f"heads chosen on {found['chosen_on']}, figures from {found['measured_on']}",
            }
    if circuits is not None:
        yield {
            "part": "circuits",
            "said": "from weights alone; composition less the mean of random matrices of the same "
            "shapes, copying by eigenvalues over a sample of the vocabulary",
        }
    for name, why in absent.items():
        yield {"part": name, "said": f"not there: {why}"}


def _simultaneous(profile: Document) -> bool:
    return bool(profile["interval"]["simultaneous"])


def _notes(profile: Document, parts: Mapping[str, Document | None]) -> Iterator[str]:
    yield from profile["notes"]
    for found in parts.values():
        yield from () if found is None else found.get("notes", ())
