"""The JSON of a command as a finding: what it says of every head, and the numbers to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attnviz.annotated import SYNTAX_SCHEMA
from attnviz.annotated.coref import COREF_SCHEMA
from attnviz.effects import SCHEMA as ABLATE_SCHEMA
from attnviz.findings import Finding, Measure, Value
from attnviz.render.labels import percent, visible
from attnviz.render.profile_tables import PROFILE_SCHEMA
from attnviz.render.signed import signed
from attnviz.scoring.scores import SCORES
from attnviz.votes import SCHEMA as LOGITS_SCHEMA

Document = Mapping[str, Any]
"""A command's JSON, read."""

_STRINGS, _GROUPS, _RELATIONS, _SEEN = 3, 3, 3, 3
"""How many of each a head is told about."""
_CHANGED = {
    "loss": "loss",
    "kl": "prediction",
    "logit-diff": "difference of logits",
    "hidden": "last hidden states",
}
"""What a metric is of, in words."""
_COMPARES = ("kl", "hidden")
"""Metrics that are 0 with all heads, and never below."""
_TAIL = 12
"""Tokens of a text that say which one it was."""


def finding(name: str, document: Document) -> Finding:
    """What a result says of every head.

    Args:
        name: of the file.
        document: the JSON of one of :data:`SCHEMAS`.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    return SCHEMAS[document["schema"]](name, document)


def _ablation(name: str, document: Document) -> Finding:
    """What taking each head away costs."""
    unit, texts = document["unit"], int(document["texts"])
    changed = _CHANGED.get(document["metric"], document["metric"])
    alone = [one for one in document["effects"] if one["heads"] == [one["name"]]]
    groups = [one for one in document["effects"] if len(one["heads"]) > 1]
    less, compares = document["metric"] == "logit-diff", document["metric"] in _COMPARES
    ranked = sorted(alone, key=lambda one: one["effect"] if less else -one["effect"])
    said: dict[str, list[str]] = {}
    for rank, one in enumerate(ranked, start=1):
        share = f", worse on {percent(one['worse'])} of the texts" if texts > 1 else ""
        change = _change(one["effect"], one["low"], one["high"])
        said[one["name"]] = [f"{change} {unit}, number {rank} of {len(alone)}{share}"]
        if one["gradient"] is not None:
            slope = f"mean |∂/∂gate| {one['gradient']:.2g}"
            said[one["name"]].append(f"{slope}, with its sign {signed(one['signed_gradient'])}")
    for group in groups:
        change = _change(group["effect"], group["low"], group["high"])
        parts = group["members"]
        apart = "" if parts is None else f", one by one they add up to {signed(parts)}"
        label = f"{group['name']}, {len(group['heads'])} heads together"
        for head in group["heads"]:
            if len(said.setdefault(head, [])) < 2 + _GROUPS:
                said[head].append(f"with others ({label}): {change} {unit}{apart}")
    worse = "" if compares else f"; {'below' if less else 'above'} 0 is worse"
    base = "" if compares else f"; with all heads it is {document['base']:.3g} {unit}"
    method = f"{document['method']} ablation"
    over = f"{texts:,} text{'s' if texts > 1 else ''}"
    interval = "95 % intervals over texts" if texts > 1 else "a single text has no interval"
    partial = " It was interrupted: only the texts that were done are in it." * document["partial"]
    measures = [
        Measure(
            "effect",
            f"change of the {changed} without it",
            unit,
            0 if compares else -1 if less else 1,
            {one["name"]: _value(one, "effect") for one in alone},
        )
    ]
    slopes = {one["name"]: one["gradient"] for one in alone if one["gradient"] is not None}
    if slopes:
        measures.append(Measure("gradient", "gradient of its gate", unit, 0, _plain(slopes)))
    return Finding(
        "ablate",
        name,
        "What it is worth",
        f"Change of the {changed} without it ({unit}), by {method}, at "
        f"{document['positions']:,} positions of {over}{base}{worse}; {interval}.{partial}",
        _lines(said),
        tuple(measures),
    )


def _profile(name: str, document: Document) -> Finding:
    """What every head does over many texts."""
    said = {head["name"]: list(_habits(head)) for head in document["heads"]}
    unit, count = document["clusters"]["unit"], int(document["clusters"]["count"])
    at_once = " for all heads and scores at once" * bool(document["interval"]["simultaneous"])
    norms = "" if document["quantity"] == "weights" else f" Not weights: {document['quantity']}."
    measures = []
    for score in document["heads"][0]["scores"]:
        found = {
            head["name"]: _value(head["scores"][score], "mean")
            for head in document["heads"]
            if head["scores"][score]["mean"] is not None
        }
        if found and score in SCORES:
            of = SCORES[score].unit
            title = f"{score.replace('_', ' ')} over texts"
            measures.append(Measure(score, title, "" if of == "share" else of, 0, found))
    files = ", ".join(document["files"])
    return Finding(
        "profile",
        name,
        "Over many texts",
        f"{document['texts']:,} texts ({document['tokens']:,} tokens) from {files}; 95 % intervals "
        f"over {count:,} {unit}s{at_once}.{norms}",
        _lines(said),
        tuple(measures),
    )


def _habits(head: Document) -> Iterator[str]:
    """What a head does, where it rests, and the strings with most of its weight."""
    for verb, role in (("does", head["does"]), ("rests on", head["rests"])):
        if role is None:
            continue
        numbers = head["scores"].get(role["score"], role)
        kind = f"is {role['name']}" if role["name"] == "diffuse" else f"{verb} {role['name']}"
        where = (
            ""
            if role["possible"] is None
            else f" where possible ({percent(role['possible'])} of rows)"
        )
        texts = f" of {numbers['texts']:,} texts" if "texts" in numbers else ""
        mean = _estimate(numbers["mean"], numbers.get("low"), numbers.get("high"))
        chance = "" if numbers["chance"] is None else f", chance {numbers['chance']:.2g}"
        yield f"{kind} {mean}{where}: {numbers['rows']:,} rows{texts}{chance}"
    if head["does"] is None and head["rests"] is None:
        yield "no role"
    strings = [
        f"{visible(one['text'])} {percent(one['weight'])} (uniform {percent(one['uniform'])})"
        for one in head["tokens"][:_STRINGS]
    ]
    if strings:
        yield f"most weight on {', '.join(strings)}"


def _logits(name: str, document: Document) -> Finding:
    """What every head adds to a logit."""
    against = document["against"]
    of = _quoted(document["token"]) + (f" less that of {_quoted(against)}" if against else "")
    values = {head: sum(row) for head, row in document["by_token"].items()}
    ranked = sorted(values, key=lambda head: -abs(values[head]))
    said = {
        head: [f"{signed(values[head])} logits for {of}, number {rank} of {len(values)} by size"]
        for rank, head in enumerate(ranked, start=1)
    }
    for vote in document["heads"]:
        seen = [
            f"{_quoted(one['token'])} {signed(one['value'])} (weight {one['weight']:.2f})"
            for one in vote["seen"][:_SEEN]
        ]
        said[vote["head"]] += [
            f"through {', '.join(seen)}",
            f"raises {_words(vote['raises'])}; lowers {_words(vote['lowers'])}",
        ]
    place = int(document["position"])
    read = document["tokens"][max(0, place + 1 - _TAIL) : place + 1]
    text = ("… " if place + 1 > _TAIL else "") + visible("".join(read).strip())
    how = (
        f"What it adds by itself to the logit of {of} ({document['logit']:.3g} in all) at the last "
        f"token of “{text}”, token {place}; what it makes later layers write counts as theirs."
    )
    if not values:
        how = f"No logit is split by head: {document['reason']}."
    measures = (
        Measure("vote", f"what it adds to the logit of {of}", "logits", -1, _plain(values)),
    )
    return Finding("logits", name, "What it writes", how, _lines(said), measures if values else ())


def _syntax(name: str, document: Document) -> Finding:
    """The relations that no other head finds as well."""
    roles = {(role["head"], role["role"].partition(": ")[2]) for role in document["roles"]}
    best = [
        (one["best"]["head"], relation, one["best"])
        for relation, one in document.get("relations", {}).items()
        if relation != "all" and one["best"] and one["best"]["margin"] is not None
    ]
    best.sort(key=lambda one: ((one[0], one[1]) not in roles, -one[2]["margin"]))
    said: dict[str, list[str]] = {}
    margins: dict[str, Value] = {}
    for head, relation, one in best:
        lines = said.setdefault(head, [])
        if len(lines) < _RELATIONS:
            found = _estimate(one["accuracy"], one["low"], one["high"])
            lines.append(
                f"{relation} {found} of {one['count']:,}, best offset "
                f"{one['offset_accuracy']:.2f}"
                + ("" if (head, relation) in roles else " (no role)")
            )
        if head not in margins or one["margin"] > margins[head][0]:
            margins[head] = (one["margin"], one["margin_low"], one["margin_high"])
    title = "largest lead over the best offset, of the relations it finds best"
    return Finding(
        "syntax",
        name,
        "Relations it finds best of all heads",
        f"How often it points at the gold head or dependent, in {document['measured_on']} that no "
        "head was chosen on; the best fixed offset beside it; 95 % intervals.",
        _lines(said),
        (Measure("lead", title, "", -1, margins),) if margins else (),
    )


def _coref(name: str, document: Document) -> Finding:
    """How often each head points at what a mention refers to."""
    ranked = [one for one in document.get("ranked", ()) if one["accuracy"] is not None]
    said = {
        one["head"]: [
            f"{_estimate(one['accuracy'], one['low'], one['high'])} of {one['count']:,}, "
            f"{one['baseline']} {one['baseline_accuracy'] or 0:.2f}"
        ]
        for one in ranked
    }
    measure = Measure(
        "accuracy",
        "how often it finds what is referred to",
        "",
        0,
        {one["head"]: _value(one, "accuracy") for one in ranked},
    )
    return Finding(
        "coref",
        name,
        "What a mention refers to",
        f"How often it is right in {document['measured_on']} that no head was chosen on, the best "
        "rule without attention beside it; 95 % intervals.",
        _lines(said),
        (measure,) if ranked else (),
    )


SCHEMAS: Mapping[str, Callable[[str, Document], Finding]] = {
    SYNTAX_SCHEMA: _syntax,
    COREF_SCHEMA: _coref,
    ABLATE_SCHEMA: _ablation,
    PROFILE_SCHEMA: _profile,
    LOGITS_SCHEMA: _logits,
}
"""How each result is read."""


def _lines(said: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {head: tuple(lines) for head, lines in said.items()}


def _value(one: Document, name: str) -> Value:
    return one[name], one["low"], one["high"]


def _plain(values: Mapping[str, float]) -> dict[str, Value]:
    """Numbers without intervals."""
    return {head: (value, None, None) for head, value in values.items()}


def _change(value: float, low: float | None, high: float | None) -> str:
    """A change with its interval: ``+2.1 [1.2, 3.0]``."""
    ends = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]"
    return f"{signed(value)}{ends}"


def _estimate(value: float, low: float | None, high: float | None) -> str:
    """A share with its interval: ``0.61 [0.58, 0.64]``."""
    return f"{value:.2f}" + ("" if low is None or high is None else f" [{low:.2f}, {high:.2f}]")


def _quoted(token: str) -> str:
    return f"“{visible(token)}”"


def _words(words: Sequence[str]) -> str:
    return " ".join(map(_quoted, words))
