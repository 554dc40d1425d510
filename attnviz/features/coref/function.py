"""``attnviz.coref``: which heads find the antecedents of pronouns and other mentions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnviz import files as paths
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.provenance import own_name
from attnviz.core.settings import Progress
from attnviz.core.split import field_of
from attnviz.corpus.gold.settings import CorefSettings
from attnviz.features.coref.choosing import choices, run_names
from attnviz.features.coref.mentions import documents, is_treebank, run_mentions
from attnviz.features.coref.result import Coref


@interface
def coref(
    files: str | Path | Sequence[str | Path],
    *,
    settings: CorefSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, count, total: None,
) -> Coref:
    """Compare where every head looks with what pronouns and other mentions refer to.

    Args:
        files: tables with the columns of GAP (Webster et al. 2018), or CoNLL-U files with the
            Entity annotation of CorefUD, or patterns.
    """
    names = paths.listed(files)
    if is_treebank(names):
        texts, bad = documents(names, strict=settings.strict)
        what = "sentences or documents that cannot be used"
        broken = {f"{what}, first {own_name(bad[0].place)}": len(bad)} if bad else {}
        source = light(model.load())
        result = run_mentions(
            source, texts, settings, skipped=broken, load=model.again(source), progress=progress,
        )  # fmt: skip
    else:
        pairs, neither, bad = choices(names, strict=settings.strict, part=field_of(settings.split))
        source = light(model.load())
        skipped = {
            "rows that cannot be used": len(bad),
            "neither name or both are the antecedent": neither,
        }
        result = run_names(
            source, pairs, settings, skipped=skipped, load=model.again(source), progress=progress
        )
    return replace(result, identity=model.identity)
