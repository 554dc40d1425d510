"""What a caller may ask for: at most twelve tools, each a few lines over the library.

A tool's docstring is what the caller reads of it. Every tool that runs something keeps its whole
result as a file and answers with the part that fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.errors import UsageError
from attnviz.features.mcp.answer import ToolAnswer
from attnviz.features.mcp.folders import Folders
from attnviz.features.mcp.kept import KeptResults

METHODS = "mean, resample"


class Tools:
    """The tools over some folders.

    Args:
        folders: which files may be read, and where results go.
    """

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.kept = KeptResults(folders)

    def all(self) -> tuple[Callable[..., ToolAnswer], ...]:
        """Every tool, in the order in which a caller meets them."""
        return (
            self.heads, self.look, self.explain, self.spans, self.profile, self.syntax,
            self.ablate, self.patch, self.circuits, self.shapes, self.diff, self.read,
        )  # fmt: skip

    def heads(
        self,
        text: str | None = None,
        model: str = "demo-gpt2",
        pair: str | None = None,
        recorded: str | None = None,
        probe: bool = False,
        without: str | None = None,
        evidence: list[str] | None = None,
        picture: bool = False,
    ) -> ToolAnswer:
        """What every attention head does on one text: roles with score, chance, lift and rows.

        text: what the model reads. model: demo-gpt2, demo-bert, an allowed folder, or a hub id that
        is in the local cache. pair: second sentence (BERT). recorded: a kept .npz in place of text.
        probe: also repeated random tokens, which tell induction heads. without: heads to ablate
        first ("2.4, role:first"). evidence: kept results whose roles to add. picture: also a PNG.
        """
        found = av.heads(
            self._look(text, pair, recorded),
            model=self.folders.model(model),
            probe=probe,
            without=self.folders.selection(without),
            evidence=[self.folders.file(name) for name in evidence or ()],
        )
        return self.kept.answer("heads", found, picture)

    def look(
        self,
        text: str | None = None,
        heads: str = "",
        model: str = "demo-gpt2",
        pair: str | None = None,
        recorded: str | None = None,
        picture: bool = False,
    ) -> ToolAnswer:
        """Where some heads look on one text: for every query token the keys with most weight.

        heads: such as "2.0, 3.*"; few, since every one is a table. Other arguments as for heads.
        """
        if not heads.strip():
            raise UsageError("{heads} names none; give some, such as 2.0 or 1.4, 3.*", heads=...)
        chosen = self.folders.selection(heads) or heads
        found = av.capture(self._look(text, pair, recorded), model=self.folders.model(model))
        return self.kept.capture("look", found, chosen, picture)

    def explain(
        self,
        text: str,
        answer: str | None = None,
        against: str | None = None,
        model: str = "demo-gpt2",
        picture: bool = False,
    ) -> ToolAnswer:
        """Why the model predicts a word after the text: votes of heads, their keys, ablations.

        answer: the word to explain, else the most probable. against: the word its lead is over.
        """
        found = av.explain(
            Prompt(text), model=self.folders.model(model), answer=answer, against=against
        )
        return self.kept.answer("explain", found, picture)

    def spans(
        self,
        text: str,
        spans: dict[str, str],
        rows: str = "last",
        model: str = "demo-gpt2",
        picture: bool = False,
    ) -> ToolAnswer:
        """How much of its weight every head gives to named parts of a text, against chance.

        spans: name to the words ("the table"), "all:WORDS" or "regex:PATTERN". rows: whose weight:
        "last" token, "all", or a span's name.
        """
        prompt = Prompt(text, spans=spans)
        found = av.spans(prompt, rows=rows, model=self.folders.model(model))
        return self.kept.answer("spans", found, picture)

    def profile(
        self,
        file: str,
        model: str = "demo-gpt2",
        limit: int = 200,
        column: str | None = None,
        group: str | None = None,
        interval: Literal["each", "simultaneous"] = "each",
        picture: bool = False,
    ) -> ToolAnswer:
        """Roles and scores of every head over many texts, with 95 % intervals over texts.

        file: one text per line, or .jsonl, .csv, .tsv, .parquet with column. limit: texts at most.
        group: column that names what texts belong to, the unit of the intervals. interval:
        simultaneous holds for all heads and scores at once.
        """
        found = av.profile(
            [str(self.folders.file(file))],
            model=self.folders.model(model),
            limit=limit,
            column=column,
            group=group,
            interval=interval,
            jobs=1,
        )
        return self.kept.answer("profile", found, picture)

    def syntax(
        self, file: str, model: str = "demo-bert", punct: bool = True, picture: bool = False
    ) -> ToolAnswer:
        """Which heads follow a treebank's dependencies (Clark et al. 2019), on a held-out half.

        file: a treebank in CoNLL-U. punct: whether punctuation counts.
        """
        found = av.syntax(self.folders.file(file), model=self.folders.model(model), punct=punct)
        return self.kept.answer("syntax", found, picture)

    def ablate(
        self,
        text: str | None = None,
        file: str | None = None,
        probe: bool = False,
        heads: str | None = None,
        method: str = METHODS,
        metric: Literal["loss", "kl", "logit-diff", "hidden"] | None = None,
        answer: str | None = None,
        against: str | None = None,
        model: str = "demo-gpt2",
        limit: int = 20,
        picture: bool = False,
    ) -> ToolAnswer:
        """Which heads are needed: what changes when heads are replaced.

        One of text, file (a text per line, limit at most) and probe (repeated random tokens: what
        does repetition need?). heads: "2.4, 3.0+3.1, role:induction", else every head and role,
        which takes minutes. method: mean, resample, zero by comma; two must agree before a head is
        called needed. metric: change of it; logit-diff needs answer and against.
        """
        if sum((text is not None, file is not None, probe)) != 1:
            raise UsageError(
                "give one of {text}, {file} and {probe}", text=..., file=..., probe=True
            )
        found = av.ablate(
            None if probe else self._texts(text, file, limit),
            probe=probe,
            model=self.folders.model(model),
            heads=self.folders.selection(heads),
            method=method,
            metric=metric,
            answer=answer,
            against=against,
        )
        return self.kept.answer("ablate", found, picture)

    def patch(
        self,
        task: Literal["induction", "induction-swap", "ioi", "agreement", "gender"] | None = None,
        clean: str | None = None,
        corrupted: str | None = None,
        answer: str | None = None,
        against: str | None = None,
        file: str | None = None,
        heads: str | None = None,
        paths: str | None = None,
        component: Literal["z", "q", "k", "v", "pattern"] = "z",
        circuit: bool = False,
        count: int = 20,
        model: str = "demo-gpt2",
        picture: bool = False,
    ) -> ToolAnswer:
        """Which heads carry an answer: values of a clean run put into a corrupted one and back.

        One of task (count pairs), file (.jsonl of pairs), and clean with corrupted and answer.
        component: what is patched, z for heads' outputs. against: the word that answer is held
        against. paths: in place of heads, "1.4 -> *.k" or "2.0 -> logits". circuit: find heads that
        suffice, on half of the pairs, and judge them on the other half.
        """
        typed = (clean, corrupted, answer)
        if sum((task is not None, file is not None, any(part is not None for part in typed))) != 1:
            raise UsageError(
                "give one of {task}, {file}, and {clean} with {corrupted} and {answer}",
                task=..., file=..., clean=..., corrupted=..., answer=...,
            )  # fmt: skip
        pairs: Any = None if file is None else self.folders.file(file)
        if task is None and file is None:
            if clean is None or corrupted is None or answer is None:
                raise UsageError(
                    "a pair needs {clean}, {corrupted} and {answer}; give all three",
                    clean=..., corrupted=..., answer=...,
                )  # fmt: skip
            pairs = av.Pair(clean, corrupted, answer, against)
        found = av.patch(
            pairs,
            task=task,
            model=self.folders.model(model),
            heads=self.folders.selection(heads),
            paths=self.folders.selection(paths) or (),
            component=component,
            circuit=circuit,
            count=count,
        )
        return self.kept.answer("patch", found, picture)

    def circuits(
        self, model: str = "demo-gpt2", heads: str | None = None, picture: bool = False
    ) -> ToolAnswer:
        """What weights alone say: which heads can feed which (composition), and which copy tokens.

        heads: only these as readers or writers.
        """
        options: dict[str, Any] = {} if heads is None else {"select": self.folders.selection(heads)}
        found = av.circuits(model=self.folders.model(model), **options)
        return self.kept.answer("circuits", found, picture)

    def shapes(
        self,
        preset: str | None = None,
        model: str | None = None,
        d_model: int | None = None,
        heads: int | None = None,
        kv_heads: int | None = None,
        kind: Literal["mha", "gqa", "mqa", "mla", "cross"] | None = None,
        batch: int = 1,
        seq: int | None = None,
        cache: int | None = None,
        dtype: str | None = None,
        compare: bool = False,
        memory: str | None = None,
    ) -> ToolAnswer:
        """Shapes, parameters, FLOPs and KV cache of attention, on paper: no weights are read.

        preset: a published model (llama3-8b, gpt2, ...); model: config of an allowed folder; or
        sizes, with kind where heads and kv_heads do not say it. batch, seq: texts and tokens at
        once; cache: tokens already cached when one is decoded. dtype: bf16,
        fp16, float32. compare: MHA, GQA, MQA and MLA side by side, and what fits in memory (80GB).
        """
        from attnviz.features.shapes import function as shapes

        sized = shapes.Layer(d_model=d_model, heads=heads, kv_heads=kv_heads, kind=kind)
        named = preset is not None or model is not None
        if named and sized != shapes.Layer():
            raise UsageError(
                "{preset} and {model} fix the sizes; leave {d_model}, {heads}, {kv_heads} and "
                "{kind} out",
                preset=..., model=..., d_model=..., heads=..., kv_heads=..., kind=...,
            )  # fmt: skip
        folder = None if model is None else self.folders.model(model)
        subject = shapes.Model(preset, folder) if named else sized
        run = shapes.RunSizes(batch=batch, seq=seq, cache=cache, dtype=dtype)
        if compare or memory is not None:
            return self.kept.answer("shapes", shapes.compare(subject, run, memory=memory))
        return self.kept.answer("shapes", shapes.walk(subject, run))

    def diff(
        self,
        before: str | None = None,
        after: str | None = None,
        text: str | None = None,
        model: str = "demo-gpt2",
        against: str | None = None,
        picture: bool = False,
    ) -> ToolAnswer:
        """What changed between two runs, head by head.

        Two kept results of one kind (before, after), or a text through model and through against.
        """
        if text is not None and against is not None and before is None and after is None:
            found = av.diff(
                [Prompt(text)],
                model=self.folders.model(model),
                against=self.folders.model(against),
            )
        elif text is None and against is None and before is not None and after is not None:
            found = av.diff(self.folders.file(before), self.folders.file(after))
        else:
            raise UsageError(
                "give {before} and {after}, two kept results, or {text} and {against}, a model",
                before=..., after=..., text=..., against=...,
            )  # fmt: skip
        return self.kept.answer("diff", found, picture)

    def read(
        self,
        file: str | None = None,
        heads: str | None = None,
        first: int = 0,
        save: Literal["csv", "png", "svg", "pdf", "html"] | None = None,
        picture: bool = False,
    ) -> ToolAnswer:
        """Read a kept result again, every figure of some heads, or what there is without a file.

        heads: rows of the full table that name one of them ("2.4" or "2.4, 3.0"); first: number of
        the first row. save: also write it in that form beside the others.
        """
        if file is None:
            return self.kept.listed()
        chosen = self.folders.selection(heads)
        return self.kept.again(self.folders.file(file), chosen, max(first, 0), save, picture)

    def _look(self, text: str | None, pair: str | None, recorded: str | None) -> Any:
        """A text to run, or a capture that was kept."""
        if (text is None) == (recorded is None):
            raise UsageError("give {text} or {recorded}", text=..., recorded=...)
        if recorded is not None:
            if pair is not None:
                raise UsageError("{pair} goes with {text}; leave it out", pair=..., text=...)
            return av.read_capture(self.folders.file(recorded))
        return Prompt(text, pair=pair)

    def _texts(self, text: str | None, file: str | None, limit: int) -> list[Prompt]:
        """The text, or the first lines of a file."""
        if file is None:
            return [Prompt(text)]
        from attnviz.corpus.lines import text as contents

        lines = contents(str(self.folders.file(file))).splitlines()
        return [Prompt(line) for line in lines if line.strip()][: max(limit, 1)]
