"""Written by docs/reference.py from the declarations of settings."""

from attnviz.attention.blocks import Attended
from attnviz.captures.captured import Captured
from attnviz.captures.in_memory import Watched
from attnviz.core.capture import Capture as Capture
from attnviz.core.heads import Head as Head
from attnviz.core.heads import Site as Site
from attnviz.core.prompt import Generation as Generation
from attnviz.core.prompt import Prompt as Prompt
from attnviz.core.result import Result
from attnviz.core.scores import HeadScores as HeadScores
from attnviz.core.scores import Role as Role
from attnviz.core.scores import Score as Score
from attnviz.core.source import Cut
from attnviz.core.source import Donor
from attnviz.core.source import Gate
from attnviz.core.source import Observer
from attnviz.core.source import Source
from attnviz.core.tokens import Tokens as Tokens
from attnviz.errors import AttnvizError as AttnvizError
from attnviz.errors import AttnvizWarning as AttnvizWarning
from attnviz.errors import DeviceError as DeviceError
from attnviz.errors import InputError as InputError
from attnviz.errors import ModelError as ModelError
from attnviz.errors import OutputError as OutputError
from attnviz.errors import PackageError as PackageError
from attnviz.errors import SelectionError as SelectionError
from attnviz.errors import SizeError as SizeError
from attnviz.errors import UsageError as UsageError
from attnviz.features.ablation.prune import Pruned
from attnviz.features.ablation.result import Ablation
from attnviz.features.atlas.result import Atlas
from attnviz.features.card.function import Card
from attnviz.features.check.result import FileCheck
from attnviz.features.check.result import ModuleCheck
from attnviz.features.circuits.result import Circuits
from attnviz.features.coref.result import Coref
from attnviz.features.diff.result import Diff
from attnviz.features.explain.result import Explain
from attnviz.features.export.run import Exported
from attnviz.features.film.callback import HeadsCallback as HeadsCallback
from attnviz.features.film.result import Film
from attnviz.features.film.track import Tracker
from attnviz.features.flow.result import Flow
from attnviz.features.heads.result import Heads as Heads
from attnviz.features.heatmap.result import Heatmap
from attnviz.features.knockout.result import Knockout
from attnviz.features.knockout.texts import CutText
from attnviz.features.lens.result import Lens
from attnviz.features.live.result import LivePage
from attnviz.features.logits.result import Logits
from attnviz.features.logits.result import Writers
from attnviz.features.patch.pairs import Pair as Pair
from attnviz.features.patch.result import Patch
from attnviz.features.profile.result import Profile
from attnviz.features.profile.run import Progress
from attnviz.features.retrieval.result import Retrieval
from attnviz.features.shapes.result import Answer
from attnviz.features.sinks.result import Sinks
from attnviz.features.sources.result import SourceShares
from attnviz.features.sources.result import Sources
from attnviz.features.spans.result import Spans
from attnviz.features.syntax.result import Syntax
from attnviz.features.thoughts.result import Thoughts
from attnviz.features.view.result import Viewer
from attnviz.models.controls import FreshConfig as FreshConfig
from attnviz.scoring.rules import RuleText as RuleText
from attnviz.scoring.user_measures import Outputs as Outputs
from attnviz.scoring.user_measures import Predictions as Predictions
from attnviz.scoring.user_scores import ScoreBlock as ScoreBlock
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from torch import Tensor
from typing import Any
from typing import Literal

__version__: str

def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    padding: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    cuts: Cut | None = None,
    gate: Gate | None = None,
    donors: Sequence[Donor] = ...,
    residual: Tensor | None = None,
    site: Site = ...,
    observers: Sequence[Observer] = ...,
    block_rows: int | None = None,
) -> Attended: ...

def capture(
    text: str | Prompt | Capture,
    *,
    tokenizer: Any = None,
    pair: str | None = None,
    target: str | None = None,
    truncate: bool = False,
    select: str | None = None,
    without: str | None = None,
    quantity: str = 'weights',
    words: bool = False,
    mean: Literal['heads', 'layers', 'all'] | None = None,
    why: str | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
) -> Capture: ...

def fill(
    name: str,
) -> Callable[[Any], Any]: ...

def from_arrays(
    attentions: Any,
    tokens: Any,
    *,
    source_tokens: Any = None,
    tokenizer: Any = None,
    item: int | None = None,
    kind: str | None = None,
    sinks: bool = False,
    layout: str | None = None,
    attention_mask: Any = None,
    decoder_attention_mask: Any = None,
    mask: Any = None,
    picture: Any = None,
    grid: tuple[int, int] | None = None,
    model: str = 'attention in memory',
) -> Captured: ...

def from_response(
    response: Any,
    *,
    request: Any = None,
    item: int | None = None,
) -> Prompt: ...

def load(
    model: Any = 'demo-gpt2',
    *,
    tokenizer: Any = None,
    device: str = 'auto',
    dtype: str = 'auto',
    untrained: int | None = None,
    scale: Literal['default', 'trained'] = 'default',
    reads: Literal['text', 'image'] = 'text',
) -> Source: ...

def load_plugins(
    *files: str | Path,
) -> tuple[str, ...]: ...

def metric(
    name: str,
    *,
    unit: str = '',
    worse: Literal[1, -1] = 1,
    distance: bool = False,
    of: Literal['texts', 'pairs'] = 'texts',
) -> Callable[[Any], Any]: ...

def read(
    path: Any,
    tokens: Any = None,
    *,
    source_tokens: Any = None,
    tokenizer: Any = None,
    item: int | None = None,
    kind: str | None = None,
    sinks: bool = False,
    layout: str | None = None,
    attention_mask: Any = None,
    decoder_attention_mask: Any = None,
    mask: Any = None,
    picture: Any = None,
    grid: tuple[int, int] | None = None,
) -> Any: ...

def read_texts(
    paths: str | Path | Sequence[str | Path],
    *,
    column: str | None = None,
    limit: int | None = None,
) -> list[str]: ...

def role(
    name: str,
    *,
    score: str | None = None,
    mean: float,
    lift: float = 2.0,
    code: str | None = None,
    short: str | None = None,
    color: str | None = None,
    reason: str = '',
    source: str = '',
    rests: bool = False,
    unless: Sequence[str] = ...,
) -> Callable[[Any], Any]: ...

def rule(
    name: str,
) -> Callable[[Any], Any]: ...

def score(
    name: str,
    *,
    formula: str = '',
    unit: Literal['share', 'bits', 'tokens'] = 'share',
    targets: bool = False,
    chance: float | Callable[[ScoreBlock], Any] | None = None,
    rows: Callable[[ScoreBlock], Any] | None = None,
    cross: bool = False,
    spaces: Sequence[Literal['text', 'patches', 'frames']] = ...,
    source: str = '',
) -> Callable[[Any], Any]: ...

def select(
    text: str,
    where: Capture | Result | Source,
) -> tuple[Head, ...]: ...

def watch(
    module: Any,
    *,
    passes: int = 1,
    layout: str | None = None,
    batch: int | None = None,
    order: str | None = None,
) -> AbstractContextManager[Watched]: ...

def write_capture(
    capture: Capture,
    path: str | Path,
) -> Path: ...

def heads(
    text: str | Prompt | Capture,
    *,
    probe: bool = False,
    select: str | None = None,
    without: str | None = None,
    quantity: str = 'weights',
    evidence: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Heads: ...

def explain(
    text: str | Prompt | Capture,
    *,
    answer: str | None = None,
    against: str | None = None,
    seed: int = 0,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Explain: ...

def heatmap(
    text: str | Prompt | Capture,
    select: str | None = None,
    *,
    rows: str | None = None,
    keys: str | None = None,
    quantity: str = 'weights',
    mean: Literal['heads', 'layers', 'all'] | None = None,
    tiles: Literal['max', 'sum'] = 'max',
    palette: str = 'viridis',
    normalize: Literal['global', 'head', 'row'] = 'global',
    scale: Literal['linear', 'sqrt', 'log'] = 'linear',
    size: float | None = None,
    dpi: float = 150.0,
    words: bool = False,
    hide: str = '',
    values: bool | None = None,
    across: int = 256,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Heatmap: ...

def view(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture],
    *,
    select: str | None = None,
    without: str | None = None,
    quantity: str = 'weights',
    mean: Literal['heads', 'layers', 'all'] | None = None,
    rows: str | None = None,
    keys: str | None = None,
    why: str | None = None,
    other_model: Any = None,
    ablate: bool = False,
    evidence: Any = None,
    bits: Literal[8, 16] | None = None,
    max_mb: float = 100.0,
    title: str | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Viewer: ...

def live(
    text: str | None = None,
    *,
    select: str | None = None,
    bits: Literal[8, 16] | None = None,
    max_mb: float = 100.0,
    title: str | None = None,
    model: str | Path | FreshConfig | Source = 'demo-gpt2',
) -> LivePage: ...

def merge_profiles(
    files: Sequence[str | Path],
    *,
    state: str | Path | None = None,
    stability: bool = False,
    evidence: Any = None,
) -> Profile: ...

def profile(
    files: str | Path | Sequence[str | Path] | None = None,
    *,
    texts: Sequence[str] | None = None,
    column: str | None = None,
    group: str | None = None,
    whole: bool = False,
    stride: int | None = None,
    window: int | None = None,
    special_tokens: bool = True,
    limit: int | None = None,
    sample: int | None = None,
    strict: bool = False,
    quantity: str = 'weights',
    select: str | None = None,
    interval: Literal['each', 'simultaneous'] = 'each',
    stability: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    ray: str | None = None,
    evidence: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    state: str | Path | None = None,
    effects: bool = True,
    progress: Callable[[Progress], None] = ...,
) -> Profile: ...

def ablate(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture] | None = None,
    *,
    probe: bool = False,
    select: str | None = None,
    method: str = 'mean, resample',
    draws: int | None = None,
    seed: int = 0,
    stability: bool = False,
    batch_tokens: int | None = None,
    metric: Any = None,
    answer: str | None = None,
    against: str | None = None,
    position: str | int | None = None,
    mask: Literal['some', 'each'] = 'some',
    by: Literal['head', 'position'] = 'head',
    estimate: Literal['plain', 'layer'] | None = None,
    average: Literal['median', 'trimmed', 'mean'] = 'median',
    smallest: float = 0.01,
    curve: str | None = None,
    split: str = 'halves',
    tolerance: float = 0.05,
    reference: str | Prompt | Capture | Iterable[str | Prompt | Capture] | None = None,
    groups: Sequence[str | None] | None = None,
    parts: Sequence[str] | None = None,
    fill: Callable[[Outputs], Any] | None = None,
    evidence: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    jobs: int = 1,
    ray: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Ablation: ...

def prune_heads(
    model: str | Path,
    heads: str | Sequence[Head],
    folder: str | Path,
    *,
    device: str = 'auto',
) -> Pruned: ...

def patch(
    pairs: Pair | Mapping[str, Any] | str | Path | Iterable[Pair | Mapping[str, Any]] | None = None,
    *,
    split: str = 'halves',
    task: str | None = None,
    count: int = 60,
    group: str | None = None,
    align: Literal['position', 'word'] = 'position',
    component: Literal['z', 'q', 'k', 'v', 'pattern', 'gate', 'attention', 'mlp', 'residual'] = 'z',
    select: str | None = None,
    by: Literal['head', 'position'] = 'head',
    position: str | int | None = None,
    direction: Literal['denoise', 'noise', 'both'] = 'both',
    metric: Any = None,
    fill: Any = None,
    estimate: bool = False,
    paths: tuple[str, ...] | str = ...,
    edges: int = 0,
    steps: int = 5,
    mlps: Literal['frozen', 'free'] = 'frozen',
    circuit: str | int | None = None,
    seed: int = 0,
    batch_tokens: int | None = None,
    jobs: int = 1,
    ray: str | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Patch: ...

def knockout(
    text: str | Prompt | Capture | CutText | Mapping[str, Any] | Path | Iterable[str | Prompt | Capture | CutText | Mapping[str, Any]],
    *,
    rows: str | None = None,
    keys: str | None = None,
    select: str | None = None,
    window: int | None = None,
    cut: str = 'mask',
    draws: int = 3,
    metric: Literal['loss', 'kl', 'logit-diff', 'prob', 'log-prob'] | None = None,
    answer: str | None = None,
    against: str | None = None,
    seed: int = 0,
    batch_tokens: int | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Knockout: ...

def thoughts(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture],
    *,
    apart: int = 4,
    suppress: bool = True,
    draws: int = 3,
    resample: int = 0,
    seed: int = 0,
    batch_tokens: int | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Thoughts: ...

def syntax(
    files: str | Path | Sequence[str | Path],
    *,
    split: str = 'halves',
    strict: bool = False,
    relation: str | None = None,
    subtypes: bool = False,
    punct: bool = True,
    control: int | None = None,
    seed: int = 0,
    also: str = '',
    sentences: int = 0,
    jobs: int = 1,
    ray: str | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Syntax: ...

def coref(
    files: str | Path | Sequence[str | Path],
    *,
    split: str = 'halves',
    strict: bool = False,
    candidates: Literal['words', 'mentions'] = 'words',
    window: int = 128,
    jobs: int = 1,
    ray: str | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Coref: ...

def spans(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture] | Path,
    *,
    rows: str | None = None,
    quantity: str = 'weights',
    split: str = 'halves',
    strict: bool = False,
    fields: Mapping[str, str] | None = None,
    distractors: int = 3,
    seed: int = 0,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Spans: ...

def sinks(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture],
    *,
    threshold: float = 0.3,
    dormant: float = 0.5,
    ablate: bool = False,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Sinks: ...

def retrieval(
    needles: str | Path | None = None,
    *,
    split: str = 'halves',
    lengths: tuple[int, ...] | None = None,
    depths: tuple[float, ...] = ...,
    count: int = 4,
    needle: tuple[int, int] = ...,
    generate: int | None = None,
    rank_by: Literal['copied', 'query'] = 'copied',
    group_size: tuple[int, ...] = ...,
    draws: int = 5,
    control: int = 1,
    seed: int = 0,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Retrieval: ...

def logits(
    text: str | Prompt | Capture,
    *,
    answer: str | None = None,
    against: str | None = None,
    position: str | int | None = None,
    predictions: int = 5,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
) -> Logits: ...

def writers(
    texts: Iterable[str | Prompt | Capture],
    *,
    answer: str | Sequence[str] | None = None,
    against: str | Sequence[str] | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
) -> Writers: ...

def lens(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture],
    *,
    by: Literal['layer', 'head'] = 'layer',
    answer: str | None = None,
    position: str | int | None = None,
    predictions: int = 10,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[int], None] = ...,
) -> Lens: ...

def sources(
    text: str | Prompt | Capture | Iterable[str | Prompt | Capture],
    *,
    select: str,
    query: str | int | None = None,
    key: str | int | None = None,
    other_key: str | int | None = None,
    role: str | None = None,
    split: str = 'all',
    seed: int = 0,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    parts: Sequence[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Sources | SourceShares: ...

def flow(
    text: str | Prompt | Capture,
    *,
    method: Literal['alti', 'rollout', 'max-flow'] | None = None,
    position: str | int | None = None,
    key: str | int | None = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Flow: ...

def circuits(
    *,
    select: str | None = None,
    edges: int = 1000,
    sample: int = 4096,
    seed: int = 0,
    evidence: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] | None = None,
) -> Circuits: ...

def film(
    files: str | Path | Sequence[str | Path] | None = None,
    *,
    texts: Sequence[str] | None = None,
    column: str | None = None,
    whole: bool = False,
    special_tokens: bool = True,
    limit: int | None = None,
    scores: str | Sequence[str] | None = None,
    probe: bool = False,
    ablate: bool = False,
    gold: str | Path | Sequence[str | Path] | None = None,
    map_tokens: int = 24,
    seed: int = 0,
    state: str | Path | None = None,
    jobs: int = 1,
    baseline: Mapping[str, float] | tuple[tuple[str, float], ...] | None = None,
    model: Any = None,
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[str, int, int], None] = ...,
) -> Film: ...

def track(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str | Sequence[int]],
    *,
    every: int = 1,
    scores: Sequence[str] | None = ...,
    state: str | Path | None = None,
    map_tokens: int = 24,
    each: bool = False,
    seed: int = 0,
    log_pictures: Any = ...,
) -> Tracker: ...

def atlas(
    files: str | Path | Sequence[str | Path],
    *,
    gold: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
    evidence: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    state: str | Path | None = None,
    out_dir: str | Path | None = None,
    progress: Callable[[str, int, int], None] = ...,
) -> Atlas: ...

def diff(
    before: str | Prompt | Capture | Path | Result | Iterable[str | Prompt | Capture] | None = None,
    after: str | Prompt | Capture | Path | Result | None = None,
    *,
    other_model: Any = None,
    align: Literal['token', 'position', 'word'] = 'token',
    tokenizer: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
) -> Diff: ...

def card(
    model: Any = 'demo-gpt2',
    *,
    files: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
    picture: str = 'attention-heads.png',
    device: Any = 'auto',
    dtype: Any = 'auto',
    path: str | Path | None = None,
    command: str = '',
) -> Card: ...

def stale_card(
    path: str | Path,
    model: Any = 'demo-gpt2',
    *,
    files: str | Path | Sequence[str | Path] | None = None,
    limit: int | None = None,
) -> tuple[str, ...] | None: ...

def check(
    path: Any,
    x: Any = None,
    *,
    heads: int | None = None,
    causal: bool | None = None,
    mask: Any = None,
    context: Any = None,
    step: Callable[..., Any] | None = None,
    d_model: int = 24,
    kv_heads: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> FileCheck | ModuleCheck: ...

def export(
    files: str | Path | Sequence[str | Path],
    out_dir: str | Path,
    *,
    select: str | None = None,
    role: str | None = None,
    layout: str = 'heads',
    rows: str | None = None,
    keys: str | None = None,
    format: str = 'png',
    quantity: str = 'weights',
    mean: Literal['heads', 'layers', 'all'] | None = None,
    special_tokens: bool = True,
    truncate: bool = False,
    palette: str = 'viridis',
    normalize: Literal['global', 'head', 'row'] = 'global',
    scale: Literal['linear', 'sqrt', 'log'] = 'linear',
    size: float | None = None,
    dpi: float = 150.0,
    words: bool = False,
    hide: str = '',
    values: bool | None = None,
    column: str | None = None,
    recorded: bool = False,
    limit: int | None = None,
    strict: bool = False,
    jobs: int | None = None,
    force: bool = False,
    evidence: Any = None,
    model: Any = 'demo-gpt2',
    device: Any = 'auto',
    dtype: Any = 'auto',
    progress: Callable[[Exported], None] = ...,
) -> Exported: ...

def shapes(
    text: str | None = None,
    *,
    d_model: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | str | None = None,
    kind: Literal['mha', 'gqa', 'mqa', 'mla', 'cross'] | None = None,
    latent: int | str | None = None,
    bias: bool | None = None,
    causal: bool | None = None,
    sliding_window: int | None = None,
    layers: int | None = None,
    batch: int | None = 1,
    seq: int | None = None,
    context_length: int | None = None,
    cache: int | None = None,
    dtype: str | None = None,
    model: str | None = None,
    show: str | None = None,
    explain: bool = False,
    file: str | Path | None = None,
    seed: int = 0,
    out: str | Path | tuple[str | Path, ...] | None = None,
) -> Answer: ...


__all__ = [
    "AttnvizError",
    "AttnvizWarning",
    "DeviceError",
    "InputError",
    "ModelError",
    "OutputError",
    "PackageError",
    "SelectionError",
    "SizeError",
    "UsageError",
    "__version__",
    "attend",
    "Capture",
    "capture",
    "fill",
    "FreshConfig",
    "from_arrays",
    "from_response",
    "Generation",
    "Head",
    "HeadScores",
    "load",
    "load_plugins",
    "metric",
    "Outputs",
    "Predictions",
    "Prompt",
    "read",
    "read_texts",
    "role",
    "rule",
    "RuleText",
    "Role",
    "score",
    "Score",
    "ScoreBlock",
    "select",
    "Site",
    "Tokens",
    "watch",
    "write_capture",
    "Heads",
    "heads",
    "explain",
    "heatmap",
    "view",
    "live",
    "merge_profiles",
    "profile",
    "ablate",
    "prune_heads",
    "Pair",
    "patch",
    "knockout",
    "thoughts",
    "syntax",
    "coref",
    "spans",
    "sinks",
    "retrieval",
    "logits",
    "writers",
    "lens",
    "sources",
    "flow",
    "circuits",
    "film",
    "HeadsCallback",
    "track",
    "atlas",
    "diff",
    "card",
    "stale_card",
    "check",
    "export",
    "shapes",
]
