"""The result of the graph stage: functional ATen graphs, and the passes that transform them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import fx

from armature.torch_abi.fake_rules import AxesOfOne, FakeResult, FakeRules
from armature.torch_abi.probes import Probed

if TYPE_CHECKING:
    from armature.services import Services


@attrs.frozen
class Origin:
    """The user's line and the ATen operator that a statement comes from.

    node: the node of the ATen graph, once it is lowered. It is not compared, because kernels of equal text are built
    once.
    """

    op: str  # "aten.add.Tensor"
    file: str = ""
    line: int = 0
    function: str = ""
    text: str = ""  # the source line, stripped
    node: str = attrs.field(default="", eq=False)


class GraphKind(Enum):
    """Which part of the program the graph is."""

    INFERENCE = "inference"
    FORWARD = "forward"
    BACKWARD = "backward"


@attrs.frozen(eq=False)
class AtenGraph:
    """A functional graph of ATen operators after decomposition. Each node has `meta["val"]` (fake tensor or SymInt),
    and `meta["origin"]` (`Origin`: the user's line). Its only mutations are `aten.copy_` into inputs at its end."""

    name: str
    kind: GraphKind
    module: fx.GraphModule
    fake_inputs: tuple[object, ...]  # FakeTensor, SymInt or int, one per placeholder
    static_inputs: frozenset[int] = frozenset()  # positions whose address does not change between calls (parameters)


@attrs.frozen(eq=False)
class Split:
    """A captured training graph, and where to cut it into pieces, each with a backward graph of its own.

    `module` must not be changed. `parameters`: the program's parameters behind placeholders of the graph. `cuts`: nodes
    that each begin a piece; a cut may be moved to an earlier node.
    """

    module: fx.GraphModule
    parameters: Mapping[fx.Node, torch.nn.Parameter]
    cuts: frozenset[fx.Node] = frozenset()


STAGES = ("split", "pre_grad", "joint", "post_grad", "loops", "kernels")


@attrs.frozen
class Pass:
    """A pass of the pipeline. `stage`: split runs on Split; pre_grad, joint and post_grad on fx.GraphModule; loops on
    LoopGraph; kernels on KernelPlan. `run` returns the changed (or same) object. `before` and `after` name other passes
    of the stage. In post_grad, `module.meta["kind"]` says which `GraphKind` the module is."""

    name: str
    stage: str = attrs.field(validator=attrs.validators.in_(STAGES))
    run: Callable[[object, Services], object]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@attrs.frozen
class PassRun:
    """A pass that has run, with its input and output as text."""

    stage: str
    name: str
    plugin: str
    before: str
    after: str


@attrs.frozen
class Decomposition:
    """Replaces `op`, while the ATen graph is traced, by the operators that `fn` calls (same signature, on tensors)."""

    op: torch._ops.OpOverload
    fn: Callable[..., object]
    priority: int = 0


@attrs.frozen
class Lowering:
    """Turns a call of `op` into loops: `fn(builder, *args, **kwargs)`, see `armature.lower.builder.Builder`.

    Returning None declines: the operator stays an ATen call. Returning `armature.plugin_api.CallInstead(run)` calls
    `run` instead, with the same arguments and results.
    """

    op: torch._ops.OpOverload
    fn: Callable[..., object]
    priority: int = 0


@attrs.frozen
class Operator:
    """Facts about an operator that neither its schema nor torch's meta kernel states.

    function: an equivalent of the operator that is faster to call. reliable_strides: the results always have the
    strides of the meta kernel; other operators' results are checked each time the operator has run.
    relaid: `relaid(args, result)`, called on fake tensors while code is traced; returns the result with the strides
    that the operator's real kernels produce, if the meta kernel's are wrong. takes: `takes(args)`, whether the kernels
    accept arguments of these dtypes and sizes, if the meta kernel accepts more; probed: how the kernel of a CPU is
    asked that. understood: `understood(args)`, the same arguments in a form for which the meta kernel's answer is
    right. fake: why the operator has no fake result, though it has a meta kernel. axes_of_one: what the strides of the
    results are along axes of size 1, unless that follows from `relaid` and torch's tags. changes_part: the result is
    the first argument with other numbers in part of it.
    """

    op: torch._ops.OpOverload
    function: Callable[..., Any] | None = None
    reliable_strides: bool = False
    relaid: Callable[[Sequence[Any], Any], Any] | None = None
    takes: Callable[[Sequence[Any]], bool] | None = None
    understood: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    probed: Probed | None = None
    fake: FakeResult | None = None
    axes_of_one: AxesOfOne | None = None
    changes_part: bool = False
    priority: int = 0


def fake_rules(rows: Iterable[Operator]) -> FakeRules:
    """What rows tell of fakes; of several for one operator, the first that tells it decides."""
    rows = tuple(rows)

    def told(field: str) -> dict[Any, Any]:
        return {row.op: getattr(row, field) for row in reversed(rows) if getattr(row, field) is not None}

    return FakeRules(*map(told, ("relaid", "takes", "understood", "axes_of_one", "fake", "probed")))
