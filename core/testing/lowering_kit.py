"""Tests for authors of lowerings: each is compared with eager mode, without a back end.

class TestLowerings(LoweringConformance):
    rows = tuple(plugin.armature_lowerings())

def test_scale(kit):
    kit.check(torch.ops.mylib.scale.default, torch.randn(3, 4), 2.0)
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import attrs
import torch
from torch import Tensor, fx

from armature import config
from armature.context import CompileContext
from armature.graph.data import AtenGraph, Decomposition, GraphKind, Lowering, Pass
from armature.graph.facts import Operator, fake_rules
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.features import AcrossRows, Features
from armature.lower.float8 import FORMATS
from armature.lower.lower import lower
from armature.lower.ops import OPS, REDUCTIONS
from armature.lower.show import show
from armature.lower.verify import verify
from armature.schedule.data import FusionRule
from armature.testing.differential import difference
from armature.testing.loop_evaluator import run_loops
from armature.torch_abi import pytree
from armature.torch_abi.fake_rules import FakeRules
from armature.torch_abi.functions import NO_FUNCTIONS, Functions

DTYPES = frozenset(
    (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
     torch.uint8, torch.bool)
)  # fmt: skip


COMBINING = frozenset(("sum", "prod", "max", "min"))
SCANS = COMBINING | {"logsumexp"}

EVERYTHING = Features(
    frozenset(OPS),
    frozenset(REDUCTIONS),
    DTYPES | frozenset(FORMATS),
    DTYPES - {torch.bool},
    COMBINING,
    SCANS,
    batch=256,
    across=AcrossRows(most=1 << 16, parts=2, shortest=1, least=0),
)


@attrs.frozen
class ReferenceBackend:
    """A reference back end: it has every feature of the loop IR, unless told otherwise."""

    name: str = "reference"
    device_types: frozenset[str] = frozenset(("cpu",))
    features: Features = EVERYTHING


@attrs.define(eq=False)
class KitTables:
    """The part of `Tables` that lowering uses."""

    rows: Iterable[Lowering]
    backend: Any = ReferenceBackend()
    decompositions: Mapping[Any, Decomposition] = attrs.field(factory=dict)
    all_passes: tuple[Pass, ...] = ()
    operators: Mapping[Any, Operator] = attrs.field(factory=dict)
    functions: Functions = NO_FUNCTIONS
    fusion_rules: tuple[FusionRule, ...] = ()
    fake_rules: FakeRules = attrs.field(init=False)
    _chains: dict[object, list[Lowering]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.fake_rules = fake_rules(self.operators.values())
        self._chains = {}
        for row in sorted(self.rows, key=lambda r: -r.priority):
            self._chains.setdefault(row.op, []).append(row)

    def lowering_chain(self, op: torch._ops.OpOverload) -> tuple[Lowering, ...]:
        """All lowerings of an operator, in order of preference."""
        return tuple(self._chains.get(op, ()))

    def passes(self, stage: str) -> tuple[Pass, ...]:
        """The passes of a stage, in the given order."""
        return tuple(p for p in self.all_passes if p.stage == stage)

    def owner_of_lowering(self, lowering: Lowering) -> str:
        """The plugin under test."""
        return "the plugin under test"

    def owner_of_fusion_rule(self, name: str) -> str:
        """The plugin under test."""
        return "the plugin under test"

    def owner_of_pass(self, name: str) -> str:
        """The plugin under test."""
        return "the plugin under test"

    def observe_compile(self, event: object) -> None:
        """Do nothing: there are no observers."""

    def device_backend(self, device_type: str) -> Any:
        """The reference back end for the CPU."""
        return self.backend if device_type in self.backend.device_types else None


def context(
    rows: Iterable[Lowering],
    backend: Any = None,
    decompositions: Iterable[Decomposition] = (),
    passes: Iterable[Pass] = (),
    operators: Iterable[Operator] = (),
) -> CompileContext:
    """A context for the graph and lowering stages alone."""
    tables = KitTables(
        rows,
        backend or ReferenceBackend(),
        {d.op: d for d in decompositions},
        tuple(passes),
        {row.op: row for row in operators},
    )
    return CompileContext(config.current(), cast(Any, tables), cast(Any, None), cast(Any, None), 0)


def one_operator(
    op: torch._ops.OpOverload, args: Sequence[object], kwargs: dict[str, object], result: object
) -> AtenGraph:
    """The graph that calls `op` once: every tensor among the arguments is an input with the tensor's layout."""
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
    graph = fx.Graph()
    given: list[Tensor] = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            leaves[k] = graph.placeholder(f"arg{len(given)}")
            given.append(leaf)
            leaves[k].meta["val"] = leaf
    new_args, new_kwargs = pytree.tree_unflatten(leaves, spec)
    node = graph.call_function(op, new_args, new_kwargs)
    node.meta["val"] = result
    outputs: tuple[fx.Node, ...] = (node,)
    if isinstance(result, (tuple, list)):
        picks = [
            graph.call_function(operator.getitem, (node, k)) for k, r in enumerate(result) if isinstance(r, Tensor)
        ]
        for pick in picks:
            pick.meta["val"] = result[cast(int, pick.args[1])]
        outputs = tuple(picks)
    graph.output(outputs)
    return AtenGraph("one", GraphKind.INFERENCE, fx.GraphModule({}, graph), tuple(given))


@attrs.define(eq=False)
class Kit:
    """Checks lowerings of `rows` against eager."""

    rows: tuple[Lowering, ...]
    tolerance: dict[torch.dtype, float] = attrs.field(
        factory=lambda: {torch.float16: 4e-3, torch.bfloat16: 4e-2, torch.float32: 2e-5, torch.float64: 1e-10}
    )

    def lower(self, op: torch._ops.OpOverload, *args: object, **kwargs: object) -> LoopGraph:
        """The loops of one call, verified."""
        result = op(*args, **kwargs)
        graph = lower(one_operator(op, args, kwargs, result), context(self.rows))
        verify(graph)
        return graph

    def check(self, op: torch._ops.OpOverload, *args: object, extern: bool = False, **kwargs: object) -> LoopGraph:
        """Check that one call equals eager: values, dtypes, strides. `extern`: whether it may stay an ATen call."""
        expected = op(*args, **kwargs)
        loops = lower(one_operator(op, args, kwargs, expected), context(self.rows))
        verify(loops)
        assert show(loops).strip()
        stayed = [str(n.target) for n in loops.nodes if isinstance(n, ExternCall)]
        assert extern or not stayed, f"stayed an ATen call: {stayed}"
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = run_loops(loops, tensors)
        wanted = [e for e in (expected if isinstance(expected, (tuple, list)) else [expected]) if isinstance(e, Tensor)]
        for ours, theirs in zip(outputs, wanted, strict=True):
            self.close(cast(Tensor, ours), theirs)
        return loops

    def results(self, op: torch._ops.OpOverload, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        """What the loops of one call compute, without a comparison."""
        loops = lower(one_operator(op, args, kwargs, op(*args, **kwargs)), context(self.rows))
        verify(loops)
        assert not any(isinstance(node, ExternCall) for node in loops.nodes), "it stayed an ATen call"
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        return tuple(cast(Tensor, found) for found in run_loops(loops, tensors))

    def close(self, ours: Tensor, theirs: Tensor) -> None:
        """Whether they are equal within the dtype's tolerance, relative to the size of eager's values."""
        gap = difference(theirs, ours)
        finite = theirs.detach()[torch.isfinite(theirs)].abs() if theirs.is_floating_point() else theirs.new_zeros(0)
        scale = max(float(finite.max()) if finite.numel() else 0.0, 1.0)
        assert gap <= self.tolerance.get(theirs.dtype, 0.0) * scale, f"differs by {gap}"


class LoweringConformance:
    """Subclass with `rows`: properties of every lowering."""

    rows: ClassVar[tuple[Lowering, ...]] = ()

    def test_signatures_take_the_operators_arguments(self) -> None:
        """A lowering accepts the builder and the arguments of the operator's schema."""
        for row in self.rows:
            formals = row.op._schema.arguments
            needed = [object() for f in formals if not f.has_default_value() and not f.kwarg_only]
            kwargs = {f.name: object() for f in formals if f.kwarg_only and not f.has_default_value()}
            inspect.signature(row.fn).bind(object(), *needed, **kwargs)

    def test_no_operator_is_lowered_twice_at_one_priority(self) -> None:
        """No operator has two lowerings of equal priority, so the order never matters."""
        seen = [(row.op, row.priority) for row in self.rows]
        assert len(seen) == len(set(seen)), [op for op in seen if seen.count(op) > 1]
