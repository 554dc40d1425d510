"""``attnviz ablate``: does a head matter?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.cli import console
from attnviz.cli.console import Stages
from attnviz.cli.declared import changed, command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Parallel, Settings, setting
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.ablation.settings import AblationSettings


@dataclass(frozen=True)
class AblateOptions(Settings):
    """What functions take as values, and commands as names of files."""

    probe: bool = setting(
        False, "Measure on repeated random tokens. Only their second half counts.", common=True
    )
    reference: str | None = setting(
        None,
        "Texts for mean and resample, none of those measured: a file as for {texts}; matched, "
        "texts in the same state (with {probe} the same length, with {group} the same group; the "
        "default there); or unmatched, the other half of the texts, for a single text English "
        "sentences that come with attnviz.",
        metavar="FILE|matched|unmatched",
    )
    group: str | None = setting(
        None,
        "Column or field of {texts} that says what a text belongs to, such as its document; these "
        "are then taken as independent.",
        metavar="NAME",
    )
    out_dir: Path | None = setting(
        None,
        "Also write the checkpoint with the heads of {select} removed into this folder, for "
        "transformers to load.",
        metavar="FOLDER",
    )


@command
def ablate(
    prompt: TextsOptions,
    settings: AblationSettings,
    options: AblateOptions,
    model: ModelSettings,
    attaching: Attaching,
    parallel: Parallel,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Ablate heads and measure what that costs: which heads are needed?

    [bold]Examples[/]

      attnviz ablate --texts sample_inputs/sentences.txt --curve -o heads.png

      attnviz ablate --probe --select "3.0+3.1+3.3+3.5, role:induction"

      attnviz ablate "The doctor asked for" --answer her --against him
    """
    from attnviz.features.ablation import function
    from attnviz.features.ablation.result import Ablation

    output.check_written(Ablation)
    _check_pruned(options.out_dir, settings.select)
    texts: Iterable[Any] | None
    parts = prompt.parts(model, settings.split)
    if options.probe and not prompt.given():
        if extra := changed(prompt):
            raise UsageError(f"--probe makes its own tokens; leave out {', '.join(extra)}")
        texts = groups = None
    elif options.group is not None:
        texts, groups = prompt.grouped(model, options.group)
    else:
        texts = prompt.read_all(model, seed=prompt.drawn(settings.seed), quiet=output.quiet)
        groups = None
    reference: Any = options.reference
    if reference not in (None, "matched", "unmatched"):
        reference = list(TextsOptions(texts=reference).read_all(model))
    with Stages(output.quiet) as stages:
        ablation = function.ablate(
            texts,
            probe=options.probe,
            reference=reference,
            groups=groups,
            parts=parts,
            progress=stages.show,
            settings=settings,
            model=model,
            attaching=attaching,
            parallel=parallel,
        )
    output.deliver(ablation, paper.options(), table.first)
    if options.out_dir is not None:
        from attnviz.features.ablation.prune import prune_heads

        heads = dict.fromkeys(head for effect in ablation.effects for head in effect.heads)
        pruned = prune_heads(str(model.model), tuple(heads), options.out_dir, device=model.device)
        if not output.quiet:
            console.note(str(pruned).splitlines(), False)


def _check_pruned(folder: Path | None, heads: str | None) -> None:
    """Find out before anything is measured that a checkpoint could not be written."""
    if folder is None:
        return
    if heads is None:
        raise UsageError(
            "--out-dir is for the checkpoint without the heads of --select; say which ones"
        )
    from attnviz.models.pruned.checkpoint import check_free

    check_free(folder)
