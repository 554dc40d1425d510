"""Rules in heads' places: the weights that they give each text, and the passes that have them.

What a head's rule marks depends on tokens and on which keys it may attend to, so it is worked out
once for a batch, and its null of it: :mod:`attnviz.scoring.rules`.

Notation in shapes: B trials, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats
from attnviz.core.capture import KeyMask
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.result import Leaf
from attnviz.core.source import Donor, ForwardRequest, Gate, Source
from attnviz.corpus.relations import TokenTraits, check_tree, selected
from attnviz.errors import UsageError
from attnviz.features.ablation.fills import Fills
from attnviz.features.results import read_evidence
from attnviz.interventions.sweep import Intervention, first_layer
from attnviz.scoring.observe import Recorder, observe
from attnviz.scoring.rules import RULES, Rule, RuleText, permuted
from attnviz.scoring.select import Group


@dataclass(frozen=True, slots=True)
class HeadRules:
    """The rules of heads, as some texts give them."""

    names: Mapping[Head, str]  # of each head that has one, its rule
    # how much of a head's weight lies where its rule puts some, in the mean over rows; where a
    # rule takes the whole of it, none
    shares: Mapping[Head, float]
    # of heads whose rule is a tree of relations that a profile found
    trees: Mapping[Head, Tree] = field(default_factory=dict)

    def rule(self, head: Head) -> Rule:
        """Return the rule of a head."""
        tree, name = self.trees.get(head), self.names[head]
        return RULES[name] if tree is None else Rule(name, partial(_by_tree, tree))


Tree = tuple[Leaf, ...]


def _by_tree(tree: Tree, text: RuleText) -> NDArray[np.bool_]:
    """Mark keys by a tree of rules, bool [T, S]."""
    return selected(tree, TokenTraits(text.queries), text.allowed)


def read_trees(path: str, source: Source, identity: Mapping[str, Any]) -> dict[Head, Tree]:
    """Read what a profile of this model found by rules of heads; UsageError for anything else."""
    (profile,) = read_evidence(path)
    profile.result.check_model(profile.name, source.info, source.layout, identity)
    trees = dict(profile.result.rule_trees())
    if not trees:
        raise UsageError(
            "{} has no rules of heads; give what attnviz profile wrote with {select}",
            profile.name, select=...,
        )  # fmt: skip
    for head, tree in trees.items():
        check_tree(tree, source.layout.name(head))
    return trees


class RuleMaps:
    """What rules give heads on a batch of trials."""

    def __init__(self, source: Source, trials: Sequence[Trial], sites: Collection[Site]) -> None:
        batch = [trial.inputs for trial in trials]
        recorder = Recorder(batch, sites)
        observe(source, batch, recorder)
        self._trials, self._heads = trials, source.layout.heads
        self._reach = [recorder.reach(number) for number in range(len(batch))]

    def of(
        self, rules: Sequence[HeadRules], heads: Collection[Head], seed: int | None = None
    ) -> dict[Site, Array]:
        """Return the weights that rules, one for each trial, give heads, [B, H, T, S] by layer.

        ``seed``: of the null, where that is asked for.
        """
        maps: dict[Site, Array] = {}
        for site in dict.fromkeys(head.site for head in heads):
            sides = [trial.inputs.sides[site.kind] for trial in self._trials]
            size = max(len(x.queries) for x in sides), max(len(x.keys) for x in sides)
            weights = np.zeros((len(sides), self._heads[site.kind][site.layer], *size), np.float32)
            for number, trial in enumerate(self._trials):
                reach = self._reach[number][site]
                alike: dict[tuple[str | Head, bytes], Floats] = {}  # by rule and mask
                for head in (head for head in heads if head.site == site):
                    of_heads, text = rules[number], rule_text(reach, trial.inputs, head)
                    name = head if head in of_heads.trees else of_heads.names[head]
                    key = name, text.allowed.tobytes()
                    if key not in alike:
                        alike[key] = of_heads.rule(head).rows(text)
                    rows = alike[key]
                    if seed is not None:
                        seeds = seed, trial.text, site.layer, head.index
                        rows = permuted(rows, text.allowed, seeds)
                    weights[number, head.index, : rows.shape[0], : rows.shape[1]] = rows
            maps[site] = arrays.array(weights)
        return maps


def rule_text(reach: KeyMask, inputs: Inputs, head: Head) -> RuleText:
    """Return what a rule sees of a text in a head's layer."""
    sides = inputs.sides[head.site.kind]
    allowed = reach.allowed(len(sides.queries), len(sides.keys))
    return RuleText(sides.queries, sides.keys, allowed[head.index % len(allowed)], head.site)


def replacements(
    source: Source,
    groups: Sequence[Group],
    rules: Sequence[HeadRules],
    maps: Mapping[Site, Array],
    bare: Collection[Head],
    fills: Fills | None,
) -> list[Intervention]:
    """Put rules' weights in the place of each group's heads, and fills where one has no rule.

    ``rules``: of each trial; ``maps``: their weights; ``bare``: the heads without a rule, which
    alone stay as they are.
    """

    def replaced(group: Group) -> ForwardRequest:
        donors, gates = {}, {}
        for site in group.sites:
            ruled = np.zeros((len(rules), source.layout.heads[site.kind][site.layer]), np.float32)
            passed = np.ones_like(ruled)
            for head in (head for head in group.heads if head.site == site):
                if head not in bare:
                    ruled[:, head.index] = 1
                    passed[:, head.index] = [of_trial.shares.get(head, 1) for of_trial in rules]
                elif len(group.heads) > 1:
                    passed[:, head.index] = 0
            if ruled.any():
                donors[site] = [Donor("pattern", maps[site], arrays.array(ruled))]
            if (passed < 1).any():
                gates[site] = Gate(arrays.array(passed), None if fills is None else fills[site])
        return ForwardRequest(donors=donors or None, gates=gates or None)

    return [
        Intervention(first_layer(source, group.sites), partial(replaced, group)) for group in groups
    ]


def shares_of_rules(
    source: Source, batches: Iterable[Sequence[Inputs]], rules: HeadRules
) -> dict[Head, float]:
    """How much of each head's weight lies where its rule puts some, in the mean over rows."""
    totals, counts = dict.fromkeys(rules.names, 0.0), dict.fromkeys(rules.names, 0)
    for batch in batches:
        recorder = Recorder(batch, {head.site for head in rules.names})
        observe(source, batch, recorder)
        for number, inputs in enumerate(batch):
            maps, reach = recorder.maps(number), recorder.reach(number)
            for head in rules.names:
                marked = rules.rule(head).rows(rule_text(reach[head.site], inputs, head)) > 0
                totals[head] += float(maps[head.site][head.index][marked].sum())
                counts[head] += len(marked)
    return {head: totals[head] / counts[head] for head in rules.names}
