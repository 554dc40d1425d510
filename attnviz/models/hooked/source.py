"""A transformers model, hooked or eager, as a source of attention."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import torch
from torch import Tensor

from attnviz.attention.blocks import check_numbers
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo, called
from attnviz.core.quantities import check_attends
from attnviz.core.reasons import Origin
from attnviz.core.source import (
    PLAIN,
    Cut,
    ForwardRequest,
    Observer,
    Output,
    Past,
    Start,
    at_positions,
)
from attnviz.core.tokens import Sides
from attnviz.core.weights import Embedding, OutputProjection, Reading, Readout, Sublayer
from attnviz.errors import ModelError
from attnviz.models.hooked.eager import (
    EagerOutputs,
    QKHook,
    check_room,
    find_outputs,
    hand_out,
    returned,
)
from attnviz.models.hooked.interface import WatchedPass, arriving, hooking
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import Passage
from attnviz.models.hooked.prompting import Prompted
from attnviz.models.hooked.reading import Anatomy, around, find_anatomy
from attnviz.models.hooked.recurrences import LinearMaps, States, find_states
from attnviz.models.hooked.residual import (
    AddedParts,
    Residual,
    Stack,
    Sublayers,
    find_layers,
    find_residual,
    find_stack,
    find_sublayers,
)
from attnviz.models.hooked.survey import Survey, lengths, real, sample
from attnviz.models.hooked.tokenizer import Texts
from attnviz.models.hooked.windows import IndexMaps, indexed_layers, looking_at_all
from attnviz.models.limits import beyond
from attnviz.models.running import begin, merged, past_of_batch, running

_WINDOWS = ("sliding_window", "window_size", "local_attention")
"""Where configurations keep the size of a sliding window."""


_T = TypeVar("_T")


class _Tried(cached_property[_T]):
    """What is tried on the model when it is first needed, while no other thread runs it."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _T: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with instance._network.lock:  # before the lock that cached_property has in Python 3.11
            return super().__get__(instance, owner)


def _layers_of(start: Start | None) -> tuple[int, int | None]:
    """Return the first layer of a pass, and that before which it ends."""
    return (0, None) if start is None else (start.layer, start.end)


class Hooked(Prompted):
    """A transformers model as a source of attention (:class:`~attnviz.core.source.Source`)."""

    owned = False  # whether attnviz loaded it, so that nobody else's hooks can be in it
    folder: Path | None = None  # where it lies, if attnviz loaded it from there

    def __init__(
        self, network: HookedModel, survey: Survey, texts: Texts, name: str, reason: str = ""
    ) -> None:
        import transformers

        self._network, self._survey, self._texts, self._name = network, survey, texts, name
        self.info = SourceInfo(
            model=called(name),
            backend=survey.backend,
            exactness=survey.exactness,
            device=str(network.device),
            dtype=str(network.dtype).removeprefix("torch."),
            reason="; ".join(part for part in (reason, survey.reason) if part),
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
        )

    def _hash(self) -> str | None:
        """Of the configuration, every number and the files; on a CPU alone, where these are."""
        model = self._network.model
        files = self._texts.files.digest()
        on_cpu = self.info.device == "cpu" and not self._network.is_offloaded
        large = beyond(sum(weight.nbytes for weight in model.parameters()))
        if not self.owned or not on_cpu or files is None or large:
            return None
        config = f"{type(model).__qualname__} {model.config.to_json_string()} {self.info.backend}"
        writing = getattr(model, "generation_config", None)
        config += "" if writing is None else writing.to_json_string(use_diff=False)
        digest = hashlib.sha256(f"{config} {files}".encode())
        for name, tensor in model.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            if tensor.numel():
                numbers = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
                digest.update(numbers.data)
        return digest.hexdigest()

    @property
    def architecture(self) -> str:
        """The class that its checkpoint names, or that it has in memory; empty for neither."""
        model: Any = self._network.model
        if self._network.seq2seq or self.info.untrained:
            return ""
        if self.owned or self.folder is not None:
            return str((getattr(model.config, "architectures", None) or [""])[0])
        return type(model).__name__

    @property
    def layout(self) -> Layout:
        """Which heads it has; layers without attention have none."""
        return self._survey.layout

    @property
    def no_gates(self) -> str:
        """Why its attention cannot be gated; empty where it can."""
        if not len(self.layout):
            return "none of its layers attends"
        if self.info.backend == "hooked":
            return ""
        return f"{self._network.family} models compute it in code of their own (eager backend)"

    @property
    def start_kind(self) -> SiteKind | None:
        """The kind of a single stack whose layers are a plain list."""
        return None if self._single is None else self._survey.kind

    @_Tried
    def _stack(self) -> Stack | None:
        """Return the layers at which a pass can begin, tried when they are first needed."""
        if self.info.backend != "hooked":
            return None
        return find_stack(self._network, self._survey.plan, sample(self._network))

    @property
    def _single(self) -> Stack | None:
        """The same of a single stack."""
        return None if self._network.seq2seq else self._stack

    @_Tried
    def _eager(self) -> EagerOutputs:
        """W_O of a decoder with attention of its own, tried when it is first needed."""
        network = self._network
        if self.info.backend != "eager" or self._survey.kind != "decoder" or network.sample:
            return EagerOutputs()
        return find_outputs(network, self.layout, sample(network))

    @_Tried
    def _layers(self) -> Stack | None:
        """Return the layers whose states can be read, also where no pass begins at one of them."""
        if self.info.backend == "hooked":
            plan, stack = self._survey.plan, self._stack
        else:
            plan, stack = self._eager.plan, None
            if plan:
                stack = find_stack(self._network, plan, sample(self._network))
        if stack is not None or not plan or self._network.seq2seq:
            return stack
        return find_layers(self._network, plan, sample(self._network))

    def forward(
        self,
        batch: Sequence[Inputs],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Output:
        """Run a batch; see :class:`~attnviz.core.source.Source`."""
        start = request.start
        items = [self._item(inputs) for inputs in batch]
        like = torch.empty(0, device=self._network.device)
        standing = merged(self._standing, request.gates or {}, like)
        cuts = self._cuts(request.cuts or {}, like)
        gated = bool(request.gates or request.donors or cuts)
        stack = self._checked(observers, request, gated=gated)
        if start is not None:
            start = replace(start, hidden=begin(self._name, start, batch, self.layout))
        if request.mlps and not self._residual.splits:
            raise ModelError(f"what {self._name} adds up cannot be told: {self.readout().reason}")
        states: list[Tensor] = []
        added = AddedParts()
        tracked = running(
            self._name,
            batch,
            self._network.device,
            grad=request.grad,
            states=request.states or request.mlps,
        )
        first, end = _layers_of(start)
        plan = [
            call
            for call in self._survey.plan
            if (start is None or not self._network.seq2seq)
            and first <= call[1].layer
            and (end is None or call[1].layer < end)
        ]
        with self._network.lock, tracked, contextlib.ExitStack() as around:
            towers = bool(items[0].ids and items[0].features)
            watched = WatchedPass(
                observers, plan, standing, request.donors or {}, cuts, aside=towers,
                device=self._network.device,
            )  # fmt: skip
            if self.info.backend == "hooked":
                gates = any(d.part == "gate" for part in watched.donors.values() for d in part)
                if self._held and (observers or gates):
                    watched.held = self._held
                    watched.passage = around.enter_context(Passage())
                around.enter_context(hooking(watched))
                if request.residuals:
                    around.enter_context(self._sublayers.handing(watched))
            if stack is not None and start is not None:
                around.enter_context(stack.beginning(start))
            if stack is not None and request.states:
                around.enter_context(stack.keeping(states, first, end))
            if request.mlps:
                around.enter_context(self._residual.keeping(added, first))
            if self.info.backend == "hooked":
                keeps = request.keep or request.past is not None
                earlier = past_of_batch(request.past, len(items), like) if keeps else None
                output = self._network.run(
                    items, segments=self._texts.segments, logits=request.logits, past=earlier
                )
                watched.check_complete()
            else:
                output = self._forward_eagerly(
                    items, observers, logits=request.logits, terms=request.terms
                )
        last = output.get("last_hidden_state")
        scores = output.get("logits") if request.logits else None
        scores = None if scores is None else at_positions(scores, request.asked).to(like.device)
        last = None if last is None else at_positions(last, request.ends).to(like.device)
        past = Past(output["kept"]) if request.keep and "kept" in output else None
        mlps, mixers = self._parts(added, len(items), states, request)
        deviations = {
            n: torch.stack([x.reshape(len(items), -1) for x in deviation], -1).to(like.device)
            for n, deviation in added.deviations.items()
        }
        return Output(
            last, scores,
            tuple(state.to(like.device) for state in states), mlps, past, mixers, deviations,
        )  # fmt: skip

    def _checked(
        self, observers: Sequence[Observer], request: ForwardRequest, *, gated: bool
    ) -> Stack | None:
        """Return the layers that a pass needs as a list; ModelError where it cannot be run."""
        if observers:
            check_attends(self._name, self.layout)
        if gated and self.no_gates:
            raise ModelError(f"attention of {self._name} cannot be gated: {self.no_gates}")
        start = request.start
        stack = None if start is None and not request.states else self._layers
        late = start is not None and stack is not None and start.layer < len(stack.layers)
        lacking = stack is None or (start is not None and not stack.starts)
        if (lacking and (start is not None or request.states)) or (
            late and stack is not None and stack.encoder
        ):
            raise ModelError(
                f"{self._name} has no plain list of layers that run one after the other; a pass "
                "cannot begin at one of them, nor show the states between them"
            )
        if start is not None and observers and self.info.backend == "eager":
            raise ModelError(
                f"a pass of {self._name} that begins at a layer shows no attention: {self.no_gates}"
            )
        return stack

    def _parts(
        self, added: AddedParts, items: int, states: Sequence[Tensor], request: ForwardRequest
    ) -> tuple[tuple[Tensor, ...], dict[int, Tensor]]:
        """Return what the parts of the layers added, [B, T, D] each."""
        if not request.mlps:
            return (), {}
        mlps, mixers = (
            {
                n: part.reshape(items, -1, part.shape[-1]).to(self._network.device)
                for n, part in parts.items()
            }
            for parts in (added.mlps, added.mixers)
        )
        first, end = _layers_of(request.start)
        layers = range(len(self._residual.layers))[first:end]
        like = next(iter([*mlps.values(), *mixers.values(), *states]), None)
        zeros = None if like is None else torch.zeros_like(like)
        by_layer = (mlps.get(n, zeros) for n in layers)
        return tuple(part for part in by_layer if part is not None), mixers

    @property
    def continues(self) -> bool:
        """Whether that was seen to give what whole passes give."""
        return self._continues

    @_Tried
    def _continues(self) -> bool:
        """Return a sample with its first keys cut from the later rows, in one pass and in two."""
        if self.no_gates or self.no_logits or self._survey.kind != "decoder":
            return False
        if self._network.sample is not None or self._network.seq2seq:
            return False
        tokens = self._texts.tokens(sample(self._network)[0].ids)
        inputs, length = Inputs({"decoder": Sides(tokens, tokens)}), len(tokens)
        rows, keys = (torch.zeros(1, length, dtype=torch.bool) for _ in range(2))
        half = length // 2
        rows[0, half:] = keys[0, 1:half] = True
        cuts = {
            site: Cut(torch.ones(1, self.layout.heads[site.kind][site.layer]).bool(), rows, keys)
            for site in self.layout.sites
        }
        cut = ForwardRequest(cuts=cuts, hidden=False, logits=True)
        with contextlib.suppress(Exception):  # caches of a kind of their own, in a model's code
            past = self.forward([inputs], request=ForwardRequest(hidden=False, keep=True)).past
            if past is None:
                return False
            once = self.forward([inputs], request=cut).logits
            twice = self.forward([inputs], request=replace(cut, past=past.first(half))).logits
            assert once is not None
            assert twice is not None
            near = 1e-4 if self._network.dtype == torch.float32 else 2e-2
            far = (once[:, half:].float() - twice.float()).abs().max()
            return bool(far <= near * once.float().abs().max().clamp(min=1.0))
        return False

    @cached_property
    def _held(self) -> frozenset[Site]:
        """The layers that multiply their heads' outputs with something before W_O."""
        projections = self._survey.projections
        return frozenset(site for site, out in projections.items() if out.held)

    def output(self, site: Site) -> OutputProjection:
        """W_O and b_O of a layer, where they were proved at loading."""
        missing = OutputProjection(None, None, "the layer has no attention")
        if self.info.backend == "eager":
            if not self._eager.projections:
                return OutputProjection(None, None, self.no_gates)
            return self._eager.projections.get(site, missing)
        return self._survey.projections.get(site, missing)

    @_Tried
    def _sublayers(self) -> Sublayers:
        """Return what stands around attention, tried when it is first needed."""
        plan, projections = self._survey.plan, self._survey.projections
        return find_sublayers(self._network, plan, projections, sample(self._network))

    def sublayer(self, site: Site) -> Sublayer:
        """Get what a layer does around its attention, where that was proved on the model itself."""
        if self.info.backend == "eager":
            return Sublayer(None, reason=self.no_gates)
        missing = Sublayer(None, reason="the layer has no attention")
        return self._sublayers.by_site.get(site, missing)

    @_Tried
    def _residual(self) -> Residual:
        """Whether the residual stream adds up, tried when it is first needed."""
        if self.info.backend == "hooked":
            layers = None if self._network.seq2seq else self._layers
            projections = self._survey.projections
            residual = find_residual(self._network, layers, projections, sample(self._network))
            return (
                residual.named(self._states.names) if residual.readout.summed.mixers else residual
            )
        outputs = self._eager.projections
        if not outputs:
            reason = self.no_gates
            if self._survey.kind != "decoder":
                reason = (
                    f"{self._network.family} models compute attention in code of their own and "
                    "tokens see later ones; what heads write is looked for in such code only where "
                    "no token does"
                )
            return Residual(Readout(None, reason=reason), no_sum=self.no_gates)
        stack = self._layers if self._eager.plan else None
        missing = next(((s.layer, out) for s, out in outputs.items() if out.weight is None), None)
        if missing is not None:
            layer, out = missing
            reason = f"layer {layer} cannot be split over its heads, since {out.reason}"
            return Residual(Readout(None, reason=reason), no_sum=self.no_gates)
        residual = find_residual(self._network, stack, outputs, sample(self._network))
        return replace(residual, no_sum=self.no_gates)

    @_Tried
    def _states(self) -> States:
        """Return the layers with a state, tried when they are first needed."""
        if self._network.seq2seq or self._network.sample is not None:
            return States(reason="only single stacks of text are looked through for them")
        return find_states(self._network, sample(self._network))

    @property
    def body(self) -> torch.nn.Module:
        """The network without its LM head."""
        return self._network.body

    def states(self, *, shares: bool) -> LinearMaps:
        """Return the model with the coefficients of its layers with a state for maps."""
        if self._states.reason:
            raise ModelError(
                f"{self._name} has no map of a layer with a state: {self._states.reason}"
            )
        kind = self._survey.kind or "decoder"
        return LinearMaps(self, self.body, kind, self._states, shares=shares)

    @_Tried
    def _indexed(self) -> list[int]:
        """Return the layers that have an indexer, tried when they are first needed."""
        if self._network.seq2seq or self._network.sample is not None or self.no_gates:
            return []
        tokens = self._texts.tokens(sample(self._network)[0].ids)
        return indexed_layers(self, [Inputs({"decoder": Sides(tokens, tokens)})])

    def indexed(self) -> IndexMaps:
        """Return the model with the scores of its indexers for maps."""
        if not self._indexed:
            raise ModelError(
                f"{self._name} has no index scores: none of its layers hands the attention "
                "function the keys that an indexer chose"
            )
        return IndexMaps(self, self._indexed)

    @property
    def stream_parts(self) -> tuple[tuple[Origin, torch.nn.Module], ...]:
        """Modules whose outputs the layers add beside attention, in the order in which they run.

        There are none where the residual stream does not add up.
        """
        kind = self._survey.kind or "decoder"
        return tuple(
            (Origin("mixer" if part.mixer else "mlp", layer=Site(kind, number)), part.module)
            for number, layer in enumerate(self._residual.layers)
            for part in layer.parts
        )

    @property
    def no_sum(self) -> str:
        """Why what heads write does not reach later layers in a known way; empty where it does."""
        return self._residual.no_sum

    @_Tried
    def _anatomy(self) -> Anatomy:
        """Return what the layers read, tried when it is first needed."""
        return find_anatomy(self._network, self._single, self._survey.plan)

    def reading(self, site: Site) -> Reading:
        """W_Q, W_K and W_V of a layer, where they were proved on the model itself."""
        if self.info.backend == "eager":
            return Reading(reason=self.no_gates)
        reading = self._anatomy.readings.get(site, Reading(reason="the layer has no attention"))
        looked = self._single is not None and self._network.sample is None
        layers = self._residual.layers if looked else ()
        return around(reading, layers[site.layer]) if layers else reading

    def embedding(self) -> Embedding:
        """Return the tables that what enters the first layer was proved to be made of."""
        if self.info.backend == "eager":
            return Embedding(reason=self.no_gates)
        return self._anatomy.embedding

    def readout(self) -> Readout:
        """How the residual stream becomes logits, where that was proved on the model itself."""
        return self._residual.readout

    def _forward_eagerly(
        self, items: Sequence[Item], observers: Sequence[Observer], *, logits: bool, terms: bool
    ) -> Mapping[str, Any]:
        """Return the same by the weights that come back with the output; the rest of it."""
        network, single = self._network, self._survey.kind is not None
        expected = lengths(items)
        if observers:
            weight = len(items) * network.dtype.itemsize
            check_room(self._name, self.layout, expected, weight, self.info.device)
        hears = bool(observers) and bool(self._eager.plan)
        with (
            QKHook() if terms or hears else contextlib.nullcontext() as heard,
            looking_at_all(network.body) as looking,
        ):
            output = network.run(
                items, weights=bool(observers), segments=self._texts.segments, logits=logits
            )
        everywhere = looking[-1] if looking and len(looking[-1]) == len(items) else None
        sources = network.padding([item.length for item in items])
        targets = network.padding([len(item.target) for item in items])
        maps = returned(output, self._survey.kind)
        site_terms = {} if heard is None or not terms else heard.terms(maps)
        values = {} if heard is None or not hears else heard.values(maps)
        remaining = {name: output.get(name) for name in ("last_hidden_state", "logits")}
        del output
        named = [getattr(network.config, name, None) for name in _WINDOWS]
        sizes = [size for size in named if isinstance(size, int)]
        windows = sizes + [size // 2 + 1 for size in sizes]  # to one side, or half to either
        unrolled: Mapping[Site, int] = {}
        if network.windows is not None:
            kind = self._survey.kind or "encoder"
            unrolled = {Site(kind, n): reach for n, reach in enumerate(network.windows.reaches)}
        for site in list(maps):
            side: SiteKind = "encoder" if single else site.kind
            size = expected[side]
            if maps[site].shape[2:] != size:
                raise ModelError(
                    f"{self._name}: this {network.family} model gives no weights from token to "
                    f"token for {size[0]} tokens; try a shorter text"
                )
            for weights in real(maps[site], side, items):
                check_numbers(weights, site)
            padding = targets if site.kind == "decoder" and network.seq2seq else sources
            site_map, reaches = maps.pop(site), () if site.kind == "cross" else windows
            reaches = [unrolled[site]] if site in unrolled else reaches
            hand_out(
                site,
                site_map.to(network.device),
                arriving(observers, network.device, site_map),
                padding=None if bool(padding.all()) else padding,
                causal=site.kind == "decoder",
                windows=reaches,
                everywhere=everywhere if site in unrolled else None,
                terms=site_terms.get(site),
                values=values[site][1].to(network.device) if site in values else None,
            )
        return remaining

    def _following(self, ids: Sequence[int]) -> Tensor:
        """Return the logits [V] that follow some ids, with the gates that stand."""
        tokens = self._texts.tokens(ids)
        inputs = Inputs({self._survey.kind or "decoder": Sides(tokens, tokens)})
        logits = self.forward([inputs], request=ForwardRequest(hidden=False, logits=True)).logits
        assert logits is not None
        return logits[0, -1]
